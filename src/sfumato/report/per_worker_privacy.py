"""Per-worker privacy over epochs: how the worst observer's epsilon grows, and its spread over workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from sfumato.privacy.groups.releases import PerWorker, per_worker
from sfumato.report import formatting as text
from sfumato.report.figure import Figure, colour, faded, log_axis, needs_log_axis
from sfumato.report.grouped_run import GroupedRun

_MOST_EPOCHS = 12
_MODELS: tuple[tuple[Literal[1, 2], str], ...] = (
    (1, "every other worker is curious (Threat model 1)"),
    (2, "only workers of other groups are (Threat model 2)"),
)


def per_worker_privacy_figure(run: GroupedRun) -> Figure | None:
    """The least, the middle and the largest over workers, for both threat models; ``None`` without rounds."""
    epochs = _epochs(run)
    if not epochs:
        return None
    neighbours = run.plan.spec.privacy.neighbours
    data: list[dict[str, Any]] = []
    notes, rows, finite, described = [], [], [], []
    for number, (model, name) in enumerate(_MODELS):
        found = per_worker(run.ledger, epochs, threat_model=model, delta=run.delta, neighbours=neighbours)
        spread = [_spread(found, at) for at in range(len(epochs))]
        rows += [
            (name, text.whole(epoch), *(text.epsilon(v) for v in three), text.whole(without))
            for epoch, (three, without) in zip(epochs, spread, strict=True)
        ]
        drawn = [(e, three) for e, (three, _) in zip(epochs, spread, strict=True) if math.isfinite(three[0])]
        finite += [v for _, three in drawn for v in three if math.isfinite(v)]
        last, without = spread[-1]
        short = f"Threat model {model}"
        if math.isnan(last[0]):
            notes.append(f"{short}: nobody is curious.")
        elif without:
            notes.append(f"{short}: ∞ for {text.whole(without)} workers.")
        described.append(f"{name}: at most {text.epsilon(last[2])} in the end.")
        if drawn:
            data += _band(drawn, short, colour(number))
    height = 380
    layout: dict[str, Any] = {
        "height": height,
        "margin": {"l": 64, "r": 16, "t": 30, "b": 56},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": -0.2, "yanchor": "top"},
        "hovermode": "x unified",
        "xaxis": {"title": {"text": "epoch"}, "tickformat": "d", "range": [0, epochs[-1] * 1.02]},
        "yaxis": {"title": {"text": "ε towards the worst observer"}, "rangemode": "tozero"},
    }
    if needs_log_axis(finite) and max(finite) > 1000:
        layout["yaxis"] |= log_axis(finite)
    if not data:
        layout["height"] = 120
        layout["xaxis"] |= {"visible": False}
        layout["yaxis"] |= {"visible": False}
        layout["annotations"] = [
            {
                "text": " ".join(notes),
                "showarrow": False,
                "x": 0.5,
                "y": 0.5,
                "xref": "paper",
                "yref": "paper",
            }
        ]
    return Figure(
        title="Per-worker privacy over epochs",
        caption=(
            "PwP, the paper's (15) with the exact leakage: ε of a worker towards its worst single observer. "
            "Line: the worst worker; dashed: the median; band: all workers that have a guarantee. "
            + " ".join(notes)
        ).strip(),
        description="Per-worker privacy over epochs. " + " ".join(described),
        data=data,
        layout=layout,
        table=text.table(
            ["observers", "epoch", "least ε", "median", "largest", "workers without"],
            rows,
            caption="PwP over workers, by threat model and epoch",
            numeric=(1, 2, 3, 4, 5),
        ),
        kind="pwp",
    )


def _epochs(run: GroupedRun) -> list[int]:
    """At most twelve, the last one among them; fewer where every epsilon takes a while to compute."""
    rounds = run.ledger.rounds
    if run.plan.is_sampled:
        pairs = len(run.rows)
        most = 5 if pairs <= 16 else 3 if pairs <= 60 else 2
    else:
        most = _MOST_EPOCHS
    if not rounds:
        return []
    if rounds <= most:
        return list(range(1, rounds + 1))
    return sorted({max(1, round(rounds * i / most)) for i in range(1, most + 1)})


def _spread(found: Sequence[PerWorker], at: int) -> tuple[tuple[float, float, float], int]:
    """Least, median and largest over workers at one epoch, and how many are without a guarantee.

    The largest is of those with a guarantee, and infinite where nobody has one. NaN where nobody is curious.
    """
    weighed = [(one.epsilon[at], one.stands_for) for one in found if not math.isnan(one.epsilon[at])]
    if not weighed:
        return (math.nan, math.nan, math.nan), 0
    values = np.repeat([v for v, _ in weighed], [n for _, n in weighed])
    kept = np.sort(values[np.isfinite(values)])
    without = len(values) - len(kept)
    if not len(kept):
        return (math.inf, math.inf, math.inf), without
    return (float(kept[0]), float(kept[(len(kept) - 1) // 2]), float(kept[-1])), without


def _band(
    drawn: Sequence[tuple[int, tuple[float, float, float]]], name: str, hex_colour: str
) -> list[dict[str, Any]]:
    x = [epoch for epoch, _ in drawn]
    low, middle, high = ([three[i] for _, three in drawn] for i in range(3))
    common = {"type": "scatter", "x": x, "legendgroup": name}
    marker = {"color": hex_colour, "size": 6}
    return [
        common
        | {
            "mode": "lines",
            "y": low,
            "line": {"width": 0.5, "color": hex_colour},
            "showlegend": False,
            "hovertemplate": "%{y:.3g}",
            "name": f"{name}, least",
        },
        common
        | {
            "mode": "lines+markers",
            "y": high,
            "fill": "tonexty",
            "fillcolor": faded(hex_colour, 0.16),
            "line": {"color": hex_colour, "width": 2},
            "marker": marker,
            "name": f"{name}, worst worker",
            "hovertemplate": "%{y:.3g}",
        },
        common
        | {
            "mode": "lines",
            "y": middle,
            "line": {"color": hex_colour, "width": 1.5, "dash": "dash"},
            "name": f"{name}, median",
            "hovertemplate": "%{y:.3g}",
        },
    ]
