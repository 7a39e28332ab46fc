"""The report of a sweep: Pareto fronts of accuracy, ε, energy and delay, and a table of all points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.report import formatting as text
from sfumato.report.figure import NEUTRAL, PALETTE, Figure
from sfumato.report.html_page import (
    PlacedFigures,
    bullet_list,
    placeholder,
    render_page,
    script_of_sweep,
    section,
)
from sfumato.report.pareto_axis import SCORES, UNITS, ObjectiveAxis, strip_line, title_of
from sfumato.report.pareto_knee import knee_sentences
from sfumato.report.series import Mean
from sfumato.run_folder.metrics_table import EPSILON_PREFIX
from sfumato.run_folder.reader import write_text

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "x")
_MOST_WITHOUT_ACCURACY = 6


@dataclass(frozen=True)
class SweptPoint:
    """One point of a sweep.

    Attributes:
        labels: its values, one for each swept key.
        seeds: number of finished seeds.
        objectives: a score (``accuracy``, a share; or another of `SCORES`), ``epsilon:OBSERVER``,
            ``energy_j``, ``delay_s`` (less is better); NaN where nothing was measured.
        raw_to_trusted_edge: how many devices send raw updates to a trusted edge, ``100 of 100``.
    """

    labels: tuple[str, ...]
    seeds: int
    objectives: Mapping[str, Mean]
    raw_to_trusted_edge: str = "–"


@dataclass(frozen=True)
class ParetoPage:
    """The content of the page.

    Attributes:
        title: the spec's name.
        facts: properties that all points share, as text.
        keys: short names of the swept keys.
        points: points with results, in the grid's order.
        failures: points without results, and the errors.
        notices: sentences on figures that cannot be compared.
    """

    title: str
    facts: Sequence[str]
    keys: tuple[str, ...]
    points: tuple[SweptPoint, ...]
    failures: tuple[tuple[str, str], ...]
    notices: Sequence[str] = ()

    @property
    def measured(self) -> tuple[str, ...]:
        """The objectives of which at least one point has a value."""
        names = dict.fromkeys(name for point in self.points for name in point.objectives)
        order = sorted(names, key=lambda name: (name not in SCORES, name in UNITS))
        return tuple(n for n in order if any(not math.isnan(_value(point, n)) for point in self.points))

    def named(self, point: SweptPoint) -> str:
        """``key = value`` of every swept key."""
        return ", ".join(f"{key} = {label}" for key, label in zip(self.keys, point.labels, strict=True))


def write_pareto_page(swept: ParetoPage, out: Path) -> Path:
    """Draw ``swept`` into one self-contained HTML file; returns ``out``."""
    figures = PlacedFigures()
    planes = _planes(swept)
    drawn = [
        figures.place(_plane(swept, across, up, with_legend=number == 0))
        for number, (across, up) in enumerate(planes)
    ]
    panels = f'<div class="panels">{"".join(drawn)}</div>' if drawn else ""
    nothing = placeholder(
        "A front needs two of accuracy, ε, energy and delay that differ from point to point."
    )
    sections = [
        _headline(swept),
        section("Pareto fronts", [panels or nothing]),
        section("All points", [_table(swept)]),
    ]
    if swept.failures:
        sections.append(section("Failures", [bullet_list([f"{who}: {why}" for who, why in swept.failures])]))
    facts = " · ".join([*swept.facts, f"swept: {', '.join(swept.keys)}"])
    subtitle = f'<p class="facts">{text.escape(facts)}</p>'
    html = render_page(
        f"{swept.title}: sweep", subtitle, sections, figures, shared=script_of_sweep(out.parent)
    )
    write_text(out, html)
    return out


def pareto_front(points: Sequence[SweptPoint], objectives: Sequence[str]) -> tuple[bool, ...]:
    """Which points are on the Pareto front: no other is as good in every objective and better in one.

    A point without a value of one of the objectives is not on the front. With several seeds, means are
    compared.
    """
    costs = [tuple(_cost(point, name) for name in objectives) for point in points]

    def beaten(mine: tuple[float, ...]) -> bool:
        return any(
            other != mine and all(theirs <= own for theirs, own in zip(other, mine, strict=True))
            for other in costs
        )

    return tuple(not any(map(math.isnan, mine)) and not beaten(mine) for mine in costs)


def _cost(point: SweptPoint, name: str) -> float:
    """The value to minimise, to six significant digits: smaller differences are calibration tolerance."""
    value = _value(point, name)
    return float(f"{-value if _is_higher_better(name) else value:.6g}")


def _is_higher_better(name: str) -> bool:
    return name in SCORES and SCORES[name].higher_is_better


def _value(point: SweptPoint, name: str) -> float:
    return point.objectives[name].value if name in point.objectives else math.nan


def _planes(swept: ParetoPage) -> list[tuple[str, str]]:
    """Pairs of objectives to draw, (across, up): the score against the rest; without a score, all pairs.

    Objectives that are the same at all points are left out: there is nothing to trade for them.
    """
    names = _varied(swept)
    score = next((name for name in names if name in SCORES), None)
    if score is not None:
        return [(name, score) for name in names if name != score]
    return list(itertools.combinations(names, 2))[:_MOST_WITHOUT_ACCURACY]


def _varied(swept: ParetoPage) -> list[str]:
    """The score, and the objectives that are not the same at all points."""
    return [
        name
        for name in swept.measured
        if name in SCORES
        or len(swept.points) == 1
        or len({_value(point, name) for point in swept.points}) > 1
    ]


def _headline(swept: ParetoPage) -> str:
    failed = f"; {text.whole(len(swept.failures))} failed" if swept.failures else ""
    seeds = max((point.seeds for point in swept.points), default=0)
    of = f" of {seeds} seeds each" if seeds > 1 else ""
    said = [f"{text.whole(len(swept.points))} {text.pluralise('point', len(swept.points))}{of}{failed}."]
    for name in _varied(swept):
        known = [point for point in swept.points if math.isfinite(_value(point, name))]
        if known:
            best = min(_cost(point, name) for point in known)
            ones = [point for point in known if _cost(point, name) == best]
            where = "every point" if len(ones) == len(swept.points) > 1 else swept.named(ones[0])
            others = len(ones) - 1 if len(ones) < len(swept.points) else 0
            more = f" and {text.whole(others)} {text.pluralise('other', others)}" if others else ""
            superlative = "Highest" if _is_higher_better(name) else "Lowest"
            said.append(
                f"{superlative} {title_of(name)}: {_describe_objective(ones[0], name)} at {where}{more}"
                f"{_raw(ones, name)}."
            )
    said += knee_sentences(swept, [plane for plane in _planes(swept) if plane[1] in SCORES])
    warnings = ["Some points failed; they are listed below."] if swept.failures else []
    notice = "".join(f'<p class="notice">{text.escape(said)}</p>' for said in [*warnings, *swept.notices])
    lead = "".join(f"<p>{text.escape(line)}</p>" for line in said)
    return f'<section aria-label="Headline">{notice}<div class="lead">{lead}</div></section>'


def _raw(points: Sequence[SweptPoint], name: str) -> str:
    """What belongs beside an ε towards edges: how many devices it is not about."""
    if name.removeprefix(EPSILON_PREFIX) not in ("edge", "own-edge", "other-edge"):
        return ""
    raw = dict.fromkeys(point.raw_to_trusted_edge for point in points)
    known = [said for said in raw if said not in ("–", "")]
    return f" (raw to a trusted edge: {', or '.join(known)} devices)" if known else ""


def _describe_objective(point: SweptPoint, name: str) -> str:
    found = point.objectives.get(name, Mean(math.nan, math.nan))
    if name in SCORES:
        form = SCORES[name].text
    elif name.startswith(EPSILON_PREFIX):
        form = text.epsilon
    else:

        def form(value: float) -> str:
            return text.quantity(value, UNITS[name])

    return form(found.value) + ("" if math.isnan(found.half_width) else f" ± {form(found.half_width)}")


def _averaged(swept: ParetoPage) -> str:
    """What a figure of several seeds is."""
    several = any(point.seeds > 1 for point in swept.points)
    return "Mean over seeds ± half of its 95 % interval; " if several else ""


def _table(swept: ParetoPage) -> str:
    names = swept.measured
    on = pareto_front(swept.points, names)
    rows = [
        (
            *point.labels,
            point.seeds,
            *(_describe_objective(point, name) for name in names),
            point.raw_to_trusted_edge,
            "yes" if best else "",
        )
        for point, best in zip(swept.points, on, strict=True)
    ]
    first = len(swept.keys)
    return text.table(
        [*swept.keys, "seeds", *map(title_of, names), "raw to a trusted edge", "on the front"],
        rows,
        caption=f"{_averaged(swept)}ε: the worst unit and seed, before training; "
        "∞: no guarantee. On the front: no other point is as good in every "
        "objective and better in one; how many devices are raw is no objective.",
        numeric=tuple(range(first, first + 2 + len(names))),
    )


def _plane(swept: ParetoPage, across: str, up: str, *, with_legend: bool) -> Figure:
    """Two objectives of all points; points on the front have filled markers and are joined by a line.

    The legend is the same in every figure of the page, so one has it.
    """
    points = [
        point
        for point in swept.points
        if not math.isnan(_value(point, across)) and not math.isnan(_value(point, up))
    ]
    on = pareto_front(points, (across, up))
    x = ObjectiveAxis.of(across, [point.objectives[across] for point in points])
    y = ObjectiveAxis.of(up, [point.objectives[up] for point in points])
    look = _MarkerStyle.of(swept.keys, points)
    data = [_stairs(points, on, x, y)]
    for hex_colour in dict.fromkeys(look.colour(point) for point in points):
        mine = [(one, best) for one, best in zip(points, on, strict=True) if look.colour(one) == hex_colour]
        data.append(_dots(swept, mine, x, y, look))
    data += look.legend() if with_legend else []
    best = [swept.named(point) for point, kept in zip(points, on, strict=True) if kept]
    layout: dict[str, Any] = {
        "height": 430,
        "margin": {"l": 64, "r": 16, "t": 16, "b": 56},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": -0.2, "yanchor": "top"},
        "showlegend": with_legend and bool(look.colours),
        "hovermode": "closest",
        "xaxis": x.layout,
        "yaxis": y.layout,
        "shapes": [*strip_line(x, "x"), *strip_line(y, "y")],
    }
    strip = " ∞: no guarantee." if not (math.isnan(x.infinite) and math.isnan(y.infinite)) else ""
    as_first = "" if with_legend else " Colours and symbols: as in the legend of the first figure."
    first = title_of(up)
    bars = " Bars: 95 % interval of the mean over seeds." if any(point.seeds > 1 for point in points) else ""
    return Figure(
        title=f"{first[:1].upper() + first[1:] if up in SCORES else first} against {title_of(across)}",
        caption=f"Filled markers, joined by a line: the Pareto front.{bars}{strip}{as_first}",
        description=f"{title_of(up)} against {title_of(across)} of {len(points)} points. On the front: "
        f"{text.join_names(best, 8)}.",
        data=data,
        layout=layout,
        kind="front",
        min_width=340,
    )


@dataclass(frozen=True)
class _MarkerStyle:
    """Colours by values of the first key that varies, symbols by those of the second, if they are few."""

    keys: tuple[str, str]
    at: tuple[int, int]
    colours: Mapping[str, str]
    symbols: Mapping[str, str]

    @classmethod
    def of(cls, keys: Sequence[str], points: Sequence[SweptPoint]) -> _MarkerStyle:
        values = [list(dict.fromkeys(point.labels[i] for point in points)) for i in range(len(keys))]
        varied = [i for i, found in enumerate(values) if len(found) > 1]
        first, second = (*varied, 0, 0)[:2]
        colours = _assign_styles(values[first], PALETTE) if varied else {}
        symbols = _assign_styles(values[second], _SYMBOLS) if len(varied) > 1 else {}
        return cls((keys[first], keys[second]), (first, second), colours, symbols)

    def colour(self, point: SweptPoint) -> str:
        return self.colours.get(point.labels[self.at[0]], PALETTE[0])

    def symbol(self, point: SweptPoint) -> str:
        return self.symbols.get(point.labels[self.at[1]], _SYMBOLS[0])

    def legend(self) -> list[dict[str, Any]]:
        entries = [
            (self.keys[0], value, hex_colour, _SYMBOLS[0]) for value, hex_colour in self.colours.items()
        ]
        entries += [(self.keys[1], value, NEUTRAL, symbol) for value, symbol in self.symbols.items()]
        return [
            {
                "type": "scatter",
                "mode": "markers",
                "name": text.label(f"{key} = {value}"),
                "x": [None],
                "y": [None],
                "marker": {"color": hex_colour, "symbol": symbol, "size": 10},
            }
            for key, value, hex_colour, symbol in entries
        ]


def _assign_styles(values: Sequence[str], looks: Sequence[str]) -> dict[str, str]:
    return dict(zip(values, looks, strict=False)) if len(values) <= len(looks) else {}


def _dots(
    swept: ParetoPage,
    mine: Sequence[tuple[SweptPoint, bool]],
    x: ObjectiveAxis,
    y: ObjectiveAxis,
    look: _MarkerStyle,
) -> dict[str, Any]:
    hex_colour = look.colour(mine[0][0])

    def spread(axis: ObjectiveAxis) -> dict[str, Any]:
        widths = [point.objectives[axis.name].half_width / axis.size for point, _ in mine]
        if all(map(math.isnan, widths)):
            return {}
        known = [0.0 if math.isnan(width) else width for width in widths]
        return {"type": "data", "array": known, "thickness": 1, "width": 3, "color": hex_colour}

    return {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "x": [x.place(_value(point, x.name)) for point, _ in mine],
        "y": [y.place(_value(point, y.name)) for point, _ in mine],
        "error_x": spread(x),
        "error_y": spread(y),
        "marker": {
            "color": hex_colour,
            "size": [11 if best else 9 for _, best in mine],
            "symbol": [look.symbol(point) + ("" if best else "-open") for point, best in mine],
            "line": {"width": 1.5, "color": hex_colour},
        },
        "hovertemplate": "%{hovertext}<extra></extra>",
        "hovertext": [
            "<br>".join(
                [
                    *(text.label(part) for part in swept.named(point).split(", ")),
                    *(f"{title_of(name)}: {_describe_objective(point, name)}" for name in (y.name, x.name)),
                ]
            )
            for point, _ in mine
        ],
    }


def _stairs(
    points: Sequence[SweptPoint], on: Sequence[bool], x: ObjectiveAxis, y: ObjectiveAxis
) -> dict[str, Any]:
    """The line through the finite points of the front."""
    places = sorted(
        (x.place(_value(point, x.name)), y.place(_value(point, y.name)))
        for point, best in zip(points, on, strict=True)
        if best and math.isfinite(_value(point, x.name)) and math.isfinite(_value(point, y.name))
    )
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [at for at, _ in places],
        "y": [at for _, at in places],
        "line": {"color": NEUTRAL, "width": 1.2, "dash": "dot", "shape": "hv"},
        "hoverinfo": "skip",
        "showlegend": False,
    }
