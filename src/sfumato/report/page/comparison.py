"""Several runs side by side: which is best at what, a table, and where their specs differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sfumato.report import formatting as text
from sfumato.report.page.who_adds_noise import noise_of
from sfumato.report.results.comparability import asks_for_energy, by_score_and_data, energy_text
from sfumato.report.results.network import owners_in_words
from sfumato.report.results.series import Series
from sfumato.report.results.summary import Summary, has_edges, largest_towards_device, score_text
from sfumato.run_folder.headline import headline_of
from sfumato.run_folder.recorded_privacy import RawDevices
from sfumato.spec.diff import differing_values
from sfumato.spec.words_of_keys import WORDS, key_in_words, setting_in_words

_ALIKE = ("unit", "rounds", "seeds")  # left out where all runs are alike
_NOT_COMPARED = ("hashes", "versions", "name", "seed")  # sections of a run's spec
_NOISE = frozenset(
    f"privacy.noise.{key}"
    for key in (
        "kind", "sources", "multiplier", "at", "epsilon", "calibrated_from.epsilon", "calibrated_from.kind",
    )
)  # fmt: skip
_NOT_SET = "not set"
_MOST_KEYS = 12
_TOWARDS: tuple[tuple[str, Callable[[Summary], float]], ...] = (
    ("the cloud", lambda one: one.epsilon_cloud),
    ("the public", lambda one: one.epsilon_public),
    ("the own edge (where it is not trusted)", lambda one: one.epsilon_own_edge),
    ("other workers", lambda one: one.epsilon_peers),
)


def best_runs(series: Sequence[Series], summaries: Sequence[Summary]) -> list[str]:
    """Sentences on which run has the best score, and which the smallest ε towards each kind of observer.

    Nothing is said where all runs are alike, nor of scores on different data, nor of ε of different units.
    """
    said = []
    scores = set(by_score_and_data(series))
    finals = [one.final_score for one in summaries]
    if len(scores) == 1 and not any(map(math.isnan, finals)) and len(set(finals)) > 1:
        ((score, _),) = scores
        better = max if score.higher_is_better else min
        best = better(range(len(finals)), key=finals.__getitem__)
        superlative = "Highest" if score.higher_is_better else "Lowest"
        said.append(f"{superlative} {score.name}: {summaries[best].run}, {score.text(finals[best])}.")
    for whom, of in _TOWARDS if len({one.unit for one in summaries}) == 1 else ():
        known = [(of(one), one.run) for one in summaries if not math.isnan(of(one))]
        finite = [value for value, _ in known if value < math.inf]
        if finite and len({text.epsilon(value) for value, _ in known}) > 1:
            least = text.epsilon(min(finite))
            names = [run for value, run in known if text.epsilon(value) == least]
            value, run = max(known, key=lambda pair: pair[0])
            most = f"{run}, {text.epsilon(value)}"
            said.append(f"Smallest ε towards {whom}: {text.join_names(names)}, {least}; largest: {most}.")
    if said and all(one.seeds == 1 for one in summaries):
        said.append("Each run has one seed, so small differences may be chance.")
    return said


def _spec_differences_table(series: Sequence[Series]) -> str:
    """HTML of the keys in which the runs' specs differ, many of them in a second, folded table.

    "" where they do not differ. Keys that have words come first, in the order of these.
    """
    specs = [one.first.spec_dict for one in series]
    compared = [{key: value for key, value in spec.items() if key not in _NOT_COMPARED} for spec in specs]
    found = differing_values(compared)
    if not found:
        return ""
    noise = _noise_rows(series, found)
    order = {key: place for place, key in enumerate(WORDS)}
    inapplicable = {key: key not in order and None in values for key, values in found.items()}
    keys = sorted(found, key=lambda key: (inapplicable[key], order.get(key, len(order))))
    rows = noise + [
        (text.title(key_in_words(key)), *(setting_in_words(key, value) for value in found[key]))
        for key in keys
    ]
    headers = ["setting", *(one.name for one in series)]
    caption = "What differs between the runs"
    first = text.html_table(headers, rows[:_MOST_KEYS], caption=caption, stacked=True)
    if len(rows) <= _MOST_KEYS:
        return first
    more = text.html_table(headers, rows[_MOST_KEYS:], caption="What differs, too", stacked=True)
    others = text.how_many(len(rows) - _MOST_KEYS, "more setting")
    return f"{first}<details><summary>Show {others} in which they differ</summary>{more}</details>"


def _noise_rows(series: Sequence[Series], found: dict[str, tuple[Any, ...]]) -> list[tuple[str, ...]]:
    """Rows on the target ε and on the noise of runs that differ in noise; takes its keys out of ``found``.

    An ε that a paper's formula was asked for is claimed, not met.
    """
    differing = [key for key in found if key in _NOISE]
    if not differing:
        return []
    for key in differing:
        found.pop(key)
    specs = [one.first.spec_dict for one in series]
    targets = [_target_in_words(_noise_section(spec)) for spec in specs]
    rows = [("Target ε", *targets)] if len(set(targets)) > 1 else []
    if len(set(targets)) == 1 or _NOT_SET in targets or any("claimed" in target for target in targets):
        rows.append(("Noise multipliers", *map(_multipliers_in_words, series)))
    return rows


def _noise_section(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """``privacy.noise`` of a spec; {} without."""
    noise = (spec.get("privacy") or {}).get("noise")
    return noise if isinstance(noise, Mapping) else {}


def _target_in_words(noise: Mapping[str, Any]) -> str:
    """The ε that noise was sized for."""
    asked = noise.get("calibrated_from") or noise
    if asked.get("epsilon") is None:
        return _NOT_SET
    claimed = " (claimed by a formula)" if asked.get("kind") == "formula" else ""
    return f"{asked['epsilon']:g}{claimed}"


def _multipliers_in_words(one: Series) -> str:
    """Who adds noise by which largest multiplier."""
    spec = one.first.spec_dict
    if _noise_section(spec).get("kind", "none") == "none":
        return "none"
    parties = noise_of(spec, one.network)["parties"]
    each = [
        f"{owners_in_words(row['parties'], 3)}: {text.number(max(row['multipliers']))}" for row in parties
    ]
    return "; ".join(each) or "none of its own"


def _raw_to_cloud(one: Series, summary: Summary) -> str:
    """The text "N of N" devices send raw updates, of a run whose cloud is trusted; "–" otherwise."""
    raw = one.first.privacy.raw_to_trusted_edge
    return str(RawDevices(raw.of, raw.of)) if summary.cloud_is_trusted and raw is not None else "–"


def _towards_cloud(one: Series, summary: Summary) -> str:
    """The largest ε towards the cloud as text; that of adaptive control is named a budget."""
    return text.epsilon(summary.epsilon_cloud) + (" (budget)" if one.first.spec_dict.get("control") else "")


def comparison(series: Sequence[Series], summaries: Sequence[Summary]) -> str:
    """HTML of a table with a row for each run, then of the keys in which the specs differ.

    Columns that were not measured, or that are alike in all runs, are left out.
    """
    scores, specs = (
        [headline_of(one.first.metrics) for one in series],
        [one.first.spec_dict for one in series],
    )
    raw = [
        summary.raw_to_trusted_edge if has_edges(one) else _raw_to_cloud(one, summary)
        for summary, one in zip(summaries, series, strict=True)
    ]
    mixed, asked = len(set(scores)) > 1, [asks_for_energy([one]) for one in series]
    energies = [
        energy_text(spec, s.energy_j) if has else "–"
        for spec, s, has in zip(specs, summaries, asked, strict=True)
    ]
    delays = [
        text.quantity(s.delay_s, text.SECONDS) if has else "–"
        for s, has in zip(summaries, asked, strict=True)
    ]
    finals = [score_text(score, one, named=mixed) for score, one in zip(scores, series, strict=True)]
    columns: list[tuple[str, list[str]]] = [
        ("run", [s.run for s in summaries]),
        ("final score" if mixed else f"final {scores[0].name}", finals),
        ("unit", [s.unit for s in summaries]),
        ("ε, cloud", list(map(_towards_cloud, series, summaries))),
        ("ε, public", [text.epsilon(s.epsilon_public) for s in summaries]),
        ("ε, own edge", [text.epsilon(s.epsilon_own_edge) for s in summaries]),
        ("ε, another edge", [text.epsilon(s.epsilon_other_edge) for s in summaries]),
        ("ε, another device", [text.epsilon(largest_towards_device(one)) for one in series]),
        ("raw devices", raw),
        ("traffic", [text.quantity(s.total_bytes, text.BYTES) for s in summaries]),
        ("energy", energies),
        ("delay", delays),
        ("rounds", [text.whole(s.rounds) for s in summaries]),
        ("seeds", [text.whole(s.seeds) for s in summaries]),
    ]
    deltas = {text.number(s.delta) for s in summaries}
    if len(deltas) > 1:
        columns.append(("δ", [text.number(s.delta) for s in summaries]))
    kept = [
        (title, values)
        for title, values in columns
        if title == "run" or (set(values) != {"–"} and (title not in _ALIKE or len(set(values)) > 1))
    ]
    said = f" at δ = {next(iter(deltas))}" if len(deltas) == 1 else ""
    table = text.html_table(
        [title for title, _ in kept],
        list(zip(*(values for _, values in kept), strict=True)),
        caption=f"Comparison of the runs: the largest ε towards each kind of observer{said}; ∞: no "
        "guarantee, –: does not apply or was not measured. Own edge: where the edge is not trusted with raw "
        "updates. Raw devices: they send raw updates to a trusted edge",
        numeric=tuple(n for n, (title, _) in enumerate(kept) if title not in ("run", "unit")),
        stacked=True,
    )
    return table + _spec_differences_table(series)
