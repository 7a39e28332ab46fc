"""What the page shows of a setting: the values of its controls, its figures and its sentences."""

from __future__ import annotations

from typing import Any

from dash import Output, html, no_update

from sfumato.explore import compared, page, words
from sfumato.explore.accounted_setting import account_setting
from sfumato.explore.controls import (
    CHOICES,
    NAMES,
    ChoiceControl,
    InputControl,
    choice_controls_of,
    controls_of,
    participation_of,
)
from sfumato.explore.edited_spec import EditedSpec
from sfumato.explore.edits import Choices, EditResult
from sfumato.explore.figures import as_plotly, heatmaps, network_figure
from sfumato.explore.trust import aggregators, why_trust_is_fixed
from sfumato.report import formatting as text
from sfumato.report.figures.heatmap import rows_in_words
from sfumato.report.page.tiles import epsilon_tiles, meaning_of_looks
from sfumato.report.results.network import parties_in_words

_NOISE_BY_PARTY = (
    "Noise by party. The multiplier is the standard deviation of its noise over how far one unit's data can "
    "move what it is added to"
)
CONTROLS: dict[str, Any] = {
    "setting": Output("setting", "data"),
    "history": Output("history", "data"),
    "picks": {
        name: {
            "options": Output(name, "options"),
            "value": Output(name, "value"),
            "label": Output(f"{name}-label", "children"),
            "hidden": Output(f"{name}-control", "hidden"),
        }
        for name in CHOICES
    },
    "trusted": Output("trusted", "value"),
    "options": Output("trusted", "options"),
    "trust_note": Output("trust-note", "children"),
    "click": Output("network", "clickData"),
    "participation": Output("participation", "value"),
    "no_participation": Output("participation-control", "hidden"),
    "unit": Output("unit", "value"),
    "coalition": Output("coalition", "value"),
    "problem": Output("problem", "children"),
    "no_problem": Output("problem", "hidden"),
    "shown": Output("shown", "className"),
    "done": Output("plan-said", "children"),
    "controls": {
        name: {
            "number": Output(f"{name}-number", "value"),
            "slider": Output(f"{name}-slider", "value"),
            "label": Output(f"{name}-label", "children"),
            "hidden": Output(f"{name}-control", "hidden"),
        }
        for name in NAMES
    },
}
_WORDS = ("summary", "numbers", "facts", "noise", "notes", "command", "differences")
FIGURES = {
    "figures": Output("figures", "data"),
    "network_text": Output("network-frame", "aria-label"),
    "network_caption": Output("network-caption", "children"),
    "heatmap_text": Output("heatmap-frame", "aria-label"),
    "heatmap_lists": Output("heatmap-lists", "children"),
    "kept_text": Output("kept-heatmap-frame", "aria-label"),
    "kept_lists": Output("kept-lists", "children"),
    "heatmap_caption": Output("heatmap-caption", "children"),
    "coalition": Output("coalition-said", "children"),
    "kept_side": Output("kept-side", "hidden"),
    "now_title": Output("now-title", "children"),
    "sides": Output("sides", "className"),
    "side_by_side": Output("side-by-side", "children"),
    **{name: Output(name, "children") for name in _WORDS},
}


def control_outputs(found: EditResult, given: dict[str, Any]) -> dict[str, Any]:
    """What the page's controls show after a change, by output, without what the browser shows already.

    After a wrong change numbers and lists keep what was typed, and the problem is shown.

    Args:
        found: the setting after the change.
        given: what the browser sent.

    Returns:
        By name as in `CONTROLS`; what does not change is Dash's "no update".
    """
    now = _shown_controls(found.setting) | {
        "history": given["new_history"],
        "unit": found.choices.unit,
        "coalition": found.choices.coalition,
        "problem": found.problem,
        "no_problem": not found.problem,
        "done": found.done,
        "shown": "old" if found.problem else "",
    }
    shown = {} if given["setting"] is None else _shown_controls(EditedSpec.from_json(given["setting"]))
    shown |= {name: given[name] for name in ("setting", "history", "unit", "coalition", *_TYPED)}
    shown["click"] = given["clicked"]
    for name, control in shown.get("controls", {}).items():
        control |= {"number": given["numbers"][name], "slider": given["sliders"][name]}
    for name, pick in shown.get("picks", {}).items():
        pick["value"] = given["picked"][name]
    if found.problem:
        for pick in now["picks"].values():
            pick["value"] = no_update
        now |= dict.fromkeys(_TYPED, no_update)
        for control in now["controls"].values():
            control |= {"number": no_update, "slider": no_update}
    changed: dict[str, Any] = _without_shown(now, shown)
    return changed


def refused_outputs(problem: str) -> dict[str, Any]:
    """The page's outputs, by name as in `CONTROLS`, for a request that cannot be used.

    Only the text ``problem`` is shown; everything else stays as the browser has it.
    """
    news: dict[str, Any] = _no_updates(CONTROLS)
    return news | {"problem": problem, "no_problem": False, "shown": "old"}


def _no_updates(outputs: dict[str, Any]) -> dict[str, Any]:
    """``outputs`` with every value replaced by Dash's "no update"."""
    return {key: _no_updates(one) if isinstance(one, dict) else no_update for key, one in outputs.items()}


_TYPED = ("trusted", "participation")


def _shown_controls(setting: EditedSpec) -> dict[str, Any]:
    """The values that the controls show for a setting, by name of the output."""
    accounted = account_setting(setting)
    note, kind, numbers = (
        why_trust_is_fixed(accounted),
        participation_of(accounted.spec),
        controls_of(accounted.spec),
    )
    names, picks = aggregators(accounted), choice_controls_of(accounted.spec)
    return {
        "setting": setting.to_json(),
        "trusted": [] if note else [one.name for one in names if one.trusted],
        "options": [] if note else [{"label": f" {one.label}", "value": one.name} for one in names],
        "trust_note": note or words.whose_target_does_not_hold(accounted),
        "click": None,
        "participation": kind,
        "no_participation": not kind,
        "controls": {name: _outputs_of_control(numbers.get(name)) for name in NAMES},
        "picks": {name: _outputs_of_choice(picks.get(name)) for name in CHOICES},
    }


def _outputs_of_control(one: InputControl | None) -> dict[str, Any]:
    """The values of one control of the page by part (number, slider, label).

    Hidden where the spec has no such number.
    """
    if one is None:
        return {"number": None, "slider": None, "label": "", "hidden": True}
    return {"number": one.value, "slider": one.position, "label": one.label, "hidden": False}


def _outputs_of_choice(one: ChoiceControl | None) -> dict[str, Any]:
    """The values of one list to choose from; hidden where the spec has no such key."""
    if one is None:
        return {"options": [], "value": None, "label": "", "hidden": True}
    options = [{"label": f" {words}", "value": words} for words in one.options]
    return {"options": options, "value": one.chosen or None, "label": one.label, "hidden": False}


def _without_shown(now: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """``now`` with Dash's "no update" where ``shown``, what the browser has, holds the same value.

    Both are by name of an output; values that are mappings are gone through in the same way.
    """
    return {
        key: _without_shown(value, shown.get(key, {}))
        if isinstance(value, dict)
        else (no_update if key in shown and value == shown[key] else value)
        for key, value in now.items()
    }


def answer_figures(setting: EditedSpec, other: EditedSpec | None, choices: Choices) -> dict[str, Any]:
    """The figures, tables and sentences about a setting, by name of the output: the keys of `FIGURES`.

    Args:
        setting: that the page shows.
        other: the setting that was kept for comparison; ``None`` without one.
        choices: the protected unit and the coalition.

    Raises:
        SpecError: one of the settings is wrong.
    """
    accounted, kept = account_setting(setting), None if other is None else account_setting(other)
    network = network_figure(accounted, unit=choices.unit, coalition=choices.members)
    heatmap, beside = heatmaps(accounted, kept)
    command = setting.command()
    report = accounted.report
    noise = [(parties, where, text.number(multiplier)) for parties, where, multiplier in accounted.noise]
    described = "The network is not drawn." if network is None else network.description
    findings = [parties_in_words(text.sentence(finding.text)) for finding in report.findings]
    tiles = epsilon_tiles(report.guarantees, accounted.network)
    meaning = words.what_epsilon_means(accounted)
    colours = meaning_of_looks(tile.look for tile in tiles)
    return {
        "figures": dict(zip(page.GRAPHS, map(as_plotly, (network, heatmap, beside)), strict=False)),
        "summary": [
            *page.marked_tiles(words.what_tiles_show(accounted), tiles),
            *[html.P(said, className="facts") for said in (meaning, colours) if said],
            *page.notice(findings),
        ],
        "network_text": described,
        "network_caption": described if network is None else network.caption,
        "heatmap_text": "" if heatmap is None else heatmap.description,
        "kept_text": "" if beside is None else beside.description,
        "heatmap_lists": page.matrix_lists(rows_in_words(accounted.matrix)),
        "kept_lists": page.matrix_lists(rows_in_words(kept.matrix)) if kept else [],
        "heatmap_caption": "There are no guarantees." if heatmap is None else page.captions(heatmap),
        "numbers": page.dash_table(*words.heatmap_as_table(accounted), scope=True),
        "facts": page.tiles(words.cost_rows(accounted)),
        "noise": page.dash_table(("adds noise", "at", "noise multiplier"), noise, _NOISE_BY_PARTY)
        if noise
        else html.P("No party adds noise of its own."),
        "notes": page.lines([parties_in_words(text.sentence(note)) for note in report.notes]),
        "coalition": words.answer_about_coalition(accounted, choices.unit, choices.coalition),
        "command": ["The same figures in a terminal: ", html.Code(command)] if command else "",
        "differences": page.lines(words.setting_differences(kept, accounted)) if kept else [],
        "kept_side": kept is None,
        "now_title": "This setting" if kept else "",
        "sides": "panels" if kept else "",
        "side_by_side": page.difference_table(*compared.side_by_side(kept, accounted)) if kept else "",
    }  # fmt: skip
