"""Noise as it is made on a GPU; the same code runs on a CPU.

Statistical tests err with a probability below 1e-6 each, were the keys fresh.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from sfumato.mechanisms import gaussian
from sfumato.mechanisms.gaussian import _threefry_normals, add_gaussian_
from sfumato.mechanisms.threefry import threefry_words
from sfumato.random import Stream, key_at

ANSWERS = {  # of Random123, `kat_vectors`: counter, key and the block
    "zeros": (
        "0000000000000000 0000000000000000 0000000000000000 0000000000000000",
        "0000000000000000 0000000000000000 0000000000000000 0000000000000000",
        "09218ebde6c85537 55941f5266d86105 4bd25e16282434dc ee29ec846bd2e40b",
    ),
    "ones": (
        "ffffffffffffffff ffffffffffffffff ffffffffffffffff ffffffffffffffff",
        "ffffffffffffffff ffffffffffffffff ffffffffffffffff ffffffffffffffff",
        "29c24097942bba1b 0371bbfb0f6f4e11 3c231ffa33f83a1c cd29113fde32d168",
    ),
    "digits of pi": (
        "243f6a8885a308d3 13198a2e03707344 a4093822299f31d0 082efa98ec4e6c89",
        "452821e638d01377 be5466cf34e90c6c be5466cf34e90c6c c0ac29b7c97c50dd",
        "a7e8fde591651bd9 baafd0c30138319b 84a5c1a729e685b9 901d406ccebc1ba4",
    ),
}


def words(text: str) -> list[int]:
    return [int(word, 16) - (int(word, 16) >> 63 << 64) for word in text.split()]


@pytest.mark.parametrize("what", ANSWERS)
def test_known_answers(what: str) -> None:
    counter, key, block = map(words, ANSWERS[what])
    other = [word ^ 5 for word in key]
    found = threefry_words(torch.tensor([other, key]), torch.tensor([counter]).T)
    assert [int(word[1, 0]) for word in found] == block
    assert [int(word[0, 0]) for word in found] != block


def key_of(number: int) -> bytes:
    return key_at(3, Stream.NOISE, number)


def normals(count: int, *numbers: int, std: float = 1.0) -> Tensor:
    keys = [key_of(number) for number in numbers]
    return _threefry_normals(keys, 0, count, torch.full((len(keys), 1), std))


@pytest.mark.parametrize("std", [1e-6, 0.7, 40.0])
def test_scale(std: float) -> None:
    size = 50_000
    noise, chi2 = normals(size, 0, std=std)[0].double(), stats.chi2(size)

    def accepts(scale: float) -> bool:
        return bool(1e-7 < chi2.cdf(float((noise / scale).square().sum())) < 1 - 1e-7)

    assert accepts(std)
    assert not accepts(std * 2 / 3)
    assert not accepts(std * 3 / 2)
    assert abs(float(noise.mean())) < 5.5 * std / math.sqrt(size)


def test_shape_of_the_distribution() -> None:
    values = normals(1_000_001, 1)[0].numpy().astype(np.float64)
    assert stats.kstest(values, "norm").pvalue > 1e-7
    assert stats.kstest(values[:20_000] * 2 / 3, "norm").pvalue < 1e-7
    tail = int((np.abs(values) > 4).sum())
    assert 1e-7 < stats.binom.cdf(tail, len(values), 2 * stats.norm.sf(4)) < 1 - 1e-7
    assert np.isfinite(values).all()


def test_neighbours_keys_and_blocks_are_independent() -> None:
    rows = normals(100_000, 0, 1).double()
    pairs = [(rows[0], rows[1]), (rows[0], rows[0].square() - 1)]
    pairs += [(rows[0, :-lag], rows[0, lag:]) for lag in (1, 2, 3, 4)]
    pairs += [(rows[0, :-lag].square() - 1, rows[0, lag:].square() - 1) for lag in (1, 2, 3, 4)]
    for a, b in pairs:
        assert abs(float(a @ b / (a.norm() * b.norm()))) < 5.5 / math.sqrt(len(a)) * 2


@given(st.integers(0, 12), st.integers(1, 40))
@settings(deadline=None)
def test_a_value_follows_from_its_own_key_and_place(block: int, count: int) -> None:
    whole = normals(100, 4, 5, 6)
    start = 4 * block
    part = _threefry_normals([key_of(5)], start, start + count, torch.ones(1, 1))
    assert torch.equal(part[0], whole[1, start : start + count])


def test_rows_get_it_whatever_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without noise are left alone, and nobody asks for their keys."""
    stds, asked = np.array([1.0, 0.0, 0.3, 2.0]), []

    def key_of_row(row: int) -> bytes:
        asked.append(row)
        return key_of(row)

    expected = normals(50, 0, 1, 2, 3) * torch.from_numpy(stds).float()[:, None]
    for block in (4, 12, 64, 1 << 22):
        monkeypatch.setattr(gaussian, "_GPU_BLOCK", block)
        rows = torch.full((4, 50), 0.25)
        gaussian._add_on_gpu_(rows, stds, key_of_row)
        torch.testing.assert_close(rows, expected + 0.25, rtol=0, atol=1e-6)
        assert torch.equal(rows[1], torch.full((50,), 0.25))
    assert 1 not in asked


@pytest.mark.needs("cuda")
def test_words_on_a_gpu() -> None:
    """One kernel for all rounds gives what the operations one by one give."""
    for what in ANSWERS:
        counter, key, block = map(words, ANSWERS[what])
        found = threefry_words(torch.tensor([key]).cuda(), torch.tensor([counter]).T.cuda())
        assert [int(word) for word in found] == block
    generator = torch.Generator().manual_seed(5)
    keys, counters = (
        torch.randint(-(2**63), 2**63 - 1, shape, generator=generator) for shape in ((7, 4), (4, 1001))
    )
    for ours, theirs in zip(
        threefry_words(keys, counters), threefry_words(keys.cuda(), counters.cuda()), strict=True
    ):
        assert torch.equal(ours, theirs.cpu())


@pytest.mark.needs("cuda")
def test_on_a_gpu() -> None:
    rows, stds = torch.zeros(5, 40_001, device="cuda"), np.array([1.0, 0.0, 0.3, 2.0, 1.0])
    add_gaussian_(rows, stds, key_of)
    again = torch.zeros_like(rows)
    add_gaussian_(again, stds, key_of)
    assert torch.equal(rows, again)
    on_cpu = normals(40_001, *range(5)) * torch.from_numpy(stds).float()[:, None]
    torch.testing.assert_close(rows.cpu(), on_cpu, rtol=1e-5, atol=1e-5)
