"""Lines and markers, and words, stand out from the page in light and dark (WCAG 2.2, 1.4.3 and 1.4.11)."""

import re
from importlib.resources import files

import pytest

from sfumato.report.drawings.moving import EDGE_COLOURS
from sfumato.report.figures.figure import NEUTRAL, NO_GUARANTEE, NOISE, PALETTE, RAW, SECURE, TRUSTED

CSS = files("sfumato.report.page").joinpath("page.css").read_text("utf-8")
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    for block in re.findall(r":root \{([^}]*)\}", CSS)[:2]
)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("colour", sorted({*PALETTE, NO_GUARANTEE, TRUSTED, NOISE, RAW, SECURE, NEUTRAL}))
def test_what_is_drawn_stands_out(theme: dict[str, str], colour: str) -> None:
    assert contrast(colour, theme["paper"]) >= 3


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("colour", EDGE_COLOURS)
def test_edges_over_time_have_colours_of_their_own_that_stand_out(theme: dict[str, str], colour: str) -> None:
    assert contrast(colour, theme["paper"]) >= 3
    assert colour not in {TRUSTED, NOISE, RAW, SECURE, NEUTRAL}


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("ink", "paper"),
    [
        ("ink", "paper"),
        ("soft", "paper"),
        ("soft", "panel"),
        ("accent", "paper"),
        ("bad", "paper"),
        ("warn-ink", "warn"),
    ],
)
def test_words_stand_out(theme: dict[str, str], ink: str, paper: str) -> None:
    assert contrast(theme[ink], theme[paper]) >= 4.5


def test_black_on_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
