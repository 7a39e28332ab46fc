"""Exposed sets of groups: the cheapest of all, or with an honest distance; the same for mirrored pairs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import random

import numpy as np
import pytest

from sfumato.accounting import account
from sfumato.privacy.charges import bound_epsilon
from sfumato.privacy.divergence import divergence, is_priced_exactly, renyi_2
from sfumato.privacy.groups import exposed_set
from sfumato.privacy.groups.exposed_set import cheapest_set, search_all_sets
from sfumato.privacy.groups.exposure_problem import cost
from sfumato.privacy.groups.minimum_cut import cells_of, least_cost_of_any_set, minimum_cut
from sfumato.privacy.groups.received_sums import ReceivedSums
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.vector_clocks import GroupStructure
from sfumato.privacy.observers import Party
from sfumato.privacy.release import total_mu_squared
from sfumato.spec.load import load_spec

MOST_SETS = 10_000
RING = ((0, 1, 2), (2, 3, 4), (4, 5, 6), (0, 6, 7))
"""Four groups; 0, 2, 4 and 6 link neighbours."""


def declared(groups, rounds, every, rates, *, sigma=1.0, **more):
    count, devices = len(groups), 1 + max(max(group) for group in groups)
    eras = (GroupStructure(1, tuple(groups)),)
    return GroupReleases(
        "dp-ogl", devices, eras, rounds, every, (1.0,) * count, (sigma,) * count, tuple(rates), **more
    )


def device(index):
    return (Party("device", 0, index),)


def epsilons(plan, unit, observer):
    return {
        e.bound_name: bound_epsilon(e, delta=1e-5, neighbours="zero-out").epsilon
        for e in plan.exposures(unit, device(observer))
    }


def problem_of(plan, unit, observer):
    """The exposure problem of a pair, and the price of a sum."""
    scene = plan.exposure_problem(int(plan.kinds.of[unit]), device(observer))
    members = {int(plan.kinds.of[observer]): 1}
    return scene, ReceivedSums(plan, scene, plan.view(device(observer), 1), members).price


def all_sets(scene):
    """Every exposed set of prefixes, or none if they are too many."""
    ranges = [range(int(a), int(b) + 1) for a, b in zip(scene.seen, scene.reach, strict=True)]
    if math.prod(map(len, ranges)) > MOST_SETS:
        return ()
    return (np.array(blocks) for blocks in itertools.product(*ranges))


def random_ring(draw):
    """A ring of three to five groups whose neighbours share one or two workers."""
    count, inside = draw.randint(3, 5), draw.randint(0, 2)
    size = inside + 2
    shared = [draw.randint(1, 2) for _ in range(count)]
    first = np.cumsum([0, *(inside + n for n in shared)]).tolist()
    devices = first[-1]
    groups = []
    for number in range(count):
        own = range(first[number], first[number + 1])
        start = first[(number + 1) % count]
        after = range(start + inside, start + inside + shared[(number + 1) % count])
        groups.append(tuple(sorted({d % devices for d in (*own, *after)})))
    assert size > 1
    every = draw.randint(2, 10)
    rates = [draw.choice((1.0, 1.0, 0.7, 0.3)) for _ in range(count)]
    return declared(groups, draw.randint(every + 1, 6 * every), every, rates, sigma=draw.choice((0.7, 1, 2)))


@pytest.mark.parametrize("rings", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_random_rings_against_all_sets(rings):
    """What is called certified is the least of all, the gap is never less than it is, bounds are below."""
    draw = random.Random("rings")
    checked = between = 0
    while checked < rings:
        plan = random_ring(draw)
        unit, observer = draw.sample(range(plan.device_count), 2)
        scene, price = problem_of(plan, unit, observer)
        costs = [cost(scene, blocks, price) for blocks in all_sets(scene)]
        if not costs or np.array_equal(scene.seen, scene.reach):
            continue
        least = min(costs)
        found = cheapest_set(scene, price)
        assert found.optimal
        assert found.cost == pytest.approx(least, rel=1e-9)
        assert least_cost_of_any_set(scene, price) <= least * (1 + 1e-9)
        assert minimum_cut(scene, price, list(cells_of(scene, True)), 1.0)[1] <= least * (1 + 1e-9)
        (gap,) = (e.gap for e in plan.exposures(unit, device(observer)) if e.bound_name == "min-cost")
        assert gap == 1
        between += least < min(cost(scene, scene.reach, price), cost(scene, scene.seen, price)) * (1 - 1e-9)
        checked += 1
    assert between > rings / 10


def random_groups(draw):
    """Three to five groups of two or three workers each, anyhow."""
    count, workers = draw.randint(3, 5), draw.randint(4, 7)
    groups = [tuple(sorted(draw.sample(range(workers), draw.randint(2, 3)))) for _ in range(count)]
    every = draw.randint(1, 6)
    rates = [draw.choice((1.0, 0.7, 0.3)) for _ in range(count)]
    return declared(groups, draw.randint(every + 1, 5 * every), every, rates, sigma=draw.choice((0.7, 2)))


def test_lower_bounds_and_gaps_against_all_sets(monkeypatch):
    """Without the comparison of all sets: sound, no dearer than flow or cut, and a gap that is no less."""
    draw = random.Random("gaps")
    gave_up = checked = 0
    while checked < 150:
        plan = random_groups(draw)
        unit, observer = draw.sample(range(plan.device_count), 2)
        scene, price = problem_of(plan, unit, observer)
        costs = [cost(scene, blocks, price) for blocks in all_sets(scene)]
        if len(costs) < 5 or min(costs) == 0:
            continue
        least = min(costs)
        assert least_cost_of_any_set(scene, price) <= least * (1 + 1e-9)
        assert minimum_cut(scene, price, list(cells_of(scene, True)), 1.0)[1] <= least * (1 + 1e-9)
        assert cheapest_set(scene, price).cost == pytest.approx(least, rel=1e-9)
        monkeypatch.setattr(
            exposed_set, "search_all_sets", lambda *problem: search_all_sets(*problem, most_extensions=0)
        )
        found = cheapest_set(scene, price)
        monkeypatch.undo()
        assert found.cost <= min(cost(scene, scene.reach, price), cost(scene, scene.seen, price))
        assert found.cost >= least * (1 - 1e-9)
        assert found.gap * (1 + 1e-6) >= found.cost / least
        gave_up += not found.optimal
        checked += 1
    assert gave_up


def test_a_link_that_two_groups_of_the_unit_need_carries_no_more():
    """Worker 0 is in groups 0 and 1; both reach group 2, which worker 3 sees, through worker 2 alone."""
    plan = declared(((0, 1), (0, 1, 2), (2, 3)), 40, 4, (0.7, 0.7, 0.7))
    scene, price = problem_of(plan, 0, 3)
    least = min(cost(scene, blocks, price) for blocks in all_sets(scene))
    assert 0 < least_cost_of_any_set(scene, price) <= least * (1 + 1e-9)
    assert least < cost(scene, scene.reach, price)


def test_two_mirrored_pairs_have_the_same_epsilon():
    """MATH: 31.30 and 24.56 from one start; a cheaper set was found for one of them only."""
    plan = declared(RING, 20, 6, (1, 1, 0.3, 1))
    one, other = epsilons(plan, 0, 5), epsilons(plan, 2, 5)
    assert one == pytest.approx(other, rel=1e-12)
    assert one["min-cost"] == pytest.approx(24.558, abs=1e-3)


def test_hiding_some_blocks_of_two_groups_is_much_cheaper_than_flow_and_cut():
    plan = declared(RING, 50, 10, (1, 1, 0.7, 0.3))
    found = epsilons(plan, 2, 7)
    assert found["flow"] == pytest.approx(69.88, abs=0.01)
    assert found["cut"] == pytest.approx(50.94, abs=0.01)
    assert found["min-cost"] < 28.85
    (least,) = (e for e in plan.exposures(2, device(7)) if e.bound_name == "min-cost")
    assert least.exposed == (0, 0, 40, 50)
    assert least.gap == 1


@pytest.mark.parametrize("exhaustive", [True, False])
def test_mirrored_pairs_of_random_rings(exhaustive, monkeypatch):
    """A ring that is its own mirror image: worker d is where worker -d is."""
    if not exhaustive:
        monkeypatch.setattr(
            exposed_set, "search_all_sets", lambda *problem: search_all_sets(*problem, most_extensions=0)
        )
    draw = random.Random("mirrors")
    searched = 0
    for _ in range(5):
        half = draw.randint(2, 3)
        count = 2 * half
        groups = [tuple(sorted({2 * g, 2 * g + 1, (2 * g + 2) % (2 * count)})) for g in range(count)]
        some = [draw.choice((1.0, 0.7, 0.3)) for _ in range(half)]
        every = draw.randint(4, 10)
        plan = declared(groups, draw.randint(2 * every, 5 * every), every, some + some[::-1])
        mirrored = [-d % (2 * count) for d in range(2 * count)]
        for unit, observer in itertools.permutations(range(2 * count), 2):
            one = plan.exposures(unit, device(observer))
            other = plan.exposures(mirrored[unit], device(mirrored[observer]))
            assert [e.without_names for e in one] == [e.without_names for e in other]
            assert [e.gap for e in one] == [e.gap for e in other]
            searched += one[2].exposed not in (one[0].exposed, one[1].exposed)
    assert searched


def test_where_many_workers_link_two_groups_the_lower_bound_is_what_flow_costs():
    plan = declared(((0, 1, 2, 3), (1, 2, 3, 4)), 40, 5, (0.7, 0.7), sigma=3.0)
    scene, price = problem_of(plan, 0, 4)
    assert least_cost_of_any_set(scene, price) == pytest.approx(cost(scene, scene.reach, price))
    assert cheapest_set(scene, price).blocks.tolist() == scene.reach.tolist()


def test_an_account_says_which_releases_and_how_far_from_the_cheapest():
    spec = load_spec(
        {
            "name": "ring", "protocol": "dp-ogl", "data": {"source": "digits"},
            "topology": {"kind": "groups", "structure": "ring", "groups": 4, "devices": 40},
            "training": {
                "rounds": 100, "merge_every": 25, "local_steps": 1, "batch_size": 8, "learning_rate": 0.1,
            },
            "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
        }
    )  # fmt: skip
    report = account(spec)
    rows = [row for row in report.guarantees if row.bound == "min-cost"]
    assert rows
    for row in rows:
        entry = row.to_dict()["bounds"]["min-cost"]
        assert (entry["certified"], entry["gap"]) == (True, 1)
        assert len(entry["exposed"]) == 4
        assert "certified: no exposed set has a smaller divergence" in row.why
    assert all("gap" not in row.to_dict()["bounds"]["flow"] for row in report.guarantees)


@pytest.mark.parametrize("neighbours", ["replace", "remove"])
def test_sets_are_compared_under_the_relation_of_the_spec(neighbours):
    """What is called certified costs no more than any set as it is charged, in the divergence of order 2."""
    draw = random.Random(f"relations {neighbours}")
    certified = checked = 0
    while checked < 60:
        plan = dataclasses.replace(random_groups(draw), searched_under=neighbours)
        unit, observer = draw.sample(range(plan.device_count), 2)
        scene, price = problem_of(plan, unit, observer)
        costs = [cost(scene, blocks, price) for blocks in all_sets(scene)]
        if len(costs) < 3 or min(costs) == 0:
            continue
        found = cheapest_set(scene, price)
        assert found.cost == pytest.approx(min(costs), rel=1e-6)
        assert least_cost_of_any_set(scene, price) <= min(costs) * (1 + 1e-9)
        received = ReceivedSums(
            plan, scene, plan.view(device(observer), 1), {int(plan.kinds.of[observer]): 1}
        )
        sets = [received.exposure("min-cost", blocks) for blocks in all_sets(scene)]
        truth = [sum(order_2(drawn, neighbours) for drawn in exposure.draws) for exposure in sets]
        (gap,) = (e.gap for e in plan.exposures(unit, device(observer)) if e.bound_name == "min-cost")
        assert order_2_of(received, found, neighbours) <= gap * min(truth) * (1 + 1e-6)
        certified += gap == 1
        checked += 1
    assert certified > 20


def order_2_of(received, found, neighbours):
    return sum(order_2(drawn, neighbours) for drawn in received.exposure("min-cost", found.blocks).draws)


def order_2(drawn, neighbours):
    """The Rényi divergence of order 2; that of hidden Poisson draws under replace by integration."""
    if is_priced_exactly(drawn, neighbours):
        return divergence(drawn, neighbours)
    return drawn.count * of_hidden_draw(drawn.sampling.rate, total_mu_squared(drawn.releases, "replace"))


@functools.cache
def of_hidden_draw(rate, square):
    away = math.sqrt(square) / 2
    points = np.linspace(-12 - 3 * away, 12 + 3 * away, 4_001)
    shared, one, other = (np.exp(-((points - at) ** 2) / 2) for at in (0.0, away, -away))
    first, second = (1 - rate) * shared + rate * one, (1 - rate) * shared + rate * other
    return math.log(np.trapezoid(first**2 / second, points) / math.sqrt(2 * math.pi))


def test_replaced_workers_with_hidden_draws_are_certified_by_flow_alone():
    """A price above the divergence says that flow is the cheapest, but not that another set is."""
    plan = dataclasses.replace(declared(RING, 20, 4, (0.3,) * 4), searched_under="replace")
    for unit, observer in itertools.permutations(range(plan.device_count), 2):
        (found,) = (e for e in plan.exposures(unit, device(observer)) if e.bound_name == "min-cost")
        flow, cut, _ = plan.exposures(unit, device(observer))
        is_flow = found.exposed == flow.exposed
        assert found.gap == math.inf or is_flow or flow.draws == cut.draws
        assert {1.0, math.inf} >= {found.gap}


@pytest.mark.parametrize("square", [1e-4, 0.01, 0.3, 1.0, 4.0, 9.0])
def test_prices_of_replaced_workers_are_no_less_than_the_divergence(square):
    for rate in (0.01, 0.3, 0.7, 0.99):
        assert of_hidden_draw(rate, square) <= renyi_2(square, rate**2) * (1 + 1e-9)
    far = math.exp(4 * square) + math.exp(square) - 2 * math.exp(2 * square)
    assert 2 * math.exp(square) - 2 * math.exp(square / 2) <= far
