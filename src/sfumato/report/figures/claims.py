"""The papers' claims of ε beside the rigorous ε."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sfumato.privacy.claim import Claim, claim_holds
from sfumato.report import formatting as text
from sfumato.report.figures.figure import NEUTRAL, NO_GUARANTEE, TRUSTED, Figure, Json, log_axis, tick_label
from sfumato.report.results.claim_words import by_source, claim_in_words, held_in_words
from sfumato.report.results.observer_labels import ObserverLabels
from sfumato.run_folder.recorded_privacy import WorstCoalition

_MOST_PAIRS = 20
_MOST_NAMED = 4
_SEES_DRAWS = "this observer sees who is drawn"  # as reasons say it
_BEFORE_THE_DRAW = "mixture over Binomial"  # as reasons say it
_TAKES_THE_PLACE = "drawn in the unit's place"  # as reasons say it
_ABOUT_RECORDS = "H2FDP"  # whose Definition 2.1 is about one element of a device's data
_ONE_ROUND = "one round"  # as sources of claims say it
_HOLDS_WHERE = "Rigorous: the smallest ε that Sfumato proves. A claim {} where this does not exceed it."


class _PairNames(NamedTuple):
    """Names the pairs that claims are about: classes of units, and how observers are placed towards them.

    Attributes:
        labels: of the run's network.
        units: of all claims of the run.
        coalitions: of devices with the aggregator of a unit, which a threat model tolerates.
    """

    labels: ObserverLabels
    units: tuple[str, ...]
    coalitions: Sequence[WorstCoalition] = ()

    @classmethod
    def of(
        cls, claims: Sequence[Claim], labels: ObserverLabels, coalitions: Sequence[WorstCoalition]
    ) -> _PairNames:
        return cls(labels, tuple(dict.fromkeys(claim.unit for claim in claims)), coalitions)

    def colluders_against(self, claims: Sequence[Claim]) -> int:
        """The fewest devices with which its own edge breaks one of the ``claims``; 0 where none are known."""
        return min(
            (
                row.size
                for claim in claims
                if self.labels.column(claim.unit, claim.observer).kind == "own-edge"
                for row in self.coalitions
                if row.unit == claim.unit and not claim_holds(claim.claimed_epsilon, row.supernode_epsilon)
            ),
            default=0,
        )

    def towards(self, claim: Claim) -> str:
        """The observer of a claim in a sentence, such as ``towards their own edge``.

        For one round, who sees the draw is charged as of a device that is drawn; others for the chance
        that it is, and where a fixed number is drawn unseen as if another device took its place.
        """
        drawn = _SEES_DRAWS in claim.why and _ONE_ROUND in claim.source
        towards = self.labels.column(claim.unit, claim.observer).towards
        if drawn:
            return f"{towards} for a device that is drawn"
        if _ONE_ROUND not in claim.source:
            return towards
        if _TAKES_THE_PLACE in claim.why:
            return f"{towards} before the draw, another device taking its place"
        return f"{towards} before the draw" if _BEFORE_THE_DRAW in claim.why else towards

    def whose(self, claims: Sequence[Claim]) -> str:
        """The classes of units that claims are about; "" where the run has none about others."""
        about = {claim.unit for claim in claims}
        titles = dict.fromkeys(self.labels.row(unit).title for unit in self.units if unit in about)
        return "" if len(about) == len(self.units) else text.join_names(list(titles), _MOST_NAMED)

    def pair(self, claim: Claim) -> str:
        """The classes of unit and observer of a claim, for the axis of a figure."""
        column = self.labels.column(claim.unit, claim.observer)
        return f"{self.labels.row(claim.unit).title} → {column.title}"

    def told_apart(self, claims: Sequence[Claim]) -> dict[tuple[str, str], str]:
        """The name of each pair of ``claims``; of pairs with the same name also who the observer is."""
        named = {(claim.unit, claim.observer): self.pair(claim) for claim in claims}
        many = Counter(named.values())
        return {
            (unit, observer): name if many[name] == 1 else f"{name} ({self.labels.observer_title(observer)})"
            for (unit, observer), name in named.items()
        }


def claims_sentence(
    claims: Sequence[Claim],
    labels: ObserverLabels,
    told: Sequence[str] = (),
    coalitions: Sequence[WorstCoalition] = (),
) -> list[str]:
    """Sentences on each published claim: the claimed ε, for whom, whether it holds, and the rigorous ε.

    Claims from the same place of a paper share their sentences, also if their ε differ. [] without claims.

    Args:
        claims: all of a run.
        labels: of its network.
        told: reasons for failed claims that the page states elsewhere and that are not repeated.
        coalitions: the worst coalitions of devices, where the run's threat model tolerates colluders.
    """
    names = _PairNames.of(claims, labels, coalitions)
    return [
        " ".join([_sentence_of_source(source, about, names), *_common_reason(about, told)])
        for source, about in by_source(claims).items()
    ]


def _sentence_of_source(source: str, claims: Sequence[Claim], names: _PairNames) -> str:
    """A sentence such as "H2FDP Prop. 3.1 claims ε = 1; it does not hold. Provable: towards the cloud 9."."""
    first = [claim for claim in claims if _ONE_ROUND in claim.source]
    later = [claim for claim in claims if _ONE_ROUND not in claim.source]
    claimed = _span([claim.claimed_epsilon for claim in first or claims], text.number)
    whose = names.whose(claims)
    of = f" for {whose}, and nothing for others" if whose else ""
    if first and later:
        worst = text.epsilon(max(claim.rigorous_epsilon for claim in later))
        before = ", before the draws" if any(_SEES_DRAWS in claim.why for claim in claims) else ""
        return (
            f"{source} claims ε = {claimed} a round{of}; {_holding(first, names)}. Provable for one round: "
            f"{_provable(first, names, whose)}; for {later[0].source.rpartition(', ')[2]}{before}: {worst}."
        )
    provable = _provable(claims, names, whose)
    if source.startswith(_ABOUT_RECORDS):
        of = f" for one data point{of}"
    return f"{source} claims {_readings(claims, names, of)}. Provable: {provable}."


def _readings(claims: Sequence[Claim], names: _PairNames, of: str) -> str:
    """The ε that claims of one source state and where they hold, by each formula (reading) of the source.

    Args:
        claims: of one source.
        names: of the run.
        of: words on whom they are about, after the last ε.
    """
    by_formula: dict[str, list[Claim]] = {}
    for claim in claims:
        by_formula.setdefault(claim_in_words(claim.source).rpartition(", ")[2], []).append(claim)
    spans = {
        formula: _span([claim.claimed_epsilon for claim in found], text.number)
        for formula, found in by_formula.items()
    }
    holding = [_holding(found, names) for found in by_formula.values()]
    if len(spans) == 1:
        whole = "for a device as a whole " if _is_read_of_devices(claims) else ""
        return f"ε = {next(iter(spans.values()))}{of}; {whole}{holding[0]}"
    stated = [f"{span} (by {formula})" for formula, span in spans.items()]
    if len(set(holding)) == 1:
        return f"ε = {' or '.join(stated)}{of}; by each of these readings {holding[0]}"
    said = [f"by {formula} {words}" for formula, words in zip(spans, holding, strict=True)]
    return f"ε = {' or '.join(stated)}{of}; {'; '.join(said)}"


def _is_read_of_devices(claims: Sequence[Claim]) -> bool:
    """Whether claims of a paper about one record are set beside the ε of whole devices."""
    return all(one.source.startswith(_ABOUT_RECORDS) and one.unit.startswith("device:") for one in claims)


def _common_reason(claims: Sequence[Claim], told: Sequence[str]) -> list[str]:
    """The first reason that all claims of a source share, as a sentence; [] where any of them holds."""
    shared = [set(claim.why.rstrip(".").split("; ")) for claim in claims]
    first = claims[0].why.rstrip(".").split("; ")[0]
    if not first or any(first in said for said in told) or any(claim.holds for claim in claims):
        return []
    return [text.sentence(first)] if all(first in reasons for reasons in shared) else []


def _provable(claims: Sequence[Claim], names: _PairNames, told: str) -> str:
    """The rigorous ε of claims towards each kind of observer, each the range over the units.

    With the classes of units, where these are neither all nor those that were ``told``.
    """
    by_kind: dict[str, list[Claim]] = {}
    for claim in claims:
        by_kind.setdefault(names.towards(claim), []).append(claim)
    said = []
    for towards, found in by_kind.items():
        whose = names.whose(found)
        only = f" ({whose})" if whose not in ("", told) else ""
        said.append(f"{_span([claim.rigorous_epsilon for claim in found], text.epsilon)} {towards}{only}")
    return text.join_names(said)


def _span(values: Sequence[float], written: Callable[[float], str]) -> str:
    """The least and the largest of ``values`` as text; one number where they are written alike."""
    return " to ".join(dict.fromkeys(map(written, (min(values), max(values)))))


def _holding(claims: Sequence[Claim], names: _PairNames) -> str:
    """A clause on where claims hold: everywhere, nowhere, or towards which kinds of observers.

    Of groups a claim that does not hold is only said to be not proved: see `held_in_words`.
    """
    holds, not_held = held_in_words(claims[0])
    if all(claim.holds for claim in claims):
        colluders = names.colluders_against(claims)
        if not colluders:
            return f"it {holds}"
        alone = text.join_names(list(dict.fromkeys(map(names.towards, claims))))
        return f"it {holds} {alone} alone, not with {text.how_many(colluders, 'colluding device')}"
    if not any(claim.holds for claim in claims):
        return f"it {not_held}"
    kinds = list(dict.fromkeys(map(names.towards, claims)))
    where = [k for k in kinds if all(c.holds for c in claims if names.towards(c) == k)]
    fails = [k for k in kinds if not any(c.holds for c in claims if names.towards(c) == k)]
    if len(where) + len(fails) == len(kinds):
        colluders = names.colluders_against([claim for claim in claims if claim.holds])
        also = f", nor with {text.how_many(colluders, 'device')} that collude with it" if colluders else ""
        nowhere = text.join_names(fails).replace(" and ", " or ")
        return f"it {holds} {text.join_names(where)}, not {nowhere}{also}"
    pairs = {(claim.unit, claim.observer) for claim in claims}
    failing = {(claim.unit, claim.observer) for claim in claims if not claim.holds}
    return (
        f"it {holds} for {text.whole(len(pairs) - len(failing))} of {text.whole(len(pairs))} classes of pairs"
    )


def claims_figure(
    claims: Sequence[Claim], labels: ObserverLabels, coalitions: Sequence[WorstCoalition] = ()
) -> Figure | None:
    """For each pair of a unit and an observer the ε claimed and the rigorous ε; ``None`` without claims.

    Where a paper states its ε for one round, only that round is plotted: over all rounds it claims nothing.

    Args:
        claims: all of a run.
        labels: of its network.
        coalitions: the worst coalitions of devices, where the run's threat model tolerates colluders.
    """
    if not claims:
        return None
    one_round = [claim for claim in claims if _ONE_ROUND in claim.source]
    shown = one_round or list(claims)
    pairs = list(dict.fromkeys((claim.unit, claim.observer) for claim in shown))[:_MOST_PAIRS]
    shown = [claim for claim in shown if (claim.unit, claim.observer) in pairs]
    names = _PairNames.of(claims, labels, coalitions)
    named = names.told_apart(shown)
    sources = list(dict.fromkeys(claim.source for claim in shown))
    data, axis = _claim_marks(shown, pairs, sources)
    height = 120 + 44 * len(pairs) + 20 * len(sources)
    ticks = [text.wrapped(named[pair], 28) for pair in pairs]
    rigorous = _HOLDS_WHERE.format(held_in_words(claims[0])[0])
    legend = {"orientation": "h", "x": 0, "y": -70 / (44 * len(pairs)), "yanchor": "top"}
    return Figure(
        title="Claimed and rigorous ε" + (f": {claim_in_words(sources[0])}" if len(sources) == 1 else ""),
        caption=" ".join([*_count_sentences(shown, names), rigorous]) + _all_rounds_note(claims),
        description=" ".join(
            f"{claim_in_words(c.source)}, {_pair_as_text(c)}: claimed {text.number(c.claimed_epsilon)}, "
            f"rigorous {text.epsilon(c.rigorous_epsilon)}."
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
            "name": text.label(name), "x": [claim.claimed_epsilon for claim in of], "hovertext": said,
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


def _count_sentences(claims: Sequence[Claim], names: _PairNames) -> list[str]:
    """For each statement (source and, of one source, each formula) a sentence on of whom and where it
    holds.
    """
    by_source: dict[str, list[Claim]] = {}
    for claim in claims:
        by_source.setdefault(claim.source, []).append(claim)
    said = []
    for source, about in by_source.items():
        whose = names.whose(about)
        of = f", of {whose} alone" if whose else ""
        said.append(f"{claim_in_words(source)}{of}: {_holding(about, names)}.")
    return said


def _all_rounds_note(claims: Sequence[Claim]) -> str:
    """A sentence on all rounds, of which a paper that states ε for one round says nothing; else ""."""
    later = [claim.rigorous_epsilon for claim in claims if _ONE_ROUND not in claim.source]
    if len(later) == len(claims) or not later:
        return ""
    return (
        " The paper states ε for one round, so one round is plotted. Over all rounds the rigorous ε is up to "
        f"{text.epsilon(max(later))}."
    )


def claims_table(claims: Sequence[Claim], delta: str = "") -> str:
    """HTML with the reasons why claims hold or not, and a folded table of all claims.

    ``delta``: text that follows "ε of this run" in the caption, such as `` (δ = 1e-5)``.
    """
    table = text.html_table(
        ["claim", "unit", "observer", "claimed ε", "rigorous ε", "the claim"],
        [
            (
                claim_in_words(c.source), c.unit, c.observer, text.number(c.claimed_epsilon),
                text.epsilon(c.rigorous_epsilon), held_in_words(c)[0 if c.holds else 1],
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
