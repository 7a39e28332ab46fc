"""From the spec of overlapping groups to their plan: random choices made, noise sized, the result frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sfumato.data.dataset_sizes import check_population, label_counts
from sfumato.errors import SpecError
from sfumato.network import groups as structures
from sfumato.network.groups import BoolArray, FloatArray, Groups, trusted_masters
from sfumato.network.inlining import inlined
from sfumato.network.tree import star
from sfumato.radio.channels import Channels
from sfumato.schedule.air.settings import compression_notes
from sfumato.schedule.batches import require_record_rates
from sfumato.schedule.groups import BY_INTERVAL, HOP, GroupPlan
from sfumato.schedule.model_size import check_model_size
from sfumato.schedule.noise.calibration import calibrate_groups
from sfumato.schedule.resolve import group_refusals, shared_refusals
from sfumato.schedule.resolve.group_refusals import noises_messages
from sfumato.spec.document import KIND_OF, Spec
from sfumato.spec.privacy import NoiseByMultiplier, NoiseBySource, NoiseByTarget, NoNoise, SourceNoise
from sfumato.spec.refusals import Refusals, refuse_first
from sfumato.spec.topology import GroupTopology, Trust
from sfumato.spec.training import FixedParticipation, PoissonParticipation


def resolve_groups(spec: Spec) -> GroupPlan:
    """Make every random choice of ``spec``, size every noise source, and freeze the result.

    Resolving the spec of the result gives the same plan again.

    Raises:
        SpecError: sections that do not fit each other or the data.
        DataError: the data are in a file that cannot be read.
    """
    spec = inlined(spec)
    if spec.model.kind == "mlp":
        check_model_size(spec)
    refuse_first(_refusals(spec))
    topology = spec.topology
    assert isinstance(topology, GroupTopology)  # the spec's own checks see to it
    groups = build_groups(spec, topology)
    eras = _build_later_groups(spec, topology, groups)
    on_sites = check_population(spec, star(groups.workers))
    Channels.of_groups(spec, groups).check_distances()
    trusted = trusted_masters(groups, spec.trust, seed=spec.seed)
    _refuse_untrusted_masters(spec, trusted)
    told = list(compression_notes(spec))
    clips, multipliers = _clip_norms(spec, groups, told), _stated_multipliers(spec, groups, trusted, told)
    kind, merge_every = KIND_OF[spec.protocol], spec.training.merge_every or 1
    more = _notes_on_rounds(spec, topology, kind, merge_every)
    plan = GroupPlan(
        spec=spec,
        groups=groups,
        kind=kind,
        rounds=spec.training.rounds,
        merge_every=merge_every,
        clips=clips,
        multipliers=multipliers,
        rates=_sampling_rates(spec, groups),
        cohort=_cohort_sizes(spec, [groups, *(later for _, later in eras)]),
        trusted=trusted,
        notes=(*on_sites, *told, *more),
        eras=eras,
    )
    return _with_choices_written(_with_noise_for_a_target(plan))


def _refusals(spec: Spec) -> Refusals:
    """The refusals of a spec of groups, table after table."""
    yield from shared_refusals.drift_correction_refusals(spec)
    yield from group_refusals.group_refusals(spec)
    yield from group_refusals.group_compression_refusals(spec)
    yield from shared_refusals.mechanism_refusals(spec)


def _refuse_untrusted_masters(spec: Spec, trusted: BoolArray) -> None:
    """Raise a `SpecError` if a master is not trusted, and a setting needs all masters to be.

    ``trusted``: bool ``[M]``, of the masters.
    """
    if trusted.all():
        return
    if KIND_OF[spec.protocol] == "dp-ogl+" and (spec.training.merge_every or 1) > 1:
        raise SpecError(
            "trust",
            "untrusted masters",
            "must trust all masters: dp-ogl+ sends them un-noised updates; use dp-ogl or dp-ogl-local",
        )
    if spec.compression is not None and spec.compression.bits is not None and noises_messages(spec):
        allowed = (
            "goes with trusted masters: a sum of noised messages that were rounded one by one has no "
            "Gaussian noise that account could count"
        )
        raise SpecError("compression.bits", spec.compression.bits, allowed)


def _with_noise_for_a_target(plan: GroupPlan) -> GroupPlan:
    """``plan`` with the least multiplier for all groups, where noise is asked for by a target of ε."""
    noise = plan.spec.privacy.noise
    if not isinstance(noise, NoiseByTarget) or plan.kind == "ms-fedavg":
        return plan
    require_record_rates(plan.spec, plan.devices_per_place, plan.releases.batches)
    multipliers, told = calibrate_groups(plan, noise)
    return replace(plan, multipliers=multipliers, notes=(*plan.notes, *told))


def _notes_on_rounds(spec: Spec, topology: GroupTopology, kind: str, merge_every: int) -> Iterator[str]:
    """Yield notes to the user on what of the spec is idealised, not accounted, or left over at the end.

    Args:
        spec: of groups.
        topology: its groups.
        kind: of protocol, a value of `KIND_OF`.
        merge_every: rounds of an interval.
    """
    if spec.transport.get(HOP) == "secure-aggregation":
        missing = "the rounding" if spec.faults else "the rounding and the dropouts"
        yield (
            f"secure aggregation is idealised: masters receive exact sums, without {missing} of a real "
            "protocol"
        )
    if spec.faults and any(spec.faults.drop_rates):
        yield (
            "dropouts: of workers' noise only what the fewest survivors add is counted, also after a run; "
            "who drops out is taken to be public, and nothing is amplified by it"
        )
    if topology.by_labels:
        yield "structure: labels: a worker's groups tell which labels it holds; that is not accounted"
    rounds = spec.training.rounds
    left = rounds % merge_every
    if left and kind in BY_INTERVAL:
        outcome = "train nothing" if kind == "dp-ogl-local" else "end in un-noised models"
        yield f"{rounds} rounds are no multiple of merge_every, {merge_every}: the last {left} {outcome}"


def build_groups(spec: Spec, topology: GroupTopology) -> Groups:
    """The groups that the section ``topology`` describes; a file's groups are already written out in it.

    Raises:
        SpecError: a worker in no group, a group of one, labels not known, and the like.
    """
    return structures.named(
        _build_unnamed_groups(spec, topology), topology.group_names, topology.worker_names
    )


def _build_unnamed_groups(spec: Spec, topology: GroupTopology) -> Groups:
    """The groups of ``topology``, known by their numbers only."""
    count, workers = topology.groups, topology.devices
    if isinstance(count, tuple):
        return structures.listed(count, workers)
    assert workers is not None  # the spec's own checks see to it
    match topology.structure:
        case "clusters":
            return structures.clusters(workers, count or 1)
        case "ring":
            return structures.ring(workers, count or 1)
        case "string":
            return structures.string(workers, count or 1)
        case "labels":
            return structures.by_label(label_counts(spec.data, workers, seed=spec.seed), count or 1)
        case _:
            return structures.all_together(workers)


def _build_later_groups(spec: Spec, topology: GroupTopology, first: Groups) -> tuple[tuple[int, Groups], ...]:
    """(first round from 0, groups) of each era of ``topology`` after the first, whose groups are ``first``.

    Raises:
        SpecError: not as many groups as before, members that do not fit, or a change within an interval.
    """
    interval = (spec.training.merge_every or 1) if KIND_OF[spec.protocol] in BY_INTERVAL else 1
    found = []
    for number, era in enumerate(topology.eras):
        place = f"topology.eras[{number}]"
        if (era.from_round - 1) % interval:
            allowed = f"must be 1 + a multiple of merge_every, {interval}: groups change between intervals"
            raise SpecError(f"{place}.from_round", era.from_round, allowed)
        if len(era.groups) != first.count:
            allowed = f"must list {first.count} groups, as many as before"
            raise SpecError(f"{place}.groups", len(era.groups), allowed)
        groups = structures.listed(era.groups, first.workers, place=f"{place}.groups")
        groups = structures.named(groups, first.group_names, first.worker_names)
        found.append((era.from_round - 1, groups))
    return tuple(found)


def _clip_norms(spec: Spec, groups: Groups, notes: list[str]) -> FloatArray:
    """The clip norm of every group, ``[M]``; infinite where no update is clipped as a whole.

    A note is added to ``notes`` where the protocol ignores the clip.
    """
    clip = spec.privacy.clip
    if clip is not None and KIND_OF[spec.protocol] == "ms-fedavg":
        notes.append("ms-fedavg averages models: privacy.clip is ignored")
        clip = None
    if clip is None or clip.kind == "example":
        return np.full(groups.count, np.inf)
    return _one_per_group(clip.norm, clip.norms, groups, "privacy.clip.norm")


def _stated_multipliers(spec: Spec, groups: Groups, trusted: BoolArray, notes: list[str]) -> FloatArray:
    """The noise multiplier of every group that ``privacy.noise`` states, ``[M]``; 0 where none is stated.

    Args:
        spec: as the user wrote it.
        groups: of its topology.
        trusted: whether each master is, bool ``[M]``.
        notes: to which notes for the user are appended.

    Raises:
        SpecError: every source has a multiplier of 0, or the sources do not fit the groups.
    """
    noise = spec.privacy.noise
    silent = np.zeros(groups.count)
    if KIND_OF[spec.protocol] == "ms-fedavg":
        if noise.kind != "none":
            notes.append("ms-fedavg adds no noise: privacy.noise is ignored and nobody has a guarantee")
        return silent
    match noise:
        case NoNoise():
            notes.append("privacy.noise is none: nobody has a guarantee")
            return silent
        case NoiseByMultiplier(at="step"):  # every worker adds it to its gradients, and none to messages
            return silent
        case NoiseByMultiplier():
            found = _one_per_group(noise.multiplier, noise.multipliers, groups, "privacy.noise.multiplier")
        case NoiseBySource():
            found = _multipliers_by_source(noise, groups, trusted)
        case _:  # a target, for which noise is found once everything else is settled
            return silent
    if not found.any():
        raise SpecError("privacy.noise", None, "gives every source a multiplier of 0; write noise: none")
    return found


def _sampling_rates(spec: Spec, groups: Groups) -> FloatArray:
    """The probability with which each group draws a worker, ``[M]``; 1 where all take part."""
    choice = spec.training.participation
    if isinstance(choice, PoissonParticipation):
        return _one_per_group(choice.rate, choice.rates, groups, "training.participation.rate")
    return np.ones(groups.count)


def _cohort_sizes(spec: Spec, structures: Sequence[Groups]) -> tuple[int, ...]:
    """How many workers every group draws, one number a group; () where they are not a fixed number.

    ``structures``: the groups of every era.

    Raises:
        SpecError: more than a group has at some time, or names in place of numbers.
    """
    choice = spec.training.participation
    if not isinstance(choice, FixedParticipation):
        return ()
    place, count = "training.participation.count", choice.count
    if isinstance(count, Mapping):
        raise SpecError(place, dict(count), "must be a number or a list in groups, which have no names")
    one, many = (count, None) if isinstance(count, int) else (0, count)
    found = _one_per_group(one, many, structures[0], place).astype(np.int64)
    fewest = np.min([groups.sizes for groups in structures], axis=0)
    for group in np.flatnonzero(found > fewest)[:1]:
        raise SpecError(
            place,
            int(found[group]),
            f"must be at most {fewest[group]}, the {'fewest ' if len(structures) > 1 else ''}workers of "
            f"group {group}",
        )
    return tuple(found.tolist())


def _one_per_group(one: float, many: Sequence[float] | None, groups: Groups, place: str) -> FloatArray:
    """``many``, checked to have a value for each group, or else ``one`` repeated, ``[M]``.

    Raises:
        SpecError: at ``place``: it has another number of values.
    """
    if many is None:
        return np.full(groups.count, one)
    if len(many) != groups.count:
        raise SpecError(
            place, list(many), f"must list {groups.count} numbers, one for each group, or be one number"
        )
    return np.asarray(many, dtype=np.float64)


def _noise_owner_name(group: int, trusted: bool) -> str:
    """The name under ``privacy.noise.sources`` of the party that noises the sums of ``group``.

    ``trusted``: whether its master is trusted, and so adds the noise; otherwise its devices do.
    """
    return f"master:{group}" if trusted else f"master:{group}/devices"


def _multipliers_by_source(noise: NoiseBySource, groups: Groups, trusted: BoolArray) -> FloatArray:
    """The multiplier of every group, ``[M]``, by the owners that ``privacy.noise.sources`` names; 0 for none.

    Raises:
        SpecError: an owner does not exist, appears twice or does not noise, or has several multipliers.
    """
    found, seen = np.zeros(groups.count), set()
    for number, source in enumerate(noise.sources):
        place = f"privacy.noise.sources[{number}]"
        if len(source.multipliers) != 1:
            raise SpecError(
                f"{place}.multipliers", list(source.multipliers), "must list one: groups have one level"
            )
        for owner in source.owners:
            group = groups.find_master(owner.removesuffix("/devices"), place=f"{place}.owners")
            wanted = _noise_owner_name(group, bool(trusted[group]))
            if owner != wanted:
                raise SpecError(f"{place}.owners", owner, f"must be {wanted}, as trust has it")
            if group in seen:
                raise SpecError(f"{place}.owners", owner, "must be named once")
            seen.add(group)
            found[group] = source.multipliers[0]
    return found


def _with_choices_written(plan: GroupPlan) -> GroupPlan:
    """``plan`` with its choices written into its spec: what a run folder keeps."""
    spec, trusted, multipliers = plan.spec, plan.trusted, plan.multipliers
    update: dict[str, Any] = {"trust": Trust(trusted_aggregators=tuple(np.flatnonzero(trusted).tolist()))}
    topology = spec.topology
    assert isinstance(topology, GroupTopology)
    if topology.structure == "labels":
        update["topology"] = topology.model_copy(
            update={
                "structure": "list",
                "groups": plan.groups.as_lists(),
                "devices": plan.groups.workers,
                "stated": "labels",
            }
        )
    noise = spec.privacy.noise
    if multipliers.any() and noise.kind in ("multiplier", "target", "sources"):
        owners: dict[float, list[str]] = {}
        for group in np.flatnonzero(multipliers):
            owners.setdefault(float(multipliers[group]), []).append(
                _noise_owner_name(int(group), bool(trusted[group]))
            )
        sources = tuple(SourceNoise(owners=tuple(who), multipliers=(value,)) for value, who in owners.items())
        origin = noise.calibrated_from if isinstance(noise, NoiseBySource) else noise
        written = NoiseBySource(sources=sources, calibrated_from=origin)
        update["privacy"] = spec.privacy.model_copy(update={"noise": written})
    return replace(plan, spec=spec.model_copy(update=update))
