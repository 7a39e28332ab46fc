"""Labels from gradients: exact of one example, counts of many."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sfumato.attacks.label_recovery import label_accuracy, label_signal, recover_labels
from sfumato.errors import SpecError
from sfumato.learning.parameters import ParameterLayout

CLASSES, FEATURES = 5, 12


def model_of(*, bias: bool) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, CLASSES, bias=bias))


def gradient(model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
    model.zero_grad()
    nn.functional.cross_entropy(model(features), labels).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def mean_prediction(model: nn.Module, features: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(features).softmax(dim=1).mean(dim=0)
    return found


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("label", range(CLASSES))
def test_one_label_is_recovered_exactly(label: int, bias: bool) -> None:
    model = model_of(bias=bias)
    features = torch.rand(1, FEATURES, generator=torch.Generator().manual_seed(label))
    signal = label_signal(gradient(model, features, torch.tensor([label])), model, CLASSES)
    found = recover_labels(signal, 1, mean_prediction(model, features))
    assert found.tolist() == [label]


def test_many_labels_are_counted() -> None:
    """With the true mean prediction the counts are exact, repeated labels included."""
    model = model_of(bias=True)
    rng = torch.Generator().manual_seed(3)
    for _ in range(20):
        features = torch.randn(9, FEATURES, generator=rng)
        labels = torch.randint(CLASSES, (9,), generator=rng)
        signal = label_signal(gradient(model, features, labels), model, CLASSES)
        found = recover_labels(signal, 9, mean_prediction(model, features))
        assert torch.equal(found, labels.sort().values)


def test_pure_noise_still_gives_so_many_labels() -> None:
    rng = np.random.default_rng(0)
    for count in (2, 7, 64):
        signal = torch.from_numpy(rng.normal(size=CLASSES)).float()
        found = recover_labels(signal, count, torch.full((CLASSES,), 1 / CLASSES))
        assert len(found) == count
        assert set(found.tolist()) <= set(range(CLASSES))
    assert len(recover_labels(torch.full((CLASSES,), 9.0), 3, torch.full((CLASSES,), 0.2))) == 3


def test_accuracy_counts_each_label_as_often_as_it_occurs() -> None:
    def accuracy(found: list[int], true: list[int]) -> float:
        return label_accuracy(torch.tensor(found), torch.tensor(true), CLASSES)

    assert accuracy([0, 1, 2], [2, 1, 0]) == 1.0
    assert accuracy([0, 0, 0], [0, 1, 2]) == pytest.approx(1 / 3)
    assert accuracy([0, 0, 1, 1], [0, 1, 1, 2]) == pytest.approx(3 / 4)
    assert accuracy([3], [4]) == 0.0


def test_models_that_do_not_end_in_a_linear_layer_are_refused() -> None:
    for model in (nn.Sequential(nn.Linear(4, CLASSES + 1)), nn.Sequential(nn.Conv2d(1, CLASSES, 2))):
        with pytest.raises(SpecError, match=r"model\.kind.*needs a linear last layer"):
            label_signal(torch.zeros(ParameterLayout.of(model).total), model, CLASSES)
