"""The closed forms and the mixtures beside dp_accounting, which was not used to make them."""

from __future__ import annotations

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from oracle_gaussian import composed, gaussian_delta, gaussian_epsilon, mixture_epsilon
from oracle_mixture import Experiment, Part, experiments_epsilon


@pytest.mark.parametrize("mu", [0.05, 0.7, 2.5])
def test_closed_form_is_that_of_a_library(mu: float) -> None:
    known = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(known.get_epsilon_for_delta(1e-5), rel=3e-6)


def test_epsilon_is_where_the_curve_meets_delta_however_small() -> None:
    for mu, delta in ((0.01, 1e-40), (2.0, 1e-12), (40.0, 1e-3)):
        epsilon = gaussian_epsilon(mu, delta)
        assert gaussian_delta(epsilon, mu) == pytest.approx(delta, rel=1e-6)


def test_a_draw_in_the_open_adds_up_curves() -> None:
    squared = composed({0.0: 0.7, 1.0: 0.3}, 3)
    assert squared[2.0] == pytest.approx(3 * 0.3**2 * 0.7)
    epsilon = mixture_epsilon(squared, 1e-4)
    total = sum(p * gaussian_delta(epsilon, math.sqrt(value)) for value, p in squared.items())
    assert total == pytest.approx(1e-4, rel=1e-6)


def test_what_tells_the_secret_counts_with_its_probability() -> None:
    assert math.isinf(mixture_epsilon({math.inf: 2e-5, 0.0: 1 - 2e-5}, 1e-5))
    rest = mixture_epsilon({math.inf: 0.5e-5, 1.0: 1 - 0.5e-5}, 1e-5)
    assert gaussian_epsilon(1.0, 1e-5) < rest < gaussian_epsilon(1.0, 0.49e-5)


def test_an_attack_that_may_fail_attains_less() -> None:
    sure = mixture_epsilon({4.0: 1.0}, 1e-5)
    assert mixture_epsilon({4.0: 1.0}, 1e-5, failure=1e-8) < sure
    assert mixture_epsilon({4.0: 1.0}, 1e-5, failure=0.5) == 0


@pytest.mark.parametrize(("mu", "rate", "times"), [(1.0, 0.1, 1), (0.5, 0.5, 4), (2.0, 0.1, 10)])
def test_hidden_draws_are_those_of_a_library_and_never_above(mu: float, rate: float, times: int) -> None:
    experiment = Experiment(
        (Part(None, rate, mu, 1.0), Part(None, 1 - rate, 0.0, 1.0)), (Part(None, 1.0, 0.0, 1.0),), times
    )
    upper = pld.from_gaussian_mechanism(1 / mu, sampling_prob=rate, value_discretization_interval=1e-4)
    known = upper.self_compose(times).get_epsilon_for_delta(1e-5)
    assert known * (1 - 6e-4) < experiments_epsilon([experiment], 1e-5) <= known


def test_what_is_seen_of_a_draw_is_not_mixed() -> None:
    hidden = Experiment((Part(None, 0.1, 1.0, 1.0), Part(None, 0.9, 0.0, 1.0)), (Part(None, 1.0, 0.0, 1.0),))
    seen = Experiment(
        (Part("in", 0.1, 1.0, 1.0), Part("out", 0.9, 0.0, 1.0)),
        (Part("in", 0.1, 0.0, 1.0), Part("out", 0.9, 0.0, 1.0)),
    )
    told = experiments_epsilon([seen], 1e-5)
    assert told == pytest.approx(mixture_epsilon({1.0: 0.1, 0.0: 0.9}, 1e-5), rel=1e-3)
    assert experiments_epsilon([hidden], 1e-5) < 0.6 * told


def test_numbers_without_noise_tell_the_worlds_apart() -> None:
    bare = Experiment(
        (Part(None, 1e-3, 1.0, 0.0), Part(None, 1 - 1e-3, 0.0, 0.0)), (Part(None, 1.0, 0.0, 0.0),)
    )
    assert math.isinf(experiments_epsilon([bare], 1e-5))
    assert math.isfinite(experiments_epsilon([bare], 1e-2))


def test_laws_far_apart_are_told_apart_by_finite_losses() -> None:
    far = Experiment((Part(None, 1.0, 60.0, 1.0),), (Part(None, 1.0, 0.0, 1.0),))
    assert experiments_epsilon([far], 1e-5) == pytest.approx(gaussian_epsilon(60.0, 1e-5), rel=1e-3)


@pytest.mark.parametrize("delta", [1e-12, 1e-5])
def test_small_deltas_are_not_overrun_by_rounding(delta: float) -> None:
    """delta(eps) of a hidden draw is rate times that of a Gaussian at log(1 + (exp(eps) - 1) / rate)."""
    rate, mu = 0.25, 10.0
    experiment = Experiment(
        (Part(None, rate, 5.0, 1.0), Part(None, 1 - rate, -5.0, 1.0)), (Part(None, 1.0, -5.0, 1.0),)
    )
    exact = math.log1p(rate * math.expm1(gaussian_epsilon(mu, delta / rate)))
    assert exact * (1 - 5e-4) < experiments_epsilon([experiment], delta) <= exact * (1 + 1e-9)
