"""The grid of sums: whole steps towards zero, and the arithmetic of the ring."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.schedule.message_grid import Grid
from sfumato.secure_aggregation.encoding import decode, encode
from sfumato.secure_aggregation.masks import Masker, ring_type
from sfumato.secure_aggregation.quantisation import QuantisationPlan


@settings(max_examples=60, deadline=None)
@given(
    exponent=st.integers(-180, 60),
    steps=st.lists(st.floats(-(2.0**63), 2.0**63, width=32), min_size=1, max_size=20),
)
def test_whole_steps_are_the_exact_quotients_towards_zero(exponent: int, steps: list[float]) -> None:
    grid = Grid(exponent, 64)
    assert grid.step * grid.scale == 1
    for kind in (np.float32, np.float64):
        values = np.ldexp(np.array(steps), exponent).astype(kind)
        exact = [math.trunc(Fraction(float(value)) / Fraction(2) ** exponent) for value in values]
        assert [int(whole) for whole in grid.whole(values)] == exact


def test_what_no_float_holds_is_no_number_of_steps() -> None:
    assert Grid(-120, 64).whole(np.array([256.0], dtype=np.float32)).tolist() == [math.inf]


@settings(max_examples=60, deadline=None)
@given(numbers=st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=20))
def test_sums_wrap_as_elements_of_the_ring_do(numbers: list[int]) -> None:
    vectors = np.array(numbers, dtype=np.int64)
    narrow, wide = Grid(-10, 32), Grid(-10, 64)
    expected = (vectors.sum() + 2**31) % 2**32 - 2**31
    assert narrow.wrapped(vectors.sum(keepdims=True)).tolist() == [expected]
    assert narrow.wrapped(narrow.wrapped(vectors).sum(keepdims=True)).tolist() == [expected]
    assert wide.wrapped(vectors).tolist() == numbers


def test_integers_that_are_masked_are_those_of_the_grid() -> None:
    """What devices send, masked, unmasked and decoded: the steps that the simulator adds up, to the bit."""
    grid, length, rng = Grid(-12, 32), 50, np.random.default_rng(3)
    plan = QuantisationPlan(1.0, grid.scale, grid.bits, parties=4, dimension=length, noise_std=40.0)
    vectors = rng.normal(size=(4, length)) / 20
    sent = [encode(vector, plan, bytes([number] * 32)) for number, vector in enumerate(vectors)]
    total, masks = np.zeros(length, dtype=ring_type(grid.bits)), Masker(length, grid.bits)
    for number, steps in enumerate(sent):
        masked = steps.copy()
        masks.add(masked, bytes([9] * 32)) if number % 2 else masks.subtract(masked, bytes([9] * 32))
        total += masked
    added = grid.wrapped(sum(steps.astype(np.int64) for steps in sent))
    assert (decode(total, plan) == added * grid.step).all()
