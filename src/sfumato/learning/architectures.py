"""The built-in architectures: examples ``[B, *shape]`` in, logits ``[B, classes]`` out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import relu

Shape = tuple[int, ...]
Norm = Literal["group", "none"]


def softmax(shape: Shape, classes: int, *, bias: bool = True) -> nn.Module:
    """Multinomial logistic regression on flattened examples of shape ``shape``; outputs are logits.

    7,840 parameters on 28 x 28 images and ten classes, without bias.
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes, bias=bias))


def mlp(shape: Shape, classes: int, *, hidden: Sequence[int]) -> nn.Module:
    """A perceptron with ``classes`` outputs on flattened examples of ``shape``.

    ``hidden``: widths of the hidden layers, from first to last, each with ReLU; none make it linear.
    """
    layers: list[nn.Module] = [nn.Flatten()]
    width = math.prod(shape)
    for next_width in hidden:
        layers += [nn.Linear(width, next_width), nn.ReLU()]
        width = next_width
    return nn.Sequential(*layers, nn.Linear(width, classes))


def cnn_small(shape: Shape, classes: int) -> nn.Module:
    """Two 5 x 5 convolutions of stride 2 (16, 32 channels), then a linear layer with ``classes`` outputs.

    28,938 parameters on 28 x 28 and ten classes.

    Raises:
        ValueError: examples of ``shape`` are no images ``(channels, height, width)``.
    """
    channels, height, width = _require_image(shape)
    pixels = math.prod(-(-side // 4) for side in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * pixels, classes),
    )


def cnn(shape: Shape, classes: int) -> nn.Module:
    """The four-layer network of McMahan et al. (2017) with ``classes`` outputs.

    1,663,370 parameters on 28 x 28 x 1 and ten classes.

    Raises:
        ValueError: examples of ``shape`` are no images ``(channels, height, width)`` of at least 4 x 4
            pixels.
    """
    channels, height, width = _require_image(shape, least=4)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )


def resnet18(shape: Shape, classes: int) -> nn.Module:
    """ResNet-18 (He et al. 2016) for small images, with group normalisation and ``classes`` outputs.

    11.2 million parameters. The first convolution is 3 x 3 without pooling after it, as is usual at 28 to 32
    pixels a side.

    Raises:
        ValueError: examples of ``shape`` are no images ``(channels, height, width)`` of at least 8 x 8
            pixels.
    """
    channels, _, _ = _require_image(shape, least=8)
    layers: list[nn.Module] = [_conv3(channels, 64), _group_norm(64), nn.ReLU()]
    width = 64
    for next_width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [_Residual(width, next_width, stride), _Residual(next_width, next_width, 1)]
        width = next_width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def vgg11(shape: Shape, classes: int, *, norm: Norm = "group") -> nn.Module:
    """Make VGG-11 (Simonyan and Zisserman 2015) with two 512-wide linear layers.

    9,756,426 parameters on 32 x 32 x 3, ten classes; 9,750,922 without normalisation, as in the experiments
    of PFELS. Pooling rounds up, so that 28 pixels a side suffice. Without normalisation weights begin as He
    et al. (2015) draw them: by torch's own rule the signal shrinks by 0.4 in each of the ten layers before
    the last.

    Args:
        shape: of an example.
        classes: number of outputs.
        norm: whether group normalisation follows every convolution.

    Raises:
        ValueError: examples are no images ``(channels, height, width)`` of at least 17 x 17 pixels.
    """
    channels, _, _ = _require_image(shape, least=17)
    layers: list[nn.Module] = []
    for width in (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"):
        if isinstance(width, str):
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        else:
            layers.append(nn.Conv2d(channels, width, 3, padding=1))
            layers += [_group_norm(width), nn.ReLU()] if norm == "group" else [nn.ReLU()]
            channels = width
    _, height, width_ = _require_image(shape)
    pixels = math.prod(-(-side // 32) for side in (height, width_))
    layers += [nn.Flatten(), nn.Linear(512 * pixels, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()]
    if norm == "none":
        for layer in layers:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                assert layer.bias is not None  # all of these layers have one
                nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers, nn.Linear(512, classes))


BUILT_IN: dict[str, Callable[..., nn.Module]] = {
    "softmax": softmax,
    "mlp": mlp,
    "cnn-small": cnn_small,
    "cnn": cnn,
    "resnet18": resnet18,
    "vgg11": vgg11,
}


class _Residual(nn.Module):
    def __init__(self, width: int, next_width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _conv3(width, next_width, stride),
            _group_norm(next_width),
            nn.ReLU(),
            _conv3(next_width, next_width),
            _group_norm(next_width),
        )
        self.shortcut = (
            nn.Identity()
            if stride == 1 and width == next_width
            else nn.Sequential(
                nn.Conv2d(width, next_width, 1, stride=stride, bias=False), _group_norm(next_width)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        """Compute ReLU(body(x) + shortcut(x)) of images ``x`` ``[B, channels, height, width]``."""
        return relu(self.body(x) + self.shortcut(x))


def _conv3(width: int, next_width: int, stride: int = 1) -> nn.Conv2d:
    """Make a 3 x 3 convolution without bias, from ``width`` to ``next_width`` channels.

    Sides are divided by ``stride``.
    """
    return nn.Conv2d(width, next_width, 3, stride=stride, padding=1, bias=False)


def _group_norm(width: int) -> nn.GroupNorm:
    """Group normalisation of ``width`` channels, in 32 groups or as many as there are channels."""
    return nn.GroupNorm(min(32, width), width)


def _require_image(shape: Shape, *, least: int = 1) -> Shape:
    """Return ``shape`` if it is (channels, height, width) with sides of at least ``least`` pixels.

    Raises:
        ValueError: it is not.
    """
    if len(shape) != 3:
        raise ValueError("it needs images (channels, height, width)")
    if min(shape[1:]) < least:
        raise ValueError(f"it needs images of at least {least} x {least} pixels")
    return shape
