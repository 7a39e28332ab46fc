"""Which releases to charge: the exposed set, and the cheapest one between flow and cut.

The exposed-set theorem (docs/accounting.md) lets us pretend that the observer sees any set O of releases, if
only O contains what it does see. Whatever is exposed costs what the target added to it, and 2c for every
*linking worker* in it: one that started from a hidden model the target's data had reached. Exposing
everything upstream (flow) leaves no linking workers; exposing nothing more (cut) leaves the most; a linking
worker costs four times a contribution, but only at merging steps.

First a lower bound is computed (`flow_over_time`): often flow or cut costs no more. All sets are compared
where they are few enough (`prefix_search`). Otherwise the set is the cheapest of those found from several
starts: flow, cut, minimum cuts with dearer and dearer links (`minimum_cut`), and a local search from the best
of them. It is sound like every set, never dearer than flow or cut, and `Exposed.least` says what every set
costs at least. Problems of more than `EXACT_NODES` groups times blocks are cut on a coarser time grid only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sfumato.privacy.exposed_sets import gap
from sfumato.privacy.groups.exposure_problem import ExposureProblem, Price, cost
from sfumato.privacy.groups.flow_over_time import least_cost
from sfumato.privacy.groups.minimum_cut import cells_of, minimum_cut
from sfumato.privacy.groups.prefix_search import SearchResult, search
from sfumato.privacy.groups.vector_clocks import IntArray

EXACT_NODES = 4000
_SEARCHED_GROUPS = 24


class Exposed(NamedTuple):
    """The first ``blocks[g]`` blocks of every group, what they cost, and what any set costs at least."""

    blocks: IntArray
    cost: float
    least: float

    @property
    def optimal(self) -> bool:
        """Whether no exposed set is cheaper."""
        return self.gap == 1.0

    @property
    def gap(self) -> float:
        """How many times what the cheapest set costs this one costs at most; 1 if none is cheaper."""
        return gap(self.cost, self.least)


def cheapest(scene: ExposureProblem, price: Price, *, exact_nodes: int = EXACT_NODES) -> Exposed:
    """The cheapest exposed set known; never dearer than flow or cut."""
    best = flow_or_cut(scene, price)
    if best.optimal:
        return best
    fine = int((scene.reach > 0).sum()) * len(scene.blocks) <= exact_nodes
    found = search(scene, price, best.cost) if fine else SearchResult(None, False)
    best = _cheaper(scene, price, best, found.blocks)
    if found.certain:
        return best._replace(least=best.cost)
    cells = list(cells_of(scene, fine))
    for dearer in (1.0, 2.0, 4.0) if fine else (1.0,):
        cut, bound = minimum_cut(scene, price, cells, dearer)
        if cut is None:
            return best._replace(least=best.cost if fine else best.least)
        best = _cheaper(scene, price, best, cut)
        if dearer == 1.0 and fine and scene.links_add_up:
            best = best._replace(least=max(best.least, bound))
        if best.optimal:
            return best
    return _searched(scene, price, best)


def flow_or_cut(scene: ExposureProblem, price: Price) -> Exposed:
    """The cheaper one of flow and cut."""
    flow, cut = cost(scene, scene.reach, price), cost(scene, scene.seen, price)
    blocks, spent = (scene.reach, flow) if flow <= cut else (scene.seen, cut)
    only = spent == 0 or np.array_equal(scene.seen, scene.reach)
    return Exposed(blocks, spent, spent if only else least_cost(scene, price))


def _cheaper(scene: ExposureProblem, price: Price, best: Exposed, blocks: IntArray | None) -> Exposed:
    """``best``, or the set ``blocks`` if it costs less."""
    spent = math.inf if blocks is None else cost(scene, blocks, price)
    return best._replace(blocks=blocks, cost=spent) if blocks is not None and spent < best.cost else best


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
                    best, improved = best._replace(blocks=other, cost=spent), True
    return best
