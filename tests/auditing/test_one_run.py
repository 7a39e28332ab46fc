import numpy as np
import pytest
from scipy import stats

from sfumato.auditing.canaries import (
    epsilon_between_normals,
    epsilon_estimate,
    epsilon_from_scores,
    epsilon_refuted_by_guesses,
    probability_of_guesses,
)
from sfumato.privacy.losses import gaussian


def test_pure_dp_bound_is_that_of_randomised_response() -> None:
    chance = probability_of_guesses(canaries=100, guesses=80, right=60, epsilon=1.0, delta=0.0)
    assert chance == pytest.approx(stats.binom.sf(59, 80, 1 / (1 + np.exp(-1))))


def test_randomised_response_is_not_refuted_more_often_than_stated() -> None:
    epsilon, canaries, error, times = 1.0, 400, 0.1, 400
    rng = np.random.default_rng(0)
    right = rng.binomial(canaries, 1 / (1 + np.exp(-epsilon)), size=times)
    found = [
        epsilon_refuted_by_guesses(canaries=canaries, guesses=canaries, right=int(v), delta=0.0, error=error)
        for v in right
    ]
    assert sum(value > epsilon for value in found) <= 75  # 40 expected at most; chance of more below 1e-6
    assert np.mean(found) > 0.7


@pytest.mark.parametrize(("delta", "canaries"), [(0.002, 10), (0.002, 60), (0.03, 10)])
@pytest.mark.parametrize("at_once", [True, False], ids=["all coins at once", "coin by coin"])
def test_no_mechanism_with_failures_is_refuted_more_often_than_stated(
    delta: float, canaries: int, at_once: bool
) -> None:
    """Randomised response that fails with probability δ and then tells everything: all outcomes summed."""
    epsilon, error = 1.0, 0.05
    rate, right = 1 / (1 + np.exp(-epsilon)), np.arange(canaries + 1)
    if at_once:
        chances = (1 - delta) * stats.binom.pmf(right, canaries, rate)
        chances[-1] += delta
    else:
        chances = stats.binom.pmf(right, canaries, delta + (1 - delta) * rate)
    refuted = [
        epsilon_refuted_by_guesses(
            canaries=canaries, guesses=canaries, right=int(v), delta=delta, error=error
        )
        > epsilon
        for v in right
    ]
    assert chances[refuted].sum() <= error


def test_delta_costs_something_and_grows_with_canaries() -> None:
    bounds = [
        epsilon_refuted_by_guesses(canaries=m, guesses=100, right=100, delta=1e-5, error=0.05)
        for m in (100, 1_000, 10_000)
    ]
    free = epsilon_refuted_by_guesses(canaries=100, guesses=100, right=100, delta=0.0, error=0.05)
    assert free == pytest.approx(-np.log(0.05**-0.01 - 1), rel=1e-4)
    assert free > bounds[0] > bounds[1] > bounds[2]


def test_the_best_of_several_numbers_of_guesses_pays_for_the_choice() -> None:
    scores = np.arange(200.0)
    coins = scores >= 100
    whole = epsilon_from_scores(scores, coins, delta=1e-5, error=0.05, shares=1)
    assert whole == pytest.approx(
        epsilon_refuted_by_guesses(canaries=200, guesses=200, right=200, delta=1e-5, error=0.05)
    )
    assert 0 < epsilon_from_scores(scores, coins, delta=1e-5, error=0.05) < whole
    assert epsilon_from_scores(scores, ~coins, delta=1e-5, error=0.05) == 0


def test_guesses_must_add_up() -> None:
    with pytest.raises(ValueError, match="descend"):
        probability_of_guesses(canaries=5, guesses=6, right=1, epsilon=1.0, delta=0.0)


@pytest.mark.parametrize("mu", [0.3, 1.0, 4.0])
def test_equal_variances_give_the_gaussian_mechanism(mu: float) -> None:
    assert epsilon_between_normals(mu, 1.0, delta=1e-5) == pytest.approx(
        gaussian.epsilon(delta=1e-5, mu=mu), rel=1e-6
    )
    assert epsilon_between_normals(mu, 1 + 1e-7, delta=1e-5) == pytest.approx(
        gaussian.epsilon(delta=1e-5, mu=mu), rel=1e-4
    )


@pytest.mark.parametrize(("mean", "std"), [(1.0, 0.7), (0.5, 1.3), (0.0, 2.0)])
def test_unequal_variances_agree_with_summing_densities(mean: float, std: float) -> None:
    x = np.linspace(-40, 40, 800_001)
    p, q = stats.norm.pdf(x), stats.norm.pdf(x, mean, std)
    epsilon = epsilon_between_normals(mean, std, delta=1e-3)
    step = x[1] - x[0]
    deltas = [np.maximum(a - np.exp(epsilon) * b, 0).sum() * step for a, b in ((p, q), (q, p))]
    assert max(deltas) == pytest.approx(1e-3, rel=1e-3)


def test_cosines_of_canaries_estimate_a_gaussian_mechanism() -> None:
    dimension, canaries, mu = 4_000, 600, 2.0
    rng = np.random.default_rng(3)
    directions = rng.normal(size=(canaries, dimension))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    # each canary has norm 1 in noise of standard deviation 1/mu; all of them share one release
    seen = directions.sum(axis=0) + rng.normal(size=dimension) / mu
    cosines = directions @ seen / np.linalg.norm(seen)
    # so many canaries hide each other too: their sum has variance canaries/dimension a coordinate
    apart = 1 / np.sqrt(mu**-2 + canaries / dimension)
    estimate = epsilon_estimate(cosines, dimension, delta=1e-5)
    assert estimate == pytest.approx(gaussian.epsilon(delta=1e-5, mu=apart), rel=0.2)


def test_one_cosine_is_too_few() -> None:
    with pytest.raises(ValueError, match="two or more"):
        epsilon_estimate([0.1], 100, delta=1e-5)
