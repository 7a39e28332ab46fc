"""Which releases to charge: the exposed set, and the cheapest one between flow and cut.

The exposed-set theorem (docs/accounting.md) lets us pretend that the observer sees any set O of releases, if
only O contains what it does see. Whatever is exposed costs what the target added to it, and 2c for every
*linking worker* in it: one that started from a hidden model the target's data had reached. Exposing
everything upstream (flow) leaves no linking workers; exposing nothing more (cut) leaves the most; a linking
worker costs four times a contribution, but only at merging steps.

*Prefixes are enough.* θ_m is a running sum: once one release of m that the target reached is hidden, every
later θ_m is unknown, so exposing later releases of m costs and determines nothing. And nothing but its first
step links a block to other groups. So O is one number of exposed blocks a group.

*The cheapest O is a minimum cut* of the graph whose nodes are the blocks upstream of what is seen. Put a node
on the source side if it is exposed, on the sink side if it is hidden; then

    arc                      capacity                                    cut, so paid, if
    node → sink              the target's own contributions in it        it is exposed
    node → link (→ inputs)   what one kind of linking workers adds (∞)   it is exposed, an input is hidden
    source → node            ∞                                           never: what is seen is exposed
    node → the block before  ∞                                           never: prefixes

MembershipClasses of linking workers that meet in one release add before squaring, (own + 2Σ)² ≥ own² + Σ
(…)², so the cut's value is a lower bound on the cost of every O, and it is the cost of the O found wherever
no two kinds
meet: always where no group has two kinds of workers that link it, where messages are met singly, and for
DP-OGL+. Then O is optimal, and `Exposed.certified` says so. Otherwise a few more cuts with dearer links and a
local search follow; the result is sound like every set, and never dearer than flow or cut. Graphs above
`EXACT_NODES` nodes are solved on a coarser time grid.

*Cost* is the Rényi divergence of order 2: it adds up, sampled releases included.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sfumato.privacy.groups.vector_clocks import Block, IntArray, MembershipClasses

EXACT_NODES = 4000
_COARSE_NODES = 200
_SEARCHED_GROUPS = 24
_INFINITE = 1_000_000_000
_FINITE_TOTAL = 500_000_000


class ChargedSum(NamedTuple):
    """A noised sum as it is charged: equal ones are counted.

    Attributes:
        group: whose sum.
        era: of which structure.
        own: whether the target contributes.
        linking: number of workers that started from a hidden model which the target's data had reached.
    """

    group: int
    era: int
    own: bool
    linking: int


Price: TypeAlias = Callable[[ChargedSum], float]


@dataclass(frozen=True, eq=False)
class ExposureProblem:
    """One target, and what one coalition sees.

    Attributes:
        kinds: of workers.
        blocks: of time.
        alike: `alike_until` of the blocks.
        unit: the target's kind.
        seen: number of blocks of every group whose releases the coalition sees.
        reach: number of blocks of every group upstream of those, the target being no link; at least ``seen``.
    """

    kinds: MembershipClasses
    blocks: tuple[Block, ...]
    alike: IntArray
    unit: int
    seen: IntArray
    reach: IntArray
    _moves: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def bridges(self) -> tuple[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]], ...]:
        """For every era, the kinds other than the target that are in several groups: incidence and size."""
        others = self.kinds.without(self.unit)
        out = []
        for incidence in self.kinds.incidence:
            several = (incidence.sum(axis=1) > 1) & (others > 0)
            out.append((incidence[several].astype(np.float64), others[several].astype(np.float64)))
        return tuple(out)

    def with_unit(self, era: int) -> npt.NDArray[np.bool_]:
        """Groups that the target is in."""
        inside: npt.NDArray[np.bool_] = self.kinds.incidence[era][self.unit]
        return inside

    def starts_from_hidden(self) -> Counter[tuple[int, int]]:
        """Under flow: in how many blocks of every group and era the target starts from hidden models.

        At a merging step it starts from the mean of all its groups' models; with one group, or in other
        steps, from the group's own, whose earlier releases are exposed with this one.
        """
        found: Counter[tuple[int, int]] = Counter()
        for number, block in enumerate(self.blocks):
            mine = np.flatnonzero(self.with_unit(block.era))
            if block.merges and len(mine) > 1 and (self.reach[mine] < number).any():
                found.update((int(group), block.era) for group in mine[self.reach[mine] > number])
        return found

    def charged(self, exposed: IntArray) -> Counter[ChargedSum]:
        """What exposing the first ``exposed[g]`` blocks of every group g has to be charged for.

        Follows, block by block, which hidden models the target's data have reached; once a block reaches no
        more of them, those like it do not either.
        """
        sums: Counter[ChargedSum] = Counter()
        tainted = np.zeros(self.kinds.group_count, dtype=np.bool_)
        stops = sorted(set(exposed.tolist()) - {0})
        number = 0
        for stop in stops:  # up to there the same groups are exposed
            open_now = exposed > number
            while number < stop:
                block = self.blocks[number]
                key = (block.era, block.merges, tainted.tobytes(), open_now.tobytes())
                if key not in self._moves:
                    self._moves[key] = self._move(block, tainted, open_now)
                rows, after = self._moves[key]
                settled = np.array_equal(after, tainted)
                times = min(stop, int(self.alike[number])) - number if settled else 1
                for row in rows:
                    sums[row] += times
                    if row.own and block.length > 1:
                        sums[row._replace(linking=0)] += times * (block.length - 1)
                tainted = after
                number += times
        return sums

    def _move(
        self, block: Block, tainted: npt.NDArray[np.bool_], open_now: npt.NDArray[np.bool_]
    ) -> tuple[list[ChargedSum], npt.NDArray[np.bool_]]:
        linking = np.zeros(len(tainted))
        if block.merges and tainted.any():
            incidence, size = self.bridges[block.era]
            linking = (size * ((incidence @ tainted) > 0)) @ incidence
        own = self.with_unit(block.era)
        rows = [
            ChargedSum(int(group), block.era, bool(own[group]), int(linking[group]))
            for group in np.flatnonzero(open_now & (own | (linking > 0)))
        ]
        return rows, ~open_now & (tainted | own | (linking > 0))


class Exposed(NamedTuple):
    """The first ``blocks[g]`` blocks of every group, their cost, and whether no exposed set is cheaper."""

    blocks: IntArray
    cost: float
    optimal: bool


def cost(scene: ExposureProblem, exposed: IntArray, price: Price) -> float:
    """Price of everything that exposing ``exposed`` charges."""
    return math.fsum(price(row) * count for row, count in scene.charged(exposed).items())


def cheapest(scene: ExposureProblem, price: Price, *, exact_nodes: int = EXACT_NODES) -> Exposed:
    """The cheapest exposed set known; never dearer than flow or cut."""
    flow, cut = cost(scene, scene.reach, price), cost(scene, scene.seen, price)
    best = Exposed(scene.reach, flow, flow == 0) if flow <= cut else Exposed(scene.seen, cut, cut == 0)
    if best.optimal or np.array_equal(scene.seen, scene.reach):
        return best._replace(optimal=True)
    if _flow_is_cheapest(scene, price):
        return Exposed(scene.reach, flow, True)
    fine = int((scene.reach > 0).sum()) * len(scene.blocks) <= exact_nodes
    cells = list(_cells(scene, fine))
    for dearer in (1.0, 2.0, 4.0) if fine else (1.0,):
        found, bound = _cut(scene, price, cells, dearer)
        if found is None:
            return best._replace(optimal=fine)
        spent = cost(scene, found, price)
        if spent < best.cost:
            best = Exposed(found, spent, False)
        if dearer == 1.0 and fine and best.cost <= bound * (1 + 1e-6):
            return best._replace(optimal=True)
    return _searched(scene, price, best)


def _flow_is_cheapest(scene: ExposureProblem, price: Price) -> bool:
    """Whether every link is as dear as all that the target contributes in a block.

    Then, in groups that never change, the cut's network carries all of the target's contributions at once:
    those of block b along a shortest way, over its links in the blocks b + 1, b + 2, ..., which those of no
    other block use.
    """
    eras = len(scene.kinds.incidence)
    own = np.flatnonzero(scene.with_unit(0))
    if eras > 1 or not len(own):
        return eras == 1
    alone = math.fsum(price(ChargedSum(int(group), 0, True, 0)) for group in own)
    longest = max((block.length for block in scene.blocks), default=0)
    groups = np.flatnonzero(scene.reach > 0)
    hidden = set(own.tolist())
    for group in map(int, groups):
        inside = group in hidden
        link = price(ChargedSum(group, 0, inside, 1)) - (
            price(ChargedSum(group, 0, True, 0)) if inside else 0.0
        )
        if not alone * longest <= link:
            return False
    return True


def _searched(scene: ExposureProblem, price: Price, best: Exposed) -> Exposed:
    """Local search: one group at a time exposed as far as it matters, or no more than is seen."""
    groups = np.flatnonzero(scene.reach > scene.seen)
    improved = len(groups) <= _SEARCHED_GROUPS
    while improved:
        improved = False
        for group in groups:
            for blocks in (scene.reach[group], scene.seen[group]):
                other = best.blocks.copy()
                other[group] = blocks
                spent = cost(scene, other, price)
                if spent < best.cost * (1 - 1e-12):
                    best, improved = Exposed(other, spent, False), True
    return best


def _cells(scene: ExposureProblem, fine: bool) -> Iterator[tuple[int, int]]:
    """Stretches of blocks, each within one era, that are exposed together."""
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
        self.nodes = 3  # 2 holds the flow below what 32 bits can count
        self.arcs: list[tuple[int, int, float]] = [(0, 2, 2.0 * _INFINITE)]

    def add(self, tail: int, head: int, capacity: float) -> None:
        self.arcs.append((tail, head, capacity))

    def node(self) -> int:
        self.nodes += 1
        return self.nodes - 1

    def source_side(self) -> tuple[npt.NDArray[np.bool_], float]:
        """Nodes on the source side of a minimum cut, and its value."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        tails, heads, values = (np.array(column) for column in zip(*self.arcs, strict=True))
        finite = np.isfinite(values)
        finite[0] = False
        scale = _FINITE_TOTAL / max(values[finite].sum(), 1e-9)
        capacity = np.full(len(values), _INFINITE, dtype=np.int32)
        capacity[finite] = np.rint(values[finite] * scale)
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


def _links(scene: ExposureProblem, price: Price, era: int) -> dict[int, list[tuple[float, set[int]]]]:
    """For every group, what each kind of linking workers adds to a sum of it, and their other groups.

    One entry for all kinds where any linking worker costs as much as all of them together.
    """
    incidence, size = scene.bridges[era]
    groups_of = [set(map(int, np.flatnonzero(row))) for row in incidence]
    kinds_of: dict[int, list[int]] = {}
    for kind, groups in enumerate(groups_of):
        for group in groups:
            kinds_of.setdefault(group, []).append(kind)
    out: dict[int, list[tuple[float, set[int]]]] = {}
    for group, kinds in kinds_of.items():
        own = bool(scene.with_unit(era)[group])
        alone = price(ChargedSum(group, era, True, 0)) if own else 0.0

        def extra(linking: float, group: int = group, own: bool = own, alone: float = alone) -> float:
            return price(ChargedSum(group, era, own, int(linking))) - alone if math.isfinite(alone) else 0.0

        if extra(1) == extra(size[kinds].sum()):
            out[group] = [(extra(1), set().union(*(groups_of[kind] for kind in kinds)) - {group})]
        else:
            out[group] = [(extra(size[kind]), groups_of[kind] - {group}) for kind in kinds]
    return out


def _cut(
    scene: ExposureProblem, price: Price, cells: list[tuple[int, int]], dearer: float
) -> tuple[IntArray | None, float]:
    """The exposed set of a minimum cut, links ``dearer`` times as dear; none if all cuts are infinite."""
    graph = _Graph()
    groups = np.flatnonzero(scene.reach > 0)
    links: dict[int, dict[int, list[tuple[float, set[int]]]]] = {}
    starts = np.array([start for start, _ in cells])
    last = {int(g): int(np.searchsorted(starts, scene.reach[g], side="left")) - 1 for g in groups}
    node = {(g, cell): graph.node() for g in last for cell in range(last[g] + 1)}
    merging = np.concatenate([[0], np.cumsum([block.merges for block in scene.blocks])])
    steps = np.concatenate([[0], np.cumsum([block.length for block in scene.blocks])])
    for (group, cell), here in node.items():
        start, stop = cells[cell]
        stop = min(stop, int(scene.reach[group]))
        era = scene.blocks[start].era
        if scene.with_unit(era)[group]:
            graph.add(here, 1, price(ChargedSum(group, era, True, 0)) * float(steps[stop] - steps[start]))
        if scene.seen[group] > start:
            graph.add(2, here, math.inf)
        if cell:
            graph.add(here, node[group, cell - 1], math.inf)
        times = float(merging[stop] - merging[start])
        before = cell - 1 if stop - start == 1 and cells[cell][1] - start == 1 else cell
        if not times or before < 0:
            continue
        if era not in links:
            links[era] = _links(scene, price, era)
        for extra, others in links[era].get(group, ()):
            link = graph.node()
            graph.add(here, link, extra * times * dearer)
            for other in others:
                if other in last:
                    graph.add(link, node[other, min(before, last[other])], math.inf)
    side, value = graph.source_side()
    if math.isinf(value):
        return None, value
    exposed = scene.seen.copy()
    for (group, cell), here in node.items():
        if side[here]:
            exposed[group] = max(exposed[group], min(cells[cell][1], int(scene.reach[group])))
    return exposed, value
