"""What makes compositions quicker gives what the slow form gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.privacy.losses import composition, revealed_draws
from sfumato.privacy.losses.composition import LossComposition, _place_of_least, _powers
from sfumato.privacy.losses.moments import moments_of, starts_of_stretches
from sfumato.privacy.losses.one_release import DrawnShift, losses_against, losses_of_fixed_draw
from sfumato.privacy.losses.revealed_draws import RevealedDraws
from sfumato.privacy.sampling import GaussianTerm, Sampling, merged_terms

INTERVAL = 0.02


@settings(max_examples=20, deadline=None)
@given(
    square=st.floats(0.01, 9.0),
    population=st.integers(3, 500),
    apart=st.tuples(st.floats(0.5, 3.0), st.floats(0.5, 3.0)),
)
def test_both_directions_of_a_fixed_draw_share_their_profiles(
    square: float, population: int, apart: tuple[float, float]
) -> None:
    sampling = Sampling.without_replacement(population, 2, apart)
    move = math.sqrt(square)
    one, other = ([DrawnShift(sampling.rate, move, move * away)] for away in apart)
    slow = losses_against(one, other, INTERVAL), losses_against(other, one, INTERVAL)
    for quick, wanted in zip(losses_of_fixed_draw(square, sampling, INTERVAL), slow, strict=True):
        assert (quick.first, quick.infinite) == (wanted.first, wanted.infinite)
        assert np.array_equal(quick.masses, wanted.masses)


@settings(max_examples=20, deadline=None)
@given(
    squares=st.lists(st.floats(0.01, 9.0), min_size=1, max_size=3),
    population=st.integers(3, 200),
    count=st.integers(1, 300),
    exponent=st.floats(1.0, 14.0),
)
def test_the_best_tilt_is_the_best_of_all(
    squares: list[float], population: int, count: int, exponent: float
) -> None:
    """The least of all candidates' bounds, of δ at an ε and of ε at a δ."""
    sampling = Sampling.without_replacement(population, 2, (2.0, 1.0))
    parts = [(losses_of_fixed_draw(square, sampling, INTERVAL)[0], count) for square in squares]
    composed, powers = LossComposition(parts, INTERVAL), _powers(INTERVAL)
    bounds = np.array([composed._log_bound(number) for number in range(len(powers))])
    for epsilon in (0.0, 1.0, 30.0):
        figures = bounds - powers * epsilon
        assert figures[composed._best_tilt_at(epsilon)] == figures.min()
    of_epsilon = (bounds + exponent * math.log(10)) / powers
    assert of_epsilon[_place_of_least(lambda at: float(of_epsilon[at]), len(powers))] == of_epsilon.min()


@settings(max_examples=15, deadline=None)
@given(square=st.floats(0.01, 9.0), population=st.integers(3, 200), power=st.floats(-50.0, 50.0))
def test_moments_are_no_less_than_they_are(square: float, population: int, power: float) -> None:
    sampling = Sampling.without_replacement(population, 2, (2.0, 1.0))
    part = losses_of_fixed_draw(square, sampling, INTERVAL)[0]
    losses = (part.first + np.arange(len(part.masses))) * INTERVAL
    some = part.masses > 0
    exact = np.logaddexp.reduce(np.log(part.masses[some]) + power * losses[some])
    assert moments_of(part, INTERVAL).log_of(power) >= exact - 1e-9 * (1 + abs(exact))


@settings(max_examples=15, deadline=None)
@given(
    kinds=st.lists(
        st.tuples(st.floats(0.5, 8.0), st.integers(20, 200), st.floats(0.05, 0.95)), min_size=2, max_size=4
    ),
    certain=st.sampled_from([0, 5]),
    delta=st.sampled_from([1e-3, 1e-5, 1e-9]),
)
def test_an_epsilon_of_many_atoms_is_the_same_wherever_it_is_looked_for(
    kinds: list[tuple[float, int, float]], certain: int, delta: float
) -> None:
    terms = [GaussianTerm(m, count, Sampling.revealed(rate)) for m, count, rate in kinds]
    terms += [GaussianTerm(4.0, certain)] if certain else []
    quick = RevealedDraws.of(merged_terms(terms))
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(revealed_draws, "_MANY_ATOMS", 1 << 20)
        slow = RevealedDraws.of(merged_terms(terms)).epsilon(delta)
    found = quick.epsilon(delta)
    assert found == pytest.approx(slow, rel=1e-11)
    assert quick.delta(found) <= delta * (1 + 1e-13)


@pytest.mark.parametrize("start", [0.0, 1e-9, 0.3, 5.0, 60.0, 5000.0])
@pytest.mark.parametrize(("multiplier", "count", "rate"), [(1.0, 20, 0.3), (0.2, 3, 0.01), (30.0, 400, 0.5)])
def test_an_epsilon_of_a_mixture_is_the_same_from_every_start(
    start: float, multiplier: float, count: int, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = RevealedDraws.of([GaussianTerm(multiplier, count, Sampling.revealed(rate))])
    monkeypatch.setattr(RevealedDraws, "_start", lambda self, delta: start)
    epsilon = found.epsilon(1e-5)
    assert found.delta(epsilon) <= 1e-5 * (1 + 1e-13)
    assert found.delta(epsilon * (1 - 1e-10)) > 1e-5


def test_an_epsilon_of_many_atoms_takes_few_evaluations_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [(1.0, 60, 0.3), (2.3, 90, 0.6)]
    found = RevealedDraws.of([GaussianTerm(m, n, Sampling.revealed(q)) for m, n, q in kinds])
    evaluated: list[int] = []
    slow = RevealedDraws._excess_and_fall

    def counted(self: RevealedDraws, epsilon: float, delta: float) -> tuple[float, float]:
        evaluated.append(len(self.squares))
        return slow(self, epsilon, delta)

    monkeypatch.setattr(RevealedDraws, "_excess_and_fall", counted)
    found.epsilon(1e-5)
    assert evaluated.count(len(found.squares)) <= 4
    assert len(evaluated) <= 12


def test_few_of_the_moments_are_computed() -> None:
    part, _ = losses_of_fixed_draw(1.0, Sampling.without_replacement(50, 2, (2.0, 1.0)), INTERVAL)
    moments_of.cache_clear()
    LossComposition([(part, 20)], INTERVAL).epsilon(1e-5)
    assert len(moments_of(part, INTERVAL)._known) <= 8 < len(_powers(INTERVAL))


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 120), least=st.integers(0, 119), steep=st.floats(0.1, 9.0))
def test_the_least_of_falling_and_rising_figures_is_found_of_few(
    count: int, least: int, steep: float
) -> None:
    least, asked = min(least, count - 1), set[int]()

    def figure(at: int) -> float:
        asked.add(at)
        return abs(at - least) * (steep if at > least else 1.0)

    assert _place_of_least(figure, count) == least
    assert len(asked) <= 4 * math.log2(count + 2) + 2


@pytest.mark.parametrize("count", [1, 2, 3, 15, 64, 1000])
def test_a_power_is_off_by_less_than_is_charged(count: int) -> None:
    """Of every entry: as many times the machine epsilon as there are factors, and a few."""
    values = np.linspace(0.8, 1.0, 400) * np.exp(1j * np.linspace(0, 6, 400))
    exact = np.ones(400, dtype=np.clongdouble)
    for _ in range(count):
        exact = exact * values.astype(np.clongdouble)
    error = np.abs(composition._power(values, count) - exact)
    assert (error <= 1.2 * (count - 1) * np.finfo(np.float64).eps * np.abs(exact) + 1e-300).all()


@pytest.mark.parametrize(("first", "size"), [(-5, 3), (0, 1), (-70, 400), (100, 50_000), (-300_000, 600_000)])
def test_stretches_are_no_longer_than_a_sixty_fourth_of_their_distance_from_0(first: int, size: int) -> None:
    starts = starts_of_stretches(first, size)
    assert starts[0] == 0
    assert (np.diff(np.append(starts, size)) > 0).all()
    least, most = first + starts, first + np.append(starts[1:], size) - 1
    assert (most - least <= np.minimum(np.abs(least), np.abs(most)) / 64 + 1).all()


def test_values_on_a_grid_of_which_many_points_have_nothing() -> None:
    """Values far above those of the other draws leave holes where they are rounded up to a grid."""
    kinds = [(0.06, 150, 0.97), (0.9, 120, 0.7), (3.0, 150, 0.7)]
    found = RevealedDraws.of(merged_terms([GaussianTerm(m, n, Sampling.revealed(q)) for m, n, q in kinds]))
    assert len(found.squares) > revealed_draws._MANY_ATOMS
    assert (found.probabilities > 0).all()
    epsilon = found.epsilon(1e-5)
    assert found.delta(epsilon) * (1 - 1e-13) <= 1e-5 < found.delta(epsilon * (1 - 1e-9))


@pytest.mark.parametrize("share", [0.5, 1e-9])
def test_where_an_outcome_has_no_noise_epsilon_is_infinite(share: float) -> None:
    told = RevealedDraws(np.array([0.1, math.inf]), np.array([1 - share, share]), 0.0)
    assert told.epsilon(1e-5) == math.inf
