"""Targets of ε as a user gives them, and the pairs of a unit and an observer that each is about."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.privacy.observers import Party
from sfumato.schedule.base import Plan
from sfumato.schedule.rows.observers import is_of_kind, parse_coalition
from sfumato.spec.limits import LEAST, MOST
from sfumato.spec.privacy import OBSERVER_KINDS

TARGETS = Argument("targets")
NOISE_TARGET = "noise"


@dataclass(frozen=True)
class EpsilonTarget:
    """The ε of every unit towards ``observer`` may be at most ``epsilon``, over the whole training.

    Attributes:
        observer: a kind of observer (the worst of that kind), an observer, or a coalition joined by commas.
        epsilon: at the spec's δ.
    """

    observer: str
    epsilon: float

    def __str__(self) -> str:
        return f"{self.observer}={self.epsilon:g}"


@dataclass(frozen=True)
class PlanTargets:
    """All targets of a plan.

    Attributes:
        targets: at least one.
        max_noise: largest noise in the global model (`result.global_noise_rms`); infinite without a limit.
    """

    targets: tuple[EpsilonTarget, ...]
    max_noise: float = math.inf


@dataclass(frozen=True)
class ObservedPair:
    """A unit and the coalition of observers towards which its ε counts.

    Attributes:
        unit: the device, the worst of its class; where records are the unit, any one record of it.
        coalition: the observers.
        stands_for: how many equivalent pairs it represents.
    """

    unit: int
    coalition: tuple[Party, ...]
    stands_for: int


def parse_targets(given: Iterable[tuple[str, float]]) -> PlanTargets:
    """The targets that ``given`` lists as pairs of an observer (or ``noise``) and a number.

    Raises:
        SpecError: no observer is given, one is given twice, or a number is not within ``LEAST`` and ``MOST``.
    """
    targets: dict[str, float] = {}
    for observer, value in given:
        name = ",".join(part.strip() for part in observer.split(","))
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not LEAST <= value <= MOST:
            raise SpecError(TARGETS.at(name), value, f"must be a number from {LEAST:g} to {MOST:g}")
        if name in targets:
            raise SpecError(TARGETS.at(name), f"{value:g}", f"is given twice, {targets[name]:g} before")
        targets[name] = float(value)
    most_noise = targets.pop(NOISE_TARGET, math.inf)
    if not targets:
        raise SpecError(TARGETS, None, "needs ε towards at least one observer, e.g. cloud=2")
    return PlanTargets(tuple(EpsilonTarget(name, epsilon) for name, epsilon in targets.items()), most_noise)


def pairs_of(plan: Plan, target: EpsilonTarget) -> list[ObservedPair]:
    """The pairs that ``target`` is about: one of each class of pairs that are equivalent in ``plan``.

    Raises:
        SpecError: the observer does not exist, or every device is a member of it.
    """
    if target.observer in OBSERVER_KINDS:
        found = [
            ObservedPair(pair.unit, (pair.observer,), pair.pair_count)
            for pair in plan.ledger.pair_classes()
            if is_of_kind(pair, target.observer)
        ]
    else:
        coalition = parse_coalition(target.observer, plan.parties, place=TARGETS)
        members = {party.index for party in coalition if party.kind == "device"}
        found = [
            ObservedPair(units.unit, coalition, units.count) for units in plan.ledger.units_outside(members)
        ]
    if not found:
        raise SpecError(
            TARGETS.at(str(target)),
            None,
            "names no pair of a unit and an observer in this network",
        )
    return found
