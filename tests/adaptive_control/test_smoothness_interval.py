"""The smoothness from rounds' models: near the largest eigenvalue without noise, not above it with noise."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from sfumato.adaptive_control.smoothness_interval import Moves, SmoothnessInterval

ROUNDS = 13


class Softmax:
    """Softmax regression on the digits: its gradients and the largest eigenvalue of its Hessian."""

    def __init__(self) -> None:
        features, labels = load_digits(return_X_y=True)
        self.x, self.y = features[::3] / 16, np.eye(10)[labels[::3]]

    def odds(self, w: np.ndarray) -> np.ndarray:
        raised = np.exp(self.x @ w.T - (self.x @ w.T).max(1, keepdims=True))
        return raised / raised.sum(1, keepdims=True)

    def gradient(self, w: np.ndarray) -> np.ndarray:
        return (self.odds(w) - self.y).T @ self.x / len(self.x)

    def largest_eigenvalue(self, w: np.ndarray) -> float:
        odds, v = self.odds(w), np.random.default_rng(0).normal(size=w.shape)
        for _ in range(60):
            v /= np.linalg.norm(v)
            z = self.x @ v.T
            v = (odds * z - odds * (odds * z).sum(1, keepdims=True)).T @ self.x / len(self.x)
        return float(np.linalg.norm(v))


LOSS = Softmax()
STARTS = {"zero": np.zeros((10, 64)), "random": 0.1 * np.random.default_rng(0).normal(size=(10, 64))}


def rounds(start: np.ndarray, lengths: np.ndarray, std: float, seed: int = 0) -> np.ndarray:
    """Models of gradient descent whose gradients have noise of ``std`` a coordinate."""
    rng, models = np.random.default_rng(seed), [start]
    for length in lengths:
        noise = std * rng.normal(size=start.shape)
        models.append(models[-1] - length * (LOSS.gradient(models[-1]) + noise))
    return np.array(models)


def interval(models: np.ndarray, lengths: np.ndarray, known_std: float) -> SmoothnessInterval:
    moves = np.diff(models.reshape(len(models), -1), axis=0)
    variances = np.full(len(lengths), known_std**2)
    return Moves(moves @ moves.T, lengths, variances, moves.shape[1]).interval()


def lengths_of(eigenvalue: float, share: float, decay: float = 0.5) -> np.ndarray:
    """Lengths whose first is ``share`` of what gradient descent can bear, times 1/2."""
    return share / eigenvalue / np.arange(1, ROUNDS + 1) ** decay


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
def test_without_noise_it_is_within_a_factor_of_two(start: str, share: float) -> None:
    first = LOSS.largest_eigenvalue(STARTS[start])
    lengths = lengths_of(first, share)
    models = rounds(STARTS[start], lengths, 0.0)
    true = [LOSS.largest_eigenvalue(model) for model in models]
    found = interval(models, lengths, 0.0)
    assert found.estimate is not None
    assert max(true) / 2 <= found.estimate <= max(true)
    assert found.estimate / 2 <= found.low <= found.estimate


@pytest.mark.parametrize("std", [3e-5, 1e-4, 1e-3, 1.0])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_under_noise_the_interval_contains_the_largest_eigenvalue(std: float, share: float) -> None:
    """At least 95 % of 200 trials, whether the noise's variance is known or not."""
    start = STARTS["random"]
    true = LOSS.largest_eigenvalue(start)
    lengths = lengths_of(true, share)
    trials = [rounds(start, lengths, std, seed) for seed in range(200)]
    for known_std in (std, 0.0):
        found = [interval(models, lengths, known_std) for models in trials]
        informed = sum(one.estimate is not None for one in found)
        assert sum(one.low <= true for one in found) >= 190
        if std == known_std == 3e-5:
            assert informed >= 190  # an interval of everything would be no feat
        if std == 1.0:
            assert informed <= 10


def test_noise_left_in_would_pass_for_curvature() -> None:
    """What is subtracted matters: the same moves, their products taken for a curve without noise."""
    lengths = lengths_of(1.0, 0.3, decay=0.0)
    moves = np.diff(rounds(STARTS["zero"], lengths, 1.0).reshape(ROUNDS + 1, -1), axis=0)
    gradients = -moves / lengths[:, None]
    turned = float(np.sum(np.diff(gradients, axis=0) ** 2) / np.sum(moves[:-1] ** 2)) ** 0.5
    assert turned > 4  # as one took it before: its own noise floor, sqrt(2) over the length
    assert interval(rounds(STARTS["zero"], lengths, 1.0), lengths, 1.0).estimate is None


@pytest.mark.parametrize("noisy_round", range(8))
def test_known_noise_of_a_single_round_is_subtracted(noisy_round: int) -> None:
    """Noise in a direction of its own, where the loss is flat: only the energy stated for it explains it.

    It is in one round, so the asymmetry of the products, an average over all rounds, cannot stand for it:
    taken for gradients without noise, the same moves show a curvature of 43 to 50, where 4 is the largest.
    """
    coordinates, curvature = 10**8, np.linspace(0.5, 4.0, 6)
    at, models, lengths = np.append(np.random.default_rng(1).normal(size=6), 0.0), [], np.full(9, 0.02)
    energies = np.zeros(9)
    energies[noisy_round] = 4.0
    models.append(at)
    for length, energy in zip(lengths, energies, strict=True):
        at = at - length * np.append(curvature * at[:6], np.sqrt(energy))
        models.append(at)
    moves = np.diff(models, axis=0)

    def found(variances: np.ndarray) -> SmoothnessInterval:
        return Moves(moves @ moves.T, lengths, variances, coordinates).interval()

    known, unknown = found(energies / coordinates), found(np.zeros(9))
    assert known.estimate is not None
    assert unknown.estimate is not None
    assert 3.0 <= known.low <= known.estimate <= 4.0
    assert unknown.estimate > 30.0


def test_a_quadratic_is_read_off_exactly() -> None:
    rng = np.random.default_rng(1)
    curvature = np.linspace(0.5, 4.0, 6)
    at, models, lengths = rng.normal(size=6), [], np.full(9, 0.02)
    for length in [0.0, *lengths]:
        at = at - length * curvature * at
        models.append(at)
    found = interval(np.array(models), lengths, 0.0)
    assert found.estimate == pytest.approx(4.0, rel=0.1)
    assert found.estimate <= 4.0 + 1e-6


def test_cohorts_that_change_are_seldom_taken_for_curvature() -> None:
    """Gradients that jump from round to round on a flat loss: 9 of 100 pass for a curvature."""
    rng = np.random.default_rng(2)
    jumps, false = rng.normal(size=(12, 640)), 0
    for _ in range(100):
        lengths = np.full(ROUNDS, 0.05)
        steps = lengths[:, None] * jumps[rng.integers(12, size=ROUNDS)]
        models = np.concatenate([np.zeros((1, 640)), np.cumsum(steps, axis=0)])
        found = interval(models, lengths, 0.0)
        false += found.estimate is not None and found.low > 1.0
    assert false <= 15


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_rounds_say_nothing(count: int) -> None:
    lengths = lengths_of(1.0, 0.1)[:count]
    assert interval(rounds(STARTS["random"], lengths, 0.0), lengths, 0.0) == SmoothnessInterval()


def test_models_that_do_not_move_say_nothing() -> None:
    lengths = lengths_of(1.0, 0.1)
    assert interval(np.zeros((ROUNDS + 1, 640)), lengths, 0.0) == SmoothnessInterval()


def test_the_prior_stays_where_the_interval_contains_it() -> None:
    found = SmoothnessInterval(estimate=3.0, low=2.0)
    assert found.or_prior(2.5) == 2.5
    assert found.or_prior(2.0) == 2.0
    assert found.or_prior(100.0) == 100.0
    assert found.or_prior(1.9) == 3.0
    assert SmoothnessInterval().or_prior(0.1) == 0.1
