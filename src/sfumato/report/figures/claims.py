"""The papers' claims of ε beside the rigorous ε."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sfumato.privacy.claim import Claim
from sfumato.report import formatting as text
from sfumato.report.figures.figure import NEUTRAL, NO_GUARANTEE, TRUSTED, Bars, Figure, paired_bars

_MOST_BARS = 20
_MOST_NAMED = 4
_ONE_ROUND = "one round"  # as sources of claims say it


def claim_in_words(source: str) -> str:
    """The source of a claim, as files name it, with signs of formulas in place of their names."""
    written = source.replace("2 pi^2 alpha/sigma^2", "2π²α/σ²").replace("mu for", "μ for")
    return written.replace(" x ", " × ")


def claims_sentence(claims: Sequence[Claim]) -> list[str]:
    """One sentence for each published claim of a source: the ε claimed, and the provable ones; [] without.

    Claims of one source with different ε are told together.
    """
    by_source: dict[str, list[Claim]] = {}
    for claim in claims:
        place = claim.source.rpartition(", ")[0] or claim.source  # without the formula or the rounds
        by_source.setdefault(place, []).append(claim)
    return [_sentence_of_source(source, about) for source, about in by_source.items()]


def _sentence_of_source(source: str, claims: Sequence[Claim]) -> str:
    """A sentence such as "H2FDP Prop. 3.1 claims ε = 1, which holds for 0 of 7 pairs; provable: 3 to 9."."""
    first = [claim for claim in claims if _ONE_ROUND in claim.source]
    later = [claim for claim in claims if _ONE_ROUND not in claim.source]
    claimed = _span([claim.claimed_epsilon for claim in first or claims], text.number)
    if first and later:
        worst = text.epsilon(max(claim.rigorous_epsilon for claim in later))
        seen = (
            " (the larger is of a round in which the device takes part, for whoever sees that)"
            if len({text.epsilon(claim.rigorous_epsilon) for claim in first}) > 1
            else ""
        )
        return (
            f"{source} claims ε = {claimed} for one round; provable for one round: {_provable(first)}{seen}; "
            f"for all rounds: {worst}."
        )
    return f"{source} claims ε = {claimed}, which {_holding(claims)}; provable: {_provable(claims)}."


def _provable(claims: Sequence[Claim]) -> str:
    """The rigorous ε of claims: each with its observer if these are few, else the range."""
    if 1 < len(claims) <= _MOST_NAMED and len({claim.observer for claim in claims}) == len(claims):
        return text.join_names([f"{text.epsilon(c.rigorous_epsilon)} ({c.observer})" for c in claims])
    return _span([claim.rigorous_epsilon for claim in claims], text.epsilon)


def _span(values: Sequence[float], written: Callable[[float], str]) -> str:
    """The least and the largest of ``values`` as text; one number where they are written alike."""
    return " to ".join(dict.fromkeys(map(written, (min(values), max(values)))))


def _holding(claims: Sequence[Claim]) -> str:
    """A phrase such as "holds for 1 of 2 pairs of a unit and an observer"."""
    pairs = {(claim.unit, claim.observer) for claim in claims}
    failing = {(claim.unit, claim.observer) for claim in claims if not claim.holds}
    if len(pairs) == 1:
        return "does not hold" if failing else "holds"
    some = f"{text.whole(len(pairs) - len(failing))} of {text.whole(len(pairs))}"
    return f"holds for {some} pairs of a unit and an observer"


def claims_figure(claims: Sequence[Claim]) -> Figure | None:
    """For each claim a bar of the claimed ε beside one of the rigorous ε; ``None`` without claims.

    Where a paper states its ε for one round, only that round is drawn: over all rounds it claims nothing.
    """
    if not claims:
        return None
    one_round = [claim for claim in claims if _ONE_ROUND in claim.source]
    shown = (one_round or list(claims))[:_MOST_BARS]
    claimed, rigorous = [c.claimed_epsilon for c in shown], [c.rigorous_epsilon for c in shown]
    source = shown[0].source
    alike = all(claim.source == source for claim in shown)
    labels = [
        f"{'' if alike else text.wrapped(claim_in_words(c.source), 30) + '<br>'}<span style='font-size:11px'>"
        f"{text.wrapped(f'{c.unit} → {c.observer}', 40)}</span>"
        for c in shown
    ]
    pair = (
        Bars("claimed", [NEUTRAL] * len(shown), claimed, list(map(text.number, claimed))),
        Bars("rigorous", [TRUSTED] * len(shown), rigorous, list(map(text.epsilon, rigorous))),
    )
    data, layout = paired_bars(labels, pair, below=36, right=56, endless_colour=NO_GUARANTEE)
    return Figure(
        title="Claimed and rigorous ε" + (f": {claim_in_words(source)}" if alike else ""),
        caption=f"{' '.join(_count_sentences(shown))} A claim holds where the rigorous ε does not exceed it."
        f"{_all_rounds_note(claims)}",
        description=" ".join(
            f"{claim_in_words(c.source)}, {_pair_as_text(c)}: claimed {text.number(c.claimed_epsilon)}, "
            f"rigorous {text.epsilon(c.rigorous_epsilon)}."
            for c in shown
        ),
        data=data,
        layout=layout,
        kind="claims",
    )


def _count_sentences(claims: Sequence[Claim]) -> list[str]:
    """For each statement (source and, of one source, each formula) a sentence on where it holds."""
    by_source: dict[str, list[Claim]] = {}
    for claim in claims:
        by_source.setdefault(claim.source, []).append(claim)
    return [f"{claim_in_words(source)} {_holding(about)}." for source, about in by_source.items()]


def _all_rounds_note(claims: Sequence[Claim]) -> str:
    """A sentence on all rounds, of which a paper that states ε for one round says nothing; else ""."""
    later = [claim.rigorous_epsilon for claim in claims if _ONE_ROUND not in claim.source]
    if len(later) == len(claims) or not later:
        return ""
    return (
        " The paper states ε for one round, so one round is drawn. Over all rounds the rigorous ε is up to "
        f"{text.epsilon(max(later))}."
    )


def claims_table(claims: Sequence[Claim], delta: str = "") -> str:
    """HTML of why each claim holds or does not, and a table of claims; ``delta``: text beside the ε."""
    table = text.html_table(
        ["claim", "unit", "observer", "claimed ε", "rigorous ε", "holds", "why"],
        [
            (
                claim_in_words(c.source), c.unit, c.observer, text.number(c.claimed_epsilon),
                text.epsilon(c.rigorous_epsilon), "yes" if c.holds else "no", c.why,
            )
            for c in claims
        ],
        caption=f"Published claims and the rigorous ε of this run{delta}",
        numeric=(3, 4),
    )  # fmt: skip
    return f"{_reasons_html(claims)}<details><summary>Show all claims</summary>{table}</details>"


def _reasons_html(claims: Sequence[Claim]) -> str:
    """An HTML list of all reasons, each once, with the claims that it is about unless it is about all."""
    about: dict[str, list[str]] = {}
    one_unit = len({claim.unit for claim in claims}) == 1
    own = _own_words([claim_in_words(claim.source) for claim in claims])
    for claim, source in zip(claims, own, strict=True):
        pair = f"towards {claim.observer}" if one_unit else _pair_as_text(claim)
        which = " ".join(filter(None, [source, pair])) if one_unit or source else f"for {pair}"
        for clause in claim.why.rstrip(".").split("; "):
            if clause:
                about.setdefault(clause, []).append(which)
    items = []
    for clause, whom in about.items():
        only = "" if len(whom) == len(claims) else f"{text.join_names(whom, _MOST_NAMED)}: "
        items.append(f"<li>{text.escape(text.sentence(only + clause))}</li>")
    if not items:
        return ""
    listed = f'<ul class="reasons">{"".join(items)}</ul>'
    return f"<details><summary>Why they hold or do not</summary>{listed}</details>"


def _own_words(sources: Sequence[str]) -> list[str]:
    """Of each source the parts (between commas) that follow those with which all of them begin."""
    parts = [source.split(", ") for source in sources]
    same = 0
    while len({tuple(words[: same + 1]) for words in parts}) == 1 and any(len(w) > same for w in parts):
        same += 1
    return [", ".join(words[same:]) for words in parts]


def _pair_as_text(claim: Claim) -> str:
    """The unit and the observer of a claim as text."""
    return f"{claim.unit} towards {claim.observer}"
