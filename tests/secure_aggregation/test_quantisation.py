from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from sfumato.secure_aggregation.discrete_gaussian import sample_discrete_gaussian
from sfumato.secure_aggregation.encoding import decode, encode, round_at_random
from sfumato.secure_aggregation.quantisation import QuantisationPlan
from sfumato.wire.errors import QuantisationError
from sfumato.wire.key_stream import KeyStream

CRITICAL = 1 - 1e-7


def statistic(draws: np.ndarray, std: float) -> tuple[float, int]:
    """Chi-square of integers against N_Z(0, std²), cells of at least 20 expected."""
    reach = np.arange(-math.ceil(12 * std) - 5, math.ceil(12 * std) + 6)
    chance = np.exp(-(reach**2) / (2 * std**2))
    expected = len(draws) * chance / chance.sum()
    counts = np.bincount(np.clip(draws, reach[0], reach[-1]) - reach[0], minlength=len(reach))
    group = np.floor(np.cumsum(expected) / max(20.0, len(draws) / 200)).astype(int)
    e, c = np.bincount(group, expected), np.bincount(group, counts)
    fine = e >= 20
    return float((((c - e) ** 2 / np.maximum(e, 1e-300))[fine]).sum()), int(fine.sum())


@pytest.mark.parametrize("std", [0.75, 1.0, 2.5, 7.9, 8.0, 40.0, 333.3])
def test_the_noise_is_a_discrete_gaussian_and_not_one_of_another_scale(std) -> None:
    draws = sample_discrete_gaussian(60_000, std, KeyStream(b"d" * 32))
    for scale, accepted in ((1.0, True), (2 / 3, False), (1.5, False)):
        value, cells = statistic(draws, std * scale)
        assert (value < chi2.ppf(CRITICAL, cells)) == accepted, (scale, value, cells)


@pytest.mark.parametrize("std", [1e5, 2.0**40])
def test_wide_noise_has_the_right_scale(std) -> None:
    draws = sample_discrete_gaussian(100_000, std, KeyStream(b"w" * 32)).astype(float) / std
    assert abs(draws.mean()) < 5.5 / math.sqrt(1e5)
    assert abs((draws**2).mean() - 1) < 5.5 * math.sqrt(2 / 1e5)
    assert abs((draws**4).mean() - 3) < 5.5 * math.sqrt(96 / 1e5)
    low = sample_discrete_gaussian(100_000, std, KeyStream(b"l" * 32)) & 15
    counts = np.bincount(low, minlength=16)
    assert ((counts - 6250) ** 2 / 6250).sum() < chi2.ppf(CRITICAL, 15)


def test_decimals_decide_as_floating_point_does() -> None:
    """The exact decision alone gives the same law, and where floating point decides, the same bits."""
    draws = sample_discrete_gaussian(4000, 3.0, KeyStream(b"e" * 32), margin=2.0)
    value, cells = statistic(draws, 3.0)
    assert value < chi2.ppf(CRITICAL, cells)
    assert (
        sample_discrete_gaussian(500, 50.0, KeyStream(b"f" * 32), margin=1e-6)
        == sample_discrete_gaussian(500, 50.0, KeyStream(b"f" * 32))
    ).all()


def test_noise_follows_its_key_and_refuses_bad_scales() -> None:
    assert (
        sample_discrete_gaussian(50, 9.0, KeyStream(b"1" * 32))
        == sample_discrete_gaussian(50, 9.0, KeyStream(b"1" * 32))
    ).all()
    assert (
        sample_discrete_gaussian(50, 9.0, KeyStream(b"1" * 32))
        != sample_discrete_gaussian(50, 9.0, KeyStream(b"2" * 32))
    ).any()
    assert not sample_discrete_gaussian(5, 0.0, KeyStream(b"1" * 32)).any()
    for std in (-1.0, math.nan, math.inf, 2.0**50):
        with pytest.raises(QuantisationError):
            sample_discrete_gaussian(5, std, KeyStream(b"1" * 32))


@settings(max_examples=100, deadline=None)
@given(st.floats(1.0, 1e6), st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_rounded_vectors_keep_to_the_sensitivity(scale, dimension, seed) -> None:
    plan = QuantisationPlan(clip=1.0, scale=scale, bits=64, parties=2, dimension=dimension)
    vector = np.random.default_rng(seed).normal(size=dimension) * 3
    steps = round_at_random(vector, plan, KeyStream(seed.to_bytes(32, "big"))).astype(object)
    assert float((steps * steps).sum()) <= plan.sensitivity**2
    assert plan.sensitivity <= (scale + math.sqrt(dimension)) * (1 + 1e-8)


def test_the_sensitivity_is_the_formulas() -> None:
    plan = QuantisationPlan(1.0, 1000.0, 32, 10, 10_000, rounding_failure=math.exp(-0.5))
    assert plan.sensitivity == pytest.approx(math.sqrt(1000**2 + 2500 + (1000 + 50)), rel=1e-8)
    tiny = QuantisationPlan(1.0, 1.0, 32, 10, 4)
    assert tiny.sensitivity == pytest.approx(3.0, rel=1e-8)  # r + √d
    assert plan.inflation > 1
    assert QuantisationPlan(1.0, 2.0**24, 32, 100, 10**6).inflation < 1.001


def test_the_sum_is_unbiased() -> None:
    plan = QuantisationPlan(clip=1.0, scale=4.0, bits=32, parties=5, dimension=200, noise_std=2.0)
    rng = np.random.default_rng(5)
    vectors = [v / (2 * np.linalg.norm(v)) for v in rng.normal(size=(5, 200))]
    runs = 400
    total = np.zeros(200)
    for run in range(runs):
        summed = np.zeros(200, dtype=np.uint32)
        for i, vector in enumerate(vectors):
            summed += encode(vector, plan, bytes([i]) + run.to_bytes(31, "big"))
        total += decode(summed, plan)
    error = total / runs - np.sum(vectors, axis=0)
    std = math.sqrt(5 * (2.0**2 + 0.25) / runs) / plan.scale
    assert np.abs(error).max() < 6.3 * std  # 200 coordinates, 1e-6 / 10 in all
    assert (error**2).sum() / std**2 < chi2.ppf(CRITICAL, 200)
    rounded = np.mean(
        [round_at_random(vectors[0], plan, KeyStream(bytes([k % 256, k // 256]) * 16)) for k in range(3000)],
        axis=0,
    )
    assert np.abs(rounded / plan.scale - vectors[0]).max() < 6.3 * 0.5 / math.sqrt(3000) / plan.scale


def test_the_noise_of_the_sum_has_the_planned_scale() -> None:
    bare = QuantisationPlan(clip=2.0, scale=2.0**20, bits=32, parties=10, dimension=20_000)
    plan = replace(bare, noise_std=1.5 * bare.sensitivity / math.sqrt(5))
    zero = np.zeros(20_000)
    summed = sum((encode(zero, plan, bytes([i]) * 32) for i in range(5)), np.zeros(20_000, dtype=np.uint32))
    noise = decode(summed, plan) / (1.5 * plan.sensitivity / plan.scale)
    ratio, slack = float((noise**2).mean()), 5.5 * math.sqrt(2 / 20_000)
    assert abs(ratio - 1) < slack
    for wrong in (2 / 3, 1.5):
        assert abs(ratio / wrong**2 - 1) > slack


@pytest.mark.parametrize(("bits", "scale"), [(16, 2.0**8), (32, 2.0**23), (64, 2.0**38)])
def test_sums_of_the_extremest_inputs_do_not_wrap(bits, scale) -> None:
    parties = 20
    bare = QuantisationPlan(clip=3.0, scale=scale, bits=bits, parties=parties, dimension=50)
    plan = replace(bare, noise_std=bare.sensitivity / math.sqrt(10))
    assert plan.wrapping <= 1e-12
    spike = np.zeros(50)
    spike[7] = -1e9  # clipped
    total = sum(
        (encode(spike, plan, bytes([i]) * 32) for i in range(parties)), np.zeros(50, dtype=f"<u{bits // 8}")
    )
    assert decode(total, plan)[7] == pytest.approx(
        -3.0 * parties, abs=7 * math.sqrt(parties) * plan.noise_std / scale
    )


def test_plans_that_could_wrap_or_make_no_sense_are_refused() -> None:
    good = {"clip": 1.0, "scale": 100.0, "bits": 16, "parties": 10, "dimension": 5}
    QuantisationPlan(**good)
    for change in (
        {"parties": 400},
        {"noise_std": 4000.0},
        {"noise_std": 0.3},
        {"clip": math.nan},
        {"scale": 0.0},
        {"bits": 20},
        {"dimension": 0},
        {"rounding_failure": 0.0},
        {"clip": 1e20, "bits": 64},
    ):
        with pytest.raises(QuantisationError):
            QuantisationPlan(**{**good, **change})


def test_inputs_are_validated() -> None:
    plan = QuantisationPlan(1.0, 100.0, 32, 3, 4)
    for vector in (np.zeros(5), np.array([1.0, math.nan, 0, 0]), np.array([1.0, math.inf, 0, 0])):
        with pytest.raises(QuantisationError):
            encode(vector, plan, bytes(32))
    with pytest.raises(QuantisationError, match="uint32"):
        decode(np.zeros(4, dtype=np.uint16), plan)
    assert not encode(np.zeros(4), plan, bytes(32)).any()
