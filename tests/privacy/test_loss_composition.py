"""Compositions on a grid, beside closed forms and sums over all outcomes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.privacy.losses import composition, gaussian
from sfumato.privacy.losses.composition import LossComposition
from sfumato.privacy.losses.grid_losses import GridLosses
from sfumato.privacy.losses.hidden_draws import PrivacyLoss, grid_interval
from sfumato.privacy.losses.one_release import losses_of_public_scales
from sfumato.privacy.losses.revealed_draws import RevealedDraws
from sfumato.privacy.sampling import GaussianTerm, Sampling, merged_terms

DELTAS = [0.3, 1e-2, 1e-5, 1e-9, 1e-12, 1e-15]
INTERVAL = 0.25


def exact_delta(losses, chances, epsilon: float) -> float:
    """Σ p (1 - e^(ε - l)) over losses beyond ε."""
    return math.fsum(
        p * -math.expm1(epsilon - loss) for loss, p in zip(losses, chances, strict=True) if loss > epsilon
    )


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(("square", "count"), [(1e-3, 500), (0.04, 100), (1.0, 4), (6.25, 4)])
def test_gaussians_are_never_below_their_closed_form(square, count, delta):
    mu, interval = math.sqrt(square * count), 1e-3
    one, _ = losses_of_public_scales(
        square, Sampling.poisson(1.0, hidden=False, scales=((1.0, 1.0),)), interval
    )
    composed = LossComposition([(one, count)], interval)
    exact = gaussian.epsilon(delta=delta, mu=mu)
    found = composed.epsilon(delta)
    assert exact * (1 - 1e-12) <= found <= exact * (1 + 5e-4)
    at_exact = gaussian.delta(epsilon=exact, mu=mu)
    assert at_exact * (1 - 1e-12) <= composed.delta(exact) <= at_exact * 1.01
    assert composed.delta(found) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(("step", "count"), [(1, 2000), (2, 300), (8, 9)])
def test_randomised_response_is_a_binomial(step, count, delta):
    """Each answer is true with probability e^a / (1 + e^a), a = step · INTERVAL: a loss of a, else of -a."""
    true = 1 / (1 + math.exp(-step * INTERVAL))
    masses = np.zeros(2 * step + 1)
    masses[0], masses[-1] = 1 - true, true
    composed = LossComposition([(GridLosses(-step, masses, 0.0), count)], INTERVAL)
    answers = np.arange(count + 1)
    losses = (2 * answers - count) * step * INTERVAL
    chances = stats.binom.pmf(answers, count, true)
    found = composed.epsilon(delta)
    at_found = exact_delta(losses, chances, found)
    assert at_found <= delta * (1 + 1e-9)
    assert exact_delta(losses, chances, found * (1 - 1e-4)) >= delta * (1 - 1e-3)
    assert at_found <= composed.delta(found) * (1 + 1e-9) <= delta * 1.2
    for epsilon in (0.0, 0.7, 3.1):
        exact = exact_delta(losses, chances, epsilon)
        assert exact * (1 - 1e-12) <= composed.delta(epsilon) <= exact * (1 + 1e-6)


@st.composite
def some_losses(draw) -> tuple[GridLosses, int]:
    weights = np.array(draw(st.lists(st.floats(0, 1), min_size=1, max_size=5)))
    weights[-1] += 0.1
    infinite = draw(st.sampled_from([0.0, 1e-12, 1e-3]))
    masses = weights / weights.sum() * (1 - infinite)
    return GridLosses(draw(st.integers(-4, 4)), masses, infinite), draw(st.integers(1, 3))


@given(st.lists(some_losses(), min_size=1, max_size=3), st.floats(0, 6), st.floats(1e-14, 0.9))
def test_any_releases_against_the_sum_over_all_outcomes(parts, epsilon, delta):
    composed = LossComposition(parts, INTERVAL)
    finite, first, surely = np.ones(1), 0, 1.0
    for part, count in parts:
        for _ in range(count):
            finite, first, surely = (
                np.convolve(finite, part.masses),
                first + part.first,
                surely * (1 - part.infinite),
            )
    losses = (first + np.arange(len(finite))) * INTERVAL
    exact = exact_delta(losses, finite, epsilon) + 1 - surely
    assert exact - 1e-15 <= composed.delta(epsilon) <= exact * (1 + 1e-6) + 1e-11
    found = composed.epsilon(delta)
    if math.isfinite(found):
        assert exact_delta(losses, finite, found) + 1 - surely <= delta * (1 + 1e-9) + 1e-15
    else:
        assert 1 - surely >= delta * (1 - 1e-6)
    below = found - 1e-3 * INTERVAL
    if below > 0 and math.isfinite(found):
        assert exact_delta(losses, finite, below) + 1 - surely >= delta * (1 - 1e-3)


def test_nothing_is_released():
    assert LossComposition([], INTERVAL).delta(0.0) == 0
    assert LossComposition([], INTERVAL).epsilon(1e-9) == 0


def test_what_the_transform_may_lose_is_charged(monkeypatch):
    """A transform that loses as much as its bound allows leads to no smaller δ than the true one."""
    true = 1 / (1 + math.exp(-1))
    part = GridLosses(-4, np.array([1 - true, *[0.0] * 7, true]), 0.0), 400
    answers = np.arange(401)
    losses, chances = (2.0 * answers - 400), stats.binom.pmf(answers, 400, true)
    unit, inverse = np.finfo(np.float64).eps, np.fft.irfft

    def losing(values, size):
        exact = inverse(values, size)
        return exact - 4 * unit * 400 * np.linalg.norm(exact) / math.sqrt(size)

    monkeypatch.setattr("scipy.fft.irfft", losing)
    for epsilon in (150.0, 250.0, 300.0):
        exact = exact_delta(losses, chances, epsilon)
        assert LossComposition([part], INTERVAL).delta(epsilon) >= exact * (1 - 1e-13)


def test_epsilon_is_the_same_however_many_points_are_looked_at_in_one_go(monkeypatch):
    interval = 1e-2  # some thousand points
    one, other = losses_of_public_scales(0.5, Sampling.poisson(0.1, scales=((1.0, 1.0),)), interval)
    found = []
    for points in (1, 7, 1 << 9, 1 << 20):
        monkeypatch.setattr(composition, "_POINTS_AT_ONCE", points)
        both = [LossComposition([(part, 40)], interval) for part in (one, other)]
        found.append([direction.epsilon(delta) for direction in both for delta in DELTAS])
    for others in found[1:]:
        assert others == pytest.approx(found[0], rel=1e-12)


@pytest.mark.parametrize("interval", [1e-3, 0.2, 1.0])
@pytest.mark.parametrize("delta", DELTAS)
def test_epsilon_is_where_delta_is_met_however_far_apart_losses_are(interval, delta):
    """Thousands of nats: what is weighed with e^(-loss) is neither 0 nor infinite."""
    chances = stats.binom.pmf(np.arange(41), 40, 0.6)
    composed = LossComposition([(GridLosses(-20, chances, 0.0), 150)], interval)
    found = composed.epsilon(delta)
    assert found > 20 * interval
    assert composed.delta(found) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("delta", DELTAS)
def test_whether_delta_is_within_a_bound(delta):
    one, _ = losses_of_public_scales(0.5, Sampling.poisson(0.1, scales=((1.0, 1.0),)), 1e-3)
    composed = LossComposition([(one, 40)], 1e-3)
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0, 8.0):
        assert composed.is_within(epsilon, delta) == (composed.delta(epsilon) <= delta)
    assert composed.is_within(math.inf, delta)
    assert not LossComposition([(GridLosses(0, np.array([0.5]), 0.5), 1)], 1e-3).is_within(1.0, delta / 2)


@pytest.mark.parametrize(
    "terms",
    [
        [GaussianTerm(0.02, 1, Sampling.revealed(1e-5)), GaussianTerm(0.5, 1000, Sampling.poisson(0.3))],
        [GaussianTerm(0.06, 1, Sampling.revealed(1e-5)), GaussianTerm(1.0, 100, Sampling.poisson(0.01))],
    ],
)
def test_at_the_probability_of_a_seen_draw_epsilon_meets_delta(terms):
    """δ is flat there, and the mass above a loss lies between δ and δ less what rounding is charged."""
    loss = PrivacyLoss(terms, grid_interval(terms, RevealedDraws.of(merged_terms(terms))))
    for delta in (1e-5 * (1 - 1e-9), 1e-5, 1e-5 * (1 + 1e-9)):
        for direction in loss._directions:
            assert direction.delta(direction.epsilon(delta)) <= delta * (1 + 1e-10)


@pytest.mark.parametrize("seed", range(12))
def test_epsilon_where_delta_is_the_mass_above_0_to_the_last_digit(seed):
    """Sums by blocks and by points round differently: whichever is above δ, there is an ε and it meets δ."""
    chances = np.random.default_rng(seed).random(9000) ** 5
    chances /= chances.sum() * 2
    losses = 40.0 + 0.25 * np.arange(9000)
    tilted = composition._Tilted(losses, chances, 0.0, 1e-300, 0.0)
    by_points, whole = float(np.add.accumulate(chances[::-1])[-1]), tilted.delta(0.0)
    for delta in (by_points, whole, *(whole * (1 + ulps * 2e-16) for ulps in range(-30, 31))):
        found = tilted.epsilon(delta)
        assert found >= 0
        assert tilted.delta(found) <= delta * (1 + 1e-13)
