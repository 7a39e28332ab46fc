"""Which averages of a tree to expose: the cheapest set that is found, and what every set costs at least.

The theorem of the exposed set (docs/accounting.md) holds for every set O of averages that contains those
which the coalition receives. Rounds are alike and independent given the global models, so O is chosen for one
round. Call the average of the node that aggregates above the unit, at one of the unit's aggregations, *its*
average.

*The search.* Once its average of tier a is exposed, all devices under that node start from something known.
If only averages of tier a or below it were hidden since all was last known, nobody else has started from a
hidden average, and the rest of the round does not depend on what was hidden. So μ² is a sum over the
stretches between exposed averages, and the best choice of them is a shortest path (`_cheapest_path`). Flow
and cut are two of these paths. In two tiers only the averages of the unit's own edge are hidden and depend on
it, so these are all sets.

*The lower bound* (`_Stretches.least`). Take any O, and those of the unit's aggregations at which O has a sum
with the unit's message. That sum is charged at least for what the unit sent since the last of them, and for
what its peers under the same leaf sent after the first hidden average, as they started from it:

* A message that was averaged up to tier m while it was hidden has in the model of the unit's leaf at least
  its weight in that average; and this model has in the sum, an average of tier t, its weight below t.
  Whatever else of it passes through other leaves may be known, if their averages are exposed, and is left
  out.
* The noise counted in an average of tier t is at most what counts where nothing else is exposed.
* If O has several sums of one aggregation, they cost together at least what one of them costs. Where the
  coalition receives a sum it is the finest one that it receives; else the least over all tiers counts.

So every O costs at least the shortest path over stretches that cost only that. In two tiers the two paths are
one, where devices of a leaf have one weight.

Where a round is sent again at its end (resend), every set costs at least what is received, own messages
alone, and only flow and cut are compared. If a hidden draw amplifies some sets and not others, the cost of
all sets is bounded by the least μ² amplified. Where other devices' noise counts by chance there is no bound,
and no gap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sfumato.privacy.divergence import divergence, is_priced_exactly, times_the_least
from sfumato.privacy.release import DrawnReleases, Exposure, Release, total_mu_squared
from sfumato.privacy.sampling import Neighbours
from sfumato.privacy.tree.exposures import PairExposures

_SEARCHED = 48
"""Aggregations of a round among which a path is searched for; with more, flow or cut is taken."""

_BOUNDED = 200
"""Aggregations of a round for which a lower bound is computed, in time that grows with their square.

With more, how far flow or cut may be from the cheapest set is not known.
"""


def cheapest_exposure(
    pair: PairExposures, flow_and_cut: tuple[Exposure, Exposure], neighbours: Neighbours
) -> Exposure:
    """The exposure of a pair with the least cost that the search finds; never dearer than flow or cut.

    Args:
        pair: of a unit and a coalition.
        flow_and_cut: its flow and its cut exposure.
        neighbours: the relation that costs refer to.

    Returns:
        The exposure, called ``min-cost``, with the exposed aggregations and how far it may be from the
        cheapest.
    """
    flow, cut = flow_and_cut
    if pair.steps == pair.received_steps:
        return _stated(flow, pair.steps, 1.0)
    stretches = _Stretches(pair, neighbours)
    least = stretches.least()
    best, steps, cost = flow, pair.steps, _cost(flow, neighbours)
    if (cost_of_cut := _cost(cut, neighbours)) < cost:
        best, steps, cost = cut, pair.received_steps, cost_of_cut
    gap = _gap_to_cheapest(best, cost, least, flow, neighbours)
    path = _cheapest_path(stretches) if gap > 1 else None
    if path is not None and (cost_of_path := _cost(on_path := pair.exposure(path), neighbours)) < cost:
        best, steps, cost = on_path, path, cost_of_path
        gap = _gap_to_cheapest(best, cost, least, flow, neighbours)
    return _stated(best, steps, gap)


def _stated(exposure: Exposure, steps: Sequence[int], distance: float) -> Exposure:
    """``exposure`` as the ``min-cost`` bound of a pair.

    Args:
        exposure: what is charged.
        steps: the aggregations of a round whose averages it exposes, from 0; the bound names them from 1.
        distance: upper bound on the ratio of its divergence to the cheapest set's (`Exposure.gap`).
    """
    exposed = tuple(number + 1 for number in steps)
    return replace(exposure, bound_name="min-cost", exposed=exposed, gap=distance)


def _cost(exposure: Exposure, neighbours: Neighbours) -> float:
    """Rényi divergence of order 2 of an exposure with one draw, over the whole training, in nats."""
    (drawn,) = exposure.draws
    return divergence(drawn, neighbours)


def _gap_to_cheapest(
    best: Exposure, cost: float, least: float, flow: Exposure, neighbours: Neighbours
) -> float:
    """Upper bound on the ratio of the divergence of ``best`` to the cheapest set's; ∞ where none is known.

    A hidden draw of a fixed number has a price above its divergence (`is_priced_exactly`), but both grow
    with μ². So where it amplifies ``best``, of the least μ², no set has a smaller divergence; else nothing
    is known.

    Args:
        best: an exposed set.
        cost: its divergence (`_cost`).
        least: the least μ² that every set has in a round.
        flow: the flow exposure, for its draw.
        neighbours: the relation that costs refer to.
    """
    (drawn,) = flow.draws
    hidden = drawn.sampling.amplifies
    if drawn.drawn_noise or (hidden and neighbours != "zero-out"):
        return math.inf
    one = Release("", "", math.sqrt(least), 0.0, 1.0, noise_is_draw_independent=hidden)
    of_least = DrawnReleases(drawn.sampling, (one,), drawn.count)
    found = times_the_least(cost, divergence(of_least))
    if is_priced_exactly(of_least, neighbours):
        return found
    return 1.0 if found == 1 and best.draws[0].amplifies else math.inf


@dataclass(frozen=True, eq=False)
class _Stretches:
    """The aggregations of a round from one exposed average to the next, for one unit and coalition.

    Attributes:
        pair: the unit and the coalition.
        neighbours: the relation.
    """

    pair: PairExposures
    neighbours: Neighbours

    @cached_property
    def seen(self) -> set[int]:
        """Indices, among the unit's aggregations of a round, of those whose average the coalition receives.

        A stretch must end at each.
        """
        return {self.pair.steps.index(number) for number in self.pair.received_steps}

    @cached_property
    def resends(self) -> bool:
        """Whether the unit sends the whole round again."""
        steps = (self.pair.facts.steps[number] for number in self.pair.steps)
        return any(bool(step.resends[self.pair.leaf]) for step in steps)

    def tier(self, place: int) -> int:
        """Tier of the nodes that aggregate at index ``place`` of the unit's aggregations."""
        return self.pair.facts.steps[self.pair.steps[place]].tier

    def starts(self, place: int) -> Iterator[int]:
        """Yield the indices at which a stretch that ends at index ``place`` may start, the latest first.

        No average before the last of the stretch may be seen.
        """
        for first in range(place, -1, -1):
            if first < place and first in self.seen:
                return
            yield first

    # --- what every set costs -------------------------------------------------------------------

    def least(self) -> float:
        """A lower bound on μ² of a round for every exposed set; 0 where there are too many aggregations."""
        if len(self.pair.steps) > _BOUNDED:
            return 0.0
        if self.resends:
            return total_mu_squared(map(self.pair.release, self.pair.received_steps), self.neighbours)
        return _shortest([dict(self._least_costs(p)) for p in range(len(self.pair.steps))], self.seen)[0]

    def _least_costs(self, place: int) -> Iterator[tuple[int, float]]:
        """Lower bounds on μ² of stretches that end at index ``place``, as (start, bound), latest start first.

        What is charged is the finest sum that the coalition receives, if it receives one; else the average
        of any tier, of which the one with the least μ² counts.
        """
        facts, number = self.pair.facts, self.pair.steps[place]
        if place in self.seen:
            tiers = [self.pair.finest_sum(number)]
        else:
            tiers = [(tier, True) for tier in range(facts.steps[number].tier, facts.depth)]
        sums = [
            (dict(self._least_moves(place, tier)), *self._noise(number, tier, sent)) for tier, sent in tiers
        ]
        for first in self.starts(place):
            squares = []
            for moves, if_unit_sends, if_not in sums:
                variance = if_unit_sends if first == place else min(if_unit_sends, if_not)
                rounded = facts.rounds_after_noise and first < place
                square = math.inf if variance == 0 or rounded else moves[first] ** 2 / variance
                squares.append(square if moves[first] > 0 else 0.0)
            yield first, min(squares)

    def _noise(self, number: int, tier: int, sent: bool) -> tuple[float, float]:
        """Two variances of unknown noise in the sum of an aggregation: if the unit sends, and if it does not.

        Args:
            number: of the aggregation.
            tier: whose average; one past the last tier: the unit's own message.
            sent: with the node's own noise, or as it is received.

        Returns:
            Both, a coordinate; they are equal where nobody drops out.
        """
        facts = self.pair.facts
        if tier == facts.depth:
            variance = float(facts.class_variance[number][facts.class_of(self.pair.unit)])
            return variance, variance
        there = self.pair.unknown_variance(number, tier, sent)
        absent = facts.may_drop_out
        return there, self.pair.unknown_variance(number, tier, sent, present=False) if absent else there

    def _least_moves(self, place: int, tier: int) -> Iterator[tuple[int, float]]:
        """Lower bounds on how far an average moves, by where the stretch that ends at ``place`` starts.

        The unit moves it by its own messages of the whole stretch. Its peers move it, too, by what they sent
        in the stretch after its first hidden aggregation.

        Args:
            place: index of an aggregation, among the unit's.
            tier: of the average above the unit; one past the last tier: the unit's own message.

        Yields:
            Pairs of an index at which the stretch may start, the latest first, and the l2 distance.
        """
        facts, last, path = self.pair.facts, self.pair.facts.depth - 1, self.pair.path
        norms = self._norms
        if tier == facts.depth:  # the unit's own message, and nothing is hidden from who receives it
            own = norms[place] * self.pair.weight
            yield from ((first, own * self._per_own) for first in self.starts(place))
            return
        below = facts.weight_below(path, last, tier)
        own, others, highest = 0.0, 0.0, last
        later = 0.0  # what peers send at the aggregation after ``first``
        for first in self.starts(place):
            weight = below
            if first < place:
                highest = min(highest, self.tier(first))
                weight *= facts.weight_below(path, last, highest)
            own += norms[first] * self._own_weight * weight
            others += later
            later = 2.0 * norms[first] * self._peers_weight * weight
            yield first, own * self._per_own + others

    @cached_property
    def _norms(self) -> list[float]:
        """The bound of a message of the unit's leaf at each of its aggregations, l2, of weight 1."""
        leaf, facts = self.pair.leaf, self.pair.facts
        return [float(facts.steps[number].message_norm[leaf]) for number in self.pair.steps]

    @cached_property
    def _per_own(self) -> float:
        """How far the unit's message moves between neighbours, in units of its norm."""
        return 2.0 if self.neighbours == "replace" else 1.0

    @cached_property
    def _own_weight(self) -> float:
        """Weight of the unit's message in the average of its leaf."""
        return float(self.pair.facts.leaf_weight[self.pair.leaf]) * self.pair.weight

    @cached_property
    def _peers_weight(self) -> float:
        """Least total weight, in the leaf's average, of the leaf's other devices that take part."""
        facts, leaf = self.pair.facts, self.pair.leaf
        if facts.draw_kind == "fixed":
            lightest = float(facts.classes.weight[list(facts.classes.of_leaf(leaf))].min())
            others = (round(float(facts.drawn[leaf])) - 1) * lightest
        else:
            others = float(facts.classes.total_weight[leaf]) - self.pair.weight
        return max(0.0, others) * float(facts.leaf_weight[leaf])


def _cheapest_path(stretches: _Stretches) -> list[int] | None:
    """Numbers of the aggregations of a round to expose, ascending, so that μ² of the round is least.

    ``None`` where a round is sent again, so that paths cannot be compared, or has more than 48 aggregations.
    """
    pair, steps = stretches.pair, stretches.pair.steps
    if stretches.resends or len(steps) > _SEARCHED:
        return None
    costs: list[dict[int, float]] = []
    for place, number in enumerate(steps):
        found = {}
        for first in stretches.starts(place):
            is_wider = any(stretches.tier(at) < stretches.tier(place) for at in range(first, place))
            # an average that is exposed without need may not follow a hidden one of a tier above it
            if place not in stretches.seen and is_wider:
                break
            release = pair.release(number, steps[first:place])
            found[first] = release.mu_squared(stretches.neighbours)
        costs.append(found)
    return [steps[place] for place in _shortest(costs, stretches.seen)[1]]


def _shortest(costs: Sequence[dict[int, float]], seen: set[int]) -> tuple[float, list[int]]:
    """Find the cheapest way to part a round into stretches, one after the other from place 0 on.

    Args:
        costs: for each place, costs (μ²) of the stretches that end there, by the place where they start.
        seen: places at which a stretch must end; after the last one nothing need be exposed.

    Returns:
        The least cost, and the places where its stretches end, ascending; 0 and none where nothing is seen.
    """
    best: list[tuple[float, list[int]]] = [(0.0, [])]
    for place, found in enumerate(costs):
        ways = ((best[first][0] + cost, first) for first, cost in found.items())
        cost, first = min(ways)
        best.append((cost, [*best[first][1], place]))
    return min(best[max(seen, default=-1) + 1 :], key=lambda one: one[0])
