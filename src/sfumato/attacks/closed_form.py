"""Inversion in closed form, for models whose first layer is linear and takes the image itself.

Row c of its weight gradient is ``sum_j a_jc x_j``, of its bias gradient ``sum_j a_jc``. With one example the
ratio of the two is the image, exactly (Geiping et al. 2020, Prop. 3.1). In softmax regression
``a_jc = p_jc - 1[y_j = c]``, and where p hardly varies with the image, ``p_jc = q_c``, sums of any number
of devices still leak: with S the sum of all images and ``s_c`` that of class c, the rows give
``q_c S - s_c``, the biases ``q_c N - n_c``. Pixels are not negative, so S is at least the smallest sum that
makes every ``s_c`` non-negative. Taking S equal to it gives the mean image of every class: the image itself
if a class occurs once.

Without a bias the rows are the same combinations, but neither their scale nor the counts can be separated
from the image: the row of a label is rescaled to the range of pixels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sfumato.learning.parameters import ParameterLayout

_LEAST = 1e-9


def first_linear(model: nn.Module) -> tuple[str, nn.Linear] | None:
    """The model's first layer and its name, if it is linear on the flattened image; else ``None``."""
    for name, module in model.named_modules():
        if list(module.children()) or isinstance(module, nn.Flatten):
            continue
        return (name, module) if isinstance(module, nn.Linear) else None
    return None


def is_softmax_regression(model: nn.Module) -> bool:
    """Whether the model is a single linear layer on the flattened image."""
    linear = first_linear(model)
    return linear is not None and len(list(model.parameters())) == len(list(linear[1].parameters()))


def first_layer_gradients(gradient: Tensor, model: nn.Module) -> tuple[Tensor, Tensor | None]:
    """The first layer's weights ``[outputs, D]`` and bias ``[outputs]`` in a flat ``gradient`` ``[M]``.

    The bias's is ``None`` where the layer has none.

    Raises:
        ValueError: the first layer is not linear.
    """
    linear = first_linear(model)
    if linear is None:
        raise ValueError("model: its first layer is not linear")
    prefix = f"{linear[0]}." if linear[0] else ""
    named = ParameterLayout.of(model).unflatten(gradient)
    return named[f"{prefix}weight"], named.get(f"{prefix}bias")


def invert_one_example(weight: Tensor, bias: Tensor) -> Tensor:
    """The input ``[D]`` of a linear layer from its weight gradients ``[outputs, D]`` and bias ``[outputs]``.

    Exact for one example, or several equal ones: a weight's gradient is the bias's times the input.
    """
    row = int(bias.abs().argmax())
    return weight[row] / (bias[row] if bias[row].abs() > _LEAST else _LEAST)


def rescale_rows(rows: Tensor) -> Tensor:
    """Each row of ``[U, D]`` shifted and scaled so that its values run from 0 to 1."""
    low, high = rows.amin(dim=1, keepdim=True), rows.amax(dim=1, keepdim=True)
    return (rows - low) / (high - low).clamp(min=_LEAST)


def mean_image_of_each_label(
    weight: Tensor, bias: Tensor, expected: Tensor, labels: Tensor, mean: Tensor, std: Tensor
) -> Tensor:
    """Mean image of every label, in pixels from 0 to 1: ``[U, D]``, one row for each of ``labels``.

    Args:
        weight: sum over N examples of the softmax model's weight gradients, ``[classes, D]``.
        bias: sum over N examples of the bias gradients, ``[classes]``.
        expected: the model's mean prediction, ``[classes]``.
        labels: of the N examples, recovered ``[U]``.
        mean: features are (pixels - mean) / std; ``[D]``.
        std: ``[D]``.
    """
    rows = weight * std + bias[:, None] * mean  # the same combinations of pixels
    total = (rows / expected[:, None].clamp(min=_LEAST)).amax(dim=0).clamp(min=0.0)
    sums = expected[:, None] * total - rows
    counts = torch.bincount(labels, minlength=len(rows)).clamp(min=1)
    return (sums / counts[:, None]).clamp(0.0, 1.0)[labels]
