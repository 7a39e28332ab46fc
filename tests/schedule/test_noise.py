"""Placement by trust (docs/concepts.md), what a node's noise is relative to, plans by names of owners."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SpecError
from sfumato.network.tree import Tier, Tree, balanced
from sfumato.privacy.charges import bound_epsilon
from sfumato.privacy.observers import Party
from sfumato.privacy.tree.facts import AggregationFacts
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.schedule.noise.placement import (
    NoisePlan,
    from_sources,
    place_by_trust,
    raw_sensitivity,
    to_sources,
)
from sfumato.spec.privacy import NoiseBySource, SourceNoise

SOME = settings(max_examples=150, deadline=None, derandomize=True)


@st.composite
def trees(draw):
    """One to four tiers, trust anywhere."""
    depth, tiers, above, size = draw(st.integers(1, 4)), [], [], 1
    for tier in range(depth):
        parents = np.array([-1])
        if tier:
            counts = draw(st.lists(st.integers(1, 3 if size < 5 else 1), min_size=size, max_size=size))
            parents = np.repeat(np.arange(size), counts)
        size = len(parents)
        trusted = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
        above.append(parents)
        tiers.append(Tier(("cloud", "region", "cabinet", "edge")[tier], trusted))
    devices = draw(st.lists(st.integers(1, 3), min_size=size, max_size=size))
    return Tree(tuple(above), np.array(devices), tuple(tiers))


def trusting(fan_out, names, *trusted):
    """A balanced tree in which the parties named are trusted."""
    tree = balanced(fan_out, names)
    for name in trusted:
        tier, index = tree.find_node(name, place="test")
        tree.tiers[tier].trusted[index] = True
    return tree


def noiser(tree, leaf, aggregating):
    """Walks up from a device: ``"device"``, or the tier of the node above it that adds noise."""
    last = "device"
    for tier in range(tree.depth - 1, aggregating - 1, -1):
        if not tree.tiers[tier].trusted[tree.paths[leaf, tier]]:
            return last
        last = tier
    return aggregating


@SOME
@given(trees())
def test_the_last_trusted_party_before_the_first_untrusted_one_adds_the_noise(tree):
    multipliers = [float(2 + tier) for tier in range(tree.depth)]
    plan = place_by_trust(tree, multipliers)
    device = np.zeros((tree.leaf_count, tree.depth))
    node = [np.zeros((tier.size, tree.depth)) for tier in tree.tiers]
    for leaf in range(tree.leaf_count):
        for aggregating in range(tree.depth):
            who = noiser(tree, leaf, aggregating)
            if who == "device":
                device[leaf, aggregating] = multipliers[aggregating]
            else:
                node[who][tree.paths[leaf, who], aggregating] = multipliers[aggregating]
    np.testing.assert_array_equal(plan.device, device)
    for mine, wanted in zip(plan.node, node, strict=True):
        np.testing.assert_array_equal(mine, wanted)


def facts_of(tree, plan, tiers):
    """Aggregations by ``tiers`` with messages of bound 1, as `tree_releases` makes them."""
    steps = []
    for number, tier in enumerate(tiers):
        message = 1.0 / tree.devices
        node = tuple(
            plan.node[t][:, tier] * raw_sensitivity(tree, plan, t, tier, message)
            if t >= tier
            else np.zeros(tree.tiers[t].size)
            for t in range(tree.depth)
        )
        one = np.ones(tree.leaf_count)
        steps.append(AggregationFacts(str(number), tier, one, plan.device[:, tier], node, one < 0))
    return TreeReleases(
        tree.parents,
        tree.devices,
        tuple(t.name for t in tree.tiers),
        tree.devices.astype(float),
        "all",
        1.0,
        tree.depth - 1,
        tuple(steps),
        1,
    )


@SOME
@given(trees(), st.data())
def test_with_trust_placement_nobody_untrusted_is_unprotected_from(tree, data):
    """Raw sums reach trusted aggregators above the unit, and nobody else: no device, no public, no stranger.

    In what reaches one above a trusted leaf the noise of devices under an untrusted one may protect the rest.
    """
    plan = place_by_trust(tree, [1.0] * tree.depth)
    tiers = data.draw(st.lists(st.integers(1, tree.depth - 1), max_size=3)) if tree.depth > 1 else []
    declared = facts_of(tree, plan, [*tiers, 0])
    for pair in declared.pair_classes():
        bounds = [
            bound_epsilon(e, delta=1e-5, neighbours="zero-out")
            for e in declared.exposures(pair.unit, [pair.observer])
        ]
        path = tree.paths[tree.leaf_of(pair.unit)]
        party = pair.observer
        raw = (
            party.kind == "node"
            and path[party.tier] == party.index
            and all(tree.tiers[t].trusted[path[t]] for t in range(party.tier, tree.depth))
        )
        unprotected = math.isinf(min(b.epsilon for b in bounds))
        assert raw or not unprotected
        assert unprotected or not raw or party.tier < tree.depth - 1


@SOME
@given(trees(), st.data())
def test_sensitivity_counts_what_is_still_raw_or_all_of_it(tree, data):
    levels = st.sampled_from((0.0, 1.0))
    device = np.array(data.draw(st.lists(levels, min_size=tree.leaf_count, max_size=tree.leaf_count)))
    node = [np.array(data.draw(st.lists(levels, min_size=t.size, max_size=t.size))) for t in tree.tiers]
    plan = NoisePlan(
        np.repeat(device[:, None], tree.depth, axis=1),
        tuple(np.repeat(n[:, None], tree.depth, axis=1) for n in node),
    )
    message = 1.0 / tree.devices
    for tier in range(tree.depth):
        found = raw_sensitivity(tree, plan, tier, 0, message)
        for index in range(tree.tiers[tier].size):
            raw, everything = [0.0], [0.0]
            for leaf in np.flatnonzero(tree.paths[:, tier] == index):
                path = tree.paths[leaf]
                weight = message[leaf]
                for t in range(tier, tree.depth - 1):
                    weight /= np.count_nonzero(tree.parents[t + 1] == path[t])
                everything.append(weight)
                if not device[leaf] and not any(node[t][path[t]] for t in range(tier + 1, tree.depth)):
                    raw.append(weight)
            assert found[index] == pytest.approx(max(raw) or max(everything))


def test_three_tiers_by_hand():
    """three-tier.yaml: region 0 adds noise for the devices of its trusted cabinet, relative to 1/12 each."""
    tree = trusting([2, 3, 4], ["region", "cabinet"], "region:0", "cabinet:1")
    plan = place_by_trust(tree, [1.0, 1.0, 1.0])
    assert plan.device.any(axis=1).tolist() == [True, False, True, True, True, True]
    assert plan.node[2].tolist() == [[0, 0, 0], [0, 0, 1], *[[0, 0, 0]] * 4]  # only for its own aggregation
    assert plan.node[1].tolist() == [[1, 1, 0], [0, 0, 0]]
    assert not plan.node[0].any()
    message = np.full(6, 1 / 4)
    assert raw_sensitivity(tree, plan, 1, 0, message)[0] == pytest.approx(1 / 12)
    assert raw_sensitivity(tree, plan, 2, 2, message)[1] == pytest.approx(1 / 4)


def test_a_trusted_cloud_noises_for_those_whose_every_ancestor_is_trusted():
    tree = trusting([2, 4], ["edge"], "cloud", "edge:0")
    plan = place_by_trust(tree, [1.0, 2.0])
    assert plan.node[0].tolist() == [[1, 0]]
    assert plan.node[1].tolist() == [[0, 2], [0, 0]]
    assert plan.device.tolist() == [[0, 0], [1, 2]]


@SOME
@given(trees(), st.data())
def test_sources_say_what_the_plan_says(tree, data):
    row = st.lists(st.sampled_from((0.0, 0.5, 1.25)), min_size=tree.depth, max_size=tree.depth)
    table = lambda n: np.array(data.draw(st.lists(row, min_size=n, max_size=n)))  # noqa: E731
    plan = NoisePlan(table(tree.leaf_count), tuple(table(t.size) for t in tree.tiers))
    sources = to_sources(tree, plan)
    if not sources:
        assert not plan.device.any()
        return
    again = from_sources(tree, NoiseBySource(sources=sources))
    np.testing.assert_array_equal(again.device, plan.device)
    for mine, wanted in zip(again.node, plan.node, strict=True):
        np.testing.assert_array_equal(mine, wanted)
    owners = [owner for source in sources for owner in source.owners]
    assert len(owners) == len(set(owners))


@pytest.mark.parametrize(
    ("owners", "multipliers", "place", "message"),
    [
        (["edge:2"], [1.0, 1.0], "privacy.noise.sources[1].owners", "edge:0 to edge:1"),
        (["edge:0"], [1.0], "privacy.noise.sources[1].multipliers", "must list 2"),
        (["edge:1", "edge:1"], [1.0, 1.0], "privacy.noise.sources[1].owners", "named once"),
        (["cloud"], [1.0, 1.0], "privacy.noise.sources[1].owners", "named once"),
        (["cloud/devices"], [1.0, 1.0], "privacy.noise.sources[1].owners", "edge:0/devices"),
        (["edge:0/clients"], [1.0, 1.0], "privacy.noise.sources[1].owners", "edge:0/devices"),
        (["public"], [1.0, 1.0], "privacy.noise.sources[1].owners", "there are cloud"),
    ],
)
def test_wrong_sources_are_refused_in_their_place(owners, multipliers, place, message):
    first = SourceNoise(owners=("cloud",), multipliers=(1.0, 1.0))
    wrong = SourceNoise(owners=tuple(owners), multipliers=tuple(multipliers))
    with pytest.raises(SpecError, match=message) as caught:
        from_sources(balanced([2, 3], ["edge"]), NoiseBySource(sources=(first, wrong)))
    assert caught.value.place == place


def test_factors_reach_their_own_source_only():
    tree = trusting([2, 4], ["edge"], "edge:0")
    plan = place_by_trust(tree, [1.0, 2.0])
    scaled = plan.scaled(np.array([5.0, 3.0]), [np.array([7.0]), np.array([2.0, 11.0])])
    assert scaled.device.tolist() == [[0, 0], [3, 6]]
    assert scaled.node[1].tolist() == [[2, 4], [0, 0]]
    assert plan.device.tolist() == [[0, 0], [1, 2]]


def test_nobody_but_the_unit_is_needed_for_its_own_protection():
    """Under an untrusted leaf everybody else may conspire, whatever the depth."""
    tree = balanced([2, 2, 2], ["region", "edge"])
    declared = facts_of(tree, place_by_trust(tree, [1.0] * 3), [2, 1, 0])
    others = [Party("node", t, i) for t in range(3) for i in range(tree.tiers[t].size)]
    others += [Party("device", 0, j) for j in range(1, 8)]
    flow, _ = declared.exposures(0, others)
    assert [(r.own_sensitivity, r.variance) for r in flow.releases] == [(1.0, 1.0)] * 3
