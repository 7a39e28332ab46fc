"""How well models do on a test set: accuracy, loss, and the measures that a spec asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.learning.losses import CROSS_ENTROPY, Loss
from sfumato.learning.stacked_outputs import outputs_of

PART = 1000
"""Examples of a part of a test set. What is added up within a part, and the order of parts, never changes."""

_MOST_EXPONENT = 700.0  # exp of more is no finite number


@dataclass(frozen=True)
class Score:
    """How well a model does.

    Attributes:
        accuracy: share of the examples classified rightly; with label sets of the single labels, with
            next tokens of the tokens; NaN where numbers are predicted.
        loss: mean loss of an example.
        measures: others, by name.
    """

    accuracy: float
    loss: float
    measures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Scoring:
    """How outputs of a model are scored.

    Attributes:
        task: ``data.task``.
        loss: of every example.
        measures: of outputs on the test set, by name.
        labels: how many labels there are, if right predictions are counted label by label; 0: they are not.
    """

    task: str = "classification"
    loss: Loss = CROSS_ENTROPY
    measures: Sequence[str] = ()
    labels: int = 0

    def right(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The share of each example that is predicted rightly, ``[B]``, 0 to 1; NaN for regression.

        0 or 1 for one label; of label sets the share of labels, of tokens the share of next tokens.

        Args:
            outputs: of the model, ``[B, ...]``.
            targets: labels or label sets, ``[B, ...]``.
        """
        match self.task:
            case "classification":
                return (outputs.argmax(dim=1) == targets).float()
            case "multi-label":
                return ((outputs > 0) == (targets > 0.5)).float().mean(dim=1)
            case "next-token":
                return (outputs[:, :-1].argmax(dim=2) == targets[:, 1:]).float().mean(dim=1)
            case _:
                return outputs.new_full((len(outputs),), math.nan)


@dataclass(frozen=True)
class Scored:
    """What a model gives for some examples: the parts of a test set can be scored apart and put together.

    Attributes:
        count: number of examples.
        right: sum of the shares predicted rightly.
        loss: sum of the losses.
        outputs: of every example, on the CPU, where measures need them; ``None`` otherwise.
        right_of_label: of the examples of each label, the sum of `right`, where they are counted by label.
    """

    count: int
    right: float
    loss: float
    outputs: Tensor | None
    right_of_label: NDArray[np.float64] | None = None


def test_set_parts(count: int) -> list[slice]:
    """Slices of at most `PART` examples, in order, that together cover ``count`` examples.

    [] for no examples.
    """
    return [slice(first, min(first + PART, count)) for first in range(0, count, PART)]


def apply_model(
    model: nn.Module, flat: Tensor, features: Tensor, targets: Tensor, scoring: Scoring
) -> Scored:
    """Predict a part of a test set with the parameters ``flat``, without dropout, and add up how right it is.

    Args:
        model: the architecture; its own parameters are neither read nor changed.
        flat: float32 ``[M]``, on the features' device.
        features: of examples that are predicted at once, ``[N, ...]``.
        targets: labels int64 ``[N]``, or what the loss takes ``[N, ...]``.
        scoring: how outputs are scored.

    Returns:
        Sums over the examples of right predictions and losses, not means; the outputs where measures need
        them.
    """
    with torch.no_grad():
        outputs = outputs_of(model, flat[None], features)[:, 0]
        right = scoring.right(outputs, targets).double()
        loss = float(scoring.loss.of_examples(outputs, targets).sum())
    of_label = right.new_zeros(scoring.labels)
    if scoring.labels:
        of_label.index_add_(0, targets, right)
    return Scored(
        len(features),
        float(right.sum()),
        loss,
        outputs.cpu() if any(name in _OF_OUTPUTS for name in scoring.measures) else None,
        of_label.cpu().numpy() if scoring.labels else None,
    )


def score_of(parts: Sequence[Scored], targets: Tensor, scoring: Scoring) -> Score:
    """The score on a test set from the predictions of its parts, at least one.

    Args:
        parts: in the order of the examples.
        targets: of all of them, labels int64 ``[N]`` or what the loss takes ``[N, ...]``.
        scoring: how outputs are scored.

    Returns:
        Accuracy and loss as means over examples, and measures by name, NaN where outputs are not finite.
    """
    count = sum(part.count for part in parts)
    loss = sum(part.loss for part in parts) / count
    found = {}
    kept = [part.outputs for part in parts if part.outputs is not None]
    outputs = torch.cat(kept).double().numpy() if kept else np.empty(0)
    right = targets.cpu().numpy() if kept else np.empty(0)
    for name in scoring.measures:
        if name == "perplexity":
            found[name] = math.exp(min(loss, _MOST_EXPONENT))
        else:
            found[name] = _OF_OUTPUTS[name](outputs, right) if np.isfinite(outputs).all() else math.nan
    return Score(sum(part.right for part in parts) / count, loss, found)


def _auc(outputs: NDArray[np.float64], targets: NDArray[Any]) -> float:
    """Compute the area under the ROC curve of each label against all others; the mean over labels.

    NaN where no label has both positive and negative examples in the test set. Of two classes the second is
    the positive one.

    Args:
        outputs: logits ``[N, classes or labels]``.
        targets: classes ``[N]``, or label sets ``[N, labels]`` of 0 and 1.
    """
    from sklearn.metrics import roc_auc_score

    if targets.ndim == 1:  # of two classes the second is the positive one
        classes = outputs.shape[1]
        chances = outputs[:, 1:] - outputs[:, :1] if classes == 2 else _shares(outputs)
        known = np.arange(classes - chances.shape[1], classes)
        truth = targets[:, None] == known
    else:
        chances, truth = outputs, targets > 0.5
    scored = [k for k in range(truth.shape[1]) if 0 < truth[:, k].sum() < len(truth)]
    values = [float(roc_auc_score(truth[:, k], chances[:, k])) for k in scored]
    return float(np.mean(values)) if values else math.nan


def _shares(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Predicted probabilities ``[N, classes]``: the softmax of ``logits`` ``[N, classes]`` over classes."""
    return np.asarray(torch.softmax(torch.from_numpy(logits), dim=1).numpy())


def _f1(outputs: NDArray[np.float64], targets: NDArray[Any]) -> float:
    """Compute F1, the mean over labels (macro average); of two classes that of the second.

    Args:
        outputs: logits ``[N, classes or labels]``.
        targets: classes ``[N]``, or label sets ``[N, labels]`` of 0 and 1.
    """
    from sklearn.metrics import f1_score

    if targets.ndim == 1:
        how = "binary" if outputs.shape[1] == 2 else "macro"
        return float(f1_score(targets, outputs.argmax(axis=1), average=how, zero_division=0.0))
    return float(f1_score(targets > 0.5, outputs > 0, average="macro", zero_division=0.0))


def _mae(outputs: NDArray[np.float64], targets: NDArray[Any]) -> float:
    """Mean absolute error of ``outputs`` against ``targets``, ``[N, outputs]`` each, over all entries."""
    from sklearn.metrics import mean_absolute_error

    return float(mean_absolute_error(targets, outputs))


def _rmse(outputs: NDArray[np.float64], targets: NDArray[Any]) -> float:
    """Root of the mean squared error over examples and outputs, of ``outputs`` against ``targets``.

    Both are ``[N, outputs]``.
    """
    from sklearn.metrics import mean_squared_error

    return math.sqrt(mean_squared_error(targets, outputs))


def _r2(outputs: NDArray[np.float64], targets: NDArray[Any]) -> float:
    """R², the coefficient of determination, of ``outputs`` against ``targets``; NaN for a single example.

    Both are ``[N, outputs]``; the mean over outputs is taken, as scikit-learn does.
    """
    from sklearn.metrics import r2_score

    return float(r2_score(targets, outputs)) if len(targets) > 1 else math.nan


_OF_OUTPUTS: Mapping[str, Callable[[NDArray[np.float64], NDArray[Any]], float]] = {
    "auc": _auc,
    "f1": _f1,
    "mae": _mae,
    "rmse": _rmse,
    "r2": _r2,
}
