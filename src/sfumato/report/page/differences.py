"""In which settings the specs of several runs differ: a sentence, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.report import formatting as text
from sfumato.report.figures.control import noise_factors
from sfumato.report.page.who_adds_noise import names_of_levels, noise_of
from sfumato.report.results.network import owners_in_words
from sfumato.report.results.series import Series
from sfumato.report.results.spec_sections import noise_section_of, radio_in_use
from sfumato.spec.diff import differing_values
from sfumato.spec.words_of_keys import WORDS, key_in_words, setting_in_words

_NOT_COMPARED = ("hashes", "versions", "name", "seed")  # sections of a run's spec
_NOISE = frozenset(
    f"privacy.noise.{key}"
    for key in (
        "kind", "sources", "multiplier", "at", "epsilon", "calibrated_from.epsilon", "calibrated_from.kind",
    )
)  # fmt: skip
_NOT_SET = "not set"
_ROUNDS = "training.rounds"
_MOST_KEYS = 12
_MOST_IN_WORDS = 4  # runs and settings
_MOST_WRITTEN = 30  # characters of a value in a sentence
_Row = tuple[str, ...]
"""What a setting is called, and its value in each run."""


def differences_in_words(series: Sequence[Series]) -> str:
    """One sentence on what changes between the runs; "" where their specs are alike.

    Of one setting it has the values of the runs, where these are few and short.
    """
    rows = _differing_settings(series)
    if not rows:
        return ""
    name, *values = rows[0]
    if _told_in_words(rows, series):
        each = [f"{value} in {one.name}" for one, value in zip(series, values, strict=True)]
        return f"The runs differ in one setting, {name}: {text.join_names(each)}."
    names = [name for name, *_ in rows]
    return (
        f"The runs differ in {text.how_many(len(rows), 'setting')}: {text.join_names(names, _MOST_IN_WORDS)}."
    )


def differences_table(series: Sequence[Series]) -> str:
    """HTML of the keys in which the runs' specs differ, many of them in a second, folded table.

    "" where they do not differ, or `differences_in_words` has every value. Keys that have words come first,
    in the order of these.
    """
    rows = [(text.title(name), *values) for name, *values in _differing_settings(series)]
    if not rows or _told_in_words(rows, series):
        return ""
    headers = ["", *(one.name for one in series)]
    caption = "What differs between the runs"
    shown = text.html_table(headers, rows[:_MOST_KEYS], caption=caption, stacked=True)
    if len(rows) <= _MOST_KEYS:
        return shown
    more = text.html_table(headers, rows[_MOST_KEYS:], caption="What differs, too", stacked=True)
    others = text.how_many(len(rows) - _MOST_KEYS, "more setting")
    return f"{shown}<details><summary>Show {others} in which they differ</summary>{more}</details>"


def _told_in_words(rows: Sequence[_Row], series: Sequence[Series]) -> bool:
    """Whether one sentence has all that differs: one setting, with short values, in few runs."""
    return (
        len(rows) == 1
        and len(series) <= _MOST_IN_WORDS
        and all(len(value) <= _MOST_WRITTEN for value in rows[0][1:])
    )


def _differing_settings(series: Sequence[Series]) -> list[_Row]:
    """The settings in which the specs of runs differ; those that have words come first, in their order."""
    specs = [_with_radio_of_control(one.first.spec_dict) for one in series]
    compared = [{key: value for key, value in spec.items() if key not in _NOT_COMPARED} for spec in specs]
    found = differing_values(compared)
    found.pop("privacy.unit", None)  # a row of the table of figures
    first = _rounds_row(series, found) + _noise_rows(series, found) + _control_row(specs, found)
    order = {key: place for place, key in enumerate(WORDS)}
    inapplicable = {key: key not in order and None in values for key, values in found.items()}
    keys = sorted(found, key=lambda key: (inapplicable[key], order.get(key, len(order))))
    return first + [
        (key_in_words(key), *(setting_in_words(key, value) for value in found[key])) for key in keys
    ]


def _rounds_row(series: Sequence[Series], found: dict[str, tuple[Any, ...]]) -> list[_Row]:
    """A row on the rounds that specs set, where these differ; else []. Takes the key out of ``found``.

    Its title says where a run made other rounds, which the table of figures has.
    """
    if _ROUNDS not in found:
        return []
    asked = found.pop(_ROUNDS)
    as_set = all(one.rounds_played == rounds for one, rounds in zip(series, asked, strict=True))
    title = "rounds" if as_set else "rounds set in the spec"
    return [(title, *(setting_in_words(_ROUNDS, rounds) for rounds in asked))]


def _with_radio_of_control(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """A spec; with the radio that control takes where control is on and no radio is named."""
    return {**spec, "radio": radio_in_use(spec)} if spec.get("control") and not spec.get("radio") else spec


def _control_row(specs: Sequence[Mapping[str, Any]], found: dict[str, tuple[Any, ...]]) -> list[_Row]:
    """A row on which runs have adaptive control, where some have none; else [].

    Takes the keys of control out of ``found``, but for those in which runs with control differ.
    """
    controlled = [spec for spec in specs if spec.get("control")]
    if len(controlled) in (0, len(specs)):
        return []
    kept = differing_values(controlled)
    for key in [key for key in found if key.split(".")[0] == "control" and key not in kept]:
        found.pop(key)
    return [("adaptive control", *("yes" if spec.get("control") else "none" for spec in specs))]


def _noise_rows(series: Sequence[Series], found: dict[str, tuple[Any, ...]]) -> list[_Row]:
    """Rows on the target ε and on the noise of runs that differ in noise; takes its keys out of ``found``.

    An ε that a paper's formula was asked for is claimed, not met.
    """
    differing = [key for key in found if key in _NOISE]
    if not differing:
        return []
    for key in differing:
        found.pop(key)
    specs = [one.first.spec_dict for one in series]
    targets = [_target_in_words(noise_section_of(spec)) for spec in specs]
    rows = [(_target_title(series), *targets)] if len(set(targets)) > 1 else []
    if len(set(targets)) == 1 or _NOT_SET in targets or any("claimed" in target for target in targets):
        rows.append(("noise multipliers", *map(_multipliers_in_words, series)))
    return rows


def _target_title(series: Sequence[Series]) -> str:
    """The title of the row of target ε: towards whom they are, where that is the same for all runs."""
    noises = [noise_section_of(one.first.spec_dict) for one in series]
    whom = {(noise.get("calibrated_from") or noise).get("for") for noise in noises}
    return f"target ε towards the {whom.pop()}" if whom in ({"cloud"}, {"public"}) else "target ε"


def _target_in_words(noise: Mapping[str, Any]) -> str:
    """The ε that noise was sized for, as text; "not set" where it was stated in another way."""
    asked = noise.get("calibrated_from") or noise
    if asked.get("epsilon") is None:
        return _NOT_SET
    claimed = " (claimed by a formula)" if asked.get("kind") == "formula" else ""
    return f"{asked['epsilon']:g}{claimed}"


def _multipliers_in_words(one: Series) -> str:
    """Who adds noise by which multipliers, those of every aggregation; and what control made of them.

    "none" without noise, "none of its own" where only the receiver's noise is there.
    """
    spec = one.first.spec_dict
    if noise_section_of(spec).get("kind", "none") == "none":
        return "none"
    parties = noise_of(spec, one.network)["parties"]
    each = [f"{owners_in_words(row['parties'], 3)}: {_by_level(row['multipliers'])}" for row in parties]
    factors = noise_factors(one)
    chosen = f"; each times {factors}, as adaptive control chose" if each and factors else ""
    return f"{'; '.join(each)}{chosen}" or "none of its own"


def _by_level(multipliers: Sequence[float]) -> str:
    """Multipliers by aggregating tier as text; one number where they are written alike."""
    written = [text.number(value) if value else "none" for value in multipliers]
    if len(set(written)) == 1:
        return written[0]
    levels = names_of_levels(len(written))
    return ", ".join(f"{value} ({name})" for name, value in zip(levels, written, strict=True))
