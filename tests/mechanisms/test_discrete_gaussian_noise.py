"""Integer noise by rows: whose key it comes from, and of which size."""

from __future__ import annotations

import numpy as np

from sfumato.mechanisms.discrete_gaussian import DiscreteGaussianNoise


def key_of(row: int) -> bytes:
    return bytes([row]) * 32


def test_rows_have_the_standard_deviation_asked_for_and_zero_is_no_noise():
    rows = np.zeros((3, 20_000), dtype=np.int64)
    DiscreteGaussianNoise().add_(rows, np.array([0.0, 5.0, 20.0]), key_of)
    assert not rows[0].any()
    for row, std in ((1, 5.0), (2, 20.0)):
        assert 0.96 * std < rows[row].std() < 1.04 * std
        assert abs(rows[row].mean()) < 5 * std / np.sqrt(20_000)


def test_a_row_follows_from_its_key_alone():
    whole, some = np.zeros((3, 50), dtype=np.int64), np.zeros((1, 50), dtype=np.int64)
    DiscreteGaussianNoise().add_(whole, np.full(3, 9.0), key_of)
    DiscreteGaussianNoise().add_(some, np.full(1, 9.0), lambda _: key_of(2))
    assert np.array_equal(whole[2], some[0])
    assert not np.array_equal(whole[1], whole[2])
