"""Proposition 4.2 and Theorem 4.3 against their formulas written out edge by edge."""

from __future__ import annotations

import math

import pytest

from sfumato.adaptive_control.bounds import Constants, dispersions, terms
from sfumato.adaptive_control.problem import Gap

GAP = Gap(parameters=100, clip=2.0, strength=0.03, trusted=2, untrusted=3, local_aggregations=3)
LOSS = Constants(smoothness=0.4, gradient_noise=0.7, between=0.9, within=1.1)
STEPS, S_T, S_U, ETA = 6, 4, 5, 0.05


def by_hand() -> tuple[float, float, float]:
    """(32) as printed, with c2 q sqrt(ln(1/delta)) / epsilon = sqrt(strength) and v2 = c2."""
    edges = [(1, S_T)] * 2 + [(0, S_U)] * 3
    b1 = (2 * 0.7 + 1.1) * ((1 + 2 * ETA * 0.4) ** (STEPS - 1) + 1)
    shares = [p / s**2 + (1 - p) / s for p, s in edges]
    factor = 2 * STEPS * 2.0 * math.sqrt(100 * 3) * math.sqrt(0.03) / 5
    phis = []
    for share in shares:
        inner = factor * (math.sqrt(sum(shares)) + 5 * math.sqrt(share)) + 2 * b1**2 + 2 * 0.7 + 0.9
        phis.append(inner * ((1 + 2 * ETA * 0.4) ** (STEPS - 1) + 1) + 2 * b1**2 + 2 * 0.7 + 0.9)
    b2 = math.sqrt((1 + ETA * 0.4) ** (2 * (STEPS - 1)) * sum(phi**2 for phi in phis) / 5)
    return b1, b2, max(phis)


def test_dispersions_are_those_of_proposition_4_2() -> None:
    found = dispersions(LOSS, first_step=ETA, steps=STEPS, trusted=S_T, untrusted=S_U, gap=GAP)
    b1, b2, phi = by_hand()
    assert found.b1 == pytest.approx(b1)
    assert found.b2 == pytest.approx(b2)
    assert found.phi == pytest.approx(phi)


def test_terms_are_those_of_theorem_4_3_with_the_first_corrected() -> None:
    found = dispersions(LOSS, first_step=ETA, steps=STEPS, trusted=S_T, untrusted=S_U, gap=GAP)
    got = terms(LOSS, found, loss=2.3, rate=0.01, steps=STEPS, rounds=99, trusted=S_T, untrusted=S_U, gap=GAP)
    b1, b2, _ = by_hand()
    assert got.start == pytest.approx(2 * 2.3 / (0.01 * STEPS * 10))
    assert got.drift == pytest.approx(0.4 * 0.01 / 10 * (0.4 * STEPS * (b1**2 + b2**2) + 4.0 + STEPS * 0.49))
    noise = 4 * STEPS * 28 * 100 * 4.0 * 0.03 / 25 * (2 / S_T**2 + 3 / S_U)
    assert got.noise == pytest.approx(noise)


def test_the_corrected_first_term_is_vacuous_at_the_largest_step_allowed() -> None:
    """H6: with gamma <= 1/(K_g beta) it is at least 2 beta sqrt(K_g) (F_0 - F*) / tau, up to K_g + 1."""
    rounds = 99
    found = dispersions(LOSS, first_step=ETA, steps=STEPS, trusted=S_T, untrusted=S_U, gap=GAP)
    rate = 1 / (rounds * LOSS.smoothness)
    got = terms(
        LOSS, found, loss=2.3, rate=rate, steps=STEPS, rounds=rounds, trusted=S_T, untrusted=S_U, gap=GAP
    )
    assert got.start == pytest.approx(2 * 0.4 * math.sqrt(99) * 2.3 / STEPS, rel=0.01)
