"""What groups compute for themselves, to be fast, is what their graph of messages gives."""

from random import Random

import numpy as np
import pytest
from equal_exposures import assert_equal
from message_graph.audience import Coalition
from message_graph.groups import GroupsAsMessages, messages_of_groups
from oracle_random_groups import (
    random_groups,
    random_groups_with_some_trust,
    random_pair,
    with_dropouts,
)
from slow import first_quick

from sfumato.errors import SpecError
from sfumato.privacy.groups.exposed_set import cheapest_set
from sfumato.privacy.groups.received_sums import ReceivedSums
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.vector_clocks import GroupStructure
from sfumato.privacy.observers import Party
from sfumato.schedule.resolve import resolve
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.spec.load import load_spec


def compare(declared, unit, coalition, rng):
    """Flow, cut, the cheapest set and a random one in between."""
    graph, (fast_flow, fast_cut, fast_between) = (
        GroupsAsMessages(declared),
        declared.exposures(unit, coalition),
    )
    assert_equal(fast_flow, graph.flow(unit, coalition))
    assert_equal(fast_cut, graph.cut(unit, coalition))
    kinds = declared.kinds
    problem = declared.exposure_problem(int(kinds.of[unit]), coalition)
    members = {}
    for party in coalition:
        if party.kind == "device":
            kind = int(kinds.of[party.index])
            members[kind] = members.get(kind, 0) + 1
    view = ReceivedSums(declared, problem, declared._worst_view(coalition), members)
    found = cheapest_set(problem, view.price)
    assert_equal(fast_between, graph.between(unit, coalition, declared.block_ends[found.blocks].tolist()))
    some = np.array([rng.randint(a, b) for a, b in zip(problem.seen, problem.reach, strict=True)])
    fast = view.exposure("min-cost", some)
    assert_equal(fast, graph.between(unit, coalition, declared.block_ends[some].tolist()))


def compare_pairs(plan, document, rng):
    """Three random pairs of a resolved document; returns how many."""
    for _ in range(3):
        unit, observer = random_pair(document, rng)
        compare(plan.releases, unit, parse_coalition(observer, plan.parties), rng)
    return 3


@pytest.mark.parametrize("batch", first_quick(range(6), 1, 3))
def test_random_specs(batch):
    """1 to 5 groups, every kind, S 1 to 3, masters or devices noising, thresholds, Poisson rates."""
    compared = 0
    for number in range(50 * batch, 50 * (batch + 1)):
        rng = Random(f"atoms of groups/{number}")
        document = random_groups(rng)
        document["training"]["rounds"] = min(document["training"]["rounds"], 6)
        try:
            plan = resolve(load_spec(document))
        except SpecError:
            continue
        compared += compare_pairs(plan, document, rng)
    assert compared > 60


@pytest.mark.parametrize("batch", first_quick(range(15), 2, 6))
def test_some_masters_are_trusted(batch):
    """As `test_random_specs`, where masters noise in some groups and devices in the others."""
    for number in range(20 * batch, 20 * (batch + 1)):
        rng = Random(f"mixed trust/{number}")
        document = random_groups_with_some_trust(rng)
        document["training"]["rounds"] = min(document["training"]["rounds"], 6)
        plan = resolve(load_spec(document))
        assert set(plan.releases.noise_owner) == {"master", "devices"}
        compare_pairs(plan, document, rng)


@pytest.mark.parametrize("batch", first_quick(range(20), 2, 7))
def test_messages_may_be_lost(batch):
    """As `test_random_specs`, with dropouts: thresholds, cohorts, Poisson draws, both owners of noise."""
    compared = 0
    for number in range(20 * batch, 20 * (batch + 1)):
        rng = Random(f"dropouts/{number}")
        made = random_groups if rng.random() < 0.6 else random_groups_with_some_trust
        document = with_dropouts(made(rng), rng)
        document["training"]["rounds"] = min(document["training"]["rounds"], 6)
        try:
            plan = resolve(load_spec(document))
        except SpecError:
            continue
        assert plan.releases.least_survivors
        compared += compare_pairs(plan, document, rng)
    assert compared > 20


@pytest.mark.parametrize("number", first_quick(range(24), 4, 12))
def test_groups_that_change(number):
    """Workers leave, join and swap groups between eras; who joins is handed what its group released
    before."""
    rng = Random(f"eras/{number}")
    workers, count, rounds = rng.randint(3, 7), rng.randint(1, 4), rng.randint(2, 8)
    every = rng.choice((1, 2, 3))
    kind = rng.choice(("dp-ogl", "dp-ogl-local")) if every > 1 else "dp-ogl"
    starts = sorted({1, *(1 + every * rng.randint(0, 4) for _ in range(2))})
    eras = tuple(GroupStructure(start, random_structure(rng, workers, count)) for start in starts)
    rate = tuple(rng.choice((1.0, 0.4)) for _ in range(count))
    owner = rng.choice(("master", "devices"))
    options = {"noise_owner": (owner,) * count, "transport": "plain"}
    noise = tuple(rng.choice((0.5, 2.0)) for _ in range(count))
    declared = GroupReleases(kind, workers, eras, rounds, every, (1.0,) * count, noise, rate, **options)
    compare_some(declared, rng, [group for group in range(count) if owner == "master"])


def compare_some(declared, rng, masters):
    """Coalitions of other workers and of some masters."""
    for _ in range(6):
        unit = rng.randrange(declared.device_count)
        others = [Party("device", 0, worker) for worker in range(declared.device_count) if worker != unit]
        everybody = others + [Party("node", 1, group) for group in masters]
        compare(declared, unit, tuple(rng.sample(everybody, rng.randint(1, min(3, len(everybody))))), rng)


@pytest.mark.parametrize("number", first_quick(range(24), 4, 12))
def test_groups_that_change_where_some_masters_are_trusted(number):
    """Trust belongs to the group, whoever is in it."""
    rng = Random(f"eras and trust/{number}")
    workers, count, every = rng.randint(3, 7), rng.randint(2, 4), rng.choice((1, 2, 3))
    kind = rng.choice(("dp-ogl", "dp-ogl-local"))
    starts = sorted({1, *(1 + every * rng.randint(0, 4) for _ in range(2))})
    eras = tuple(GroupStructure(start, random_structure(rng, workers, count)) for start in starts)
    declared = GroupReleases(
        kind, workers, eras,
        rng.randint(2, 8), every, (1.0,) * count, tuple(rng.choice((0.5, 2.0)) for _ in range(count)),
        tuple(rng.choice((1.0, 0.4)) for _ in range(count)),
        noise_owner=("master", "devices", *(rng.choice(("master", "devices")) for _ in range(count - 2))),
    )  # fmt: skip
    compare_some(declared, rng, range(count))


def random_structure(rng, workers, count):
    return tuple(tuple(sorted(rng.sample(range(workers), rng.randint(1, workers)))) for _ in range(count))


@pytest.mark.parametrize("number", range(20))
def test_views_are_the_audience_rule(number):
    """What is recorded for attacks and audits is what the graph says is received."""
    rng = Random(f"views/{number}")
    workers, count = rng.randint(3, 7), rng.randint(1, 3)
    structure = random_structure(rng, workers, count)
    rate = tuple(rng.choice((1.0, 0.4)) for _ in range(count))
    declared = GroupReleases(
        "dp-ogl", workers, (GroupStructure(1, structure),), 2, 1, (1.0,) * count, (1.0,) * count, rate,
        noise_owner=("devices",) * count, transport=rng.choice(("plain", "secure-aggregation")),
        unmask_thresholds=tuple(rng.randint(1, 3) for _ in range(count)),
    )  # fmt: skip
    graph = messages_of_groups(declared)
    parties = [Party("device", 0, worker) for worker in range(1, workers)]
    parties += [Party("node", 1, group) for group in range(count)]
    coalition = tuple(rng.sample(parties, rng.randint(1, 3)))
    view, pooled = declared.view(coalition, 1), Coalition.of(graph, coalition)
    alone = {
        (1, message.cohort[0])
        for message in graph.messages.values()
        if message.step == 1 and pooled.receives(graph, message.key)
    }
    masters = {(1, party.index) for party in coalition if party.kind == "node"}
    assert view.single == alone
    assert view.summed == masters - alone
    assert view.averages == {(1, g) for g in range(count) if pooled.receives(graph, ("release", g, 1))}
