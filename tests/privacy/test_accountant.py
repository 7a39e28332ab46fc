"""The contract every composition keeps, golden values, and figures of docs/errata.md (P1, P2, P8)."""

import json
import math
import subprocess
import sys

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from places import TESTS
from scipy import stats

from sfumato.privacy.accountant import compose
from sfumato.privacy.losses import gaussian
from sfumato.privacy.noise_scale import calibrate_scale
from sfumato.privacy.sampling import GaussianTerm, Sampling

GOLDEN = json.loads((TESTS / "golden" / "accounting.json").read_text())
DELTA = GOLDEN["delta"]

# PFELS, section 5: multiplier of a round at the published β = ε/C2, σ0 / (β C1 η τ), towards zero-out.
PFELS = 2 * math.sqrt(2) * 0.032 * math.sqrt(math.log(1.25 * 0.032 / 1e-3)) / 1.5

# One of every kind: (sampling, neighbours)
KINDS = {
    "unsampled": (None, "zero-out"),
    "seen": (Sampling.revealed(0.2), "zero-out"),
    "poisson": (Sampling.poisson(0.2), "zero-out"),
    "fixed-size": (Sampling.without_replacement(50, 5), "replace"),
    "fixed-size, zeroed out": (Sampling.without_replacement(50, 5, (2.0, 1.0)), "zero-out"),
}
each_kind = pytest.mark.parametrize(("sampling", "neighbours"), KINDS.values(), ids=KINDS)


def epsilon(*terms, neighbours="zero-out", delta=DELTA):
    return compose(terms, neighbours=neighbours).epsilon(delta)


def rdp_epsilon(event, count, relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE):
    return RdpAccountant(neighboring_relation=relation).compose(event, count).get_epsilon(DELTA)


# Golden values


@pytest.mark.parametrize("row", GOLDEN["gaussian"], ids=str)
def test_golden_gaussian(row):
    curve = compose([GaussianTerm(row["sigma"], row["n"])], neighbours="zero-out")
    assert curve.method == "gdp"
    assert curve.epsilon(DELTA) == pytest.approx(row["gdp"], abs=6e-5)
    event = dp_accounting.GaussianDpEvent(row["sigma"])
    central = PLDAccountant(value_discretization_interval=1e-3).compose(event, row["n"]).get_epsilon(DELTA)
    assert central == pytest.approx(row["pld"], abs=6e-5)
    assert curve.epsilon(DELTA) == pytest.approx(central, rel=1e-4)
    assert rdp_epsilon(event, row["n"]) == pytest.approx(row["rdp"], abs=6e-5)


@pytest.mark.parametrize("row", GOLDEN["sampled_gaussian"], ids=str)
def test_golden_sampled_gaussian(row):
    curve = compose([GaussianTerm(row["sigma"], row["n"], Sampling.poisson(row["q"]))], neighbours="zero-out")
    assert curve.method == "pld"
    assert curve.smallest(DELTA)[1] == "pld"
    assert curve.epsilon(DELTA) == pytest.approx(row["pld"], abs=6e-5)
    event = dp_accounting.PoissonSampledDpEvent(row["q"], dp_accounting.GaussianDpEvent(row["sigma"]))
    assert rdp_epsilon(event, row["n"]) == pytest.approx(row["rdp"], abs=6e-5)


@pytest.mark.parametrize(
    "row", GOLDEN["dp_ogl_ring_N100_M4_S10_sigma2_pi0.7_t200"], ids=lambda row: row["pair"]
)
def test_golden_ring(row):
    assert epsilon(GaussianTerm(2, row["releases"], Sampling.poisson(0.7))) == pytest.approx(
        row["pld"], abs=6e-4
    )


def test_golden_rdp_of_order_two():
    row = GOLDEN["r2_closed_form"]
    q, sigma = row["q"], row["sigma"]
    assert math.log1p(q * q * math.expm1(1 / sigma**2)) == pytest.approx(row["rdp"], rel=1e-12)
    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
    assert RdpAccountant([2]).compose(event).rdp[0] == pytest.approx(row["rdp"], rel=1e-12)


# Figures of docs/errata.md


def test_pfels_one_round():
    assert epsilon(GaussianTerm(PFELS), delta=1e-3) == pytest.approx(63.0, abs=0.05)
    assert epsilon(GaussianTerm(PFELS, 1, Sampling.poisson(0.032)), delta=1e-3) == pytest.approx(49, abs=0.05)


def test_pfels_total_for_a_blind_third_party():
    curve = compose([GaussianTerm(PFELS, 2000, Sampling.poisson(0.032))], neighbours="zero-out")
    assert curve.epsilon(1e-3) == pytest.approx(2999, rel=1e-3)
    assert curve.smallest(1e-3)[1] == "pld"
    assert 1e-2 < curve.discretization < 0.1
    assert curve.releases == 2000
    assert curve.gdp_mu is None


def test_pfels_total_for_the_server():
    assert epsilon(GaussianTerm(PFELS, 2000, Sampling.revealed(0.032)), delta=1e-3) == pytest.approx(
        3365, abs=0.5
    )
    assert epsilon(GaussianTerm(PFELS, 64), delta=1e-3) == pytest.approx(2595, abs=0.5)


@pytest.mark.parametrize("multiplier", [1e-6, 1.0, 100.0])
def test_pfels_needed_multiplier(multiplier):
    terms = [GaussianTerm(multiplier, 2000, Sampling.poisson(0.032))]
    scale = calibrate_scale(terms, target_epsilon=1.5, delta=1e-3, neighbours="zero-out")
    assert scale * multiplier == pytest.approx(2.74, abs=0.005)


# The contract


@each_kind
def test_one_term_of_n_is_n_terms_of_one(sampling, neighbours):
    together = compose(
        [GaussianTerm(2.0, 6, sampling), GaussianTerm(3.0, 1, sampling)], neighbours=neighbours
    )
    apart = compose(
        [GaussianTerm(2.0, 2, sampling), GaussianTerm(3.0, 1, sampling), GaussianTerm(2.0, 4, sampling)],
        neighbours=neighbours,
    )
    assert together.epsilon(DELTA) == apart.epsilon(DELTA)
    assert together.releases == apart.releases == 7


@each_kind
def test_epsilon_and_delta_are_inverse(sampling, neighbours):
    curve = compose([GaussianTerm(2.0, 20, sampling)], neighbours=neighbours)
    for delta in (1e-8, 1e-5, 1e-2):
        back = curve.delta(curve.epsilon(delta))
        assert back == pytest.approx(delta, rel=1e-6) or (curve.epsilon(delta) == 0 and back <= delta)


@each_kind
@pytest.mark.usefixtures("coarse_losses")
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    multiplier=st.floats(0.3, 20),
    count=st.integers(1, 300),
    more=st.floats(1.05, 3),
)
def test_less_for_more_noise_and_more_for_more_releases(sampling, neighbours, multiplier, count, more):
    here = epsilon(GaussianTerm(multiplier, count, sampling), neighbours=neighbours)
    quieter = epsilon(GaussianTerm(multiplier * more, count, sampling), neighbours=neighbours)
    longer = epsilon(
        GaussianTerm(multiplier, count + math.ceil(count * (more - 1)), sampling), neighbours=neighbours
    )
    assert quieter <= here <= longer
    assert here <= epsilon(GaussianTerm(multiplier, count), neighbours=neighbours) * (1 + 1e-12)


@each_kind
def test_no_noise_is_no_protection(sampling, neighbours):
    terms = [GaussianTerm(0.0, 1, sampling), GaussianTerm(5.0, 3)]
    curve = compose(terms, neighbours=neighbours)
    assert curve.epsilon(0.5) == math.inf
    assert curve.delta(1e9) == 1
    assert calibrate_scale(terms, target_epsilon=1.0, delta=DELTA, neighbours=neighbours) == math.inf


def test_what_tells_nothing_costs_nothing():
    silent = [
        GaussianTerm(math.inf, 5),
        GaussianTerm(1.0, 0),
        GaussianTerm(0.0, 5, Sampling.poisson(0)),
        GaussianTerm(0.0, 5, Sampling.without_replacement(5, 0)),
    ]
    for neighbours in ("zero-out", "replace"):
        curve = compose(silent, neighbours=neighbours)
        assert (curve.epsilon(1e-15), curve.delta(0.0), curve.releases, curve.gdp_mu) == (0, 0, 0, 0)
        assert calibrate_scale(silent, target_epsilon=1.0, delta=DELTA, neighbours=neighbours) == 0


def test_certain_draws_are_unsampled():
    for sampling in (Sampling.poisson(1.0), Sampling.revealed(1.0), Sampling.without_replacement(7, 7)):
        for neighbours in ("zero-out", "replace"):
            curve = compose([GaussianTerm(2.0, 9, sampling)], neighbours=neighbours)
            assert curve.gdp_mu == pytest.approx(1.5)
            assert curve.method == "gdp"


@given(multipliers=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5), count=st.integers(1, 1000))
def test_squares_of_mu_add(multipliers, count):
    curve = compose([GaussianTerm(multiplier, count) for multiplier in multipliers], neighbours="replace")
    assert curve.gdp_mu == pytest.approx(math.sqrt(sum(count / m**2 for m in multipliers)), rel=1e-12)
    assert curve.epsilon(DELTA) == gaussian.epsilon(delta=DELTA, mu=curve.gdp_mu)


def test_extremes():
    assert epsilon(GaussianTerm(1e-200)) == math.inf
    assert epsilon(GaussianTerm(1e6), delta=1e-15) == gaussian.epsilon(delta=1e-15, mu=1e-6)
    assert epsilon(GaussianTerm(1e-4), delta=1e-15) == pytest.approx(5e7, rel=0.01)
    loud = compose([GaussianTerm(1e-4, 10, Sampling.poisson(0.5))], neighbours="zero-out")
    assert loud.method == "gdp"  # an ε of 1e8 is not refined
    assert loud.epsilon(DELTA) <= epsilon(GaussianTerm(1e-4, 10))
    rare = compose([GaussianTerm(0.01, 1, Sampling.poisson(1e-6))], neighbours="zero-out")
    assert rare.epsilon(DELTA) == 0
    assert 5000 < rare.epsilon(1e-7) <= epsilon(GaussianTerm(0.01, 1, Sampling.revealed(1e-6)), delta=1e-7)


# The mixture of draws that are seen


def test_seen_draws_are_the_binomial_mixture():
    rounds, rate, multiplier = 40, 0.3, 3.0
    curve = compose([GaussianTerm(multiplier, rounds, Sampling.revealed(rate))], neighbours="zero-out")
    times = np.arange(rounds + 1)
    chances = stats.binom.pmf(times, rounds, rate)
    for at in (0.0, 0.5, 2.0, 5.0):
        expected = chances @ gaussian.delta(epsilon=at, mu=np.sqrt(times) / multiplier)
        assert curve.delta(at) == pytest.approx(expected, rel=1e-9)
    assert curve.method == "gdp"


def test_seen_draws_compose_with_each_other_and_with_unsampled_releases():
    curve = compose(
        [
            GaussianTerm(2.0, 3, Sampling.revealed(0.5)),
            GaussianTerm(1.0, 2, Sampling.revealed(0.1)),
            GaussianTerm(4.0, 5),
        ],
        neighbours="replace",
    )
    expected = sum(
        stats.binom.pmf(j, 3, 0.5)
        * stats.binom.pmf(k, 2, 0.1)
        * gaussian.delta(epsilon=1.0, mu=math.sqrt(j / 4 + k + 5 / 16))
        for j in range(4)
        for k in range(3)
    )
    assert curve.delta(1.0) == pytest.approx(expected, rel=1e-12)


def test_many_seen_draws_are_bounded_from_above_and_closely():
    terms = [
        GaussianTerm(2.0, 5000, Sampling.revealed(0.1)),
        GaussianTerm(2.0 + 1e-9, 5000, Sampling.revealed(0.1)),
        GaussianTerm(2.0, 300, Sampling.revealed(0.6)),
    ]
    bound = epsilon(*terms)
    exact = epsilon(
        GaussianTerm(2.0, 10000, Sampling.revealed(0.1)), GaussianTerm(2.0, 300, Sampling.revealed(0.6))
    )
    assert exact * (1 - 1e-6) <= bound <= exact * 1.001


def test_seen_draws_as_a_privacy_loss_distribution_are_the_mixture():
    # a Poisson draw that tells next to nothing moves the seen draws from the mixture to the other method
    terms = [GaussianTerm(3.0, 50, Sampling.revealed(0.3)), GaussianTerm(2.0, 10)]
    curve = compose([*terms, GaussianTerm(1e4, 1, Sampling.poisson(0.5))], neighbours="zero-out")
    loss, revealed = curve._bounds
    assert loss.epsilon(DELTA) == pytest.approx(revealed.epsilon(DELTA), rel=1e-3)


# Draws that are hidden


def test_poisson_is_the_central_accountant():
    event = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1.1))
    central = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    central.compose(event, 500).compose(dp_accounting.GaussianDpEvent(4.0), 3)
    curve = compose(
        [GaussianTerm(1.1, 500, Sampling.poisson(0.05)), GaussianTerm(4.0, 3)], neighbours="zero-out"
    )
    assert curve.epsilon(DELTA) == pytest.approx(central.get_epsilon(DELTA), rel=1e-4)
    assert curve.delta(2.0) == pytest.approx(central.get_delta(2.0), rel=1e-3)


@pytest.mark.parametrize(
    ("devices", "drawn", "multiplier", "rounds", "replace", "zero_out"),
    [(100, 10, 1.0, 50, 5.54, 3.20), (3383, 100, 1.0, 200, 3.11, 1.90), (1000, 30, 2.0, 100, 0.69, 0.356)],
)
def test_fixed_size_is_below_the_renyi_bound_of_the_library(
    devices, drawn, multiplier, rounds, replace, zero_out
):
    """Multipliers over the replace-one sensitivity; zeroing out moves half as far."""
    event = dp_accounting.SampledWithoutReplacementDpEvent(
        devices, drawn, dp_accounting.GaussianDpEvent(multiplier)
    )
    by_renyi = rdp_epsilon(event, rounds, dp_accounting.NeighboringRelation.REPLACE_ONE)
    replaced = GaussianTerm(multiplier, rounds, Sampling.without_replacement(devices, drawn))
    zeroed = GaussianTerm(2 * multiplier, rounds, Sampling.without_replacement(devices, drawn, (2.0, 1.0)))
    curve = compose([replaced], neighbours="replace")
    assert curve.method == curve.smallest(DELTA)[1] == "pld"
    assert curve.epsilon(DELTA) == pytest.approx(replace, abs=6e-3)
    assert epsilon(zeroed) == pytest.approx(zero_out, abs=6e-3)
    assert epsilon(zeroed) < curve.epsilon(DELTA) < by_renyi


def test_fixed_size_of_messages_far_apart_is_no_more_than_the_draw_that_is_seen():
    rounds, rate = 2000, 32 / 1000
    term = GaussianTerm(PFELS, rounds, Sampling.without_replacement(1000, 32, (2.0, 1.0)))
    seen = epsilon(GaussianTerm(PFELS, rounds, Sampling.revealed(rate)), delta=1e-3)
    assert compose([term], neighbours="zero-out").epsilon(1e-3) <= seen * (1 + 1e-9)


def test_fixed_size_composes_with_all_that_replace_allows():
    terms = [
        GaussianTerm(4.0, 50, Sampling.without_replacement(100, 5)),
        GaussianTerm(6.0, 20),
        GaussianTerm(5.0, 30, Sampling.revealed(0.05)),
    ]
    whole = compose(terms, neighbours="replace")
    assert whole.smallest(DELTA)[1] == "pld"
    assert whole.epsilon(DELTA) > max(epsilon(term, neighbours="replace") for term in terms)
    unamplified = [GaussianTerm(term.multiplier, term.count) for term in terms]
    assert whole.epsilon(DELTA) < epsilon(*unamplified, neighbours="replace")


@pytest.mark.usefixtures("coarse_losses")
@pytest.mark.parametrize(
    ("kind", "neighbours"),
    [(Sampling.poisson(0.1), "zero-out"), (Sampling.without_replacement(100, 10), "replace")],
)
def test_many_multipliers_are_bounded_by_their_worst_and_closely(kind, neighbours):
    terms = [GaussianTerm(2 + i / 500, 1, kind) for i in range(100)]
    bound = epsilon(*terms, neighbours=neighbours)
    average = epsilon(GaussianTerm(2.099, 100, kind), neighbours=neighbours)
    assert average < bound < epsilon(GaussianTerm(2, 100, kind), neighbours=neighbours)


def test_a_hidden_draw_of_a_fixed_number_is_refused_under_remove():
    with pytest.raises(
        ValueError,
        match=r"sampling without replacement with neighbours 'remove'; must be charged unamplified",
    ):
        compose([GaussianTerm(1.0, 1, Sampling.without_replacement(5, 2))], neighbours="remove")


# Calibration


@each_kind
@pytest.mark.usefixtures("coarse_losses")
@pytest.mark.parametrize("target", [0.5, 20.0])
def test_calibration_meets_the_target_from_below(sampling, neighbours, target):
    terms = [GaussianTerm(0.7, 30, sampling), GaussianTerm(3.0, 10)]
    scale = calibrate_scale(terms, target_epsilon=target, delta=DELTA, neighbours=neighbours)

    def spent(factor):
        scaled = [GaussianTerm(term.multiplier * factor, term.count, term.sampling) for term in terms]
        return epsilon(*scaled, neighbours=neighbours)

    assert spent(scale) <= target < spent(scale / (1 + 2e-4))


def test_draws_rarer_than_delta_need_no_noise():
    terms = [GaussianTerm(1.0, 10, Sampling.revealed(1e-7))]
    assert calibrate_scale(terms, target_epsilon=0.1, delta=DELTA, neighbours="zero-out") == 0
    assert calibrate_scale(terms, target_epsilon=0.1, delta=1e-7, neighbours="zero-out") > 0


# What is wrong, and what is not imported


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GaussianTerm(-1.0), "multiplier: got -1.0; must be >= 0"),
        (lambda: GaussianTerm(math.nan), "multiplier: got nan"),
        (lambda: GaussianTerm(1.0, -1), "count: got -1; must be >= 0"),
        (lambda: Sampling.poisson(1.5), r"rate: got 1.5; must be in \[0, 1\]"),
        (lambda: Sampling.revealed(math.nan), "rate: got nan"),
        (lambda: Sampling.without_replacement(0, 0), "population: got 0; must be at least 1"),
        (lambda: Sampling.without_replacement(5, 6), r"sample: got 6; must be in 0..5"),
        (lambda: Sampling.without_replacement(5, 2, (2.0, 0.0)), r"apart: got \(2.0, 0.0\); must be > 0"),
        (lambda: compose([], neighbours="swap"), "neighbours: got 'swap'"),
        (lambda: compose([], neighbours="replace").epsilon(0.0), r"delta: got 0.0; must be in \(0, 1\)"),
        (lambda: compose([], neighbours="replace").delta(-1.0), "epsilon: got -1.0; must be >= 0"),
        (
            lambda: calibrate_scale([GaussianTerm(1.0)], target_epsilon=0.0, delta=0.1, neighbours="replace"),
            "target_epsilon: got 0.0; must be > 0 and finite",
        ),
        (
            lambda: calibrate_scale([GaussianTerm(1.0)], target_epsilon=1.0, delta=1.0, neighbours="replace"),
            "delta: got 1.0",
        ),
    ],
)
def test_what_is_out_of_range_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_unsampled_releases_load_little():
    program = (
        "import sys; from sfumato.privacy.accountant import compose\n"
        "from sfumato.privacy.sampling import Sampling\n"
        "from sfumato.privacy.sampling import GaussianTerm\n"
        "from sfumato.privacy.noise_scale import calibrate_scale\n"
        "assert 'scipy' not in sys.modules\n"
        "terms = [GaussianTerm(1.0, 5), GaussianTerm(2.0, 9, Sampling.revealed(0.2))]\n"
        "compose(terms, neighbours='replace').epsilon(1e-5)\n"
        "calibrate_scale([GaussianTerm(1.0)], target_epsilon=1.0, delta=1e-5, neighbours='zero-out')\n"
        "assert not {'dp_accounting', 'scipy.stats', 'scipy.optimize', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)


def test_delta_below_the_probability_of_draws_that_are_left_out_is_no_guarantee():
    """Draws beyond the values kept are charged as no protection: here 2.1e-38 of them, with delta 1e-40."""
    curve = compose([GaussianTerm(0.01, 10, Sampling.revealed(1e-10))], neighbours="zero-out")
    assert curve.delta(1e9) > 1e-40
    assert curve.epsilon(1e-40) == math.inf
    assert math.isfinite(curve.epsilon(1e-30))


@pytest.mark.parametrize("delta", [1e-45, 1e-38, 1e-30, 1e-12, 1e-5])
@pytest.mark.parametrize("rate", [1e-10, 1e-3, 0.3])
def test_epsilon_and_delta_of_draws_that_are_seen_agree(rate, delta):
    curve = compose(
        [GaussianTerm(0.5, 40, Sampling.revealed(rate)), GaussianTerm(3.0, 2)], neighbours="zero-out"
    )
    epsilon = curve.epsilon(delta)
    assert math.isinf(epsilon) or curve.delta(epsilon) <= delta * (1 + 1e-9)


def test_no_noise_reaches_a_delta_below_what_is_left_out():
    factor = calibrate_scale(
        [GaussianTerm(0.01, 10, Sampling.revealed(1e-10))],
        target_epsilon=1.0,
        delta=1e-41,
        neighbours="zero-out",
    )
    assert factor == math.inf


def test_hidden_draws_load_no_more_than_transforms():
    program = (
        "import sys; from sfumato.privacy.accountant import compose\n"
        "from sfumato.privacy.sampling import Sampling\n"
        "from sfumato.privacy.sampling import GaussianTerm\n"
        "compose([GaussianTerm(2.0, 9, Sampling.poisson(0.2))], neighbours='zero-out').epsilon(1e-5)\n"
        "assert not {'dp_accounting', 'scipy.stats', 'scipy.signal', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize(
    "terms",
    [
        [GaussianTerm(1.0, 30, Sampling.poisson(0.05))],
        [GaussianTerm(8.0, 3, Sampling.poisson(0.9)), GaussianTerm(2.0, 5)],
        [GaussianTerm(0.7, 4, Sampling.without_replacement(20, 5, (2.0, 1.0)))],
        [GaussianTerm(3.0, 9, Sampling.poisson(0.3)), GaussianTerm(4.0, 7, Sampling.revealed(0.4))],
    ],
)
def test_what_is_not_searched_for_would_not_be_smaller(terms, delta):
    """Every bound in both directions, each searched for, gives the same bits."""
    curve = compose(terms, neighbours="zero-out")
    loss, revealed = curve._bounds
    directions = [direction.epsilon(delta) for direction in loss._directions]
    found = [(max(directions), "pld"), (revealed.epsilon(delta), "gdp")]
    assert curve.smallest(delta) == min(found, key=lambda pair: pair[0])
