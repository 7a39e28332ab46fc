"""The cheapest exposed set as a minimum cut: a lower bound on the cost of every set, often reached.

The graph's nodes are the blocks upstream of what is seen. Put a node on the source side if it is exposed, on
the sink side if it is hidden; then

    arc                      capacity                                    cut, so paid, if
    node → sink              the target's own contributions in it        it is exposed
    node → link (→ inputs)   what one kind of linking workers adds (∞)   it is exposed, an input is hidden
    source → node            ∞                                           never: what is seen is exposed
    node → the block before  ∞                                           never: prefixes

Kinds of linking workers that meet in one release add before squaring, (own + 2Σ)² ≥ own² + Σ (…)², so the
cut's value is a lower bound on the cost of every exposed set, and it is the cost of the set found wherever
no two kinds meet: always where no group has two kinds of workers that link it, where messages are met
singly, and for DP-OGL+. Capacities are rounded down to integers, which keeps the value a lower bound.

*Without looking at sets* (`least_cost_of_any_set`), for any number of blocks. The value of a minimum cut is
at least that of any flow from the target's contributions, over links, to the groups that are seen. In groups
that never change all blocks are alike, so a flow can be repeated: a way of n links from a seen group to a
group of the target's, and an amount that all its links can carry in a block beside what other ways carry.
The contributions of block b then pass the i-th link in block b + i, so the way is used by B - n of the B
blocks, and each link carries the same amount in every block. This is the flow over time of Ford and
Fulkerson (1958). Shortest ways are filled first; no flow is ever taken back, so the bound may be below the
minimum cut. Contributions to groups that are seen are paid in any case.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from functools import reduce
from itertools import groupby
from operator import attrgetter, or_
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sfumato.privacy.groups.exposure_problem import ChargedSum, ExposureProblem, Price
from sfumato.privacy.groups.vector_clocks import IntArray, as_bits, groups_of_bits

_COARSE_NODES = 200
_INFINITE = 1_000_000_000
_FINITE_TOTAL = 500_000_000


def cells_of(problem: ExposureProblem, fine: bool) -> Iterator[tuple[int, int]]:
    """Yield stretches of blocks of ``problem``, each within one era, whose blocks a cut exposes together.

    ``fine``: every block is one; otherwise they are so long that the graph has about 200 nodes.

    Yields:
        The number of a stretch's first block, and that of its last plus 1.
    """
    total = len(problem.blocks)
    length = 1
    if not fine:
        active = max(1, int((problem.reach > 0).sum()))
        length = -(-total // max(1, _COARSE_NODES // active))
    start = 0
    while start < total:
        stop = start + 1
        while stop < min(total, start + length) and problem.blocks[stop].era == problem.blocks[start].era:
            stop += 1
        yield start, stop
        start = stop


class _Graph:
    """A flow network with source 0 and sink 1, whose capacities may be infinite.

    Attributes:
        nodes: number of nodes. Node 2 is the only one behind the source: the arc to it keeps the flow within
            32-bit integers, as capacities are.
        arcs: tail, head and capacity of every arc.
    """

    def __init__(self) -> None:
        """Start a graph with source 0 and sink 1."""
        self.nodes = 3
        self.arcs: list[tuple[int, int, float]] = [(0, 2, 2.0 * _INFINITE)]

    def add_arc(self, tail: int, head: int, capacity: float) -> None:
        """Add an arc from node ``tail`` to node ``head``; ``capacity`` may be infinite."""
        self.arcs.append((tail, head, capacity))

    def add_node(self) -> int:
        """Add a node, and return its number."""
        self.nodes += 1
        return self.nodes - 1

    def source_side(self) -> tuple[npt.NDArray[np.bool_], float]:
        """Compute a minimum cut between source and sink.

        Returns:
            Mask ``[nodes]`` of the nodes on the source side, and the value of the cut. The value is rounded
            down, so it stays a lower bound. Where every cut is infinite: all nodes, and ∞.
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        tails, heads, values = (np.array(column) for column in zip(*self.arcs, strict=True))
        finite = np.isfinite(values)
        finite[0] = False
        scale = _FINITE_TOTAL / max(values[finite].sum(), 1e-9)
        capacity = np.full(len(values), _INFINITE, dtype=np.int32)
        capacity[finite] = np.floor(values[finite] * scale)
        capacity[0] = 2 * _INFINITE  # above any single arc that stands for ∞, so that such a flow shows
        shape = (self.nodes, self.nodes)
        network = csr_array((capacity, (tails, heads)), shape=shape)
        result = maximum_flow(network, 0, 1)
        if result.flow_value >= _INFINITE:
            return np.ones(self.nodes, dtype=np.bool_), math.inf
        residual = csr_array(network - result.flow)
        residual.data[residual.data < 0] = 0
        residual.eliminate_zeros()
        reached = np.zeros(self.nodes, dtype=np.bool_)
        reached[breadth_first_order(residual, 0, return_predecessors=False)] = True
        return reached, result.flow_value / scale


class Link(NamedTuple):
    """What a kind of linking workers adds to a sum of a group, and their other groups `as_bits`."""

    cost: float
    others: int


class LinksInto(dict[int, list[Link]]):
    """The links into every group in an era, found when they are first asked for.

    One for all kinds of workers where any linking worker costs as much as all of them together.
    """

    def __init__(self, problem: ExposureProblem, price: Price, era: int) -> None:
        """Set up an empty table of the links in era number ``era``.

        ``price``: Rényi divergence of order 2 of one charged sum, in nats.
        """
        super().__init__()
        self._problem, self._price, self._era = problem, price, era

    def __missing__(self, group: int) -> list[Link]:
        """Find the links into group number ``group``, a list that is kept under it."""
        self[group] = found = self._into(group)
        return found

    def _into(self, group: int) -> list[Link]:
        """List the links into ``group``: what each kind of linking workers adds to the price of its sum.

        One entry with the groups of all kinds where one linking worker costs as much as all together. Empty
        where no worker of the group is in another one; a cost is 0 where the sum costs ∞ without them.
        """
        kinds = self._problem.bridges[self._era].into.get(group)
        if not kinds:
            return []
        own = bool(self._problem.with_unit(self._era)[group])
        alone = self._price(ChargedSum(group, self._era, True, 0)) if own else 0.0

        def extra(linking: float) -> float:
            if math.isinf(alone):
                return 0.0
            return self._price(ChargedSum(group, self._era, own, int(linking))) - alone

        if (of_one := extra(1)) == extra(sum(size for size, _ in kinds)):
            return [Link(of_one, reduce(or_, (others for _, others in kinds)))]
        costs = {size: extra(size) for size in {size for size, _ in kinds}}
        return [Link(costs[size], others) for size, others in kinds]


def minimum_cut(
    problem: ExposureProblem, price: Price, cells: list[tuple[int, int]], dearer: float
) -> tuple[IntArray | None, float]:
    """The exposed set of a minimum cut, and the value of the cut.

    Args:
        problem: the target and what the coalition sees.
        price: Rényi divergence of order 2 of one charged sum.
        cells: stretches of blocks that are exposed together, from `cells_of`.
        dearer: factor on the capacity of links; with 1 the value bounds the cost of every set from below.

    Returns:
        The number of exposed blocks of every group, int64 ``[groups]``, or ``None`` if all cuts are infinite;
        and the value of the cut, ∞ then.
    """
    graph = _Graph()
    groups = np.flatnonzero(problem.reach > 0)
    links: dict[int, LinksInto] = {}
    starts = np.array([start for start, _ in cells])
    last_cell = {int(g): int(np.searchsorted(starts, problem.reach[g], side="left")) - 1 for g in groups}
    node = {(g, cell): graph.add_node() for g in last_cell for cell in range(last_cell[g] + 1)}
    merges_before = np.concatenate([[0], np.cumsum([block.merges for block in problem.blocks])])
    steps_before = np.concatenate([[0], np.cumsum([block.length for block in problem.blocks])])
    for (group, cell), exposed_node in node.items():
        start, stop = cells[cell]
        stop = min(stop, int(problem.reach[group]))
        era = problem.blocks[start].era
        if problem.with_unit(era)[group]:
            graph.add_arc(
                exposed_node,
                1,
                price(ChargedSum(group, era, True, 0)) * float(steps_before[stop] - steps_before[start]),
            )
        if problem.seen[group] > start:
            graph.add_arc(2, exposed_node, math.inf)  # what is seen is exposed
        if cell:
            graph.add_arc(exposed_node, node[group, cell - 1], math.inf)  # with all blocks before it
        merge_count = float(merges_before[stop] - merges_before[start])
        cell_before = cell - 1 if stop - start == 1 and cells[cell][1] - start == 1 else cell
        if not merge_count or cell_before < 0:
            continue
        if era not in links:
            links[era] = LinksInto(problem, price, era)
        for cost_of_link, others in links[era][group]:
            link = graph.add_node()
            graph.add_arc(exposed_node, link, cost_of_link * merge_count * dearer)
            for other in groups_of_bits(others):
                if other in last_cell:
                    graph.add_arc(link, node[other, min(cell_before, last_cell[other])], math.inf)
    side, value = graph.source_side()
    if math.isinf(value):
        return None, value
    exposed = problem.seen.copy()
    for (group, cell), exposed_node in node.items():
        if side[exposed_node]:
            exposed[group] = max(exposed[group], min(cells[cell][1], int(problem.reach[group])))
    return exposed, value


class _Way(NamedTuple):
    """A path of links from a seen group to a group of the target's.

    Attributes:
        source: the group of the target's.
        links: from the seen group on, each as a group and the number of a link into it.
    """

    source: int
    links: tuple[tuple[int, int], ...]


def least_cost_of_any_set(problem: ExposureProblem, price: Price) -> float:
    """A lower bound on the cost of every exposed set, from a flow repeated in every block (see the module).

    Args:
        problem: the target and what the coalition sees.
        price: Rényi divergence of order 2 of one charged sum, in nats.

    Returns:
        The bound, in nats; ∞ only where every set costs ∞. Where groups change, or links do not add up, the
        bound is only what the target's own contributions to seen releases cost.
    """
    paid = _paid_in_any_case(problem, price)
    if len(problem.kinds.incidence) > 1 or not problem.blocks or not problem.links_add_up:
        return paid
    links, capacity_left = LinksInto(problem, price, 0), dict[int, list[float]]()
    supply = {
        group: problem.blocks[0].length * price(ChargedSum(group, 0, True, 0))
        for group in np.flatnonzero(problem.with_unit(0) & (problem.seen == 0)).tolist()
    }
    while (path := _shortest_way(problem, links, capacity_left, supply)) is not None:
        amount = min(supply[path.source], *(capacity_left[group][number] for group, number in path.links))
        if math.isinf(amount):
            return math.inf
        paid += amount * (len(problem.blocks) - len(path.links))
        supply[path.source] -= amount
        for group, number in path.links:
            capacity_left[group][number] -= amount
    return paid


def _paid_in_any_case(problem: ExposureProblem, price: Price) -> float:
    """What the target's own contributions to releases that the coalition sees cost, in nats.

    They are part of every exposed set.
    """
    paid, first = 0.0, 0
    for era, blocks in groupby(problem.blocks, key=attrgetter("era")):
        steps = np.cumsum([0, *(block.length for block in blocks)])
        seen = steps[np.clip(problem.seen - first, 0, len(steps) - 1)]
        for group in np.flatnonzero(problem.with_unit(era) & (seen > 0)).tolist():
            paid += int(seen[group]) * price(ChargedSum(group, era, True, 0))
        first += len(steps) - 1
    return paid


def _shortest_way(
    problem: ExposureProblem, links: LinksInto, left: dict[int, list[float]], supply: dict[int, float]
) -> _Way | None:
    """Find a shortest path of links, fewer than the blocks, that can carry more to a group with supply.

    A breadth-first search from all groups that are seen.

    Args:
        problem: the target and what the coalition sees.
        links: the links into every group.
        left: capacity, in nats, that each link into a group has left; a group is entered when it is first
            met.
        supply: by group, what the target's contributions to it can still pay, in nats.

    Returns:
        The path; ``None`` where there is none.
    """
    start, unvisited = as_bits(problem.seen > 0), (1 << problem.kinds.group_count) - 1
    queue: deque[tuple[int, tuple[tuple[int, int], ...]]] = deque((g, ()) for g in groups_of_bits(start))
    unvisited &= ~start
    while queue and unvisited:
        group, path = queue.popleft()
        if len(path) + 1 >= len(problem.blocks):
            continue
        if group not in left:
            left[group] = [link.cost for link in links[group]]
        for number, (link, amount) in enumerate(zip(links[group], left[group], strict=True)):
            new = link.others & unvisited
            if not new or amount <= 0:
                continue
            unvisited &= ~new
            for other in groups_of_bits(new):
                extended = (*path, (group, number))
                if supply.get(other, 0.0) > 0:
                    return _Way(other, extended)
                queue.append((other, extended))
    return None
