"""Measures over devices: the loss on what they train on, and how unequally a model serves them.

All of it looks at devices' data: simulator-only columns, not accounted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sfumato.data.features import FeatureSource
from sfumato.data.partition import Partition
from sfumato.distributed.division import share_out
from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.learning.evaluation import test_set_parts
from sfumato.learning.examples import examples_at
from sfumato.learning.losses import Loss
from sfumato.learning.stacked_outputs import outputs_of

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TrainingExamples:
    """What devices train on.

    Attributes:
        features: of all training rows, ``[rows, ...]``.
        targets: labels ``[rows]``, or what the loss takes ``[rows, ...]``.
        partition: who holds which of them.
    """

    features: Tensor | FeatureSource
    targets: Tensor | FeatureSource
    partition: Partition


def accuracies_over_devices(accuracy: FloatArray) -> Mapping[str, float]:
    """Measures of how unequal the devices' accuracies are, by name; NaN where no device has one.

    ``accuracy_worst_decile`` is the mean of the lowest tenth (rounded up to whole devices), and
    ``accuracy_spread`` the standard deviation over all of them.

    Args:
        accuracy: of every device ``[N]``; NaN for one without data, which is left out.
    """
    known = np.sort(accuracy[np.isfinite(accuracy)])
    if not len(known):
        return {"accuracy_worst_decile": float("nan"), "accuracy_spread": float("nan")}
    worst = known[: -(-len(known) // 10)]
    return {"accuracy_worst_decile": float(worst.mean()), "accuracy_spread": float(known.std())}


def train_loss(
    model: nn.Module,
    models: Tensor,
    model_of: npt.NDArray[np.int64],
    training: TrainingExamples,
    loss: Loss,
    *,
    ranks: Ranks = ALONE,
    threads: int = 1,
) -> float:
    """The mean training loss of each device's own examples, averaged over the devices that have any.

    NaN where no device has an example. Each device counts alike, however many examples it has.

    Args:
        model: the architecture.
        models: ``[C, P]``, on the device that computes.
        model_of: the row of ``models`` for every device, ``[N]``.
        training: what devices hold.
        loss: of an example.
        ranks: to divide the work among; no bit of the result depends on it.
        threads: of this rank, likewise.
    """
    sizes = training.partition.sizes
    holder = np.repeat(np.arange(len(sizes)), sizes)
    order = np.argsort(model_of[holder], kind="stable")
    of_model = np.bincount(model_of[holder], minlength=len(models))
    jobs = [
        (number, order[first + part.start : first + part.stop])
        for number, first in enumerate((np.cumsum(of_model) - of_model).tolist())
        for part in test_set_parts(int(of_model[number]))
    ]

    def weighted(job: tuple[int, npt.NDArray[np.int64]]) -> float:
        """Sum of the losses of some rows, each over the number of rows that its device holds.

        ``job``: the number of a model, and places in the partition.
        """
        number, places = job
        rows = training.partition.rows[places]
        x, y = (examples_at(part, rows, str(models.device)) for part in (training.features, training.targets))
        with torch.no_grad():  # every thread has a switch of its own
            outputs = outputs_of(model, models[number][None], x)[:, 0]
            losses = loss.of_examples(outputs, y).double().cpu().numpy()
        return float(losses @ (1 / sizes[holder[places]]))

    devices_with_data = int(np.count_nonzero(sizes))
    return (
        sum(share_out(jobs, weighted, ranks=ranks, threads=threads)) / devices_with_data
        if devices_with_data
        else float("nan")
    )
