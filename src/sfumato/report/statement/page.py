"""A privacy statement as one HTML page, for an auditor to read and sign, and for a layman to understand."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from string import Template

from sfumato.findings.large_epsilons import LARGE_EPSILON
from sfumato.privacy.guarantee import Guarantee
from sfumato.report import formatting as text
from sfumato.report.figures.heatmap import in_words
from sfumato.report.page.html import asset, bullet_list, section
from sfumato.report.page.papers import with_papers_explained
from sfumato.report.page.party_words import with_words_for_parties
from sfumato.report.page.who_adds_noise import noise_part
from sfumato.report.results.epsilon_words import after_run_sentence, sure_in_words
from sfumato.report.results.summary import range_sentence
from sfumato.report.statement.assumptions import Assumed
from sfumato.report.statement.content import Statement
from sfumato.report.statement.gains import between_contents
from sfumato.report.statement.learned import learned_html
from sfumato.report.statement.pairs import RelatedPairs
from sfumato.report.statement.trusted import changes_between_rounds
from sfumato.report.statement.why import why_html
from sfumato.report.statement.words import RELATIONS, SEVERAL, Promise, question, two_values
from sfumato.rounding import certainty
from sfumato.spec.document import SPEC_HASH

_MOST_ROWS = 400
_UNBROKEN = re.compile(r"50 : 50|[εδ] = |\d %")
_YARDSTICK = (
    "As a yardstick: for all data of a person ε ≤ 1 has been called strong and ε ≤ 10 reasonable (Ponomareva "
    "et al., How to DP-fy ML, 2023, section 5)"
)
_CHANGES = (
    "It changes during the training who is under whom, or who is trusted. Every ε here is for exactly the "
    "changes of this training, which are known beforehand and public. With other changes the same noise may "
    "give another ε."
)
_STRONG = 1.0  # of the yardstick
_SHORT = 12  # digits of a hash, where the whole stands below


def statement_page(statement: Statement) -> str:
    """The text of the statement as one self-contained HTML page, which loads nothing.

    Of a run that did not pass its check it has the summary, which says so, and versions and files alone.
    """
    delta = text.number(statement.privacy.delta)
    sections = [
        section("In short", [_summary_html(statement, delta)]),
        section("What each observer can learn", [learned_html(statement, delta)]),
        section("What is not protected", [_protection_html(statement, delta)]),
        section("What is taken on trust", [_assumptions_html(statement.assumptions)]),
        section("Who is trusted with raw updates", [_trust_html(statement)]),
        *with_words_for_parties(
            [
                section("Who adds noise", [_noise_html(statement)]),
                section("What this does not cover", [bullet_list(statement.not_covered)]),
                section("Why the figures hold, and what was checked", [_reasons_html(statement, delta)]),
            ],
            statement.place,
        ),
        section("Versions and files", [_versions_html(statement)]),
        section("Signature", [_signature_html(statement)]),
    ]
    if statement.run is not None and statement.run.mismatches:  # nothing of it is to be relied on, nor signed
        sections = [sections[0], section("Versions and files", [_versions_html(statement)])]
    return Template(asset("statement.html")).substitute(
        title=text.escape(str(statement.spec["name"])),
        subtitle=_subtitle_html(statement),
        style=asset("page.css"),
        sections=_UNBROKEN.sub(_unbroken, "\n".join(with_papers_explained(sections))),
    )


def _noise_html(statement: Statement) -> str:
    """HTML on who takes part, what is clipped and who adds how much noise."""
    return noise_part(statement.noise, statement.training, persons="person" in statement.units)


def _unbroken(found: re.Match[str]) -> str:
    """A short formula with spaces at which no line breaks."""
    return found[0].replace(" ", "\N{NO-BREAK SPACE}")


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
    if changes_between_rounds(statement.spec, statement.trust_by_round):
        lead.append(_CHANGES)
    for one in statement.promises:
        of_kind = [row for row in statement.largest if row.worst.unit_kind == one.kind]
        finite = [row for row in of_kind if row.largest_finite is not None]
        if finite:
            first = max(finite, key=_by_cloud_first)
            said = [_most_sentence(first, one, statement, delta), *_towards_public(first, finite, statement)]
            lead += [" ".join(said), _yardstick(one, first.largest_finite or 0.0)]
    if after := after_run_sentence(statement.privacy):
        lead += [*after, "For a unit of which it is known how often it took part, rely on the larger ε."]
    said = [*statement.findings, *statement.privacy.notes]
    found = bullet_list([text.sentence(line) for line in said]) if said else ""
    warned = statement.simulation
    notice = f'<div class="notice">{text.paragraphs([warned])}</div>' if warned else ""
    return f'{notice}<div class="lead">{text.paragraphs(lead)}</div>{found}'


def _by_cloud_first(row: RelatedPairs) -> tuple[bool, float]:
    """The key by which the pairs for the first sentence are found: the cloud's, then the largest ε."""
    return row.worst.relation.kind == "cloud" and not row.unprotected, row.largest_finite or 0.0


def _unprotected_sentences(statement: Statement) -> list[str]:
    """A sentence on all observers from which some units are not protected; [] where there are none."""
    rows = [row for row in statement.largest if row.unprotected]
    several = len(statement.units) > 1
    named = [
        f"{statement.observer(row.worst)}"
        f"{f' (of a {row.worst.unit_kind})' if several else ''}"
        f"{f' ({row.unprotected:,} of {row.pairs:,} pairs)' if row.unprotected < row.pairs else ''}"
        for row in rows
    ]
    return [f"Not protected at all (ε = ∞) from: {'; '.join(named)}."] if named else []


def _most_sentence(row: RelatedPairs, promise: Promise, statement: Statement, delta: str) -> str:
    """Sentences on the most that one kind of observer can learn, and between which units ε varies.

    Args:
        row: the pairs that are told of.
        promise: of their kind of unit.
        statement: that the page is of.
        delta: the δ of every ε, as text.
    """
    value = math.inf if row.largest_finite is None else row.largest_finite
    where = ", where it is finite," if row.unprotected else ""
    alike = [
        statement.observer(one.worst)
        for one in statement.largest
        if one.worst.unit_kind == promise.kind and text.epsilon(one.worst.epsilon) == text.epsilon(value)
    ]
    towards = statement.observer(row.worst) if row.unprotected else text.join_names(alike)
    said = [
        f"Towards {towards} ε{where} is at most {text.epsilon(value)} (δ = {delta}): a guess of 50 : 50 on "
        f"{question(promise.relation, promise.kind)} becomes {_at_most(value)}, leaving δ aside."
    ]
    if promise.relation != "replace":
        contents = between_contents(value, statement.privacy.delta, promise.relation)
        values = two_values(promise.kind, statement.labels, statement.spec["data"].get("label_column"))
        guess = f"guess of 50 : 50 on {question('replace', promise.kind)} ({values})"
        said.append(
            f"For a {guess} there is no limit."
            if contents.epsilon == math.inf
            else f"A {guess} becomes {_at_most(contents.epsilon)}."
        )
    return " ".join([*said, *range_sentence(row.guarantees)])


def _towards_public(told: RelatedPairs, finite: Sequence[RelatedPairs], statement: Statement) -> list[str]:
    """A sentence on the largest ε towards the public, where it is another than that of the pairs ``told``.

    ``finite``: all pairs of the kind of unit with a finite ε.
    """
    for row in finite:
        value = row.largest_finite
        if row.worst.relation.kind != "public" or row.unprotected or value is None:
            continue
        if text.epsilon(value) != text.epsilon(told.largest_finite or math.inf):
            return [
                f"Towards {statement.observer(row.worst)}, who sees the global models alone, ε is at most "
                f"{text.epsilon(value)}, and 50 : 50 becomes {_at_most(value)}."
            ]
    return []


def _yardstick(promise: Promise, value: float) -> str:
    """Sentences on what has been called a small ε, and where the largest finite ε, ``value``, lies."""
    most, placed = certainty(LARGE_EPSILON), "above both"
    if value <= LARGE_EPSILON:
        placed = "strong by that" if value <= _STRONG else "between the two"
    said = f"{_YARDSTICK}; yet ε = {LARGE_EPSILON:g} lets 50 : 50 become {most}."
    here = f"ε = {text.epsilon(value)} is {placed}"
    if promise.kind == "record":
        return (
            f"{said} For somebody with one record {here}. Somebody with {SEVERAL} records is protected less: "
            "see What is not protected."
        )
    return f"{said} Here {here}."


def _at_most(epsilon: float) -> str:
    """How sure an observer that starts from even odds becomes: ``at most 99.97 %``, or in words."""
    sure = sure_in_words(epsilon, 0.5)
    return f"at most {sure}" if sure[:1].isdigit() else sure


def _protection_html(statement: Statement, delta: str) -> str:
    """HTML on what is protected and what is not, with the exact promise folded."""
    exact = text.paragraphs(
        f"The unit of privacy is {statement.units[one.kind]}. {RELATIONS[one.relation]}"
        for one in statement.promises
    ) + (
        "<p>An ε towards an observer means: whatever the observer concludes from all that it receives, the "
        "probability of that conclusion in one world is at most e<sup>ε</sup> times that in the other, plus "
        f"δ = {delta}. A smaller ε is a stronger guarantee; ∞ is none.</p>"
    )
    return (
        f"{bullet_list(statement.not_protected)}"
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
    whys = why_html([(statement.observer(row.worst), row.worst) for row in found])
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
    return text.html_table(
        (
            "of", "towards", "who is", "ε", *ranged, "stands for", "releases", "the unit, in the other world",
            "composed",
        ),
        [
            (
                _units_of(row, statement), _party_or_unit(row.observer, statement),
                statement.observer(row), text.epsilon(row.epsilon),
                *(text.epsilon_range(row) for _ in ranged), _stands_for(row, statement),
                text.whole(row.releases), in_words(row.neighbours), in_words(row.method),
            )
            for row in listed
        ],
        caption=f"Every guarantee{first if len(rows) > len(listed) else ''}; δ = {delta}",
        numeric=(3, *(4 for _ in ranged), 4 + len(ranged), 5 + len(ranged)),
    )  # fmt: skip


def _units_of(row: Guarantee, statement: Statement) -> str:
    """Whose ε a row has, as text: every record or person of a named site, or the unit with its sites."""
    titled = statement.titled(row.unit)
    site = titled.partition(":")[2]
    if row.unit_kind == "device" or list(row.sites) != [site]:
        return text.unit_of(replace(row, unit=_party_or_unit(row.unit, statement)))
    count = statement.held.by_site(statement.network).get(site)
    many = f" ({text.how_many(count, row.unit_kind)})" if count else ""
    return f"every {row.unit_kind} of {site}{many}"


def _party_or_unit(name: str, statement: Statement) -> str:
    """A party or a unit of a row in words: "site 1" for ``device:1``, "record of site 0" for ``record:0``."""
    titled = statement.titled(name)
    kind, _, number = titled.partition(":")
    if kind not in ("device", "record", "person") or not number.isdigit():
        return titled
    return f"{f'{kind} of ' if kind != 'device' else ''}{statement.place} {number}"


def _stands_for(row: Guarantee, statement: Statement) -> str:
    """How many pairs a row stands for, as text: "this pair", or ``50 pairs of a device and an observer``."""
    if row.stands_for == 1:
        return "this pair"
    return f"{text.how_many(row.stands_for, 'pair')} of a {statement.place} and an observer"


def _trust_html(statement: Statement) -> str:
    """HTML on who is trusted with raw updates, and how many pairs have no guarantee."""
    if statement.trusted is None:
        return "<p>Trusted parties are not listed: the network depends on data that are not at hand.</p>"
    said = text.paragraphs(_trusted_sentences(statement))
    bare = sum(row.unprotected for row in statement.largest)
    if not bare:
        units = text.join_names([f"every {kind}" for kind in statement.units])
        return (
            f"{said}<p>{text.title(units)} has a guarantee (a finite ε) towards every observer but those "
            "that have the data.</p>"
        )
    return (
        f"{said}<p>{text.how_many(bare, 'pair')} of a unit and an observer "
        f"{'has' if bare == 1 else 'have'} no guarantee (∞ above). Nothing here protects a unit "
        "from such an observer.</p>"
    )


def _trusted_sentences(statement: Statement) -> list[str]:
    """Sentences on who is declared as trusted, from which round on, and on their noise."""
    moving = ["Devices move from edge to edge during the training. Who is where, and when, is public."]
    if not statement.trusted:
        said = ["Nobody is declared as trusted with raw updates."]
    elif len(eras := statement.trust_by_round) > 1:
        named = (f"from round {one.from_round} on {', '.join(one.trusted) or 'nobody'}" for one in eras)
        declared = f"Declared as trusted with raw updates of the devices under them: {'; '.join(named)}."
        said = [f"{declared} {statement.trusted_add_noise}"]
    else:
        declared = "Declared as trusted with raw updates of the devices under them:"
        said = [f"{declared} {', '.join(statement.trusted)}. {statement.trusted_add_noise}"]
    return [*said, *(moving if statement.spec["topology"].get("moves") else ())]


def _versions_html(statement: Statement) -> str:
    """HTML tables of hashes and of versions of packages."""
    versions = text.html_table(("package", "version"), sorted(statement.versions.items()), caption="Versions")
    named = {
        "spec": "the resolved spec, without its seed and the hashes of data",
        "session": "the session of the deployment: its terms and the parties' keys",
    }
    hashes = [(named.get(name, name), value) for name, value in statement.hashes.items()]
    table = text.html_table(("of", "SHA-256"), hashes, caption="Hashes", stacked=True)
    return f"{table}<details><summary>Show versions of packages</summary>{versions}</details>"


def _signature_html(statement: Statement) -> str:
    """HTML with a place for a reader to sign, and to write down what no file of a run says."""
    purpose = "" if statement.run is not None and statement.run.purpose else "Purpose of the training"
    blanks = [purpose, "Who answers for the data", "System and place of use", "Name and role", "Date"]
    lines = "".join(f"<p>{blank}: ______________________________</p>" for blank in blanks if blank)
    holds = "What it takes on trust holds for the system that it describes."
    if statement.simulation:
        holds = (
            "Its figures are not about the simulated run, whose noise follows from a seed, but about a "
            "system whose noise is secret. What else it takes on trust holds for that system."
        )
    return f"<p>I have read this statement. {holds}</p>{lines}"
