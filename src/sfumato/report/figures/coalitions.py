"""The coalitions of devices that a threat model tolerates: the worst ε for every number of colluders."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sfumato.network.tree import Tree
from sfumato.report import formatting as text
from sfumato.report.figures.figure import DASHES, Figure, Json, colour, epsilon_axis, over_legend
from sfumato.report.page.html import PlacedFigures
from sfumato.report.results.matrix import Matrix
from sfumato.report.results.secure_sums import least_of_sums
from sfumato.report.results.series import Series
from sfumato.run_folder.recorded_privacy import WorstCoalition

_ALONE = "devices alone"
_MOST_CLASSES = 3  # of devices to name on the first screen


def sentences_on_colluders(one: Series, matrix: Matrix) -> list[str]:
    """Sentences on the ε of each class of devices of a run towards colluders with and without its edge.

    [] where the threat model has none. Of many classes those with the largest ε. ``matrix``: of the run's
    guarantees, with the titles of classes.
    """
    rows, node = one.first.privacy.coalitions, _aggregator(one)
    if not rows:
        return []
    told: list[tuple[float, str, list[WorstCoalition]]] = []
    endless: list[str] = []
    for unit, of_unit in _by_unit(rows).items():
        if of_unit[0].supernode_epsilon < math.inf:
            told.append((max(row.supernode_epsilon for row in of_unit), unit, of_unit))
        elif not _supernode_suffices(matrix, unit):  # else the page says so of the edge
            endless.append(_row_title(matrix, unit))
    told.sort(key=lambda one: -one[0])
    said = [
        f"ε of {_row_title(matrix, unit)} towards colluding devices with their {node}: "
        f"{_epsilon_by_size(of_unit)}."
        for _, unit, of_unit in told[:_MOST_CLASSES]
    ]
    if endless:
        who = text.join_names(endless, _MOST_CLASSES)
        said.append(f"No guarantee (∞) of {who} towards their {node} with 1 colluding device.")
    most = max(row.epsilon for row in rows)
    who = text.how_many(max(row.size for row in rows), "colluding device")
    return [*said, f"Towards up to {who} without their {node}: at most {text.epsilon(most)}."]


def _aggregator(one: Series) -> str:
    """What the aggregator of a zone is called: as its tier, such as edge; a supernode where it is elected."""
    shape, topology = one.network.shape, one.first.spec_dict["topology"]
    if topology.get("supernodes") == "elected" or not isinstance(shape, Tree):
        return "supernode"
    return shape.tiers[-1].name


def _by_unit(rows: Sequence[WorstCoalition]) -> dict[str, list[WorstCoalition]]:
    """The rows of each unit, by the size of the coalition."""
    found: dict[str, list[WorstCoalition]] = {}
    for row in sorted(rows, key=lambda row: row.size):
        found.setdefault(row.unit, []).append(row)
    return found


def _epsilon_by_size(rows: Sequence[WorstCoalition]) -> str:
    """How ε towards colluders with the edge grows: "2.8 with 1, 4.5 with 6 and 10.2 from 7 on".

    ``rows``: of one unit, at least one, by size.
    """
    words = [text.epsilon(row.supernode_epsilon) for row in rows]
    last = words.index(words[-1])  # from here on nothing grows
    places = sorted({0, max(0, last - 1), last})
    told = [f"{words[place]} with {rows[place].size}" for place in places]
    if last < len(rows) - 1:
        told[-1] = f"{words[last]} from {rows[last].size} on"
    return text.join_names(told)


def _supernode_suffices(matrix: Matrix, unit: str) -> bool:
    """Whether the unit has no guarantee towards its own edge alone."""
    return any(
        matrix.columns[column].kind == "own-edge"
        and any(g.unit == unit and math.isinf(g.epsilon) for g in cell.guarantees)
        for (_, column), cell in matrix.cells.items()
    )


def coalitions_part(one: Series, matrix: Matrix, figures: PlacedFigures) -> str:
    """HTML on what coalitions of devices learn in the runs of ``one``; "" where its threat model has none.

    ``matrix``: for the titles of units; a figure is added to ``figures``.
    """
    rows, delta = one.first.privacy.coalitions, text.at_delta(one.first.privacy.delta)
    if not rows:
        return ""
    titles = {unit: _row_title(matrix, unit) for unit in _by_unit(rows)}
    sizes, node = [row.size for row in rows], _aggregator(one)
    alone = {unit: _epsilon_of_edge_alone(matrix, unit) for unit in titles} if node != "supernode" else {}
    in_hdp = (
        ""
        if node == "supernode"
        else f" (its supernode is the {node} here, and its zone the {node}'s devices)"
    )
    said = [
        f"Devices that pool what they know: at most {text.whole(max(sizes))} of them, as HDP "
        f"tolerates{in_hdp}. For every number of colluders, the coalition that was found to "
        "learn the most."
    ]
    hops = one.network.secure
    if hops and any(row.epsilon < row.supernode_epsilon < math.inf for row in rows):
        least = least_of_sums(one.first.spec_dict, one.network)
        many = f" ({least})" if least else ""
        said.append(
            f"If enough devices under the {node} collude with it{many}, it has enough shares of the others' "
            "secrets to take the masks of secure aggregation off: it then reads single messages, not only "
            "their sum, and ε jumps."
        )
    columns = (_ALONE, f"with their {node}")
    figure = _coalition_figure(rows, titles, columns, delta, alone)
    everywhere = set(sizes)
    if figure and all(everywhere <= set(t["x"]) and len(set(t["text"])) == 1 for t in figure.data):
        of_each = "; ".join(
            f"{trace['name'].replace('<br>', ' ')}: {trace['text'][0]}" for trace in figure.data
        )
        said.append(f"ε is the same for every number of colluders{delta}: {of_each}.")
        figure = None
    endless = _endless_in_words(rows, titles, columns)
    if figure is None:
        return text.paragraphs([*said, *endless])
    edge = "edge" if node == "supernode" else node
    table = _table_of_coalitions(rows, titles, columns, delta, alone, edge)
    drawn = figures.place(figure)
    return (
        f"{text.paragraphs([*said, *endless])}{drawn}<details><summary>Show all coalitions</summary>{table}"
        "</details>"
    )


def _table_of_coalitions(
    rows: Sequence[WorstCoalition],
    titles: Mapping[str, str],
    columns: tuple[str, str],
    delta: str,
    alone: Mapping[str, float],
    edge: str,
) -> str:
    """The table of the worst coalitions with a finite ε.

    Args:
        rows: of the worst coalitions.
        titles: of units.
        columns: names of the coalitions without and with the edge.
        delta: text beside ε.
        alone: ε of units towards their edge alone, which is no coalition; {} where devices are elected
            supernode: only then is ε towards devices alone another one if these are under the same edge.
        edge: what the aggregator of devices is called.
    """
    where, elected = f"of them under the same {edge}", not alone
    first = ["about", "colluders", f"ε, {columns[0]}", *([where] if elected else [])]
    of_edges = [
        (titles[unit], "0", "–", text.epsilon(value), "–")
        for unit, value in alone.items()
        if value < math.inf
    ]
    return text.html_table(
        [*first, f"ε, {columns[1]}", where],
        of_edges + [
            (
                titles[row.unit], text.whole(row.size), text.epsilon(row.epsilon),
                *([text.whole(row.in_zone)] if elected else []),
                text.epsilon(row.supernode_epsilon),
                "–" if row.supernode_in_zone is None else text.whole(row.supernode_in_zone),
            )
            for row in rows
            if min(_both_epsilons(row)) < math.inf
        ],
        caption=f"The worst coalition of devices of each size{delta}",
        numeric=range(1, len(first) + 2),
    )  # fmt: skip


def _epsilon_of_edge_alone(matrix: Matrix, unit: str) -> float:
    """The largest ε of the class of a unit towards its own edge; ∞ where there is none."""
    return max(
        (
            row.epsilon
            for (_, column), cell in matrix.cells.items()
            if matrix.columns[column].kind == "own-edge"
            for row in cell.guarantees
            if row.unit == unit
        ),
        default=math.inf,
    )


def _both_epsilons(row: WorstCoalition) -> tuple[float, float]:
    """ε towards the coalition of a row, and towards the one with the unit's edge."""
    return row.epsilon, row.supernode_epsilon


def _endless_in_words(
    rows: Sequence[WorstCoalition], titles: Mapping[str, str], columns: tuple[str, str]
) -> list[str]:
    """A list with one sentence on the classes of devices without a guarantee at any number of colluders.

    [] if there are none. ``titles``: of units; ``columns``: names of the coalitions without and with the
    edge.
    """
    found = []
    for which, name in enumerate(columns):
        units = [
            titles[unit]
            for unit, of_unit in _by_unit(rows).items()
            if all(math.isinf(_both_epsilons(row)[which]) for row in of_unit)
        ]
        found += [f"{name}, {text.join_names(units)}"] if units else []
    return [f"No guarantee (∞), whatever the number of colluders: {'; '.join(found)}."] if found else []


def _row_title(matrix: Matrix, unit: str) -> str:
    """The title of the matrix row that holds guarantees of ``unit``; ``unit`` itself where none does."""
    for (row, _), cell in matrix.cells.items():
        if any(g.unit == unit for g in cell.guarantees):
            return matrix.rows[row].title
    return unit


def _lines_of_coalitions(
    rows: Sequence[WorstCoalition], alone: Mapping[str, float]
) -> dict[tuple[int, tuple[int, ...], tuple[str, ...]], tuple[list[str], list[float]]]:
    """The lines of the figure, with all classes of devices that share each.

    Returns:
        By (1 if the edge is in the coalition, else 0; numbers of colluders; ε as text): the units, and the
        finite ε. ``rows`` and ``alone`` are those of `_coalition_figure`.
    """
    lines: dict[tuple[int, tuple[int, ...], tuple[str, ...]], tuple[list[str], list[float]]] = {}
    for which in range(2):
        for unit, of_unit in _by_unit(rows).items():
            known = {row.size: _both_epsilons(row)[which] for row in of_unit}
            known = {0: alone.get(unit, math.inf), **known} if which else known
            finite = {size: value for size, value in known.items() if value < math.inf}
            if any(finite):  # besides 0, which is no coalition
                key = which, tuple(finite), tuple(map(text.epsilon, finite.values()))
                lines.setdefault(key, ([], list(finite.values())))[0].append(unit)
    return lines


def _coalition_figure(
    rows: Sequence[WorstCoalition],
    titles: Mapping[str, str],
    columns: tuple[str, str],
    delta: str,
    alone: Mapping[str, float],
) -> Figure | None:
    """Curves of the largest ε over the number of colluding devices; ``None`` where none is finite.

    Classes with the same curve, as ε is written, share one line.

    Args:
        rows: of the worst coalitions.
        titles: of units.
        columns: names of the coalitions without and with the edge.
        delta: text beside ε.
        alone: finite ε of units towards their edge alone begin their lines.
    """
    lines = _lines_of_coalitions(rows, alone)
    if not lines:
        return None
    data: list[Json] = []
    for number, ((which, sizes, words), (units, values)) in enumerate(lines.items()):
        who = [titles[unit] for unit in units]
        whose = "any device" if len(who) == len(titles) > 1 else text.join_names(who)
        data.append({
            "type": "scatter", "mode": "lines" if len(sizes) > 1 else "markers",
            "name": text.wrapped(f"{whose}, {columns[which]}", 40),
            "x": list(sizes), "y": values, "text": list(words),
            "hovertemplate": "ε = %{text} with %{x} colluders",
            "line": {"color": colour(number), "width": 2, "dash": DASHES[which]},
        })  # fmt: skip
    described = [
        f"{one['name'].replace('<br>', ' ')}: at most {text.epsilon(max(one['y']))}." for one in data
    ]
    axes = {
        "xaxis": {"title": {"text": "colluding devices"}, "rangemode": "tozero"},
        "yaxis": epsilon_axis(value for trace in data for value in trace["y"]),
    }
    every = {row.size for row in rows}
    ends = any(not every <= set(sizes) for _, sizes, _ in lines)
    return Figure(
        title="ε towards colluding devices",
        caption=f"The worst coalition of each size that was found{delta}."
        + (" At 0: the edge alone." if any(0 in sizes for _, sizes, _ in lines) else "")
        + (" Where a line ends there is no guarantee." if ends else ""),
        description="ε towards coalitions of devices by their number. " + " ".join(described),
        data=data,
        layout=over_legend(320, data, -0.3) | {"showlegend": True, "hovermode": "closest"} | axes,
        kind="coalitions",
    )
