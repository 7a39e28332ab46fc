from __future__ import annotations

import math

import pytest

from sfumato.errors import SpecError
from sfumato.learning.schedules import Constant, Cosine, Exponential, InverseSqrt, Step


def test_rates() -> None:
    assert [Constant(0.1).at(k) for k in (0, 9)] == [0.1, 0.1]
    assert [InverseSqrt(0.1).at(k) for k in (0, 3)] == [0.1, 0.05]
    assert [Step(1.0, 0.5, 10).at(k) for k in (0, 9, 10, 25)] == [1.0, 1.0, 0.5, 0.25]
    assert Exponential(1.0, 0.9).at(3) == pytest.approx(0.729)
    assert [Cosine(1.0, 10, 0.2).at(k) for k in (0, 5, 10, 11)] == pytest.approx([1.0, 0.6, 0.2, 0.2])


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.inf, math.nan])
def test_refuses_rates(wrong: float) -> None:
    for make in (Constant, InverseSqrt, lambda rate: Exponential(rate, 0.5)):
        with pytest.raises(SpecError, match="positive"):
            make(wrong)


def test_refuses_the_rest() -> None:
    with pytest.raises(SpecError, match="decay"):
        Exponential(1.0, 1.5)
    with pytest.raises(SpecError, match="every"):
        Step(1.0, 0.5, 0)
    with pytest.raises(SpecError, match="rounds"):
        Cosine(1.0, 0)
    with pytest.raises(SpecError, match="final"):
        Cosine(1.0, 5, -0.1)
