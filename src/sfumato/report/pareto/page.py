"""The report of a sweep: Pareto fronts of accuracy, ε, energy and delay, and a table of all points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sfumato.report import formatting as text
from sfumato.report.figures.figure import LEGEND, LOGARITHMIC, MARGIN, NEUTRAL, PALETTE, Figure, Json
from sfumato.report.page.html import (
    PlacedFigures,
    bullet_list,
    placeholder,
    render_page,
    section,
)
from sfumato.report.pareto.axis import SCORES, ObjectiveAxis, strip_line, title_of
from sfumato.report.pareto.headline import headline
from sfumato.report.pareto.points import (
    ParetoPage,
    SweptPoint,
    describe_objective,
    mixes_observers,
    note_on_trust,
    pareto_front,
    planes,
    value_of,
)
from sfumato.report.results.series import Mean
from sfumato.run_folder.metrics_table import EPSILON_PREFIX
from sfumato.run_folder.reader import write_text

_MOST_OPEN = 12  # points whose links are shown
_FRONT = "The Pareto front: the points that no other point beats, as good in both figures and better in one."
_RAW = "devices that send raw updates to a trusted edge"
_FILLED = "Filled markers, joined by a line: the Pareto front."
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "x")


def _title_of_planes(drawn: Sequence[tuple[str, str]]) -> str:
    """The heading above the figures of ``drawn``, such as ``Accuracy against ε and costs``.

    By what is on their axes.
    """
    names = {name for plane in drawn for name in plane} - SCORES.keys()
    privacy = ["ε"] if any(name.startswith(EPSILON_PREFIX) for name in names) else []
    costs = ["costs"] if any(not name.startswith(EPSILON_PREFIX) for name in names) else []
    scores = [text.title(SCORES[up].name) for _, up in drawn if up in SCORES]
    others = text.join_names([*privacy, *costs])
    if not scores:
        return f"{text.title(others)} of the points" if names else "Score"
    return f"{scores[0]} against {others}"


def write_pareto_page(swept: ParetoPage, out: Path) -> Path:
    """Draw ``swept`` into the file ``out``, one self-contained HTML page; returns ``out``.

    Raises:
        RunError: the page cannot be written.
    """
    figures = PlacedFigures()
    drawn = [
        _plane_figure(swept, *plane, with_legend=number == 0) for number, plane in enumerate(planes(swept))
    ]
    panels = f'<div class="panels">{"".join(map(figures.place, drawn))}</div>'
    nothing = "A front needs two of accuracy, ε, energy and delay that differ from point to point."
    told = [text.paragraphs([_FRONT])] if any(_FILLED in figure.caption for figure in drawn) else []
    told += [
        text.paragraphs(
            [
                f"{title_of(name)} is in no figure: points differ in whom devices trust, so that it is "
                "towards the own edge at some points and towards another edge at others."
            ]
        )
        for name in swept.measured
        if mixes_observers(swept, name)
    ]
    sections = [
        headline(swept),
        section(_title_of_planes(planes(swept)), [*told, panels if drawn else placeholder(nothing)]),
        section("All points", [_points_table(swept), _report_links(swept)]),
    ]
    if swept.failures:
        sections.append(section("Failures", [bullet_list([f"{who}: {why}" for who, why in swept.failures])]))
    facts = " · ".join([*swept.facts, f"swept: {', '.join(swept.keys)}"])
    subtitle = f'<p class="facts">{text.escape(facts)}</p>'
    write_text(out, render_page(f"{swept.title}: sweep", subtitle, sections, figures))
    return out


def _seeds_note(swept: ParetoPage) -> str:
    """The words that figures are means over seeds, for a caption; "" with one seed each."""
    several = any(point.seeds > 1 for point in swept.points)
    return "Mean over seeds ± half of its 95 % interval; " if several else ""


def _points_table(swept: ParetoPage) -> str:
    """An HTML table of all points with their objectives; those on the front are marked."""
    names = swept.measured
    compared = [name for name in names if not mixes_observers(swept, name)]
    on = pareto_front(swept.points, compared)
    front, told = [], ""
    if not all(on):
        front = [f"on the front ({', '.join(map(title_of, compared))})"]
        told = (
            f" On the front: no other point is as good in {text.join_names(list(map(title_of, compared)))}, "
            "and better in one of them. How many devices send raw updates is not compared."
        )
    several = any(point.seeds > 1 for point in swept.points)
    rows = [
        (
            *(*point.labels, *[point.seeds][:several]),
            *(describe_objective(point, name) for name in names),
            *(point.raw_to_trusted_edge, *["yes" if best else ""][: len(front)]),
        )
        for point, best in zip(swept.points, on, strict=True)
    ]
    values = (value_of(point, name) for point in swept.points for name in names)
    unbounded = "; ∞: no guarantee" if math.inf in values else ""
    first, of_seeds = len(swept.keys), " and seed" if several else ""
    return text.html_table(
        [*swept.keys, *["seeds"][:several], *map(_column_title, names), _RAW, *front],
        rows,
        caption=f"{_seeds_note(swept)}ε: the worst unit{of_seeds}, before training{unbounded}.{told}",
        numeric=tuple(range(first, first + 1 + several + len(names))),
        stacked=True,
    )


def _column_title(name: str) -> str:
    """The title of an objective; that of ε towards edges says that trusted ones are left out."""
    if not name.startswith(EPSILON_PREFIX):
        return title_of(name)
    untrusted = {"edge": " that the device does not trust", "own-edge": ", if not trusted"}
    return f"{title_of(name)}{untrusted.get(name.removeprefix(EPSILON_PREFIX), '')}"


def _report_links(swept: ParetoPage) -> str:
    """HTML with a link to the report of every run, which are files in the sweep's folder; "" without any."""
    items = []
    for point in (point for point in swept.points if point.reports):
        several = len(point.reports) > 1
        links = [
            f'<a href="{text.escape(quote(path))}">{f"seed {seed}" if several else "report"}</a>'
            for seed, path in point.reports.items()
        ]
        items.append(f"<li>{text.escape(swept.describe_point(point))}: {', '.join(links)}</li>")
    if not items:
        return ""
    words = "Reports of the points, in the folder of the sweep"
    unfolded = " open" if len(items) <= _MOST_OPEN else ""
    return f"<details{unfolded}><summary>{words}</summary><ul>{''.join(items)}</ul></details>"


def _plane_figure(swept: ParetoPage, across: str, up: str, *, with_legend: bool) -> Figure:
    """A scatter plot of all points by the objectives ``across`` and ``up``.

    Points on the front have filled markers and are joined by a line. The legend is the same in every figure
    of the page, so one has it.
    """
    points = [
        point for point in swept.points if not math.isnan(value_of(point, across) + value_of(point, up))
    ]
    on = pareto_front(points, (across, up))
    x = ObjectiveAxis.of(across, [point.objectives[across] for point in points])
    level = swept.silent if up in SCORES else math.nan
    levels = [] if math.isnan(level) else [Mean(level, math.nan)]
    y = ObjectiveAxis.of(up, [*(point.objectives[up] for point in points), *levels])
    trust = note_on_trust(points, across)
    if trust:
        x.layout["title"]["text"] = _column_title(across)
    for axis in (x, y):
        axis.layout["title"]["text"] += LOGARITHMIC if axis.layout.get("type") == "log" else ""
    look = _MarkerStyle.of(swept.keys, points)
    data = [] if all(on) else [_front_line(points, on, x, y)]
    for hue in dict.fromkeys(map(look.colour, points)):
        mine = [(one, best) for one, best in zip(points, on, strict=True) if look.colour(one) == hue]
        data.append(_point_marks(swept, mine, x, y, look))
    data += look.legend() if with_legend else []
    best = [swept.describe_point(point) for point, kept in zip(points, on, strict=True) if kept]
    layout = {
        "height": 430,
        "margin": MARGIN | {"t": 16},
        "legend": LEGEND | {"y": -0.2},
        "showlegend": with_legend and bool(look.colours),
        "hovermode": "closest",
        "xaxis": x.layout,
        "yaxis": y.layout,
        "shapes": [*strip_line(x, "x"), *strip_line(y, "y"), *map(_level_line, levels)],
    }
    strip = " ∞: no guarantee." if not (math.isnan(x.infinite) and math.isnan(y.infinite)) else ""
    marks = "Colours and symbols" if look.symbols else "Colours"
    as_first = "" if with_legend else f" {marks}: as in the legend of the first figure."
    notes = [] if all(on) else [_FILLED]
    notes += ["The ∞ towards a trusted own edge is not drawn."] if trust else []
    notes += [f"Dotted: without noise, {SCORES[up].text(level)}."] if levels else []
    first = title_of(up)
    bars = " Bars: 95 % interval of the mean over seeds." if any(point.seeds > 1 for point in points) else ""
    return Figure(
        title=f"{text.title(first) if up in SCORES else first} against {title_of(across)}",
        caption=f"{' '.join(notes)}{bars}{strip}{as_first}".strip(),
        description=f"{title_of(up)} against {title_of(across)} of {len(points)} points. On the front: "
        f"{text.join_names(best, 8)}.",
        data=data,
        layout=layout,
        kind="front",
        min_width=340,
    )


def _level_line(level: Mean) -> Json:
    """A Plotly shape: a dotted line across the plot at a score."""
    line = {"color": NEUTRAL, "width": 1.5, "dash": "dot"}
    ends = {"x0": 0, "x1": 1, "y0": level.value, "y1": level.value}
    return {"type": "line", "xref": "paper", "line": line} | ends


@dataclass(frozen=True)
class _MarkerStyle:
    """Colours by values of the first key that varies, symbols by those of the second, if they are few.

    Attributes:
        keys: names of both keys.
        at: their places among the keys of the sweep.
        colours: by value; {} for too many values, or if no key varies.
        symbols: by value; {} for too many values, or if no second key varies.
    """

    keys: tuple[str, str]
    at: tuple[int, int]
    colours: Mapping[str, str]
    symbols: Mapping[str, str]

    @classmethod
    def of(cls, keys: Sequence[str], points: Sequence[SweptPoint]) -> _MarkerStyle:
        """The style that tells ``points`` apart by the first two ``keys`` in which they differ."""
        values = [list(dict.fromkeys(point.labels[i] for point in points)) for i in range(len(keys))]
        varied = [i for i, found in enumerate(values) if len(found) > 1]
        first, second = (*varied, 0, 0)[:2]
        colours = _assign_styles(values[first], PALETTE) if varied else {}
        symbols = _assign_styles(values[second], _SYMBOLS) if len(varied) > 1 else {}
        return cls((keys[first], keys[second]), (first, second), colours, symbols)

    def colour(self, point: SweptPoint) -> str:
        """The colour of a point, by its value of the first key; all have one colour for too many values."""
        return self.colours.get(point.labels[self.at[0]], PALETTE[0])

    def symbol(self, point: SweptPoint) -> str:
        """The symbol of a point, by its value of the second key.

        A circle if there is none, or values are too many.
        """
        return self.symbols.get(point.labels[self.at[1]], _SYMBOLS[0])

    def legend(self) -> list[Json]:
        """Plotly traces without points that put colours and symbols into the legend."""
        entries = [(self.keys[0], value, hue, _SYMBOLS[0]) for value, hue in self.colours.items()]
        entries += [(self.keys[1], value, NEUTRAL, symbol) for value, symbol in self.symbols.items()]
        unseen = {"type": "scatter", "mode": "markers", "x": [None], "y": [None]}
        return [
            unseen
            | {"name": text.plotly_label(f"{key} = {value}")}
            | {"marker": {"color": hue, "symbol": symbol, "size": 10}}
            for key, value, hue, symbol in entries
        ]


def _assign_styles(values: Sequence[str], looks: Sequence[str]) -> dict[str, str]:
    """A different one of ``looks`` (colours or symbols) for every value; {} where there are too few."""
    return dict(zip(values, looks, strict=False)) if len(values) <= len(looks) else {}


def _point_marks(
    swept: ParetoPage,
    mine: Sequence[tuple[SweptPoint, bool]],
    x: ObjectiveAxis,
    y: ObjectiveAxis,
    look: _MarkerStyle,
) -> Json:
    """The Plotly trace of points that share a style, with their confidence intervals.

    ``mine``: the points, and whether each is on the front; ``x``, ``y``: the axes; ``look``: the style.
    """
    hue = look.colour(mine[0][0])

    def spread(axis: ObjectiveAxis) -> Json:
        """Plotly's error bars along ``axis``; {} where no interval is known."""
        widths = [point.objectives[axis.name].half_width / axis.size for point, _ in mine]
        if all(map(math.isnan, widths)):
            return {}
        known = [0.0 if math.isnan(width) else width for width in widths]
        return {"type": "data", "array": known, "thickness": 1, "width": 3, "color": hue}

    def hover(point: SweptPoint) -> str:
        """The text under the pointer at a point."""
        values = (f"{title_of(name)}: {describe_objective(point, name)}" for name in (y.name, x.name))
        trust = point.known_raw
        raw = [f"raw to a trusted edge: {text.plotly_label(trust)} devices"] if trust else []
        return "<br>".join([*map(text.plotly_label, swept.describe_point(point).split(", ")), *values, *raw])

    symbols = [look.symbol(point) + ("" if best else "-open") for point, best in mine]
    marker = {"color": hue, "symbol": symbols, "line": {"width": 1.5, "color": hue}}
    return {
        **{"type": "scatter", "mode": "markers", "showlegend": False},
        "x": [x.place(value_of(point, x.name)) for point, _ in mine],
        "y": [y.place(value_of(point, y.name)) for point, _ in mine],
        **{"error_x": spread(x), "error_y": spread(y)},
        "marker": marker | {"size": [11 if best else 9 for _, best in mine]},
        "hovertemplate": "%{hovertext}<extra></extra>",
        "hovertext": [hover(point) for point, _ in mine],
    }


def _front_line(points: Sequence[SweptPoint], on: Sequence[bool], x: ObjectiveAxis, y: ObjectiveAxis) -> Json:
    """The Plotly trace of a dotted line through the finite points of the front.

    ``on``: whether each point is on the front.
    """
    places = sorted(
        (x.place(value_of(point, x.name)), y.place(value_of(point, y.name)))
        for point, best in zip(points, on, strict=True)
        if best and math.isfinite(value_of(point, x.name)) and math.isfinite(value_of(point, y.name))
    )
    line = {"color": NEUTRAL, "width": 1.2, "dash": "dot", "shape": "hv"}
    points_of_line = {"x": [at for at, _ in places], "y": [at for _, at in places], "line": line}
    return {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "showlegend": False} | points_of_line
