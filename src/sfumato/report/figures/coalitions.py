"""The coalitions of devices that a threat model tolerates: the worst ε for every number of colluders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sfumato.report import formatting as text
from sfumato.report.figures.curves import over_legend
from sfumato.report.figures.figure import DASHES, Figure, colour, log_axis, needs_log_axis
from sfumato.report.page.html import PlacedFigures
from sfumato.report.results.matrix import Matrix
from sfumato.report.results.series import Series
from sfumato.run_folder.reader import as_epsilon

_NAMES = {"epsilon": "before training", "supernode_epsilon": "with the supernode among them in every round"}


def coalitions_part(one: Series, matrix: Matrix, figures: PlacedFigures) -> str:
    """HTML of the coalitions of ``one``; empty where its threat model names none."""
    rows: Sequence[dict[str, Any]] = one.first.privacy.get("coalitions") or ()
    if not rows:
        return ""
    titles = {unit: _title(matrix, unit) for unit in dict.fromkeys(str(row["unit"]) for row in rows)}
    unprotected = [
        unit
        for unit in titles
        if all(as_epsilon(row[key]) == math.inf for row in rows if row["unit"] == unit for key in _NAMES)
    ]
    sizes = [int(row["size"]) for row in rows]
    said = [
        f"Devices that pool what they know: at most {text.whole(max(sizes))} of them, as the threat "
        "model of HDP tolerates. For every number of colluders, the coalition that was found to learn the "
        "most."
    ]
    said += [f"{titles[unit]}: no guarantee, from one colluder on." for unit in unprotected]
    figure = _figure(rows, titles, one.first.privacy)
    everywhere = len(set(sizes))
    if figure and all(len(t["x"]) == everywhere and len(set(t["text"])) == 1 for t in figure.data):
        of_each = "; ".join(f"{trace['name']}: {trace['text'][0]}" for trace in figure.data)
        said.append(
            f"ε is the same for every number of colluders{text.at_delta(one.first.privacy)}: {of_each}."
        )
        figure = None
    table = text.table(
        ["about", "colluders", "under the same edge", *(f"ε, {name}" for name in _NAMES.values())],
        [
            (
                titles[str(row["unit"])],
                text.whole(row["size"]),
                text.whole(row["in_zone"]),
                *(text.epsilon(as_epsilon(row[key])) for key in _NAMES),
            )
            for row in rows
            if row["unit"] not in unprotected
        ],
        caption=f"The worst coalition of devices of each size{text.at_delta(one.first.privacy)}",
        numeric=(1, 2, 3, 4),
    )
    words = "".join(f"<p>{text.escape(line)}</p>" for line in said)
    drawn = "" if figure is None else figures.place(figure)
    if len(unprotected) == len(titles):
        return words
    return f"{words}{drawn}<details><summary>Show all coalitions</summary>{table}</details>"


def _title(matrix: Matrix, unit: str) -> str:
    """The row of the matrix that stands for ``unit``."""
    for (row, _), cell in matrix.cells.items():
        if any(g["unit"] == unit for g in cell.guarantees):
            return matrix.rows[row].title
    return unit


def _figure(rows: Sequence[dict[str, Any]], titles: dict[str, str], privacy: Any) -> Figure | None:
    data: list[dict[str, Any]] = []
    described = []
    variants = sum(any(as_epsilon(row[key]) < math.inf for row in rows) for key in _NAMES)
    for number, (unit, title) in enumerate(titles.items()):
        for key, name in _NAMES.items():
            known = [
                (int(row["size"]), as_epsilon(row[key]))
                for row in rows
                if row["unit"] == unit and as_epsilon(row[key]) < math.inf
            ]
            if not known:
                continue
            described.append(f"{title}, {name}: at most {text.epsilon(max(value for _, value in known))}.")
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": text.label(f"{title}, {name}" if variants > 1 else title),
                    "x": [size for size, _ in known],
                    "y": [value for _, value in known],
                    "text": [text.epsilon(value) for _, value in known],
                    "hovertemplate": "ε = %{text} with %{x} colluders",
                    "line": {"color": colour(number), "width": 2, "dash": DASHES[list(_NAMES).index(key)]},
                }
            )
    if not data:
        return None
    values = [value for trace in data for value in trace["y"]]
    axis: dict[str, Any] = {"title": {"text": "ε"}, "rangemode": "tozero"}
    if needs_log_axis(values):
        axis |= log_axis(values)
    return Figure(
        title="ε towards colluding devices",
        caption=f"The worst coalition of each size that was found{text.at_delta(privacy)}. Sizes without a "
        "point: no guarantee.",
        description="ε towards coalitions of devices by their number. " + " ".join(described),
        data=data,
        layout=over_legend(320, data, -0.3)
        | {
            "showlegend": True,
            "hovermode": "closest",
            "xaxis": {"title": {"text": "colluding devices"}, "rangemode": "tozero"},
            "yaxis": axis,
        },
        kind="coalitions",
    )
