"""The coalitions of devices that a threat model tolerates: the worst ε for every number of colluders."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sfumato.report import formatting as text
from sfumato.report.figures.figure import DASHES, Figure, Json, colour, epsilon_axis, over_legend
from sfumato.report.page.html import PlacedFigures
from sfumato.report.results.matrix import Matrix
from sfumato.report.results.network import read_network
from sfumato.report.results.series import Series
from sfumato.run_folder.recorded_privacy import WorstCoalition

_NAMES = ("devices alone", "devices with the supernode of their edge")


def sentence_on_colluders(rows: Sequence[WorstCoalition]) -> list[str]:
    """A sentence on the largest ε towards colluding devices, and how few of them reach it; [] without."""
    if not rows:
        return []
    worst = max(max(_both_epsilons(row)) for row in rows)
    least = min(row.size for row in rows if text.epsilon(max(_both_epsilons(row))) == text.epsilon(worst))
    alone = max(row.epsilon for row in rows)
    who = f"{text.how_many(least, 'colluding device')} with the supernode of their edge"
    if math.isinf(worst):
        return [f"There is no guarantee (∞) towards {who}, or more."]
    reached = f"ε reaches {text.epsilon(worst)} towards {who}"
    return [
        f"{reached}; towards devices alone, up to {max(row.size for row in rows)}, {text.epsilon(alone)}."
    ]


def coalitions_part(one: Series, matrix: Matrix, figures: PlacedFigures) -> str:
    """HTML on what coalitions of devices learn in the runs of ``one``; "" where its threat model has none.

    ``matrix``: for the titles of units; a figure is added to ``figures``.
    """
    rows, delta = one.first.privacy.coalitions, text.at_delta(one.first.privacy.delta)
    if not rows:
        return ""
    titles = {unit: _row_title(matrix, unit) for unit in dict.fromkeys(row.unit for row in rows)}
    protected = {row.unit for row in rows if min(_both_epsilons(row)) < math.inf}
    sizes = [row.size for row in rows]
    said = [
        f"Devices that pool what they know: at most {text.whole(max(sizes))} of them, as the threat "
        "model of HDP tolerates. For every number of colluders, the coalition that was found to learn the "
        "most."
    ]
    hops = read_network(one.first.spec_dict).secure
    if hops and any(row.supernode_epsilon > row.epsilon for row in rows):
        said.append(
            "A supernode with enough colluders at its edge holds enough shares of the others' secrets to "
            "take the masks of secure aggregation off single messages: there ε jumps."
        )
    said += [
        f"{title}: no guarantee, from one colluder on."
        for unit, title in titles.items()
        if unit not in protected
    ]
    figure = _coalition_figure(rows, titles, delta)
    everywhere = len(set(sizes))
    if figure and all(len(t["x"]) == everywhere and len(set(t["text"])) == 1 for t in figure.data):
        of_each = "; ".join(f"{trace['name']}: {trace['text'][0]}" for trace in figure.data)
        said.append(f"ε is the same for every number of colluders{delta}: {of_each}.")
        figure = None
    if not protected:
        return text.paragraphs(said)
    shown = [
        (
            titles[row.unit],
            text.whole(row.size),
            text.whole(row.in_zone),
            *map(text.epsilon, _both_epsilons(row)),
        )
        for row in rows
        if row.unit in protected
    ]
    table = text.html_table(
        ["about", "colluders", "under the same edge", *(f"ε, {name}" for name in _NAMES)],
        shown,
        caption=f"The worst coalition of devices of each size{delta}",
        numeric=(1, 2, 3, 4),
    )
    drawn = "" if figure is None else figures.place(figure)
    return f"{text.paragraphs(said)}{drawn}<details><summary>Show all coalitions</summary>{table}</details>"


def _both_epsilons(row: WorstCoalition) -> tuple[float, float]:
    """ε towards the coalition of a row, and towards the same together with the supernode."""
    return row.epsilon, row.supernode_epsilon


def _row_title(matrix: Matrix, unit: str) -> str:
    """The title of the matrix row that holds guarantees of ``unit``; ``unit`` itself where none does."""
    for (row, _), cell in matrix.cells.items():
        if any(g.unit == unit for g in cell.guarantees):
            return matrix.rows[row].title
    return unit


def _coalition_figure(rows: Sequence[WorstCoalition], titles: Mapping[str, str], delta: str) -> Figure | None:
    """Curves of the largest ε over the number of colluding devices; ``None`` where none is finite.

    ``titles``: of units; ``delta``: text beside ε.
    """
    data: list[Json] = []
    described = []
    variants = sum(any(_both_epsilons(row)[which] < math.inf for row in rows) for which in range(len(_NAMES)))
    for number, (unit, title) in enumerate(titles.items()):
        for which, name in enumerate(_NAMES):
            of_unit = [(row.size, _both_epsilons(row)[which]) for row in rows if row.unit == unit]
            known = [(size, value) for size, value in of_unit if value < math.inf]
            if not known:
                continue
            described.append(f"{title}, {name}: at most {text.epsilon(max(value for _, value in known))}.")
            points = {"x": [size for size, _ in known], "y": [value for _, value in known]}
            texts = {"text": [text.epsilon(value) for _, value in known]}
            data.append(points | texts | {
                "type": "scatter",
                "mode": "lines+markers",
                "name": text.label(f"{title}, {name}" if variants > 1 else title),
                "hovertemplate": "ε = %{text} with %{x} colluders",
                "line": {"color": colour(number), "width": 2, "dash": DASHES[which]},
            })  # fmt: skip
    if not data:
        return None
    axes = {
        "xaxis": {"title": {"text": "colluding devices"}, "rangemode": "tozero"},
        "yaxis": epsilon_axis(value for trace in data for value in trace["y"]),
    }
    return Figure(
        title="ε towards colluding devices",
        caption=f"The worst coalition of each size that was found{delta}. Sizes without a "
        "point: no guarantee.",
        description="ε towards coalitions of devices by their number. " + " ".join(described),
        data=data,
        layout=over_legend(320, data, -0.3) | {"showlegend": True, "hovermode": "closest"} | axes,
        kind="coalitions",
    )
