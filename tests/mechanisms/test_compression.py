"""Compression: who chooses coordinates, what rounding does, and that neither makes a message longer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.learning.norms import row_norms
from sfumato.mechanisms.compression import bounded_, rand_k, round_stochastically, rounding_key, top_k
from sfumato.radio.costs import kept_coordinates, sent_bits
from sfumato.spec.transport import Compression


def test_rand_k_is_a_function_of_its_address() -> None:
    first = rand_k(1000, 300, seed=3, key=(7, 0))
    assert torch.equal(first, rand_k(1000, 300, seed=3, key=(7, 0)))
    assert not torch.equal(first, rand_k(1000, 300, seed=3, key=(8, 0)))
    assert not torch.equal(first, rand_k(1000, 300, seed=4, key=(7, 0)))


@given(st.integers(1, 200), st.data())
def test_rand_k_gives_k_different_coordinates_in_order(parameters: int, data: st.DataObject) -> None:
    kept = data.draw(st.integers(1, parameters))
    found = rand_k(parameters, kept, seed=0, key=(0,))
    assert len(found) == kept
    assert bool((found.diff() > 0).all())
    assert int(found[0]) >= 0
    assert int(found[-1]) < parameters


def test_rand_k_takes_every_coordinate_equally_often() -> None:
    times = np.zeros(50)
    for number in range(2000):
        times[rand_k(50, 15, seed=0, key=(number,))] += 1
    # each count is Binomial(2000, 0.3); one chi-square over 50, smaller than it should be as counts are tied
    statistic = ((times - 600) ** 2 / (2000 * 0.3 * 0.7)).sum() * 49 / 50
    assert stats.chi2(49).sf(statistic) > 1e-6


def test_top_k_takes_the_largest_and_breaks_ties_by_place() -> None:
    assert top_k(torch.tensor([0.1, -3.0, 2.0, 0.0]), 2).tolist() == [1, 2]
    assert top_k(torch.zeros(5), 3).tolist() == [0, 1, 2]


@given(st.integers(0, 1000), st.floats(0.01, 10))
def test_bounded_rows_are_no_longer_than_their_bounds(seed: int, bound: float) -> None:
    rows = torch.randn(4, 30, generator=torch.Generator().manual_seed(seed))
    bounds = torch.tensor([bound, bound / 2, 100.0, bound])
    before = rows.clone()
    bounded_(rows, bounds)
    assert bool((torch.linalg.vector_norm(rows.double(), dim=1) <= bounds.double()).all())
    assert torch.equal(rows[2], before[2])  # within its bound already


@pytest.mark.parametrize("bits", [2, 3, 8])
def test_rounding_is_unbiased_and_takes_so_many_bits(bits: int) -> None:
    vector = torch.linspace(-1.0, 0.7, 40)
    levels = 2 ** (bits - 1) - 1
    draws = torch.stack([round_stochastically(vector, bits, rounding_key(0, i)) for i in range(3000)])
    whole = draws * levels  # the scale is 1
    assert bool(((whole - whole.round()).abs() < 1e-4).all())
    assert int(whole.abs().max()) <= levels
    # a coordinate's error is at most 1/levels, so its mean over 3,000 draws has a std of at most
    # 1/2/levels/sqrt(3000); six of them, over 40 coordinates: wrong with probability below 1e-7
    assert bool(((draws.mean(dim=0) - vector).abs() <= 6 * 0.5 / levels / math.sqrt(3000) + 1e-6).all())


def test_rounding_keeps_zero() -> None:
    assert torch.equal(round_stochastically(torch.zeros(3), 4, rounding_key(0)), torch.zeros(3))


def test_rounding_may_lengthen_so_the_bound_is_restored() -> None:
    vector = torch.full((400,), 0.05)  # norm 1
    vector[0] = 0.06
    decoded = round_stochastically(vector, 2, rounding_key(1))
    assert float(row_norms(decoded[None])[0]) > 1.0
    kept = bounded_(decoded[None].clone(), torch.ones(1))[0]
    assert float(torch.linalg.vector_norm(kept.double())) <= 1.0
    ratio = kept[decoded != 0] / decoded[decoded != 0]
    assert float(ratio.max() - ratio.min()) < 1e-6  # only the scale is lowered


@pytest.mark.parametrize(
    ("compression", "kept", "size"),
    [
        (None, 1000, 4000),
        (Compression(kind="rand-k", ratio=0.3), 300, 1200),
        (Compression(kind="top-k", ratio=0.3, bits=4), 300, 154),
        (Compression(kind="rand-k", ratio=1, bits=3), 1000, 379),
        (Compression(kind="rand-k", ratio=1e-6), 1, 4),
    ],
)
def test_sizes_worked_out_by_hand(compression: Compression | None, kept: int, size: int) -> None:
    assert kept_coordinates(compression, 1000) == kept
    assert sent_bits(compression, 1000, 32) == 8 * size
