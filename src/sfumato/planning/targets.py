"""Targets of ε as a user gives them, the pairs of a unit and an observer that each is about, and their ε."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sfumato.accounting import unit_guarantee
from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.privacy.declared_releases import PairCharge
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.observers import ASKED_FOR, Party
from sfumato.schedule.base import Plan
from sfumato.schedule.rows.observers import ObservedUnit, is_of_kind, main_unit, parse_coalition
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
        """Write the target as text for messages."""
        return f"{self.observer}={self.epsilon:g}"


@dataclass(frozen=True)
class PairTarget:
    """``target`` for one of the pairs it is about."""

    target: EpsilonTarget
    pair: ObservedUnit


@dataclass(frozen=True)
class PlanTargets:
    """All targets of a plan.

    Attributes:
        targets: at least one.
        max_noise: largest noise in the global model (`result.global_noise_rms`); infinite without a limit.
    """

    targets: tuple[EpsilonTarget, ...]
    max_noise: float = math.inf


def parse_targets(given: Iterable[tuple[str, float]]) -> PlanTargets:
    """Read the targets of a plan, such as ``("cloud", 4.0)``.

    Args:
        given: pairs of an observer (or ``noise``) and a number: ε, or the noise limit.

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


def pairs_of(plan: Plan, target: EpsilonTarget) -> list[ObservedUnit]:
    """The pairs that ``target`` is about: one of each class of pairs that are equivalent in ``plan``.

    Their units are those of ``privacy.unit``; devices where it is ``both``.

    Raises:
        SpecError: the observer does not exist, or every device is a member of it.
    """
    if target.observer in OBSERVER_KINDS:
        found = [
            observed_pair(plan, pair.unit, (pair.observer,), pair.pair_count)
            for pair in plan.releases.pair_classes()
            if is_of_kind(pair, target.observer)
        ]
    else:
        coalition = parse_coalition(target.observer, plan.parties, place=TARGETS)
        members = {party.index for party in coalition if party.kind == "device"}
        found = [
            observed_pair(plan, units.unit, coalition, units.count)
            for units in plan.releases.units_outside(members)
        ]
    if not found:
        raise SpecError(
            TARGETS.at(str(target)), None, "names no pair of a unit and an observer in this network"
        )
    return found


def observed_pair(plan: Plan, unit: int, coalition: tuple[Party, ...], stands_for: int) -> ObservedUnit:
    """The pair of ``coalition`` and what the spec protects in device ``unit``, perhaps a record in it.

    ``stands_for``: the number of equivalent pairs.
    """
    return ObservedUnit(main_unit(plan.spec), unit, coalition, ASKED_FOR, stands_for)


def is_sampled(plan: Plan) -> bool:
    """Whether participants or records are drawn, so that ε takes long to compute."""
    of_records = plan.spec.privacy.unit_within_device and plan.releases.batches.rates is not None
    return plan.is_sampled or of_records


def has_trusted_member(plan: Plan, pair: ObservedUnit) -> bool:
    """Whether any member of the pair's coalition is trusted with the unit's raw updates in any round."""
    return any(plan.ever_trusts(party, pair.device) for party in pair.coalition)


def pair_charge(plan: Plan, pair: ObservedUnit) -> PairCharge:
    """What the accountant charges to ``pair`` for the declared releases of ``plan``."""
    return pair.charge(plan, plan.releases)


def guarantee(plan: Plan, pair: ObservedUnit) -> Guarantee:
    """The guarantee of ``pair`` at the spec's δ, as `sfumato.account` gives it."""
    return unit_guarantee(plan, pair, delta=plan.spec.privacy.delta)


def noise_scale(plan: Plan, pair: ObservedUnit, epsilon: float) -> float:
    """The least factor on all noise stds at which ε of ``pair`` is at most ``epsilon``, or ∞."""
    return pair_charge(plan, pair).noise_scale(epsilon, plan.spec.privacy.delta)
