"""A lower bound on the cost of every exposed set, for any number of blocks, without looking at sets.

The value of a minimum cut (`minimum_cut`) is at least that of any flow from the target's contributions, over
links, to the groups that are seen. In groups that never change all blocks are alike, so a flow can be
repeated: a way of n links from a seen group to a group of the target's, and an amount that all its links can
carry in a block beside what other ways carry. The contributions of block b then pass the i-th link in block
b + i, so the way is used by B - n of the B blocks, and each link carries the same amount in every block. This
is the flow over time of Ford and Fulkerson (1958). Shortest ways are filled first; no flow is ever taken
back, so the bound may be below the minimum cut. Contributions to groups that are seen are paid in any case.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from sfumato.privacy.groups.exposure_problem import ChargedSum, ExposureProblem, Price
from sfumato.privacy.groups.minimum_cut import links_of


class _Way(NamedTuple):
    """From a seen group to a group of the target's: that group, and the links, each a group and a number."""

    source: int
    links: tuple[tuple[int, int], ...]


def least_cost(scene: ExposureProblem, price: Price) -> float:
    """What every exposed set costs at least."""
    paid = _paid_in_any_case(scene, price)
    if len(scene.kinds.incidence) > 1 or not scene.blocks or not scene.links_add_up:
        return paid
    links = links_of(scene, price, 0)
    left = {(group, number): link[0] for group, some in links.items() for number, link in enumerate(some)}
    supply = {
        group: scene.blocks[0].length * price(ChargedSum(group, 0, True, 0))
        for group in np.flatnonzero(scene.with_unit(0) & (scene.seen == 0)).tolist()
    }
    while (way := _shortest(scene, links, left, supply)) is not None:
        amount = min(supply[way.source], *(left[link] for link in way.links))
        if math.isinf(amount):
            return math.inf
        paid += amount * (len(scene.blocks) - len(way.links))
        supply[way.source] -= amount
        for link in way.links:
            left[link] -= amount
    return paid


def _paid_in_any_case(scene: ExposureProblem, price: Price) -> float:
    """What the target's contributions to what is seen cost."""
    paid, first = 0.0, 0
    for era, blocks in groupby(scene.blocks, key=attrgetter("era")):
        steps = np.cumsum([0, *(block.length for block in blocks)])
        seen = steps[np.clip(scene.seen - first, 0, len(steps) - 1)]
        for group in np.flatnonzero(scene.with_unit(era) & (seen > 0)).tolist():
            paid += int(seen[group]) * price(ChargedSum(group, era, True, 0))
        first += len(steps) - 1
    return paid


def _shortest(
    scene: ExposureProblem,
    links: dict[int, list[tuple[float, set[int]]]],
    left: dict[tuple[int, int], float],
    supply: dict[int, float],
) -> _Way | None:
    """A shortest way, of fewer links than there are blocks, that can carry more to a group with supply."""
    start = np.flatnonzero(scene.seen > 0).tolist()
    ways: dict[int, tuple[tuple[int, int], ...]] = dict.fromkeys(start, ())
    queue = deque(start)
    while queue:
        group = queue.popleft()
        if supply.get(group, 0.0) > 0:
            return _Way(group, ways[group])
        if len(ways[group]) + 1 >= len(scene.blocks):
            continue
        for number, (_, others) in enumerate(links.get(group, ())):
            if left[group, number] > 0:
                for other in sorted(others - ways.keys()):
                    ways[other] = (*ways[group], (group, number))
                    queue.append(other)
    return None
