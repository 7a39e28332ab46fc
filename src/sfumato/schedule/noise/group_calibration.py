"""One multiplier for all groups, at which no unit's epsilon towards an observer exceeds a target.

Everybody who adds noise gets the same multiplier z, relative to the clip norm of the own group. Exposed sets
are chosen anew for every z, so every z is judged by the bounds that an account of it reports, for all pairs
that the target is about (`sfumato.schedule.noise.least_noise`).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from sfumato.errors import SpecError
from sfumato.network.groups import FloatArray
from sfumato.privacy.declared_releases import PairCharge
from sfumato.privacy.losses import gaussian
from sfumato.privacy.observers import Party
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.noise.least_noise import Verdict, least_noise
from sfumato.schedule.rows.observers import is_of_kind, parse_observer
from sfumato.spec.limits import LEAST_SOURCE, MOST_SOURCE
from sfumato.spec.privacy import OBSERVER_KINDS, NoiseByTarget

_PLACE = "privacy.noise.for"


def calibrate_groups(plan: GroupPlan, noise: NoiseByTarget) -> tuple[FloatArray, tuple[str, ...]]:
    """The least multiplier for all groups at which no unit's epsilon towards ``noise.towards`` is larger.

    Args:
        plan: of any noise, which is replaced.
        noise: the target.

    Returns:
        The multiplier of every group, and what the user should hear of it.

    Raises:
        SpecError: the observer does not exist, is trusted with raw updates of every unit, needs no noise at
            all, or sees something that no noise hides.
    """
    privacy, target, trusting = plan.spec.privacy, noise.epsilon, 0

    def judged(trial: float) -> Verdict:
        nonlocal trusting
        with_trial = replace(plan, multipliers=np.full(plan.groups.count, trial))
        pairs, trusting = _pairs(with_trial, noise.towards)
        spent = [pair.epsilon(privacy.delta) for pair in pairs]
        worst = max(spent)

        def factor() -> float:
            asked = [pairs[spent.index(worst)]] if worst > 0 else pairs
            needed = max(pair.noise_scale(target, privacy.delta) for pair in asked)
            _refuse_what_noise_does_not_change(needed, noise.towards, asked[0])
            return needed

        return Verdict(worst, target, factor)

    enough = _within_limits(least_noise(judged, first_trial(plan, target)))
    return np.full(plan.groups.count, enough), _notes(plan, noise.towards, trusting)


def first_trial(plan: GroupPlan, target: float) -> float:
    """What a unit of the most groups needs towards one who sees all its releases and every draw."""
    memberships = np.bincount(plan.groups.members)
    releases = max(1, int(memberships.max()) * plan.release_count)
    return math.sqrt(releases) / gaussian.mu(epsilon=target, delta=plan.spec.privacy.delta)


def _pairs(plan: GroupPlan, towards: str) -> tuple[list[PairCharge], int]:
    """The pairs that the target is about, one a class, and how many workers trust the observer instead.

    Raises:
        SpecError: there is no such pair.
    """
    if towards in OBSERVER_KINDS:
        found = [
            _charge(plan, pair.unit, pair.observer)
            for pair in plan.ledger.pair_classes()
            if is_of_kind(pair, towards)
        ]
        trusting = plan.raw_to_trusted_edge
    else:
        observer = parse_observer(towards, plan.parties, place=_PLACE)
        members = {observer.index} if observer.kind == "device" else set[int]()
        found = [_charge(plan, units.unit, observer) for units in plan.ledger.units_outside(members)]
        trusting = int(plan.groups.sizes[observer.index]) if observer.kind == "node" else 0
    if not found:
        raise SpecError(_PLACE, towards, "stands for nobody in these groups")
    left = [pair for pair in found if not plan.trusts(pair.coalition[0], pair.device)]
    if not left:
        raise SpecError(_PLACE, towards, "is trusted with raw updates; no noise gives it an epsilon")
    return left, trusting if len(left) < len(found) else 0


def _charge(plan: GroupPlan, unit: int, observer: Party) -> PairCharge:
    """How a pair is charged."""
    privacy = plan.spec.privacy
    kind = "record" if privacy.unit == "record" else "device"
    return PairCharge.of(plan.ledger, kind, unit, (observer,), neighbours=privacy.neighbours)


def _refuse_what_noise_does_not_change(factor: float, towards: str, pair: PairCharge) -> None:
    """Refuse a target that every noise meets, or none."""
    if factor == 0:
        raise SpecError(
            _PLACE,
            towards,
            "learns so little that this epsilon needs no noise; name an observer that noise protects from",
        )
    if math.isinf(factor):
        who, whose = pair.ledger.party_name(pair.coalition[0]), f"device:{pair.device}"
        raise SpecError(
            _PLACE,
            towards,
            f"no noise gives {whose} this epsilon towards {who}, which sees something of it that is not "
            "noised, or whether it takes part",
        )


def _within_limits(multiplier: float) -> float:
    """``multiplier``, where a spec can say it."""
    if not LEAST_SOURCE <= multiplier <= MOST_SOURCE:
        allowed = f"would give every group this multiplier; must be {LEAST_SOURCE:g} to {MOST_SOURCE:g}"
        raise SpecError("privacy.noise", multiplier, allowed)
    return multiplier


def _notes(plan: GroupPlan, towards: str, trusting: int) -> tuple[str, ...]:
    if not trusting:
        return ()
    if towards in OBSERVER_KINDS and not plan.trusted.all():  # they may have masters that they do not trust
        allowed = "no target holds for them towards masters that they trust"
        return (f"some masters are trusted with the raw updates of {trusting} devices: {allowed}",)
    return (f"{towards} is trusted with the raw updates of {trusting} devices: no target holds for them",)
