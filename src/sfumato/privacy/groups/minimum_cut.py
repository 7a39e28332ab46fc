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


def cells_of(scene: ExposureProblem, fine: bool) -> Iterator[tuple[int, int]]:
    """Yield stretches of blocks of ``scene``, each within one era, whose blocks a cut exposes together.

    ``fine``: every block is one; otherwise they are so long that the graph has about 200 nodes.

    Yields:
        The number of a stretch's first block, and that of its last plus 1.
    """
    total = len(scene.blocks)
    length = 1
    if not fine:
        active = max(1, int((scene.reach > 0).sum()))
        length = -(-total // max(1, _COARSE_NODES // active))
    start = 0
    while start < total:
        stop = start + 1
        while stop < min(total, start + length) and scene.blocks[stop].era == scene.blocks[start].era:
            stop += 1
        yield start, stop
        start = stop


class _Graph:
    """Arcs of a flow network, from node 0 to node 1."""

    def __init__(self) -> None:
        """Start a graph with source 0 and sink 1."""
        self.nodes = 3  # 2 holds the flow below what 32 bits can count
        self.arcs: list[tuple[int, int, float]] = [(0, 2, 2.0 * _INFINITE)]

    def add_arc(self, tail: int, head: int, capacity: float) -> None:
        """Add an arc from node ``tail`` to node ``head``; ``capacity`` may be infinite."""
        self.arcs.append((tail, head, capacity))

    def add_node(self) -> int:
        """Add a node, and return its number."""
        self.nodes += 1
        return self.nodes - 1

    def source_side(self) -> tuple[npt.NDArray[np.bool_], float]:
        """A minimum cut between nodes 0 and 1: mask of the nodes on the source side, and the cut's value.

        The value is rounded down, so it stays a lower bound; ∞ where every cut is infinite.
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        tails, heads, values = (np.array(column) for column in zip(*self.arcs, strict=True))
        finite = np.isfinite(values)
        finite[0] = False
        scale = _FINITE_TOTAL / max(values[finite].sum(), 1e-9)
        capacity = np.full(len(values), _INFINITE, dtype=np.int32)
        capacity[finite] = np.floor(values[finite] * scale)
        capacity[0] = 2 * _INFINITE
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

    def __init__(self, scene: ExposureProblem, price: Price, era: int) -> None:
        """Set up an empty table of the links in era number ``era``; ``price``: Rényi divergence of
        order 2 of a sum.
        """
        super().__init__()
        self._scene, self._price, self._era = scene, price, era

    def __missing__(self, group: int) -> list[Link]:
        """Find the links into group number ``group``, a list that is kept under it."""
        self[group] = found = self._into(group)
        return found

    def _into(self, group: int) -> list[Link]:
        """List the links into ``group``: what each kind of linking workers adds to the price of its sum.

        One entry with the groups of all kinds where one linking worker costs as much as all together. Empty
        where no worker of the group is in another one; a cost is 0 where the sum costs ∞ without them.
        """
        kinds = self._scene.bridges[self._era].into.get(group)
        if not kinds:
            return []
        own = bool(self._scene.with_unit(self._era)[group])
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
    scene: ExposureProblem, price: Price, cells: list[tuple[int, int]], dearer: float
) -> tuple[IntArray | None, float]:
    """The exposed set of a minimum cut, and the value of the cut.

    Args:
        scene: the target and what the coalition sees.
        price: Rényi divergence of order 2 of one charged sum.
        cells: stretches of blocks that are exposed together, from `cells_of`.
        dearer: factor on the capacity of links; with 1 the value bounds the cost of every set from below.

    Returns:
        The number of exposed blocks of every group, int64 ``[groups]``, or ``None`` if all cuts are infinite;
        and the value of the cut, ∞ then.
    """
    graph = _Graph()
    groups = np.flatnonzero(scene.reach > 0)
    links: dict[int, LinksInto] = {}
    starts = np.array([start for start, _ in cells])
    last = {int(g): int(np.searchsorted(starts, scene.reach[g], side="left")) - 1 for g in groups}
    node = {(g, cell): graph.add_node() for g in last for cell in range(last[g] + 1)}
    merging = np.concatenate([[0], np.cumsum([block.merges for block in scene.blocks])])
    steps = np.concatenate([[0], np.cumsum([block.length for block in scene.blocks])])
    for (group, cell), here in node.items():
        start, stop = cells[cell]
        stop = min(stop, int(scene.reach[group]))
        era = scene.blocks[start].era
        if scene.with_unit(era)[group]:
            graph.add_arc(here, 1, price(ChargedSum(group, era, True, 0)) * float(steps[stop] - steps[start]))
        if scene.seen[group] > start:
            graph.add_arc(2, here, math.inf)
        if cell:
            graph.add_arc(here, node[group, cell - 1], math.inf)
        times = float(merging[stop] - merging[start])
        before = cell - 1 if stop - start == 1 and cells[cell][1] - start == 1 else cell
        if not times or before < 0:
            continue
        if era not in links:
            links[era] = LinksInto(scene, price, era)
        for extra, others in links[era][group]:
            link = graph.add_node()
            graph.add_arc(here, link, extra * times * dearer)
            for other in groups_of_bits(others):
                if other in last:
                    graph.add_arc(link, node[other, min(before, last[other])], math.inf)
    side, value = graph.source_side()
    if math.isinf(value):
        return None, value
    exposed = scene.seen.copy()
    for (group, cell), here in node.items():
        if side[here]:
            exposed[group] = max(exposed[group], min(cells[cell][1], int(scene.reach[group])))
    return exposed, value


class _Way(NamedTuple):
    """From a seen group to a group of the target's: that group, and the links, each a group and a number."""

    source: int
    links: tuple[tuple[int, int], ...]


def least_cost_of_any_set(scene: ExposureProblem, price: Price) -> float:
    """A lower bound on the cost of every exposed set, by a repeated flow (see the module).

    Args:
        scene: the target and what the coalition sees.
        price: Rényi divergence of order 2 of one charged sum.

    Returns:
        The bound; ∞ only where every set costs ∞. Where groups change, or links do not add up, only what the
        target contributes to releases that are seen.
    """
    paid = _paid_in_any_case(scene, price)
    if len(scene.kinds.incidence) > 1 or not scene.blocks or not scene.links_add_up:
        return paid
    links, left = LinksInto(scene, price, 0), dict[int, list[float]]()
    supply = {
        group: scene.blocks[0].length * price(ChargedSum(group, 0, True, 0))
        for group in np.flatnonzero(scene.with_unit(0) & (scene.seen == 0)).tolist()
    }
    while (way := _shortest_way(scene, links, left, supply)) is not None:
        amount = min(supply[way.source], *(left[group][number] for group, number in way.links))
        if math.isinf(amount):
            return math.inf
        paid += amount * (len(scene.blocks) - len(way.links))
        supply[way.source] -= amount
        for group, number in way.links:
            left[group][number] -= amount
    return paid


def _paid_in_any_case(scene: ExposureProblem, price: Price) -> float:
    """Price of the target's own contributions to releases that the coalition sees; in every set."""
    paid, first = 0.0, 0
    for era, blocks in groupby(scene.blocks, key=attrgetter("era")):
        steps = np.cumsum([0, *(block.length for block in blocks)])
        seen = steps[np.clip(scene.seen - first, 0, len(steps) - 1)]
        for group in np.flatnonzero(scene.with_unit(era) & (seen > 0)).tolist():
            paid += int(seen[group]) * price(ChargedSum(group, era, True, 0))
        first += len(steps) - 1
    return paid


def _shortest_way(
    scene: ExposureProblem, links: LinksInto, left: dict[int, list[float]], supply: dict[int, float]
) -> _Way | None:
    """Find a shortest way, of fewer links than there are blocks, that can carry more to a group with supply.

    Args:
        scene: the target and what the coalition sees.
        links: the links into every group.
        left: what each link into a group can still carry; groups met for the first time are entered.
        supply: by group, what the target's contributions to it can still pay.

    Returns:
        The way; ``None`` where there is none.
    """
    start, unmet = as_bits(scene.seen > 0), (1 << scene.kinds.group_count) - 1
    queue: deque[tuple[int, tuple[tuple[int, int], ...]]] = deque((g, ()) for g in groups_of_bits(start))
    unmet &= ~start
    while queue and unmet:
        group, way = queue.popleft()
        if len(way) + 1 >= len(scene.blocks):
            continue
        if group not in left:
            left[group] = [link.cost for link in links[group]]
        for number, (link, amount) in enumerate(zip(links[group], left[group], strict=True)):
            new = link.others & unmet
            if not new or amount <= 0:
                continue
            unmet &= ~new
            for other in groups_of_bits(new):
                longer = (*way, (group, number))
                if supply.get(other, 0.0) > 0:
                    return _Way(other, longer)
                queue.append((other, longer))
    return None
