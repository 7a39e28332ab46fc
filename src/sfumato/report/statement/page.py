"""A privacy statement as one HTML page, for an auditor to read and sign."""

from __future__ import annotations

import math
from collections.abc import Mapping
from string import Template
from typing import Any

from sfumato.report import formatting as text
from sfumato.report.page.html import asset, bullet_list, section
from sfumato.report.results.who_adds_noise import noise_part
from sfumato.run_folder.reader import as_epsilon

_MOST_ROWS = 400


def statement_page(statement: Mapping[str, Any]) -> str:
    """The page of a statement of `sfumato.report.statement.content.statement_of`."""
    delta = text.number(statement["delta"])
    subtitle = (
        f'<p class="facts">{text.escape(statement["source"])} · {text.escape(statement["protocol"])} · '
        f"δ = {delta}</p>"
    )
    sections = [
        section("In short", [_in_short(statement, delta)]),
        section("What is protected", [_protected(statement, delta)]),
        section("How much each observer can learn", [_largest(statement, delta)]),
        section("What is assumed of observers", [bullet_list(statement["threat_model"])]),
        section("Who is trusted", [_trust(statement)]),
        section("Who adds noise", [noise_part(statement["noise"], statement["training"])]),
        section("What this does not cover", [bullet_list(statement["not_covered"])]),
        section("Versions and files", [_versions(statement)]),
        section("Signature", [_signature()]),
    ]
    return Template(asset("statement.html")).substitute(
        title=text.escape(statement["name"]),
        subtitle=subtitle,
        style=asset("page.css"),
        sections="\n".join(sections),
    )


def _in_short(statement: Mapping[str, Any], delta: str) -> str:
    """What an auditor has to know first: the ε towards cloud and public, who has none, and the findings."""
    said = []
    for row in statement["largest"]:
        epsilon, whom = as_epsilon(row["epsilon"]), row["observer_is"]
        if whom in ("cloud", "public") and epsilon < math.inf:
            exceeds = f"{row['unit']}'s ε exceeds {text.epsilon(epsilon)} (δ = {delta})"
            said.append(f"towards the {whom} no {exceeds}")
    for row in statement["largest"]:
        bare = row["pairs_without_a_guarantee"]
        if bare:
            many = f"{text.whole(bare)} {text.pluralise('pair', bare)}"
            said.append(f"no guarantee (∞) for {many} of a {row['unit']} and an observer: {_observer(row)}")
    said += [*statement["findings"], *statement["notes"]]
    return bullet_list([text.sentence(line) for line in said])


def _protected(statement: Mapping[str, Any], delta: str) -> str:
    units = " and ".join(f"<b>{text.escape(what)}</b>" for what in statement["units"].values())
    relation = statement["neighbours"]
    return (
        f"<p>The unit of privacy is {units}, over the whole training.</p>"
        f"<p>{text.escape(relation['meaning'])} (relation: {text.escape(relation['relation'])})</p>"
        "<p>An ε towards an observer means: whatever the observer concludes from all that it receives, the "
        "probability of that conclusion in one world is at most e<sup>ε</sup> times that in the other, plus "
        f"δ = {delta}. A smaller ε is a stronger guarantee; ∞ is none.</p>"
    )


def _largest(statement: Mapping[str, Any], delta: str) -> str:
    found = sorted(statement["largest"], key=lambda row: -as_epsilon(row["epsilon"]))
    columns = {
        "unit": [row["unit"] for row in found],
        "the observer is": [_observer(row) for row in found],
        f"largest ε (δ = {delta})": [text.epsilon(as_epsilon(row["epsilon"])) for row in found],
        "for example": [row["for_example"] for row in found],
        "pairs": [text.whole(row["pairs"]) for row in found],
        "without a guarantee (∞)": [text.whole(row["pairs_without_a_guarantee"]) for row in found],
        "largest ε of the others": [_finite(row) for row in found],
    }
    if len(statement["units"]) == 1:
        del columns["unit"]
    if all(row["pairs_without_a_guarantee"] in (0, row["pairs"]) for row in found):  # ε says it
        del columns["without a guarantee (∞)"], columns["largest ε of the others"]
    words = ("unit", "the observer is", "for example")
    caption = (
        "The largest ε of all pairs of a unit and an observer that stand in one relation, the largest first; "
        "rounded up"
    )
    numeric = tuple(n for n, title in enumerate(columns) if title not in words)
    table = text.table(
        list(columns), list(zip(*columns.values(), strict=True)), caption=caption, numeric=numeric
    )
    whys = bullet_list([f"{row['for_example']}: {row['why']}" for row in found])
    table += f"<details><summary>Show why</summary>{whys}</details>"
    raw = statement["trust"]["raw_to_trusted_edge"]
    beside = ""
    if raw and raw["devices"]:
        beside = (
            f"<p>{text.whole(raw['devices'])} of {text.whole(raw['of'])} devices send their updates without "
            "noise to an aggregator that they trust. These pairs have a row of their own (∞); the other rows "
            "about edges do not count them.</p>"
        )
    listed = statement["guarantees"][:_MOST_ROWS]
    ranged = ["ε of its units"] if any("epsilon_range" in row for row in listed) else []
    every = text.table(
        ("unit", "observer", "relation", "ε", *ranged, "pairs", "releases", "neighbours", "method"),
        [
            (
                text.unit_of(row), row["observer"], row["relation"],
                text.epsilon(as_epsilon(row["epsilon"])), *(text.epsilon_range(row) for _ in ranged),
                text.whole(row["stands_for"]), text.whole(row["releases"]), row["neighbours"], row["method"],
            )
            for row in listed
        ],
        caption=f"Every guarantee{_of_how_many(statement)}; δ = {delta}",
        numeric=(3, *(4 for _ in ranged), 4 + len(ranged), 5 + len(ranged)),
    )  # fmt: skip
    table += _sites(statement, delta)
    return f"{beside}{table}<details><summary>Show every guarantee</summary>{every}</details>"


def _sites(statement: Mapping[str, Any], delta: str) -> str:
    """A line for every site that has a name; empty where none has."""
    found = statement["sites"]
    if not found:
        return ""
    observers = list(dict.fromkeys(whom for row in found for whom in row["epsilon"]))
    units = ["unit"] if len(statement["units"]) > 1 else []
    shown = [
        (
            row["site"],
            *(row["unit"] for _ in units),
            *(text.epsilon(as_epsilon(row["epsilon"].get(whom, math.nan))) for whom in observers),
        )
        for row in found[:_MOST_ROWS]
    ]
    left = len(found) - len(shown)
    more = f"; {text.whole(left)} more sites are in the JSON" if left else ""
    return text.table(
        ("site", *units, *(f"ε towards: {whom}" for whom in observers)),
        shown,
        caption=f"The largest ε of a unit of every site (δ = {delta}), rounded up{more}",
        numeric=tuple(range(1 + len(units), 1 + len(units) + len(observers))),
    )


def _finite(row: Mapping[str, Any]) -> str:
    found = row["largest_finite_epsilon"]
    return "–" if found is None else text.epsilon(as_epsilon(found))


def _observer(row: Mapping[str, Any]) -> str:
    return (
        f"{row['observer_is']}, trusted with raw updates"
        if row["trusted_by_the_unit"]
        else row["observer_is"]
    )


def _of_how_many(statement: Mapping[str, Any]) -> str:
    total = len(statement["guarantees"])
    return (
        ""
        if total <= _MOST_ROWS
        else f" (the first {text.whole(_MOST_ROWS)} of {text.whole(total)}; the JSON has all)"
    )


def _trust(statement: Mapping[str, Any]) -> str:
    trusted = statement["trust"]["trusted_with_raw_updates"]
    if trusted is None:
        return "<p>Trusted parties are not listed: the network depends on data that are not at hand.</p>"
    bare = sum(row["pairs_without_a_guarantee"] for row in statement["largest"])
    said = "<p>No aggregator is declared as trusted with raw updates.</p>"
    if trusted:
        said = (
            "<p>Declared as trusted with raw updates of the devices under them: "
            f"{text.escape(', '.join(trusted))}. They add noise to what they send on.</p>"
        )
    if not bare:
        return f"{said}<p>Every unit has a guarantee towards every observer.</p>"
    return (
        f"{said}<p>{text.whole(bare)} {text.pluralise('pair', bare)} of a unit and an observer "
        f"{'has' if bare == 1 else 'have'} no guarantee (∞ above). The unit must trust such an observer.</p>"
    )


def _versions(statement: Mapping[str, Any]) -> str:
    versions = text.table(("package", "version"), sorted(statement["versions"].items()), caption="Versions")
    named = {"spec": "the resolved spec", **{name: name for name in statement["hashes"] if name != "spec"}}
    hashes = [(named[name], value) for name, value in statement["hashes"].items()]
    verified = statement.get("verified")
    said = f"<p>{text.escape(verified)}</p>" if verified else ""
    return f"{said}{text.table(('of', 'SHA-256'), hashes, caption='Hashes')}{versions}"


def _signature() -> str:
    return (
        "<p>I have read this statement. The assumptions about observers, trust and the secrecy of noise hold "
        "for the system that it describes.</p>"
        "<p>Name and role: ____________________ &nbsp; Date: ____________________</p>"
    )
