"""One multiplier for all groups, at which no unit's epsilon towards an observer exceeds a target.

Everybody who adds noise gets the same multiplier z, relative to the clip norm of the own group. If the
exposed set and the way to charge it are fixed, all noise of a pair is proportional to z, its epsilon falls as
z grows, and the least z is a root of one composition. But a set is chosen anew for every z: under hidden
draws another one may be the cheapest there, so the epsilon that is reported need not fall everywhere. Hence
every z is judged by the bounds that an account of it reports, for all pairs that the target is about, and
only a z at which none of them exceeds the target is returned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from sfumato.errors import SpecError
from sfumato.network.groups import FloatArray
from sfumato.privacy import gaussian
from sfumato.privacy.charges import noise_scale_for
from sfumato.privacy.declared_releases import bounds_of
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.observers import Party
from sfumato.privacy.records import RecordCharge
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.observers import is_of_kind, parse_observer
from sfumato.spec.limits import LEAST_SOURCE, MOST_SOURCE
from sfumato.spec.privacy import OBSERVER_KINDS, NoiseByTarget, Privacy

_PLACE = "privacy.noise.for"
_TOLERANCE = 3e-4  # a factor under hidden draws is a root found to 1e-4
_GUIDED_TRIALS = 8  # after so many the factors do not lead to the target, and the interval is halved


@dataclass(frozen=True)
class _Pair:
    """A unit and an observer, towards whom the unit is to have the target.

    Attributes:
        ledger: with some noise.
        unit: its number.
        observer: who observes it.
    """

    ledger: GroupReleases
    unit: int
    observer: Party

    def epsilon(self, privacy: Privacy) -> float:
        """The epsilon that is reported; of a record, one of whichever worker draws its records most often."""
        exposures = self.ledger.exposures(self.unit, (self.observer,))
        if privacy.unit == "record":
            charge = self._record_charge(privacy)
            return min(charge.bound_epsilon(e, delta=privacy.delta).epsilon for e in exposures)
        found = bounds_of(self.ledger, exposures, delta=privacy.delta, neighbours=privacy.neighbours)
        return min(bound.epsilon for bound in found.values())

    def noise_scale(self, privacy: Privacy, target: float) -> float:
        """Least factor on all noise at which one of these very exposed sets gives the target."""
        exposures, delta = self.ledger.exposures(self.unit, (self.observer,)), privacy.delta
        if privacy.unit == "record":
            return self._record_charge(privacy).noise_scale_for(exposures, epsilon=target, delta=delta)
        return noise_scale_for(exposures, epsilon=target, delta=delta, neighbours=privacy.neighbours)

    def _record_charge(self, privacy: Privacy) -> RecordCharge:
        return RecordCharge.of(
            self.ledger, self.unit, (self.observer,), neighbours=privacy.neighbours, any_device=True
        )


def calibrate_groups(plan: GroupPlan, noise: NoiseByTarget) -> tuple[FloatArray, tuple[str, ...]]:
    """The least multiplier for all groups at which no unit's epsilon towards ``noise.towards`` is larger.

    Each trial asks by which factor the noise of the worst pair has to change, and takes that if it lies
    between what is known to be too little and what is known to be enough.

    Args:
        plan: of any noise, which is replaced.
        noise: the target.

    Returns:
        The multiplier of every group, and what the user should hear of it.

    Raises:
        SpecError: the observer does not exist, is trusted with raw updates of every unit, needs no noise at
            all, or sees something that no noise hides.
    """
    privacy, target = plan.spec.privacy, noise.epsilon
    too_little, enough, trial = 0.0, math.inf, _first_trial(plan, target)
    for number in count():
        with_trial = replace(plan, multipliers=np.full(plan.groups.count, trial))
        pairs, trusting = _pairs(with_trial, noise.towards)
        spent = [pair.epsilon(privacy) for pair in pairs]
        worst = max(spent)
        if worst <= target:
            enough = trial
        else:
            too_little = trial
        if target * (1 - _TOLERANCE) <= worst <= target or enough <= too_little * (1 + _TOLERANCE):
            return np.full(plan.groups.count, _within_limits(enough)), _notes(noise.towards, trusting)
        asked = [pairs[spent.index(worst)]] if worst > 0 else pairs
        factor = max(pair.noise_scale(privacy, target) for pair in asked)
        _refuse_what_noise_does_not_change(factor, noise.towards, asked[0])
        trial = max(trial * factor, too_little * (1 + _TOLERANCE))
        if number >= _GUIDED_TRIALS or trial >= enough:
            trial = _between(too_little, enough)
    raise AssertionError("unreachable: the loop has no end of its own")


def _between(too_little: float, enough: float) -> float:
    """A multiplier between two, of which one may not be known yet (0 or infinite)."""
    if math.isinf(enough):
        return 2.0 * too_little
    return math.sqrt(too_little * enough) or enough / 2.0


def _first_trial(plan: GroupPlan, target: float) -> float:
    """What a unit of the most groups needs towards one who sees all its releases and every draw."""
    memberships = np.bincount(plan.groups.members)
    releases = max(1, int(memberships.max()) * plan.release_count)
    return math.sqrt(releases) / gaussian.mu(epsilon=target, delta=plan.spec.privacy.delta)


def _pairs(plan: GroupPlan, towards: str) -> tuple[list[_Pair], int]:
    """The pairs that the target is about, one a class, and how many workers trust the observer instead.

    Raises:
        SpecError: there is no such pair.
    """
    ledger = plan.ledger
    if towards in OBSERVER_KINDS:
        found = [
            _Pair(ledger, pair.unit, pair.observer)
            for pair in ledger.pair_classes()
            if is_of_kind(pair, towards)
        ]
        trusting = plan.raw_to_trusted_edge
    else:
        observer = parse_observer(towards, plan.parties, place=_PLACE)
        members = {observer.index} if observer.kind == "device" else set[int]()
        found = [_Pair(ledger, unit, observer) for unit, _ in plan.units_outside(members)]
        trusting = int(plan.groups.sizes[observer.index]) if observer.kind == "node" else 0
    if not found:
        raise SpecError(_PLACE, towards, "stands for nobody in these groups")
    left = [pair for pair in found if not plan.trusts(pair.observer, pair.unit)]
    if not left:
        raise SpecError(_PLACE, towards, "is trusted with raw updates; no noise gives it an epsilon")
    return left, trusting if len(left) < len(found) else 0


def _refuse_what_noise_does_not_change(factor: float, towards: str, pair: _Pair) -> None:
    """Refuse a target that every noise meets, or none."""
    if factor == 0:
        raise SpecError(
            _PLACE,
            towards,
            "learns so little that this epsilon needs no noise; name an observer that noise protects from",
        )
    if math.isinf(factor):
        who, whose = pair.ledger.party_name(pair.observer), f"device:{pair.unit}"
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


def _notes(towards: str, trusting: int) -> tuple[str, ...]:
    if not trusting:
        return ()
    return (f"{towards} is trusted with the raw updates of {trusting} devices: no target holds for them",)
