"""The layout of the page. What it shows is filled in by `callbacks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from sfumato.explore.controls import CHOICES, NAMES, PARTICIPATION, STEPS
from sfumato.explore.edited_spec import EditedSpec
from sfumato.explore.edits import CLICKS, TRUST
from sfumato.explore.jobs import PILOT_ROUNDS
from sfumato.explore.words import FIELDS_OF_PAIR
from sfumato.report.figures.figure import Figure
from sfumato.report.figures.heatmap import MOST_OPEN
from sfumato.report.page.html import asset
from sfumato.report.page.tiles import Tile

GRAPHS = ("network", "heatmap", "kept-heatmap", "accuracy-against-epsilon", "accuracy-curve", "epsilon-curve")
_NO_ACCURACY = "Accuracy: not known yet. Run a pilot, or this setting, below."
_PLOT = {"displayModeBar": False, "displaylogo": False}


def index() -> str:
    """The HTML frame of the page, with the style of reports; nothing is loaded from other servers."""
    from importlib import resources

    own = resources.files("sfumato.explore").joinpath("explore.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html><html lang="en"><head>{%metas%}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>{%title%}</title>{%favicon%}{%css%}"
        f"<style>{asset('page.css')}{own}</style></head>"
        "<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body></html>"
    )


def layout(setting: EditedSpec, heading: str) -> Any:
    """The Dash components of the whole page, empty but for the heading: callbacks fill them in.

    Args:
        setting: that the page shows at first.
        heading: name, protocol and data of the spec, plain text.
    """
    return html.Main([
        dcc.Store(id="first", data=setting.to_json()),
        dcc.Store(id="setting", data=None),
        dcc.Store(id="kept", data=None),
        dcc.Store(id="history", data=[]),
        dcc.Store(id="figures", data={}),
        dcc.Store(id="measured-figures", data={}),
        dcc.Store(id="live-figures", data={}),
        dcc.Store(id="dark", data=False),
        dcc.Store(id="job", data=None),
        dcc.Download(id="download"),
        html.P("Sfumato", className="kicker"),
        html.H1("Change a setting, see who learns what about whom"),
        html.P(heading, className="facts"),
        html.Div(id="problem", className="notice", role="alert", hidden=True),
        html.P(
            [html.Span(className="spinner"), "Computing. Participation by chance takes the longest."],
            id="busy", role="status", hidden=True,
        ),
        html.A("Change the setting", href="#change", className="to-settings"),
        html.Div([_change_section(), html.Div(_figure_sections(), id="shown")], className="workbench"),
        _compare_section(),
        _accuracy_section(),
        _use_section(),
    ], id="page")  # fmt: skip


def _change_section() -> Any:
    """The section with the controls that change the setting."""
    return html.Section([
        html.H2("Change the setting", id="change"),
        html.Button("Undo the last change", id="undo", type="button"),
        html.Button("Undo all changes", id="reset", type="button"),
        _number_with_slider("noise"),
        _input_group("Trusted with raw updates", "trust-label", [
            html.P(id="trust-note", className="facts"),
            dcc.Checklist(id="trusted", options=[], value=[], className="choices"),
        ]),
        *(_number_with_slider(name) for name in NAMES if name != "noise"),
        html.Div(
            _input_group("Participation", "participation-label", [
                dcc.RadioItems(id="participation", options=[
                    {"label": f" {words}", "value": kind} for kind, words in PARTICIPATION.items()
                ], value=None, className="choices"),
            ]),
            id="participation-control", hidden=True,
        ),
        *(_choice(name) for name in CHOICES),
        html.P(id="command", className="facts"),
    ], className="changes", **{"aria-label": "Change the setting"})  # fmt: skip


def _input_group(title: str, name: str, children: Sequence[Any]) -> Any:
    """A group of inputs ``children`` under the heading ``title``, which screen readers say with them.

    ``name``: id of the heading.
    """
    heading = html.P(title, id=name, className="legend")
    return html.Div([heading, *children], role="group", className="group", **{"aria-labelledby": name})


def _choice(name: str) -> Any:
    """A list of values to choose from, for the control ``name``."""
    return html.Div([
        html.P(id=f"{name}-label", className="legend"),
        dcc.RadioItems(id=name, options=[], value=None, className="choices"),
    ], id=f"{name}-control", role="group", className="group", hidden=True,
        **{"aria-labelledby": f"{name}-label"})  # fmt: skip


def _number_with_slider(name: str) -> Any:
    """An input for the number of the control ``name``, and a slider beside it."""
    return html.Div([
        html.Label(id=f"{name}-label", htmlFor=f"{name}-number"),
        html.Div([
            dcc.Input(id=f"{name}-number", type="number", step="any", debounce=0.4),
            html.Div(
                dcc.Input(id=f"{name}-slider", type="range", min=0, max=STEPS, step=1, debounce=0.15),
                className="slider", **{"aria-hidden": "true"},
            ),
        ], className="number"),
    ], id=f"{name}-control", className="control", hidden=True)  # fmt: skip


def _figure_sections() -> list[Any]:
    """A list of the sections of the page with the network, the heatmap and the costs."""
    return [
        html.Div(id="summary", role="status", **{"aria-live": "polite"}),
        html.Div(id="accuracy", role="status", **{"aria-live": "polite"}),
        html.Section([
            html.H2("The network"),
            _input_group("A click on the drawing", "click-label", [
                dcc.RadioItems(id="click", options=[
                    {"label": f" {words}", "value": kind} for kind, words in CLICKS.items()
                ], value=TRUST, className="choices across"),
            ]),
            _plot("network"),
            html.P(id="network-caption", className="facts"),
        ]),
        html.Section([
            html.H2("ε by class of device and observer"),
            html.Div([
                html.Figure([
                    html.H3("The kept setting"), _plot("kept-heatmap"), _narrow_lists("kept-lists"),
                ], id="kept-side", hidden=True),
                html.Figure([html.H3(id="now-title"), _plot("heatmap"), _narrow_lists("heatmap-lists")]),
            ], id="sides"),
            html.P(id="heatmap-caption", className="facts"),
            html.Details([html.Summary("Show the numbers"), html.Div(id="numbers")]),
        ]),
        html.Section([
            html.H2("Coalitions"),
            html.P(
                "Several observers that put together what they receive may learn more. Name the members, or "
                "let clicks on the drawing add them."
            ),
            html.Div([
                _text_input("unit", f"{FIELDS_OF_PAIR['unit']}, like device:0, record:0 or person:0"),
                _text_input("coalition", f"{FIELDS_OF_PAIR['observer']}, like cloud,device:1"),
            ], className="fields"),
            html.P(id="coalition-said", role="status", className="answer", **{"aria-live": "polite"}),
        ]),
        html.Section([
            html.H2("Noise and costs"),
            html.Dl(id="facts", className="tiles"),
            html.Div(id="noise"),
            html.Ul(id="notes"),
        ]),
    ]  # fmt: skip


def _plot(name: str) -> Any:
    """A drawing area with the id ``name`` and a description for screen readers; hidden until it is drawn."""
    return html.Div(
        html.Div(
            dcc.Graph(id=name, config=_PLOT, responsive=True), id=f"{name}-size", style={"display": "none"}
        ),
        id=f"{name}-frame", className="wide", role="img",
    )  # fmt: skip


def captions(figure: Figure) -> list[Any]:
    """The two captions of a figure: for its plot, and for the list that narrow screens show in its place.

    A list of Dash components, of which the style hides one.
    """
    return [
        html.Span(figure.caption, className="of-plot"),
        html.Span(figure.narrow_caption, className="of-list"),
    ]


def _narrow_lists(name: str) -> Any:
    """A place with the id ``name`` for lists that stand for a heatmap on a narrow screen."""
    return html.Div(id=name, className="narrow")


def _text_input(name: str, label: str) -> Any:
    """A text input with the id ``name`` and a label."""
    return html.Div(
        [html.Label(label, htmlFor=name), dcc.Input(id=name, type="text", debounce=True, value="")],
        className="control",
    )


def _compare_section() -> Any:
    """The section with buttons that keep a setting to compare with."""
    return html.Section([
        html.H2("Two settings side by side"),
        html.P("Keep this setting, then change it: the figures of both are drawn on one colour scale."),
        html.Button("Keep this setting", id="keep", type="button"),
        html.Button("Forget the kept setting", id="forget", type="button", hidden=True),
        html.Button("Return to the kept setting", id="return", type="button", hidden=True),
        html.Div(id="side-by-side"),
        html.Ul(id="differences", role="status", **{"aria-live": "polite"}),
    ])  # fmt: skip


def _accuracy_section() -> Any:
    """The section with an estimate of accuracy, and a button for a pilot."""
    return html.Section([
        html.H2("Accuracy"),
        _plot("accuracy-against-epsilon"),
        html.P(
            "Each mark is a finished run of the same data, model and network, points of sweeps included; its "
            "other settings may differ.",
            id="accuracy-caption", className="facts", hidden=True,
        ),
        html.Div(id="estimate"),
        html.P(
            f"A pilot trains {PILOT_ROUNDS} rounds at most, with the noise that all rounds of the setting "
            "need. Its accuracy is that of these rounds, not of the whole training. On private data it is a "
            "training like any other: its releases count."
        ),
        html.Button("Run a pilot", id="pilot", type="button"),
    ])  # fmt: skip


def _use_section() -> Any:
    """The section with buttons that save or run the setting."""
    return html.Section([
        html.H2("Use the setting"),
        html.P(
            "A run, or a pilot, calls the code that the spec names (package.module:factory), with your "
            "rights: read a spec of somebody else before you run it."
        ),
        html.P(
            "Both are simulations: their noise follows from the seed. Whoever has the seed can subtract it, "
            "and no ε here holds against them."
        ),
        html.Div([
            html.Button("Download the spec", id="save", type="button"),
            html.Button("Run this setting", id="start", type="button"),
            html.Button("Stop the run", id="stop", type="button", hidden=True),
        ], className="buttons"),
        html.Div([
            _text_input("targets", "Targets of ε for a plan, like cloud=2 own-edge=8"),
            html.Button("Plan the noise", id="plan", type="button"),
        ], className="fields"),
        html.P(id="plan-said", role="status", **{"aria-live": "polite"}),
        html.Div(id="job-problem", className="notice", role="alert", hidden=True),
        html.P(id="job-said", role="status", **{"aria-live": "polite"}),
        html.Div(
            [_plot("accuracy-curve"), _plot("epsilon-curve")], id="curves", className="panels", hidden=True
        ),
        html.P(id="report-link"),
        dcc.Interval(id="tick", interval=1000, disabled=True),
    ])  # fmt: skip


def dash_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], caption: str, *, scope: bool = False
) -> Any:
    """A table that scrolls, as a Dash component: ``rows`` of texts below ``headers``, under a ``caption``.

    ``scope``: whether the first cell of each row is its heading.
    """
    first = (lambda cell: html.Th(cell, scope="row")) if scope else html.Td
    return html.Div(
        html.Table([
            html.Caption(caption),
            html.Thead(html.Tr([html.Th(header, scope="col") for header in headers])),
            html.Tbody([
                html.Tr([first(cell) if at == 0 else html.Td(cell) for at, cell in enumerate(row)])
                for row in rows
            ]),
        ]),
        className="scroll", tabIndex=0, role="region", **{"aria-label": caption},
    )  # fmt: skip


def tiles(rows: Sequence[tuple[str, str]]) -> list[Any]:
    """The entries of a description list from (name, value) pairs, a list of Dash components."""
    return [html.Div([html.Dt(name), html.Dd(value)]) for name, value in rows]


def marked_tiles(caption: str, shown: Sequence[Tile]) -> list[Any]:
    """A caption, and below it a list with a tile each, in the look (class of CSS) that the tile names."""
    blocks = [html.Div([html.Dt(one.name), html.Dd(one.value)], className=one.look) for one in shown]
    return [html.P(caption, className="facts"), html.Dl(blocks, className="tiles")]


def accuracy(name: str, value: str, differs: str) -> list[Any]:
    """The first accuracy of a setting as a tile, or a sentence in its place.

    ``name``, ``value`` and ``differs`` are what `first_accuracy` gives.
    """
    if not name:
        return [html.P(differs or _NO_ACCURACY, className="facts")]
    return [html.Dl(tiles([(name, value)]), className="tiles")]


def notice(sentences: Sequence[str]) -> list[Any]:
    """A list with a box around ``sentences``, a Dash component; [] without any."""
    return [html.Div(html.Ul(lines(sentences)), className="notice")] if sentences else []


def difference_table(headers: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Any:
    """A table of the pairs whose ε differs; "" without rows. Arguments as of `dash_table`."""
    return dash_table(headers, rows, caption) if rows else ""


def matrix_lists(rows: Sequence[tuple[str, str, Sequence[tuple[str, str]]]]) -> list[Any]:
    """The matrix of ε as lists that open: for each row its title and detail, and the observers with their ε.

    The first `MOST_OPEN` are open. ``rows``: (title, detail, pairs of observer and ε) as texts.
    """
    return [
        html.Details([
            html.Summary(title), html.P(detail), html.Dl(tiles(cells)),
        ], open=at < MOST_OPEN)
        for at, (title, detail, cells) in enumerate(rows)
    ]  # fmt: skip


def sentences_and_list(sentences: Sequence[str]) -> list[Any]:
    """Sentences as paragraphs, Dash components; after one that ends with a colon, the others are a list."""
    at = next((i + 1 for i, said in enumerate(sentences) if said.endswith(":")), len(sentences))
    listed = [html.Ul(lines(sentences[at:]))] if sentences[at:] else []
    return [*map(html.P, sentences[:at]), *listed]


def lines(sentences: Sequence[str]) -> list[Any]:
    """The entries of an HTML list, a Dash component for each sentence."""
    return [html.Li(sentence) for sentence in sentences]
