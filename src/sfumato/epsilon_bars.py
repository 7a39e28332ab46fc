"""ε of units towards observers as bars, a Plotly figure: what ``PrivacyReport.plot`` draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_BARS = 40
_COLOUR, _NO_GUARANTEE = "#0072B2", "#C23B4A"  # as in reports
_ROW, _AROUND = 26, 130  # px


class EpsilonBar(NamedTuple):
    """One bar: what it is about, its ε (infinite without a guarantee), and ε as text."""

    label: str
    epsilon: float
    text: str


def epsilon_bars(bars: Sequence[EpsilonBar], title: str) -> go.Figure:
    """Bars, the largest ε on top; of very many the largest. A bar without an end is striped: no guarantee."""
    import plotly.graph_objects as go

    shown = sorted(bars, key=lambda bar: -bar.epsilon)[:MOST_BARS]
    beyond = 1.15 * max((bar.epsilon for bar in shown if math.isfinite(bar.epsilon)), default=1.0) or 1.0
    endless = [math.isinf(bar.epsilon) for bar in shown]
    drawn = go.Bar(
        x=[beyond if no_end else bar.epsilon for bar, no_end in zip(shown, endless, strict=True)],
        y=[bar.label for bar in shown],
        text=[bar.text for bar in shown],
        orientation="h",
        marker={
            "color": [_NO_GUARANTEE if no_end else _COLOUR for no_end in endless],
            "pattern": {"shape": ["/" if no_end else "" for no_end in endless]},
        },
    )
    hidden = f" (the {MOST_BARS} largest of {len(bars):,})" if len(bars) > MOST_BARS else ""
    return go.Figure(drawn).update_layout(
        title=title + hidden,
        height=_AROUND + _ROW * len(shown),
        xaxis={"title": "ε", "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "automargin": True},
    )
