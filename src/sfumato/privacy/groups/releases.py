"""The releases of overlapping groups: DP-OGL and its kin (docs/leakage.md derives every rule).

Every group has a model, a master and releases: the noised sum of its workers' clipped updates, one a step. A
worker sees the models of its groups. Every `merge_every` epochs workers start from the mean of their groups'
models, and that is how one group's releases reach another.

Three bounds for a unit ``u`` and a coalition ``o``:

*flow*: all releases upstream of what ``o`` sees are charged, ``u`` being no link; only ``u``'s own
contributions count, each under the independent draw of its group (amplified for who does not see it).

*cut*: only what ``o`` sees is charged; a worker that started from a hidden model which ``u``'s data had
reached counts with 2c, never amplified.

*min-cost*: the cheapest set of releases between the two (`sfumato.privacy.groups.exposed_set`).

Observers are devices and masters. No model of a group is public and there is no cloud, so those parties do
not exist here: asking for them is refused rather than answered with a figure about nobody.

============== ============================= ============================ ==================================
kind           a step is                     towards its own workers      towards workers of other groups
============== ============================= ============================ ==================================
dp-ogl         an epoch                      a noised sum an epoch        what merging steps carry over
dp-ogl-local   a whole interval              a noised sum an interval     the same, an interval a step
dp-ogl+        an interval, un-noised inside nothing protects (S >= 2)    sums of sensitivity 1 + 2(|W| - 1)
ms-fedavg      an epoch, merging each time   nothing protects             nothing protects where flow arrives
============== ============================= ============================ ==================================
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sfumato.privacy.charges import bound_epsilon
from sfumato.privacy.groups.exposed_set import Exposed, cheaper_set, cheapest_set, flow_or_cut
from sfumato.privacy.groups.exposure_problem import ExposureProblem
from sfumato.privacy.groups.facts import GroupFacts
from sfumato.privacy.groups.pair_classes import GroupPairs
from sfumato.privacy.groups.positions import Position, first_of_orbit
from sfumato.privacy.groups.received_sums import ReceivedSums, group_name
from sfumato.privacy.groups.vector_clocks import IntArray, clocks, hops_between_groups, prefixes_closed_form
from sfumato.privacy.guarantee import EpsilonBound
from sfumato.privacy.observers import PairClass, Party, UnitClass, unit_classes
from sfumato.privacy.received import CoalitionView, hides_messages
from sfumato.privacy.records import RecordReleases, noised_steps, releases_by_batches
from sfumato.privacy.release import Exposure, Release, without_noise, without_noise_in
from sfumato.privacy.sampling import Neighbours


@dataclass(frozen=True)
class GroupReleases(GroupFacts):
    """The declared releases of a grouped protocol, and which of them each coalition sees."""

    @cached_property
    def pairs(self) -> GroupPairs:
        """Classes of pairs of a unit and an observer that are charged alike."""
        return GroupPairs(self)

    def view(self, coalition: Sequence[Party], epoch: int) -> CoalitionView:
        """What ``coalition`` receives, and what its members send, in training epoch ``epoch`` (from 1).

        Raises:
            ValueError: a party that does not exist.
        """
        era = sum(e.first_epoch <= epoch for e in self.eras) - 1
        members = tuple(coalition)
        return self.once(("view", members, era), lambda: self._view(members, era))

    def _view(self, coalition: Sequence[Party], era: int) -> CoalitionView:
        """What a coalition sees, as `view`, in the era with number ``era``."""
        for party in coalition:
            self.require_party(party)
        masters = frozenset((1, p.index) for p in coalition if p.kind == "node")
        workers = [p.index for p in coalition if p.kind == "device"]
        colluders = Counter(g for worker in workers for g in self.kinds.groups[self.kinds.of[worker]][era])
        summed = frozenset(
            (tier, group)
            for tier, group in masters
            if hides_messages(
                self.transport,
                colluders=colluders[group],
                threshold=self.unmask_thresholds[group] if self.unmask_thresholds else None,
            )
        )
        return CoalitionView(
            single=masters - summed,
            summed=summed,
            averages=masters | {(1, group) for group in colluders},
            senders=frozenset((2, worker) for worker in workers),
        )

    def _worst_view(self, coalition: Sequence[Party]) -> CoalitionView:
        """What ``coalition`` receives in the first era, with single messages wherever any era shows them."""
        first, *others = [self.view(coalition, era.first_epoch) for era in self.eras]
        single = first.single.union(*(view.single for view in others))
        return replace(first, single=single, summed=first.summed - single) if others else first

    def seen_steps(self, coalition: Sequence[Party]) -> IntArray:
        """For every group the last step whose release ``coalition`` sees, int64 ``[groups]``; 0 for none."""
        seen = np.zeros(self.group_count, dtype=np.int64)
        for number, (era, first) in enumerate(zip(self.eras, self.era_steps, strict=True)):
            if first > self.steps:
                break
            last = self.era_steps[number + 1] - 1 if number + 1 < len(self.eras) else self.steps
            groups = [group for _, group in self.view(coalition, era.first_epoch).averages]
            seen[groups] = np.maximum(seen[groups], min(last, self.steps))
        return seen

    def reach(self, unit_kind: int, seen: IntArray, *, by_clocks: bool | None = None) -> IntArray:
        """For every group, how many of its first releases the ``seen`` ones depend on, not through the unit.

        Args:
            unit_kind: number of the kind of workers that the unit is of.
            seen: for every group, number of releases seen, ``[groups]``.
            by_clocks: compute by vector clocks; ``None``: by the closed form where it holds, which is for
                groups that never change and are seen to the end or not at all.

        Returns:
            Int64 ``[groups]``, at least ``seen``.
        """
        static = len(self.eras) == 1 and bool(np.isin(seen, (0, self.steps)).all())
        if not static or by_clocks:
            others = self.kinds.without(unit_kind)
            links = [self.kinds.links(era, others) for era in range(len(self.eras))]
            known = clocks(self.blocks, links, seen)
        else:
            period = self.blocks[0].length if self.blocks else 1
            known = self.once(
                ("prefixes", unit_kind),
                lambda: prefixes_closed_form(self.hops_between(unit_kind), self.steps, period),
            )
        at_seen = known[seen > 0]
        upstream: IntArray = at_seen.max(axis=0) if len(at_seen) else np.zeros_like(seen)
        return np.maximum(upstream, seen)

    def hops_between(self, unit_kind: int) -> IntArray:
        """Hops between the first era's groups, ``[groups, groups]``, without links by the unit.

        The unit is one worker of kind ``unit_kind``. `UNREACHED` where there is no way.
        """
        links = self.kinds.links
        return self.once(
            ("hops", unit_kind), lambda: hops_between_groups(links(0, self.kinds.without(unit_kind)))
        )

    def exposure_problem(self, unit_kind: int, coalition: Sequence[Party]) -> ExposureProblem:
        """The problem whose solutions (flow, cut, the cheapest) are the sets of releases to charge.

        ``unit_kind``: number of the unit's kind of workers. What ``coalition`` sees is in every solution.
        """
        seen = self.seen_steps(coalition)
        upstream = self.reach(unit_kind, seen)
        return ExposureProblem(
            self.kinds,
            self.blocks,
            self.blocks_alike_until,
            unit_kind,
            np.searchsorted(self.block_ends, seen),
            np.searchsorted(self.block_ends, upstream),
            self._has_room_for_links,
            self.sums_of_blocks(unit_kind),
        )

    @cached_property
    def _has_room_for_links(self) -> bool:
        """Whether linking workers that meet in one sum surely cost at least what they cost apart.

        So it is if all workers of several groups may be drawn for a sum, and their noise cannot be lost.
        """
        if self.least_survivors and not self.noised_by_masters:
            return False
        for era, incidence in enumerate(self.kinds.incidence if self.cohort else ()):
            several = self.kinds.size * (incidence.sum(axis=1) > 1)
            if (several @ incidence > [self.draw(g, era).drawn for g in range(self.group_count)]).any():
                return False
        return True

    def exposures(self, unit: int, coalition: Sequence[Party]) -> tuple[Exposure, ...]:
        """The flow, the cut and the cheapest exposure of ``unit`` towards ``coalition``, in this order.

        Raises:
            ValueError: a party that does not exist, or a coalition that contains the unit.
        """
        view, members = self._worst_view(coalition), self._kinds_of(coalition)
        if Party("device", 0, unit) in coalition:
            raise ValueError(f"observer: got device:{unit}; must not be the unit, which knows its own data")
        alike = ("exposures", self.kinds.of[unit], tuple(sorted(members.items())), view.single, view.summed)
        found = self.once(alike, lambda: self._all_exposures(self._received(unit, coalition)))
        return found if self.noise_law.is_composed() else tuple(map(without_noise, found))

    distinct_exposures = exposures  # all three are at hand

    def _all_exposures(self, received: ReceivedSums) -> tuple[Exposure, ...]:
        """The exposures of flow, cut and the cheapest set, with all noise as if it were composed."""
        found = received.exposures(self._cheapest(received))
        return tuple(replace(each, roughly=True) for each in found) if self.pairs.is_large else found

    def _received(self, unit: int, coalition: Sequence[Party]) -> ReceivedSums:
        """How ``coalition`` receives the sums that the data of ``unit`` may move."""
        problem = self.exposure_problem(int(self.kinds.of[unit]), coalition)
        return ReceivedSums(self, problem, self._worst_view(coalition), self._kinds_of(coalition))

    def _kinds_of(self, coalition: Sequence[Party]) -> dict[int, int]:
        """Count the devices in ``coalition`` by the number of their kind."""
        members = {party.index for party in coalition if party.kind == "device"}
        return dict(Counter(int(self.kinds.of[member]) for member in members))

    def exposure_like(self, exposure: Exposure, unit: int, coalition: Sequence[Party]) -> Exposure:
        """The exposure of ``unit`` towards ``coalition``, by these facts, of what ``exposure`` exposes.

        ``exposure`` may come from other facts of the same groups; the name of its bound stays.
        """
        exposed = np.searchsorted(self.block_ends, exposure.exposed)
        return self._received(unit, coalition).exposure(exposure.bound_name, exposed)

    def _cheapest(self, received: ReceivedSums) -> Exposed:
        """The cheapest exposed set found, the same for all pairs that a symmetry of the groups relates."""
        problem = received.problem
        best = flow_or_cut(problem, received.price)
        if best.optimal:
            return best
        position = Position.of(problem, received)
        first, images = first_of_orbit(position, self.pairs.symmetries, self.group_count)

        def searched() -> Exposed:
            if first == position:
                return cheaper_set(problem, received.price, best)
            moved = first.problem(problem, images)
            return cheapest_set(moved, ReceivedSums(self, moved, *first.received).price)

        found = self.once(first, searched)
        return found._replace(blocks=found.blocks[list(images)])

    def noise_by_owner(
        self, unit: int, coalition: Sequence[Party]
    ) -> dict[str, dict[Release, dict[str, float]]]:
        """The noise variance of each release charged for ``unit`` towards ``coalition``, by who adds it.

        Returns:
            By name of the bound and by release: variance, a coordinate, under ``aggregators`` or ``devices``.
        """
        owners = {
            group_name(group): "devices" if self.noised_by_devices(group) else "aggregators"
            for group in range(self.group_count)
        }
        return {
            exposure.bound_name: {
                release: {owners[release.name.partition(",")[0]]: release.variance}
                for way in (exposure, *exposure.alternatives)
                for release in way.releases
            }
            for exposure in self.exposures(unit, coalition)
        }

    def larger_coalition(self, unit: int, coalition: Sequence[Party]) -> tuple[Party, ...] | None:
        """``coalition`` and a worker of each group of ``unit`` whose models it does not see; or ``None``.

        A unit of several groups starts from the mean of their models. Towards an observer that does not see
        all of them, its records are charged as drawn at every local step; else draws of batches lower ε, and
        that ε holds towards ``coalition`` too, which sees less. ``None``: no gain, groups change, or nobody
        to add.
        """
        if self.batches.rates is None or self.batches.step_multiplier or len(self.eras) > 1:
            return None
        problem = self.exposure_problem(int(self.kinds.of[unit]), coalition)
        if not problem.starts_from_hidden():
            return None
        inside = {party.index for party in coalition if party.kind == "device"} | {unit}
        seen, (era,) = self.seen_steps(coalition), self.eras
        found = list(coalition)
        for group, members in enumerate(era.groups):
            if unit not in members or seen[group] == self.steps:
                continue
            others = [worker for worker in members if worker not in inside]
            if not others:
                return None
            peer = min(others, key=lambda worker: (len(self.kinds.groups[self.kinds.of[worker]][0]), worker))
            inside.add(peer)
            found.append(Party("device", 0, peer))
            seen = self.seen_steps(found)
        return tuple(found)

    def record_releases(self, unit: int, coalition: Sequence[Party]) -> tuple[RecordReleases, ...]:
        """The releases of flow by which a record of ``unit`` is charged; () if records are not drawn.

        A unit of several groups starts merging steps from a mean that may hold hidden models with its own
        data: its record counts as drawn there. Noise at local steps is charged step by step instead.
        """
        if self.batches.rates is None:
            return ()
        if self.batches.step_multiplier:
            return (noised_steps(self.batches.step_multiplier, self._local_steps(unit)),)
        received = self._received(unit, coalition)
        problem, composed = received.problem, self.noise_law.is_composed(of_records=True)
        hidden = problem.starts_from_hidden()
        found: list[RecordReleases] = []
        for row, count in sorted(problem.charged(problem.reach).items()):
            from_hidden = 0 if row.linking else min(count, hidden[row.group, row.era])
            hidden[row.group, row.era] -= from_hidden
            for number, sure in ((count - from_hidden, False), (from_hidden, True)):
                for drawn in received.releases(row, number) if number else ():
                    if not composed:
                        drawn = without_noise_in(drawn)
                    found += releases_by_batches(drawn, self.batches, sure=sure, rounded=self.batches.rounded)
        return tuple(found)

    def _local_steps(self, unit: int) -> int:
        """An upper bound on the local steps of ``unit`` in the whole training, rounds without it included."""
        kind = int(self.kinds.of[unit])
        groups = max(map(len, self.kinds.groups[kind]))
        messages = -(-self.rounds // (self.merge_every if self.in_intervals else 1))
        return groups * messages * len(self.batches.moves[0])

    def bound_epsilon(
        self, exposure: Exposure, *, delta: float, neighbours: Neighbours, known: float = math.inf
    ) -> EpsilonBound:
        """The bound with the smallest ε at ``delta`` among the ways of charging ``exposure``; it is kept.

        ``known``: the ε of another bound of the same pair; where the result is sure to be larger, it may be
        computed more coarsely, and is still a bound. ∞: none is known.
        """
        key = ("bound", exposure.without_names, delta, neighbours, known)
        return self.once(
            key, lambda: bound_epsilon(exposure, delta=delta, neighbours=neighbours, known=known)
        )

    def after(self, rounds: int) -> GroupReleases:
        """The releases of the first ``rounds`` epochs only; ``rounds`` is at least 0."""
        return replace(self, rounds=rounds)

    def to_dict(self) -> dict[str, Any]:
        """The facts as JSON: enough to recompute every epsilon without this library (docs/leakage.md)."""
        return {
            "kind": self.kind,
            **({"noise_not_composed": self.noise_law.name} if self.noise_law.why_not_composed else {}),
            "rounds": self.rounds,
            "merge_every": self.merge_every,
            "devices": self.device_count,
            "eras": [
                {"first_epoch": era.first_epoch, "groups": [list(group) for group in era.groups]}
                for era in self.eras
            ],
            "clip_per_group": list(self.clip),
            "noise_multiplier_per_group": list(self.noise_multiplier),
            "poisson_rate_per_group": list(self.rate),
            "noise_added_by": self._owners_in_json(),
            "transport": self.transport,
            "shares_that_unmask": list(self.unmask_thresholds),
            **({"cohort_per_group": list(self.cohort)} if self.cohort else {}),
            **(
                {"least_survivors_per_group": [list(row) for row in self.least_survivors]}
                if self.least_survivors
                else {}
            ),
            **self.batches.to_dict(),
        }

    def _owners_in_json(self) -> str | list[str]:
        """Who adds noise: a word where it is the same in all groups, else one for each group."""
        if len(set(self.noise_owner)) > 1:
            return list(self.noise_owner)
        return "master" if self.noised_by_masters else "devices"

    def pair_classes(
        self, unit: int | None = None, *, apart: bool = False, every_unit: bool = False
    ) -> Iterator[PairClass]:
        """Yield one pair for every class of pairs that are charged alike.

        In a large network it may stand for observers that see less, too (`folded_observers`). ``unit``: only
        pairs of this device, of every observer; ``apart``: whether sites whose records are drawn unequally
        often are classes of their own; ``every_unit`` makes no difference here.
        """
        return self.pairs.of(unit, apart=apart)

    def units_outside(self, members: Set[int], *, apart: bool = False) -> Iterator[UnitClass]:
        """Yield the classes of the workers outside ``members``; ``apart``: as of `pair_classes`."""
        outside = np.setdiff1d(np.arange(self.device_count), np.fromiter(members, np.int64))
        for kind in np.unique(self.kinds.of[outside]):
            yield from self.units_of(outside[self.kinds.of[outside] == kind], apart=apart)

    def units_of(self, workers: IntArray, *, apart: bool) -> Iterator[UnitClass]:
        """Yield one class of ``workers`` with alike observers; with ``apart`` one a kind of site."""
        return unit_classes(
            int(workers[0]),
            len(workers),
            lambda: workers,
            rates=self.batches.rates,
            sites=np.arange(self.device_count) if self.named else None,
            apart=apart,
        )
