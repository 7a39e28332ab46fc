"""The search for least noise by itself: judges written here, of one set of sources and of several."""

import math

import numpy as np
import pytest

from sfumato.schedule.noise.least_noise import TOLERANCE, least_noise, verdict_on_factors, verdict_on_worst


@pytest.mark.parametrize("mislead", [1.0, 0.5, 0.999, 1.3])
@pytest.mark.parametrize("first", [1e-4, 1.0, 300.0])
def test_of_one_set_only_what_was_judged_to_be_enough_is_returned(first, mislead):
    """ε falls with the size but for a jump, and what a trial asks for is wrong by some factor."""

    def epsilon(size):
        return 3.0 / size + (0.5 if size < 1.7 else 0.0)

    judged = []

    def judge(sizes):
        (size,) = sizes.tolist()
        judged.append(size)
        return verdict_on_worst(epsilon(size), 2.0, lambda: mislead * epsilon(size) / 2.0)

    (found,) = least_noise(judge, np.array([first])).tolist()
    assert found in judged
    assert epsilon(found) <= 2.0
    assert epsilon(found * (1 - 2 * TOLERANCE)) > 2.0
    assert len(judged) < 60


def test_several_sets_get_noise_of_their_own_and_no_target_is_exceeded():
    """Two units: one meets the first set's noise alone, the other the noise of both sets together."""
    targets = np.array([1.0, 0.4])

    def spent(sizes):
        return np.array([1 / sizes[0], 1 / math.hypot(*sizes)])

    def judge(sizes):
        needed = spent(sizes) / targets
        return verdict_on_factors(np.array([needed.max(), needed[1]]), 1e-6)

    found = least_noise(judge, np.ones(2))
    assert (spent(found) <= targets * (1 + 1e-12)).all()
    assert spent(found)[1] == pytest.approx(targets[1], rel=1e-5)


def test_what_is_lacking_within_the_tolerance_is_added():
    found = least_noise(lambda sizes: verdict_on_factors(1.0000005 / sizes, 1e-6), np.ones(3))
    assert found.tolist() == [1.0000005] * 3
