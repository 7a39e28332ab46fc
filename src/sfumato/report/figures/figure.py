"""A figure: Plotly's JSON with title, caption, description for screen readers and table; axes, colours."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sfumato.report import formatting as text

# Okabe and Ito's palette, distinguishable with any colour vision; without yellow and black, and with the
# light colours darker, so that each has a contrast of 3 : 1 to white and to the dark page (WCAG 2.2, 1.4.11).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#C4709E", "#B87F00", "#3D97CF", "#8A8F98")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
NO_GUARANTEE = "#C23B4A"
TRUSTED = "#0072B2"
NOISE = "#B87F00"
RAW = "#D55E00"
SECURE = "#009E73"
NEUTRAL = "#8A8F98"


@dataclass(frozen=True)
class Figure:
    """One figure of the report.

    Attributes:
        title: above the figure (plain text).
        caption: below the figure (plain text).
        description: for screen readers (plain text).
        data: Plotly traces. Text from users in them has been escaped by ``text.label``.
        layout: Plotly layout; colours of text and lines come from the page's theme.
        table: HTML of the numbers in the figure, folded below it.
        kind: a name for style sheets and tests.
        min_width: smallest width in pixels; on a narrower page the figure is scrolled.
    """

    title: str
    caption: str
    description: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    table: str = ""
    kind: str = "plot"
    min_width: int = 300


def colour(index: int) -> str:
    """The colour of the ``index``-th run or observer."""
    return PALETTE[index % len(PALETTE)]


def faded(hex_colour: str, alpha: float) -> str:
    """``#rrggbb`` as ``rgba(...)``."""
    red, green, blue = (int(hex_colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def needs_log_axis(values: Iterable[float]) -> bool:
    """Whether positive values span more than a factor of 30."""
    positive = [v for v in values if v > 0 and math.isfinite(v)]
    return bool(positive) and max(positive) > 30 * min(positive)


def log_axis(values: Iterable[float]) -> dict[str, Any]:
    """A log axis that contains the positive, finite ``values``, with ticks at round numbers."""
    positive = [v for v in values if v > 0 and math.isfinite(v)]
    low, high = math.log10(min(positive)), math.log10(max(positive))
    room = 0.06 * (high - low) + 0.05
    ticks = log_ticks(10 ** (low - room), 10 ** (high + room))
    return {
        "type": "log",
        "range": [low - room, high + room],
        "tickvals": ticks,
        "ticktext": [tick_label(tick) for tick in ticks],
    }


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between ``low`` and ``high``; with few of them their 2- and 5-fold too."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1,)):
        ticks = [step * 10.0**power for power in powers for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= 9:
            break
    return ticks


def tick_label(value: float) -> str:
    """A tick without trailing zeros."""
    return f"{value:g}" if 1e-3 <= value < 1e5 else text.number(value)


def round_axis(rounds: Iterable[float]) -> dict[str, Any]:
    """The x axis over rounds; with few rounds, a tick for each and a margin at both ends."""
    known = list(rounds)
    axis: dict[str, Any] = {"title": {"text": "round"}, "tickformat": "d"}
    if known and max(known) - min(known) < 10:
        axis |= {"dtick": 1, "range": [min(known) - 0.5, max(known) + 0.5]}
    return axis
