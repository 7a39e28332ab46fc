"""Published claims on the first screen: sentences, and a table of claims that a paper states in two ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sfumato.privacy.claim import Claim
from sfumato.report import formatting as text
from sfumato.report.results.claim_pairs import MOST_NAMED, PairNames
from sfumato.report.results.claim_words import (
    are_read_of_devices,
    by_source,
    formula_in_words,
    held_in_words,
    origin_in_words,
)
from sfumato.report.results.observer_labels import ObserverLabels
from sfumato.run_folder.recorded_privacy import WorstCoalition

_DIVIDED = "HDP divides the ε of one party's noise by the root of the number of parties that add noise."


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
    names = PairNames.of(claims, labels, coalitions)
    return [
        " ".join([_sentences_of_source(source, about, names), *_common_reason(about, told)])
        for source, about in by_source(claims).items()
    ]


def claims_by_reading(claims: Sequence[Claim], labels: ObserverLabels) -> str:
    """HTML tables of the places of papers with several formulas: ε by each, by kind of observer.

    "" where no paper states its ε in two ways. Cells have the range over the pairs, and whether it holds.

    Args:
        claims: all of a run.
        labels: of its network.
    """
    names = PairNames.of(claims, labels, ())
    return "".join(
        _table_of_readings(source, readings, names)
        for source, about in by_source(claims).items()
        if len(readings := _readings(about)) > 1
    )


def _readings(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    """Claims of one place of a paper by formula, in their order.

    {} where they are of rounds instead, or where each pair has one formula.
    """
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(formula_in_words(claim.source), []).append(claim)
    pairs = Counter((claim.unit, claim.observer) for claim in claims)
    told = not any(claim.one_round for claim in claims) and max(pairs.values(), default=0) > 1
    return found if told else {}


def _table_of_readings(source: str, readings: Mapping[str, Sequence[Claim]], names: PairNames) -> str:
    """The table of one place of a paper: a row for each kind of observer, a column for each formula."""
    kinds = dict.fromkeys(names.towards(claim) for claims in readings.values() for claim in claims)
    rows = []
    for kind in kinds:
        of_kind = [[one for one in claims if names.towards(one) == kind] for claims in readings.values()]
        provable = text.span(_rigorous([claim for claims in of_kind for claim in claims]), text.epsilon)
        rows.append((kind.removeprefix("towards "), *map(_cell, of_kind), provable))
    heads = [f"claimed, {formula}" for formula in readings]
    ranges = any(" to " in cell for _, *cells in rows for cell in cells)
    where = (
        "; ranges are over classes of pairs, which are listed one by one below Published claims"
        if ranges
        else ""
    )
    caption = f"ε by {source}{where}"
    return text.html_table(
        ["towards", *heads, "provable"], rows, caption=caption, numeric=range(1, 2 + len(heads))
    )


def _cell(claims: Sequence[Claim]) -> str:
    """The claimed ε of one formula towards one kind of observer, and for how many pairs it holds."""
    holds, not_held = (words.removeprefix("is ") for words in held_in_words(claims[0]))
    held = sum(claim.holds for claim in claims)
    some = f"{holds} for {held} of {len(claims)} classes"
    verdict = holds if held == len(claims) else some if held else not_held
    return f"{text.span([claim.claimed_epsilon for claim in claims], text.number)}: {verdict}"


def _sentences_of_source(source: str, claims: Sequence[Claim], names: PairNames) -> str:
    """Sentences such as "H2FDP Prop. 3.1 claims ε = 1; it does not hold. Provable: towards the cloud 9."."""
    whose = names.whose(claims)
    of = f" for {whose}, and nothing for the others" if whose else ""
    if any(claim.one_round for claim in claims):
        return _sentence_on_one_round(source, claims, names, whose, of)
    if len(readings := _readings(claims)) > 1:
        return _sentence_on_readings(source, readings)
    stated = [claim for claim in claims if claim.stated]
    if stated and len(stated) < len(claims):
        return _sentences_on_stated(source, stated, [one for one in claims if not one.stated], names, of)
    if claims[0].paper == "H2FDP":  # whose Definition 2.1 is about one element of a device's data
        of = f" for one data point{of}"
    states = "claims" if stated else "would claim"
    whole = "for a device as a whole " if are_read_of_devices(claims) else ""
    if claims[0].paper == "HDP" and not whose and (each := _values_of_classes(claims, names)):
        towards = names.all_towards(claims)
        said = f"{source} {states}, {towards}, ε = {each}; {names.holding(claims, told=towards)}."
        return f"{said} {_DIVIDED}"
    claimed = text.span([claim.claimed_epsilon for claim in claims], text.number)
    where = names.all_towards(claims) if whose and len(set(map(names.towards, claims))) == 1 else ""
    return (
        f"{f'{text.title(where)} ' if where else ''}{source} {states} ε = {claimed}{of}; "
        f"{whole}{names.holding(claims, told=where)}. Provable: {_provable(claims, names, whose)}."
    )


def _values_of_classes(claims: Sequence[Claim], names: PairNames) -> str:
    """What is claimed and what is provable for each class of units, as text.

    "" unless there are few classes, they differ in what is claimed, and the claims are towards one kind of
    observer.
    """
    by_unit = {claim.unit: claim for claim in claims}
    differ = len({text.number(claim.claimed_epsilon) for claim in claims}) > 1
    if len(by_unit) < len(claims) or len(by_unit) > MOST_NAMED or not differ:
        return ""
    titles = [names.labels.row(unit).title for unit in by_unit]
    if len({names.towards(claim) for claim in claims}) > 1 or len(set(titles)) < len(titles):
        return ""
    return text.join_names(
        [
            f"{text.number(claim.claimed_epsilon)} for {title} "
            f"(provable: {text.epsilon(claim.rigorous_epsilon)})"
            for title, claim in zip(titles, by_unit.values(), strict=True)
        ]
    )


def _sentence_on_readings(source: str, readings: Mapping[str, Sequence[Claim]]) -> str:
    """A sentence on a claim that a paper states by several formulas, whose ε are in a table."""
    (first, *_), every = readings.values(), [claim for claims in readings.values() for claim in claims]
    proved = held_in_words(first[0])[0]
    verdict = (
        f"the table says where each {proved}" if any(c.holds for c in every) else f"none of them {proved}"
    )
    by = text.join_names([f"{formula}{origin_in_words(formula)}" for formula in readings])
    return f"{source} gives more than one ε, by {by}; {verdict}."


def _sentence_on_one_round(
    source: str, claims: Sequence[Claim], names: PairNames, whose: str, of: str
) -> str:
    """A sentence on a claim of which a paper speaks for one round only, and on what all rounds add up to.

    ``whose``: the classes of units that the claims are about; ``of``: words on them, after an ε.
    """
    first = [claim for claim in claims if claim.one_round]
    later = [claim for claim in claims if not claim.one_round]
    claimed = text.span([claim.claimed_epsilon for claim in first], text.number)
    far = first[0].paper == "PFELS" and max(claim.claimed_epsilon for claim in first) >= 1
    states = "would claim" if far else "claims"
    beyond = " (the paper states it for ε below 1, and uses it beyond)" if far else ""
    said = (
        f"{source} {states} ε = {claimed} a round{of}{beyond}; {names.holding(first)}. "
        f"Provable for one round: {_provable(first, names, whose)}"
    )
    if not later:
        return f"{said}."
    before = ", before the draws" if any(claim.draw == "seen" for claim in claims) else ""
    rounds, worst = formula_in_words(later[0].source), text.epsilon(max(_rigorous(later)))
    return f"{said}; for {rounds}{before}: {worst}."


def _sentences_on_stated(
    source: str, stated: Sequence[Claim], others: Sequence[Claim], names: PairNames, of: str
) -> str:
    """Sentences on a claim that a paper states of some observers, and on its ε towards others.

    Args:
        source: the place of the paper.
        stated: the claims of which the paper speaks.
        others: those towards observers of whom it does not.
        names: of the run.
        of: words on whom the claims are about, after an ε.
    """
    whom, elsewhere = names.all_towards(stated), names.all_towards(others)
    claimed = text.span([claim.claimed_epsilon for claim in [*stated, *others]], text.number)
    return (
        f"{source} gives ε = {claimed}{of}, {whom}: {names.holding(stated)} there. "
        f"Provable: {_provable(stated, names, names.whose(stated))}. "
        f"Read {elsewhere}, too, of whom it says nothing, {names.holding(others)} "
        f"({text.span(_rigorous(others), text.epsilon)})."
    )


def _common_reason(claims: Sequence[Claim], told: Sequence[str]) -> list[str]:
    """The first reason that all claims of a source share, as a sentence; [] where any of them holds."""
    shared = [set(claim.why.rstrip(".").split("; ")) for claim in claims]
    first = claims[0].why.rstrip(".").split("; ")[0]
    if not first or any(first in said for said in told) or any(claim.holds for claim in claims):
        return []
    return [text.sentence(first)] if all(first in reasons for reasons in shared) else []


def _provable(claims: Sequence[Claim], names: PairNames, told: str) -> str:
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
        said.append(f"{text.span(_rigorous(found), text.epsilon)} {towards}{only}")
    return text.join_names(said)


def _rigorous(claims: Sequence[Claim]) -> list[float]:
    """The rigorous ε of each claim."""
    return [claim.rigorous_epsilon for claim in claims]
