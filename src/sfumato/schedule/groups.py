"""The grouped protocol's plan: everything that ``account`` judges and ``run`` plays, without training.

DP-OGL, DP-OGL+, dp-ogl-local and MS-FedAvg (docs/leakage.md). An *epoch* of the paper is a round here;
rounds are numbered from 0, so epoch t is round t - 1. ``merge_every`` (S) rounds are an *interval*: in its
first round workers start from the mean of their groups' models.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from sfumato.data.dataset_sizes import check_population
from sfumato.data.label_counts import label_counts
from sfumato.errors import SpecError
from sfumato.network import groups as structures
from sfumato.network.groups import BoolArray, FloatArray, Groups, trusted_masters
from sfumato.network.inlining import inlined
from sfumato.network.tree import star
from sfumato.privacy.groups.facts import GroupedKind
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.vector_clocks import GroupStructure
from sfumato.privacy.guarantee import EpsilonBound
from sfumato.privacy.observers import Party
from sfumato.privacy.release import Exposure, Release
from sfumato.radio.channels import Channels
from sfumato.schedule.explanations import multipliers
from sfumato.schedule.guaranteed_survivors import colluders_that_unmask
from sfumato.spec.document import Spec
from sfumato.spec.privacy import NoiseByMultiplier, NoiseBySource, NoNoise, SourceNoise
from sfumato.spec.topology import Groups as WrittenGroups
from sfumato.spec.topology import Trust
from sfumato.spec.training import PoissonParticipation, Server

HOP = "devices_to_master"
_KINDS: dict[str, GroupedKind] = {
    "dp-ogl": "dp-ogl",
    "dp-ogl+": "dp-ogl+",
    "dp-ogl-local": "dp-ogl-local",
    "ms-fedavg": "ms-fedavg",
}
GROUPED_PROTOCOLS = tuple(_KINDS)
_BY_INTERVAL = ("dp-ogl+", "dp-ogl-local")


@dataclass(frozen=True, eq=False)
class GroupPlan:
    """A resolved grouped protocol. All of it is public.

    Attributes:
        spec: as resolved: every random choice made, every source's noise written out.
        groups: who is in which group.
        kind: of the protocol.
        rounds: T, epochs of training.
        merge_every: S, rounds between exchanges of groups.
        clips: c_m, l2 bound of one round's update, for each group ``[M]``; infinite without clipping.
        multipliers: sigma_m, noise std over the clip norm, at each noiser of a group ``[M]``; 0 for none.
        rates: pi_m, probability that a worker of a group is sampled ``[M]``; 1 for all.
        trusted: groups whose master adds the noise, once, to the sum ``[M]``; in the others each sampled
            worker adds its own.
        notes: what the user should hear.
    """

    spec: Spec
    groups: Groups
    kind: GroupedKind
    rounds: int
    merge_every: int
    clips: FloatArray
    multipliers: FloatArray
    rates: FloatArray
    trusted: BoolArray
    notes: tuple[str, ...]

    @property
    def parties(self) -> Groups:
        """Who there is."""
        return self.groups

    @property
    def is_sampled(self) -> bool:
        """Whether any group draws its participants."""
        return bool((self.rates < 1).any())

    @property
    def default_watch(self) -> tuple[str, ...]:
        """The worst worker of a common group, and the worst of all."""
        return ("peer", "device")

    def trusts(self, party: Party, device: int) -> bool:
        """Whether ``party`` is a trusted master of one of the device's groups."""
        mine = self.groups.groups_of(device)
        return party.kind == "node" and party.index in mine and bool(self.trusted[party.index])

    def units_outside(self, members: Set[int]) -> Iterator[tuple[int, int]]:
        """One device of every set of groups that has any outside ``members``, and how many it stands for."""
        outside = np.setdiff1d(np.arange(self.groups.workers), np.fromiter(members, np.int64))
        classes, firsts, counts = np.unique(
            self.groups.classes.class_of[outside], return_index=True, return_counts=True
        )
        for number in range(len(classes)):
            yield int(outside[firsts[number]]), int(counts[number])

    def describe(self, exposure: Exposure, bound: EpsilonBound) -> str:
        """What is charged, group by group, at which noise multipliers."""
        names: dict[str, list[tuple[Release, int]]] = {}
        for release, count in exposure.counted:
            if release.depends_on_unit:
                names.setdefault(release.name, []).append((release, count))
        shown = list(names.items())[:4]
        parts = [
            f"{sum(count for _, count in found)} of {name} at multiplier {multipliers([r for r, _ in found])}"
            for name, found in shown
        ]
        more = [f"releases of {len(names) - len(shown)} more groups"] if len(names) > len(shown) else []
        return ", ".join([*parts, *more])

    @property
    def by_interval(self) -> bool:
        """Whether a sample serves, and a release covers, a whole interval instead of a round."""
        return self.kind in _BY_INTERVAL

    def interval_start(self, number: int) -> int:
        """The first round of the interval that round ``number`` is in."""
        return number - number % self.merge_every

    def releases_after(self, number: int) -> bool:
        """Whether round ``number`` ends with a noised release."""
        return not self.by_interval or (number + 1) % self.merge_every == 0

    @property
    def release_count(self) -> int:
        """Noised releases of each group over the whole training; an unfinished interval has none."""
        return self.rounds // self.merge_every if self.by_interval else self.rounds

    @property
    def bounds(self) -> FloatArray:
        """l2 bound of what one worker adds to a release ``[M]``: c_m, or sqrt(S) c_m for an interval's."""
        return self.clips * (math.sqrt(self.merge_every) if self.by_interval else 1.0)

    @property
    def noise_std(self) -> FloatArray:
        """Standard deviation a coordinate of each noiser's noise in a release's sum ``[M]``."""
        return self.multipliers * np.where(self.multipliers > 0, self.bounds, 0.0)

    @property
    def denominators(self) -> FloatArray:
        """pi_m |N_m| ``[M]``: the public constants that sums are divided by."""
        return self.rates * self.groups.sizes

    @property
    def model_noise_std(self) -> FloatArray:
        """Expected noise a coordinate that a release leaves in each group's model ``[M]``."""
        noisers = np.where(self.trusted, 1.0, self.denominators)
        return self.noise_std * np.sqrt(noisers) / self.denominators

    @cached_property
    def ledger(self) -> GroupReleases:
        """The same facts for the accountant; without a clip there is no noise, and any bound will do."""
        transport: Literal["plain", "secure-aggregation"] = "plain"
        shares: tuple[int, ...] = ()
        if self.spec.transport.get(HOP) == "secure-aggregation":
            transport = "secure-aggregation"
            sizes = zip(self.groups.sizes, self.rates, strict=True)
            shares = tuple(colluders_that_unmask(int(n), drawn=bool(rate < 1)) for n, rate in sizes)
        return GroupReleases(
            kind=self.kind,
            device_count=self.groups.workers,
            eras=(GroupStructure(1, self.groups.as_lists()),),
            rounds=self.rounds,
            merge_every=self.merge_every,
            clip=tuple(np.where(np.isfinite(self.clips), self.clips, 1.0).tolist()),
            noise_multiplier=tuple(self.multipliers.tolist()),
            rate=tuple(self.rates.tolist()),
            noise_owner="master" if self.trusted.all() else "devices",
            transport=transport,
            unmask_thresholds=shares,
        )


def resolve_grouped(spec: Spec) -> GroupPlan:
    """Make every random choice of ``spec``, size every noise source, and freeze the result.

    Resolving the spec of the result gives the same plan again.

    Raises:
        SpecError: sections that do not fit each other or the data.
    """
    spec = inlined(spec)
    assert isinstance(spec.topology, WrittenGroups)  # the spec's own checks see to it
    _refuse_what_is_not_there(spec)
    groups = build_groups(spec, spec.topology)
    check_population(spec, star(groups.workers))
    Channels.of_groups(spec, groups).check()
    trusted = trusted_masters(groups, spec.trust, seed=spec.seed)
    kind, merge_every, rounds = _KINDS[spec.protocol], _merge_every(spec), spec.training.rounds
    notes: list[str] = []
    clips, multipliers = _clips(spec, groups, notes), _multipliers(spec, groups, trusted, notes)
    if trusted.any() and not trusted.all():
        raise SpecError(
            "trust.trusted_masters",
            np.flatnonzero(trusted).tolist(),
            "must hold all masters or none of them: trust in some is not accounted for in this version",
        )
    if kind == "dp-ogl+" and merge_every > 1 and not trusted.all():
        raise SpecError(
            "trust",
            "untrusted masters",
            "must trust the masters: dp-ogl+ sends them un-noised updates; use dp-ogl or dp-ogl-local",
        )
    if spec.transport.get(HOP) == "secure-aggregation":
        notes.append(
            "secure aggregation is idealised: masters receive exact sums, without the rounding and the "
            "dropouts of a real protocol"
        )
    if spec.topology.by_labels:
        notes.append("structure: labels: a worker's groups tell which labels it holds; that is not accounted")
    left = rounds % merge_every
    if left and kind in _BY_INTERVAL:
        outcome = "train nothing" if kind == "dp-ogl-local" else "end in un-noised models"
        notes.append(
            f"{rounds} rounds are no multiple of merge_every, {merge_every}: the last {left} {outcome}"
        )
    return GroupPlan(
        spec=_frozen(spec, groups, trusted, multipliers),
        groups=groups,
        kind=kind,
        rounds=rounds,
        merge_every=merge_every,
        clips=clips,
        multipliers=multipliers,
        rates=_rates(spec, groups),
        trusted=trusted,
        notes=tuple(notes),
    )


def build_groups(spec: Spec, topology: WrittenGroups) -> Groups:
    """The groups that ``topology`` describes; those of a file are written out by then.

    Raises:
        SpecError: a worker in no group, a group of one, labels not known, and the like.
    """
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


def _merge_every(spec: Spec) -> int:
    every = spec.training.merge_every or 1
    if spec.protocol == "ms-fedavg" and every != 1:
        raise SpecError(
            "training.merge_every", every, "must be 1 or left out: ms-fedavg merges in every round"
        )
    return every


def _clips(spec: Spec, groups: Groups, notes: list[str]) -> FloatArray:
    clip = spec.privacy.clip
    if clip is not None and clip.kind != "update":
        raise SpecError("privacy.clip.kind", clip.kind, "must be update: groups clip whole updates")
    if clip is not None and spec.protocol == "ms-fedavg":
        notes.append("ms-fedavg averages models: privacy.clip is ignored")
        clip = None
    if clip is None:
        return np.full(groups.count, np.inf)
    return _each(clip.norm, clip.norms, groups, "privacy.clip.norm")


def _multipliers(spec: Spec, groups: Groups, trusted: BoolArray, notes: list[str]) -> FloatArray:
    noise = spec.privacy.noise
    silent = np.zeros(groups.count)
    if spec.protocol == "ms-fedavg":
        if noise.kind != "none":
            notes.append("ms-fedavg adds no noise: privacy.noise is ignored and nobody has a guarantee")
        return silent
    match noise:
        case NoNoise():
            notes.append("privacy.noise is none: nobody has a guarantee")
            return silent
        case NoiseByMultiplier():
            if noise.placement is not None:
                raise SpecError(
                    "privacy.noise.placement",
                    None,
                    "belongs to trees; groups place noise by trust.trusted_masters",
                )
            found = _each(noise.multiplier, noise.multipliers, groups, "privacy.noise.multiplier")
        case NoiseBySource():
            found = _from_sources(noise, groups, trusted)
        case _:
            raise SpecError(
                "privacy.noise", noise.kind, "is not in this version yet for groups; give a multiplier"
            )
    if not found.any():
        raise SpecError("privacy.noise", None, "gives every source a multiplier of 0; write noise: none")
    return found


def _rates(spec: Spec, groups: Groups) -> FloatArray:
    choice = spec.training.participation
    if choice.kind == "fixed":
        raise SpecError(
            "training.participation.kind", "fixed", "must be all or poisson: groups sample by rate"
        )
    if isinstance(choice, PoissonParticipation):
        return _each(choice.rate, choice.rates, groups, "training.participation.rate")
    return np.ones(groups.count)


def _each(one: float, many: Sequence[float] | None, groups: Groups, place: str) -> FloatArray:
    if many is None:
        return np.full(groups.count, one)
    if len(many) != groups.count:
        raise SpecError(
            place, list(many), f"must list {groups.count} numbers, one for each group, or be one number"
        )
    return np.asarray(many, dtype=np.float64)


def _owner(group: int, trusted: bool) -> str:
    return f"master:{group}" if trusted else f"master:{group}/devices"


def _from_sources(noise: NoiseBySource, groups: Groups, trusted: BoolArray) -> FloatArray:
    """One multiplier a group, by the owners that ``privacy.noise.sources`` names.

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
            wanted = _owner(group, bool(trusted[group]))
            if owner != wanted:
                raise SpecError(f"{place}.owners", owner, f"must be {wanted}, as trust has it")
            if group in seen:
                raise SpecError(f"{place}.owners", owner, "must be named once")
            seen.add(group)
            found[group] = source.multipliers[0]
    return found


def _frozen(spec: Spec, groups: Groups, trusted: BoolArray, multipliers: FloatArray) -> Spec:
    """``spec`` with its choices made: what a run folder keeps."""
    update: dict[str, Any] = {"trust": Trust(trusted_masters=tuple(np.flatnonzero(trusted).tolist()))}
    topology = spec.topology
    assert isinstance(topology, WrittenGroups)
    if topology.structure == "labels":
        update["topology"] = WrittenGroups(
            structure="list", groups=groups.as_lists(), devices=groups.workers, stated="labels"
        )
    noise = spec.privacy.noise
    if multipliers.any() and noise.kind in ("multiplier", "sources"):
        owners: dict[float, list[str]] = {}
        for group in np.flatnonzero(multipliers):
            owners.setdefault(float(multipliers[group]), []).append(_owner(int(group), bool(trusted[group])))
        sources = tuple(SourceNoise(owners=tuple(who), multipliers=(value,)) for value, who in owners.items())
        origin = noise.stated if isinstance(noise, NoiseBySource) else noise
        update["privacy"] = spec.privacy.model_copy(
            update={"noise": NoiseBySource(sources=sources, stated=origin)}
        )
    return spec.model_copy(update=update)


def _refuse_what_is_not_there(spec: Spec) -> None:
    training = spec.training
    for hop, transport in spec.transport.items():
        if hop != HOP:
            raise SpecError(f"transport.{hop}", None, f"is no hop of this topology; hops are {HOP}")
        if transport == "air":
            raise SpecError(
                f"transport.{hop}", transport, "is not in this version yet; use plain or secure-aggregation"
            )
    if spec.compression is not None:
        raise SpecError("compression", None, "is not in this version yet for groups; leave compression out")
    for name in ("edge_every", "aggregate_every"):
        if getattr(training, name) is not None:
            raise SpecError(
                f"training.{name}", getattr(training, name), "must be left out: groups have no edges"
            )
    if training.global_step != "increment":
        raise SpecError("training.global_step", training.global_step, "belongs to trees")
    if training.server != Server():
        raise SpecError("training.server", None, "is not in this version yet for groups; leave server out")
    if training.steps_per_round is None and training.local_steps is None and training.local_epochs is None:
        raise SpecError("training.local_steps", None, "give local_steps or local_epochs")
