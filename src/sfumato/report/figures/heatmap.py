"""The heatmap of ε: classes of devices (rows) towards observers (columns)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial

from sfumato.privacy.guarantee import Guarantee
from sfumato.report import formatting as text
from sfumato.report.figures.figure import (
    EPSILON_COLOURS,
    INKS,
    NO_GUARANTEE,
    Figure,
    Json,
    epsilon_shade,
    ink_on,
)
from sfumato.report.results.matrix import Cell, Matrix

MOST_OPEN = 3
"""Classes of units that are open in the list for narrow screens; the others are folded."""
BY_TRUST = "∞ (trusted)"
"""What stands for ε towards an observer that the unit trusts with its raw updates."""
_TRUSTING = "#5B6470"  # of cells without a guarantee because the observer is trusted


_OF_THE_PLAN = (
    ", in the spec's plan, from which the budget of adaptive control is computed. What the run sent "
    "may differ in number and noise"
)


_IN_WORDS = {
    "flow": "all that the observer's view is made from",
    "cut": "only what the observer receives",
    "min-cost": "the cheapest set found",
    "gdp": "exact for Gaussian noise",
    "pld": "on a grid, rounded up",
    "zero-out": "sends zeros",
    "replace": "has other data",
}
"""Names that files give to bounds (what is charged), methods (how ε is composed) and relations (what the
unit does in the world that is compared), in words.
"""


_IN_COLUMNS = re.compile(r"; (?:zero-out|remove|replace), composed by [\w-]+")
"""What reasons say of the relation and the composition, which have columns of their own."""


def guarantees_html(
    matrix: Matrix,
    delta: float,
    device: str,
    place: Callable[[Figure], str],
    *,
    controlled: bool,
) -> str:
    """HTML of the matrix: drawn, or one sentence and a folded table where all cells have one finite ε.

    "" where the run has no guarantees.

    Args:
        matrix: of the guarantees.
        delta: of every ε.
        device: what a device is called.
        place: puts a figure on the page and returns its HTML.
        controlled: as of `heatmap_figure`.
    """
    figure = heatmap_figure(matrix, delta, device, controlled=controlled)
    if figure is None:
        return ""
    worst = max(cell.epsilon for cell in matrix.cells.values())
    if worst == math.inf or len({text.epsilon(cell.epsilon) for cell in matrix.cells.values()}) > 1:
        return place(figure)
    detail = matrix.rows[0].detail if len(matrix.rows) == 1 else ""
    whom = text.join_names([column.towards.removeprefix("towards ") for column in matrix.columns], 9)
    said = (
        f"{text.title(_kinds_of_units(matrix, device))} has an ε of at most {text.epsilon(worst)} "
        f"towards {whom}{text.at_delta(delta)}, over the whole training{f' ({detail})' if detail else ''}."
    )
    folded = f"<details><summary>Show the numbers</summary>{figure.table}</details>"
    return f"{text.paragraphs([said])}{folded}"


def heatmap_figure(
    matrix: Matrix,
    delta: float,
    device: str = "device",
    *,
    controlled: bool = False,
) -> Figure | None:
    """The matrix drawn; ``None`` where the run has no guarantees.

    Args:
        matrix: of the guarantees.
        delta: of every ε.
        device: what a device is called.
        controlled: whether adaptive control chooses the rounds and the noise, so that ε are budgets.
    """
    if not matrix.cells:
        return None
    upright = len(matrix.columns) <= 7
    columns = [text.wrapped(column.title, 14 if upright else 26) for column in matrix.columns]
    described = [
        f"{matrix.rows[r].title} towards {matrix.columns[c].title}: "
        f"{'no guarantee' if cell.epsilon == math.inf else f'epsilon {text.epsilon(cell.epsilon)}'}."
        for (r, c), cell in sorted(matrix.cells.items(), key=lambda entry: entry[0])
    ]
    of = f"The largest ε{text.at_delta(delta)} of {_kinds_of_units(matrix, device)} of each class"
    return Figure(
        title=f"ε by class of {device} and observer",
        caption=(
            f"{of} (row) towards each observer (column), over the whole training. Lighter is more private."
            f"{_meaning_of_colours(matrix)}{_meaning_of_empty_cells(matrix)}"
        ),
        narrow_caption=f"{of} towards each observer, over the whole training.",
        description=" ".join(described[:40] + [f"And {len(described) - 40} more."] * (len(described) > 40)),
        data=_heatmap_traces(matrix, delta),
        layout=_heatmap_layout(matrix, columns, upright=upright),
        table=_guarantee_table(matrix, delta, controlled=controlled),
        narrow=matrix_as_list(matrix),
        kind="heatmap",
        min_width=(210 + 96 * len(columns)) if upright else (300 + 30 * len(columns)),
    )


def matrix_as_list(matrix: Matrix) -> str:
    """The cells as HTML lists, for narrow screens: ε towards each observer, of every class of units.

    The first `MOST_OPEN` classes are open, the others folded.
    """
    parts = []
    for r, (title, detail, cells) in enumerate(rows_in_words(matrix)):
        said = f"<p>{text.escape(detail)}</p>" if detail else ""
        listed = "".join(f"<div><dt>{text.escape(name)}</dt><dd>{value}</dd></div>" for name, value in cells)
        open_ = " open" if r < MOST_OPEN else ""
        parts.append(
            f"<details{open_}><summary>{text.escape(title)}</summary>{said}<dl>{listed}</dl></details>"
        )
    return "".join(parts)


def rows_in_words(matrix: Matrix) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """For each class of units its title, its detail, and pairs (title of an observer, ε as text).

    Observers without a cell in the row are left out; ε without a guarantee is ``∞ (no guarantee)`` or
    `BY_TRUST`.
    """
    return [
        (
            row.title,
            row.detail,
            [
                (column.title, _cell_in_words(matrix.cells[r, c]))
                for c, column in enumerate(matrix.columns)
                if (r, c) in matrix.cells
            ],
        )
        for r, row in enumerate(matrix.rows)
    ]


def _cell_in_words(cell: Cell) -> str:
    """The ε of a cell as text: ``8``, ``∞ (no guarantee)``, or `BY_TRUST` if the observer is trusted."""
    if cell.epsilon < math.inf:
        return text.epsilon(cell.epsilon)
    return BY_TRUST if cell.trusts_all else "∞ (no guarantee)"


def _kinds_of_units(matrix: Matrix, device: str) -> str:
    """The kinds of units in the rows as text: ``a person``, ``a device or a record``.

    ``device``: what a device is called.
    """
    kinds = sorted({cell.guarantees[0].unit_kind for cell in matrix.cells.values()})
    kinds = [device if kind == "device" else kind for kind in kinds]
    return " or ".join(f"a {kind}" for kind in kinds)


def _meaning_of_colours(matrix: Matrix) -> str:
    """A sentence on the colours of cells without a guarantee; "" where there is no such cell."""
    trusted = {cell.trusts_all for cell in matrix.cells.values() if cell.epsilon == math.inf}
    said = {
        (True,): " ∞ on grey: the observer is trusted with raw updates.",
        (False,): " ∞ on red: no guarantee.",
        (False, True): " ∞ on red: no guarantee; on grey: the observer is trusted with raw updates.",
    }
    return said.get(tuple(sorted(trusted)), "")


def _meaning_of_empty_cells(matrix: Matrix) -> str:
    """A sentence on empty cells; "" where there is none."""
    if len(matrix.cells) == len(matrix.rows) * len(matrix.columns):
        return ""
    folded = any(row.kinds > 1 for cell in matrix.cells.values() for row in cell.guarantees)
    return f" Empty: there is no such pair{', or another row stands for it' if folded else ''}."


def _heatmap_traces(matrix: Matrix, delta: float) -> list[Json]:
    """Plotly heatmaps of the cells: finite ε on the colour scale, a trace for each colour of digits.

    Cells without a guarantee are red, or grey where the observer is trusted, in a trace of their own.
    """
    width = len(matrix.columns)
    common: Json = {"type": "heatmap", "x": list(range(width)), "y": list(range(len(matrix.rows)))}
    common |= {"xgap": 3, "ygap": 3, "hoverinfo": "text", "texttemplate": "%{text}"}
    epsilons = [cell.epsilon for cell in matrix.cells.values()]
    inks = [ink for ink in INKS if any(e < math.inf and _ink(e) == ink for e in epsilons)]
    traces: list[Json] = []
    for ink in inks:
        cells = _heatmap_cells(matrix, delta, partial(_shade_in_ink, ink))
        font = {"size": 14 if width <= 14 else 9, "color": ink}
        traces.append(common | cells | EPSILON_COLOURS | {"showscale": ink == inks[0], "textfont": font})
    if math.inf in epsilons:
        cells = _heatmap_cells(
            matrix, delta, lambda c: float(c.trusts_all) if c.epsilon == math.inf else None
        )
        colours = [[0, NO_GUARANTEE], [0.5, NO_GUARANTEE], [0.5, _TRUSTING], [1, _TRUSTING]]
        scale = {"zmin": 0, "zmax": 1, "colorscale": colours, "showscale": False}
        font = {"size": 24 if width <= 14 else 13, "color": "#FFFFFF"}
        traces.append(common | cells | scale | {"textfont": font})
    return traces


def _ink(epsilon: float) -> str:
    """The colour of the digits of a finite ε on the colour scale."""
    return ink_on(epsilon_shade(epsilon))


def _shade_in_ink(ink: str, cell: Cell) -> float | None:
    """The shade of a cell whose ε is finite and written in ``ink``; ``None`` for other cells."""
    if cell.epsilon == math.inf or _ink(cell.epsilon) != ink:
        return None
    return epsilon_shade(cell.epsilon)


def _heatmap_layout(matrix: Matrix, columns: Sequence[str], *, upright: bool) -> Json:
    """Plotly's layout of the matrix, with titles of ``columns`` above and of rows at the left.

    ``upright``: whether the titles of columns are horizontal; else they are turned by 90°.
    """
    rows = len(matrix.rows)
    axis = {"showgrid": False, "zeroline": False, "automargin": True, "fixedrange": True, "ticks": ""}
    axis |= {"ticklabelstandoff": 6, "showline": False}
    across = {"side": "top", "tickvals": list(range(len(columns))), "ticktext": list(columns)}
    down = {"autorange": "reversed", "tickvals": list(range(rows))}
    return {
        "height": (120 if upright else 200) + rows * (52 if rows <= 12 else 38),
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "xaxis": axis | across | {"tickangle": 0 if upright else -90},
        "yaxis": axis | down | {"ticktext": [_row_label(row.title, row.detail) for row in matrix.rows]},
    }


def _guarantee_table(matrix: Matrix, delta: float, *, controlled: bool) -> str:
    """An HTML table of all cells, the largest ε first, each with why its worst pair has that ε.

    ``controlled``: as of `heatmap_figure`.
    """
    cells = sorted(matrix.cells.items(), key=lambda entry: -entry[1].epsilon)
    rows = []
    for (r, c), cell in cells:
        worst, least = cell.guarantees[0], _least_epsilon(cell)
        rows.append((
            matrix.rows[r].title, matrix.columns[c].title, text.whole(cell.pairs),
            "not computed" if least is None else text.epsilon(least), text.epsilon(cell.epsilon),
            *_what_is_charged(worst), in_words(worst.neighbours), _IN_COLUMNS.sub("", worst.why),
        ))  # fmt: skip
    heads = ["class", "observer", "pairs", "least ε", "largest ε", "releases", "charged", "composed"]
    return text.html_table(
        [*heads, "the unit, in the other world", "why the largest"],
        rows,
        caption=f"ε of every cell{text.at_delta(delta)}. Releases: messages with noise that are charged"
        f"{_OF_THE_PLAN if controlled else ''}. "
        "Every pair is in privacy.json",
        numeric=(2, 3, 4, 5),
    )


def _what_is_charged(row: Guarantee) -> tuple[str, str, str]:
    """How many releases are charged, which, and how they are composed; dashes where there is no guarantee."""
    if row.epsilon == math.inf:
        return "–", "–", "–"
    return text.whole(row.releases), in_words(row.bound), in_words(row.method)


def in_words(name: str) -> str:
    """What a bound, a method or a relation of neighbours means, by the ``name`` that files give it.

    ``pld`` is "on a grid, rounded up". A name without words is returned as it is.
    """
    return _IN_WORDS.get(name, name)


def _heatmap_cells(matrix: Matrix, delta: float, colour_of: Callable[[Cell], float | None]) -> Json:
    """``z``, ``text`` and ``hovertext`` of a Plotly heatmap for all cells, each ``[rows][columns]``.

    ``colour_of``: the value of a cell on the colour scale; a cell is left blank where it is ``None``.
    """
    z: list[list[float | None]] = []
    texts: list[list[str]] = []
    hovers: list[list[str]] = []
    for r, row in enumerate(matrix.rows):
        line: list[tuple[float | None, str, str]] = []
        for c, column in enumerate(matrix.columns):
            cell = matrix.cells.get((r, c))
            value = None if cell is None else colour_of(cell)
            if cell is None or value is None:
                line.append((None, "", ""))
            else:
                hover = _hover_text(cell, f"{row.title} → {column.title}", delta)
                line.append((value, text.epsilon(cell.epsilon), hover))
        z.append([entry[0] for entry in line])
        texts.append([entry[1] for entry in line])
        hovers.append([entry[2] for entry in line])
    return {"z": z, "text": texts, "hovertext": hovers}


def _hover_text(cell: Cell, title: str, delta: float) -> str:
    """The text under the pointer at one cell: its ε, its worst pair, and why."""
    worst = cell.guarantees[0]
    facts = [
        f"unit {text.plotly_label(text.unit_of(worst))}, observer {text.plotly_label(worst.observer)}",
        f"releases {worst.releases} · charged: {text.plotly_label(in_words(worst.bound))}",
        f"composed: {text.plotly_label(in_words(worst.method))}",
        f"the unit, in the other world: {text.plotly_label(in_words(worst.neighbours))}",
        f"δ {'–' if math.isnan(delta) else delta}",
        f"stands for {text.whole(cell.pairs)} pair{'s' if cell.pairs != 1 else ''}",
    ]
    least = _least_epsilon(cell)
    several = f"worst of {len(cell.guarantees)} classes of pairs" if len(cell.guarantees) > 1 else "worst"
    if least is None:
        facts.append(f"{several}; the least ε is not computed")
    elif least < cell.epsilon:
        facts.append(f"{several}; the least ε is {text.epsilon(least)}")
    if worst.why:
        facts.append(f"<i>{text.wrapped(worst.why)}</i>")
    return "<br>".join([f"<b>{text.plotly_label(title)}</b>", f"ε = {text.epsilon(cell.epsilon)}", *facts])


def _least_epsilon(cell: Cell) -> float | None:
    """The least ε of the pairs of a cell; ``None`` where it is not computed."""
    known = [row.least_known for row in cell.guarantees]
    return None if None in known else min(each for each in known if each is not None)


def _row_label(title: str, detail: str) -> str:
    """The label of a row: ``title`` and, on a second line in smaller letters, ``detail``."""
    first = text.wrapped(title, 40)
    return f"{first}<br><span style='font-size:11px'>{text.wrapped(detail, 40)}</span>" if detail else first
