"""Why each ε of a statement is what it is, in the words of the accountant, and these words explained."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from sfumato.privacy.guarantee import Guarantee
from sfumato.report import formatting as text


class Rule(NamedTuple):
    """A word of the accountant.

    Attributes:
        means: what it means.
        section: of the documentation, with its rule.
    """

    means: str
    section: str


RULES = {
    "release": Rule(
        "One noised message, model or gradient that an observer receives and that says something about the "
        "unit.",
        "Accounting, Theorem of the exposed set",
    ),
    "multiplier": Rule(
        "The standard deviation of the noise that the observer does not know, over how far the unit can move "
        "what is sent. A larger one hides more.",
        "Accounting, What a sentence says",
    ),
    "unseen": Rule(
        "Who or what contributes is drawn by lot, and the observer is not told what was drawn. That hides "
        "more than the noise alone.",
        "Accounting, Sampling",
    ),
    "seen": Rule(
        "Who or what contributes is drawn by lot, and the observer knows what was drawn. The draw hides "
        "nothing; it only makes contributions fewer.",
        "Accounting, Sampling",
    ),
    "zero-out": Rule(
        "Compared are the training as it was, and one in which all that the unit contributes is zero.",
        "Accounting, What there is",
    ),
    "replace": Rule(
        "Compared are the training as it was, and one in which the unit has any other data.",
        "Accounting, What there is",
    ),
    "remove": Rule(
        "Compared are the training as it was, and one in which the device is not there.",
        "Accounting, What there is",
    ),
    "pld": Rule(
        "Privacy loss distributions: how much each release can tell is put on a fine grid, rounded up, and "
        "all releases are added up on it.",
        "Accounting, Composition",
    ),
    "gdp": Rule(
        "Gaussian differential privacy: what Gaussian noise lets through adds up exactly, 1/multiplier² of "
        "each release, and ε follows by a formula.",
        "Accounting, Composition",
    ),
}
_WORDS = re.compile(rf"(?<![\w-])({'|'.join(RULES)})s?(?![\w-])")


def why_html(worst: Sequence[tuple[str, Guarantee]]) -> str:
    """HTML: why the largest ε towards each kind of observer is what it is, with the words explained.

    ``worst``: observers in words, and the guarantee with the largest ε. Equal reasons are given once. Only
    words of the accountant that a reason uses are explained.
    """
    reasons: dict[tuple[str, str], list[tuple[str, Guarantee]]] = {}
    for who, row in worst:
        reasons.setdefault((row.unit_kind, row.why), []).append((who, row))
    several = len({row.unit_kind for _, row in worst}) > 1
    said = [_reason(alike, of_kind=several) for alike in reasons.values()]
    used = dict.fromkeys(found[1] for line in said for found in _WORDS.finditer(line))
    listed = "".join(f"<li>{_WORDS.sub(_linked, line)}</li>" for line in said)
    terms = "".join(
        f'<dt id="rule-{word}">{word}</dt><dd>{text.escape(RULES[word].means)} The rule is in Sfumato\'s '
        f"documentation: {text.escape(RULES[word].section)}.</dd>"
        for word in used
    )
    return f'<ul class="reasons">{listed}</ul><div class="papers"><dl>{terms}</dl></div>'


def _reason(alike: Sequence[tuple[str, Guarantee]], *, of_kind: bool) -> str:
    """HTML with one reason: who observes, how many releases were counted, and the accountant's sentence.

    ``of_kind``: whether the kind of unit is named.
    """
    row = alike[0][1]
    who = text.escape(text.title(text.join_names([name for name, _ in alike], len(alike))))
    who += f" (of a {row.unit_kind})" if of_kind else ""
    why = text.escape(text.sentence(row.why)) if row.why else ""
    if row.epsilon == math.inf:
        return f"<b>{who}</b>: no guarantee (ε = ∞). {why}"
    values = text.join_names(list(dict.fromkeys(text.epsilon(one.epsilon) for _, one in alike)))
    counted = f"{text.how_many(row.releases, 'release')} {'is' if row.releases == 1 else 'are'} counted"
    return f"<b>{who}</b>, ε = {values}: {counted}. In the accountant's words: {why}"


def _linked(found: re.Match[str]) -> str:
    """A word of the accountant as a link to its explanation on the page."""
    return f'<a href="#rule-{found[1]}">{found[0]}</a>'
