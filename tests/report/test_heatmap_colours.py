"""Colours of the heatmaps of ε: digits can be read on every shade, and a narrow range has all shades."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sfumato.report.figures.figure import (
    EPSILON_ENDS,
    EPSILON_SCALE,
    epsilon_bar,
    epsilon_ends,
    epsilon_shade,
    ink_on,
)

ENOUGH = 4.5
"""Contrast of text to its ground (WCAG 2.2, 1.4.3)."""


def luminance(rgb: list[float]) -> float:
    """Relative luminance of red, green and blue, each from 0 to 255, as WCAG 2.2 defines it."""
    share = np.array(rgb) / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def rgb_of(colour: str) -> list[float]:
    return [float(int(colour[i : i + 2], 16)) for i in (1, 3, 5)]


def test_digits_have_contrast_on_every_shade() -> None:
    places = [float(at) for at, _ in EPSILON_SCALE]
    channels = np.array([rgb_of(str(colour)) for _, colour in EPSILON_SCALE])
    low, high = EPSILON_ENDS
    for shade in np.linspace(low, high, 301):
        at = (shade - low) / (high - low)
        ground = luminance([float(np.interp(at, places, channels[:, c])) for c in range(3)])
        ink = luminance(rgb_of(ink_on(float(shade))))
        assert (max(ground, ink) + 0.05) / (min(ground, ink) + 0.05) >= ENOUGH


def test_less_than_a_decade_spans_all_colours() -> None:
    ends = epsilon_ends([5.4, 9.6, math.inf, math.nan])
    assert (epsilon_shade(5.4, ends), epsilon_shade(9.6, ends)) == ends
    assert epsilon_bar(ends)["ticktext"] == ["5.4", "7.2", "9.6"]
    assert epsilon_bar(epsilon_ends([2856.0, 6116.0]))["ticktext"] == ["2,856", "4,179", "6,116"]


@pytest.mark.parametrize("values", [[1.0, 20.0], [3.0, 3.0], [], [math.inf]])
def test_more_than_a_decade_and_equal_values_have_the_common_scale(values: list[float]) -> None:
    assert epsilon_ends(values) == EPSILON_ENDS
