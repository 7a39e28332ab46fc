"""Opacus's Rényi accounting: divergences are the integrals, and ε is that of its own orders."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate

from sfumato.claims.opacus_rdp import ORDERS, divergences, epsilon_of


def by_integral(sigma: float, rate: float, order: float) -> float:
    """ln E (mixture over N(0, σ²))^α under N(0, σ²), over α - 1."""

    def log_of(x: float) -> float:
        ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * sigma**2))
        return float(order * ratio - x * x / (2 * sigma**2) - math.log(sigma * math.sqrt(2 * math.pi)))

    ends = (-12 * sigma, order + 12 * sigma)
    top = max(log_of(x) for x in np.linspace(*ends, 2001))
    area, _ = integrate.quad(lambda x: math.exp(log_of(x) - top), *ends, limit=1000, points=(0.0, order))
    return (math.log(area) + top) / (order - 1)


@pytest.mark.parametrize(("sigma", "rate"), [(2.0, 0.7), (1.3, 0.1), (0.8, 0.01), (3.0, 0.99)])
def test_divergences_are_those_of_the_sampled_gaussian(sigma: float, rate: float) -> None:
    found = dict(zip(ORDERS, divergences(sigma, rate), strict=True))
    for order in (1.1, 1.5, 1.9, 2.0, 4.3, 10.9, 12.0, 63.0):
        assert found[order] == pytest.approx(by_integral(sigma, rate, order), rel=1e-5)


def test_everybody_taking_part_is_the_plain_gaussian() -> None:
    assert divergences(2.0, 1.0) == pytest.approx(np.array(ORDERS) / 8)


def test_the_orders_are_the_default_of_rdp_accountant() -> None:
    assert len(ORDERS) == 99 + 52
    assert (ORDERS[0], ORDERS[98], ORDERS[99], ORDERS[-1]) == (1.1, 10.9, 12.0, 63.0)


def test_epsilon_of_the_single_group_is_that_of_the_paper_s_library() -> None:
    """199 releases at σ = 2, π = .7: dp_accounting, without the orders below 1.8, has 36.06."""
    assert epsilon_of(199 * divergences(2.0, 0.7), 1e-5) == pytest.approx(35.84088, abs=1e-5)
    assert epsilon_of(np.zeros(len(ORDERS)), 0.5) == 0
