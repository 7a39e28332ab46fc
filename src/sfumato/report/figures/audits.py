"""Audits drawn: what was shown beside what is promised."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.report import formatting as text
from sfumato.report.figures.figure import NEUTRAL, NO_GUARANTEE, TRUSTED, Figure, log_axis, needs_log_axis
from sfumato.report.results.attack_findings import ObserverFindings
from sfumato.run_folder.reader import as_epsilon

_MOST = 20


def audit_figure(observers: Sequence[ObserverFindings], delta: str) -> Figure | None:
    """Bars of the lower bound that each audit has shown, beside the guaranteed ε; ``None`` without audits."""
    found = [(one.title, finding) for one in observers for finding in one.audits][:_MOST]
    if not found:
        return None
    shown = [max(0.0, as_epsilon(finding["lower"])) for _, finding in found]
    promised = [as_epsilon(finding["upper"]) for _, finding in found]
    finite = [value for value in (*shown, *promised) if 0 < value < math.inf]
    is_log = needs_log_axis(finite)
    beyond = max(finite, default=1.0) * (2 if is_log else 1.15)
    places = list(range(len(found)))
    labels = [
        f"{text.wrapped(finding['unit'], 30)}<br><span style='font-size:11px'>towards "
        f"{text.wrapped(name, 36)}</span>"
        for name, finding in found
    ]
    axis: dict[str, Any] = {"title": {"text": "ε"}, "fixedrange": True}
    axis |= log_axis([*finite, beyond]) if is_log else {"rangemode": "tozero"}
    height = 40 + 62 * len(found)
    holds = [bool(finding["holds"]) for _, finding in found]
    return Figure(
        title="Shown by the audit, beside what is promised",
        caption=(
            "Blue: the ε that attacks on worst-case data have shown at least. Grey: the guaranteed "
            f"ε{delta}, striped where there is none. A guarantee is refuted where the blue bar is longer."
        ),
        description=" ".join(
            f"{finding['unit']} towards {name}: shown {text.lower_epsilon(low)}, promised "
            f"{text.epsilon(high)}."
            for (name, finding), low, high in zip(found, shown, promised, strict=True)
        ),
        data=[
            _bars("shown", [TRUSTED if right else NO_GUARANTEE for right in holds], shown, places, beyond),
            _bars("promised", [NEUTRAL] * len(found), promised, places, beyond),
        ],
        layout={
            "height": height + 90,
            "barmode": "group",
            "bargap": 0.35,
            "margin": {"l": 8, "r": 64, "t": 8, "b": 76},
            "xaxis": axis,
            "yaxis": {
                "tickvals": places, "ticktext": labels, "autorange": "reversed", "automargin": True,
                "showgrid": False, "fixedrange": True,
            },
            "legend": {"orientation": "h", "x": 0, "y": -58 / height, "yanchor": "top"},
        },
        table=_table(found),
        kind="audits",
    )  # fmt: skip


def _bars(
    name: str, colours: Sequence[str], values: Sequence[float], places: Sequence[int], beyond: float
) -> dict[str, Any]:
    endless = [value == math.inf for value in values]
    form = text.lower_epsilon if name == "shown" else text.epsilon
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": list(places),
        "x": [beyond if infinite else value for value, infinite in zip(values, endless, strict=True)],
        "text": [form(value) for value in values],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertext": [f"{name}: ε = {form(value)}" for value in values],
        "hoverinfo": "text",
        "marker": {
            "color": list(colours),
            "pattern": {"shape": ["/" if infinite else "" for infinite in endless]},
        },
    }


def _table(found: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    return text.table(
        ["unit", "observer", "shown ε, at least", "promised ε, at most", "holds"],
        [
            (
                finding["unit"],
                name,
                text.lower_epsilon(as_epsilon(finding["lower"])),
                text.epsilon(as_epsilon(finding["upper"])),
                "yes" if finding["holds"] else "no",
            )
            for name, finding in found
        ],
        caption="Audits",
        numeric=(2, 3),
    )
