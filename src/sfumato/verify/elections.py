"""Observers that may be elected: the outcomes of a round, or what a term of office adds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sfumato.verify import read
from sfumato.verify.comparison import nearly_equal
from sfumato.verify.draws import squared_mu_of_release
from sfumato.verify.facts import CertifiedBound
from sfumato.verify.loss_curves import Event, chance_of_any
from sfumato.verify.parties import Party
from sfumato.verify.read import Json, UnknownKindError
from sfumato.verify.releases import release_problems, sampling_problems
from sfumato.verify.tree_exposures import CheckedTree


class ElectableZone(NamedTuple):
    """The probability that a leaf elects a member in a round, and the supernode."""

    chance: float
    node: Party


def zone_that_may_elect(facts: CheckedTree, coalition: Sequence[Party]) -> ElectableZone | None:
    """The only zone that may elect a member of ``coalition`` as its supernode; ``None`` if there is none.

    Raises:
        UnknownKindError: members are in several zones.
    """
    chances = facts.chances_of_office(coalition)
    if len(chances) > 1:
        raise UnknownKindError("elections: this checker has no rule for members in several zones")
    return next((ElectableZone(p, ("node", facts.depth - 1, leaf)) for leaf, p in chances.items()), None)


def election_problems(bound: CertifiedBound, facts: CheckedTree, zone: ElectableZone) -> Iterator[str]:
    """Yield a line for each mismatch in the certificate of an observer that may be elected supernode.

    A certificate has one of three forms: outcomes of a round's election (``chances``), what a term of office
    adds (``elections``), or neither: then every round is charged as if a member were in office.
    """
    cert, coalition, elected = bound.cert, bound.coalition, [*bound.coalition, zone.node]
    plain = bound._replace(cert={**cert, "chances": None, "elections": None})
    if cert.get("chances") and cert.get("elections"):
        yield "elections: outcomes and terms of office are two ways of charging"
    elif cert.get("chances"):
        wanted = [(1 - zone.chance, coalition)] * (zone.chance < 1) + [(zone.chance, elected)]
        stated = read.figures(cert["chances"]).tolist()
        if (len(stated), len(bound.draws)) != (len(wanted), len(wanted)):
            yield f"elections: {len(stated)} outcomes of {len(bound.draws)} draws; a round has {len(wanted)}"
            return
        for place, (chance, (least, members)) in enumerate(zip(stated, wanted, strict=True)):
            where = f"elections: outcome {place}"
            if not nearly_equal(chance, least):
                yield f"{where}: probability stated {chance:.9g}; the facts give {least:.9g}"
            outcome = plain._replace(draws=[bound.draws[place]], coalition=members)
            yield from (f"{where}: {problem}" for problem in outcome.exposure_problems())
    elif cert.get("elections"):
        yield from _term_of_office_problems(bound, facts, zone)
    else:
        yield from plain._replace(coalition=elected).exposure_problems()


def _term_of_office_problems(bound: CertifiedBound, facts: CheckedTree, zone: ElectableZone) -> Iterator[str]:
    """Yield a line where a certificate with ``elections`` does not charge the releases that the facts give.

    These are, for every round, what is met out of office, and beside it the further releases of a term of
    office with its probability. ``zone``: the one that may elect a member.
    """
    table, unit, coalition = bound.table, bound.unit, bound.coalition
    rounds = read.count(facts.ledger["rounds"])
    charged = facts.flow if bound.name == "flow" else facts.cut
    in_office, out_of_office = charged(unit, [*coalition, zone.node]), charged(unit, coalition)
    stated, events = [release for draw in bound.draws for release in draw.releases], bound.cert["elections"]
    if len(bound.draws) != 1 or len(events) != 1 or len(stated) != len(out_of_office):
        yield "elections: there must be one draw of what is met out of office, and one zone that may elect"
        return
    (draw,), (event,) = bound.draws, events
    sampling, ratio = facts.sampling_seen_by(unit, coalition)
    if sampling["kind"] != "all":  # whoever may be elected is charged as if every draw were seen
        sampling = {"kind": "poisson", "rate": sampling["rate"], "hidden": False}
    yield from sampling_problems(draw, sampling, rounds, ratio)
    if draw.drawn_noise:
        yield "drawn noise: counts for nothing beside terms of office"
    for mine, theirs in zip(stated, out_of_office, strict=True):
        yield from release_problems(mine, theirs)
    if not nearly_equal(read.figure(event["probability"]), zone.chance):
        yield f"elections: probability stated {event['probability']}; the facts give {zone.chance:.9g}"
    if read.count(event["rounds"]) != rounds:
        yield f"elections: {event['rounds']} rounds; there are {rounds}"
    if len(event["pairs"]) != 1:
        yield f"elections: {len(event['pairs'])} pairs of rounds in office and out of it; there is one"
        return
    in_it, out_of_it = ([table[read.count(place)] for place in listed] for listed in event["pairs"][0])
    for what, held, wanted in (("in office", in_it, in_office), ("out of office", out_of_it, out_of_office)):
        if len(held) != len(wanted):
            yield f"elections: {what}: {len(held)} releases; the observer meets {len(wanted)}"
            continue
        for mine, theirs in zip(held, wanted, strict=True):
            yield from (f"elections: {what}: {one}" for one in release_problems(mine, theirs))
    if out_of_it != stated:
        yield "elections: out of office: must be the releases that are charged in every round"


def terms_of_office(
    events: Sequence[Json], table: Sequence[Json], relation: str
) -> tuple[list[Event], float]:
    """What terms of office add to μ², as `Event` terms of draws that are seen.

    Args:
        events: the certificate's ``elections``: probability a round, rounds, and releases in and out of
            office.
        table: all releases, which events name by index.
        relation: ``zero-out``, ``remove`` or ``replace``.

    Returns:
        The terms, and the probability that a term of office ever shows something that has no noise.
    """
    terms: list[Event] = []
    failure = 0.0
    for event in events:
        chance, rounds = read.figure(event["probability"]), read.count(event["rounds"])
        more, less = (
            math.fsum(squared_mu_of_release(table[read.count(i)], relation) for i in listed)
            for listed in event["pairs"][0]
        )
        if math.isinf(more) and math.isfinite(less):
            failure += chance_of_any(chance, rounds)
        elif more > less:
            seen = ("revealed", chance) if chance < 1 else ()
            terms.append(Event(more - less, rounds, *seen))
    return terms, failure
