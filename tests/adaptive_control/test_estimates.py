"""Estimates from released vectors: right without noise, silent where noise hides them."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.adaptive_control.estimates import NoisySquaredNorm, largest_distance


def test_noise_alone_never_passes_for_curvature() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        energy = NoisySquaredNorm()
        for _ in range(5):
            std = rng.uniform(0.1, 3)
            energy = energy.plus(float(np.sum(rng.normal(scale=std, size=500) ** 2)), std**2, 500)
        assert energy.signal is None


def test_noise_is_taken_off_a_signal_that_stands_out() -> None:
    rng = np.random.default_rng(2)
    signal = np.full(1000, 0.5)
    energy = NoisySquaredNorm()
    for _ in range(40):
        energy = energy.plus(float(np.sum((signal + rng.normal(size=1000)) ** 2)), 1.0, 1000)
    assert energy.signal == pytest.approx(40 * 250.0, rel=0.1)


def test_noise_of_a_wrong_scale_would_be_taken_for_signal() -> None:
    rng = np.random.default_rng(3)
    vector = rng.normal(scale=1.5, size=1000)
    assert NoisySquaredNorm().plus(float(vector @ vector), 1.0, 1000).signal is not None


def test_the_spread_is_the_largest_that_stands_out() -> None:
    near, far = NoisySquaredNorm().plus(4.0, 0.0, 10), NoisySquaredNorm().plus(9.0, 0.0, 10)
    hidden = NoisySquaredNorm().plus(10.0, 1.0, 10)
    assert largest_distance([near, far, hidden]) == pytest.approx(3.0)
    assert largest_distance([hidden]) is None
