"""Targets of every family: `account` of what was resolved exceeds none, and falls short of none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from random_targets import FAMILIES, calibrated
from slow import first_of, first_quick

from sfumato.schedule.noise import calibration, least_noise

SHORT = 1e-3
"""Factors are roots found to 1e-4 in trees, 3e-4 in groups and where devices move; ε falls faster."""


def outcomes(numbers: Iterable[int]) -> Counter[tuple[str, str]]:
    """What became of random targets, by family; none is exceeded.

    Where anything is charged, the worst pair is at the target: where no noise is needed, ``refused``.
    """
    found: Counter[tuple[str, str]] = Counter()
    for number in numbers:
        one = calibrated(number)
        assert one.share <= 1 + 1e-9, (number, one.share, one.spec)
        short = one.outcome == "met" and one.share < 1 - SHORT
        found[one.family, "short" if short else one.outcome] += 1
    return found


FEW = [number for number in range(25) if number != 4]  # that one moves, with hidden draws: seconds


@pytest.mark.parametrize("piece", first_quick(range(4), 0, 2))
def test_a_few(piece: int) -> None:
    found = outcomes(FEW[piece::4])
    assert sum(count for (_, outcome), count in found.items() if outcome == "met") >= 4
    assert not any(outcome in ("short", "out of reach") for _, outcome in found)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_noise_that_falls_short_is_found(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources that are given a thousandth less than they need exceed their target."""
    judged = calibration.verdict_on_factors

    def less(*arguments: Any) -> Any:
        verdict = judged(*arguments)
        return verdict._replace(excess=verdict.excess * 0.999)

    monkeypatch.setattr(least_noise, "_MOST_TRIALS", 1)
    monkeypatch.setattr(calibration, "verdict_on_factors", less)
    assert calibrated(number).share > 1 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("piece", first_of(10, 3))
def test_two_thousand(piece: int) -> None:
    """2,000 targets that are met, and those that are refused."""
    found = outcomes(range(25 + piece * 260, 25 + (piece + 1) * 260))
    met = sum(count for (_, outcome), count in found.items() if outcome == "met")
    short = sum(count for (_, outcome), count in found.items() if outcome == "short")
    assert met >= 180
    assert short <= 3
    assert {family for family, _ in found} == set(FAMILIES)
