"""A grouped protocol's facts for the accountant: who is in which group when, what is sent, who adds noise.

How a group draws the workers of a step, and what that leaves of a sum: docs/leakage.md, "Fixed cohorts".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from sfumato.privacy.groups.vector_clocks import (
    Block,
    GroupStructure,
    IntArray,
    WorkerKinds,
    next_unlike_blocks,
    split_at_merges_and_eras,
)
from sfumato.privacy.observers import Party
from sfumato.privacy.received import fixed_draw
from sfumato.privacy.records import SHUFFLED, BatchFacts
from sfumato.privacy.release import GAUSSIAN, NoiseLaw
from sfumato.privacy.sampling import Neighbours, Sampling


@dataclass(frozen=True)
class GroupDraw:
    """The draw of a group, independent of all other draws.

    Attributes:
        kind: ``fixed``: ``drawn`` of the workers, uniformly without replacement.
        rate: probability that a worker is drawn.
        size: workers of the group.
        drawn: how many are drawn, expected.
        survivors: messages that a sum holds at least, if it is released at all; ``None``: of all drawn.
    """

    kind: Literal["all", "poisson", "fixed"]
    rate: float
    size: int
    drawn: float
    survivors: int | None = None

    @classmethod
    def of(cls, size: int, rate: float, count: int | None, survivors: int | None = None) -> GroupDraw:
        """A draw of ``count`` of ``size`` workers, or, with ``None``, of each with probability ``rate``.

        Where everybody is drawn its kind is ``all``. ``survivors``: how many messages a sum holds at least,
        if it is released at all; ``None``: those of all drawn.
        """
        if count is None:
            return cls("poisson" if rate < 1 else "all", rate, size, rate * size, survivors)
        return cls("fixed" if count < size else "all", count / size, size, float(count), survivors)

    @property
    def guaranteed(self) -> int:
        """The fewest workers that a draw takes: 0 under Poisson sampling, else the number drawn."""
        return 0 if self.kind == "poisson" else round(self.drawn)

    @property
    def sure(self) -> int:
        """The fewest messages that a released sum holds: `survivors`, or else `guaranteed`."""
        return self.guaranteed if self.survivors is None else self.survivors

    def sampling(self, *, known: int, hidden: bool) -> Sampling:
        """The draw as the accountant's `Sampling`, for a coalition.

        ``known``: number of the group's workers that are members; ``hidden``: whether the coalition does not
        learn who was drawn.
        """
        if self.kind == "poisson":
            return Sampling.poisson(self.rate, hidden=hidden)
        if self.kind == "all":
            return Sampling(hidden=hidden)
        return fixed_draw(devices=self.size, sample=self.guaranteed, members=known, hidden=hidden)

    def norms_moved_by_others(self, *, own: bool, others: int, only_with_unit: bool = False) -> float:
        """How far messages of others may move a sum, in units of one message's norm; 0 without others.

        Each of them moves it by 2. Of a draw of a fixed number n, the unit and n - 1 others may be drawn, or
        n others without the unit.

        Args:
            own: whether the unit is one of the group's workers.
            others: how many other workers may send another message because of the unit's data.
            only_with_unit: whether they do so only if the unit is drawn.
        """
        most = round(self.drawn) if self.kind == "fixed" else self.size
        if self.kind != "fixed" or others + own <= most:
            return 2.0 * others
        if own:
            return 2.0 * most - (2.0 if only_with_unit else 1.0)
        return 2.0 * most

    def sure_noisers(self, *, own: bool, linking: int, known: int) -> int:
        """The number of workers outside the coalition whose noise counts in a sum that the unit's data move.

        The members of the coalition are taken to be among the workers drawn (or the fewest survivors), in
        all places but those of the workers who move the sum. Under a Poisson draw only those who move it are
        sure to be there. If fewer of them are there, there is less noise, but the sum moves by even less:
        (own + 2t)^2 / max(k, own + t) grows with t.

        Args:
            own: whether the unit is one of the group's workers.
            linking: how many others may move it.
            known: how many workers are members of the coalition, who know their own noise.

        Returns:
            The number of workers, at least 0.
        """
        if self.kind == "poisson":
            return own + linking
        return max(self.sure - known, min(self.guaranteed, own + linking))


GroupedKind = Literal["dp-ogl", "dp-ogl+", "dp-ogl-local", "ms-fedavg"]
NoiseOwner = Literal["master", "devices"]
_Computed = TypeVar("_Computed")


@dataclass(frozen=True)
class GroupFacts:
    """Facts of a grouped protocol.

    Attributes:
        kind: which protocol.
        device_count: number of devices.
        eras: who is in which group, from which epoch on; one era if the groups never change.
        rounds: training epochs: models 1..rounds + 1 of every group are seen by its workers.
        merge_every: S, epochs from one merging of a worker's groups to the next.
        clip: l2 bound of a worker's update in an epoch, of every group; not used by ``ms-fedavg``.
        noise_multiplier: noise std over that bound, of every group, at each noiser.
        rate: Poisson rate at which a group's workers are drawn; 1: all of them, always.
        noise_owner: who adds it, of every group: its (trusted) master to the sum, or every drawn device to
            its message. Empty: every master.
        transport: from devices to masters: messages met singly, or only their sum.
        unmask_thresholds: under secure aggregation, how many of a group's workers hold enough shares of the
            others' secrets to take the masks off their messages, with the master's help; for each group.
            Empty: sums hide messages whoever colludes.
        noise_law: of all noise; a law that is not composed counts as no noise.
        batches: how devices draw their batches, for each of their groups anew.
        cohort: how many of a group's workers are drawn for a step, uniformly without replacement, for each
            group; then every ``rate`` is 1. Empty: they are drawn by ``rate``.
        least_survivors: where messages may be lost, how many a released sum of a group holds at least, for
            each group of every era. Empty: those of all drawn.
        named: whether a user named the workers: each is a site then.
        rows_may_fold: whether all rows are about devices, so that one may stand for observers that see less.
        searched_under: the relation under which the cheapest exposed set is searched for.
    """

    kind: GroupedKind
    device_count: int
    eras: tuple[GroupStructure, ...]
    rounds: int
    merge_every: int
    clip: tuple[float, ...]
    noise_multiplier: tuple[float, ...]
    rate: tuple[float, ...]
    noise_owner: tuple[NoiseOwner, ...] = ()
    transport: Literal["plain", "secure-aggregation"] = "plain"
    unmask_thresholds: tuple[int, ...] = ()
    noise_law: NoiseLaw = GAUSSIAN
    batches: BatchFacts = SHUFFLED
    cohort: tuple[int, ...] = ()
    least_survivors: tuple[tuple[int, ...], ...] = ()
    named: bool = False
    rows_may_fold: bool = False
    searched_under: Neighbours = "zero-out"
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check the facts against each other; a ValueError names the field and what is allowed."""
        _validate(self)

    def once(self, key: object, compute: Callable[[], _Computed]) -> _Computed:
        """The result of ``compute()``, called once for each ``key`` and kept with these facts."""
        if key not in self._cache:
            self._cache[key] = compute()
        found: _Computed = self._cache[key]
        return found

    @property
    def group_count(self) -> int:
        """Number of groups."""
        return len(self.eras[0].groups)

    @property
    def in_intervals(self) -> bool:
        """Whether one step is a whole interval of ``merge_every`` epochs, not an epoch."""
        return self.kind in ("dp-ogl+", "dp-ogl-local") and self.merge_every > 1

    @property
    def raw_inside(self) -> bool:
        """Whether workers see models of their own group without noise, as inside an interval of DP-OGL+."""
        return self.kind == "dp-ogl+" and self.merge_every > 1

    @property
    def has_raw_intervals(self) -> bool:
        """Whether every master's releases have noise, but models inside an interval have none."""
        return self.raw_inside and all(self.noise_multiplier)

    @property
    def steps(self) -> int:
        """Number of releases of every group: epochs, or intervals (DP-OGL+: the one begun included)."""
        if not self.in_intervals:
            return self.rounds
        return -(-self.rounds // self.merge_every) if self.raw_inside else self.rounds // self.merge_every

    @cached_property
    def era_steps(self) -> tuple[int, ...]:
        """The first step, from 1, of every era (steps in which groups do not change)."""
        length = self.merge_every if self.in_intervals else 1
        return tuple((era.first_epoch - 1) // length + 1 for era in self.eras)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The steps of training as blocks: one begins where models can cross groups or workers change."""
        period = 1 if self.in_intervals or self.kind == "ms-fedavg" else self.merge_every
        return split_at_merges_and_eras(self.steps, period, self.era_steps)

    @cached_property
    def kinds(self) -> WorkerKinds:
        """The workers sorted into kinds: those of one kind are in the same groups in every era."""
        return WorkerKinds.among(self.device_count, self.eras)

    @cached_property
    def block_ends(self) -> IntArray:
        """0, then the last step (from 1) of every block, ``[blocks + 1]``."""
        return np.array([0, *(b.first + b.length - 1 for b in self.blocks)], dtype=np.int64)

    @cached_property
    def blocks_alike_until(self) -> IntArray:
        """For every block, the next one with another length, era or kind of start, ``[blocks]``.

        By number; it is the number of blocks if there is none.
        """
        return next_unlike_blocks(self.blocks)

    @cached_property
    def sums_of_blocks(self) -> Callable[[int], dict[Any, Any]]:
        """A function from a kind of workers to its problems' shared `ExposureProblem.sums_of_blocks`, a dict.

        The dicts of the last four kinds are kept.
        """
        return lru_cache(4)(lambda unit_kind: {})

    def message_norm(self, group: int) -> float:
        """l2 bound of one worker's part of a release of ``group`` (from 0); a nominal 1 for ``ms-fedavg``."""
        if self.kind == "ms-fedavg":
            return 1.0
        return self.clip[group] * (math.sqrt(self.merge_every) if self.in_intervals else 1.0)

    def noise_variance(self, group: int) -> float:
        """Variance, a coordinate, of what one noiser of ``group`` adds to a release; 0 for ``ms-fedavg``."""
        if self.kind == "ms-fedavg":
            return 0.0
        return (self.message_norm(group) * self.noise_multiplier[group]) ** 2

    def noised_by_devices(self, group: int) -> bool:
        """Whether the workers of ``group`` add its noise, not its master."""
        return bool(self.noise_owner) and self.noise_owner[group] == "devices"

    @property
    def noised_by_masters(self) -> bool:
        """Whether every group's master adds its noise."""
        return "devices" not in self.noise_owner

    def draw(self, group: int, era: int) -> GroupDraw:
        """How ``group`` draws the workers of a step in era number ``era`` (both from 0)."""
        return self.once(
            ("draw", group, era),
            lambda: GroupDraw.of(
                len(self.eras[era].groups[group]),
                self.rate[group],
                self.cohort[group] if self.cohort else None,
                self.least_survivors[era][group] if self.least_survivors else None,
            ),
        )

    @property
    def sums_may_be_missing(self) -> bool:
        """Whether secure aggregation may end without a sum: that tells something of who was drawn."""
        return bool(self.least_survivors) and self.transport == "secure-aggregation"

    def party_name(self, party: Party) -> str:
        """The name of ``party`` on the command line: ``device:3`` or ``master:0``.

        Raises:
            ValueError: there is no such party.
        """
        self.require_party(party)
        return f"{'device' if party.kind == 'device' else 'master'}:{party.index}"

    def require_party(self, party: Party) -> None:
        """Refuse a party that is neither a device nor a master (a node of tier 1) of these groups.

        Raises:
            ValueError: it is neither, or its number is too large; groups have no cloud and no public.
        """
        known = {"device": self.device_count, "node": self.group_count}.get(party.kind, 0)
        if not 0 <= party.index < known or (party.kind == "node" and party.tier != 1):
            raise ValueError(
                f"observer: got {party}; must be a device 0..{self.device_count - 1} or a master "
                f"(a node of tier 1) 0..{self.group_count - 1}: groups have no cloud and publish nothing"
            )


def _validate(declared: GroupFacts) -> None:
    """Raise a ValueError that names the field and what is allowed if ``declared`` contradicts itself."""
    groups = len(declared.eras[0].groups) if declared.eras else 0
    if not groups:
        raise ValueError("eras: got no group; must have at least one")
    if declared.kind not in get_args(GroupedKind):
        raise ValueError(f"kind: got {declared.kind!r}; must be a grouped protocol")
    if declared.rounds < 0 or declared.merge_every < 1:
        raise ValueError(
            f"rounds, merge_every: got {declared.rounds}, {declared.merge_every}; must be >= 0, >= 1"
        )
    if declared.eras[0].first_epoch != 1:
        raise ValueError(f"eras: the first begins at epoch {declared.eras[0].first_epoch}; must begin at 1")
    for name in ("clip", "noise_multiplier", "rate"):
        values = getattr(declared, name)
        if len(values) != groups:
            raise ValueError(f"{name}: got {len(values)} values; must be one for each of {groups} groups")
        top = 1.0 if name == "rate" else math.inf
        least = "> 0" if name != "noise_multiplier" else ">= 0"
        bad = [v for v in values if not (0 <= v <= top and math.isfinite(v)) or (v == 0 and least == "> 0")]
        if bad:
            raise ValueError(f"{name}: got {bad[0]}; must be {least}{', at most 1' if top == 1 else ''}")
    _validate_owners(declared, groups)
    for before, era in zip((None, *declared.eras), declared.eras, strict=False):
        if before is not None and era.first_epoch <= before.first_epoch:
            raise ValueError(f"eras: got {before.first_epoch} then {era.first_epoch}; must increase")
        if declared.in_intervals and (era.first_epoch - 1) % declared.merge_every:
            raise ValueError(f"eras: got one at epoch {era.first_epoch}; must begin with an interval")
        if len(era.groups) != groups:
            raise ValueError(f"eras: got {len(era.groups)} groups; must be {groups} in every era")
        for number, members in enumerate(era.groups):
            if len(set(members)) != len(members) or not all(0 <= i < declared.device_count for i in members):
                raise ValueError(
                    f"eras: group {number} has a member twice or outside 0..{declared.device_count - 1}"
                )
    _validate_cohort(declared)
    _validate_survivors(declared)


def _validate_owners(declared: GroupFacts, groups: int) -> None:
    """Raise a ValueError unless ``noise_owner`` of ``declared`` suits its protocol and its ``groups``."""
    owners = declared.noise_owner
    if owners and (len(owners) != groups or not set(owners) <= set(get_args(NoiseOwner))):
        raise ValueError(
            f"noise_owner: got {owners!r}; must be 'master' or 'devices' for each of {groups} groups"
        )
    if "devices" in owners and declared.raw_inside:
        raise ValueError(
            "noise_owner: got 'devices' with dp-ogl+; its in-group models are un-noised: must be 'master'"
        )


def _validate_cohort(declared: GroupFacts) -> None:
    """Raise a ValueError unless every fixed cohort has between one and all workers of its group."""
    if not declared.cohort:
        return
    if len(declared.cohort) != len(declared.rate) or set(declared.rate) != {1.0}:
        raise ValueError(
            f"cohort: got {len(declared.cohort)} counts, rates {set(declared.rate)}; must be one for each of "
            f"{len(declared.rate)} groups, with rates of 1"
        )
    for group, count in enumerate(declared.cohort):
        least = min(len(era.groups[group]) for era in declared.eras)
        if not 1 <= count <= least:
            raise ValueError(f"cohort: got {count} for group {group}; must be 1..{least}, its fewest workers")


def _validate_survivors(declared: GroupFacts) -> None:
    """Raise a ValueError unless least survivors are between 0 and the number of workers sure to be drawn."""
    rows = declared.least_survivors
    if rows and [len(row) for row in rows] != [len(declared.rate)] * len(declared.eras):
        raise ValueError(
            f"least_survivors: got {rows}; must be {len(declared.rate)} counts for each of "
            f"{len(declared.eras)} eras"
        )
    for era, row in enumerate(rows):
        for group, least in enumerate(row):
            summed = declared.transport == "secure-aggregation"
            most = declared.draw(group, era).guaranteed if summed else 0
            if not 0 <= least <= most:
                raise ValueError(
                    f"least_survivors: got {least} for group {group}; must be 0..{most}: what is sure to be "
                    "drawn in a session, and nobody where messages are sent one by one"
                )
