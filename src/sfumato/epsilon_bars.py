"""ε of pairs as bars, a Plotly figure: what ``PrivacyReport.plot`` draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sfumato.rounding import upper_bound

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_BARS = 40
_COLOUR, _NO_GUARANTEE = "#0072B2", "#C23B4A"  # as in reports
_ROW, _AROUND = 26, 130  # px


def epsilon_bars(bars: Sequence[tuple[str, float]], title: str) -> go.Figure:
    """A Plotly bar chart of ε, the largest on top; at most `MOST_BARS` of them, the largest.

    A striped bar stands for an infinite ε: no guarantee.

    Args:
        bars: (label, ε) of each.
        title: of the figure.
    """
    import plotly.graph_objects as go

    shown = sorted(bars, key=lambda bar: -bar[1])[:MOST_BARS]
    beyond = 1.15 * max((epsilon for _, epsilon in shown if math.isfinite(epsilon)), default=1.0) or 1.0
    endless = [math.isinf(epsilon) for _, epsilon in shown]
    drawn = go.Bar(
        x=[min(epsilon, beyond) for _, epsilon in shown],
        y=[label for label, _ in shown],
        text=[upper_bound(epsilon) for _, epsilon in shown],
        textposition="outside",
        cliponaxis=False,
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
