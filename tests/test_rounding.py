"""What is printed of an upper bound is never below it, of a lower bound never above it."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.report import formatting
from sfumato.rounding import lower_bound, number, upper_bound

FIGURES = st.floats(allow_nan=False, allow_infinity=False)
EPSILONS = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
DIGITS = st.integers(1, 6)


def read(text: str) -> float:
    """The number that a printed text says."""
    return float(text.replace(",", "").replace("\u2009", "").replace("−", "-"))


@given(FIGURES, DIGITS, st.booleans())
def test_an_upper_bound_is_printed_no_lower_and_a_lower_bound_no_higher(
    value: float, digits: int, keep_zeros: bool
) -> None:
    assert read(upper_bound(value, digits, keep_zeros=keep_zeros)) >= value
    assert read(lower_bound(value, digits, keep_zeros=keep_zeros)) <= value


@given(EPSILONS)
def test_the_same_in_reports(value: float) -> None:
    assert read(formatting.epsilon(value)) >= value >= read(formatting.lower_epsilon(value))


@given(st.floats(1e-300, 1e300), DIGITS)
def test_what_is_printed_is_near(value: float, digits: int) -> None:
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    for show in (upper_bound, lower_bound, number):
        assert abs(read(show(value, digits)) - value) <= 1.01 * unit
    assert read(lower_bound(value, digits)) <= read(number(value, digits)) <= read(upper_bound(value, digits))


@given(st.integers(1, 9_999), st.integers(-12, 12))
def test_a_number_of_few_digits_is_printed_as_it_is_written(figures: int, power: int) -> None:
    value = float(f"{figures}e{power}")
    assert {read(show(value)) for show in (upper_bound, lower_bound, number)} == {value}


@pytest.mark.parametrize(
    ("show", "value", "shown"),
    [
        (upper_bound, 45.44663422823703, "45.45"),
        (lower_bound, 45.44663422823703, "45.44"),
        (upper_bound, 7.99999999033272, "8"),
        (lower_bound, 7.99999999033272, "7.999"),
        (upper_bound, 9.99951, "10"),
        (upper_bound, 0.1, "0.1"),
        (upper_bound, 12345.1, "12,346"),
        (number, 12345.1, "12,345"),
        (upper_bound, 1_234_567.0, "1.235e6"),
        (number, 1e-5, "1e-5"),
        (upper_bound, 0.0, "0"),
        (upper_bound, math.inf, "∞"),
        (lower_bound, math.nan, "–"),
        (formatting.epsilon, 45.4466, "45.45"),
        (formatting.lower_epsilon, 45.4466, "45.44"),
        (formatting.number, 1e-5, "1e-5"),
        (formatting.epsilon, 9.9996, "10"),
    ],
)
def test_examples(show: Callable[[float], str], value: float, shown: str) -> None:
    assert show(value) == shown
