"""Rows that stand for pairs of several kinds in a tree: whether each is charged no more than its row.

A pair is charged no more if its releases, of the set that the row charges, amount to no more: what always
uses the unit by μ² in all, what is drawn term by term, at no larger a rate. Of observers that are placed
alike towards a unit, the one that knows most noise in every sum that they receive stands for the others.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from sfumato.verify import read
from sfumato.verify.comparison import ROUNDING
from sfumato.verify.draws import Draw, terms_of_draws, terms_without_replacement
from sfumato.verify.loss_curves import Event
from sfumato.verify.parties import Party, kind_and_index
from sfumato.verify.read import Json
from sfumato.verify.tree_exposures import CheckedTree
from sfumato.verify.tree_pairs import CheckedTreePairs

Amount = tuple[list[Event], float]
"""Terms, and the probability that nothing protects."""


def is_folded(row: Json) -> bool:
    """Whether a row of privacy.json stands for pairs of several kinds (its ``kinds_of_pairs`` is above 1)."""
    return read.count(row.get("kinds_of_pairs", 1)) > 1


class FoldedRows:
    """The rows of a tree that stand for several kinds of pairs."""

    def __init__(self, facts: CheckedTree, pairs: CheckedTreePairs, relation: str) -> None:
        self.facts, self.pairs, self.relation = facts, pairs, relation
        self._known = lru_cache(None)(self._noise_known)
        self._device_of_class = [self._first_device(number) for number in range(len(facts.class_leaf))]

    def problems(self, rows: Sequence[Json], left: Counter[Any], units: dict[Any, int]) -> Iterator[str]:
        """Yield a line where a row stands for other pairs than are left, or is charged less than one of them.

        Args:
            rows: rows of privacy.json about devices that stand for several kinds of pairs.
            left: number of pairs of each kind that no other row stands for.
            units: one device of each kind of units.
        """
        placed: defaultdict[Any, list[Json]] = defaultdict(list)
        for row in rows:
            key = self.pairs.key_of(kind_and_index(row["unit"])[1], self.facts.party_named(row["observer"]))
            placed[_place_of(key)].append(row)
        there: defaultdict[Any, list[Any]] = defaultdict(list)
        for key in left:
            there[_place_of(key)].append(key)
        for place in placed.keys() | there.keys():
            some, keys = placed[place], there[place]
            wanted = sum(left[key] for key in keys)
            stated = sum(read.count(row["stands_for"]) for row in some)
            kinds = sum(read.count(row["kinds_of_pairs"]) for row in some)
            if (stated, kinds) != (wanted, len(keys)):
                who = f"{some[0]['unit']} towards {some[0]['observer']}" if some else "no row"
                found = f"stated {stated} of {kinds} kinds; there are {wanted} of {len(keys)}"
                yield f"privacy.json: stands_for: pairs placed like {who}: {found}"
                continue
            for unit, observer in self._worst_pairs(keys, units):
                if not any(self._is_covered_by(row, unit, observer) for row in some):
                    yield (
                        f"privacy.json: device:{unit} towards {observer}: it is charged more than "
                        f"{some[0]['unit']} towards {some[0]['observer']}, which stands for it"
                    )

    def _worst_pairs(self, keys: Sequence[Any], units: dict[Any, int]) -> Iterator[tuple[int, Party]]:
        """Yield (unit, observer) pairs such that every pair of ``keys`` is charged no more than one of them.

        Args:
            keys: kinds of pairs whose observers are placed alike.
            units: a device of each kind of units.
        """
        observers: defaultdict[Any, list[Party]] = defaultdict(list)
        for key in keys:
            observers[key[0]].append(self._observer_of(key, units[key[0]]))
        for mine, some in observers.items():
            unit = units[mine]
            if len(some) == 1 or self.facts.is_near(unit, some[0]):
                yield from ((unit, one) for one in some)
                continue
            known = [np.array(self._known(one, self.facts.lowest_common_tier(unit, one))) for one in some]
            worst = max(range(len(some)), key=lambda place: float(known[place].sum()))
            allowed = known[worst] * (1 + ROUNDING)
            yield from (
                (unit, one)
                for place, one in enumerate(some)
                if place == worst or not (known[place] <= allowed).all()
            )

    def _observer_of(self, key: Any, unit: int) -> Party:
        """One observer that forms with ``unit`` a pair of the kind ``key``.

        Raises:
            ValueError: there is none.
        """
        facts, who = self.facts, key[1]
        if who == "public":
            return "public", 0, 0
        _, _, common, tier, alike, *kind = key
        path = facts.paths[facts.leaf_of(unit)]
        if common == tier:
            node = int(path[tier])
        else:
            node = next(
                int(one)
                for one in np.flatnonzero(self.pairs.alike[tier] == alike)
                if facts.ancestor(tier, int(one), common) == path[common]
                and facts.ancestor(tier, int(one), common + 1) != path[common + 1]
            )
        if who == "node":
            return "node", tier, node
        for number in np.flatnonzero(facts.class_leaf == node):
            device = self._device_of_class[int(number)]
            if self.pairs.kinds[int(number)] == kind[0]:
                return "device", facts.depth, device if device != unit else self._first_device(int(number), 1)
        raise ValueError(f"there is no device like {key}")

    def _first_device(self, number: int, after: int = 0) -> int:
        """Index of the first device of the class ``number``, or of the one ``after`` places later."""
        facts = self.facts
        if facts.ledger.get("class_per_device") is not None:
            return int(np.flatnonzero(facts.class_per_device == number)[after])
        return int(facts.last[number]) - int(facts.devices[number]) + after

    def _noise_known(self, observer: Party, common: int) -> tuple[float, ...]:
        """Noise variance that an observer knows in the sums with a far unit's message, by aggregation.

        The unit is any whose lowest common aggregator with it is on tier ``common``: all such meet the same.
        Only aggregations on that tier or above are listed.
        """
        facts = self.facts
        tier, node = facts.node_of(observer)
        top, own = facts.ancestor(tier, node, common), facts.ancestor(tier, node, common + 1)
        leaf = next(
            number
            for number, path in enumerate(facts.paths)
            if path[common] == top and path[common + 1] != own
        )
        unit, found = int(facts.last[leaf] - facts.devices[leaf]), []
        for number, step in enumerate(facts.steps):
            at = read.count(step["aggregating_tier"])
            if at <= common:
                one, none = (
                    facts.variance_unknown_to(number, unit, some, at, True).sum() for some in ([observer], [])
                )
                found.append(float(none - one))
        return tuple(found)

    def _is_covered_by(self, row: Json, unit: int, observer: Party) -> bool:
        """Whether (``unit``, ``observer``) is charged no more than ``row``, in every way of charging."""
        if math.isinf(read.figure(row["epsilon"])):
            return True
        of_row = kind_and_index(row["unit"])[1], self.facts.party_named(row["observer"])
        bound = str(row["bound"])
        listed = row["bounds"][bound].get("exposed", ())
        exposed = tuple(read.count(one) - 1 for one in listed)
        charges = self._charges(*of_row, bound, exposed)
        own = self._charges(unit, observer, bound, exposed)
        return len(charges) == len(own) and all(map(_is_at_most, own, charges))

    def _charges(self, unit: int, observer: Party, bound: str, exposed: Sequence[int]) -> list[Amount]:
        """The terms and failure probability of a pair's bound, in each way in which it may be charged.

        Args:
            unit: index of the device.
            observer: who observes it.
            bound: ``flow``, ``cut`` or ``min-cost``.
            exposed: aggregations of a round that ``min-cost`` exposes, from 0.

        Returns:
            One entry a way; [] where this set may not be charged for the pair.
        """
        facts, coalition = self.facts, [observer]
        steps = facts.sending_steps(facts.leaf_of(unit))
        if bound == "cut":
            steps = facts.seen_steps(unit, coalition)
        elif bound == "min-cost":
            steps = list(exposed)
        if any(facts.exposed_problems(steps, unit, coalition)):
            return []
        releases = tuple(
            {
                "name": one.name,
                "vector": one.vector,
                "own_sensitivity": one.own,
                "propagated_sensitivity": one.others,
                "variance": float(one.noise.sum()),
                "noise_is_draw_independent": one.draw_independent,
                "divides_by_drawn": one.divides_by_drawn,
            }
            for one in facts.releases_between(unit, coalition, steps)
        )
        sampling, ratio = facts.sampling_seen_by(unit, coalition)
        draws = [Draw(sampling, read.count(facts.ledger["rounds"]), releases, ratio)]
        found = [terms_of_draws(draws, self.relation)]
        if sampling["kind"] == "fixed" and self.relation != "remove":
            found.append((terms_without_replacement(draws, self.relation), 0.0))
        return found


def _place_of(key: Any) -> Any:
    """The part of a pair's key that says who observes and how near it is to the unit."""
    return key[1:4]


def _is_at_most(own: Amount, other: Amount) -> bool:
    """Whether ``own`` surely has no more ε than ``other``.

    It has if its failure is no likelier, its summed μ² of terms that are not drawn no more, and if its drawn
    terms, one by one, have no larger μ² and rate.
    """
    (terms, failure), (others, most) = own, other
    certain, of_other = (
        math.fsum(term.count * term.square for term in some if term.kind == "unsampled")
        for some in (terms, others)
    )
    drawn, drawn_of_other = ([t for t in some if t.kind != "unsampled"] for some in (terms, others))
    return (
        failure <= most
        and certain <= of_other * (1 + ROUNDING)
        and len(drawn) == len(drawn_of_other)
        and all(map(_is_term_at_most, drawn, drawn_of_other))
    )


def _is_term_at_most(term: Event, other: Event) -> bool:
    """Whether a drawn term has no larger μ² and rate than another of the same kind, count and detail."""
    return (
        (term.kind, term.count, term.detail) == (other.kind, other.count, other.detail)
        and term.square <= other.square * (1 + ROUNDING)
        and term.rate <= other.rate * (1 + ROUNDING)
    )
