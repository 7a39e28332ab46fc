"""The ledger of a tree, by numbers worked out by hand, and the rules of sampling (docs/accounting.md)."""

import json
import math
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT
from random_tree_facts import ledgers, make_ledger

from sfumato.accounting import account
from sfumato.privacy.accountant import compose
from sfumato.privacy.charges import bound_epsilon, ways_to_charge
from sfumato.privacy.losses import gaussian
from sfumato.privacy.observers import Party
from sfumato.privacy.sampling import GaussianTerm, Sampling
from sfumato.privacy.tree.facts import AggregationFacts
from sfumato.run_folder.reader import write_ledger
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import load_spec

PUBLIC, CLOUD = Party("public"), Party("node", 0, 0)
DELTA = 1e-5


def edge(i):
    return Party("node", 1, i)


def device(j):
    return Party("device", 0, j)


def squares(exposure):
    """mu^2 of a round, release by release."""
    return [
        (r.own_sensitivity + r.propagated_sensitivity) ** 2 / r.variance if r.variance else math.inf
        for r in exposure.releases
    ]


def step(name, tier, device_std, *node_std, bound=1.0, fresh=None):
    leaves = len(device_std)
    return AggregationFacts(
        name,
        tier,
        np.full(leaves, bound),
        np.array(device_std, dtype=float),
        tuple(np.array(s, dtype=float) for s in node_std),
        np.zeros(leaves, dtype=bool) if fresh is None else np.array(fresh),
    )


def two_edges(**options):
    """Two devices an edge. Trusted edge 0 adds 1/2 to its average; under edge 1 every device adds 1."""
    steps = [step(n, t, [0.0, 1.0], [0.0], [0.5, 0.0]) for n, t in (("edge", 1), ("global", 0))]
    return make_ledger([[2], [2, 2]], steps, **options)


def row(spec, unit, observer):
    (found,) = account(spec, unit=unit, observer=observer).guarantees
    return found


# --- views, by hand ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "coalition", "edge_step", "global_step"),
    [
        # under the untrusted edge; an edge average has variance 2/4, the global one (1/4 + 1/2)/4 = 3/16
        (2, [edge(1)], 1.0, 1.0),
        (2, [CLOUD], 0.5, 0.5),
        (2, [PUBLIC], 0.5, (1 / 16) / (3 / 16)),
        (2, [device(0)], 0.5, (1 / 16) / (3 / 16)),
        (2, [device(3)], 1.0, (1 / 16) / (3 / 16 - 1 / 16)),
        (2, [CLOUD, device(3)], 1.0, 1.0),
        (2, [edge(0)], 0.5, (1 / 16) / (3 / 16 - 1 / 16)),
        (2, [edge(0), device(0), device(1), device(3)], 1.0, 1.0),
        (2, [edge(1), CLOUD, edge(0)], 1.0, 1.0),
        # under the trusted one
        (0, [edge(0)], math.inf, math.inf),
        (0, [CLOUD], 1.0, 1.0),
        (0, [PUBLIC], 1.0, (1 / 16) / (3 / 16)),
        (0, [device(1)], 1.0, (1 / 16) / (3 / 16)),
        (0, [edge(1)], 1.0, (1 / 16) / (3 / 16 - 1 / 8)),
        (0, [device(2)], 1.0, (1 / 16) / (3 / 16 - 1 / 16)),
        (0, [device(2), device(3)], 1.0, (1 / 16) / (3 / 16 - 1 / 8)),
        (0, [device(2), edge(1)], 1.0, (1 / 16) / (3 / 16 - 1 / 8)),
    ],
)
def test_flow_charges_of_two_edges(unit, coalition, edge_step, global_step):
    flow, _ = two_edges().exposures(unit, coalition)
    assert squares(flow) == pytest.approx([edge_step, global_step])


def test_all_others_together_leave_only_the_units_own_noise():
    """Local privacy is what remains when everybody else conspires."""
    everybody = [CLOUD, edge(0), edge(1), device(0), device(1), device(3)]
    flow, cut = two_edges().exposures(2, everybody)
    assert squares(flow) == squares(cut) == [1.0, 1.0]
    assert squares(two_edges().exposures(0, [CLOUD, edge(1), device(1), device(2), device(3)])[0]) == [
        1.0,
        1.0,
    ]


def test_a_coalition_counts_everybody_once():
    twice = two_edges().exposures(2, [device(3), device(3), device(3)])
    assert twice == two_edges().exposures(2, [device(3)])


def test_a_coalition_with_the_unit_is_refused():
    with pytest.raises(ValueError, match="must not contain the unit"):
        two_edges().exposures(2, [CLOUD, device(2)])


def test_cut_charges_what_hidden_averages_moved():
    """The cloud meets one sum of two pieces; the other device's second piece moves by twice its bound."""
    flow, cut = two_edges().exposures(2, [CLOUD])
    (seen,) = cut.releases
    assert (seen.own_sensitivity, seen.propagated_sensitivity, seen.variance) == (1.0, 2 * 0.5, 0.5)
    assert sum(squares(cut)) > sum(squares(flow))


def test_noise_of_a_hidden_average_is_no_shield():
    """Others started from it and may cancel it: x = S - model, within the clip, leaves the last noise alone.

    A leaf of two, hidden noise 1/6, last noise sqrt(1/1000). If the other device sends what takes the hidden
    noise off (it knows the model, and hardly ever needs more than its clip), a last piece of 1/2 of the unit
    stands before a variance of 1/1000 only: mu^2 = 250. Counting the hidden variance would claim 144.
    """
    steps = [
        step("edge", 1, [0.0], [0.0], [1 / 6]),
        step("global", 0, [0.0], [0.0], [math.sqrt(1e-3)]),
    ]
    ledger = make_ledger([[1], [2]], steps)
    _, cut = ledger.exposures(0, [CLOUD])
    attack = 0.5**2 / 1e-3
    assert sum(squares(cut)) >= attack > 2.0**2 / (1 / 36 + 1e-3)


def test_the_gap_of_the_flow_bound_is_noise_that_others_may_cancel():
    """Two edges of one device; only the other edge's hidden noise is large. The public meets the sum.

    Its variance of 9 would protect a contribution fixed beforehand (0.25 / (11 / 4) at the
    last step), but the device that starts from that average may cancel it.
    """
    steps = [
        step("edge", 1, [0.0, 0.0], [0.0], [1.0, 3.0]),
        step("global", 0, [0.0, 0.0], [0.0], [1.0, 1.0]),
    ]
    flow, _ = make_ledger([[2], [1, 1]], steps).exposures(0, [PUBLIC])
    assert squares(flow) == pytest.approx([1.0, 0.25 / 0.5])


def test_a_raw_last_message_is_unprotected_whatever_was_added_before():
    """The hidden edge average was noised, the global message is not: a model on a grid tells all."""
    steps = [step("edge", 1, [0.0], [0.0], [1.0]), step("global", 0, [0.0], [0.0], [0.0])]
    for exposure in make_ledger([[1], [2]], steps).exposures(0, [CLOUD]):
        assert math.isinf(bound_epsilon(exposure, delta=DELTA, neighbours="zero-out").epsilon)


# --- hidden aggregations, and who may be missing afterwards ----------------------------------------------


def with_dropouts(transport, owners, inner):
    """Two edges of five: noise of ``inner`` where they aggregate by themselves, then of 60 for the cloud."""
    return load_spec(
        {
            "name": "dropouts",
            "protocol": "h2fdp",
            "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 5},
            "data": {"source": "digits"},
            "model": {"kind": "softmax"},
            "trust": {"trusted_edges": 0.0 if "devices" in owners[0] else 1.0},
            "transport": transport,
            "faults": {"dropout_rate": 0.4},
            "training": {
                "rounds": 1,
                "steps_per_round": 2,
                "edge_every": 1,
                "batch_size": 10,
                "learning_rate": 0.1,
            },
            "privacy": {
                "clip": {"kind": "step", "norm": 1.0},
                "noise": {"sources": [{"owners": owners, "multipliers": [60.0, inner]}]},
            },
        }
    )


SECURE = {"devices_to_edge": "secure-aggregation"}


def test_a_zone_that_is_missing_at_the_last_step_sends_on_what_was_hidden_without_its_noise():
    """0.1 said .59: with a chance of .2 the cloud receives the raw sum of the first step."""
    report = account(with_dropouts(SECURE, ["edge:0", "edge:1"], 0.0), unit="device:0", observer="cloud")
    (row,) = report.guarantees
    assert {bound.epsilon for bound in row.bounds.values()} == {math.inf}


def test_a_device_that_drops_out_before_the_last_step_adds_no_noise_there():
    """0.1 said .59 by cut: the noise of 60 is that of the very message which is not sent."""
    owners = ["edge:0/devices", "edge:1/devices"]
    (row,) = account(with_dropouts({}, owners, 0.05), unit="device:0", observer="cloud").guarantees
    assert row.bounds["cut"].epsilon == math.inf
    assert row.bound == "flow"
    assert row.epsilon > 100


@pytest.mark.parametrize("fresh", [False, True])
def test_a_rounded_message_that_was_hidden_has_no_bound_even_of_the_unit_alone(fresh):
    """Given its noise, a rounded message moves by more than its bound; sent again, it is noised anew."""
    steps = [
        step("edge step", 1, [1.0], [0.0], [0.0]),
        step("global step", 0, [1.0], [0.0], [0.0], fresh=[fresh]),
    ]
    ledger = make_ledger([[1], [1]], steps, rounds_after_noise=True)
    _, cut = ledger.exposures(0, [PUBLIC])
    assert [math.isinf(r.propagated_sensitivity) for r in cut.releases] == [not fresh]


def test_without_dropouts_the_noise_of_the_last_step_is_there():
    spec = with_dropouts(SECURE, ["edge:0", "edge:1"], 0.0).model_copy(update={"faults": None})
    (row,) = account(spec, unit="device:0", observer="cloud").guarantees
    assert row.bound == "cut"
    assert row.epsilon < 1.5


@pytest.mark.parametrize("sends", [True, False])
def test_noise_of_aggregators_that_always_send_counts_whoever_drops_out(sends):
    """A cabinet's hidden average reaches the cloud through its region, which adds noise all the same."""
    steps = [
        step("cabinet step", 2, [0.0], [0.0], [0.0], [1.0]),
        step("global step", 0, [3.0], [0.0], [5.0], [2.0]),
    ]
    ledger = make_ledger(
        [[1], [1], [2]],
        steps,
        guaranteed_contributors=np.zeros(1, dtype=np.int64),
        all_nodes_always_send=sends,
    )
    _, cut = ledger.exposures(0, [CLOUD])
    (release,) = cut.releases
    region, cabinet = 5.0**2, 2.0**2
    assert release.variance == pytest.approx(region + cabinet if sends else region)


# --- the built-in specs, by hand ----------------------------------------------------------------------

# one round of three-tier.yaml: cabinets at 5 and 15, regions at 10, the cloud at 20; multipliers of 1
CABINET = 0.25  # (1/4)^2 of (4 noises of 1)/16
REGION = 1 / 9  # (1/12)^2 of (2 cabinets of 1/4)/9 + (1/12)^2 of the region for its trusted cabinet
THREE_TIER = {
    ("device:0", "cabinet:0"): 4.0,
    ("device:0", "region:0"): 4 * CABINET,
    ("device:0", "cloud"): 2 * CABINET + 2 * REGION,
    ("device:0", "region:1"): 2 * CABINET + REGION + (1 / 24**2) / (1 / 16 / 4),
    ("device:0", "device:1"): 2 * (1 / 16) / (3 / 16)
    + (1 / 144) / (1 / 16 - 1 / 144)
    + (1 / 576) / (1 / 64 + 1 / 48 - 1 / 576),
    ("device:0", "public"): 2 * CABINET + REGION + (1 / 576) / (1 / 64 + 1 / 48),
    ("device:4", "cloud"): 2 + 2 * REGION,
    ("device:4", "region:0"): math.inf,
    ("device:4", "cabinet:1"): math.inf,
    ("device:4", "device:0"): 2 + (1 / 144) / (1 / 16 - 1 / 144) + (1 / 576) / (1 / 64 + 1 / 48 - 1 / 576),
    ("device:12", "region:1"): 4 * CABINET,
    ("device:12", "cloud"): 2 * CABINET + 2 * (1 / 144) / (1 / 12),
}


@pytest.mark.parametrize(("unit", "observer"), THREE_TIER)
def test_three_tiers(unit, observer):
    """The global average has variance (1/16 + 1/12)/4: region 0 tops up, region 1's 12 devices all add 1."""
    found = row(load_spec("three-tier"), unit, observer)
    mu = math.sqrt(20 * THREE_TIER[unit, observer])
    assert found.bounds["flow"].epsilon == pytest.approx(gaussian.epsilon(delta=DELTA, mu=mu), rel=1e-9)
    assert found.bound == "flow"
    assert found.releases == 80


@pytest.mark.parametrize(
    ("observer", "who"),
    [("cabinet:1", "cabinet:1"), ("region:0", "region:0"), ("region:0,device:0", "region:0")],
)
def test_infinity_gives_its_reason(observer, who):
    found = row(load_spec("three-tier"), "device:4", observer)
    assert math.isinf(found.epsilon)
    assert found.to_dict()["epsilon"] == "inf"
    assert f"{who} is trusted with raw updates of device:4" in found.why


def test_without_noise_nothing_protects():
    report = account(load_spec("quickstart", ["privacy.noise=none"]))
    assert all(math.isinf(g.epsilon) and "nothing adds noise" in g.why for g in report.guarantees)


H9 = load_spec("h2fdp-fmnist", ["training.batch_size=60"])


@pytest.mark.parametrize(
    ("c2", "neighbours", "own", "cloud"),
    [
        (1.0, "zero-out", 4.6, 1.84),
        (math.sqrt(2), "zero-out", 3.1, 1.26),
        (2.0, "zero-out", 2.1, 0.86),
        (1.0, "replace", 10.5, 4.0),
        (math.sqrt(2), "replace", 6.9, 2.7),
        (2.0, "replace", 4.6, 1.8),
    ],
)
def test_h9(c2, neighbours, own, cloud):
    """Own untrusted edge; the cloud, at most that for the public; in trusted subnets peers and all."""
    overrides = ["training.batch_size=60", f"privacy.noise.c2={c2}", f"privacy.neighbours={neighbours}"]
    spec = load_spec("h2fdp-fmnist", overrides)
    report = account(spec)
    printed = 0.0051 if neighbours == "zero-out" else 0.051  # H9 rounds a slightly pessimistic grid
    untrusted = {g.relation.words: g for g in report.guarantees if g.unit == "device:0"}
    trusted = {g.relation.words: g for g in report.guarantees if g.unit == "device:5"}
    assert round(untrusted["own edge"].epsilon, 1) == own
    assert untrusted["cloud"].epsilon == pytest.approx(cloud, abs=printed)
    assert untrusted["public"].epsilon <= untrusted["cloud"].epsilon
    assert math.isinf(trusted["own edge"].epsilon)
    assert round(trusted["cloud"].epsilon, 1) == own
    assert max(trusted[who].epsilon for who in ("peer", "public")) <= trusted["cloud"].epsilon
    assert untrusted["cloud"].neighbours == neighbours


def test_the_spec_as_it_stands():
    spec = load_spec("h2fdp-fmnist")
    assert row(spec, "device:0", "edge:0").epsilon == pytest.approx(45.4, abs=0.05)
    assert row(spec, "device:0", "cloud").epsilon == pytest.approx(15.2, abs=0.05)


# --- resend (H5) -----------------------------------------------------------------------------------


def resend(std=1.0):
    """Five devices under a trusted edge, an edge aggregation every 5 steps, at 20 all again."""
    steps = [step(f"edge {k}", 1, [0.0], [0.0], [std], bound=5.0) for k in range(3)]
    return make_ledger([[1], [5]], [*steps, step("global", 0, [0.0], [0.0], [std], bound=20.0, fresh=[True])])


def test_resend_moves_the_global_message_by_28_not_8():
    flow, cut = resend().exposures(0, [CLOUD])
    (seen,) = cut.releases
    assert seen.own_sensitivity + seen.propagated_sensitivity == pytest.approx(28.0)
    assert seen.own_sensitivity == pytest.approx(20 / 5)
    # with flow the three edge releases are charged, and the last one holds the unit's whole round
    assert [r.own_sensitivity for r in flow.releases] == pytest.approx([1.0, 1.0, 1.0, 4.0])
    assert all(r.propagated_sensitivity == 0 for r in flow.releases)


def test_resend_by_the_spec_charges_the_edge_releases():
    found = row(load_spec("h2fdp-fmnist", ["training.global_step=resend"]), "device:5", "cloud")
    assert found.bounds["flow"].releases == 800
    assert found.bounds["cut"].releases == 200
    assert found.bound == "flow"


def test_who_sees_the_edge_averages_needs_no_replaced_neighbours():
    _, cut = resend().exposures(0, [device(1)])
    assert [r.own_sensitivity for r in cut.releases] == pytest.approx([1.0, 1.0, 1.0, 4.0])
    assert not any(r.propagated_sensitivity for r in cut.releases)


# --- classes of pairs -------------------------------------------------------------------------------


def everybody(ledger):
    nodes = [Party("node", t, i) for t, p in enumerate(ledger.parents) for i in range(len(p))]
    return [PUBLIC, *nodes, *(device(j) for j in range(ledger.device_count))]


def signature(ledger, unit, observer):
    """What the accountant will make of a pair, to nine digits."""
    shown = []
    for exposure in ledger.exposures(unit, (observer,)):
        draw = exposure.draws[0].sampling
        shown.append((draw.hidden, draw.population, draw.sample, draw.rate))
        shown += [float(f"{square:.9g}") for square in squares(exposure)]
        shown += [r.noise_is_draw_independent for r in exposure.releases]
    return tuple(shown)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ledgers())
def test_classes_add_up_to_all_pairs_and_are_alike(ledger):
    pairs = Counter(
        signature(ledger, unit, party)
        for unit in range(ledger.device_count)
        for party in everybody(ledger)
        if party != device(unit)
    )
    classes = Counter()
    for pair in ledger.pair_classes():
        classes[signature(ledger, pair.unit, pair.observer)] += pair.pair_count
    assert classes == pairs
    nodes = sum(len(parents) for parents in ledger.parents)
    assert classes.total() == ledger.device_count * (nodes + 1 + ledger.device_count - 1)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(ledgers(), st.data())
def test_classes_of_one_unit_are_its_pairs(ledger, data):
    unit = data.draw(st.integers(0, ledger.device_count - 1))
    pairs = Counter(signature(ledger, unit, party) for party in everybody(ledger) if party != device(unit))
    classes = Counter()
    for pair in ledger.pair_classes(unit):
        assert pair.unit == unit
        classes[signature(ledger, unit, pair.observer)] += pair.pair_count
    assert classes == pairs


# --- sampling ---------------------------------------------------------------------------------------

Q, T, Z = 0.05, 50, 2.0
POISSON = ["training.participation={kind: poisson, rate: 0.05}", f"privacy.noise.multiplier={Z}"]
STAR = ["protocol=pedpfl", "topology.devices=100", "data.source=digits"]


def curve(*terms, neighbours="zero-out"):
    return compose(terms, neighbours=neighbours).epsilon(DELTA)


def pld(count, *, rate=None):
    event = GaussianDpEvent(Z) if rate is None else PoissonSampledDpEvent(rate, GaussianDpEvent(Z))
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4)
    return accountant.compose(event, count).get_epsilon(DELTA)


def test_a_star_with_a_trusted_cloud_is_central_privacy():
    sampled = row(load_spec("dp-fedavg", POISSON), "device:0", "public")
    assert sampled.epsilon == pytest.approx(pld(T, rate=Q), rel=1e-3)
    assert sampled.method == "pld"
    every = load_spec("dp-fedavg", [POISSON[1], "training.participation=all"])
    assert row(every, "device:0", "public").epsilon == pytest.approx(pld(T), rel=1e-3)
    assert row(every, "device:0", "public").epsilon == pytest.approx(
        gaussian.epsilon(delta=DELTA, mu=math.sqrt(T) / Z), rel=1e-9
    )
    assert math.isinf(row(every, "device:0", "cloud").epsilon)


def test_a_star_with_an_untrusted_cloud_is_local_privacy():
    spec = load_spec("dp-fedavg", [*STAR, POISSON[1], "training.participation=all"])  # no trust in pedpfl
    local = gaussian.epsilon(delta=DELTA, mu=math.sqrt(T) / Z)
    assert row(spec, "device:0", "cloud").epsilon == pytest.approx(local, rel=1e-9)
    assert row(spec, "device:0", "public").epsilon == pytest.approx(
        gaussian.epsilon(delta=DELTA, mu=math.sqrt(T / 100) / Z), rel=1e-9
    )


def test_the_cloud_of_a_star_draws_and_gets_no_amplification():
    spec = load_spec("dp-fedavg", [*STAR, *POISSON])
    found = row(spec, "device:0", "cloud")
    seen = curve(GaussianTerm(Z, T, Sampling.revealed(Q)))
    amplified = curve(GaussianTerm(Z, T, Sampling.poisson(Q)))
    assert found.epsilon == pytest.approx(seen, rel=1e-9)
    assert found.epsilon > 1.5 * amplified
    assert "not amplified" in found.why
    fixed = load_spec("dp-fedavg", [*STAR, POISSON[1], "training.participation={kind: fixed, count: 5}"])
    assert row(fixed, "device:0", "cloud").epsilon == pytest.approx(seen, rel=1e-9)


def test_noise_that_only_drawn_devices_add_does_not_amplify():
    """The public is blind, but the unit's noise comes and goes with it: what is there of others' is told."""
    plan = resolve(load_spec("dp-fedavg", [*STAR, *POISSON]))
    (charge,) = ways_to_charge(plan.releases.exposures(0, [PUBLIC])[0], "zero-out")
    (term,) = charge.terms
    assert (term.sampling.kind, term.sampling.hidden, term.sampling.rate) == ("poisson", False, Q)
    assert term.sampling.scales
    found = bound_epsilon(plan.releases.exposures(0, [PUBLIC])[0], delta=DELTA, neighbours="zero-out").epsilon
    assert found < curve(GaussianTerm(Z, T, Sampling.revealed(Q)))


def two_edges_poisson():
    return two_edges(kind="poisson", rate=0.5, participants=[1.0, 1.0], rounds=10)


def test_a_tree_amplifies_for_who_is_blind_behind_standing_noise():
    ledger = two_edges_poisson()  # one expected participant an edge: weight 1, edge noise 1/2
    flow, _ = ledger.exposures(0, [CLOUD])
    (charge,) = ways_to_charge(flow, "zero-out")
    (term,) = charge.terms
    assert term.sampling == Sampling.poisson(0.5)  # edges draw; the cloud is not told
    assert term.multiplier == pytest.approx(0.5 / math.sqrt(2))  # one draw, two releases of multiplier 1/2
    assert term.count == 10
    (own,) = ways_to_charge(ledger.exposures(0, [edge(0)])[0], "zero-out")[0].terms
    assert own.sampling == Sampling.revealed(0.5)
    assert own.multiplier == 0.0
    (untrusted,) = ways_to_charge(ledger.exposures(2, [CLOUD])[0], "zero-out")[0].terms
    assert (untrusted.sampling.kind, untrusted.sampling.hidden) == ("poisson", False)  # its own noise tells
    assert [tuple(found) for found in untrusted.sampling.scales] == [
        pytest.approx(pair) for pair in ((0.5, 0.5**0.5), (0.5, 1.0))
    ]
    (with_edge,) = ways_to_charge(ledger.exposures(0, [PUBLIC, edge(1)])[0], "zero-out")[0].terms
    assert with_edge.sampling == Sampling.poisson(0.5)  # another edge's draw is another draw


def test_replaced_neighbours_are_not_amplified_under_poisson():
    ledger = two_edges_poisson()
    flow, cut = ledger.exposures(0, [CLOUD])
    (term,) = ways_to_charge(flow, "replace")[0].terms
    assert term.sampling == Sampling.poisson(0.5, apart=0.5)  # the unit itself; both worlds may leave it out
    for relation in ("zero-out", "replace"):
        (term,) = ways_to_charge(cut, relation)[0].terms
        assert term.sampling == Sampling.revealed(0.5)
    (release,) = cut.releases
    # up to 2 devices may come where 1 is expected: the other one moves by 2 * 1 * 1
    assert (release.own_sensitivity, release.propagated_sensitivity) == (2.0, 2.0)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(ledgers(kinds=("poisson",)), st.data())
def test_the_public_never_learns_more_than_the_cloud(ledger, data):
    """It sees a function of what the cloud sees, whoever is amplified."""
    unit = data.draw(st.integers(0, ledger.device_count - 1))

    def epsilon(observer):
        def charged(way):
            terms = [GaussianTerm(max(t.multiplier, 1e-3), t.count, t.sampling) for t in way.terms]
            left = 1e-3 - way.failure_probability
            return compose(terms, neighbours=way.neighbours).epsilon(left) if left > 0 else math.inf

        flow = ledger.exposures(unit, [observer])[0]
        return min(charged(way) for way in ways_to_charge(flow, "zero-out"))

    assert epsilon(PUBLIC) <= epsilon(CLOUD) * (1 + 1e-3)


def fixed_star(count, devices, *, rounds=20, trusted=True):
    std = 1.0 / count
    facts = step("global", 0, [0.0 if trusted else 1.0], [std if trusted else 0.0])
    return make_ledger(
        [[devices]], [facts], kind="fixed", rate=count / devices, participants=[count], rounds=rounds
    )


def test_a_fixed_draw_amplifies_under_the_relation_asked_for():
    """Zeros are one sensitivity from the message of a device in the unit's place, and the unit's own two."""
    ledger = fixed_star(10, 1000)
    flow, _ = ledger.exposures(0, [PUBLIC])
    for relation, multiplier, apart in (("zero-out", 1.0, (2.0, 1.0)), ("replace", 0.5, (1.0, 1.0))):
        seen, amplified = ways_to_charge(flow, relation)
        assert (seen.neighbours, amplified.neighbours) == (relation, relation)
        drawn = GaussianTerm(multiplier, 20, Sampling.without_replacement(1000, 10, apart))
        assert amplified.terms == (drawn,)
        assert seen.terms == (GaussianTerm(multiplier, 20, Sampling.revealed(0.01)),)
        found = bound_epsilon(flow, delta=1e-3, neighbours=relation)
        ways = curve_at(drawn, 1e-3, relation), curve_at(seen.terms[0], 1e-3, relation)
        assert found.epsilon == min(ways) == ways[0]
    (only,) = ways_to_charge(ledger.exposures(0, [CLOUD])[0], "zero-out")
    assert only.terms[0].sampling == Sampling.revealed(0.01)


def curve_at(term, delta, neighbours):
    return compose([term], neighbours=neighbours).epsilon(delta)


def test_members_know_they_were_not_drawn():
    flow, _ = fixed_star(10, 1000).exposures(0, [device(1), device(2), PUBLIC])
    amplified = ways_to_charge(flow, "replace")[1]
    assert amplified.terms[0].sampling == Sampling.without_replacement(998, 10)


def test_members_may_fill_the_cohort_but_never_the_units_place():
    """Of two drawn one is the unit: three peers can know one noise at most, and the unit's own remains."""
    ledger = fixed_star(2, 5, trusted=False)
    flow, _ = ledger.exposures(0, [device(1), device(2), device(3)])
    (release,) = flow.releases
    assert release.variance == pytest.approx(1.0 / 4)  # of 2/4 in all
    assert release.own_sensitivity == 0.5
    sampling = flow.draws[0].sampling
    assert sampling.population == sampling.sample == 2  # drawn for sure, if no member was
    assert math.isfinite(bound_epsilon(flow, delta=DELTA, neighbours="zero-out").epsilon)
    (release,) = ledger.exposures(0, [device(1)])[0].releases
    assert release.variance == pytest.approx(1.0 / 4)
    crowded = fixed_star(4, 5, trusted=False).exposures(0, [device(1), device(2), device(3)])[0]
    assert crowded.releases[0].variance == pytest.approx(1.0 / 16)
    assert bound_epsilon(crowded, delta=DELTA, neighbours="replace").epsilon > 0


def test_unequal_edges_have_draws_of_their_own():
    steps = [step("global", 0, [0.0, 0.0], [0.0], [1.0, 1.0])]
    ledger = make_ledger([[2], [2, 8]], steps, kind="fixed", rate=0.5, participants=[1.0, 1.0])
    assert [ledger.exposures(u, [PUBLIC])[0].draws[0].sampling.rate for u in (0, 2)] == [0.5, 0.125]


def test_no_noise_under_sampling_is_infinite():
    steps = [step("global", 0, [0.0], [0.0])]
    for options in ({"kind": "poisson", "rate": 1e-3}, {"kind": "fixed", "rate": 0.1, "participants": [1.0]}):
        ledger = make_ledger([[10]], steps, rounds=1, **options)
        for observer in (PUBLIC, CLOUD, device(3)):
            for exposure in ledger.exposures(0, [observer]):
                assert math.isinf(bound_epsilon(exposure, delta=1e-2, neighbours="zero-out").epsilon)


# --- ledger.json ------------------------------------------------------------------------------------


def test_ledger_json_holds_the_facts():
    facts = json.loads(json.dumps(two_edges(rounds=7).to_dict()))
    assert facts["rounds"] == 7
    assert [tier["parents"] for tier in facts["tiers"]] == [[-1], [0, 0]]
    assert facts["steps"][0]["device_noise_std_per_leaf"] == [0.0, 1.0]
    assert facts["steps"][0]["node_noise_std"] == [[0.0], [0.5, 0.0]]
    assert [s["aggregating_tier"] for s in facts["steps"]] == [1, 0]


@pytest.mark.parametrize("edge_number", [0, 1])
def test_the_snippet_of_the_documentation_recomputes_a_row(edge_number, tmp_path):
    """Edge 0's devices add noise themselves, edge 1 adds its own: scipy and ledger.json give our epsilon."""
    text = (ROOT / "docs" / "accounting.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len([line for line in snippet.splitlines() if line.strip()]) <= 15
    plan = resolve(load_spec("h2fdp-fmnist"))
    write_ledger(tmp_path, plan.releases.to_dict(), {})
    script = tmp_path / "recompute.py"
    script.write_text(snippet, encoding="utf-8")
    command = [sys.executable, "-I", str(script), str(tmp_path / "ledger.json"), str(edge_number)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    unit = f"device:{5 * edge_number}"
    assert float(printed) == pytest.approx(row(plan.spec, unit, "cloud").epsilon, rel=1e-8)


@settings(max_examples=60)
@given(st.data())
def test_fewer_rounds_are_those_of_a_declaration_of_so_many(data):
    """`after` takes a round's releases from the whole; a declaration of its own finds the same."""
    ledger = data.draw(ledgers())
    ledger = replace(ledger, searched_under=data.draw(st.sampled_from([None, "zero-out", "replace"])))
    rounds = data.draw(st.integers(1, 9))
    unit, observer = 0, data.draw(st.sampled_from([PUBLIC, CLOUD]))
    fewer, own = ledger.after(rounds), replace(ledger, rounds=rounds)
    for one, other in zip(fewer.exposures(unit, [observer]), own.exposures(unit, [observer]), strict=True):
        if one.bound_name == "min-cost":  # of sets that cost the same, rounding may choose another
            assert {draw.count for draw in one.draws} == {draw.count for draw in other.draws}
            assert sum(squares(one)) == pytest.approx(sum(squares(other)), rel=1e-9)
        else:
            assert one == other
    assert fewer.record_releases(unit, [observer]) == own.record_releases(unit, [observer])
    shared = [ledger.exposures(unit, [observer]), fewer.exposures(unit, [observer])]
    alike = [[one.draws is other.draws for one in found for other in found] for found in shared]
    assert alike[0] == alike[1]  # bounds that charge the same are still told
