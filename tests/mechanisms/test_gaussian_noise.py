"""Errs with probability below 1e-6 a test, were the noise fresh."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from sfumato.mechanisms.noise import gaussian

M = 50_000
CPU = torch.device("cpu")


def draw(*key: int, seed: int = 3, std: float = 1.0, size: int = M) -> Tensor:
    return gaussian(size, std, seed=seed, key=key, device=CPU)


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
    assert stats.kstest(draw(4).double().numpy(), "norm").pvalue > 1e-6


def test_addresses_are_independent() -> None:
    """Nearby rounds, aggregations, tiers, parties, seeds and lengths of address."""
    keys = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 0), (0, 0, 0, 0, 0)]
    vectors = [draw(*key) for key in keys] + [draw(0, 0, 0, 0, seed=4)]
    for a, b in itertools.combinations(vectors, 2):
        assert abs(float(a.double() @ b.double())) / M < 6 / math.sqrt(M)


def test_the_same_address_gives_the_same_noise_whatever_was_drawn() -> None:
    first = draw(2, 5)
    torch.randn(10)
    draw(7, 7)
    assert torch.equal(draw(2, 5), first)


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    draw(1)
    assert torch.equal(torch.get_rng_state(), before)
