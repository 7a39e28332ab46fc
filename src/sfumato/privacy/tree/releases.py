"""The releases of a tree: what is noised where in a round, and who sees which sums of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np

from sfumato.privacy.charges import bound_epsilon, ways_to_charge
from sfumato.privacy.dominance import Ways
from sfumato.privacy.guarantee import EpsilonBound
from sfumato.privacy.kept_results import Kept
from sfumato.privacy.observers import PairClass, Party, UnitClass, unit_classes
from sfumato.privacy.received import CoalitionView
from sfumato.privacy.records import RecordReleases, noised_steps, releases_by_batches
from sfumato.privacy.release import Exposure, Release, without_noise
from sfumato.privacy.sampling import Neighbours
from sfumato.privacy.tree.exposed_averages import cheapest_exposure
from sfumato.privacy.tree.exposures import TreeExposures
from sfumato.privacy.tree.facts import TreeFacts
from sfumato.privacy.tree.folded_pairs import FoldedPairs
from sfumato.privacy.tree.ledger import tree_as_json
from sfumato.privacy.tree.pair_classes import TreePairs
from sfumato.privacy.tree.shape import BoolArray, IntArray
from sfumato.privacy.tree.views import view_of_coalition


@dataclass(frozen=True)
class TreeReleases(TreeFacts):
    """The declared releases of a tree protocol, and which of them each coalition sees.

    Attributes:
        searched_under: the relation under which the cheapest exposed set is searched for; ``None``: flow and
            cut are the only bounds, as where a filter holds budgets by one of these.
        rows_may_fold: whether pairs may be folded (`folded_pairs`): rows are about devices alone, and who
            adds noise to a unit's messages tells who is trusted with them.
    """

    searched_under: Neighbours | None = None
    rows_may_fold: bool = False
    _whole: TreeReleases | None = field(default=None, init=False, compare=False, repr=False)
    _most_kept: ClassVar[int] = 1 << 8
    _most_leaves_alone: ClassVar[int] = 60  # of different kinds, whose losses are composed on the finest grid

    @cached_property
    def _facts(self) -> TreeFacts:
        """The facts alone. What is kept here refers to them, and so never back to these releases."""
        return TreeFacts(**{each.name: getattr(self, each.name) for each in fields(TreeFacts)})

    @cached_property
    def _exposures(self) -> TreeExposures:
        """What is charged for any unit and coalition of this tree."""
        return TreeExposures(self._facts, roughly=self.is_composed_roughly)

    @cached_property
    def _pairs(self) -> TreePairs:
        """Classes of the pairs of this tree."""
        return TreePairs(self._facts)

    def quick_exposures(self, unit: int, coalition: Sequence[Party]) -> tuple[Exposure, ...]:
        """The flow and the cut exposure of ``unit`` towards ``coalition``, quick even with elections.

        The exact distribution of who is elected is left out, so an ε from them is sound but may be larger.
        """
        return self._composed(self._flow_and_cut(unit, tuple(dict.fromkeys(coalition)), True))

    def exposures(self, unit: int, coalition: Sequence[Party]) -> tuple[Exposure, ...]:
        """The flow, the cut and the cheapest exposure of ``unit`` towards ``coalition``, in this order.

        The cheapest one is left out where supernodes are elected, as what is exposed would depend on who is,
        and where `searched_under` is ``None``.

        Raises:
            ValueError: the coalition contains the unit, which knows its own data.
        """
        members = _members_without(unit, coalition)
        return self._kept_exposures.once((unit, members), partial(self._compute_exposures, unit, members))

    @cached_property
    def _kept_exposures(self) -> Kept[tuple[Exposure, ...]]:
        """`exposures`, kept while a pair is charged, described and compared with a claim."""
        return Kept(self._most_kept)

    def _compute_exposures(self, unit: int, members: tuple[Party, ...]) -> tuple[Exposure, ...]:
        """Compute the exposures of ``unit`` that `exposures` keeps; each of ``members`` is named once."""
        if self._whole is not None and not self.elections:
            return _over_rounds(self._whole.exposures(unit, members), self.rounds)
        if self.searched_under is None or self.elections:
            return self._composed(self._flow_and_cut(unit, members))
        pair = self._exposures.pair(unit, members)
        flow, cut = self._kept_flow_and_cut.once((unit, members, False), pair.flow_and_cut)
        return self._composed((flow, cut, cheapest_exposure(pair, (flow, cut), self.searched_under)))

    def distinct_exposures(self, unit: int, coalition: Sequence[Party]) -> tuple[Exposure, ...]:
        """The exposures of ``unit`` towards ``coalition`` that differ in what is charged.

        Cut is left out where it charges the same as flow, and the cheapest where it is one of these two.

        Raises:
            ValueError: the coalition contains the unit, which knows its own data.
        """
        if self.searched_under is None or self.elections or self._whole is not None:
            return self.exposures(unit, coalition)
        members = _members_without(unit, coalition)
        pair = self._exposures.pair(unit, members)
        flow, cut = pair.flow_and_cut()
        found: tuple[Exposure, ...] = (flow, cut)
        if cut.charges_same_as(flow):
            found = (flow,)
        elif len(flow.releases) - len(cut.releases) > 1:  # there are sets between the two
            found = (*found, cheapest_exposure(pair, (flow, cut), self.searched_under))
        return self._composed(found)

    @cached_property
    def _kept_flow_and_cut(self) -> Kept[tuple[Exposure, ...]]:
        """Results of `_flow_and_cut`, kept for records as the unit."""
        return Kept(self._most_kept)

    def _flow_and_cut(
        self, unit: int, members: tuple[Party, ...], quick: bool = False
    ) -> tuple[Exposure, ...]:
        """The flow and the cut exposure, whatever the law of the noise; each of ``members`` is named once.

        ``quick``: whether the exact law of elections is left out.
        """
        compute = partial(self._compute_flow_and_cut, unit, members, quick)
        return self._kept_flow_and_cut.once((unit, members, quick), compute)

    def _compute_flow_and_cut(
        self, unit: int, members: tuple[Party, ...], quick: bool = False
    ) -> tuple[Exposure, ...]:
        """Compute `_flow_and_cut`."""
        if self._whole is not None and not self.elections:
            return _over_rounds(self._whole._flow_and_cut(unit, members), self.rounds)
        if not self.elections:
            return self._exposures.pair(unit, members).flow_and_cut()
        from sfumato.privacy.tree.elections import MOST_OUTCOMES, flow_and_cut_with_elections

        most = 0 if quick else MOST_OUTCOMES
        return flow_and_cut_with_elections(self._exposures, unit, members, self._alike, most=most)

    @cached_property
    def _alike(self) -> list[int]:
        """`leaf_classes` as a list: a class number for every leaf."""
        found: list[int] = self.leaf_classes.tolist()
        return found

    def exposure_like(self, exposure: Exposure, unit: int, coalition: Sequence[Party]) -> Exposure:
        """The exposure of ``unit`` towards ``coalition``, by these facts, of what ``exposure`` exposes.

        ``exposure`` may come from another declaration of the same tree, such as one with other noise.
        """
        exposed = [number - 1 for number in exposure.exposed]
        pair = self._exposures.pair(unit, tuple(dict.fromkeys(coalition)))
        (found,) = self._composed((pair.exposure(exposed),))
        return found

    def _composed(self, exposures: tuple[Exposure, ...], *, of_records: bool = False) -> tuple[Exposure, ...]:
        """``exposures`` as they are charged: without noise where the law of the noise is not composed.

        ``of_records``: whether a record is the unit, for which some laws are composed all the same.
        """
        composed = self.noise_law.is_composed(of_records=of_records)
        found = exposures if composed else tuple(map(without_noise, exposures))
        if self.is_composed_roughly and not all(each.roughly for each in found):
            return tuple(replace(each, roughly=True) for each in found)
        return found

    @cached_property
    def is_composed_roughly(self) -> bool:
        """Whether ε may be up to 2 % above that of a finer grid: where leaves of many kinds draw devices.

        Each has a rate of its own, and so privacy losses of its own to compose.
        """
        return self.draw_kind != "all" and len(np.unique(self.leaf_classes)) > self._most_leaves_alone

    def larger_coalition(self, unit: int, coalition: Sequence[Party]) -> None:
        """Always ``None``: in a tree no larger coalition bounds a record better than the coalition itself.

        Messages are trained from models that exposed averages determine, for every ``unit`` and
        ``coalition``.
        """

    def record_releases(self, unit: int, coalition: Sequence[Party]) -> tuple[RecordReleases, ...]:
        """The releases by which a record of ``unit`` is charged, one entry for each draw of batches.

        Where a round is sent again at its end, all its messages share one draw. Noise that the device adds at
        local steps is charged step by step, whatever is sent. Where a device rounds a message before anybody
        adds noise, the grid depends on all its data.

        Args:
            unit: number of the device whose record it is.
            coalition: observers that pool what they know.

        Returns:
            The releases of the flow exposure; empty if records are not drawn into batches.
        """
        if self.batches.rates is None:
            return ()
        members = tuple(dict.fromkeys(coalition))
        batches = self.batches.at(self.leaf_of(unit))
        if batches.step_multiplier:
            steps = self.rounds * sum(map(len, batches.moves))
            return (noised_steps(batches.step_multiplier, steps),)
        flow, _ = self._composed(self._flow_and_cut(unit, members), of_records=True)
        again = bool(self.steps[-1].resends[self.leaf_of(unit)])
        own = (self.class_variance[step][self.class_of(unit)] for step in self.steps_of(self.leaf_of(unit)))
        rounded = batches.rounded and not all(variance > 0 for variance in own)
        draws = (releases_by_batches(drawn, batches, one_draw=again, rounded=rounded) for drawn in flow.draws)
        return tuple(found for drawn in draws for found in drawn)

    @cached_property
    def _with_one_owner(self) -> dict[str, TreeReleases]:
        """Copies of these facts by kind of owner: with the noise of ``devices`` only, of ``channel`` only."""

        def only(what: str) -> TreeReleases:
            steps = tuple(
                replace(
                    step,
                    device_std=step.device_std * (what == "devices"),
                    node_std=tuple(0.0 * std for std in step.node_std),
                    channel_std=step.channel_std if what == "channel" else (),
                )
                for step in self.steps
            )
            return replace(self, steps=steps)

        return {what: only(what) for what in ("devices", "channel")}

    def noise_by_owner(
        self, unit: int, coalition: Sequence[Party]
    ) -> dict[str, dict[Release, dict[str, float]]]:
        """The noise variance of each release charged for ``unit`` towards ``coalition``, by who adds it.

        Variances add up over owners. So those of devices and of the channel are what the same releases have
        where nobody else adds noise, and aggregators have the rest.

        Returns:
            By name of the bound and by release: variance, a coordinate, by kind of owner: ``devices``,
            ``channel`` and ``aggregators``.
        """
        of_kind = {
            what: {
                e.bound_name: _with_alternatives(e)
                for e in facts._composed(facts._compute_flow_and_cut(unit, tuple(dict.fromkeys(coalition))))
            }
            for what, facts in self._with_one_owner.items()
        }
        found: dict[str, dict[Release, dict[str, float]]] = {}
        for exposure in self.exposures(unit, coalition):
            name = exposure.bound_name
            if exposure.exposed:
                for what, facts in self._with_one_owner.items():
                    of_kind[what][name] = facts.exposure_like(exposure, unit, coalition).releases
            of_owners = zip(
                _with_alternatives(exposure), *(of_kind[what][name] for what in of_kind), strict=True
            )
            found[name] = {}
            for release, devices, channel in of_owners:
                of_others = max(0.0, release.variance - devices.variance)
                of_channel = min(of_others, channel.variance)
                owned = {"devices": min(release.variance, devices.variance), "channel": of_channel}
                of_aggregators = of_others - of_channel
                owned["aggregators"] = of_aggregators if of_aggregators > 1e-12 * release.variance else 0.0
                found[name][release] = owned
        return found

    def bound_epsilon(
        self, exposure: Exposure, *, delta: float, neighbours: Neighbours, known: float = math.inf
    ) -> EpsilonBound:
        """The bound with the smallest ε at ``delta`` among the ways of charging ``exposure``.

        Args:
            exposure: the releases charged, one of `exposures`.
            delta: of the ε, in (0, 1).
            neighbours: the neighbouring relation.
            known: the ε of another bound of the same pair: where the result is sure to be larger, it may be
                computed more coarsely, and is still a bound. ∞: none is known.
        """
        return bound_epsilon(exposure, delta=delta, neighbours=neighbours, known=known)

    def view(self, coalition: Sequence[Party], number: int) -> CoalitionView:
        """What ``coalition`` receives, and what its members send, in aggregation ``number`` of a round."""
        return view_of_coalition(self, coalition, self.steps[number])

    def after(self, rounds: int) -> Self:
        """The releases of the first ``rounds`` rounds; each round is charged as in the whole run."""
        found = replace(self, rounds=rounds)
        object.__setattr__(found, "_whole", self if self._whole is None else self._whole)
        return found

    @property
    def leaf_classes(self) -> IntArray:
        """A number for every leaf, ``[leaves]``, equal only where a symmetry of the tree exchanges leaves."""
        return self._pairs.orbits[-1]

    @property
    def has_raw_intervals(self) -> bool:
        """False: only groups inside an interval of DP-OGL+ send such models."""
        return False

    def leaves_like(self, leaf: int) -> BoolArray:
        """Mask ``[leaves]`` of ``leaf`` and of the leaves that a symmetry of the tree exchanges with it."""
        alike: BoolArray = self.leaf_classes == self.leaf_classes[leaf]
        return alike

    def pair_classes(
        self, unit: int | None = None, *, apart: bool = False, every_unit: bool = False
    ) -> Iterator[PairClass]:
        """Yield one pair for every class of ordered pairs that are charged alike.

        Args:
            unit: only pairs of this device; ``None``: of all.
            apart: whether sites whose records are drawn unequally often are classes of their own.
            every_unit: whether no unit stands for one towards which observers are placed otherwise. If not,
                and where rows may fold, a pair may stand for others that it dominates: their ε is at most
                its own at every δ.
        """
        if self.searched_under is None or self.elections or not self.rows_may_fold:
            return self._pairs.of(unit, apart=apart)
        folded = FoldedPairs(self._pairs, self._ways)
        return iter(
            self._kept_pair_classes.once(
                (unit, apart, every_unit),
                lambda: tuple(folded.of(unit, apart=apart, every_unit=every_unit)),
            )
        )

    @cached_property
    def _kept_pair_classes(self) -> Kept[tuple[PairClass, ...]]:
        """The latest `pair_classes`, where they may fold."""
        return Kept(4)

    def _ways(self, pair: PairClass) -> Ways:
        """Every way to charge the device of ``pair``, over the flow, the cut and the cheapest exposure."""
        assert self.searched_under is not None
        charged = self.distinct_exposures(pair.unit, (pair.observer,))
        return tuple(way for exposure in charged for way in ways_to_charge(exposure, self.searched_under))

    def units_outside(self, members: Set[int], *, apart: bool = False) -> Iterator[UnitClass]:
        """Yield the classes of the devices outside ``members``: those under one leaf that are alike.

        ``apart``: whether sites whose records are drawn unequally often are classes of their own.
        """
        inside = Counter(self.class_of(member) for member in members)
        for number, devices in enumerate(self.classes.count):
            count = int(devices) - inside[number]
            if count:
                some = self.classes.members(number, inside[number] + 1)
                yield from unit_classes(
                    next(int(device) for device in some if int(device) not in members),
                    count,
                    partial(self._members_outside, number, members),
                    rates=self.batches.rates,
                    sites=self.sites,
                    apart=apart,
                )

    def _members_outside(self, number: int, members: Set[int]) -> IntArray:
        """The devices of class ``number`` that are not in ``members``, ascending."""
        found = self.classes.members(number, int(self.classes.count[number]))
        return np.setdiff1d(found, np.fromiter(members, np.int64))

    def to_dict(self) -> dict[str, Any]:
        """The facts as JSON: enough to recompute every epsilon without this library (docs/accounting.md)."""
        return tree_as_json(self)


def _members_without(unit: int, coalition: Sequence[Party]) -> tuple[Party, ...]:
    """``coalition`` with each member named once.

    Raises:
        ValueError: it contains ``unit``, which knows its own data.
    """
    if Party("device", 0, unit) in coalition:
        raise ValueError(f"coalition: got device:{unit}; must not contain the unit")
    return tuple(dict.fromkeys(coalition))


def _over_rounds(exposures: tuple[Exposure, ...], rounds: int) -> tuple[Exposure, ...]:
    """``exposures`` of one round as those of ``rounds`` rounds; bounds that share their draws still do."""
    draws = {id(exposure.draws): exposure.draws for exposure in exposures}
    over = {at: tuple(replace(draw, count=rounds) for draw in found) for at, found in draws.items()}
    return tuple(replace(exposure, draws=over[id(exposure.draws)]) for exposure in exposures)


def _with_alternatives(exposure: Exposure) -> tuple[Release, ...]:
    """All releases of ``exposure``, then those of its election events and of its alternatives."""
    in_office = (r for event in exposure.election_events for pair in event.pairs for rs in pair for r in rs)
    others = (r for other in exposure.alternatives for r in _with_alternatives(other))
    return (*exposure.releases, *in_office, *others)
