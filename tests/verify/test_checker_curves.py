"""ε as the checker recomputes it, beside the accountant's, closed forms and published figures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sfumato.privacy.accountant import compose
from sfumato.privacy.losses import gaussian
from sfumato.privacy.sampling import GaussianTerm, Sampling
from sfumato.verify.composition import (
    LIBRARY_IS_EXACT_TO,
    EqualReleaseLosses,
    epsilon_by_integral,
    epsilon_by_library,
    epsilon_on_grid,
    masses_on_grid,
)
from sfumato.verify.draws import stated_term
from sfumato.verify.epsilon import epsilon_of_mixture, recomputed_epsilon
from sfumato.verify.loss_curves import CURVES, Event, poisson_curve
from sfumato.verify.read import UnknownKindError

DELTA = 1e-5
FIRST_DRAWS = tuple((0.05 * 0.95**j, 1 - 0.2 * j, 1 - 0.2 * j) for j in range(4))


def accounted(*terms: GaussianTerm, neighbours="zero-out") -> tuple[float, str, float | None]:
    curve = compose(terms, neighbours=neighbours)
    return curve.epsilon(DELTA), curve.smallest(DELTA)[1], curve.discretization


@pytest.mark.parametrize(
    ("terms", "events", "relation"),
    [
        ([GaussianTerm(2.0, 30)], [Event(0.25, 30)], "zero-out"),
        (
            [GaussianTerm(1.0, 50, Sampling.revealed(0.3)), GaussianTerm(2.0, 4)],
            [Event(1.0, 50, "revealed", 0.3), Event(0.25, 4)],
            "zero-out",
        ),
        ([GaussianTerm(1.0, 40, Sampling.poisson(0.1))], [Event(1.0, 40, "poisson", 0.1)], "zero-out"),
        (
            [GaussianTerm(1.0, 40, Sampling.poisson(0.05)), GaussianTerm(5.0, 9)],
            [Event(1.0, 40, "poisson", 0.05), Event(0.04, 9)],
            "zero-out",
        ),
        (
            [GaussianTerm(1.0, 30, Sampling.of_batches(FIRST_DRAWS, shares_a_part=False))],
            [Event(1.0, 30, "batches", 0.185, (False, *FIRST_DRAWS))],
            "zero-out",
        ),
        (
            [GaussianTerm(1.0, 30, Sampling.of_batches([(0.1, 1.0, 1.0)], shares_a_part=True))],
            [Event(1.0, 30, "batches", 0.1, (True, (0.1, 1.0, 1.0)))],
            "replace",
        ),
    ],
    ids=["gaussian", "seen", "poisson", "poisson and gaussian", "batches", "batches replaced"],
)
def test_it_is_the_accountants_figure_and_never_above_it(terms, events, relation):
    stated, method, interval = accounted(*terms, neighbours=relation)
    found = recomputed_epsilon(events, method, DELTA, interval)
    assert stated * (1 - 1e-4) <= found <= stated * (1 + 1e-9)


@pytest.mark.parametrize(
    ("event", "epsilon"),
    [
        (Event(1.0, 50, "fixed", 0.1, (1.0, 1.0)), 5.54),  # N = 100, n = 10, replace-one multiplier 1, T = 50
        (Event(1.0, 200, "fixed", 100 / 3383, (1.0, 1.0)), 3.11),
        (Event(0.25, 50, "fixed", 0.1, (2.0, 1.0)), 3.20),  # the same noise, the unit sends zeros
    ],
)
def test_draws_of_a_fixed_size(event, epsilon):
    """The dominating pair of Zhu, Dong and Wang (2022); issue 15 item 8(b) has the figures."""
    assert recomputed_epsilon([event], "pld", DELTA, None) == pytest.approx(epsilon, abs=0.006)


def test_one_release_of_a_sampled_gaussian_is_exact():
    """q δ(η; μ) = δ with e^η = (e^ε − 1 + q) / q: where somebody is added or left out, the worse of both."""
    q, mu = 0.2, 1.5
    inner = gaussian.epsilon(delta=DELTA / q, mu=mu)
    exact = math.log(1 - q + q * math.exp(inner))
    assert recomputed_epsilon([Event(mu**2, 1, "poisson", q)], "pld", DELTA, 1e-3) == pytest.approx(
        exact, rel=1e-4
    )


def test_a_mixture_that_everybody_sees():
    """Gaussian with probability q, nothing otherwise: what is composed exactly, as a mixture, too."""
    q, square, count = 0.3, 0.8, 25
    outcomes = ((q, 1.0, 1.0), (1 - q, 0.0, 1.0))
    exact = recomputed_epsilon([Event(square, count, "revealed", q)], "gdp", DELTA, None)
    found = recomputed_epsilon([Event(square, count, "visible", 1.0, outcomes)], "pld", DELTA, 1e-3)
    assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-4)


def test_a_mixture_of_one_outcome_is_that_outcome():
    one = recomputed_epsilon([Event(0.5, 20, "poisson", 0.1)], "pld", DELTA, 1e-3)
    same = recomputed_epsilon([Event(0.25, 20, "visible", 1.0, ((1.0, 2.0, 0.1),))], "pld", DELTA, 1e-3)
    assert same == pytest.approx(one, rel=1e-9)


def test_outcomes_far_apart_are_added_up_at_every_loss():
    """Where the losses of one outcome all lie above those of another, the curve is still their mean."""
    squares, chances = np.array([900.0, 9.0]), np.array([0.5, 0.5])
    exact = epsilon_of_mixture(squares, chances, 0.0, DELTA)
    mixture = Event(900.0, 1, "visible", 1.0, ((0.5, 1.0, 1.0), (0.5, 0.01, 1.0)))
    assert recomputed_epsilon([mixture], "pld", DELTA, 1e-2) == pytest.approx(exact, rel=1e-6)
    for delta in (0.3, 0.6):  # where the smaller outcome alone counts, and where nothing but the larger does
        exact = epsilon_of_mixture(squares, chances, 0.0, delta)
        found = recomputed_epsilon([mixture], "pld", delta, 1e-3)
        assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-4)


@pytest.mark.parametrize("square", [2000.0, 8000.0])
def test_losses_beyond_the_largest_power_of_e(square):
    """e^710 is no floating-point number."""
    exact = recomputed_epsilon([Event(square, 1)], "gdp", DELTA, None)
    found = recomputed_epsilon([Event(square, 1)], "pld", DELTA, 1e-2)
    assert exact > 1000
    assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-6)


def test_a_mixture_by_closed_forms_counts_as_its_largest_outcome():
    """A row may say `gdp`: the same draws, always with the least noise."""
    mixture = Event(2.0, 5, "visible", 0.3, ((0.2, 0.5, 0.3), (0.8, 0.1, 0.3)))
    assert recomputed_epsilon([mixture], "gdp", DELTA, None) == recomputed_epsilon(
        [Event(1.0, 5, "revealed", 0.3)], "gdp", DELTA, None
    )


@pytest.mark.parametrize(
    ("hidden", "event"), [(True, Event(1.0, 30, "poisson", 0.2)), (False, Event(1.0, 30, "revealed", 0.2))]
)
def test_who_sees_the_draw_of_a_stated_mixture(hidden, event):
    """With one outcome it is the plain draw, unseen or seen."""
    sampling = {"kind": "poisson", "rate": 0.2, "hidden": hidden, "scales": [[1.0, 1.0]]}
    mixture = stated_term({"multiplier": 1.0, "count": 30, "sampling": sampling})
    plain = recomputed_epsilon([event], "pld", DELTA, 1e-3)
    assert recomputed_epsilon([mixture], "pld", DELTA, 1e-3) == pytest.approx(plain, rel=1e-9)


def test_a_coarser_grid_never_gives_less():
    events = [Event(1.0, 30, "poisson", 0.1)]
    found = [recomputed_epsilon(events, "pld", DELTA, interval) for interval in (0.001, 0.008, 0.064)]
    assert found == sorted(found)
    assert found[-1] > found[0] * (1 + 1e-5)


def test_masses_add_up_and_lie_above_the_curve():
    """Chords of a convex curve: between grid points the distribution's curve is above, and on them equal."""
    losses, reverse = (poisson_curve(Event(2.0, 1, "poisson", 0.3), forward) for forward in (True, False))
    first, found, infinite = masses_on_grid(losses, reverse, 0.1)
    assert found.sum() + infinite == pytest.approx(1, abs=1e-12)
    for epsilon in (-0.25, -0.2, 0.2, 0.25, 0.9, 0.95):
        stated = infinite + sum(
            p * -math.expm1(epsilon - (first + i) * 0.1)
            for i, p in enumerate(found)
            if (first + i) * 0.1 > epsilon
        )
        exact = float(losses.curve(epsilon + 0.0 * found[:1])[0])
        on_the_grid = abs(epsilon * 10 - round(epsilon * 10)) < 1e-9
        assert stated == pytest.approx(exact, abs=1e-12) if on_the_grid else stated > exact + 1e-7


def test_what_it_has_no_rule_for_is_refused():
    with pytest.raises(UnknownKindError, match="laplace"):
        recomputed_epsilon([Event(1.0, 1, "laplace", 0.5)], "pld", DELTA, None)


def test_no_noise_is_infinite_and_nothing_released_is_zero():
    assert recomputed_epsilon([Event(math.inf, 1)], "gdp", DELTA, None) == math.inf
    assert recomputed_epsilon([], "pld", DELTA, None) == 0.0


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9, 1e-12, 1e-15])
@pytest.mark.parametrize(("square", "count"), [(1e-3, 500), (0.04, 100), (1.0, 4), (6.25, 4)])
def test_rounding_of_the_transform_is_small_beside_any_delta(square, count, delta):
    """Gaussians composed as if there were no closed form: never below it, and close above."""
    exact = gaussian.epsilon(delta=delta, mu=math.sqrt(square * count))
    for forward in (True, False):
        found = epsilon_on_grid([Event(square, count)], delta, 1e-3, forward)
        assert exact * (1 - 1e-12) <= found <= exact * (1 + 5e-4)


@pytest.mark.parametrize("rate", [0.01, 0.2])
@pytest.mark.parametrize("delta", [1e-9, 1e-11, 1e-13])
def test_a_hidden_draw_at_a_small_delta(rate, delta):
    """Transforms that are not tilted lose some 1e-14 of δ for every few hundred releases."""
    curve = compose([GaussianTerm(1.0, 400, Sampling.poisson(rate))], neighbours="zero-out")
    found = recomputed_epsilon([Event(1.0, 400, "poisson", rate)], "pld", delta, curve.discretization)
    stated, method = curve.smallest(delta)
    assert method == "pld"
    assert found * (1 - 1e-9) <= stated <= found * (1 + 1e-5)
    assert curve.delta(stated) == pytest.approx(delta, rel=1e-6)


def test_masses_at_the_largest_loss_are_not_lost():
    """In the world without the unit, losses have a largest value: a tilt may leave nothing but it."""
    events = [Event(400.0, 3, "poisson", 0.5)]
    largest = 3 * math.log(2)
    for delta in (0.5, 0.1, 1e-3):
        found = epsilon_on_grid(events, delta, 1e-3, False)
        exact = math.log(
            2**3 - delta * 2**3
        )  # Each release without the unit is twice as likely there, or tells all.
        assert exact * (1 - 1e-9) <= found <= largest + 1e-3


@pytest.mark.parametrize(
    ("event", "delta", "by_library"),
    [
        (Event(1.0, 1000, "poisson", 0.01), 1e-5, True),
        (Event(0.8, 50, "fixed", 0.1, (1.0, 1.0)), 1e-6, True),
        (Event(1.0, 30, "batches", 0.185, (False, *FIRST_DRAWS)), 1e-5, True),
        (Event(1.0, 400, "poisson", 0.01), 1e-9, False),
        (Event(1 / 9, 1_000_000, "poisson", 1e-6), 1e-6, False),
    ],
)
def test_the_library_counts_where_its_rounding_is_small_and_agrees_with_the_integral(
    event, delta, by_library
):
    interval = 1e-8 if event.count == 1_000_000 else 1e-4
    curve = CURVES[event.kind]
    losses, reverse = curve(event, True), curve(event, False)
    grid = [EqualReleaseLosses(*masses_on_grid(losses, reverse, interval), event.count)]
    found = epsilon_by_library(grid, delta, interval)
    assert (found is not None) == by_library
    if found is not None:
        assert found == pytest.approx(epsilon_by_integral(grid, delta, interval), rel=LIBRARY_IS_EXACT_TO)


def test_a_seen_mixture_without_noise_has_no_epsilon() -> None:
    """Its μ² is infinite, also times 0: what is without noise at random is not told apart."""
    outcomes = ((0.3, 1.0, 0.5), (0.3, 1.0, 1.0), (0.4, 0.0, 1.0))
    for method in ("gdp", "pld"):
        bare = Event(math.inf, 2, "visible", 0.5, outcomes)
        assert recomputed_epsilon([bare], method, DELTA, 1e-3) == math.inf
