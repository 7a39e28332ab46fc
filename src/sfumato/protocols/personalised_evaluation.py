"""How well personalised models do: on everybody's test set, and on each worker's own distribution.

All of it looks at devices' data (their label shares): simulator-only columns, not accounted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sfumato.data.partition import Partition
from sfumato.distributed.division import share_out
from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.learning.evaluation import Score, test_set_parts
from sfumato.learning.examples import Slices
from sfumato.learning.losses import cross_entropies
from sfumato.learning.stacked_outputs import outputs_of, stacks_of
from sfumato.network.groups import MembershipClasses

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PersonalScores:
    """Scores of workers' models.

    Attributes:
        accuracy: of every worker's model on the whole test set, the mean over workers.
        loss: the same, mean cross-entropy in nats.
        personal_accuracy: of every worker's model on its own distribution ``[N]``: accuracies by label,
            weighted by the worker's own label shares. NaN for a worker without (testable) data.
        personal_loss: the same, cross-entropy ``[N]``.
        measures: others of every worker's model on the whole test set, the mean over workers, by name.
    """

    accuracy: float
    loss: float
    personal_accuracy: FloatArray
    personal_loss: FloatArray
    measures: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean_personal_accuracy(self) -> float:
        """Mean accuracy on their own distributions over the workers that have data; NaN where none has."""
        known = self.personal_accuracy[np.isfinite(self.personal_accuracy)]
        return float(known.mean()) if len(known) else float("nan")


def mean_scores(scores: Sequence[Score], membership: MembershipClasses) -> PersonalScores:
    """Average the scores of classes over workers, for data without labels: what needs labels is NaN.

    Args:
        scores: of the models of every membership class (workers in the same groups), in the classes' order.
        membership: which class each worker is in.
    """
    workers = membership.counts / membership.counts.sum()

    def mean(values: Iterable[float]) -> float:
        return float(workers @ np.array(list(values)))

    unknown = np.full(len(membership.class_of), np.nan)
    return PersonalScores(
        accuracy=mean(one.accuracy for one in scores),
        loss=mean(one.loss for one in scores),
        personal_accuracy=unknown,
        personal_loss=unknown,
        measures={name: mean(one.measures[name] for one in scores) for name in scores[0].measures},
    )


def label_shares(partition: Partition, labels: npt.NDArray[np.integer], classes: int) -> FloatArray:
    """The share of each label in each worker's examples ``[N, classes]``; zeros for a worker without any.

    Args:
        partition: who holds which rows.
        labels: of all training rows, ``[rows]``.
        classes: number of labels.
    """
    worker = np.repeat(np.arange(partition.devices), partition.sizes)
    table = np.zeros((partition.devices, classes))
    np.add.at(table, (worker, labels[partition.rows]), 1.0)
    table /= np.maximum(table.sum(axis=1, keepdims=True), 1.0)
    return table


def scores_by_label(
    model: nn.Module,
    models: Tensor,
    features: Slices,
    labels: Tensor,
    *,
    classes: int,
    ranks: Ranks = ALONE,
    threads: int = 1,
) -> tuple[FloatArray, FloatArray]:
    """Measure accuracy and mean cross-entropy (nats) of every model on the test examples of each label.

    Args:
        model: the architecture; its own parameters are neither read nor changed.
        models: float32 ``[C, P]``, on the features' device.
        features: float32 ``[T, ...]``, the test set.
        labels: int64 ``[T]``.
        classes: number of labels.
        ranks: to divide parts of the test set and stacks of models among; no bit of the result depends on it.
        threads: of this rank, likewise.

    Returns:
        Accuracies and losses, each ``[C, classes]``; NaN for labels without test examples.
    """

    def sums(job: tuple[slice, slice]) -> FloatArray:
        """Right predictions and summed losses by label, ``[2, classes, c]``.

        ``job``: a slice of the test set, and a slice of the models, c of them.
        """
        part, some = job
        x, y = features[part], labels[part]
        with torch.no_grad():  # every thread has a switch of its own
            outputs = outputs_of(model, models[some], x)
            every = y.repeat_interleave(outputs.shape[1])
            loss = cross_entropies(outputs.flatten(0, 1), every).view(len(y), -1)
            right = outputs.argmax(dim=2) == y.unsqueeze(1)
            found = torch.zeros(2, classes, outputs.shape[1], dtype=torch.float64, device=x.device)
            for total, values in zip(found, (right, loss), strict=True):
                total.index_add_(0, y, values.double())
        return np.asarray(found.cpu().numpy())

    jobs = [
        (part, some)
        for part in test_set_parts(len(labels))
        for some in stacks_of(model, len(models), features[part])
    ]
    totals = np.zeros((2, classes, len(models)))
    for (_, some), found in zip(jobs, share_out(jobs, sums, ranks=ranks, threads=threads), strict=True):
        totals[:, :, some] += found
    right, loss = totals.swapaxes(1, 2)
    counts = torch.bincount(labels, minlength=classes).double().cpu().numpy()
    with np.errstate(invalid="ignore"):  # labels without test examples
        return right / counts, loss / counts


def evaluate_personalised(
    model: nn.Module,
    models: Tensor,
    membership: MembershipClasses,
    shares: FloatArray,
    features: Slices,
    labels: Tensor,
    *,
    ranks: Ranks = ALONE,
    threads: int = 1,
) -> PersonalScores:
    """Score every worker's personalised model; workers in the same groups share one, evaluated once.

    Args:
        model: the architecture.
        models: of every membership class ``[classes, P]``, as ``GroupedProtocol.personalised`` gives them.
        membership: which class each worker is in.
        shares: label shares of every worker, as `label_shares` gives them.
        features: float32 ``[T, ...]``, the test set; every part of it comes on the models' device.
        labels: int64 ``[T]``.
        ranks: to divide parts of the test set and stacks of models among; no bit of the result depends on it.
        threads: of this rank, likewise.
    """
    classes = shares.shape[1]
    accuracy, loss = scores_by_label(
        model, models, features, labels, classes=classes, ranks=ranks, threads=threads
    )
    counts = torch.bincount(labels, minlength=classes).double().cpu().numpy()
    tested = counts > 0
    overall = counts[tested] / counts.sum()
    workers = membership.counts / membership.counts.sum()
    return PersonalScores(
        accuracy=float(workers @ accuracy[:, tested] @ overall),
        loss=float(workers @ loss[:, tested] @ overall),
        personal_accuracy=on_own_labels(accuracy, shares, tested, membership.class_of),
        personal_loss=on_own_labels(loss, shares, tested, membership.class_of),
    )


def on_own_labels(
    by_label: FloatArray, shares: FloatArray, tested: npt.NDArray[np.bool_], model_of: npt.NDArray[np.int64]
) -> FloatArray:
    """The score of each device's model weighted by the device's own label shares, ``[N]``.

    NaN for a device without examples of a tested label.

    Args:
        by_label: score of each model on each label, ``[C, labels]``.
        shares: of every device, ``[N, labels]``, as `label_shares` gives them.
        tested: the labels that have test examples, ``[labels]``.
        model_of: the row of ``by_label`` for every device, ``[N]``.
    """
    own = shares[:, tested]
    total = own.sum(axis=1)
    weights = np.divide(own, total[:, None], out=np.full_like(own, np.nan), where=total[:, None] > 0)
    found: FloatArray = (weights * by_label[:, tested][model_of]).sum(axis=1)
    return found
