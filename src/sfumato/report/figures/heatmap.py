"""The heatmap of ε: classes of devices (rows) towards observers (columns)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sfumato.privacy.guarantee import Guarantee
from sfumato.report import formatting as text
from sfumato.report.figures.figure import NO_GUARANTEE, Figure, Json, log_ticks, tick_label
from sfumato.report.results.matrix import Cell, Matrix
from sfumato.run_folder.recorded_privacy import RecordedPrivacy

_MOST_TABLE_ROWS = 400
MOST_OPEN = 3
"""Classes of units that are open in the list for narrow screens; the others are folded."""
BY_TRUST = "∞ (trusted)"
"""What stands for ε towards an observer that the unit trusts with its raw updates."""
_FEWEST_ROWS = 4  # of a drawing without columns that say ∞ of every class
# ColorBrewer's Blues from the second step on: readable in print and without colour vision.
_TRUSTING = "#5B6470"  # of cells without a guarantee because the observer is trusted
_SCALE = [[0.0, "#DEEBF7"], [0.25, "#9ECAE1"], [0.5, "#4292C6"], [0.75, "#08519C"], [1.0, "#08306B"]]


def finite_epsilons(matrices: Sequence[Matrix]) -> list[float]:
    """All positive, finite ε in the cells of several matrices, for a common colour scale."""
    return [c.epsilon for matrix in matrices for c in matrix.cells.values() if 0 < c.epsilon < math.inf]


def heatmap_figure(
    matrix: Matrix,
    guarantees: Sequence[Guarantee],
    delta: float,
    finite: Sequence[float],
    device: str = "device",
) -> Figure | None:
    """The matrix drawn, with a colour scale over ``finite``; ``None`` where the run has no guarantees.

    Args:
        matrix: of the guarantees.
        guarantees: for the table of numbers.
        delta: of every ε.
        finite: ε that the scale contains.
        device: what a device is called.
    """
    if not matrix.cells:
        return None
    matrix, left_out = _without_trusted_columns(matrix)
    upright = len(matrix.columns) <= 7
    columns = [text.wrapped(column.title, 14 if upright else 26) for column in matrix.columns]
    described = [
        f"{matrix.rows[r].title} towards {matrix.columns[c].title}: "
        f"{'no guarantee' if cell.epsilon == math.inf else f'epsilon {text.epsilon(cell.epsilon)}'}."
        for (r, c), cell in sorted(matrix.cells.items(), key=lambda entry: entry[0])
    ]
    return Figure(
        title=f"ε by class of {device} and observer",
        caption=(
            f"ε{text.at_delta(delta)} of {_kinds_of_units(guarantees)} of each class (row) towards each "
            "observer (column), over the whole training. A cell that stands for several pairs shows the "
            f"largest ε. Lighter is more private; ∞ means no guarantee{_meaning_of_colours(matrix)}. An "
            f"empty cell: there is no such pair, or another row stands for it.{left_out}"
        ),
        description=" ".join(described[:40] + [f"And {len(described) - 40} more."] * (len(described) > 40)),
        data=_heatmap_traces(matrix, delta, finite),
        layout=_heatmap_layout(matrix, columns, upright=upright),
        table=_guarantee_table(guarantees, delta),
        narrow=matrix_as_list(matrix),
        kind="heatmap",
        min_width=(210 + 96 * len(columns)) if upright else (300 + 30 * len(columns)),
    )


def _without_trusted_columns(matrix: Matrix) -> tuple[Matrix, str]:
    """The matrix without the columns that say ∞ of every class as the observers are trusted, and a sentence.

    Of few classes all columns stay.
    """
    if len(matrix.rows) < _FEWEST_ROWS:
        return matrix, ""
    cells = [[cell for (_, c), cell in matrix.cells.items() if c == at] for at in range(len(matrix.columns))]
    dull = [all(one.epsilon == math.inf and one.trusts_all for one in column) for column in cells]
    kept = [at for at, is_dull in enumerate(dull) if not is_dull]
    if not kept or not any(dull):
        return matrix, ""
    shown = {(r, kept.index(c)): cell for (r, c), cell in matrix.cells.items() if c in kept}
    titles = [column.title for column, is_dull in zip(matrix.columns, dull, strict=True) if is_dull]
    said = f" Left out: {text.join_names(titles)} (∞ for every class, as they are trusted)."
    return Matrix(matrix.rows, tuple(matrix.columns[at] for at in kept), shown), said


def matrix_as_list(matrix: Matrix) -> str:
    """The cells as HTML lists, for narrow screens: ε towards each observer, of every class of units."""
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
    """For each class of units its title, its detail, and ε towards each observer: title and value."""
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
    """The ε of a cell as text; where there is none, whether the observer is trusted."""
    if cell.epsilon < math.inf:
        return text.epsilon(cell.epsilon)
    return BY_TRUST if cell.trusts_all else "∞ (no guarantee)"


def _kinds_of_units(guarantees: Sequence[Guarantee]) -> str:
    """The kinds of units in the rows as text: ``a person``, ``a device or a record``."""
    kinds = sorted({row.unit_kind for row in guarantees})
    return " or ".join(f"a {kind}" for kind in kinds)


def _meaning_of_colours(matrix: Matrix) -> str:
    """A sentence on the colours of cells without a guarantee."""
    trusted = {cell.trusts_all for cell in matrix.cells.values() if cell.epsilon == math.inf}
    if trusted == {True}:
        return ": the observer is trusted with raw updates"
    return " (grey: the observer is trusted with raw updates)" if trusted == {True, False} else ""


def _heatmap_traces(matrix: Matrix, delta: float, finite: Sequence[float]) -> list[Json]:
    """Plotly heatmaps: finite ε on a logarithmic colour scale; without a guarantee red, or grey if trusted.

    ``finite``: ε that the scale contains.
    """
    low, high = _scale_ends(finite)
    width = len(matrix.columns)
    common: Json = {"type": "heatmap", "x": list(range(width)), "y": list(range(len(matrix.rows)))}
    common |= {"xgap": 3, "ygap": 3, "hoverinfo": "text", "texttemplate": "%{text}"}
    epsilons = [cell.epsilon for cell in matrix.cells.values()]
    scale = {"zmin": math.log10(low), "zmax": math.log10(high), "colorscale": _SCALE}
    bar = {"showscale": min(epsilons) < math.inf, "colorbar": _colorbar(low, high)}
    cells = _heatmap_cells(
        matrix, delta, lambda c: math.log10(max(c.epsilon, low)) if c.epsilon < math.inf else None
    )
    traces = [common | cells | scale | bar | {"textfont": {"size": 14 if width <= 14 else 9}}]
    if math.inf in epsilons:
        cells = _heatmap_cells(
            matrix, delta, lambda c: float(c.trusts_all) if c.epsilon == math.inf else None
        )
        colours = [[0, NO_GUARANTEE], [0.5, NO_GUARANTEE], [0.5, _TRUSTING], [1, _TRUSTING]]
        scale = {"zmin": 0, "zmax": 1, "colorscale": colours, "showscale": False}
        font = {"size": 24 if width <= 14 else 13, "color": "#FFFFFF"}
        traces.append(common | cells | scale | {"textfont": font})
    return traces


def _heatmap_layout(matrix: Matrix, columns: Sequence[str], *, upright: bool) -> Json:
    """Plotly's layout of the matrix, with titles of ``columns`` above and of rows at the left.

    ``upright``: turn the titles of columns.
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


def _guarantee_table(guarantees: Sequence[Guarantee], delta: float) -> str:
    """An HTML table of all guarantees, the largest ε first."""
    rows = sorted(guarantees, key=lambda g: -g.epsilon)
    left = len(rows) - _MOST_TABLE_ROWS
    listed = f"the {_MOST_TABLE_ROWS} with the largest ε; {text.whole(left)} more are in privacy.json"
    more = f" ({listed})" if left > 0 else ""
    ranged = ["ε of its units"] if any(g.epsilon_range for g in rows) else []
    return text.html_table(
        ["unit", "observer", "pairs", "neighbours", "ε", *ranged, "releases", "bound", "method", "why"],
        [
            (
                text.unit_of(g), g.observer, text.whole(g.stands_for), g.neighbours, text.epsilon(g.epsilon),
                *(text.epsilon_range(g) for _ in ranged), g.releases, g.bound, g.method, g.why,
            )
            for g in rows[:_MOST_TABLE_ROWS]
        ],
        caption=f"The worst pair of every class of pairs{more}; ε{text.at_delta(delta)}",
        numeric=(2, 4, *(5 for _ in ranged), 5 + len(ranged)),
    )  # fmt: skip


def after_run_table(privacy: RecordedPrivacy) -> str:
    """A folded table of the pairs whose ε after the run differs from the guarantee; empty where none does."""
    rows = []
    for place, after in privacy.after_run.items():
        row = privacy.guarantees[place]
        before, since = text.epsilon(row.epsilon), text.epsilon(after.epsilon)
        if before != since:
            rows.append((row.unit, row.observer, before, since, after.participations))
    if not rows:
        return ""
    table = text.html_table(
        ["devices like", "observer", "guaranteed ε", "ε after the run", "rounds took part"],
        rows,
        caption=f"Pairs whose ε after the run differs from the guarantee{text.at_delta(privacy.delta)}",
        numeric=(2, 3, 4),
    )
    words = (
        "The guarantee is made before the run, when nobody knows who will be drawn or elected. After the run "
        "it is known, and a draw hides nothing any more: ε is larger for devices that took part, or whose "
        "peers were elected, more often than expected, and smaller for the others. These figures apply to "
        "this run only."
    )
    return (
        "<details><summary>ε after the run, where it differs from the guarantee</summary>"
        f"<p>{text.escape(words)}</p>{table}</details>"
    )


def _heatmap_cells(matrix: Matrix, delta: float, colour_of: Callable[[Cell], float | None]) -> Json:
    """``z``, ``text`` and ``customdata`` of a Plotly heatmap for all cells.

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
        f"unit {text.label(text.unit_of(worst))}, observer {text.label(worst.observer)}",
        f"releases {worst.releases} · bound {text.label(worst.bound)} · method {text.label(worst.method)}",
        f"neighbours {text.label(worst.neighbours)} · δ {'–' if math.isnan(delta) else delta}",
        f"stands for {text.whole(cell.pairs)} pair{'s' if cell.pairs != 1 else ''}",
    ]
    known = [row.least_known for row in cell.guarantees]
    least = min((each for each in known if each is not None), default=cell.epsilon)
    several = f"worst of {len(known)} classes of pairs" if len(known) > 1 else "worst"
    if None in known:
        facts.append(f"{several}; the least ε is not computed")
    elif least < cell.epsilon:
        facts.append(f"{several}; the least ε is {text.epsilon(least)}")
    if worst.why:
        facts.append(f"<i>{text.wrapped(worst.why)}</i>")
    return "<br>".join([f"<b>{text.label(title)}</b>", f"ε = {text.epsilon(cell.epsilon)}", *facts])


def _scale_ends(finite: Sequence[float]) -> tuple[float, float]:
    """The least and the largest ε of the colour scale for the values ``finite``.

    They are at least a factor of 10 apart, so that close values get similar colours.
    """
    if not finite:
        return 0.1, 10.0
    low, high = max(min(finite), 1e-6), max(finite)
    if high < 10 * low:
        centre = math.sqrt(low * high)
        low, high = centre / math.sqrt(10), centre * math.sqrt(10)
    return low, high


def _colorbar(low: float, high: float) -> Json:
    """Plotly's colour bar from ``low`` to ``high``, logarithms of ε to base 10."""
    inside = log_ticks(low, high)
    ticks = {"tickvals": [math.log10(s) for s in inside], "ticktext": [tick_label(s) for s in inside]}
    return {"title": {"text": "ε"}, "thickness": 12, "outlinewidth": 0, "len": 1} | ticks


def _row_label(title: str, detail: str) -> str:
    """The label of a row: ``title`` and, on a second line in smaller letters, ``detail``."""
    first = text.wrapped(title, 34)
    return f"{first}<br><span style='font-size:11px'>{text.wrapped(detail, 40)}</span>" if detail else first
