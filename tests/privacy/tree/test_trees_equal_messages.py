"""What trees compute for themselves, to be fast, is what their graph of messages gives."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from equal_exposures import assert_equal
from hypothesis import given, settings
from hypothesis import strategies as st
from message_graph.audience import Coalition
from message_graph.trees import TreeAsMessages, messages_of_tree
from oracle_random_trees import random_pair, random_tree
from random_tree_facts import coalitions, ledgers, mixed_ledgers
from slow import first_quick

from sfumato.errors import SpecError
from sfumato.privacy.observers import Party
from sfumato.privacy.release import total_mu_squared
from sfumato.privacy.tree.elections import flow_and_cut_with_elections
from sfumato.schedule.resolve import resolve
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.spec.load import load_spec


def both_ways(declared, unit, coalition):
    """The exposures of a pair, computed fast, and from a graph of messages."""
    members, graph = tuple(dict.fromkeys(coalition)), TreeAsMessages(declared)
    fast = declared.exposures(unit, members)
    general = flow_and_cut_with_elections(graph, unit, members, declared.leaf_classes)
    if len(fast) == 3:  # the cheapest set, which the general form does not search for
        exposed = [number - 1 for number in fast[2].exposed]
        general += (graph.between(unit, members, exposed),)
    return fast, general


def compare(declared, unit, coalition):
    for fast, general in zip(*both_ways(declared, unit, coalition), strict=True):
        assert_equal(fast, general)
        for one, other in zip(fast.alternatives, general.alternatives, strict=True):
            assert_equal(one, other)
        compare_elections(fast, general)


def compare_elections(fast, general):
    for one, other in zip(fast.election_events, general.election_events, strict=True):
        assert (one.probability, one.rounds) == (other.probability, other.rounds)
        for pair, pair2 in zip(one.pairs, other.pairs, strict=True):
            squares = [[total_mu_squared(r, "zero-out") for r in releases] for releases in (pair, pair2)]
            assert squares[0] == pytest.approx(squares[1], rel=1e-9)


@pytest.mark.parametrize("batch", first_quick(range(6), 1, 3))
def test_random_specs(batch):
    """Trees of depth 1 to 3: trust, sources, hops, dropouts, elections, draws, resend, several
    aggregations."""
    compared = 0
    for number in range(50 * batch, 50 * (batch + 1)):
        rng = Random(f"atoms/{number}")
        document = random_tree(rng)
        try:
            plan = resolve(load_spec(document))
        except SpecError:
            continue
        if plan.tree.device_count > 60:
            continue
        for _ in range(3):
            unit, observer = random_pair(document, rng)
            compare(plan.releases, unit, parse_coalition(observer, plan.parties))
            compared += 1
    assert compared > 80


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_sums_channels_and_unequal_devices(data):
    """One aggregation a round; air, secure aggregation, classes of devices, thresholds; dropouts, and
    denominators that depend on who is drawn.
    """
    declared = data.draw(mixed_ledgers(kinds=("all", "fixed", "poisson")))
    if declared.draw_kind != "poisson" and data.draw(st.booleans()):
        least = np.array([data.draw(st.integers(0, int(n))) for n in declared.drawn])
        declared = replace(declared, guaranteed_contributors=least)
    if data.draw(st.booleans()):
        declared = replace(declared, most_denominators=2 * declared.denominators)
    unit = data.draw(st.integers(0, declared.device_count - 1))
    above = (Party("node", declared.depth - 1, declared.leaf_of(unit)),) if data.draw(st.booleans()) else ()
    compare(declared, unit, (*data.draw(coalitions(declared, unit)), *above))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_several_aggregations(data):
    """Trees of up to four tiers, messages of one bound at each step, increments and resends."""
    declared = data.draw(ledgers(uniform=True))
    unit = data.draw(st.integers(0, declared.device_count - 1))
    compare(declared, unit, data.draw(coalitions(declared, unit)))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_unequal_bounds_of_others_count_as_the_largest(data):
    """Where messages of one step have several bounds: flow exactly, cut at least what the graph gives."""
    declared = data.draw(ledgers())
    unit = data.draw(st.integers(0, declared.device_count - 1))
    (flow, cut), (flow2, cut2) = both_ways(declared, unit, data.draw(coalitions(declared, unit)))
    assert_equal(flow, flow2)
    for neighbours in ("zero-out", "replace"):
        mine, general = (total_mu_squared(e.releases, neighbours) for e in (cut, cut2))
        assert mine >= general * (1 - 1e-9)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_devices_and_leaves_that_may_be_missing(data):
    """Dropouts, with and without sums below a threshold that are never sent; messages that are rounded."""
    declared = data.draw(ledgers(kinds=("all", "fixed"), uniform=True, depths=(2, 3)))
    least = np.array([data.draw(st.integers(0, int(n))) for n in declared.drawn])
    declared = replace(
        declared,
        guaranteed_contributors=least if data.draw(st.booleans()) else None,
        all_nodes_always_send=data.draw(st.booleans()),
        rounds_after_noise=data.draw(st.booleans()),
    )
    unit = data.draw(st.integers(0, declared.device_count - 1))
    compare(declared, unit, data.draw(coalitions(declared, unit)))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_views_are_the_audience_rule(data):
    """What is recorded for attacks and audits is what the graph says is received."""
    declared = data.draw(mixed_ledgers() if data.draw(st.booleans()) else ledgers())
    unit = data.draw(st.integers(0, declared.device_count - 1))
    coalition = data.draw(coalitions(declared, unit))
    graph = messages_of_tree(declared)
    pooled = Coalition.of(graph, coalition)
    for number, step in enumerate(declared.steps):
        view = declared.view(coalition, number)
        nodes = {(p.tier, p.index) for p in coalition if p.kind == "node" and p.tier >= step.tier}
        assert view.single == {at for at in nodes if receives_alone(graph, pooled, number, declared, at)}
        assert view.single | view.summed == nodes
        roots = range(len(declared.parents[step.tier]))
        heard = {(step.tier, n) for n in roots if pooled.receives(graph, ("average", number, step.tier, n))}
        assert view.averages == heard


def receives_alone(graph, pooled, number, declared, at):
    """Whether an aggregator of the coalition receives its children's vectors one by one."""
    tier, node = at
    if tier == declared.depth - 1:
        keys = [("message", number, c) for c in declared.classes.of_leaf(node)]
    else:
        below = range(len(declared.parents[tier + 1]))
        keys = [("average", number, tier + 1, c) for c in below if declared.parents[tier + 1][c] == node]
    alone = {key: pooled.receives(graph, key) for key in keys}
    assert len(set(alone.values())) == 1
    return alone[keys[0]]
