"""What anybody could guess, and the test of whether an attack did better."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from sfumato.attacks.image_metrics import class_means, compare_with_baseline

FALSE_ALARM = 1e-6


def test_class_means_are_means_and_of_all_where_a_class_is_missing() -> None:
    images = torch.arange(6.0).view(6, 1, 1, 1).expand(-1, 1, 2, 2)
    labels = torch.tensor([0, 2, 0, 2, 2, 0])
    means = class_means(images, labels, 4)
    assert means.shape == (4, 1, 2, 2)
    expected = [np.mean([0, 2, 5]), 2.5, np.mean([1, 3, 4]), 2.5]
    np.testing.assert_allclose(means[:, 0, 0, 0].numpy(), expected, rtol=1e-6)


def test_a_clear_gain_and_a_clear_loss_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    guess = rng.uniform(0.2, 0.4, 24)
    better = compare_with_baseline(guess + rng.uniform(0.05, 0.2, 24), guess)
    # every sign alike: the smallest p-value there is, 2^-24
    assert better.p_better == pytest.approx(2.0**-24)
    assert better.p_worse == pytest.approx(1.0)
    worse = compare_with_baseline(guess - rng.uniform(0.05, 0.2, 24), guess)
    assert worse.p_better == pytest.approx(1.0)
    assert worse.attack < worse.guess
    assert worse.images == 24


def test_an_attack_that_equals_the_guess_is_neither_better_nor_worse() -> None:
    same = compare_with_baseline(np.array([0.3, 0.2, 0.5]), np.array([0.3, 0.2, 0.5]))
    assert (same.p_better, same.p_worse) == (1.0, 1.0)


def test_few_images_can_prove_nothing() -> None:
    one = compare_with_baseline(np.array([0.99]), np.array([0.1]))
    assert one.p_better == pytest.approx(0.5)


def test_the_test_keeps_its_level() -> None:
    """Of 400 pairs of scores that differ by chance, as many are called better at 5 % as a 5 % test may."""
    rng = np.random.default_rng(1)
    trials = 400
    alarms = sum(compare_with_baseline(*rng.normal(size=(2, 12))).p_better <= 0.05 for _ in range(trials))
    assert alarms <= stats.binom.isf(FALSE_ALARM, trials, 0.05)
    # pairing is what tells a small gain behind large spread
    gains = 0
    for _ in range(50):
        guess = rng.uniform(0, 1, 12)
        gains += compare_with_baseline(guess + rng.normal(0.05, 0.02, 12), guess).p_better <= 0.05
    assert gains >= 49
