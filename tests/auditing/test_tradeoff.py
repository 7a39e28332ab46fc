"""Lower bounds on known mechanisms: below the truth, and close to it."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from sfumato.auditing.tradeoff import (
    ComposedCurves,
    GaussianMixtureCurves,
    Scores,
    epsilon_by_counting,
    mu_by_curve,
)
from sfumato.privacy.losses import gaussian

DELTA, ERROR = 1e-5, 1e-6


def gaussian_scores(mu: float, trials: int, seed: int) -> tuple[Scores, Scores]:
    z = np.random.default_rng(seed).normal(size=(4, trials))
    return Scores(z[0], z[1] + mu), Scores(z[2], z[3] + mu)


@pytest.mark.parametrize("epsilon", [2.0, 4.0, 8.0, 16.0])
@pytest.mark.parametrize("seed", range(3))
def test_whole_curve_of_a_gaussian_is_found_closely(epsilon: float, seed: int) -> None:
    truth = gaussian.mu(epsilon=epsilon, delta=DELTA)
    mu = mu_by_curve(*gaussian_scores(truth, 20_000, seed), GaussianMixtureCurves.gaussian(), error=ERROR)
    # so many trials in each world give μ to about 0.1 at this error
    assert truth - 0.2 <= mu <= truth
    if epsilon >= 8:
        assert GaussianMixtureCurves.gaussian().epsilon(mu, delta=DELTA) >= 0.85 * epsilon


def test_counting_reaches_a_third_of_eight() -> None:
    held_out, judged = gaussian_scores(gaussian.mu(epsilon=8.0, delta=DELTA), 10_000, 0)
    found = epsilon_by_counting(held_out, judged, delta=DELTA, error=ERROR)
    assert 8 / 4 <= found <= 8 / 2


def test_both_are_wrong_as_seldom_as_they_say() -> None:
    mu, error, times = 1.0, 0.1, 400
    truth = gaussian.epsilon(delta=DELTA, mu=mu)
    wrong = np.zeros(2)
    for seed in range(times):
        held_out, judged = gaussian_scores(mu, 200, seed)
        wrong += (
            epsilon_by_counting(held_out, judged, delta=DELTA, error=error) > truth,
            mu_by_curve(held_out, judged, GaussianMixtureCurves.gaussian(), error=error) > mu,
        )
    # 40 expected at most; the chance of more than 75 is below 1e-6
    assert stats.binom.sf(75, times, error) < 1e-6
    assert (wrong <= 75).all()


def test_noise_of_two_thirds_is_caught_and_of_three_halves_is_told_apart() -> None:
    claimed = gaussian.mu(epsilon=8.0, delta=DELTA)
    less, more = (gaussian_scores(claimed * factor, 10_000, 1) for factor in (3 / 2, 2 / 3))
    assert mu_by_curve(*less, GaussianMixtureCurves.gaussian(), error=ERROR) > claimed
    assert mu_by_curve(*more, GaussianMixtureCurves.gaussian(), error=ERROR) < 0.75 * claimed


def test_nothing_is_found_where_nothing_is() -> None:
    scores = Scores(np.zeros(500), np.zeros(500))
    assert epsilon_by_counting(scores, scores, delta=DELTA, error=ERROR) == 0
    assert mu_by_curve(scores, scores, GaussianMixtureCurves.gaussian(), error=ERROR) == 0


def test_an_attack_that_looks_the_wrong_way_is_turned_round() -> None:
    held_out, judged = gaussian_scores(2.0, 5_000, 0)
    turned = [Scores(s.sent, s.null) for s in (held_out, judged)]
    plain = mu_by_curve(held_out, judged, GaussianMixtureCurves.gaussian(), error=ERROR)
    assert epsilon_by_counting(*turned, delta=DELTA, error=ERROR) == 0
    assert plain > 1.5


def mixture(mu: float, rounds: int, rate: float, trials: int, seed: int) -> tuple[Scores, Scores]:
    """Log-likelihood ratios of who sees in how many rounds the unit took part."""
    rng = np.random.default_rng(seed)

    def scores(sent: bool) -> npt.NDArray[np.float64]:
        shift = mu * np.sqrt(rng.binomial(rounds, rate, size=trials))
        return np.asarray(shift * (rng.normal(size=trials) + sent * shift) - shift**2 / 2)

    return Scores(scores(False), scores(True)), Scores(scores(False), scores(True))


def mixture_delta(epsilon: float, mu: float, rounds: int, rate: float) -> float:
    times = np.arange(rounds + 1)
    return float(
        stats.binom.pmf(times, rounds, rate) @ gaussian.delta(epsilon=epsilon, mu=mu * np.sqrt(times))
    )


def test_mixture_of_participations_is_found_closely() -> None:
    rounds, rate, mu = 15, 0.1, 1.0
    family = GaussianMixtureCurves.participations(rounds, rate)
    found = mu_by_curve(*mixture(mu, rounds, rate, 10_000, 0), family, error=ERROR)
    assert 0.75 * mu < found <= mu
    truth = family.epsilon(mu, delta=DELTA)
    assert mixture_delta(truth, mu, rounds, rate) == pytest.approx(DELTA, rel=1e-6)


def test_trade_off_curves_of_the_mixture_are_those_of_its_privacy_profile() -> None:
    rounds, rate, mu = 6, 0.3, 1.3
    family = GaussianMixtureCurves.participations(rounds, rate)
    false = np.array([1e-4, 0.01, 0.2, 0.6, 0.95])
    hits = family.hit_rates(false, np.full(5, mu))
    epsilons = np.linspace(0, 30, 3001)
    deltas = np.array([mixture_delta(float(e), mu, rounds, rate) for e in epsilons])
    for one, hit in zip(false, hits, strict=True):  # a test and its mirror image obey TPR ≤ e^ε FPR + δ
        highest = min(
            (np.exp(epsilons) * one + deltas).min(), (1 - (1 - one - deltas) / np.exp(epsilons)).min()
        )
        assert hit == pytest.approx(highest, abs=1e-4)
    assert family.mu_lower(hits, false) == pytest.approx(np.full(5, mu), rel=1e-6)


def test_one_certain_round_is_the_gaussian_family() -> None:
    certain = GaussianMixtureCurves.participations(1, 1 - 1e-15)
    false = np.array([0.01, 0.3])
    assert certain.hit_rates(false, np.ones(2)) == pytest.approx(
        GaussianMixtureCurves.gaussian().hit_rates(false, np.ones(2)), rel=1e-9
    )


def test_perfect_attacks_are_limited_by_trials_only() -> None:
    scores = Scores(np.zeros(10_000), np.ones(10_000))
    counting = epsilon_by_counting(scores, scores, delta=DELTA, error=ERROR)
    assert counting == pytest.approx(math.log(10_000 / math.log(2e6)), abs=0.01)


def test_hidden_draws_are_found_closely() -> None:
    """Poisson-sampled Gaussians, for who does not see the draws: the accountant's curve is not refuted."""
    rounds, rate, mu = 8, 0.4, 1.0
    rng = np.random.default_rng(4)

    def scores(sent: bool) -> npt.NDArray[np.float64]:
        drawn = rng.random((rounds, 10_000)) < rate
        z = rng.normal(size=drawn.shape) + mu * (drawn & sent)
        return np.asarray(np.log1p(rate * np.expm1(mu * z - mu**2 / 2)).sum(axis=0))

    held_out, judged = (Scores(scores(False), scores(True)) for _ in range(2))
    family = ComposedCurves.subsampled(rounds, rate)
    found = mu_by_curve(held_out, judged, family, error=ERROR)
    assert 0.75 * mu < found <= mu
    # as much separation behind half the rounds would need more than this family allows
    assert mu_by_curve(held_out, judged, ComposedCurves.subsampled(rounds // 2, rate), error=ERROR) > mu
    plain = epsilon_by_counting(held_out, judged, delta=DELTA, error=ERROR)
    assert plain < family.epsilon(found, delta=DELTA) <= family.epsilon(mu, delta=DELTA)
