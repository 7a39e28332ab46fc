"""The papers' claims of ε beside the rigorous ε: a figure, and why they hold or do not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sfumato.privacy.claim import Claim
from sfumato.report import formatting as text
from sfumato.report.figures.figure import NEUTRAL, NO_GUARANTEE, TRUSTED, Figure, Json, log_axis, tick_label
from sfumato.report.results.claim_pairs import MOST_NAMED, PairNames
from sfumato.report.results.claim_words import (
    are_read_of_devices,
    claim_in_words,
    formula_in_words,
    held_in_words,
    reason_in_words,
    title_of_reasons,
)
from sfumato.report.results.observer_labels import ObserverLabels
from sfumato.run_folder.recorded_privacy import WorstCoalition

_MOST_PAIRS = 20
_HOLDS_WHERE = "Rigorous: the smallest ε that Sfumato proves. A claim {} where this does not exceed it."


def claims_figure(
    claims: Sequence[Claim], labels: ObserverLabels, coalitions: Sequence[WorstCoalition] = ()
) -> Figure | None:
    """For each pair of a unit and an observer the ε claimed and the rigorous ε; ``None`` without claims.

    Where a paper states its ε for one round, only that round is plotted: over all rounds it claims nothing.
    Of many pairs the first `_MOST_PAIRS`.

    Args:
        claims: all of a run.
        labels: of its network.
        coalitions: the worst coalitions of devices, where the run's threat model tolerates colluders.
    """
    if not claims:
        return None
    one_round = [claim for claim in claims if claim.one_round]
    shown = one_round or list(claims)
    pairs = list(dict.fromkeys((claim.unit, claim.observer) for claim in shown))[:_MOST_PAIRS]
    shown = [claim for claim in shown if (claim.unit, claim.observer) in pairs]
    names = PairNames.of(claims, labels, coalitions)
    named = names.told_apart(shown)
    sources = list(dict.fromkeys(claim.source for claim in shown))
    data, axis = _claim_marks(shown, pairs, sources)
    height = 120 + 44 * len(pairs) + 20 * len(sources)
    ticks = [text.wrapped(named[pair], 28) for pair in pairs]
    rigorous = _HOLDS_WHERE.format(held_in_words(claims[0])[0])
    endless = ["Red: no guarantee (∞)."] if any(c.rigorous_epsilon == math.inf for c in shown) else []
    legend = {"orientation": "h", "x": 0, "y": -70 / (44 * len(pairs)), "yanchor": "top"}
    return Figure(
        title="Claimed and rigorous ε" + (f": {claim_in_words(sources[0])}" if len(sources) == 1 else ""),
        caption=" ".join([*_count_sentences(shown, names), rigorous, *endless]) + _all_rounds_note(claims),
        description=" ".join(
            f"{claim_in_words(c.source)}, {named[c.unit, c.observer]}: "
            f"claimed {text.number(c.claimed_epsilon)}, rigorous {text.epsilon(c.rigorous_epsilon)}."
            for c in shown
        ),
        data=data,
        layout={
            "height": height,
            "margin": {"l": 8, "r": 48, "t": 8, "b": 60 + 20 * len(sources)},
            "xaxis": axis | {"title": {"text": "ε"}, "fixedrange": True},
            "yaxis": {
                "tickvals": list(range(len(pairs))), "ticktext": ticks, "automargin": True,
                "range": [len(pairs) - 0.5, -0.5], "fixedrange": True, "tickfont": {"size": 11},
            },
            "legend": legend,
        },
        kind="claims",
    )  # fmt: skip


def _claim_marks(
    claims: Sequence[Claim], pairs: Sequence[tuple[str, str]], sources: Sequence[str]
) -> tuple[list[Json], Json]:
    """Marks of the claimed ε of every source and of the rigorous ε, and the logarithmic axis of all."""
    finite = [v for c in claims for v in (c.claimed_epsilon, c.rigorous_epsilon) if 0 < v < math.inf] or [1.0]
    beyond = 3 * max(finite)  # the place of an infinite ε, where the axis says ∞
    common: Json = {"type": "scatter", "mode": "markers", "cliponaxis": False, "hoverinfo": "text"}
    data: list[Json] = []
    for number, source in enumerate(sources):
        of = [claim for claim in claims if claim.source == source]
        name = "claimed" if len(sources) == 1 else f"claimed: {claim_in_words(source)}"
        said = [f"claimed: ε = {text.number(claim.claimed_epsilon)}" for claim in of]
        symbol = ("line-ns-open", "x-thin-open", "cross-thin-open")[number % 3]
        data.append(common | {
            "name": text.plotly_label(name), "x": [claim.claimed_epsilon for claim in of], "hovertext": said,
            "y": [pairs.index((claim.unit, claim.observer)) for claim in of],
            "marker": {"symbol": symbol, "size": 16, "color": NEUTRAL, "line": {"width": 3}},
        })  # fmt: skip
    worst = {pair: max(c.rigorous_epsilon for c in claims if (c.unit, c.observer) == pair) for pair in pairs}
    written = [text.epsilon(value) for value in worst.values()]
    data.append(common | {
        "name": "rigorous", "mode": "markers+text", "y": list(range(len(pairs))), "text": written,
        "x": [beyond if value == math.inf else value for value in worst.values()],
        "textposition": "top center", "hovertext": [f"rigorous: ε = {one}" for one in written],
        "marker": {
            "size": 11, "color": [NO_GUARANTEE if value == math.inf else TRUSTED for value in worst.values()],
        },
    })  # fmt: skip
    if math.inf not in worst.values():
        return data, log_axis(finite)
    axis = log_axis([*finite, beyond])
    kept = [tick for tick in axis["tickvals"] if tick <= 1.5 * max(finite)]
    return data, axis | {"tickvals": [*kept, beyond], "ticktext": [*map(tick_label, kept), "∞"]}


def _count_sentences(claims: Sequence[Claim], names: PairNames) -> list[str]:
    """For each source of claims a sentence on of whom, and towards whom, its claims hold.

    Where the paper does not speak of some of these observers, a further sentence says so.
    """
    by_statement: dict[str, list[Claim]] = {}
    for claim in claims:
        by_statement.setdefault(claim.source, []).append(claim)
    said = []
    for source, about in by_statement.items():
        whose = names.whose(about)
        of = f", of {whose} alone" if whose else ""
        whole = "for a device as a whole " if are_read_of_devices(about) else ""
        said.append(f"{claim_in_words(source)}{of}: {whole}{names.holding(about)}.")
        read = [claim for claim in about if not claim.stated]
        if read and len(read) < len(about):
            said.append(f"The paper does not speak of ε {names.all_towards(read)}: it is read so here.")
    return said


def _all_rounds_note(claims: Sequence[Claim]) -> str:
    """A sentence on all rounds, of which a paper that states ε for one round says nothing; else ""."""
    later = [claim.rigorous_epsilon for claim in claims if not claim.one_round]
    if len(later) == len(claims) or not later:
        return ""
    draws = {claim.draw for claim in claims if claim.one_round}
    drawn = (
        " Towards those that see who is drawn it is the ε of a device that is drawn, towards others the ε "
        "before the draw."
        if len(draws) > 1 and "seen" in draws
        else ""
    )
    return (
        f" The paper states ε for one round, so one round is plotted.{drawn} Over all rounds the rigorous ε "
        f"is up to {text.epsilon(max(later))}."
    )


def claims_table(
    claims: Sequence[Claim], labels: ObserverLabels, delta: str = "", told: Sequence[str] = ()
) -> str:
    """HTML with the reasons why claims hold or not, and a folded table of all claims.

    Args:
        claims: all of a run, at least one.
        labels: of its network.
        delta: text that follows "ε of this run" in the caption, such as `` (δ = 1e-5)``.
        told: reasons that the page states elsewhere and that are not repeated.
    """
    names = PairNames.of(claims, labels, ())
    seen_by = {pair: f" ({who})" for pair, who in names.observers_told_apart(claims).items()}
    of_rounds = any(claim.one_round for claim in claims)
    table = text.html_table(
        ["claim", "of", "towards", "claimed ε", "rigorous ε", "the claim"],
        [
            (
                claim_in_words(c.source), labels.row(c.unit).title,
                labels.column(c.unit, c.observer).title + seen_by.get((c.unit, c.observer), ""),
                *_claimed_in_words(c, silent=of_rounds and not c.one_round),
            )
            for c in claims
        ],
        caption=f"Published claims and the rigorous ε of this run{delta}",
        numeric=(3, 4),
    )  # fmt: skip
    return f"{_reasons_html(claims, names, told)}<details><summary>Show all claims</summary>{table}</details>"


def _claimed_in_words(claim: Claim, *, silent: bool) -> tuple[str, str, str]:
    """Three texts on a claim: the claimed ε, the rigorous one, and whether it holds.

    ``silent``: the paper speaks of one round and the row is about all, of which it claims nothing.
    """
    rigorous = text.epsilon(claim.rigorous_epsilon)
    if silent:
        return "–", rigorous, "none is made"
    verdict = held_in_words(claim)[0 if claim.holds else 1]
    whole = " for a whole device" if are_read_of_devices([claim]) else ""
    return text.number(claim.claimed_epsilon), rigorous, f"{verdict}{whole}"


def _reasons_html(claims: Sequence[Claim], names: PairNames, told: Sequence[str]) -> str:
    """An HTML list of the reasons: first those that all claims share, then a line for each pair.

    Pairs with the same reasons share a line; what concerns one of a pair's claims has its formula before it.

    ``told``: reasons that are left out.
    """
    clauses = {
        claim: [one for one in reason_in_words(claim.why).rstrip(".").split("; ") if one] for claim in claims
    }
    common = [one for one in clauses[claims[0]] if all(one in others for others in clauses.values())]
    pairs: dict[tuple[str, str], list[Claim]] = {}
    for claim in claims:
        pairs.setdefault((claim.unit, claim.observer), []).append(claim)
    lines: dict[str, list[str]] = {}
    apart = names.observers_told_apart(claims)
    for pair, about in pairs.items():
        whose, towards = names.whose(about[:1]), names.labels.column(*pair).towards
        towards += f" ({apart[pair]})" if pair in apart else ""
        lines.setdefault(_reasons_of_pair(about, clauses, common), []).append(f"{whose} {towards}".lstrip())
    items = [text.sentence(one) for one in common if not any(one in said for said in told)]
    items += [
        text.sentence(f"{text.join_names(list(dict.fromkeys(who)), MOST_NAMED)}: {why}")
        for why, who in lines.items()
        if why
    ]
    if not items:
        return ""
    listed = "".join(f"<li>{text.escape(item)}</li>" for item in items)
    title = title_of_reasons(claims[0])
    return f'<details><summary>{title}</summary><ul class="reasons">{listed}</ul></details>'


def _reasons_of_pair(
    claims: Sequence[Claim], clauses: Mapping[Claim, Sequence[str]], told: Sequence[str]
) -> str:
    """The reasons of the claims about one pair as text: those of all, then those of each by its formula.

    Args:
        claims: about the pair.
        clauses: the reasons of each claim.
        told: reasons that are left out.
    """
    shared = [one for one in clauses[claims[0]] if all(one in clauses[claim] for claim in claims)]
    parts, sentences = [one for one in shared if one not in told], list[str]()
    for claim in claims:
        own = [one for one in clauses[claim] if one not in shared]
        if own:
            formula = formula_in_words(claim.source)
            prefix = "" if own[0].startswith(formula) else f"{formula}: "
            sentences.append(text.sentence(f"{prefix}{'; '.join(own)}"))
    return " ".join([*([text.sentence("; ".join(parts))] if parts else []), *sentences])
