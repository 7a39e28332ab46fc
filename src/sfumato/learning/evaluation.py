"""Accuracy and loss of models on a test set."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from sfumato.learning.parameters import ParameterLayout


@dataclass(frozen=True)
class Score:
    """How well a model does.

    Attributes:
        accuracy: share of the examples classified rightly.
        loss: mean cross-entropy, in nats.
    """

    accuracy: float
    loss: float


def evaluate(
    model: nn.Module, flat: Tensor, features: Tensor, labels: Tensor, *, batch_size: int = 1000
) -> Score:
    """Score a model with the parameters ``flat`` on a test set.

    Args:
        model: the architecture; its own parameters are neither read nor changed.
        flat: float32 ``[M]``, on the features' device.
        features: float32 ``[N, ...]``, N at least 1.
        labels: int64 ``[N]``.
        batch_size: examples at a time.
    """
    parameters = ParameterLayout.of(model).unflatten(flat)
    right, loss = 0, 0.0
    with torch.no_grad():
        for x, y in zip(torch.split(features, batch_size), torch.split(labels, batch_size), strict=True):
            logits = functional_call(model, parameters, (x,))
            right += int((logits.argmax(dim=1) == y).sum())
            loss += float(cross_entropy(logits, y, reduction="sum"))
    return Score(right / len(labels), loss / len(labels))
