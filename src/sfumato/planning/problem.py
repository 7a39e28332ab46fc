"""The problem that a plan solves: the sources that may add noise, and the targets of the pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from sfumato.errors import SpecError
from sfumato.families import family_of
from sfumato.planning.sources import NoiseSource, names_noise_owners, noise_of_unit_multipliers, with_noise
from sfumato.planning.targets import TARGETS, EpsilonTarget, PairTarget, has_trusted_member, pairs_of
from sfumato.privacy.observers import Party
from sfumato.schedule.base import Plan
from sfumato.schedule.batches import require_record_rates
from sfumato.schedule.resolve import resolve
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.spec.document import Spec
from sfumato.spec.privacy import OBSERVER_KINDS


@dataclass(frozen=True, eq=False)
class PlanProblem:
    """The problem that a plan solves.

    Attributes:
        base: the resolved spec, with a multiplier of 1 wherever there is noise.
        sources: noise sources that together can meet every target, except towards observers trusted with raw
            updates: there only ``extra`` sources below such an observer give a finite ε.
        extra: further sources that may reduce the noise.
        pair_targets: the targets, one pair of each class.
        notes: messages for the user.
    """

    base: Plan
    sources: tuple[NoiseSource, ...]
    extra: tuple[NoiseSource, ...]
    pair_targets: tuple[PairTarget, ...]
    notes: tuple[str, ...]

    def with_only(self, target: EpsilonTarget) -> PlanProblem:
        """The same problem with the pairs of ``target`` only; other targets are dropped."""
        kept = tuple(one for one in self.pair_targets if one.target == target)
        return replace(self, pair_targets=kept)


def pose_problem(spec: Spec, targets: Sequence[EpsilonTarget]) -> PlanProblem:
    """What a plan of ``spec`` starts from: its sources, and the pairs that ``targets`` are about.

    Raises:
        SpecError: the spec or a target is wrong, or no noise meets a target.
    """
    base = resolve_to_plan(with_noise(spec, noise_of_unit_multipliers(spec.privacy.noise)))
    named = _named_parties(base, targets)
    family = family_of(spec).planning()
    sources = family.sources(base, named)
    extra = () if names_noise_owners(spec.privacy.noise) else family.extra_sources(base, named)
    pair_targets, notes = _pair_targets(base, sources, targets)
    if spec.privacy.unit == "both":
        notes += ("privacy.unit is both: the targets are about devices; what records have, account tells",)
    return PlanProblem(base, sources, extra, tuple(pair_targets), notes)


def resolve_to_plan(spec: Spec) -> Plan:
    """Resolve ``spec``, and refuse it if its noise cannot be planned.

    Raises:
        SpecError: the spec is wrong, or plans do not support its protocol.
    """
    family_of(spec).planning().refuse_unsupported(spec)
    if spec.privacy.clip is None:
        raise SpecError("privacy.clip", None, "is required: the noise is a multiple of the clip norm")
    if spec.privacy.clips_examples and not spec.privacy.unit_within_device:
        allowed = (
            f"must be update or step: with privacy.unit: {spec.privacy.unit} targets are about whole "
            "devices, whose messages need a bound; with record or person they are about one of these"
        )
        raise SpecError("privacy.clip.kind", "example", allowed)
    plan = resolve(spec)
    require_record_rates(plan.spec, plan.devices_per_place, plan.releases.batches)
    return plan


def _named_parties(plan: Plan, targets: Sequence[EpsilonTarget]) -> frozenset[Party]:
    """The single parties that targets name, members of coalitions included."""
    coalitions = [
        parse_coalition(target.observer, plan.parties, place=TARGETS)
        for target in targets
        if target.observer not in OBSERVER_KINDS
    ]
    return frozenset(party for coalition in coalitions for party in coalition)


def _pair_targets(
    plan: Plan, sources: Sequence[NoiseSource], targets: Sequence[EpsilonTarget]
) -> tuple[list[PairTarget], tuple[str, ...]]:
    """The targets of all pairs, and notes on those left out: their observer is trusted with raw updates.

    Args:
        plan: resolved.
        sources: that may add noise.
        targets: as requested.

    Raises:
        SpecError: no noise meets a target.
    """
    family, kept, notes = family_of(plan.spec).planning(), list[PairTarget](), list[str]()
    stated = {target: [PairTarget(target, pair) for pair in pairs_of(plan, target)] for target in targets}
    unattainable = set(
        family.unattainable_targets(plan, sources, [one for pairs in stated.values() for one in pairs])
    )
    for target, pair_targets in stated.items():
        raw = [pair_target for pair_target in pair_targets if pair_target in unattainable]
        kept += [pair_target for pair_target in pair_targets if pair_target not in raw]
        if not raw:
            continue
        exposed = {pair_target.pair.device for pair_target in raw}
        first = min(raw, key=lambda pair_target: pair_target.pair.device)
        trusted = all(has_trusted_member(plan, pair_target.pair) for pair_target in raw)
        is_kind = target.observer in OBSERVER_KINDS
        devices = family.count_devices(plan, exposed, alike=is_kind)
        if not (trusted and is_kind and len(raw) < len(pair_targets)):
            observer = _observer_of(plan, first)
            _refuse_unprotected(target, first.pair.device, observer, trusted=trusted, how_many=devices)
        notes.append(
            f"{target.observer} is trusted with the raw updates of {devices} devices: "
            f"{target} does not apply to them"
        )
    return kept, tuple(notes)


def _observer_of(plan: Plan, pair_target: PairTarget) -> str:
    """The target's observer as a message calls it; where it is a kind of observer, with the party's name."""
    name = ",".join(plan.releases.party_name(party) for party in pair_target.pair.coalition)
    named = pair_target.target.observer
    return f"{named} {name}" if named in OBSERVER_KINDS and named != name else named


def _refuse_unprotected(
    target: EpsilonTarget, unit: int, observer: str, *, trusted: bool, how_many: int
) -> NoReturn:
    """Raise the SpecError that says why no noise meets ``target``.

    Args:
        target: the target.
        unit: a device without protection towards its observer.
        observer: the observer of the target; if that is a kind, with the party of it that is meant.
        trusted: whether the observer is trusted with raw updates.
        how_many: number of devices without protection.
    """
    who = f"device:{unit}" + (f" and {how_many - 1} more" if how_many > 1 else "")
    if trusted:
        why = f"conflicts with trust: {observer} is trusted with the raw updates of {who}"
        raise SpecError(TARGETS.at(str(target)), None, f"{why}; no noise gives an ε")
    why = f"no other party adds noise to the updates of {who} before {observer} receives them"
    raise SpecError(TARGETS.at(str(target)), None, f"cannot be met: {why}")
