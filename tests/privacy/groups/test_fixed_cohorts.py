"""Fixed cohorts in groups against steps that are played out cohort by cohort.

The oracle shares no code with the accountant: it lists who may be drawn, adds up the densities of the sums
that a coalition receives, and compares the two worlds. What the coalition's members know of themselves, and
the noise that they added, is taken off first.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from scipy import stats

from sfumato import account
from sfumato.privacy.accountant import compose
from sfumato.privacy.charges import ways_to_charge
from sfumato.privacy.divergence import renyi_2_of_fixed_draw
from sfumato.privacy.groups.exposure_problem import ChargedSum
from sfumato.privacy.groups.received_sums import ReceivedSums
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.vector_clocks import GroupStructure
from sfumato.privacy.losses import gaussian
from sfumato.privacy.observers import Party
from sfumato.privacy.release import Exposure
from sfumato.spec.load import load_spec

pytestmark = pytest.mark.usefixtures("coarse_losses")

PLACES = np.linspace(-25.0, 25.0, 5_001)
WIDTH = PLACES[1] - PLACES[0]
LEVELS = (0.0, 0.4, 1.5, 3.0)


def plan_of(size: int, count: int, sigma: float, *, kind: str = "dp-ogl", **more) -> GroupReleases:
    """A group of so many workers, and a second one of the last and somebody else, whose master draws 1."""
    groups = (tuple(range(size)), (size - 1, size))
    return GroupReleases(
        kind, size + 1, (GroupStructure(1, groups),), 4, 2, (1.0,) * 2, (sigma,) * 2, (1.0,) * 2,
        cohort=(count, 1), **more,
    )  # fmt: skip


def charged(plan: GroupReleases, coalition, row: ChargedSum, relation: str, *, count: int = 1):
    """Every way to charge so many sums, composed."""
    scene = plan.exposure_problem(int(plan.kinds.of[0]), coalition)
    kinds = defaultdict(int)
    for party in coalition:
        if party.kind == "device":
            kinds[int(plan.kinds.of[party.index])] += 1
    received = ReceivedSums(plan, scene, plan.view(coalition, 1), dict(kinds))
    exposure = Exposure("flow", received.releases(row, count), groups_draw_separately=True)
    return [compose(way.terms, neighbours=way.neighbours) for way in ways_to_charge(exposure, relation)]


def cohorts(size: int, count: int):
    found = list(itertools.combinations(range(size), count))
    return [(frozenset(cohort), 1 / len(found)) for cohort in found]


def worlds(size, count, *, unit, linking, members, fill, sign, shown, noise, own_noise):
    """What is visible, and the density of the rest of the sum in each world.

    Worker 0 is the unit where ``unit`` has its two messages; the next ``linking`` workers send ``sign`` and
    its opposite; the last ``members`` are the coalition's. Everybody else sends ``fill``.
    """
    seen = defaultdict(lambda: [np.zeros_like(PLACES), np.zeros_like(PLACES)])
    for cohort, chance in cohorts(size, count):
        visible = cohort if shown else frozenset(w for w in cohort if w >= size - members)
        variance = noise + own_noise * sum(worker < size - members for worker in cohort)
        for world in (0, 1) if variance else ():  # with members alone nothing is unknown
            mean = 0.0
            for worker in cohort:
                if worker == 0 and unit is not None:
                    mean += unit[world]
                elif worker <= linking - (unit is None):
                    mean += sign * (1, -1)[world]
                elif worker < size - members:
                    mean += fill
            seen[visible][world] += chance * stats.norm.pdf(PLACES, mean, math.sqrt(variance))
    return list(seen.values())


def attained(found, level: float) -> float:
    alpha = math.exp(level)
    one = sum(np.maximum(p - alpha * q, 0.0).sum() for p, q in found) * WIDTH
    other = sum(np.maximum(q - alpha * p, 0.0).sum() for p, q in found) * WIDTH
    return float(max(one, other))


def random_step(rng: Random):
    size = rng.randint(3, 6)
    count = rng.randint(1, size - 1)
    members = rng.randint(0, size - 2)
    own = rng.random() < 0.7
    linking = rng.randint(0 if own else 1, size - members - own)
    return size, count, members, own, linking


@pytest.mark.parametrize("owner", ["master", "devices"])
@pytest.mark.parametrize("relation", ["zero-out", "replace"])
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_no_data_of_a_step_tell_more_than_is_charged(owner, relation, seen, seed):
    """Coalitions of workers; with ``seen`` under secure aggregation, whose parties know each other."""
    rng = Random(f"steps/{seed}/{owner}/{relation}/{seen}")
    size, count, members, own, linking = random_step(rng)
    members = max(members, 1) if seen else members
    linking = min(linking, size - members - own)
    if not own + linking:
        own = True
    sigma = rng.choice((0.8, 1.5))
    transport = "secure-aggregation" if seen else "plain"
    plan = plan_of(size, count, sigma, noise_owner=(owner,) * 2, transport=transport)
    # somebody of the second group receives the first group's sums only where they are exposed
    coalition = tuple(Party("device", 0, size - 1 - i) for i in range(members)) or (Party("device", 0, size),)
    row = ChargedSum(0, 0, own, linking)
    curves = charged(plan, coalition, row, relation)
    unit = (1.0, 0.0 if relation == "zero-out" else -1.0) if own else None
    noise, own_noise = (sigma**2, 0.0) if owner == "master" else (0.0, sigma**2)
    for fill, sign in itertools.product((-1.0, 0.0, 1.0), (1, -1)):
        found = worlds(
            size, count, unit=unit, linking=linking, members=members, fill=fill, sign=sign,
            shown=seen, noise=noise, own_noise=own_noise,
        )  # fmt: skip
        for level in LEVELS:
            most = attained(found, level)
            allowed = [curve.delta(level) for curve in curves]
            assert most <= min(allowed) * (1 + 1e-5) + 1e-6, (row, members, size, count, fill, level, allowed)


@pytest.mark.parametrize(("count", "linking"), [(1, 3), (2, 3), (2, 4), (1, 4)])
@pytest.mark.parametrize("owner", ["master", "devices"])
def test_others_may_take_all_places(count, linking, owner):
    """More link than are drawn: without the unit they move the sum by more than with it."""
    plan = plan_of(5, count, 0.5, noise_owner=(owner,) * 2)
    curves = charged(plan, (Party("device", 0, 5),), ChargedSum(0, 0, True, linking), "zero-out")
    noise, own_noise = (0.25, 0.0) if owner == "master" else (0.0, 0.25)
    found = worlds(
        5, count, unit=(1.0, 0.0), linking=linking, members=0, fill=0.0, sign=1, shown=True,
        noise=noise, own_noise=own_noise,
    )  # fmt: skip
    for level in (0.4, 3.0, 6.0, 9.0):
        assert attained(found, level) <= min(curve.delta(level) for curve in curves) * (1 + 1e-5) + 1e-6


def test_the_charge_is_attained():
    """A hidden draw of 2 of 5, others all at the opposite end: neither more nor less is charged."""
    plan = plan_of(5, 2, 0.8)
    coalition = (Party("device", 0, 5),)
    curve = min(charged(plan, coalition, ChargedSum(0, 0, True, 0), "zero-out"), key=lambda c: c.delta(1.5))
    found = worlds(
        5, 2, unit=(1.0, 0.0), linking=0, members=0, fill=-1.0, sign=1, shown=False, noise=0.64, own_noise=0.0
    )
    assert attained(found, 1.5) == pytest.approx(curve.delta(1.5), rel=1e-3)


@pytest.mark.parametrize("linking", range(5))
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("count", range(1, 5))
def test_a_master_that_receives_messages_knows_whose_they_are(linking, own, count):
    """Messages one by one with each sender's noise: the mixture over cohorts that the master sees."""
    if not own + linking or own + linking > 5:
        return
    sigma, size = 0.9, 5
    plan = plan_of(size, count, sigma, noise_owner=("devices",) * 2)
    curves = charged(plan, (Party("node", 1, 0),), ChargedSum(0, 0, own, linking), "zero-out")
    movers = [1.0] * own + [2.0] * linking
    for level in LEVELS:
        told = 0.0
        for cohort, chance in cohorts(size, count):
            mu = math.sqrt(sum(movers[worker] ** 2 for worker in cohort if worker < len(movers))) / sigma
            told += chance * (
                float(gaussian.delta(epsilon=np.array([level]), mu=np.array(mu))[0]) if mu else 0
            )
        assert all(told <= curve.delta(level) * (1 + 1e-9) + 1e-12 for curve in curves)


def test_only_who_does_not_know_the_draw_is_amplified_towards():
    """The group's master, and parties of a session, know it; the master of another group does not."""

    def kinds(plan, *coalition):
        return {
            (drawn.sampling.kind, drawn.sampling.hidden, drawn.amplifies)
            for drawn in plan.exposures(0, coalition)[0].draws
            if any(release.own_sensitivity for release in drawn.releases)
        }

    plain = plan_of(6, 2, 2.0, noise_owner=("devices",) * 2)
    masked = plan_of(
        6, 2, 2.0, noise_owner=("devices",) * 2, transport="secure-aggregation", unmask_thresholds=(2, 1)
    )
    worker, master, elsewhere = Party("device", 0, 3), Party("node", 1, 0), Party("node", 1, 1)
    hidden, seen = {("fixed", True, True)}, {("fixed", False, False)}
    assert kinds(plain, worker) == kinds(plain, elsewhere) == kinds(masked, elsewhere) == hidden
    assert kinds(plain, master) == kinds(masked, master) == kinds(masked, worker) == seen
    assert kinds(plain, worker, master) == seen


def test_a_worker_in_the_coalition_narrows_the_draw_down():
    plan = plan_of(10, 4, 2.0)
    coalition = tuple(Party("device", 0, i) for i in (3, 4, 5))
    (drawn,) = plan.exposures(0, coalition)[0].draws
    assert (drawn.sampling.population, drawn.sampling.sample) == (7, 4)


def test_the_unit_in_two_groups_is_drawn_by_each():
    """Draws of groups are independent: what a worker of both adds to them composes."""
    plan = plan_of(6, 2, 2.0)
    flow = plan.exposures(5, (Party("device", 0, 0), Party("device", 0, 6)))[0]
    own = {(d.sampling.sample, d.sampling.population): d.count for d in flow.draws}
    assert own == {(2, 5): 4, (1, 1): 4}  # of the second group's two workers one is a member


def test_a_group_that_draws_everybody_draws_nobody():
    """count = size: the same exposures as with participation all."""
    fixed = plan_of(5, 5, 1.0, noise_owner=("devices",) * 2)
    everybody = GroupReleases(
        "dp-ogl", 6, fixed.eras, 4, 2, (1.0,) * 2, (1.0,) * 2, (1.0,) * 2, noise_owner=("devices",) * 2
    )
    for coalition in ((Party("device", 0, 1),), (Party("node", 1, 0), Party("device", 0, 2))):
        mine, theirs = fixed.exposures(0, coalition)[0], everybody.exposures(0, coalition)[0]
        assert [d for d in mine.draws if d.releases[0].name == "group 0"] == list(theirs.draws)


@pytest.mark.parametrize("owner", ["master", "devices"])
@pytest.mark.parametrize("count", [3, 6, 8])
@pytest.mark.parametrize("sigma", [0.4, 1.0, 5.0])
def test_linking_workers_that_meet_cost_more_than_apart(owner, count, sigma):
    """As long as all of them may be drawn; where not, lower bounds of exposed sets do not use it."""
    groups = (tuple(range(9)), (8, 9))
    plan = GroupReleases(
        "dp-ogl", 10, (GroupStructure(1, groups),), 5, 2, (1.0,) * 2, (sigma,) * 2, (1.0,) * 2,
        noise_owner=(owner,) * 2, transport="secure-aggregation", cohort=(count, 1),
    )  # fmt: skip
    coalition = (Party("node", 1, 1),) if owner == "devices" else (Party("device", 0, 9),)
    scene = plan.exposure_problem(int(plan.kinds.of[0]), coalition)
    assert scene.links_add_up
    price = ReceivedSums(plan, scene, plan.view(coalition, 1), {}).price
    for own in (False, True):
        alone = price(ChargedSum(0, 0, own, 0))
        extra = [price(ChargedSum(0, 0, own, n)) - alone for n in range(count + 1 - own)]
        pairs = [(a, b) for a in range(1, len(extra)) for b in range(1, len(extra) - a)]
        assert all(extra[a + b] >= (extra[a] + extra[b]) * (1 - 1e-9) for a, b in pairs)


def test_where_more_link_than_are_drawn_no_lower_bound_is_claimed():
    groups = (tuple(range(6)), tuple(range(1, 7)))
    for count, adds_up in ((2, False), (5, True)):
        plan = GroupReleases(
            "dp-ogl", 7, (GroupStructure(1, groups),), 6, 2, (1.0,) * 2, (1.0,) * 2, (1.0,) * 2,
            cohort=(count, count),
        )  # fmt: skip
        scene = plan.exposure_problem(int(plan.kinds.of[0]), (Party("device", 0, 6),))
        assert scene.links_add_up == adds_up


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(("size", "count"), [(5, 2), (6, 1), (6, 5)])
def test_the_price_of_a_hidden_draw_is_no_less_than_its_divergence(mu, size, count):
    for fill in (-1.0, 0.0, 1.0):
        ((p, q),) = worlds(
            size, count, unit=(1.0, 0.0), linking=0, members=0, fill=fill, sign=1, shown=False,
            noise=1 / mu**2 if mu < 0.3 else mu**-2, own_noise=0.0,
        )  # fmt: skip
        inside = q > 1e-250
        truth = math.log(float((p[inside] ** 2 / q[inside]).sum() * WIDTH))
        assert truth <= renyi_2_of_fixed_draw(mu**2, count / size) * (1 + 1e-6) + 1e-6
        assert renyi_2_of_fixed_draw(mu**2, count / size) <= mu**2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cohort": (4, 1, 1)}, "one for each of 2 groups"),
        ({"cohort": (7, 1)}, "got 7 for group 0; must be 1..6"),
        ({"cohort": (0, 1)}, "got 0 for group 0"),
        ({"rate": (0.5, 1.0)}, "with rates of 1"),
    ],
)
def test_facts_out_of_range_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(plan_of(6, 2, 1.0), **change)


def test_a_coalition_of_all_workers_of_another_group() -> None:
    """Members of {4, 5, 6} are all of that group; 5 joins what is exposed, and adds nothing to it."""
    spec = {
        "name": "whole",
        "protocol": "dp-ogl",
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "groups", "structure": "string", "groups": 4, "devices": 8},
        "training": {
            "rounds": 4,
            "local_steps": 1,
            "batch_size": 4,
            "learning_rate": 0.1,
            "merge_every": 2,
            "participation": {"kind": "fixed", "count": [2, 3, 2, 2]},
        },
        "privacy": {
            "delta": 1e-3,
            "clip": {"kind": "update", "norm": 1.0},
            "noise": {"multiplier": 1.0},
        },
        "trust": {"trusted_aggregators": []},
    }
    whole, part = (
        account(load_spec(spec), unit="device:7", observer=observer).guarantees[0].epsilon
        for observer in ("device:4,device:5,device:6", "device:4,device:6")
    )
    assert whole == pytest.approx(part)
    assert whole > 0
