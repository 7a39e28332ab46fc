"""Per-worker privacy: the worst observer of every class of units, as training goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from sfumato.privacy.charges import bound_epsilon
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.observers import Party
from sfumato.privacy.release import Exposure
from sfumato.privacy.sampling import Neighbours


@dataclass(frozen=True)
class PerWorker:
    """Per-worker privacy: the worst observer of one class of units, over training.

    Attributes:
        unit: one of the class.
        stands_for: number of units in it.
        epochs: numbers of training epochs.
        epsilon: towards the worst observer, at each of them; not a number where nobody is curious.
        observer: the worst one at the last of them.
    """

    unit: int
    stands_for: int
    epochs: tuple[int, ...]
    epsilon: tuple[float, ...]
    observer: Party | None


def per_worker(
    declared: GroupReleases,
    epochs: Iterable[int],
    *,
    threat_model: Literal[1, 2],
    delta: float,
    neighbours: Neighbours = "zero-out",
) -> tuple[PerWorker, ...]:
    """The largest ε of every class of workers towards any one curious worker, as training goes on.

    Equation (15) of the DP-OGL paper, with the smallest ε that Sfumato proves. Curious workers do not pool
    what they see: every one is an observer of its own.

    Args:
        declared: the releases of the groups.
        epochs: numbers of training epochs after which to compute it (the paper's t - 1).
        threat_model: 1: every other worker is curious; 2: only those that never share a group with the unit.
        delta: of every ε.
        neighbours: neighbouring relation.

    Returns:
        One result for each class, with an ε for each of ``epochs``, and the worst observer at the last of
        them; NaN and ``None`` where nobody is curious.
    """
    moments = tuple(epochs)
    at_moments = [declared.after(moment) for moment in moments]
    spent: dict[object, float] = {}  # by draws: two moments with no new release between share one ε

    def epsilon_of(exposure: Exposure) -> float:
        draws = exposure.without_names[1]
        if draws not in spent:
            spent[draws] = bound_epsilon(exposure, delta=delta, neighbours=neighbours).epsilon
        return spent[draws]

    found = []
    for kind, units in declared.pairs.unit_classes:
        unit = int(declared.kinds.first[kind])
        worst = [_worst_worker(one, unit, threat_model, epsilon_of) for one in at_moments]
        epsilons = tuple(epsilon for epsilon, _ in worst)
        found.append(PerWorker(unit, units, moments, epsilons, worst[-1][1] if worst else None))
    return tuple(found)


def _worst_worker(
    declared: GroupReleases, unit: int, threat_model: Literal[1, 2], epsilon_of: Callable[[Exposure], float]
) -> tuple[float, Party | None]:
    """Find the largest ε of device ``unit`` towards any curious worker, and that worker.

    Args:
        declared: the releases of the groups.
        unit: number of the device.
        threat_model: 1: every other worker is curious; 2: only those that never share a group with the unit.
        epsilon_of: ε of one exposure.

    Returns:
        ε and the worker; NaN and ``None`` where no worker is curious.
    """
    worst: tuple[float, Party | None] = math.nan, None
    kinds = ("other-device",) if threat_model == 2 else ("peer", "other-device")
    for pair in declared.pair_classes(unit):
        if pair.relation.kind in kinds:
            epsilon = min(map(epsilon_of, declared.exposures(unit, (pair.observer,))))
            if not worst[0] >= epsilon:
                worst = epsilon, pair.observer
    return worst
