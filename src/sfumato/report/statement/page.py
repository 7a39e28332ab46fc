"""A privacy statement as one HTML page, for an auditor to read and sign."""

from __future__ import annotations

import math
from string import Template

from sfumato.privacy.guarantee import Guarantee
from sfumato.report import formatting as text
from sfumato.report.page.html import asset, bullet_list, section
from sfumato.report.page.papers import with_papers_explained
from sfumato.report.page.who_adds_noise import noise_part
from sfumato.report.results.epsilon_words import sure_in_words
from sfumato.report.results.summary import range_in_words
from sfumato.report.statement.content import RELATIONS, Statement

_MOST_ROWS = 400


def statement_page(statement: Statement) -> str:
    """The statement as one self-contained HTML page."""
    delta = text.number(statement.privacy.delta)
    name, protocol = str(statement.spec["name"]), str(statement.spec["protocol"])
    subtitle = f'<p class="facts">{text.escape(statement.source)} · {text.escape(protocol)} · δ = {delta}</p>'
    sections = [
        section("In short", [_summary_html(statement, delta)]),
        section("What is protected", [_protection_html(statement, delta)]),
        section("How much each observer can learn", [_largest_epsilons_html(statement, delta)]),
        section("What is assumed", [bullet_list(statement.assumptions)]),
        section("Who is trusted", [_trust_html(statement)]),
        section("Who adds noise", [noise_part(statement.noise, statement.training)]),
        section("What this does not cover", [bullet_list(statement.not_covered)]),
        section("Versions and files", [_versions_html(statement)]),
        section("Signature", [_signature_html()]),
    ]
    return Template(asset("statement.html")).substitute(
        title=text.escape(name),
        subtitle=subtitle,
        style=asset("page.css"),
        sections="\n".join(with_papers_explained(sections)),
    )


def _summary_html(statement: Statement, delta: str) -> str:
    """HTML for the top: what each observer could gain about a unit, who has no guarantee, and findings."""
    first = []
    for row in sorted(statement.largest, key=lambda row: -row.worst.epsilon):
        worst = row.worst
        if worst.relation.kind in ("cloud", "public") and worst.epsilon < math.inf:
            first.append(
                f"Towards the {worst.relation.words} no {worst.unit_kind}'s ε exceeds "
                f"{text.epsilon(worst.epsilon)} (δ = {delta})."
            )
    said = []
    for row in statement.largest:
        if row.unprotected:
            many = f"{text.how_many(row.unprotected, 'pair')} of a {row.worst.unit_kind} and an observer"
            said.append(f"no guarantee (∞) for {many}: {row.observer}")
    said += [*statement.privacy.findings, *statement.privacy.notes]
    parts = [_gains_html(statement, kind, delta) for kind in statement.units]
    lead = f'<div class="lead">{text.paragraphs(first)}</div>' if first else ""
    return lead + "".join(parts) + bullet_list([text.sentence(line) for line in said])


def _gains_html(statement: Statement, unit: str, delta: str) -> str:
    """HTML: how sure each kind of observer may become about one ``unit`` (device or record)."""
    found = [row for row in statement.largest if row.worst.unit_kind == unit]
    found.sort(key=lambda row: -row.worst.epsilon)
    rows = [
        (
            *(_observer_phrase(row.worst, statement.peer), text.epsilon(row.worst.epsilon)),
            *(range_in_words(row.guarantees), sure_in_words(row.worst.epsilon, 0.5)),
            sure_in_words(row.worst.epsilon, 0.01),
        )
        for row in found
    ]
    heads = (
        *("who observes", "ε is at most", f"from one {unit} to another"),
        *("a guess of 50 : 50 becomes at most", "a suspicion of 1 % becomes at most"),
    )
    caption = (
        f"What an observer could gain about one {unit} over the whole training (δ = {delta}), rounded up"
    )
    said = (
        f"The question is whether one {unit} was in the training with the data that it has. Before, the "
        "observer holds that to be as likely as a coin toss, or suspects it with 1 %. The last two columns "
        "say how sure everything that it receives can make it, whatever else it knows, but for a probability "
        f"of about δ = {delta}."
    )
    return text.html_table(heads, rows, caption=caption, numeric=(1, 3, 4)) + text.paragraphs([said])


def _observer_phrase(row: Guarantee, peer: str) -> str:
    """Who observes, in words, such as "the cloud"; ``peer``: a device at the same place as the unit's."""
    words = row.relation.words
    match row.relation.kind:
        case "cloud" | "public":
            who = f"the {words}"
        case "own-edge":
            who = words.replace("own", "the unit's own", 1)
        case "peer" if words == "peer":
            who = peer
        case _:
            who = words
    return f"{who}, trusted with raw updates" if row.trusted else who


def _protection_html(statement: Statement, delta: str) -> str:
    """HTML on what the units and the neighbouring relation are, and what ε and δ promise."""
    units = " and ".join(f"<b>{text.escape(what)}</b>" for what in statement.units.values())
    meaning = RELATIONS[statement.neighbours]
    return (
        f"<p>The unit of privacy is {units}, over the whole training.</p>"
        f"<p>{text.escape(meaning)} (relation: {text.escape(statement.neighbours)})</p>"
        "<p>An ε towards an observer means: whatever the observer concludes from all that it receives, the "
        "probability of that conclusion in one world is at most e<sup>ε</sup> times that in the other, plus "
        f"δ = {delta}. A smaller ε is a stronger guarantee; ∞ is none.</p>"
    )


def _largest_epsilons_html(statement: Statement, delta: str) -> str:
    """HTML of the largest ε by unit and observer, with every guarantee folded below."""
    found = sorted(statement.largest, key=lambda row: -row.worst.epsilon)
    finite = [row.largest_finite for row in found]
    columns = {
        "unit": [row.worst.unit_kind for row in found],
        "the observer is": [_observer_phrase(row.worst, statement.peer) for row in found],
        f"largest ε (δ = {delta})": [text.epsilon(row.worst.epsilon) for row in found],
        "for example": [row.for_example for row in found],
        "pairs": [text.whole(row.pairs) for row in found],
        "without a guarantee (∞)": [text.whole(row.unprotected) for row in found],
        "largest ε of the others": ["–" if value is None else text.epsilon(value) for value in finite],
    }
    if len(statement.units) == 1:
        del columns["unit"]
    if all(row.unprotected in (0, row.pairs) for row in found):  # ε says it
        del columns["without a guarantee (∞)"], columns["largest ε of the others"]
    words = ("unit", "the observer is", "for example")
    caption = (
        "The largest ε of all pairs of a unit and an observer that stand in one relation, the largest first; "
        "rounded up"
    )
    numeric = tuple(n for n, title in enumerate(columns) if title not in words)
    table = text.html_table(
        list(columns), list(zip(*columns.values(), strict=True)), caption=caption, numeric=numeric
    )
    whys = bullet_list([f"{row.for_example}: {row.worst.why}" for row in found])
    table += f"<details><summary>Show why</summary>{whys}</details>"
    raw = statement.privacy.raw_to_trusted_edge
    beside = ""
    if raw:
        beside = (
            f"<p>{raw} devices send their updates without "
            "noise to an aggregator that they trust. These pairs have a row of their own (∞); the other rows "
            "about edges do not count them.</p>"
        )
    every = f"<details><summary>Show every guarantee</summary>{_every_guarantee(statement, delta)}</details>"
    return f"{beside}{table}{_sites_html(statement, delta)}{every}"


def _every_guarantee(statement: Statement, delta: str) -> str:
    """An HTML table of all rows, or of the first of very many; ``delta``: text beside ε."""
    rows = statement.privacy.guarantees
    listed = rows[:_MOST_ROWS]
    first = f" (the first {text.whole(_MOST_ROWS)} of {text.whole(len(rows))}; the JSON has all)"
    ranged = ["ε of its units"] if any(row.epsilon_range for row in listed) else []
    return text.html_table(
        ("unit", "observer", "relation", "ε", *ranged, "pairs", "releases", "neighbours", "method"),
        [
            (
                text.unit_of(row), row.observer, row.relation.words, text.epsilon(row.epsilon),
                *(text.epsilon_range(row) for _ in ranged), text.whole(row.stands_for),
                text.whole(row.releases), row.neighbours, row.method,
            )
            for row in listed
        ],
        caption=f"Every guarantee{first if len(rows) > len(listed) else ''}; δ = {delta}",
        numeric=(3, *(4 for _ in ranged), 4 + len(ranged), 5 + len(ranged)),
    )  # fmt: skip


def _sites_html(statement: Statement, delta: str) -> str:
    """HTML with the largest ε of each named site; "" where no site has a name."""
    found = statement.sites
    if not found:
        return ""
    observers = list(dict.fromkeys(whom for row in found for whom in row.epsilon))
    units = ["unit"] if len(statement.units) > 1 else []
    by_cloud = ["a guess of 50 : 50 by the cloud becomes at most"] if "cloud" in observers else []
    shown = [
        (
            *(row.site, *(row.unit for _ in units)),
            *(text.epsilon(row.epsilon.get(whom, math.nan)) for whom in observers),
            *(sure_in_words(row.epsilon.get("cloud", math.nan), 0.5) for _ in by_cloud),
        )
        for row in found[:_MOST_ROWS]
    ]
    left = len(found) - len(shown)
    more = f"; {text.whole(left)} more sites are in the JSON" if left else ""
    return text.html_table(
        ("site", *units, *(f"ε, {_titled_observer(whom, statement.peer)}" for whom in observers), *by_cloud),
        shown,
        caption=f"The largest ε of a unit of every site (δ = {delta}), rounded up{more}",
        numeric=tuple(range(1 + len(units), 1 + len(units) + len(observers) + len(by_cloud))),
    )


def _titled_observer(words: str, peer: str) -> str:
    """The words of a relation as the heading of a column."""
    return peer if words == "peer" else words


def _trust_html(statement: Statement) -> str:
    """HTML on who is trusted with raw updates, and how many pairs have no guarantee."""
    if statement.trusted is None:
        return "<p>Trusted parties are not listed: the network depends on data that are not at hand.</p>"
    said = "<p>No aggregator is declared as trusted with raw updates.</p>"
    if statement.trusted:
        said = (
            "<p>Declared as trusted with raw updates of the devices under them: "
            f"{text.escape(', '.join(statement.trusted))}. They add noise to what they send on.</p>"
        )
    bare = sum(row.unprotected for row in statement.largest)
    if not bare:
        return f"{said}<p>Every unit has a guarantee towards every observer.</p>"
    return (
        f"{said}<p>{text.how_many(bare, 'pair')} of a unit and an observer "
        f"{'has' if bare == 1 else 'have'} no guarantee (∞ above). The unit must trust such an observer.</p>"
    )


def _versions_html(statement: Statement) -> str:
    """HTML tables of hashes and of versions of packages."""
    versions = text.html_table(("package", "version"), sorted(statement.versions.items()), caption="Versions")
    named = {"spec": "the resolved spec"}
    hashes = [(named.get(name, name), value) for name, value in statement.hashes.items()]
    said = text.paragraphs([statement.verified] if statement.verified else [])
    return f"{said}{text.html_table(('of', 'SHA-256'), hashes, caption='Hashes')}{versions}"


def _signature_html() -> str:
    """HTML with a place for a reader to sign."""
    return (
        "<p>I have read this statement. The assumptions about observers, trust and the secrecy of noise hold "
        "for the system that it describes.</p>"
        "<p>Name and role: ____________________ &nbsp; Date: ____________________</p>"
    )
