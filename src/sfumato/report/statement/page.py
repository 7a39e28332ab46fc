"""A privacy statement as one HTML page, for an auditor to read and sign, and for a layman to understand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from string import Template

from sfumato.report import formatting as text
from sfumato.report.page.html import asset, bullet_list, section
from sfumato.report.page.papers import with_papers_explained
from sfumato.report.page.who_adds_noise import noise_part
from sfumato.report.results.epsilon_words import after_run_sentence, epsilon_in_words, sure_in_words
from sfumato.report.results.summary import range_sentence
from sfumato.report.statement.assumptions import ATTACKER, Assumed
from sfumato.report.statement.content import Statement
from sfumato.report.statement.pairs import RelatedPairs
from sfumato.report.statement.why import why_html
from sfumato.report.statement.words import (
    QUESTIONS,
    RELATIONS,
    holder_phrase,
    observer_phrase,
    observers_explained,
)
from sfumato.spec.document import SPEC_HASH

_TWICE = (
    "Between two possible contents of a unit (ill or not ill) the odds can change by more: by e^(2ε), at a "
    "larger δ. Accounts with privacy.neighbours: replace state that ε directly."
)
_MOST_ROWS = 400
_SHORT = 12  # digits of a hash, where the whole stands below


def statement_page(statement: Statement) -> str:
    """The statement as one self-contained HTML page."""
    delta = text.number(statement.privacy.delta)
    sections = [
        section("In short", [_summary_html(statement, delta)]),
        section("What each observer can learn", [_learned_html(statement, delta)]),
        section("What is protected, and what is not", [_protection_html(statement, delta)]),
        section("What is taken on trust", [_assumptions_html(statement.assumptions)]),
        section("Who is trusted with raw updates", [_trust_html(statement)]),
        section(
            "Who adds noise",
            [noise_part(statement.noise, statement.training, persons="person" in statement.units)],
        ),
        section("What this does not cover", [bullet_list(statement.not_covered)]),
        section("Why the figures hold, and what was checked", [_reasons_html(statement, delta)]),
        section("Versions and files", [_versions_html(statement)]),
        section("Signature", [_signature_html(statement)]),
    ]
    if statement.run is not None and statement.run.mismatches:  # nothing of it is to be relied on, nor signed
        sections = [sections[0], section("Versions and files", [_versions_html(statement)])]
    return Template(asset("statement.html")).substitute(
        title=text.escape(str(statement.spec["name"])),
        subtitle=_subtitle_html(statement),
        style=asset("page.css"),
        sections="\n".join(with_papers_explained(sections)),
    )


def _subtitle_html(statement: Statement) -> str:
    """HTML: what the statement is of, of which day, and by which spec."""
    of = [statement.source]
    if statement.run is not None and statement.run.written:
        of.append(f"its files are of {_day(statement.run.written)}")
    if statement.made:
        of.append(f"stated on {_day(statement.made)}")
    of.append(f"spec {statement.spec['name']}, hash {statement.hashes[SPEC_HASH][:_SHORT]}…")
    return f'<p class="facts">{text.escape(" · ".join(of))}</p>'


def _day(iso: str) -> str:
    """An ISO date as people write it: 26 November 2026."""
    day = date.fromisoformat(iso)
    return f"{day.day} {day:%B %Y}"


def _summary_html(statement: Statement, delta: str) -> str:
    """HTML for the top: who trains what, what is protected, the most that is learned, and findings."""
    wrong = statement.run.mismatches if statement.run is not None else ()
    if wrong:
        return (
            f'<div class="notice"><p>{text.how_many(len(wrong), "figure")} of the run did not pass the '
            f"check. Do not rely on this statement.</p>{bullet_list(wrong[:_MOST_ROWS])}</div>"
            f'<div class="lead">{text.paragraphs([statement.subject])}</div>'
        )
    lead = [statement.subject, *_unprotected_sentences(statement), statement.protected]
    for kind in statement.units:
        of_kind = [row for row in statement.largest if row.worst.unit_kind == kind]
        finite = [row for row in of_kind if row.largest_finite is not None]
        if finite:
            lead.append(_most_sentence(max(finite, key=_by_cloud_first), statement, delta))
    if after := after_run_sentence(statement.privacy):
        lead += [*after, "For a unit of which it is known how often it took part, rely on the larger ε."]
    said = []
    for row in statement.largest:
        if row.unprotected:
            many = f"{text.how_many(row.unprotected, 'pair')} of a {row.worst.unit_kind} and an observer"
            others = "" if row.largest_finite is None else f"; of the others at most {_finite(row)}"
            said.append(f"no guarantee (∞) for {many}: {_observer(row, statement)}{others}")
    said += [*statement.findings, *statement.privacy.notes]
    found = bullet_list([text.sentence(line) for line in said]) if said else ""
    return f'<div class="lead">{text.paragraphs(lead)}</div>{found}'


def _by_cloud_first(row: RelatedPairs) -> tuple[bool, float]:
    """The order in which pairs are worth the first sentence: the cloud, then the largest ε."""
    return row.worst.relation.kind == "cloud" and not row.unprotected, row.largest_finite or 0.0


def _finite(row: RelatedPairs) -> str:
    """The largest ε that is finite among some pairs, as text."""
    return f"ε = {text.epsilon(math.nan if row.largest_finite is None else row.largest_finite)}"


def _unprotected_sentences(statement: Statement) -> list[str]:
    """A sentence on all observers from which some units are not protected; [] where there are none."""
    rows = [row for row in statement.largest if row.unprotected]
    several = len(statement.units) > 1
    named = [
        f"{_observer(row, statement)}"
        f"{f' (of a {row.worst.unit_kind})' if several else ''}"
        f"{f' ({row.unprotected:,} of {row.pairs:,} pairs)' if row.unprotected < row.pairs else ''}"
        for row in rows
    ]
    return [f"Not protected at all (ε = ∞) from: {'; '.join(named)}."] if named else []


def _most_sentence(row: RelatedPairs, statement: Statement, delta: str) -> str:
    """Sentences on the most that one kind of observer can learn, and at which site."""
    worst = row.worst
    value = math.inf if row.largest_finite is None else row.largest_finite
    words = epsilon_in_words(worst.unit_kind, value)
    who = _observer(row, statement)
    spread = " ".join(range_sentence(row.guarantees))
    small = f"A suspicion of 1 % can become {sure_in_words(value, 0.01)}."
    where = ", where ε is finite" if row.unprotected else ""
    most = f"What {who} can learn of one {worst.unit_kind} at most{where} (δ = {delta}):"
    return f"{most} {words[:1].lower()}{words[1:]} {small} {spread}".strip()


def _observer(row: RelatedPairs, statement: Statement) -> str:
    """The observer of some pairs in words."""
    return observer_phrase(row.worst, statement.peer, statement.place)


def _learned_html(statement: Statement, delta: str) -> str:
    """HTML: what each kind of observer may learn about a unit of each kind, and a line for every site."""
    rows = sorted(statement.largest, key=lambda row: -row.worst.epsilon)
    parts = [_gains_html(statement, kind, delta) for kind in statement.units]
    who = observers_explained([row.worst for row in rows], statement.place)
    raw = statement.privacy.raw_to_trusted_edge
    beside = [
        f"{raw} devices send their updates without noise to an aggregator that they trust. These have a row "
        "of their own (∞); the other rows about edges do not count them."
    ]
    return "".join(
        [*parts, text.paragraphs([" ".join(who), *(beside if raw else ())]), _sites_html(statement, delta)]
    )


def _gains_html(statement: Statement, unit: str, delta: str) -> str:
    """HTML: how sure each kind of observer may become about one ``unit`` (device, record or person)."""
    found = [row for row in statement.largest if row.worst.unit_kind == unit]
    found.sort(key=lambda row: -row.worst.epsilon)
    rows = [
        (
            text.title(_observer(row, statement)),
            text.epsilon(row.worst.epsilon)
            + (f" (others {_finite(row)})" if row.unprotected and row.largest_finite is not None else ""),
            *(sure_in_words(row.worst.epsilon, 0.01), sure_in_words(row.worst.epsilon, 0.5)),
        )
        for row in found
    ]
    having = [holder_phrase(unit, statement.place), statement.whoever_runs]
    rows[:0] = [(text.title(who), "–", "has the data", "has the data") for who in having if who]
    heads = (
        *("who observes", "ε is at most"),
        *("a suspicion of 1 % becomes at most", "a guess of 50 : 50 becomes at most"),
    )
    caption = (
        f"What an observer could gain about one {unit} over the whole training (δ = {delta}), rounded up"
    )
    (relation,) = (one.relation for one in statement.promises if one.kind == unit)
    said = (
        f"How to read this: somebody wants to know {QUESTIONS[relation].format(unit=unit)} Before, "
        "they hold that for as likely as a coin toss, or suspect it with 1 %. The last two columns say how "
        "sure everything that they receive can make them, whatever else they know, leaving δ aside: with a "
        f"small probability, often some ten times δ = {delta}{_one_in(statement.privacy.delta)}, they can "
        "become surer than that."
    )
    table = text.html_table(heads, rows, caption=caption, numeric=(1, 2, 3), stacked=True)
    return table + text.paragraphs([said])


def _one_in(delta: float) -> str:
    """δ for laymen, such as `` (1 in 100,000)``; "" where it is not known."""
    return f" (1 in {round(1 / delta):,})" if 0 < delta < 1 else ""


def _protection_html(statement: Statement, delta: str) -> str:
    """HTML on what is protected and what is not, with the exact promise folded."""
    exact = text.paragraphs(
        f"The unit of privacy is {statement.units[one.kind]}. {RELATIONS[one.relation]}"
        for one in statement.promises
    ) + (
        "<p>An ε towards an observer means: whatever the observer concludes from all that it receives, the "
        "probability of that conclusion in one world is at most e<sup>ε</sup> times that in the other, plus "
        f"δ = {delta}. A smaller ε is a stronger guarantee; ∞ is none.</p>"
        f"{text.paragraphs(_TWICE for one in statement.promises[:1] if one.relation != 'replace')}"
    )
    return (
        f"{text.paragraphs([statement.protected])}{bullet_list(statement.not_protected)}"
        f"{text.paragraphs([ATTACKER])}"
        f"<details><summary>Show the exact promise</summary>{exact}</details>"
    )


def _assumptions_html(assumed: Sequence[Assumed]) -> str:
    """HTML: what is taken on trust, and whether that is a concern."""
    lines = (f"<li><b>{text.escape(one.what)}</b> {text.escape(one.why)}</li>" for one in assumed)
    return f"<ul>{''.join(lines)}</ul>"


def _reasons_html(statement: Statement, delta: str) -> str:
    """HTML: what was recomputed and what was not, why each ε is what it is, and every guarantee."""
    checked = "This is a plan: nothing has been trained, and nothing was recomputed by the checker."
    if statement.run is not None:
        second = "a program of its own, which shares no code with the one that computed them first"
        checked = (
            f"The figures were computed a second time by {second}, and all agree. {statement.run.verified}"
        )
    found = sorted(statement.largest, key=lambda row: -row.worst.epsilon)
    whys = why_html([(_observer(row, statement), row.worst) for row in found])
    return (
        f"{text.paragraphs([checked])}"
        f"{_assumptions_html(statement.unchecked) if statement.unchecked else ''}"
        f"<details><summary>Show why each ε is what it is</summary>{whys}</details>"
        f"<details><summary>Show every guarantee</summary>{_every_guarantee(statement, delta)}</details>"
    )


def _every_guarantee(statement: Statement, delta: str) -> str:
    """An HTML table of all rows, or of the first of very many; ``delta``: text beside ε."""
    rows = statement.privacy.guarantees
    listed = rows[:_MOST_ROWS]
    first = f" (the first {text.whole(_MOST_ROWS)} of {text.whole(len(rows))}; the JSON has all)"
    ranged = ["smallest and largest ε of these"] if any(row.epsilon_range for row in listed) else []
    named = statement.titled
    return text.html_table(
        ("of", "towards", "who is", "ε", *ranged, "how many pairs", "releases", "compared", "added up by"),
        [
            (
                text.unit_of(replace(row, unit=named(row.unit))), named(row.observer),
                observer_phrase(row, statement.peer, statement.place), text.epsilon(row.epsilon),
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
    named = dict.fromkeys(whom for row in found for whom in row.epsilon)
    observers = sorted(named, key=lambda whom: whom != "cloud")
    units = ["unit"] if len(statement.units) > 1 else []
    odds = {"a suspicion of 1 %": 0.01, "a guess of 50 : 50": 0.5} if "cloud" in named else {}
    shown = [
        (
            *(row.site, *(row.unit for _ in units)),
            *(text.epsilon(row.epsilon.get(whom, math.nan)) for whom in observers),
            *(sure_in_words(row.epsilon.get("cloud", math.nan), before) for before in odds.values()),
        )
        for row in found[:_MOST_ROWS]
    ]
    left = len(found) - len(shown)
    more = f"; {text.whole(left)} more sites are in the JSON" if left else ""
    heads = (
        *("site", *units, *(f"ε, {_titled_observer(whom, statement.peer)}" for whom in observers)),
        *(f"{guess} of the cloud becomes at most" for guess in odds),
    )
    return text.html_table(
        heads,
        shown,
        caption=f"The largest ε at every site (δ = {delta}), rounded up{more}",
        numeric=tuple(range(1 + len(units), len(heads))),
        stacked=True,
    )


def _titled_observer(words: str, peer: str) -> str:
    """The words of a relation as the heading of a column."""
    return peer if words == "peer" else words


def _trust_html(statement: Statement) -> str:
    """HTML on who is trusted with raw updates, and how many pairs have no guarantee."""
    if statement.trusted is None:
        return "<p>Trusted parties are not listed: the network depends on data that are not at hand.</p>"
    said = text.paragraphs(_trusted_sentences(statement))
    bare = sum(row.unprotected for row in statement.largest)
    if not bare:
        return f"{said}<p>Every unit has a guarantee towards every observer.</p>"
    return (
        f"{said}<p>{text.how_many(bare, 'pair')} of a unit and an observer "
        f"{'has' if bare == 1 else 'have'} no guarantee (∞ above). Nothing here protects a unit "
        "from such an observer.</p>"
    )


def _trusted_sentences(statement: Statement) -> list[str]:
    """Sentences on who is declared as trusted, from which round on, and on their noise."""
    moving = ["Devices move from edge to edge during the training. Who is where, and when, is public."]
    if not statement.trusted:
        said = ["No aggregator is declared as trusted with raw updates."]
    elif len(eras := statement.trust_by_round) > 1:
        named = (f"from round {one.from_round} on {', '.join(one.trusted) or 'nobody'}" for one in eras)
        declared = f"Declared as trusted with raw updates of the devices under them: {'; '.join(named)}."
        said = [f"{declared} {statement.trusted_add_noise}"]
    else:
        declared = "Declared as trusted with raw updates of the devices under them:"
        said = [f"{declared} {', '.join(statement.trusted)}. {statement.trusted_add_noise}"]
    return [*said, *(moving if statement.moves else ())]


def _versions_html(statement: Statement) -> str:
    """HTML tables of hashes and of versions of packages."""
    versions = text.html_table(("package", "version"), sorted(statement.versions.items()), caption="Versions")
    named = {"spec": "the resolved spec, without its seed and the hashes of data"}
    hashes = [(named.get(name, name), value) for name, value in statement.hashes.items()]
    table = text.html_table(("of", "SHA-256"), hashes, caption="Hashes", stacked=True)
    return f"{table}<details><summary>Show versions of packages</summary>{versions}</details>"


def _signature_html(statement: Statement) -> str:
    """HTML with a place for a reader to sign, and to write down what no file of a run says."""
    purpose = "" if statement.run is not None and statement.run.purpose else "Purpose of the training"
    blanks = [purpose, "Who answers for the data", "System and place of use", "Name and role", "Date"]
    lines = "".join(f"<p>{blank}: ______________________________</p>" for blank in blanks if blank)
    return (
        "<p>I have read this statement. What it takes on trust holds for the system that it describes.</p>"
        f"{lines}"
    )
