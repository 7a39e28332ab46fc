"""Proposition 4.2 and Theorem 4.3, printed and corrected, against formulas edge by edge and descent."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.adaptive_control.bounds import BoundInputs, Constants
from sfumato.adaptive_control.problem import Gap

GAP = Gap(parameters=100, clip=2.0, strength=0.03, trusted=2, untrusted=3, local_aggregations=3)
LOSS = Constants(smoothness=0.4, gradient_noise=0.7, between=0.9, within=1.1, gradient=2.0)
STEPS, S_T, S_U, ETA, ROUNDS = 6, 4, 5, 0.05, 99
INPUTS = BoundInputs(LOSS, ETA, STEPS, ROUNDS, S_T, S_U, GAP)


def by_hand(b1_factor: float = 1.0, noise_factor: float = 1.0) -> tuple[float, float, float]:
    """(32), with c2 q sqrt(ln(1/delta)) / epsilon = sqrt(strength) and v2 = c2."""
    edges = [(1, S_T)] * 2 + [(0, S_U)] * 3
    b1 = (2 * 0.7 + 1.1) * ((1 + 2 * ETA * 0.4) ** (STEPS - 1) + 1) * b1_factor
    shares = [p / s**2 + (1 - p) / s for p, s in edges]
    factor = 2 * STEPS * 2.0 * math.sqrt(100 * 3) * math.sqrt(0.03) / 5 * noise_factor
    phis = []
    for share in shares:
        inner = factor * (math.sqrt(sum(shares)) + 5 * math.sqrt(share)) + 2 * b1**2 + 2 * 0.7 + 0.9
        phis.append(inner * ((1 + 2 * ETA * 0.4) ** (STEPS - 1) + 1) + 2 * b1**2 + 2 * 0.7 + 0.9)
    b2 = math.sqrt((1 + ETA * 0.4) ** (2 * (STEPS - 1)) * sum(phi**2 for phi in phis) / 5)
    return b1, b2, max(phis)


def test_printed_dispersions_are_those_of_proposition_4_2() -> None:
    found = INPUTS.printed_dispersions()
    assert (found.b1, found.b2, found.phi) == pytest.approx(by_hand())


def test_corrected_dispersions_have_what_the_proof_loses() -> None:
    found = INPUTS.corrected_dispersions()
    growth = (1 + ETA * 0.4) ** (STEPS - 1)
    assert (found.b1, found.b2, found.phi) == pytest.approx(by_hand(growth, math.sqrt(ROUNDS)))


def test_printed_terms_are_those_of_theorem_4_3() -> None:
    b1, b2, _ = by_hand()
    got = INPUTS.printed_terms(2.3)
    assert got.start == pytest.approx(2 * ETA * 2.3 / (STEPS * 10))
    assert got.drift == pytest.approx(0.4 * ETA / 10 * (0.4 * STEPS * (b1**2 + b2**2) + 4.0 + STEPS * 0.49))
    noise = 4 * STEPS * 28 * 100 * 4.0 * 0.03 / 25 * (2 / S_T**2 + 3 / S_U)
    assert got.noise == INPUTS.corrected_terms(2.3).noise == pytest.approx(noise)


def test_edges_may_have_participants_of_their_own() -> None:
    """(32) and term (b) with s_T = 4, 2 and s_U = 5, 1, 5, edge by edge."""
    each = replace(INPUTS, trusted=(4, 2), untrusted=(5, 1, 5))
    shares = [1 / 16, 1 / 4, 1 / 5, 1.0, 1 / 5]
    growth = (1 + 2 * ETA * 0.4) ** (STEPS - 1) + 1
    rest = 2 * ((2 * 0.7 + 1.1) * growth) ** 2 + 2 * 0.7 + 0.9
    factor = 2 * STEPS * 2.0 * math.sqrt(100 * 3 * 0.03) / 5
    phis = [
        (factor * (math.sqrt(sum(shares)) + 5 * math.sqrt(share)) + rest) * growth + rest for share in shares
    ]
    b2 = math.sqrt((1 + ETA * 0.4) ** (2 * (STEPS - 1)) * sum(phi**2 for phi in phis) / 5)
    found = each.printed_dispersions()
    assert (found.b2, found.phi) == pytest.approx((b2, max(phis)))
    noise = 4 * STEPS * 28 * 100 * 4.0 * 0.03 / 25 * sum(shares)
    assert each.printed_terms(1.0).noise == pytest.approx(noise)
    alike = replace(INPUTS, trusted=(S_T,) * 2, untrusted=(S_U,) * 3)
    assert alike.corrected_terms(2.3) == INPUTS.corrected_terms(2.3)


def test_corrected_terms_are_sums_over_the_rounds() -> None:
    found = INPUTS.corrected_dispersions()
    squares, steps = found.b1**2 + found.b2**2, [ETA / math.sqrt(k + 1) for k in range(ROUNDS)]
    drift = [(0.4 * s * STEPS) ** 2 * squares + s * 0.4 * (4.0 + STEPS * 0.49) for s in steps]
    got = INPUTS.corrected_terms(2.3)
    assert got.drift == pytest.approx(sum(drift) / ROUNDS)
    assert got.start == pytest.approx(2 * 2.3 / (ETA * STEPS * math.sqrt(99)))


@given(st.lists(st.floats(0, 10), min_size=2, max_size=30))
def test_the_start_term_bounds_the_mean_it_stands_for(gaps: list[float]) -> None:
    """However F - F* goes from round to round; that F falls is not used."""
    rounds = len(gaps) - 1
    falls = [(gaps[k] - gaps[k + 1]) * 2 * math.sqrt(k + 1) / (ETA * STEPS) for k in range(rounds)]
    got = replace(INPUTS, rounds=rounds).corrected_terms(max(gaps[:-1]))
    assert sum(falls) / rounds <= got.start * (1 + 1e-9) + 1e-9


def test_the_printed_start_term_bounds_nothing() -> None:
    """H6: one round that falls to the optimum; the printed term has the step size in the numerator."""
    one = replace(INPUTS, rounds=1)
    mean = 2 * 1.0 / (ETA * STEPS)
    assert one.printed_terms(1.0).start < mean / 100
    assert one.corrected_terms(1.0).start == pytest.approx(mean)


def test_the_mean_step_is_nearly_twice_what_is_printed() -> None:
    apart = Constants(smoothness=0.4, gradient_noise=0.0, between=0.0, within=0.0, gradient=1.0)
    still = replace(INPUTS, constants=apart, gap=replace(GAP, strength=0.0), rounds=200)
    assert still.corrected_terms(1.0).drift / still.printed_terms(1.0).drift == pytest.approx(1.9, abs=0.02)


def test_the_corrected_start_term_is_vacuous_at_the_largest_step_allowed() -> None:
    """H6: with gamma <= 1/(K_g beta) it is at least 2 beta sqrt(K_g) F_max / tau."""
    largest = replace(INPUTS, first_step=1 / (ROUNDS * 0.4))
    assert largest.corrected_terms(2.3).start == pytest.approx(2 * 0.4 * math.sqrt(99) * 2.3 / STEPS)


def descent(rng: np.random.Generator, steps: int, eta: float, noise: float) -> tuple[float, float]:
    """Z1 and Z2 at the end of a round of local SGD on quadratics, two edges of three devices."""
    curvature = rng.uniform(0, 1, size=(2, 3, 20))
    target = rng.normal(size=(2, 3, 20)) * 0.1
    w = np.zeros((2, 3, 20))
    for step in range(1, steps):
        w = w - eta * (curvature * (w - target))
        if step % 3 == 0:
            w = np.repeat((w.mean(axis=1) + noise * rng.normal(size=(2, 20)))[:, None], 3, axis=1)
    edges = w.mean(axis=1, keepdims=True)
    within, between = ((w - edges) ** 2).sum(-1).mean(), ((edges - edges.mean(0)) ** 2).sum(-1).mean()
    return float(within), float(between)


@pytest.mark.parametrize("eta", [0.01, 0.05, 0.1])
def test_measured_dispersions_are_within_the_corrected_bounds(eta: float) -> None:
    """Gradients within the radius that is visited are at most 0.1 sqrt(20) plus the way; zeta as large."""
    steps, longest = 10, 1.0
    loss = Constants(
        smoothness=1.0, gradient_noise=0.0, between=2 * longest, within=2 * longest, gradient=longest
    )
    gap = Gap(20, longest, 0.01, trusted=2, untrusted=0, local_aggregations=3)
    inputs = BoundInputs(loss, eta, steps, 5, 3, 3, gap)
    # (15) with Lemma 3.2: 2 eta tau G sqrt(strength K_l K_g) / s
    noise = 2 * eta * steps * longest * math.sqrt(0.01 * 3 * 5) / 3
    rng = np.random.default_rng(0)
    z1, z2 = np.mean([descent(rng, steps, eta, noise) for _ in range(200)], axis=0)
    bounds = inputs.corrected_dispersions()
    assert 0 < z1 <= (eta * steps * bounds.b1) ** 2
    assert 0 < z2 <= (eta * steps * bounds.b2) ** 2


@pytest.mark.parametrize("local", [1, 2, 3, 7])
def test_independent_noises_of_a_round_add_up_by_their_squares(local: int) -> None:
    """Local noises have `local` times the variance of the global one, so their sum has local² of it."""
    setting = replace(INPUTS, gap=replace(GAP, local_aggregations=local))
    covariance = np.diag([float(local)] * local)  # of independent noises, in squares of the global one
    of_sum = float(np.ones(local) @ covariance @ np.ones(local))
    by_cauchy_schwarz = local * float(np.trace(covariance))
    printed = setting.corrected_terms(1.0).noise
    assert printed / (by_cauchy_schwarz + 1) == pytest.approx(
        setting.noise_of_independent_sums / (of_sum + 1)
    )
    assert setting.noise_of_independent_sums <= printed
