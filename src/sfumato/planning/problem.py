"""The problem that a plan solves: the sources that may add noise, and the targets of the pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.errors import SpecError
from sfumato.families import require_tree
from sfumato.planning.allocate import PairTarget, unattainable_pair_targets
from sfumato.planning.certification import is_trusted
from sfumato.planning.conflict import refuse_raw
from sfumato.planning.noise_response import PlanResponse, measure_response
from sfumato.planning.sources import (
    NoiseSource,
    extra_sources,
    names_noisers,
    sources_of,
    unit_noise,
    with_noise,
)
from sfumato.planning.targets import TARGET_OPTION, EpsilonTarget, pairs_of
from sfumato.privacy.observers import Party
from sfumato.schedule.observers import parse_coalition
from sfumato.schedule.resolve_tree import resolve_tree
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec
from sfumato.spec.privacy import OBSERVER_KINDS


@dataclass(frozen=True, eq=False)
class PlanProblem:
    """The problem that a plan solves.

    Attributes:
        base: the resolved spec, with a multiplier of 1 wherever there is noise.
        sources: noise sources that can meet every target.
        extra: further sources that may reduce the noise.
        pair_targets: the targets, one pair of each class.
        notes: messages for the user.
    """

    base: TreePlan
    sources: tuple[NoiseSource, ...]
    extra: tuple[NoiseSource, ...]
    pair_targets: tuple[PairTarget, ...]
    notes: tuple[str, ...]


def pose_problem(spec: Spec, targets: Sequence[EpsilonTarget]) -> PlanProblem:
    """The problem for ``spec`` and ``targets``.

    Raises:
        SpecError: the spec or a target is wrong, or no noise meets a target.
    """
    base = resolve_to_plan(with_noise(spec, unit_noise(spec.privacy.noise)))
    named = _named_parties(base, targets)
    sources = sources_of(base, named)
    extra = () if names_noisers(spec.privacy.noise) else extra_sources(base, named)
    pair_targets, notes = _pair_targets(measure_response(base, sources), targets)
    if spec.privacy.unit == "both":
        notes += ("privacy.unit is both: the targets are about devices; what records have, account tells",)
    return PlanProblem(base, sources, extra, tuple(pair_targets), notes)


def resolve_to_plan(spec: Spec) -> TreePlan:
    """The plan of ``spec``.

    Raises:
        SpecError: the spec is wrong, or plans do not support its protocol.
    """
    if spec.protocol == "hfl":
        raise SpecError("protocol", "hfl", "adds no noise; plan for h2fdp, the same protocol with noise")
    if spec.privacy.clip is None:
        raise SpecError("privacy.clip", None, "is required: the noise is a multiple of the clip norm")
    if spec.privacy.clips_examples and spec.privacy.unit != "record":
        allowed = (
            f"must be update or step: with privacy.unit: {spec.privacy.unit} targets are about whole "
            "devices, whose messages need a bound; with record they are about records"
        )
        raise SpecError("privacy.clip.kind", "example", allowed)
    if spec.control is not None:
        raise SpecError("control", None, "chooses the noise from round to round; plan without it")
    if spec.elects_supernodes:
        raise SpecError("topology.supernodes", "elected", "cannot be planned; plan with fixed supernodes")
    require_tree(spec, "cannot be planned: plans are for stars and trees")
    plan = resolve_tree(spec)
    plan.require_one_tree("plans size the noise of one tree; noise: {epsilon, for} holds over all rounds")
    return plan


def _named_parties(plan: TreePlan, targets: Sequence[EpsilonTarget]) -> frozenset[Party]:
    coalitions = [
        parse_coalition(target.observer, plan.parties, place=TARGET_OPTION)
        for target in targets
        if target.observer not in OBSERVER_KINDS
    ]
    return frozenset(party for coalition in coalitions for party in coalition)


def _pair_targets(
    response: PlanResponse, targets: Sequence[EpsilonTarget]
) -> tuple[list[PairTarget], tuple[str, ...]]:
    """The targets of all pairs, and notes on pairs whose observer is trusted with raw updates.

    Raises:
        SpecError: no noise meets a target.
    """
    plan, kept, notes = response.base, list[PairTarget](), list[str]()
    for target in targets:
        pair_targets = [PairTarget(target, pair) for pair in pairs_of(plan, target)]
        raw = unattainable_pair_targets(response, pair_targets)
        kept += [pair_target for pair_target in pair_targets if pair_target not in raw]
        if not raw:
            continue
        exposed = {pair_target.pair.unit for pair_target in raw}
        trusted = all(is_trusted(plan, pair_target.pair) for pair_target in raw)
        is_kind = target.observer in OBSERVER_KINDS
        devices = _count_devices(plan, exposed, alike=is_kind)
        if not (trusted and is_kind and len(raw) < len(pair_targets)):
            refuse_raw(target, min(exposed), trusted=trusted, how_many=devices)
        notes.append(
            f"{target.observer} is trusted with the raw updates of {devices} devices: "
            f"{target} does not apply to them"
        )
    return kept, tuple(notes)


def _count_devices(plan: TreePlan, units: set[int], *, alike: bool) -> int:
    """The number of devices under the leaves of ``units``, or (``alike``) of all leaves of their classes."""
    tree, orbits = plan.tree, plan.ledger.leaf_classes
    leaves = [tree.leaf_of(unit) for unit in units]
    wanted = np.isin(orbits, orbits[leaves]) if alike else np.isin(np.arange(tree.leaf_count), leaves)
    return int(tree.devices[wanted].sum())
