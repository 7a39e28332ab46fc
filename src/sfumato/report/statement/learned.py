"""What each observer can learn, as HTML: of a unit of each kind, and at every named site."""

from __future__ import annotations

import math

from sfumato.findings.large_epsilons import LARGE_EPSILON
from sfumato.report import formatting as text
from sfumato.report.results.epsilon_words import sure_in_words
from sfumato.report.statement.assumptions import ATTACKER
from sfumato.report.statement.content import Statement
from sfumato.report.statement.gains import TWICE, PrivacyBound, between_contents, chance_of_more
from sfumato.report.statement.pairs import RelatedPairs
from sfumato.report.statement.trusted import changes_between_rounds
from sfumato.report.statement.words import (
    IN_SHORT,
    Promise,
    holder_phrase,
    observers_explained,
    question,
    two_values,
)
from sfumato.rounding import certainty

_MOST_ROWS = 400
_A_BIT_MORE = 1 + 1e-9  # than 1: 1 / 2e-5 is a little less than 50,000 in floating point


def learned_html(statement: Statement, delta: str) -> str:
    """HTML: what each kind of observer may learn about a unit of each kind, and a line for every site.

    ``delta``: the δ of every ε, as text.
    """
    rows = sorted(statement.largest, key=lambda row: -row.worst.epsilon)
    parts = [_gains_html(statement, one, delta) for one in statement.promises]
    who = observers_explained([row.worst for row in rows], statement.place)
    raw = statement.privacy.raw_to_trusted_edge
    changes = changes_between_rounds(statement.spec, statement.trust_by_round)
    at_times = ", in some rounds or in all," if changes else ""
    beside = [
        f"{raw} devices send their updates without noise{at_times} to an aggregator that they trust. Towards "
        "that one ε is ∞, in a row of its own. Towards all others these devices count in the other rows."
    ]
    said = text.paragraphs([ATTACKER, " ".join(who), *(beside if raw else ())])
    return "".join([*parts, said, _sites_html(statement, delta)])


def _gains_html(statement: Statement, promise: Promise, delta: str) -> str:
    """HTML: how sure each kind of observer may become about one unit of a kind, and how to read that."""
    unit, contents = promise.kind, promise.relation != "replace"
    found = [row for row in statement.largest if row.worst.unit_kind == unit]
    found.sort(key=lambda row: -row.worst.epsilon)
    rows = [
        (
            text.title(statement.observer(row.worst)),
            text.epsilon(row.worst.epsilon) + _others(row),
            *(sure_in_words(row.worst.epsilon, before) for before in (0.01, 0.5)),
            *([sure_in_words(_contents(row, promise, statement).epsilon, 0.5)] if contents else []),
        )
        for row in found
    ]
    asked = IN_SHORT[promise.relation]
    heads = [
        *("who observes", "ε is at most"),
        *(f"{asked} {before} becomes" for before in ("1 %", "50 : 50")),
        *([f"{IN_SHORT['replace']} 50 : 50 becomes"] if contents else []),
    ]
    having = [holder_phrase(unit, statement.place), statement.whoever_runs]
    rows[:0] = [(text.title(who), "–", *["has the data"] * (len(heads) - 2)) for who in having if who]
    caption = f"How sure an observer can become about one {unit}, at most (δ = {delta}), rounded up"
    table = text.html_table(heads, rows, caption=caption, numeric=range(1, len(heads)), stacked=True)
    values = two_values(promise.kind, statement.labels, statement.spec["data"].get("label_column"))
    return table + text.paragraphs([_how_to_read(promise, values), *_with_delta(statement, promise, found)])


def _others(row: RelatedPairs) -> str:
    """The largest finite ε of pairs of which some have none, `` (others ε = 8)`` after a space; else ""."""
    finite = row.largest_finite
    return f" (others ε = {text.epsilon(finite)})" if row.unprotected and finite is not None else ""


def _contents(row: RelatedPairs, promise: Promise, statement: Statement) -> PrivacyBound:
    """The bound between two contents of a unit that follows from the largest ε of some pairs."""
    return between_contents(row.worst.epsilon, statement.privacy.delta, promise.relation)


def _how_to_read(promise: Promise, values: str) -> str:
    """Sentences on what the table says; ``values``: two that a unit may have, from `two_values`."""
    unit = promise.kind
    said = [
        f"How to read this: somebody wants to know {question(promise.relation, unit)}. They "
        "suspect it with 1 %, or hold it for as likely as a coin toss. The table says how sure everything "
        "that they receive can make them, whatever else they know."
    ]
    if promise.relation != "replace":
        said.append(
            f"The last column is on {question('replace', unit)} ({values}): what they receive "
            "can change these odds by e^(2ε)."
        )
    return " ".join(said)


def _with_delta(statement: Statement, promise: Promise, found: list[RelatedPairs]) -> list[str]:
    """A list with a paragraph on what δ adds to percentages in the table, derived in `gains`.

    [] where the table has no percentages that δ changes.
    """
    delta = statement.privacy.delta
    shown = [row for row in found if row.worst.epsilon <= LARGE_EPSILON]
    if not shown or not 0 < delta < 1:
        return []
    epsilon = max(row.worst.epsilon for row in shown)
    contents = [_contents(row, promise, statement) for row in shown if promise.relation != "replace"]
    larger = max((one.delta for one in contents if one.epsilon <= LARGE_EPSILON), default=0.0)
    last = (
        f"; in the last column 2(1 + e^ε)δ, at most {text.epsilon(chance_of_more(larger), 2)}"
        if larger
        else ""
    )
    return [
        f"δ = {text.number(delta)} is left aside. With it, odds become at most twice as large "
        f"({certainty(epsilon)} is then at most {certainty(epsilon + TWICE)}), but for a probability of at "
        f"most 2δ = {_chance(delta)}{last}. Source: Canonne, Kamath and Steinke 2020, with "
        "Markov's inequality."
    ]


def _chance(delta: float) -> str:
    """2δ as text, also for laymen: ``2e-5 (1 in 50,000)``."""
    chance = chance_of_more(delta)
    return f"{text.epsilon(chance, 2)} (1 in {text.whole(_A_BIT_MORE / chance)})"


def _sites_html(statement: Statement, delta: str) -> str:
    """HTML with the largest ε of each named site; "" where no site has a name."""
    found = statement.sites
    if not found:
        return ""
    named = dict.fromkeys(whom for row in found for whom in row.epsilon)
    observers = sorted(named, key=lambda whom: whom != "cloud")
    units = ["unit"] if len(statement.units) > 1 else []
    held = statement.held.by_site(statement.network)
    counted = [text.pluralise(statement.held.unit)] if held else []
    odds = {"1 %": 0.01, "50 : 50": 0.5} if "cloud" in named else {}
    asked = IN_SHORT[statement.promises[0].relation]
    shown = [
        (
            *(row.site, *(row.unit for _ in units)),
            *(text.whole(held[row.site]) if row.site in held else "–" for _ in counted),
            *(text.epsilon(row.epsilon.get(whom, math.nan)) for whom in observers),
            *(sure_in_words(row.epsilon.get("cloud", math.nan), before) for before in odds.values()),
        )
        for row in found[:_MOST_ROWS]
    ]
    left = len(found) - len(shown)
    more = f"; {text.whole(left)} more sites are in the JSON" if left else ""
    heads = (
        *("site", *units, *counted, *(f"ε, {_titled_observer(whom, statement.peer)}" for whom in observers)),
        *(f"cloud: {asked} {guess} becomes" for guess in odds),
    )
    return text.html_table(
        heads,
        shown,
        caption=f"The largest ε at every site (δ = {delta}), rounded up{more}",
        numeric=tuple(range(1 + len(units), len(heads))),
        stacked=True,
    )


def _titled_observer(words: str, peer: str) -> str:
    """The words of a relation as the heading of a column; for "peer" the text ``peer``."""
    return peer if words == "peer" else words
