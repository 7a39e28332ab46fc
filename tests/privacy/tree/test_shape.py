"""The one shape of trees, against a walk over plain lists of children."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sfumato.network.tree import Tree, balanced
from sfumato.privacy.tree.facts import TreeFacts
from sfumato.privacy.tree.shape import TreeShape


@st.composite
def fan_outs(draw):
    """Children of every node, tier by tier; the last tier's are devices."""
    found, size = [], 1
    for _ in range(draw(st.integers(1, 4))):
        found.append(draw(st.lists(st.integers(1, 3 if size < 6 else 1), min_size=size, max_size=size)))
        size = sum(found[-1])
    return found


@given(fan_outs())
def test_a_walk_over_lists_finds_the_same(fan_out):
    numbers = [0] * len(fan_out)
    paths, devices, first, under = [], [], [], {}

    def walk(tier, path):
        numbers[tier] += 1
        here = path[-1]
        if tier == len(fan_out) - 1:
            paths.append(path)
            first.append(len(devices))
            devices.extend([here] * fan_out[tier][here])
            return
        under[tier, here] = [numbers[tier + 1] + child for child in range(fan_out[tier][here])]
        for child in under[tier, here]:
            walk(tier + 1, (*path, child))

    walk(0, (0,))
    parents = [[-1], *(np.repeat(np.arange(len(counts)), counts).tolist() for counts in fan_out[:-1])]
    shape = TreeShape(tuple(np.array(p) for p in parents), np.array(fan_out[-1]))
    assert shape.depth == len(fan_out)
    assert shape.paths.tolist() == [list(path) for path in paths]
    assert [counts.tolist() for counts in shape.children] == fan_out
    assert shape.first_device.tolist() == [*first, len(devices)]
    assert (shape.leaf_count, shape.device_count) == (len(first), len(devices))
    assert [shape.leaf_of(d) for d in range(len(devices))] == devices
    assert shape.leaves_of(np.arange(len(devices))).tolist() == devices
    for (tier, node), children in under.items():
        start, stop = shape.first_child[tier][node : node + 2]
        assert list(range(start, stop)) == children
    for leaf, path in enumerate(paths):
        for tier in range(len(fan_out)):
            assert shape.ancestor(len(fan_out) - 1, leaf, tier) == path[tier]


def test_the_network_and_the_facts_have_that_shape():
    assert issubclass(Tree, TreeShape)
    assert issubclass(TreeFacts, TreeShape)
    assert balanced((2, 3, 4), ("region", "edge")).ancestor(2, 5, 1) == 1


def test_a_tree_of_many_leaves_knows_them_by_arithmetic():
    tree = balanced((1000, 1000), ("edge",))
    assert tree.device_count == 1_000_000
    assert tree.leaf_of(999_999) == 999
