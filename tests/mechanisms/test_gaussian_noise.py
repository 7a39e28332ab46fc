"""Errs with probability below 1e-6 a test, were the keys fresh."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from sfumato.mechanisms import gaussian
from sfumato.mechanisms.gaussian import add_gaussian_
from sfumato.random import Stream, key_at

M = 50_000


def draw(*address: int, seed: int = 3, std: float = 1.0, size: int = M) -> Tensor:
    return from_key(key_at(seed, Stream.NOISE, *address), std=std, size=size)


def from_key(key: bytes, *, std: float = 1.0, size: int = M) -> Tensor:
    rows = torch.zeros(1, size)
    add_gaussian_(rows, np.array([std]), lambda _: key)
    return rows[0]


def along(a: Tensor, b: Tensor) -> float:
    """``a`` along ``b``: exactly N(0, 1) where ``a`` is standard normal and independent of ``b``."""
    return float(a.double() @ b.double() / b.double().norm())


@pytest.mark.parametrize("std", [1e-6, 0.7, 40.0])
def test_scale(std: float) -> None:
    noise = draw(0, 1, std=std).double()
    chi2 = stats.chi2(M)

    def accepts(scale: float) -> bool:
        return bool(1e-7 < chi2.cdf(float((noise / scale).square().sum())) < 1 - 1e-7)

    assert accepts(std)
    assert not accepts(std * 2 / 3)
    assert not accepts(std * 3 / 2)
    assert abs(float(noise.mean())) < 5.5 * std / math.sqrt(M)


def test_shape_of_the_distribution() -> None:
    values = np.concatenate([draw(4, number, size=100_001).numpy() for number in range(10)])
    assert stats.kstest(values.astype(np.float64), "norm").pvalue > 1e-7
    assert stats.kstest(values[:20_000].astype(np.float64) * 2 / 3, "norm").pvalue < 1e-7
    assert stats.kstest(values[:20_000].astype(np.float64) * 3 / 2, "norm").pvalue < 1e-7


def test_tails() -> None:
    """Of 32 million values 2,027 are expected beyond 4, 18 beyond 5, on either side alike."""
    beyond = np.zeros((2, 2), dtype=np.int64)
    for number in range(32):
        values = draw(5, number, size=1_000_000).numpy()
        for column, limit in enumerate((4, 5)):
            beyond[:, column] += [(values > limit).sum(), (values < -limit).sum()]
    for column, limit in enumerate((4, 5)):
        chance = stats.norm.sf(limit)
        # six counts, 5e-8 on either side of each
        for count, sides in ((beyond[0, column], 1), (beyond[1, column], 1), (beyond[:, column].sum(), 2)):
            expected = stats.binom(32_000_000, sides * chance)
            assert expected.sf(count - 1) > 5e-8
            assert expected.cdf(count) > 5e-8
        assert stats.binom(32_000_000, 2 * stats.norm.sf(limit * 3 / 2)).sf(beyond[:, column].sum()) < 1e-7
        assert stats.binom(32_000_000, 2 * stats.norm.sf(limit * 2 / 3)).cdf(beyond[:, column].sum()) < 1e-7


@pytest.mark.parametrize(
    ("first", "second", "radius"),
    [
        (0, 0, math.sqrt(128 * math.log(2))),  # the word nearest to 0, once in 2^64
        (0, (1 << 31) - 1, math.sqrt(64 * math.log(2))),
        (1 << 30, 0, math.sqrt(2 * math.log(2))),
        (-(1 << 31), -(1 << 31), 0.0),
        ((1 << 31) - 1, (1 << 31) - 1, 0.0),
    ],
)
def test_radii_at_the_ends(monkeypatch: pytest.MonkeyPatch, first: int, second: int, radius: float) -> None:
    """All that the words of a stream can be gives finite values, the largest beyond any tail."""

    class Fixed:
        def __init__(self, key: bytes) -> None:
            pass

        def fill(self, out: np.ndarray) -> None:
            out[0], out[1], out[2] = first, second, [0, 1 << 30]

    monkeypatch.setattr(gaussian, "KeyStream", Fixed)
    values = from_key(bytes(32), size=4)
    assert values.tolist() == pytest.approx([radius, 0.0, 0.0, radius], abs=1e-6)


def test_normals_of_a_pair_are_independent() -> None:
    """They share a radius: correlations alone would not notice that one made the other."""
    values = draw(6, size=1 << 15).double().reshape(2, -1)  # one block: cosines, then sines
    shares = torch.special.ndtr(values) * 2 - 1  # uniform on -1 to 1
    for first in (shares[0], shares[0].abs() - 0.5):
        for second in (shares[1], shares[1].abs() - 0.5):
            spread = (first.square().sum() * second.square().mean()).sqrt()
            # bounded terms, 2^14 of them: beyond six standard deviations with probability 2e-9
            assert abs(float(first @ second)) < 6 * float(spread)
    radii = values.square().sum(dim=0)
    assert stats.kstest(radii.numpy(), stats.chi2(2).cdf).pvalue > 1e-7


def test_values_of_a_row_are_independent() -> None:
    values = draw(7, size=300_000)
    for lag in (1, 2, 325, 16_384, 32_768, 65_536, 100_001):
        assert abs(along(values[lag:], values[:-lag])) < 6  # 2e-9 each


def test_addresses_are_independent() -> None:
    """Nearby rounds, aggregations, tiers, parties, seeds and lengths of address."""
    keys = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 0), (0, 0, 0, 0, 0)]
    vectors = [draw(*key) for key in keys] + [draw(0, 0, 0, 0, seed=4)]
    for a, b in itertools.combinations(vectors, 2):
        assert abs(along(a, b)) < 6


@pytest.mark.parametrize(
    ("one", "other"), [((429, 0, 2, 76), (639, 0, 2, 30)), ((845, 0, 2, 129), (910, 0, 2, 27))]
)
def test_addresses_that_shared_32_bits_share_no_noise(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    """Their vectors were bitwise equal in 0.1.0, so that whoever had both could cancel the noise."""
    a, b = draw(*one, seed=0), draw(*other, seed=0)
    assert not (a == b).double().mean() > 0.01
    assert abs(along(a, b)) < 6


def test_every_bit_of_the_key_matters() -> None:
    """512 bounds, each wrong with probability 6e-10."""
    key = int.from_bytes(key_at(3, Stream.NOISE, 8), "big")
    base = from_key(key.to_bytes(32, "big"), size=4000)
    for bit in range(256):
        other = from_key((key ^ (1 << bit)).to_bytes(32, "big"), size=4000)
        assert abs(along(other, base)) < 6.2
        assert abs(along(other.abs() - math.sqrt(2 / math.pi), base.abs() - math.sqrt(2 / math.pi))) < 6.2


@settings(max_examples=30, deadline=None)
@given(
    length=st.sampled_from(
        [1, 2, 3, 15, 16, 17, 63, 650, 651, 7_777, 32_767, 32_768, 32_769, 65_537, 70_001]
    ),
    stds=st.lists(st.sampled_from([0.0, 0.3, 1.0, 25.0]), min_size=1, max_size=7),
    cut=st.integers(0, 7),
    seed=st.integers(0, 2**64),
)
def test_chunks_and_neighbours_change_no_byte(length: int, stds: list[float], cut: int, seed: int) -> None:
    def key_of(row: int) -> bytes:
        return key_at(seed, Stream.NOISE, row)

    scales = np.array(stds)
    whole = torch.full((len(stds), length), 0.25)
    in_chunks, strided = whole.clone(), torch.full((length, len(stds)), 0.25).T
    one_by_one = whole.clone()
    add_gaussian_(whole, scales, key_of)
    add_gaussian_(in_chunks[:cut], scales[:cut], key_of)
    add_gaussian_(in_chunks[cut:], scales[cut:], lambda row: key_of(row + cut))
    add_gaussian_(strided, scales, key_of)
    for row in range(len(stds)):
        add_gaussian_(one_by_one[row : row + 1], scales[row : row + 1], lambda _, row=row: key_of(row))
    assert torch.equal(whole, in_chunks)
    assert torch.equal(whole, strided)
    assert torch.equal(whole, one_by_one)


@pytest.mark.parametrize(("rows", "length"), [(400, 650), (3, 200_003)])
def test_threads_change_no_byte(rows: int, length: int) -> None:
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found.append(torch.zeros(rows, length))
        add_gaussian_(found[-1], np.linspace(0.5, 2.0, rows), lambda row: key_at(1, Stream.NOISE, 9, row))
    torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_rows_without_noise_are_left_alone() -> None:
    """To the bit: -0.0 plus 0.0 would be 0.0. Nobody asks for their keys."""
    rows, asked = torch.full((6, 70_000), -0.0), []

    def key_of(row: int) -> bytes:
        asked.append(row)
        return key_at(1, Stream.NOISE, row)

    rows[2] = math.nan
    before = rows.clone()
    add_gaussian_(rows, np.array([0.0, 1.0, 0.0, 0.0, 2.0, 0.0]), key_of)
    assert asked == [1, 4]
    for row in (0, 2, 3, 5):
        assert rows[row].numpy().tobytes() == before[row].numpy().tobytes()
    assert torch.equal(rows[1], from_key(key_at(1, Stream.NOISE, 1), size=70_000))
    assert torch.equal(rows[4], from_key(key_at(1, Stream.NOISE, 4), std=2.0, size=70_000))


@pytest.mark.parametrize(("rows", "length"), [(0, 7), (3, 0)])
def test_nothing_to_add_to(rows: int, length: int) -> None:
    values = torch.zeros(rows, length)
    add_gaussian_(values, np.ones(rows), lambda row: key_at(1, Stream.NOISE, row))
    assert values.shape == (rows, length)


def test_noise_is_float32_and_added_to_what_is_there() -> None:
    rows = torch.arange(12, dtype=torch.float32).reshape(2, 6)
    where = rows.data_ptr()
    expected = rows + torch.stack([draw(0, size=6), draw(1, size=6)])
    add_gaussian_(rows, np.ones(2), lambda row: key_at(3, Stream.NOISE, row))
    assert rows.dtype == torch.float32
    assert rows.data_ptr() == where
    assert torch.equal(rows, expected)


def test_the_same_address_gives_the_same_noise_whatever_was_drawn() -> None:
    first = draw(2, 5)
    torch.randn(10)
    draw(7, 7)
    assert torch.equal(draw(2, 5), first)


def test_global_generators_are_left_alone() -> None:
    of_torch, of_numpy = torch.get_rng_state(), np.random.get_state()[1]
    draw(1)
    assert torch.equal(torch.get_rng_state(), of_torch)
    assert (np.random.get_state()[1] == of_numpy).all()


def test_seeds_keep_their_noise() -> None:
    """What a seed draws is part of the file format; processors differ in the last bits."""
    values = draw(429, 0, 2, 76, seed=0, size=5)
    assert values.tolist() == pytest.approx([1.7154903, 0.5324808, 0.1639357, -0.240212, 0.287398], rel=1e-5)
