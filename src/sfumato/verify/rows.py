"""One row of privacy.json and its certificate: the exposed set, the charge and ε of every bound."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sfumato.verify import read
from sfumato.verify.comparison import ROUNDING, mismatch_of, nearly_equal
from sfumato.verify.drawn_noise import mixture_problems, outcome_problems
from sfumato.verify.draws import (
    Draw,
    read_draw,
    same_terms,
    stated_term,
    term_of_record,
    terms_of_draws,
    terms_without_replacement,
)
from sfumato.verify.elections import election_problems, terms_of_office, zone_that_may_elect
from sfumato.verify.epsilon import epsilon_problems, require_known_kinds
from sfumato.verify.facts import CertifiedBound, Facts
from sfumato.verify.group_exposures import CheckedGroups
from sfumato.verify.loss_curves import Event
from sfumato.verify.moving_exposures import CheckedMovingTree
from sfumato.verify.parties import Party, is_within_device, kind_and_index
from sfumato.verify.read import Json
from sfumato.verify.records import record_problems
from sfumato.verify.tree_exposures import CheckedTree

SAME_COST = 1e-5
"""Relative difference of μ² of two exposed sets that cost the same."""


def row_problems(row: Json, cert: Json, spec: Json, facts: Facts, table: Sequence[Json]) -> Iterator[str]:
    """Yield a line for each mismatch in one row of privacy.json and its certificate.

    Args:
        row: of privacy.json.
        cert: its certificate of ledger.json.
        spec: contents of spec.yaml.
        facts: of ledger.json.
        table: all releases of ledger.json, which certificates name by index.
    """
    relation = spec["privacy"].get("neighbours", "zero-out")
    yield from mismatch_of("relation", cert["relation"], relation)
    if (cert["unit"], cert["observer"]) != (row["unit"], row["observer"]):
        yield f"certificate: it is about {cert['unit']} towards {cert['observer']}"
        return
    if cert["bounds"].keys() != row["bounds"].keys():
        yield f"bounds: the row has {', '.join(row['bounds'])}; its certificate {', '.join(cert['bounds'])}"
        return
    yield from _stated_epsilon_problems(row)
    coalition = [facts.party_named(name) for name in row["observer"].split(",")]
    unit = kind_and_index(row["unit"])[1]
    if isinstance(facts, CheckedGroups):
        trusted = any(facts.trusts(unit, party) for party in coalition)
        if row.get("trusted", False) != trusted:
            yield f"trusted: the row says {row.get('trusted')}; the facts give {trusted}"
    yield from _observer_kind_problems(row, facts, unit, coalition)
    if row.get("as_seen_by") != cert.get("as_seen_by"):
        yield f"as_seen_by: the row says {row.get('as_seen_by')}, its certificate {cert.get('as_seen_by')}"
        return
    if "as_seen_by" in row:  # what a larger coalition learns at most, each of its parts learns at most
        larger = [facts.party_named(name) for name in row["as_seen_by"].split(",")]
        if not set(coalition) <= set(larger):
            yield f"as_seen_by: {row['as_seen_by']} does not contain {row['observer']}"
            return
        coalition = larger
    if any((kind, index) == ("device", unit) for kind, _, index in coalition):
        yield "observer: the unit observes itself"
    is_record = is_within_device(row)
    for name, held in cert["bounds"].items():
        stated = row["bounds"][name]
        yield from mismatch_of(f"{name}: ε", read.figure(held["epsilon"]), read.figure(stated["epsilon"]))
        yield from mismatch_of(
            f"{name}: releases", read.count(held["releases"]), read.count(stated["releases"])
        )
        if "exposed" in stated:
            listed = held.get("exposed_aggregations", held.get("exposed_releases_per_group"))
            yield from mismatch_of(f"{name}: exposed", listed, stated["exposed"])
            gaps = _gap_problems(stated, facts, unit, coalition, row["unit"], relation)
            yield from (f"{name}: {problem}" for problem in gaps)
        for key in ("method", "neighbours") if name == row["bound"] else ():
            yield from mismatch_of(f"{name}: {key}", held[key], row[key])
        draws = [read_draw(draw, table) for draw in held["draws"]]
        bound = CertifiedBound(name, held, draws, table, spec, facts, unit, coalition, is_record)
        yield from (f"{name}: {problem}" for problem in _bound_problems(bound, read.figure(cert["delta"])))


def _stated_epsilon_problems(row: Json) -> Iterator[str]:
    """Yield a line where a row's ε is not the smallest of its bounds, or not the largest of its range."""
    stated, named = read.figure(row["epsilon"]), row["bounds"][row["bound"]]["epsilon"]
    best = min(read.figure(bound["epsilon"]) for bound in row["bounds"].values())
    if not nearly_equal(stated, read.figure(named)):
        yield f"ε: the row says {row['epsilon']}, its bound {row['bound']} {named}"
    if stated < best * (1 - ROUNDING):
        yield f"ε: the row says {row['epsilon']}; its smallest bound is {best}"
    if "epsilon_range" in row and read.figure(row["epsilon_range"][1]) != stated:
        yield f"epsilon_range: its largest is {row['epsilon_range'][1]}; the row says {row['epsilon']}"


def _observer_kind_problems(row: Json, facts: Facts, unit: int, coalition: Sequence[Party]) -> Iterator[str]:
    """Yield a line where ``observer_kind`` of a row (own-edge, peer, …) is not what the facts give.

    Nothing for a row that was asked for, which may be about any pair.

    Args:
        row: of privacy.json.
        facts: of the network.
        unit: index of the device.
        coalition: the observers of the row.
    """
    (kind, tier, _), near = coalition[0], facts.is_near(unit, coalition[0])
    wanted = ("own-edge" if near else "other-edge") if tier else "cloud"
    if kind in ("public", "device"):
        wanted = "public" if kind == "public" else "peer" if near else "other-device"
    stated = row.get("observer_kind", "asked-for")  # earlier versions left it out
    if stated != "asked-for" and (len(coalition) > 1 or stated != wanted):
        yield f"observer_kind: the row says {stated}; the facts give {wanted}"


def _gap_problems(
    stated: Json, facts: Facts, unit: int, coalition: Sequence[Party], name: str, relation: str
) -> Iterator[str]:
    """Yield a line where an exposed set is further from the cheapest one than its ``gap`` says.

    Every other set that may be charged is compared by μ²: `is_gap_checked` says where all are tried.

    Args:
        stated: a bound of the row, with ``exposed``, ``gap`` and ``certified``.
        facts: of ledger.json.
        unit: index of the device.
        coalition: who observes it.
        name: the row's unit; nothing is compared unless it is a device.
        relation: ``zero-out``, ``remove`` or ``replace``.
    """
    gap = read.figure(stated["gap"])
    if not gap >= 1:
        yield f"gap: {gap}; it is at least 1"
    if read.flag(stated["certified"]) != (gap == 1):
        yield f"certified: {stated['certified']}; with a gap of {gap} it is {gap == 1}"
    if not name.startswith("device:") or isinstance(facts, CheckedMovingTree):
        return
    first = 1 if isinstance(facts, CheckedTree) else 0  # aggregations are counted from 1
    charged = [read.count(one) - first for one in stated["exposed"]]
    mine = facts.squared_mu_of_set(charged, unit, coalition, relation)
    for exposed in facts.exposable_sets(unit, coalition)[0] if mine is not None else ():
        other = facts.squared_mu_of_set(exposed, unit, coalition, relation)
        if mine is not None and other is not None and mine > gap * other * (1 + SAME_COST):
            listed = [one + first for one in exposed]
            yield f"gap: stated {gap:.9g}; μ² of the set is {mine:.9g}, that of {listed} is {other:.9g}"
            return


def is_gap_checked(row: Json, facts: Facts) -> bool:
    """Whether `row_problems` compares the set that a row charges with all sets that may be exposed."""
    if not any("exposed" in bound for bound in row["bounds"].values()):
        return True
    if not row["unit"].startswith("device:") or isinstance(facts, CheckedMovingTree):
        return False
    unit, coalition = kind_and_index(row["unit"])[1], [*map(facts.party_named, row["observer"].split(","))]
    sets, all_of_them = facts.exposable_sets(unit, coalition)
    has_costs = len(sets) == 1 or facts.squared_mu_of_set(sets[0], unit, coalition, "zero-out") is not None
    return all_of_them and has_costs


def _bound_problems(bound: CertifiedBound, delta: float) -> Iterator[str]:
    """Yield a line for each mismatch in the exposed set, the charge or the ε (at ``delta``) of one bound."""
    cert, draws, facts, zone = bound.cert, bound.draws, bound.facts, None
    released = sum(draw.count * len(draw.releases) for draw in draws)
    if isinstance(facts, CheckedTree) and read.figure(facts.ledger["elections_per_round"]):
        bound = bound._replace(coalition=facts.with_whoever_is_elected(bound.unit, bound.coalition))
        zone = zone_that_may_elect(facts, bound.coalition)
    if zone is None or not isinstance(facts, CheckedTree):
        yield from bound.exposure_problems()
    else:
        found = [*election_problems(bound, facts, zone)]
        yield from found
        if found:
            return
        once = (facts.flow if bound.name == "flow" else facts.cut)(bound.unit, bound.coalition)
        released = read.count(facts.ledger["rounds"]) * len(once)
    record = cert.get("record")
    if record and zone is not None:
        yield "record: no draw of records amplifies where a member may be elected"
    if record:
        yield from record_problems(bound)
    parts = record["parts"] if record else []
    own_count = sum(read.count(part["count"]) * len(part["releases"]) for part in parts)
    counted = not (bound.is_record and bound.name == "flow") and not any(
        release["vector"].startswith("messages of ") for draw in draws for release in draw.releases
    )
    if read.count(cert["releases"]) not in {released, own_count} and counted:
        yield f"releases: stated {cert['releases']}; the exposed set has {released}"
    yield from _charge_problems(bound, delta)


def _charge_problems(bound: CertifiedBound, delta: float) -> Iterator[str]:
    """Yield a line where a bound's terms do not follow from its releases, or its ε from its terms.

    ``delta``: at which ε is stated.
    """
    cert, draws, table = bound.cert, bound.draws, bound.table
    stated = tuple(stated_term(term) for term in cert["terms"])
    require_known_kinds(stated)
    derived, failure, under = terms_from_releases(cert, stated, draws, bound.spec, table, bound.is_record)
    yield from mismatch_of("composed_under", cert["composed_under"], under)
    claimed = read.figure(cert["failure_probability"])
    if cert.get("chances"):
        chances = read.figures(cert["chances"]).tolist()
        yield from outcome_problems(draws, chances, under, cert["terms"], claimed)
        derived, failure = stated, claimed
    elif cert.get("elections"):
        more, beside = terms_of_office(cert["elections"], table, under)
        derived, failure = (*derived, *more), failure + beside
    elif any(draw.drawn_noise for draw in draws) and not cert.get("record") and failure < 1:
        widened = 4.0 if bound.is_record and under != "replace" else 1.0  # as in `terms_from_releases`
        yield from mixture_problems(draws, under, widened, cert["terms"], claimed)
        derived, failure = stated, claimed
    if not same_terms(stated, derived):
        yield "terms: what was composed does not follow from the releases and draws of the certificate"
    if not nearly_equal(claimed, failure):
        yield f"failure_probability: stated {claimed}; it is {failure}"
    yield from epsilon_problems(cert, derived, failure, delta)


def terms_from_releases(
    cert: Json, stated: Sequence[Event], draws: Sequence[Draw], spec: Json, table: Sequence[Json],
    is_record: bool,
) -> tuple[tuple[Event, ...], float, str]:  # fmt: skip
    """Derive the terms to compose from a certificate's releases.

    Args:
        cert: what the certificate states of one bound.
        stated: the certificate's terms; they say if draws are charged without replacement.
        draws: the certificate's draws.
        spec: contents of spec.yaml.
        table: all releases.
        is_record: whether the unit is a record or a person.

    Returns:
        The terms, the probability that nothing protects, and the relation that the terms hold for.
    """
    relation = under = spec["privacy"].get("neighbours", "zero-out")
    if is_record:
        under = "replace" if relation == "replace" else "zero-out"
        if not draws:  # nothing of the device is received, under any relation
            stated_under = str(cert["composed_under"])
            return (), 0.0, stated_under if stated_under in ("replace", "zero-out") else under
        if record := cert.get("record"):
            parts, rate = record["parts"], read.figure(record["rate"])
            failure = math.fsum(
                read.count(part["count"]) * read.figure(part.get("beyond", 0.0)) for part in parts
            )
            found = [[table[i] for i in read.counts(part["releases"])] for part in parts]
            terms = [term_of_record(part, own, rate, under) for part, own in zip(parts, found, strict=True)]
            return tuple(terms), min(1.0, failure), under
        if spec.get("control") and under == "zero-out":
            terms, failure = terms_of_draws(draws, "zero-out")  # a filter holds the budget of the device
            return tuple(replace(term, square=4 * term.square) for term in terms), failure, "zero-out"
        under = "replace"
    if any(term.kind == "fixed" for term in stated) and relation != "remove":
        return tuple(terms_without_replacement(draws, under)), 0.0, under
    terms, failure = terms_of_draws(draws, under)
    return tuple(terms), failure, under
