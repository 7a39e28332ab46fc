"""The noise sources of a tree: classes of interchangeable parties.

Where the spec names nobody who adds noise, trusted aggregators further up may add noise as well
(`extra_sources`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

import numpy as np
import numpy.typing as npt

from sfumato.planning.sources import NoiseSource
from sfumato.privacy.observers import Party
from sfumato.schedule.tree import TreePlan
from sfumato.spec.privacy import NoiseBySource

IntArray = npt.NDArray[np.int64]


def sources_of(plan: TreePlan, named: frozenset[Party]) -> tuple[NoiseSource, ...]:
    """The sources that add noise in ``plan``, by classes of interchangeable parties.

    Args:
        plan: resolved, with equal multipliers.
        named: parties that a target names; each of them is a class of its own.
    """
    noise = plan.spec.privacy.noise
    assert isinstance(noise, NoiseBySource)  # a resolved spec with noise lists its sources
    classes = _exchangeable_classes(plan, named)
    alike: defaultdict[tuple[Hashable, str, int], list[str]] = defaultdict(list)
    for row in noise.sources:
        for owner in row.owners:
            name, _, what = owner.partition("/")
            tier, index = plan.tree.find_node(name, place="privacy.noise.sources")
            for level in np.flatnonzero(row.multipliers):
                alike[(tier, int(classes[tier][index])), what, int(level)].append(owner)
    return tuple(NoiseSource(tuple(owners), level) for (_, _, level), owners in alike.items())


def extra_sources(plan: TreePlan, named: frozenset[Party]) -> tuple[NoiseSource, ...]:
    """Sources that add no noise in ``plan`` and could: trusted aggregators at further levels."""
    there = {(owner, s.level) for s in sources_of(plan, named) for owner in s.owners}
    classes = _exchangeable_classes(plan, named)
    alike: defaultdict[tuple[int, int, int], list[str]] = defaultdict(list)
    for tier, nodes in enumerate(plan.tree.tiers):
        for index in np.flatnonzero(nodes.trusted):
            owner = plan.tree.node_name(tier, int(index))
            for level in range(tier + 1):
                if (owner, level) not in there:
                    alike[tier, int(classes[tier][index]), level].append(owner)
    return tuple(NoiseSource(tuple(owners), level) for (_, _, level), owners in alike.items())


def _exchangeable_classes(plan: TreePlan, named: frozenset[Party]) -> tuple[IntArray, ...]:
    """A class number for every node, by tier: equal only if a symmetry fixing ``named`` exchanges them.

    Where devices move or trust changes, no two edges are taken as alike.
    """
    tree = plan.tree
    orbits = np.arange(tree.leaf_count) if plan.eras else plan.ledger.leaf_classes
    numbers: dict[Hashable, int] = {}

    def number(key: Hashable) -> int:
        return numbers.setdefault(key, len(numbers))

    devices = {tree.leaf_of(p.index) for p in named if p.kind == "device"}
    nodes = {(p.tier, p.index) for p in named if p.kind == "node"}

    def colour(tier: int, index: int, below: Hashable) -> int:
        mark = index if (tier, index) in nodes else -1
        return number((tier, bool(tree.tiers[tier].trusted[index]), mark, below))

    last = tree.depth - 1
    below = [
        colour(last, leaf, (int(orbit), leaf if leaf in devices else -1)) for leaf, orbit in enumerate(orbits)
    ]
    subtrees = [below]
    for tier in range(last - 1, -1, -1):
        children: list[list[int]] = [[] for _ in range(tree.tiers[tier].size)]
        for child, parent in enumerate(tree.parents[tier + 1]):
            children[int(parent)].append(below[child])
        below = [colour(tier, index, tuple(sorted(each))) for index, each in enumerate(children)]
        subtrees.append(below)
    found: list[IntArray] = []
    for tier, own in enumerate(subtrees[::-1]):
        above = found[-1][tree.parents[tier]] if tier else np.zeros(1, dtype=np.int64)
        found.append(np.array([number(("path", int(a), c)) for a, c in zip(above, own, strict=True)]))
    return tuple(found)
