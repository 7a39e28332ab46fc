"""Only some coordinates of every message of a group travel, in few bits if the spec says so.

The order is that of trees: an update is clipped, its coordinates are picked, noise is added to these, and
what is sent is rounded. Coordinates are the group's own, new for every release: drawn from a shared seed, or
where the group's model is largest. All its workers and its master know that model. It follows from the
group's earlier releases, which are exposed wherever a later one of the group is (docs/leakage.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.mechanisms.base import NoiseMechanism
from sfumato.mechanisms.compression import bounded_, rand_k, round_stochastically, rounding_key, top_k
from sfumato.radio.costs import kept_coordinates
from sfumato.schedule.group_participation import GroupAssignments
from sfumato.schedule.groups import GroupPlan


def coordinates_of(plan: GroupPlan, number: int, models: Tensor) -> list[Tensor] | None:
    """The coordinates that each group's messages have in the release of round ``number``.

    Args:
        plan: of the groups; its spec says how many, and whether at random or the largest of the group's
            model.
        number: of the round that ends with the release.
        models: of the groups ``[M, P]``, before it.

    Returns:
        For each group int64 ``[k]``, ascending, on the models' device; ``None`` without compression.
    """
    compression = plan.spec.compression
    if compression is None:
        return None
    length = models.shape[1]
    kept = kept_coordinates(compression, length)
    if compression.kind == "top-k":
        return [top_k(model, kept).to(models.device) for model in models.cpu()]
    seed = plan.spec.seed
    drawn = (rand_k(length, kept, seed=seed, key=(number, group)) for group in range(len(models)))
    return [each.to(models.device) for each in drawn]


def noise_and_round_(
    updates: Tensor, assignments: GroupAssignments, plan: GroupPlan, number: int, noise: Noise
) -> None:
    """Turn clipped ``updates`` ``[p, P]`` into messages, in place: noised, rounded, 0 at unsent coordinates.

    Args:
        updates: clipped, one for each assignment.
        assignments: worker and group of each update ``[p]``.
        plan: of the groups.
        number: of the round.
        noise: which coordinates are sent, and the noise that is added to them.
    """
    starts = np.flatnonzero(np.diff(assignments.groups, prepend=-1)).tolist()
    for start, stop in zip(starts, [*starts[1:], len(updates)], strict=True):
        group, rows = int(assignments.groups[start]), slice(start, stop)
        sent = updates[rows][:, noise.coordinates[group]]
        noise.add_(sent, start)
        _round(sent, plan, group, assignments.workers[rows].tolist(), number)
        updates[rows] = 0.0
        updates[rows, noise.coordinates[group]] = sent


def noise_sums_(sums: Tensor, noise: Noise) -> None:
    """Add the masters' noise, in place, to the coordinates of the groups' ``sums`` ``[M, P]`` that are sent.

    Row m of ``noise`` is that of group m.
    """
    for group, chosen in enumerate(noise.coordinates):
        sent = sums[group : group + 1, chosen]
        noise.add_(sent, group)
        sums[group, chosen] = sent[0]


@dataclass(frozen=True)
class Noise:
    """Noise for the coordinates of messages that are sent, one row a message (or a group's sum).

    Attributes:
        mechanism: adds it.
        coordinates: that are sent in each group, ascending.
        stds: standard deviation of each row's noise, a coordinate.
        key_of: gives the key of a row's random draws by its number.
    """

    mechanism: NoiseMechanism[Tensor]
    coordinates: Sequence[Tensor]
    stds: npt.NDArray[np.float64]
    key_of: Callable[[int], bytes]

    def add_(self, sent: Tensor, first: int) -> None:
        """Add noise, in place, to ``sent`` ``[p, k]``, the sent coordinates of p rows.

        These are the rows from ``first`` on.
        """
        stds = self.stds[first : first + len(sent)]
        self.mechanism.add_(sent, stds, lambda row: self.key_of(first + row))


def _round(messages: Tensor, plan: GroupPlan, group: int, workers: Sequence[int], number: int) -> None:
    """Round ``messages``, in place, at random to the bits a coordinate that compression allows.

    A message that rounding made longer is scaled back to its group's l2 bound. Nothing changes where the spec
    sets no number of bits.

    Args:
        messages: the sent coordinates, ``[p, k]``.
        plan: of the groups.
        group: that they are sent to.
        workers: who sends, ``[p]``.
        number: of the round, from 0.
    """
    compression = plan.spec.compression
    if compression is None or compression.bits is None:
        return
    for row, worker in enumerate(workers):
        key = rounding_key(plan.spec.seed, number, group, worker)
        messages[row] = round_stochastically(messages[row], compression.bits, key)
    if np.isfinite(plan.bounds[group]):
        bounded_(messages, torch.full((len(messages),), float(plan.bounds[group]), device=messages.device))
