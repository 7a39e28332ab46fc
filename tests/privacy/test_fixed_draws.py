"""Fixed numbers drawn without replacement, against rounds that are played out cohort by cohort.

The oracle shares no code with the accountant: it lists all cohorts, adds up the normal densities of their
sums, and composes rounds by rounding losses down on a grid, so that what it finds is attained by real data.
"""

import itertools
import math

import numpy as np
import pytest
from grid_deltas import delta_of, worst_delta
from scipy import signal, stats

from sfumato.privacy.accountant import compose
from sfumato.privacy.losses.one_release import losses_of_fixed_draw
from sfumato.privacy.sampling import GaussianTerm, Sampling

PLACES = np.linspace(-20.0, 20.0, 8_001)


def world(unit, others, drawn, std):
    """Density of the sum of a cohort of ``drawn``, noised, at `PLACES`."""
    means = [sum(cohort) for cohort in itertools.combinations([unit, *others], drawn)]
    return sum(stats.norm.pdf(PLACES, mean, std) for mean in means) / len(means)


def divergence(p, q, alpha):
    return float(np.trapezoid(np.maximum(p - alpha * q, 0.0), PLACES))


def attained(p, q, rounds, epsilons, interval=2e-3):
    """A lower bound on delta of so many rounds: losses rounded down, added up by convolution."""
    seen = p > 1e-300
    loss = np.log(p[seen]) - np.log(np.maximum(q[seen], 1e-300))
    cells = np.floor(loss / interval).astype(int)
    width = PLACES[1] - PLACES[0]
    lowest = cells.min()
    mass = np.bincount(cells - lowest, p[seen] * width)
    total = mass
    for _ in range(rounds - 1):
        total = np.maximum(signal.fftconvolve(total, mass), 0.0)
    levels = (rounds * lowest + np.arange(len(total))) * interval
    return [float(total @ np.maximum(0.0, -np.expm1(epsilon - levels))) for epsilon in epsilons]


def term_of(devices, drawn, std, rounds, relation, *, unit=1.0, heaviest=1.0):
    """As `charges` makes it: the worlds of a unit of weight ``unit`` beside others up to ``heaviest``."""
    heaviest = max(unit, heaviest)
    sensitivity = unit if relation == "zero-out" else 2 * unit
    away = np.array([unit + heaviest, heaviest if relation == "zero-out" else unit + heaviest])
    sampling = Sampling.without_replacement(devices, drawn, tuple((away / sensitivity).tolist()))
    return GaussianTerm(std / sensitivity, rounds, sampling)


@pytest.mark.parametrize(("devices", "drawn"), [(4, 2), (6, 1), (5, 4)])
@pytest.mark.parametrize("relation", ["zero-out", "replace"])
@pytest.mark.parametrize("unit", [1.0, 0.3])
def test_no_data_tell_more_than_is_charged_and_some_tell_as_much(devices, drawn, relation, unit):
    """All others at the ends, in the middle or mixed; both directions; every level of the curve."""
    std, rng = 0.8, np.random.default_rng(7)
    term = term_of(devices, drawn, std, 1, relation, unit=unit)
    losses = losses_of_fixed_draw(term.multiplier**-2, term.sampling, 1e-3)
    data = [np.full(devices - 1, fill) for fill in (-1.0, 0.0, 1.0)]
    data += [rng.uniform(-1, 1, devices - 1) for _ in range(6)]
    data += [rng.choice([-1.0, 1.0], devices - 1) for _ in range(6)]
    other = 0.0 if relation == "zero-out" else -unit
    worlds = [[world(mine, others, drawn, std) for mine in (unit, other)] for others in data]
    for level in (0.05, 0.4, 1.5, 3.0):
        alpha = math.exp(level)
        forward = max(divergence(p, q, alpha) for p, q in worlds)
        backward = max(divergence(q, p, alpha) for p, q in worlds)
        for most, allowed in zip((forward, backward), losses, strict=True):
            bound = delta_of(allowed, 1e-3, level)
            assert bound * (1 - 1e-2) - 1e-6 <= most <= bound + 1e-6


@pytest.mark.parametrize("relation", ["zero-out", "replace"])
@pytest.mark.parametrize("fill", [-1.0, 0.0, 1.0])
def test_rounds_of_real_data_never_tell_more_than_their_composition(relation, fill):
    devices, drawn, std, rounds = 6, 2, 1.5, 12
    charged = compose([term_of(devices, drawn, std, rounds, relation)], neighbours=relation)
    others, other = np.full(devices - 1, fill), 0.0 if relation == "zero-out" else -1.0
    p, q = world(1.0, others, drawn, std), world(other, others, drawn, std)
    levels = (0.5, 2.0, 5.0)
    allowed = [charged.delta(level) for level in levels]
    for one, two in ((p, q), (q, p)):
        for found, most in zip(attained(one, two, rounds, levels), allowed, strict=True):
            assert found <= most * (1 + 1e-6) + 1e-9


def test_a_unit_zeroed_out_is_not_as_safe_as_one_that_nobody_replaces():
    """Why the device in the unit's place counts: opposite messages tell more than a Poisson draw would."""
    devices, drawn, std, level = 6, 1, 0.8, 1.5
    p, q = (world(unit, np.full(devices - 1, -1.0), drawn, std) for unit in (1.0, 0.0))
    poisson = compose([GaussianTerm(std, 1, Sampling.poisson(drawn / devices))], neighbours="zero-out")
    assert divergence(p, q, math.exp(level)) > 1.5 * poisson.delta(level)
    fixed = compose([term_of(devices, drawn, std, 1, "zero-out")], neighbours="zero-out")
    assert divergence(p, q, math.exp(level)) == pytest.approx(fixed.delta(level), rel=1e-3)


def test_larger_shares_and_heavier_devices_tell_more():
    found = [
        compose([term_of(20, drawn, 2.0, 30, "zero-out", heaviest=heaviest)], neighbours="zero-out").epsilon(
            1e-5
        )
        for drawn, heaviest in ((2, 1.0), (5, 1.0), (5, 2.0))
    ]
    assert found == sorted(found)
    assert found[0] < 0.8 * found[2]


@pytest.mark.parametrize("square", [100.0, 400.0, 3000.0])
def test_losses_of_thousands_of_nats_do_not_overflow(square):
    """Beyond e^709 the levels of the curve are no floating-point numbers."""
    sampling = Sampling.without_replacement(5, 3, (2.0, 1.0))
    one = losses_of_fixed_draw(square, sampling, 0.5)
    seen = compose([GaussianTerm(square**-0.5, 1, Sampling.revealed(0.6))], neighbours="zero-out")
    for level in (10.0, square / 2):
        assert seen.delta(level) * 0.99 <= worst_delta(one, 0.5, level) + 1e-9
    assert worst_delta(one, 0.5, 3 * square) < 1e-3
