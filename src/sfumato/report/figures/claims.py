"""The papers' claims of ε beside the rigorous ε."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.privacy.claim import Claim
from sfumato.report import formatting as text
from sfumato.report.figures.figure import NEUTRAL, NO_GUARANTEE, TRUSTED, Bars, Figure, paired_bars

_MOST_BARS = 20
_MOST_NAMED = 4
_MOST_REASONS = 4  # more are folded
_ONE_ROUND = "one round"  # as sources of claims say it


def claims_sentence(claims: Sequence[Claim]) -> list[str]:
    """One sentence on how many published claims hold for the run; [] without claims."""
    if not claims:
        return []
    counted = _count_sentence(claims)
    about = {(claim.source.partition(",")[0], claim.claimed_epsilon) for claim in claims}
    if len(about) > 1:
        return [f"{counted}."]
    first = [claim for claim in claims if _ONE_ROUND in claim.source]
    later = [claim for claim in claims if _ONE_ROUND not in claim.source]
    if first and later:
        worst = max(claim.rigorous_epsilon for claim in later)
        said = claims_sentence(first)[0]
        return [f"Of one round: {said} Over all rounds the rigorous ε is up to {text.epsilon(worst)}."]
    ((source, claimed),) = about
    if len({claim.observer for claim in claims}) == len(claims) <= _MOST_NAMED:
        each = [
            f"it {'holds' if claim.holds else 'fails'} towards {claim.observer} "
            f"({text.epsilon(claim.rigorous_epsilon)})"
            for claim in claims
        ]
        return [f"{source} claims ε = {text.number(claimed)}: {text.join_names(each)}."]
    found = sorted(claim.rigorous_epsilon for claim in claims)
    ends = list(dict.fromkeys(text.epsilon(value) for value in (found[0], found[-1])))
    return [f"{counted}: {source} claims ε = {text.number(claimed)}, the rigorous ε is {' to '.join(ends)}."]


def _count_sentence(claims: Sequence[Claim]) -> str:
    """A phrase such as "1 of 2 published claims holds for this run"."""
    holding = sum(claim.holds for claim in claims)
    verb = "holds" if 1 in (holding, len(claims)) else "hold"
    made = text.pluralise("claim", len(claims))
    return f"{text.whole(holding)} of {text.whole(len(claims))} published {made} {verb} for this run"


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
        f"{'' if alike else text.wrapped(c.source, 30) + '<br>'}<span style='font-size:11px'>"
        f"{text.wrapped(f'{c.unit} → {c.observer}', 40)}</span>"
        for c in shown
    ]
    pair = (
        Bars("claimed", [NEUTRAL] * len(shown), claimed, list(map(text.number, claimed))),
        Bars("rigorous", [TRUSTED] * len(shown), rigorous, list(map(text.epsilon, rigorous))),
    )
    data, layout = paired_bars(labels, pair, below=36, right=56, endless_colour=NO_GUARANTEE)
    return Figure(
        title="Claimed and rigorous ε" + (f": {text.escape(source)}" if alike else ""),
        caption=f"{_count_sentence(shown)}. A claim holds where the rigorous ε does not exceed it."
        f"{_all_rounds_note(claims)}",
        description=" ".join(
            f"{c.source}, {_pair_as_text(c)}: claimed {text.number(c.claimed_epsilon)}, rigorous "
            f"{text.epsilon(c.rigorous_epsilon)}."
            for c in shown
        ),
        data=data,
        layout=layout,
        kind="claims",
    )


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
                c.source, c.unit, c.observer, text.number(c.claimed_epsilon),
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
    one_unit, own = len({claim.unit for claim in claims}) == 1, _own_words([claim.source for claim in claims])
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
    if len(items) > _MOST_REASONS:
        return f"<details><summary>Why they hold or do not</summary>{listed}</details>"
    return f"<p>Why they hold or do not:</p>{listed}"


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
