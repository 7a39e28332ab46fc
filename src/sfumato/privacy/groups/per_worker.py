"""Per-worker privacy: the worst observer of every class of units, as training goes on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from sfumato.privacy.charges import bound_epsilon
from sfumato.privacy.groups.received_sums import without_names
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.neighbours import Neighbours
from sfumato.privacy.observers import Party


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
    ledger: GroupReleases,
    epochs: Iterable[int],
    *,
    threat_model: Literal[1, 2],
    delta: float,
    neighbours: Neighbours = "zero-out",
) -> tuple[PerWorker, ...]:
    """PwP of every class of workers: the paper's (15) with the exact leakage.

    Args:
        ledger: facts.
        epochs: numbers of training epochs to look at (the paper's t - 1).
        threat_model: 1: every other worker is curious; 2: only those that never share a group with the unit.
        delta: of every epsilon.
        neighbours: neighbouring relation.
    """
    moments = tuple(epochs)
    found: dict[int, list[tuple[float, Party | None]]] = {unit: [] for unit, _ in ledger.pairs.unit_classes}
    spent: dict[Any, float] = {}
    for moment in moments:
        shorter = ledger.after(moment)
        for kind in found:
            unit, worst = int(ledger.kinds.first[kind]), (math.nan, None)
            for pair in shorter.pair_classes(unit):
                asked = ("other-device",) if threat_model == 2 else ("peer", "other-device")
                if pair.relation.kind not in asked:
                    continue
                exposures = shorter.exposures(unit, (pair.observer,))
                epsilon = math.inf
                for exposure in exposures:
                    key = without_names(exposure)[1]
                    if key not in spent:
                        spent[key] = bound_epsilon(exposure, delta=delta, neighbours=neighbours).epsilon
                    epsilon = min(epsilon, spent[key])
                if not worst[0] >= epsilon:
                    worst = (epsilon, pair.observer)  # type: ignore[assignment]
            found[kind].append(worst)
    return tuple(
        PerWorker(
            int(ledger.kinds.first[kind]),
            units,
            moments,
            tuple(epsilon for epsilon, _ in found[kind]),
            found[kind][-1][1] if moments else None,
        )
        for kind, units in ledger.pairs.unit_classes
    )
