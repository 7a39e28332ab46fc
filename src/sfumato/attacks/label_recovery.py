"""Labels from a gradient: of one example exactly (iDLG, Zhao et al. 2020), of several by their counts.

The gradient of the cross-entropy at the last bias is ``mean(p - y)``: with one example its only negative
entry is the label. With N examples ``N (q - g)`` are the counts of labels, where q is the mean prediction,
which an attacker estimates with the known model on its own data. Without a bias the row sums of the last
weight matrix are used instead: the inputs of the last layer are not negative after a ReLU, or if they are
pixels.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.errors import SpecError
from sfumato.learning.parameters import ParameterLayout


def last_layer(model: nn.Module, classes: int) -> tuple[str, nn.Linear]:
    """The name and the module of the linear layer that computes the logits.

    Raises:
        SpecError: the last parameters are not those of a linear layer with ``classes`` outputs.
    """
    layers = [
        (name, m) for name, m in model.named_modules() if any(True for _ in m.parameters(recurse=False))
    ]
    name, layer = layers[-1]
    if not isinstance(layer, nn.Linear) or layer.out_features != classes:
        raise SpecError("model.kind", type(layer).__name__, "inversion needs a linear last layer")
    return name, layer


def label_signal(gradient: Tensor, model: nn.Module, classes: int) -> Tensor:
    """The mean of p - y over the batch ``[classes]``, from the gradient of the last layer.

    p are the predicted probabilities, y the labels (one-hot). Where the layer has no bias it is known only up
    to a factor.

    Args:
        gradient: flat, ``[M]``.
        model: of the run.
        classes: number of classes.

    Raises:
        SpecError: the last parameters of ``model`` are not those of a linear layer with ``classes`` outputs.
    """
    name, layer = last_layer(model, classes)
    named = ParameterLayout.of(model).unflatten(gradient)
    prefix = f"{name}." if name else ""
    return named[f"{prefix}weight"].sum(dim=1) if layer.bias is None else named[f"{prefix}bias"]


def recover_labels(signal: Tensor, count: int, expected: Tensor) -> Tensor:
    """Estimate the labels of ``count`` examples from `label_signal`: int64 ``[count]``, ascending.

    Args:
        signal: the mean of p - y, ``[classes]``.
        count: how many examples.
        expected: the mean of p, ``[classes]``.
    """
    if count == 1:
        return signal.argmin()[None]
    share = (expected - signal).clamp(min=0.0).double()
    share = share / share.sum() if share.sum() > 0 else torch.full_like(share, 1 / len(share))
    wanted = (share * count).numpy()
    counts = np.floor(wanted).astype(np.int64)
    rest = np.argsort(counts - wanted, kind="stable")[: count - int(counts.sum())]
    counts[rest] += 1
    return torch.from_numpy(np.repeat(np.arange(len(counts)), counts))


def label_accuracy(found: Tensor, true: Tensor, classes: int) -> float:
    """Share of the ``true`` labels that are among ``found``, each counted as often as it occurs in both.

    ``found`` and ``true``: int64 label numbers below ``classes``, 1-D.
    """
    counts = [torch.bincount(labels, minlength=classes) for labels in (found, true)]
    return float(torch.minimum(*counts).sum()) / len(true)
