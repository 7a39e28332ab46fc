"""Toys where the worst case is attained: a likelihood-ratio test never gains more than the reported curve."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from sfumato.privacy.accountant import compose
from sfumato.privacy.charges import ways_to_charge
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.vector_clocks import GroupStructure
from sfumato.privacy.observers import Party

RUNS = 400_000
EPSILONS = (0.0, 0.5, 1.0, 2.0)


def advantages(with_unit, without):
    """δ(ε) of a test on log-likelihood ratios, both ways, from samples of either world; standard errors."""
    out = []
    for epsilon in EPSILONS:
        one = np.mean(with_unit > epsilon) - np.exp(epsilon) * np.mean(without > epsilon)
        two = np.mean(without < -epsilon) - np.exp(epsilon) * np.mean(with_unit < -epsilon)
        out.append(max(one, two))
    errors = [np.sqrt((1 + np.exp(2 * e)) * 0.25 / RUNS) for e in EPSILONS]
    return np.array(out), np.array(errors)


def check(plan, unit, observer, with_unit, without, least):
    curves = [
        compose(ways_to_charge(e, "zero-out")[0].terms, neighbours="zero-out")
        for e in plan.exposures(unit, (Party("device", 0, observer),))
    ]
    reported = np.array([min(curve.delta(e) for curve in curves) for e in EPSILONS])
    measured, errors = advantages(with_unit, without)
    factor = reported[0] / measured[0]
    print(
        f"{plan.kind}: advantage {measured[0]:.4f}, reported {reported[0]:.4f}: within a factor {factor:.3f}"
    )
    assert np.all(measured <= reported + 4 * errors)
    assert factor < least


@pytest.mark.parametrize(("rate", "sigma", "epochs"), [(1.0, 2.0, 3), (0.5, 1.0, 4), (0.7, 2.0, 5)])
def test_in_one_group_the_bound_is_attained(rate, sigma, epochs):
    """The unit adds its clip norm whenever drawn; the observer sees every noised sum."""
    plan = GroupReleases("dp-ogl", 2, (GroupStructure(1, ((0, 1),)),), epochs, 1, (1.0,), (sigma,), (rate,))
    stream = np.random.default_rng(1)

    def ratios(present):
        drawn = stream.random((RUNS, epochs)) < rate
        sums = present * drawn + sigma * stream.standard_normal((RUNS, epochs))
        shift = (sums - 0.5) / sigma**2
        return np.log1p(rate * np.expm1(shift)).sum(axis=1)

    check(plan, 0, 1, ratios(1.0), ratios(0.0), least=1.02)


@pytest.mark.parametrize(("every", "sigma"), [(2, 2.0), (8, 2.0), (32, 2.0), (200, 0.5)])
def test_through_a_linking_worker(every, sigma):
    """Example 2's workers 1 and 3: the worker between tells the sign of what it got, as loudly as it may.

    Group 0 releases S sums with the unit's 1 in each; at the only merging epoch that matters the linking
    worker tells group 1 whether their total is above S/2, by ±1. The likelihood of what worker 3 sees is a
    mixture of two Gaussians, so the test is optimal. With many releases against one linking event flow is
    loose, the cheapest set is not.
    """
    plan = GroupReleases(
        "dp-ogl",
        3,
        (GroupStructure(1, ((0, 1), (1, 2))),),
        every + 1,
        every,
        (1.0,) * 2,
        (sigma,) * 2,
        (1.0,) * 2,
    )
    stream = np.random.default_rng(2)
    noise = sigma * np.sqrt(every)

    def seen(present):
        total = every * present + noise * stream.standard_normal(RUNS)
        return np.where(total > every / 2, 1.0, -1.0) + sigma * stream.standard_normal(RUNS)

    def log_likelihood(x, present):
        up = every * (present - 0.5) / noise
        high, low = -((x - 1) ** 2) / (2 * sigma**2), -((x + 1) ** 2) / (2 * sigma**2)
        return np.logaddexp(log_ndtr(up) + high, log_ndtr(-up) + low)

    def ratios(present):
        x = seen(present)
        return log_likelihood(x, 1.0) - log_likelihood(x, 0.0)

    assert 0.5 < ndtr(0.5 * every / noise) <= 1
    check(plan, 0, 2, ratios(1.0), ratios(0.0), least={2: 2.8, 8: 2.0, 32: 1.25, 200: 1.02}[every])
