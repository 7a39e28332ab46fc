"""What linear first layers give away without any search."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sfumato.attacks.closed_form import (
    first_layer_gradients,
    first_linear,
    invert_one_example,
    is_softmax_regression,
    mean_image_of_each_label,
    rescale_rows,
)

CLASSES, FEATURES = 6, 40


def softmax_model(*, bias: bool = True) -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, CLASSES, bias=bias))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def gradient(model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
    model.zero_grad()
    nn.functional.cross_entropy(model(features), labels, reduction="sum").backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_one_example_is_read_off_exactly() -> None:
    torch.manual_seed(0)
    deep = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    for model in (softmax_model(), deep):
        image = torch.rand(1, FEATURES)
        weight, bias = first_layer_gradients(gradient(model, image, torch.tensor([2])), model)
        assert bias is not None
        torch.testing.assert_close(invert_one_example(weight, bias), image[0], atol=1e-5, rtol=1e-4)


def test_a_sum_of_devices_gives_the_mean_image_of_every_class() -> None:
    """At the first, even, model; pixels are dark in some image, so the sum of all is known exactly."""
    rng = torch.Generator().manual_seed(1)
    pixels = torch.rand(4, FEATURES, generator=rng)
    labels = torch.tensor([0, 1, 1, 4])
    pixels[:, ::2][2:] = 0.0  # of every pixel the images of some class are dark
    pixels[:, 1::2][:2] = 0.0
    mean, std = torch.full((FEATURES,), 0.3), torch.full((FEATURES,), 0.4)
    model = softmax_model()
    weight, bias = first_layer_gradients(gradient(model, (pixels - mean) / std, labels), model)
    assert bias is not None
    even = torch.full((CLASSES,), 1 / CLASSES)
    found = mean_image_of_each_label(weight, bias, even, labels, mean, std)
    torch.testing.assert_close(found[0], pixels[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found[3], pixels[3], atol=1e-5, rtol=1e-4)
    both = pixels[1:3].mean(dim=0)
    torch.testing.assert_close(found[1], both, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found[2], both, atol=1e-5, rtol=1e-4)


def test_without_a_bias_the_row_of_the_label_is_the_image_up_to_its_range() -> None:
    image = torch.rand(1, FEATURES, generator=torch.Generator().manual_seed(2))
    image[0, 0], image[0, 1] = 0.0, 1.0
    model = softmax_model(bias=False)
    weight, bias = first_layer_gradients(gradient(model, image, torch.tensor([3])), model)
    assert bias is None
    torch.testing.assert_close(rescale_rows(-weight[[3]]), image, atol=1e-5, rtol=1e-4)
    assert torch.equal(rescale_rows(torch.full((1, 4), 0.7)), torch.zeros(1, 4))


def test_which_models_these_are() -> None:
    convolution = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, CLASSES))
    deep = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    assert is_softmax_regression(softmax_model())
    assert not is_softmax_regression(deep)
    assert first_linear(deep) is not None
    assert first_linear(convolution) is None
    assert not is_softmax_regression(convolution)
    with pytest.raises(ValueError, match="first layer is not linear"):
        first_layer_gradients(torch.zeros(1), convolution)
