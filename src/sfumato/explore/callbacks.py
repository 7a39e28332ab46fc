"""What the browser asks of the server: every answer is made from what the page sends along."""

from __future__ import annotations

# Dash has no types of its own
# mypy: disable-error-code="untyped-decorator"
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from sfumato.errors import SfumatoError, SpecError
from sfumato.explore import answers, page
from sfumato.explore.accounted_setting import account_setting
from sfumato.explore.accuracy import estimate, finished_runs, first_accuracy
from sfumato.explore.accuracy_figure import MEASURED, accuracy_against_epsilon
from sfumato.explore.controls import CHOICES, NAMES
from sfumato.explore.edited_spec import EditedSpec
from sfumato.explore.edits import (
    Choices,
    EditResult,
    choices_of,
    with_choices,
    with_click,
    with_planned_noise,
)
from sfumato.explore.figures import as_plotly
from sfumato.explore.trust import why_trust_is_fixed

_BUTTONS = ("undo", "reset", "return", "plan")
_MOST_UNDONE = 20  # settings that can be returned to, one by one
_MOST_LETTERS = 2_000_000  # of all these
_TEXTS = ("participation", "unit", "coalition", "kept", "mode", "targets", "setting", "first")


def register(app: Dash, runs: Path) -> None:
    """Register the callbacks of the page, all but those about its own runs.

    ``runs``: the folder in which finished runs are looked up.
    """
    _register_edit(app)
    _register_drawings(app)
    _register_kept(app)

    estimated = (
        Output("estimate", "children"),
        Output("measured-figures", "data"),
        Output("accuracy", "children"),
        Output("accuracy-caption", "hidden"),
    )

    @app.callback(*estimated, Input("setting", "data"), Input("job-said", "children"))
    def show_estimate(setting: str | None, _said: str) -> Any:
        """Sentences, figure and tile of the accuracy to expect; an error is shown in their place."""
        if setting is None:
            return no_update, no_update, no_update, no_update
        try:
            accounted = account_setting(EditedSpec.from_json(setting))
            finished, unread = finished_runs(runs)
            found, drawn = estimate(accounted, finished), accuracy_against_epsilon(accounted, finished)
            first = first_accuracy(accounted, finished)
        except SfumatoError as error:
            return html.P(str(error)), {}, "", True
        left = (
            [html.P(f"At least {unread:,} further runs were not read.", className="facts")] if unread else []
        )
        told = [*page.sentences_and_list(found), *left]
        return told, {MEASURED: as_plotly(drawn)}, page.accuracy(*first), drawn is None

    saved = Output("download", "data"), Input("save", "n_clicks"), State("setting", "data")

    @app.callback(*saved, prevent_initial_call=True)
    def save(_clicks: int, setting: str) -> Any:
        """The download of the spec as YAML."""
        chosen = EditedSpec.from_json(setting)
        return dcc.send_string(chosen.yaml(), f"{chosen.spec().name}.yaml")


def _register_edit(app: Dash) -> None:
    """Register the callback of all changes of the setting, which answers with both controls and figures."""
    inputs = {
        "clicked": Input("network", "clickData"),
        "buttons": {name: Input(name, "n_clicks") for name in _BUTTONS},
        "sliders": {name: Input(f"{name}-slider", "value") for name in NAMES},
        "numbers": {name: Input(f"{name}-number", "value") for name in NAMES},
        **{name: Input(name, "value") for name in ("trusted", "participation", "unit", "coalition")},
        "picked": {name: Input(name, "value") for name in CHOICES},
        "kept": Input("kept", "data"),
        "mode": State("click", "value"),
        "targets": State("targets", "value"),
        "setting": State("setting", "data"),
        "history": State("history", "data"),
        "first": State("first", "data"),
    }
    busy = [(Output("busy", "hidden"), False, True)]
    outputs = {"controls": answers.CONTROLS, "figures": answers.FIGURES}

    @app.callback(output=outputs, inputs=inputs, running=busy)
    def edit(**given: Any) -> dict[str, Any]:
        """The controls and figures after a change; ``given``: what the browser sent, by name."""
        as_it_was = dict.fromkeys(answers.FIGURES, no_update)
        try:
            _require_values_of_the_page(given)
            setting = EditedSpec.from_json(given["setting"] or given["first"])
            kept = EditedSpec.from_json(given["kept"]) if given["kept"] else None
            if given["setting"] is None:  # the page has just been opened
                found = EditResult(setting, choices_of(setting))
            else:
                found = _result_of_event(setting, kept, cause_of(ctx.triggered_prop_ids.values()), given)
            shown = as_it_was if found.problem else answers.answer_figures(found.setting, kept, found.choices)
            given["new_history"] = _new_history(found.setting, given)
            return {"controls": answers.control_outputs(found, given), "figures": shown}
        except SfumatoError as error:
            return {"controls": answers.refused_outputs(str(error)), "figures": as_it_was}


def _new_history(setting: EditedSpec, given: dict[str, Any]) -> list[str]:
    """The settings before ``setting``, as JSON, oldest first, to which *Undo the last change* returns.

    After an undo the last one is gone. Of many or long settings the oldest are forgotten. ``given``: what the
    browser sent.
    """
    history, before = list(given["history"] or []), given["setting"]
    if cause_of(ctx.triggered_prop_ids.values()) == "undo":
        return history[:-1]
    if before is None or before == setting.to_json():
        return history
    kept = [*history, before][-_MOST_UNDONE:]
    while len(kept) > 1 and sum(map(len, kept)) > _MOST_LETTERS:
        kept = kept[1:]
    return kept


def _require_values_of_the_page(given: dict[str, Any]) -> None:
    """Refuse values that the page's controls cannot have; ``given``: by name of the control.

    Raises:
        SpecError: with the name of such a control.
    """
    found = [(name, given[name], isinstance(given[name], str)) for name in _TEXTS]
    for kind in ("sliders", "numbers"):
        for name, value in given[kind].items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            found.append((f"{kind}.{name}", value, is_number))
    for name, value in given["picked"].items():
        found.append((name, value, isinstance(value, str)))
    history = given["history"]
    is_history = isinstance(history, list) and all(isinstance(one, str) for one in history)
    found.append(("history", history, is_history))
    boxes, clicked = given["trusted"], given["clicked"]
    is_boxes = isinstance(boxes, list) and all(isinstance(name, str) for name in boxes)
    points = clicked.get("points") if isinstance(clicked, dict) else None
    is_click = isinstance(points, list) and len(points) > 0 and isinstance(points[0], dict)
    found += [("trusted", boxes, is_boxes), ("network", clicked, is_click)]
    for name, value, fits in found:
        if value is not None and not fits:
            raise SpecError(f"the page: {name}", value, "is of another kind than the page's: load it again")


def cause_of(triggered: Iterable[str]) -> str:
    """The name of the event to answer, of ``triggered``, those that Dash reported together; "" for none.

    Values of inputs are applied whatever the event is. So a button comes first, which replaces them, then a
    click on the drawing, then a slider.
    """
    found = list(triggered)
    first = [name for name in found if name in _BUTTONS]
    clicks = [name for name in found if name == "network"]
    sliders = [name for name in found if name.endswith("-slider")]
    return next(iter([*first, *clicks, *sliders, *found]), "")


def _result_of_event(
    setting: EditedSpec, kept: EditedSpec | None, cause: str, given: dict[str, Any]
) -> EditResult:
    """The setting after an event of the page: a button, a click on the drawing, or a control.

    Args:
        setting: before.
        kept: the setting kept for comparison; ``None``: there is none.
        cause: name of the event, as of `cause_of`.
        given: what the browser sent.
    """
    if cause == "reset":
        fresh = setting.without_changes()
        return EditResult(fresh, choices_of(fresh))
    if cause == "undo":
        if not given["history"]:
            return EditResult(setting, choices_of(setting), "There is no change to undo.")
        before = EditedSpec.from_json(given["history"][-1])
        return EditResult(before, choices_of(before))
    if cause == "return" and kept is not None:
        return EditResult(kept, choices_of(kept))
    if cause == "plan":
        return with_planned_noise(setting, given["targets"] or "")
    choices = Choices(
        trusted=None if why_trust_is_fixed(account_setting(setting)) else tuple(given["trusted"] or ()),
        numbers=given["numbers"],
        participation=given["participation"] or "",
        unit=given["unit"] or "",
        coalition=given["coalition"] or "",
        picked=given["picked"],
    )
    if cause == "network":
        party = given["clicked"]["points"][0].get("customdata") if given["clicked"] else None
        if not party:
            return EditResult(setting, choices)
        return with_click(setting, choices, str(party), given["mode"])
    name, _, kind = cause.rpartition("-")
    position = given["sliders"].get(name) if kind == "slider" else None
    slider = None if position is None else (name, float(position))
    return with_choices(setting, choices, slider)


def _register_drawings(app: Dash) -> None:
    """Register the browser's script that draws figures, and again when the colours of the page change."""
    for name in page.GRAPHS:
        store = "live-figures" if name.endswith("curve") else "figures"
        store = "measured-figures" if name == MEASURED else store
        app.clientside_callback(
            _drawing_script(name), Output(name, "figure"), Output(f"{name}-size", "style"),
            Input(store, "data"), Input("dark", "data"),
        )  # fmt: skip
    app.clientside_callback(_BEGIN, Output("dark", "data"), Input("page", "id"))


def _register_kept(app: Dash) -> None:
    """Register the callbacks of the buttons that keep a setting for comparison, and forget it."""
    outputs = Output("kept", "data"), Output("forget", "hidden"), Output("return", "hidden")
    inputs = Input("keep", "n_clicks"), Input("forget", "n_clicks"), State("setting", "data")

    @app.callback(*outputs, *inputs, prevent_initial_call=True)
    def keep(_keep: int, _forget: int, setting: str) -> Any:
        """The setting that is kept, and whether the buttons to forget it and to return to it are hidden."""
        kept = ctx.triggered_id == "keep"
        return (setting if kept else None), not kept, not kept


def _drawing_script(name: str) -> str:
    """JavaScript of a callback that draws the figure ``name`` in the colours of the page.

    It returns the figure, and the style of its frame, which is hidden where nothing is to be drawn.
    """
    from sfumato.report.page.html import asset

    return (
        "function (figures, dark) {" + asset("theme.js") + f"const found = (figures || {{}})['{name}'];"
        "if (!found) return [dash_clientside.no_update, {display: 'none'}];"
        "const layout = Object.assign({template: plotTheme(dark), autosize: true}, found.layout);"
        "return [{data: found.data, layout: layout},"
        " {height: layout.height + 'px', minWidth: found.min_width + 'px'}]; }"
    )


_BEGIN = """
function (id) {
  // the number beside a slider says the same: whoever uses the keyboard meets one of the two
  for (const slider of document.querySelectorAll(".slider input")) slider.tabIndex = -1;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => dash_clientside.set_props("dark", {data: dark.matches}));
  return dark.matches;
}
"""
