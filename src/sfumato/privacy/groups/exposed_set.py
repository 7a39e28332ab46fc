"""Which releases to charge: the exposed set, and the cheapest one between flow and cut.

The exposed-set theorem (docs/accounting.md) lets us pretend that the observer sees any set O of releases, if
only O contains what it does see. Whatever is exposed costs what the target added to it, and 2c for every
*linking worker* in it: one that started from a hidden model the target's data had reached. Exposing
everything upstream (flow) leaves no linking workers; exposing nothing more (cut) leaves the most; a linking
worker costs four times a contribution, but only at merging steps.

First a lower bound is computed (`least_cost_of_any_set`): often flow or cut costs no more. All sets are
compared where they are few enough (`search_all_sets`). Otherwise the set is the cheapest of those found from
several starts: flow, cut, minimum cuts with dearer and dearer links (`minimum_cut`), and a local search from
the best of them. It is sound like every set, never dearer than flow or cut, and `Exposed.least` says what
every set costs at least. Problems of more than `EXACT_NODES` groups times blocks are cut on a coarser time
grid only.

All sets, followed block by block (`search_all_sets`). An exposed set is a number of blocks a group
(`sfumato.privacy.groups.exposure_problem`). What a block costs depends on two sets of groups only: those
that are still *open* (exposed) in it, and the hidden ones that the target's data have *reached* before it.
So partial sets are followed as labels (open, reached), and of all partial sets with the same label the
cheapest is kept. Three rules leave few labels, and none of them loses the least cost:

*Close late.* A group that costs nothing in this block stays open: whatever may follow can follow with it
closed one block later, when the target's data have reached no more than otherwise.

*Dominance.* A label is dropped if another costs no more, has the same groups open or more, and the same
groups reached or fewer. Open groups can be closed, and no cost shrinks when more groups are reached.

*No dearer than known.* A label is dropped if its cost, with what the target's own contributions to seen
releases cost from there on, is no less than that of a set known already.

A search that would have to extend labels more than `MOST_EXTENSIONS` times gives up, as soon as it has done
more than its share of the blocks allows: labels rarely become fewer. It has no answer then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from sfumato.privacy.divergence import times_the_least
from sfumato.privacy.groups.exposure_problem import ChargedSum, ExposureProblem, Price, cost
from sfumato.privacy.groups.minimum_cut import cells_of, least_cost_of_any_set, minimum_cut
from sfumato.privacy.groups.vector_clocks import Block, IntArray, as_bits, groups_of_bits

MOST_EXTENSIONS = 20_000
_SLACK = 200


class _Label(NamedTuple):
    """A partial exposed set, for the blocks searched so far.

    Attributes:
        cost: summed price of what it charges.
        open: bit set of the groups that are exposed in the last of these blocks.
        reached: bit set of the groups whose hidden models the target's data have reached.
        before: the set without the last block; ``None`` for the set of no blocks.
    """

    cost: float
    open: int
    reached: int
    before: _Label | None


class _BlockCosts(NamedTuple):
    """What exposing one block costs.

    Attributes:
        of_group: cost by group, of the groups where anything is charged.
        paying: bit set of the groups whose cost is above 0.
        linked: bit set of the groups with linking workers in the block.
    """

    of_group: dict[int, float]
    paying: int
    linked: int


class SearchResult(NamedTuple):
    """The cheapest set that costs less than the limit, none if there is none; and whether that is certain."""

    blocks: IntArray | None
    certain: bool


def search_all_sets(
    problem: ExposureProblem, price: Price, limit: float, *, most_extensions: int = MOST_EXTENSIONS
) -> SearchResult:
    """Search all exposed sets for the cheapest below ``limit``, by dynamic programming over blocks.

    An exposed set is the releases that the coalition is taken to see, as a number of blocks of steps a group.

    Args:
        problem: the target and what the coalition sees.
        price: Rényi divergence of order 2 of one charged sum.
        limit: cost of a set that is known already: the sum of ``price`` over all that it charges (`cost`).
        most_extensions: how many extensions of partial sets are tried before the search gives up; it gives up
            sooner where the first blocks take more than their share.

    Returns:
        The set, int64 ``[groups]``: of each group, how many blocks from the first on are exposed. ``None`` if
        no set is cheaper (``certain``) or the search gave up (not ``certain``).
    """
    block_count = int(problem.reach.max(initial=0))
    costs, least_rest = _Costs(problem, price), _least_cost_from_each_block(problem, price, block_count)
    labels = [_Label(0.0, (1 << problem.kinds.group_count) - 1, 0, None)]
    extensions = 0
    for number in range(block_count):
        block, most_cost = problem.blocks[number], limit - least_rest[number + 1]
        seen, upstream = as_bits(problem.seen > number), as_bits(problem.reach > number)
        cheapest_by_state: dict[tuple[int, int], _Label] = {}
        for label in labels:
            block_costs = costs.of_block(block, label.reached)
            free_to_close = label.open & upstream & block_costs.paying & ~seen
            extensions += 1 << free_to_close.bit_count()
            if extensions > min(most_extensions, most_extensions * (number + 1) // block_count + _SLACK):
                return SearchResult(None, False)
            # only a group that is open, charged here and not seen can be closed with a gain (module)
            for closed in _subsets(free_to_close):
                extended = _extended_label(
                    label, block_costs, label.open & upstream & ~closed, costs.own[block.era]
                )
                key = (extended.open, extended.reached)
                if extended.cost < most_cost and (
                    key not in cheapest_by_state or extended.cost < cheapest_by_state[key].cost
                ):
                    cheapest_by_state[key] = extended
        labels = _undominated_labels(cheapest_by_state.values())
    return SearchResult(_open_blocks(labels[0], problem.kinds.group_count) if labels else None, True)


def _extended_label(label: _Label, here: _BlockCosts, still_open: int, own: int) -> _Label:
    """Extend the partial set ``label`` by one block, in which the groups of ``still_open`` are exposed.

    Args:
        label: the partial set of the blocks before.
        here: what the block costs in each group.
        still_open: the groups exposed in it, as bits.
        own: the groups that the target is in, as bits.
    """
    cost = label.cost + sum(here.of_group[group] for group in groups_of_bits(still_open & here.paying))
    return _Label(cost, still_open, ~still_open & (label.reached | own | here.linked), label)


class _Costs:
    """Costs of blocks, each computed once."""

    def __init__(self, problem: ExposureProblem, price: Price) -> None:
        """Set up an empty cache of what blocks of ``problem`` cost.

        ``price``: Rényi divergence of order 2 of one charged sum, in nats.
        """
        self.problem, self.price = problem, price
        self.own = [as_bits(problem.with_unit(era)) for era in range(len(problem.kinds.incidence))]
        self.known: dict[tuple[int, bool, int, int], _BlockCosts] = {}

    def of_block(self, block: Block, reached: int) -> _BlockCosts:
        """What ``block`` costs in each group, where data have reached the hidden groups ``reached``.

        ``reached`` is a bit set of groups.
        """
        key = (block.era, block.merges, block.length, reached if block.merges else 0)
        if key not in self.known:
            self.known[key] = self._compute(block, reached)
        return self.known[key]

    def _compute(self, block: Block, reached: int) -> _BlockCosts:
        """Compute what ``block`` costs in each group, where data have reached the hidden groups ``reached``.

        ``reached`` is a bit set of groups.
        """
        count = self.problem.kinds.group_count
        inside = np.zeros(count, dtype=np.bool_)
        inside[list(groups_of_bits(reached))] = True
        linking = self.problem.linking(block, inside)
        own, of_group = self.own[block.era], {}
        for group in groups_of_bits(own | as_bits(linking > 0)):
            mine = bool(own >> group & 1)
            cost = self.price(ChargedSum(group, block.era, mine, int(linking[group])))
            if mine and block.length > 1:
                cost += (block.length - 1) * self.price(ChargedSum(group, block.era, True, 0))
            of_group[group] = cost
        paying = sum(1 << group for group, cost in of_group.items() if cost > 0)
        return _BlockCosts(of_group, paying, as_bits(linking > 0))


def _least_cost_from_each_block(problem: ExposureProblem, price: Price, last: int) -> list[float]:
    """For every block number from 0 to ``last``, a lower bound on what any set costs from that block on.

    It is what the target's own contributions to releases that the coalition sees cost: every set charges
    these.

    Returns:
        ``last`` + 1 costs; the last one is 0.
    """
    rest = [0.0] * (last + 1)
    for number in range(last - 1, -1, -1):
        block = problem.blocks[number]
        groups = np.flatnonzero(problem.with_unit(block.era) & (problem.seen > number))
        prices = (price(ChargedSum(int(group), block.era, True, 0)) for group in groups)
        rest[number] = rest[number + 1] + block.length * sum(prices)
    return rest


def _subsets(free: int) -> Iterator[int]:
    """All subsets of the groups in ``free``; a set of groups is a number with one bit a group."""
    groups = [1 << group for group in groups_of_bits(free)]
    for number in range(1 << len(groups)):
        yield sum(group for place, group in enumerate(groups) if number >> place & 1)


def _undominated_labels(labels: Iterable[_Label]) -> list[_Label]:
    """Keep the partial sets ``labels`` that no other one makes superfluous, cheapest first.

    One is superfluous if another costs no more, has at least the same groups open and no more groups reached.
    """
    kept: list[_Label] = []
    for label in sorted(labels, key=lambda one: (one.cost, -one.open.bit_count(), one.open, one.reached)):
        # sorted by cost, so those kept cost no more: compare the bit sets as superset and subset
        if not any(label.open | one.open == one.open and one.reached & ~label.reached == 0 for one in kept):
            kept.append(label)
    return kept


def _open_blocks(label: _Label | None, count: int) -> IntArray:
    """In how many blocks each of ``count`` groups is exposed, int64 ``[count]``, in a set.

    It is the set that ends with ``label``.
    """
    blocks = np.zeros(count, dtype=np.int64)
    while label is not None and label.before is not None:
        for group in groups_of_bits(label.open):
            blocks[group] += 1
        label = label.before
    return blocks


EXACT_NODES = 4000
_SEARCHED_GROUPS = 24


class Exposed(NamedTuple):
    """An exposed set, what it costs, and what every exposed set costs at least.

    Attributes:
        blocks: how many blocks of every group are exposed, from the first one on, int64 ``[groups]``.
        cost: Rényi divergence of order 2 of all that is charged, in nats.
        least: a lower bound on the cost of any set, in nats.
    """

    blocks: IntArray
    cost: float
    least: float

    @property
    def optimal(self) -> bool:
        """Whether this set is known to cost no more than any other, up to one part in a million."""
        return self.gap == 1.0

    @property
    def gap(self) -> float:
        """How many times the cost of the cheapest set this set's cost is at most: `cost` over `least`.

        1 if it is known that no set is cheaper; ∞ where ``least`` is 0 and the cost is not.
        """
        return times_the_least(self.cost, self.least)


def cheapest_set(problem: ExposureProblem, price: Price, *, exact_nodes: int = EXACT_NODES) -> Exposed:
    """The cheapest exposed set that the searches of this module find; never dearer than flow or cut.

    Args:
        problem: the target and what the coalition sees.
        price: Rényi divergence of order 2 of one charged sum, in nats.
        exact_nodes: largest number of groups times blocks for which all sets are searched.

    Returns:
        The set as blocks a group, its cost in nats, and a lower bound on the cost of every set.
    """
    best = flow_or_cut(problem, price)
    return best if best.optimal else cheaper_set(problem, price, best, exact_nodes=exact_nodes)


def cheaper_set(
    problem: ExposureProblem, price: Price, best: Exposed, *, exact_nodes: int = EXACT_NODES
) -> Exposed:
    """Search for an exposed set that costs less than ``best``, as `cheapest_set` does.

    All sets are searched if there are few; else, or where that search gives up, minimum cuts give a set and
    a lower bound, and a local search improves the set.

    Args:
        problem: the target and what the coalition sees.
        price: Rényi divergence of order 2 of one charged sum, in nats.
        best: the cheaper of flow and cut, from `flow_or_cut`, which is not known to be the cheapest.
        exact_nodes: largest number of groups times blocks for which all sets are searched.

    Returns:
        The cheapest set found, perhaps ``best`` itself, with a lower bound on the cost of every set.
    """
    is_small = int((problem.reach > 0).sum()) * len(problem.blocks) <= exact_nodes
    found = search_all_sets(problem, price, best.cost) if is_small else SearchResult(None, False)
    best = _cheaper_of(problem, price, best, found.blocks)
    if found.certain:
        return best._replace(least=best.cost)
    stretches = list(cells_of(problem, is_small))
    # dearer links give other cuts, whose sets may cost less; only the cut with factor 1 gives a bound
    for dearer in (1.0, 2.0, 4.0) if is_small else (1.0,):
        cut, bound = minimum_cut(problem, price, stretches, dearer)
        if cut is None:
            return best._replace(least=best.cost if is_small else best.least)
        best = _cheaper_of(problem, price, best, cut)
        if dearer == 1.0 and is_small and problem.links_add_up:
            best = best._replace(least=max(best.least, bound))
        if best.optimal:
            return best
    return _improved_locally(problem, price, best)


def flow_or_cut(problem: ExposureProblem, price: Price) -> Exposed:
    """The cheaper of two exposed sets: flow or cut; flow where they cost the same.

    Flow exposes, beside the releases that the coalition sees, all that these depend on; cut exposes none but
    those that it sees, and charges the most linking workers.

    Args:
        problem: the target and what the coalition sees.
        price: Rényi divergence of order 2 of one charged sum, in nats.

    Returns:
        The set, its cost in nats, and a lower bound on the cost of every exposed set, not of these two only.
    """
    flow, cut = cost(problem, problem.reach, price), cost(problem, problem.seen, price)
    blocks, spent = (problem.reach, flow) if flow <= cut else (problem.seen, cut)
    only = spent == 0 or np.array_equal(problem.seen, problem.reach)
    return Exposed(blocks, spent, spent if only else least_cost_of_any_set(problem, price))


def _cheaper_of(problem: ExposureProblem, price: Price, best: Exposed, blocks: IntArray | None) -> Exposed:
    """The set ``blocks`` (``[groups]``) with its cost if it costs less than ``best``, else ``best``.

    ``best`` also stays where ``blocks`` is ``None``; its lower bound is kept in any case.
    """
    spent = math.inf if blocks is None else cost(problem, blocks, price)
    return best._replace(blocks=blocks, cost=spent) if blocks is not None and spent < best.cost else best


def _improved_locally(problem: ExposureProblem, price: Price, best: Exposed) -> Exposed:
    """``best``, or a cheaper set that a local search finds from it by changing one group at a time.

    A group with hidden releases is exposed either in all blocks upstream of what is seen, or only in those
    that the coalition sees. The search ends when no such change makes the set cheaper by more than rounding.
    It is left out, and ``best`` returned, if there are more than 24 groups to change.
    """
    groups = np.flatnonzero(problem.reach > problem.seen)
    improved = len(groups) <= _SEARCHED_GROUPS
    while improved:
        improved = False
        for group in groups:
            for blocks in (problem.reach[group], problem.seen[group]):
                other = best.blocks.copy()
                other[group] = blocks
                spent = cost(problem, other, price)
                if spent < best.cost * (1 - 1e-12):
                    best, improved = best._replace(blocks=other, cost=spent), True
    return best
