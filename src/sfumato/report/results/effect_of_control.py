"""What adaptive control saves, and what noise costs beside it: by runs beside a run, or commands for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from sfumato.report import formatting as text
from sfumato.report.results.chance import note_on_chance
from sfumato.report.results.comparability import radio_model
from sfumato.report.results.cost_of_privacy import costs_of_noise, twins_beside
from sfumato.report.results.folders_beside import finished_run_in, folders_in, spec_beside
from sfumato.report.results.series import Series
from sfumato.report.results.spec_sections import has_noise, radio_in_use
from sfumato.run_folder.headline import ACCURACY, headline_of

_OWN_KEYS = ("control", "radio", "name", "watch", "metrics", "evaluate_every", "versions", "hashes")
"""Sections of a spec in which a run without control may differ; data are compared by their hashes."""
_SPEC_HASH = "spec"
_Cost = tuple[str, tuple[str, ...], Sequence[tuple[float, str]]]
"""What a cost is called, its columns of metrics, and its units."""
_TIMES = 2.0  # from which a ratio is told as "times"
_EQUAL = 0.0005  # of a ratio, that a percentage with one decimal does not show


def effect_of_control(one: Series) -> list[str]:
    """A list of sentences on what a run with control saves against the same without, and what noise costs.

    [] where no finished run without control lies beside it.
    """
    other = _without_control_beside(one)
    if other is None:
        return []
    without = costs_of_noise([other, *twins_beside([other])])
    found = [f"With control: {_compared_in_words(one, other)}"]
    if not without and has_noise(one.first.spec_dict):
        return [
            *found,
            "What the noise costs in accuracy is not known: no run without either lies beside this one.",
        ]
    return [*found, *(f"Of the noise, without control: {each.sentence}" for each in without)]


def effects_among(series: Sequence[Series]) -> list[str]:
    """A list with a sentence for each two runs of ``series`` that differ only in adaptive control.

    It says what control saves, or costs.
    """
    plain = [other for other in series if not other.first.spec_dict.get("control")]
    pairs = [
        (one, other)
        for one in series
        if one.first.spec_dict.get("control")
        for other in plain
        if _compared(one.first.spec_dict) == _compared(other.first.spec_dict)
    ]
    return [f"With control, in {one.name}: {_compared_in_words(one, other)}" for one, other in pairs]


def _compared_in_words(one: Series, other: Series) -> str:
    """The end of a sentence on what a run with control saves against ``other``, the same without."""
    said = [*_savings(one, other), *_score_instead(one, other)]
    listed = text.join_names(said, len(said))
    return f"{listed}, compared with {other.name}, which is the same without control."


def unknown_effect(one: Series) -> str:
    """A sentence that it is not known whether control was worth it, and what is missing to know."""
    costs = ", and what the noise costs in accuracy" if has_noise(one.first.spec_dict) else ""
    return (
        "Whether adaptive control was worth it is not known: no run without control lies beside this one. "
        f"The commands below tell what control saves or costs{costs}."
    )


def commands_without_control(one: Series) -> tuple[str, str]:
    """Two texts: a sentence, and shell commands that train a run without control and compare.

    For the folder above the run's. They train the run without control, with noise also without both, and
    compare all. With control a run without noise would have another schedule, so what noise costs is told
    without it. Energy and time are shown of a run whose spec names a radio, so the command names the one that
    control takes where none is named.
    """
    name = one.folder.resolve().name
    other, page = quote(f"{name}-without-control"), quote(f"{name}-control.html")
    radio = "" if one.first.spec_dict.get("radio") else " --set 'radio={preset: h2fdp}'"
    train = f"sfumato run {spec_beside(one, one.folder)} --set control=null{radio}"
    if not has_noise(one.first.spec_dict):
        how = "These commands, in the folder that holds the run, train the same without control and compare:"
        return how, f"{train} --out {other}\nsfumato report {quote(name)} {other} --out {page}"
    twin = quote(f"{name}-without-control-without-noise")
    how = (
        "These commands, in the folder that holds the run, train the same without control, for the same ε, "
        "and that once more without noise, and compare all three. With control the schedule depends on the "
        "noise, so what the noise costs is measured without control:"
    )
    report = f"sfumato report {quote(name)} {other} {twin} --out {page}"
    return how, f"{train} --baseline --out {other}\n{report}"


def _without_control_beside(one: Series) -> Series | None:
    """The most recent finished run in a folder beside a run with control, of the same spec without.

    ``None`` where there is none.
    """
    folder = one.folder.resolve()

    def fits(spec: Mapping[str, Any]) -> bool:
        """Whether ``spec`` is that of the run without control."""
        return not spec.get("control") and _compared(spec) == _compared(one.first.spec_dict)

    for other in folders_in(folder.parent, {folder}):
        found = finished_run_in(other, fits)
        if found is not None:
            return found
    return None


def _compared(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What two specs must have alike for their runs to differ by control alone.

    The sections but `_OWN_KEYS`, and the hashes of data.
    """
    kept = {name: value for name, value in spec.items() if name not in _OWN_KEYS}
    hashes = spec.get("hashes") or {}
    return {**kept, "inputs": {name: value for name, value in hashes.items() if name != _SPEC_HASH}}


def _savings(one: Series, other: Series) -> list[str]:
    """Phrases on energy, time to transmit and traffic of a run, relative to another of the same radio.

    Energy and time are left out where the radios differ, and energies that are no joules.
    """
    radios = [radio_in_use(each.first.spec_dict) for each in (one, other)]
    kinds: list[_Cost] = [("traffic", ("bytes_up", "bytes_down"), text.BYTES)]
    if radios[0] == radios[1] and radio_model(one.first.spec_dict) == "link budget":
        kinds = [
            ("energy", ("energy_j",), text.JOULES),
            ("time to transmit", ("delay_s",), text.SECONDS),
            *kinds,
        ]
    found = []
    for name, columns, units in kinds:
        mine, theirs = (each.total(*columns).value for each in (one, other))
        if theirs > 0 and not math.isnan(mine):
            amounts = f"{text.quantity(mine, units)}, not {text.quantity(theirs, units)}"
            found.append(f"{_relative(mine / theirs, name)} ({amounts})")
    return found


def _relative(ratio: float, name: str) -> str:
    """A phrase on an amount of ``name`` that is ``ratio`` times another: ``12.5 % less energy``."""
    if ratio >= _TIMES:
        return f"{text.number(ratio, 2)} times the {name}"
    share = abs(ratio - 1)
    if share < _EQUAL:
        return f"as much {name}"
    return f"{text.percent(share)} {'less' if ratio < 1 else 'more'} {name}"


def _score_instead(one: Series, other: Series) -> list[str]:
    """A phrase on the score of a run beside that of another, and whether a difference may be chance.

    [] where the scores are of two kinds, or not measured.
    """
    score = headline_of(one.first.metrics)
    if headline_of(other.first.metrics) != score:
        return []
    mine, theirs = (each.final(score.column).value for each in (one, other))
    if math.isnan(mine) or math.isnan(theirs):
        return []
    if score is not ACCURACY:
        return [f"{score.name} {score.text(mine)}, not {score.text(theirs)}"]
    points = text.points_between(mine, theirs)
    size = f"{abs(points):.1f} points {'more' if points > 0 else 'less'}"
    amount = size if points else "equal"
    shown = ", not ".join(text.percents_apart(mine, theirs))
    note = note_on_chance([one, other], score, [mine, theirs])
    return [f"{amount} accuracy ({shown}{f'; {note}' if note else ''})"]
