"""The exact law of a round's elections, against every course of two rounds written out.

What a round tells is written out message by message (`one_aggregation`). Where the draw is hidden
the courses are integrated on a grid, both rounds together, in both directions.
"""

import math
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from one_aggregation import Aggregation
from random_tree_facts import make_ledger

from sfumato.privacy.charges import bound_epsilon, is_surely_within
from sfumato.privacy.losses import gaussian
from sfumato.privacy.noise_scale import noise_scale_for
from sfumato.privacy.observers import Party
from sfumato.privacy.tree.elections import elected_outcomes
from sfumato.privacy.tree.exposures import TreeExposures
from sfumato.privacy.tree.facts import AggregationFacts

DELTA = 1e-3


def devices(*numbers):
    return tuple(Party("device", 0, j) for j in numbers)


def node(i):
    return Party("node", 1, i)


def zones(sizes, *, device=0.0, noise=0.5, channel=0.0, hop="secure-aggregation", rounds=2, **more):
    """Zones of devices under a cloud; who adds which noise is alike in all of them unless listed."""
    count = len(sizes)
    facts = AggregationFacts(
        "global",
        0,
        np.ones(count),
        np.full(count, device),
        (np.zeros(1), np.broadcast_to(np.array(noise, dtype=float), count)),
        np.zeros(count, dtype=bool),
        channel_std=(np.zeros(1), np.full(count, channel)) if channel else (),
    )
    more = {"elections": 1.0, "hops": ("plain", hop)} | more
    return make_ledger([[count], sizes], [facts], rounds=rounds, **more)


def exact(declared, unit, members, alike=None):
    """The exposure by the exact law, one of the ways in which the flow bound is charged."""
    bound = TreeExposures(declared).flow
    alike = declared.leaf_classes if alike is None else alike
    (found,) = elected_outcomes(declared, bound, unit, members, alike, 1 << 10)
    return found


def epsilon(exposure, delta=DELTA):
    return bound_epsilon(exposure, delta=delta, neighbours="zero-out").epsilon


def offices(declared, members):
    """All that a round's elections may come to: probability, and the zones that elect a member."""
    staffed = Counter(declared.leaf_of(p.index) for p in members)
    shares = {z: declared.elections * n / declared.devices[z] for z, n in sorted(staffed.items())}
    for won in product((False, True), repeat=len(shares)):
        chances = (p if yes else 1 - p for p, yes in zip(shares.values(), won, strict=True))
        yield math.prod(chances), tuple(z for z, yes in zip(shares, won, strict=True) if yes)


def square(declared, unit, members, won):
    """μ² of a round with the unit in it, by the oracle."""
    everybody = replace(declared, draw_kind="all", draw_rate=1.0)
    coalition = (*members, *map(node, won))
    return Aggregation(everybody).charge(unit, coalition)


def pieces(declared, unit, members):
    """What a round may be: probability, whether the draw is hidden, and μ of the unit's message."""
    here, rate = declared.leaf_of(unit), declared.draw_rate
    for chance, won in offices(declared, members):
        mu = math.sqrt(square(declared, unit, members, won))
        if declared.draw_kind == "poisson" and here not in won:
            yield chance, True, mu
        else:
            yield chance * rate, False, mu
            yield chance * (1 - rate), False, 0.0


def delta_of_two_rounds(declared, unit, members, at):
    """The largest δ of both directions, every course of two rounds integrated on a grid."""
    x = np.linspace(-7.0, 12.0, 1201)
    normal = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])

    def densities(hidden, mu):
        moved = np.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
        return (1 - declared.draw_rate) * normal + declared.draw_rate * moved if hidden else moved

    found = np.zeros(2)
    for (p, *one), (q, *other) in product(pieces(declared, unit, members), repeat=2):
        there = np.outer(densities(*one), densities(*other))
        without = np.outer(normal, normal)
        for direction, (a, b) in enumerate(((there, without), (without, there))):
            found[direction] += p * q * np.maximum(a - math.exp(at) * b, 0.0).sum()
    return found.max()


@pytest.mark.parametrize("members", [(1, 4), (1, 2, 5, 8), (4, 8), (1, 4, 5, 8, 9, 10)])
@pytest.mark.parametrize("elections", [1.0, 1.2])
def test_several_zones_are_the_exact_mixture_of_all_courses(members, elections):
    declared = zones([4, 4, 4], device=0.6, noise=[0.0, 0.3, 0.9], elections=elections)
    members = devices(*members)
    found = epsilon(exact(declared, 0, members))
    delta = 0.0
    for course in product(list(offices(declared, members)), repeat=2):
        mu = math.sqrt(sum(square(declared, 0, members, won) for _, won in course))
        delta += math.prod(p for p, _ in course) * float(gaussian.delta(epsilon=found, mu=mu))
    assert delta == pytest.approx(DELTA, rel=2e-3)
    assert delta <= DELTA * (1 + 1e-9)
    old = min(epsilon(e) for e in declared.quick_exposures(0, members))
    assert found <= old * (1 + 1e-4)


@pytest.mark.parametrize("members", [(4,), (4, 8), (1,), (1, 4), (1, 4, 5, 8)])
def test_the_draw_is_hidden_but_from_who_holds_the_own_office(members):
    """Channels add noise, so that the office of the unit's own zone protects something too."""
    declared = zones([4, 4, 4], noise=[0.3, 0.2, 0.4], channel=0.5, hop="air", kind="poisson", rate=0.3)
    members = devices(*members)
    way = exact(declared, 0, members)
    found = epsilon(way, 0.02)
    truth = delta_of_two_rounds(declared, 0, members, found)
    assert truth <= 0.02 * (1 + 1e-4)
    assert truth == pytest.approx(0.02, rel=2e-3)
    old = min(epsilon(e, 0.02) for e in declared.quick_exposures(0, members))
    assert found <= old * (1 + 1e-4)
    if set(members) & set(devices(1, 2, 3)):
        assert found < 0.9 * old  # all rounds were charged as if the draw were seen


def test_an_office_that_protects_nothing_takes_its_chance_off_delta():
    """C2: in office a member of the unit's zone receives the sum without noise, if the unit is drawn."""
    declared = zones([20, 20], hop="plain", kind="poisson", rate=0.1, rounds=2)
    members = devices(1)
    risk = 1 - (1 - 0.1 / 20) ** 2
    way = exact(declared, 0, members)
    assert epsilon(way, 0.99 * risk) == math.inf
    assert epsilon(way, 1.2 * risk) < math.inf
    assert epsilon(declared.quick_exposures(0, members)[0], 1.2 * risk) == math.inf
    scale = noise_scale_for([way], epsilon=1.0, delta=1.2 * risk, neighbours="zero-out")
    assert 0 < scale < math.inf


def test_zones_that_are_alike_count_together():
    declared = zones([3] * 7, device=0.4, noise=0.2, rounds=5)
    members = devices(1, *range(3, 21, 3))
    together, apart = (exact(declared, 0, members, alike) for alike in (None, range(7)))
    assert len(together.draws) == 2 * 7
    assert len(apart.draws) == 2**7
    assert math.fsum(together.outcomes.chances) == pytest.approx(1, abs=1e-12)
    assert epsilon(together) == pytest.approx(epsilon(apart), rel=1e-4)


def test_zones_with_other_members_are_not_alike():
    """The loud device of a zone takes more noise away than the others."""
    declared = zones([3, 3, 3], device=0.4, noise=0.2)
    assert len(exact(declared, 0, devices(3, 6)).draws) == 3
    assert len(exact(declared, 0, devices(3, 6, 7)).draws) == 4


def test_too_many_zones_keep_the_bound_of_before():
    declared = zones([3] * 12, device=0.4, noise=np.linspace(0.1, 0.9, 12))
    several = devices(*range(3, 36, 3))
    assert not elected_outcomes(
        declared, TreeExposures(declared).flow, 0, several, declared.leaf_classes, 1 << 10
    )
    found = declared.exposures(0, several)[0]
    assert found == declared.quick_exposures(0, several)[0]


def test_one_zone_where_everybody_takes_part_needs_no_second_mixture():
    declared = zones([4, 4], device=0.6)
    assert declared.exposures(0, devices(5)) == declared.quick_exposures(0, devices(5))


def test_noise_of_others_who_are_drawn_counts_in_office_and_out_of_it():
    """C1 by hand: four other honest devices, noise 1 each; in office nothing but the own noise."""
    declared = zones([3, 3], device=1.0, noise=0.0, kind="poisson", rate=0.4, rounds=2)
    found = epsilon(exact(declared, 0, devices(1)), 0.02)
    outcomes = [(0.6, 0.0), (0.4 / 3, 1.0)]
    for k in range(5):
        chance = math.comb(4, k) * 0.4**k * 0.6 ** (4 - k)
        outcomes.append((0.4 * 2 / 3 * chance, 1 / (1 + k)))
    delta = sum(
        p * q * float(gaussian.delta(epsilon=found, mu=math.sqrt(a + b)))
        for (p, a), (q, b) in product(outcomes, repeat=2)
    )
    assert delta == pytest.approx(0.02, rel=1e-4)


def test_many_rounds_compose_to_what_binomials_give():
    """Two values of μ² only: the sum over rounds is a binomial, in whatever steps it is computed."""
    declared = zones([4, 4], device=0.6, noise=[0.0, 0.3], kind="poisson", rate=0.5, rounds=300)
    declared = replace(declared, guaranteed_contributors=np.array([4, 4]))  # no noise by chance
    found = epsilon(exact(declared, 0, devices(1)), 1e-5)
    out, won = (
        sum(r.mu_squared("zero-out") for r in replace(declared, elections=0.0).exposures(0, c)[0].releases)
        for c in (devices(1), (*devices(1), node(0)))
    )
    delta = 0.0
    for drawn in range(301):
        for held in range(drawn + 1):
            logs = math.lgamma(301) - math.lgamma(301 - drawn) - math.lgamma(drawn - held + 1)
            logs += -math.lgamma(held + 1) + 300 * math.log(0.5)
            logs += held * math.log(0.25) + (drawn - held) * math.log(0.75)
            mu = math.sqrt(held * won + (drawn - held) * out)
            if logs > -60 and mu:
                delta += math.exp(logs) * float(gaussian.delta(epsilon=found, mu=mu))
    assert 0.9e-5 < delta <= 1e-5 * (1 + 1e-6)


def test_what_is_surely_within_is_never_below_the_epsilon():
    declared = zones([4, 4, 4], device=0.6, noise=[0.0, 0.3, 0.9])
    exposures = declared.exposures(0, devices(1, 4))
    found = min(epsilon(e) for e in exposures)
    within = [
        is_surely_within(exposures, found * factor, delta=DELTA, neighbours="zero-out")
        for factor in (0.99, 1.01)
    ]
    assert within == [False, True]
