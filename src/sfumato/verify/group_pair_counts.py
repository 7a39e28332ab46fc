"""Whether every pair of a worker and an observer in groups is counted in a row that bounds it.

Pairs are told apart by the position of the unit in the groups, by whether the observer is a master, and by
whether it is near: the master of a group of the unit, or a worker in a common group. Every such circle of
pairs is counted by itself, and a row counts pairs of its own circle only. Of these

- a row of one kind counts those that are charged like its own, both once everything upstream is exposed and
  where only what the observer receives is;
- a row of several kinds counts those with workers that are in groups of its observer only. Such a worker
  receives nothing that the row's observer does not, so the row bounds the pair (docs/leakage.md, "Rows that
  stand for several observers").

A pair may be counted in more than one row by these rules. The rows are right only if the pairs can be dealt
out so that each is in one row and every row gets as many as it states: if a flow from the rows to the pairs
through what each may count, as large as all counts together, exists.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from sfumato.verify import read
from sfumato.verify.folded_rows import is_folded
from sfumato.verify.group_pairs import CheckedGroupPairs
from sfumato.verify.parties import Party, kind_and_index
from sfumato.verify.read import Json


class _Counted(NamedTuple):
    """What one row states: a row of privacy.json, its number of pairs, and the places that it may count."""

    row: Json
    pairs: int
    places: frozenset[Any]


def group_count_problems(rows: Sequence[Json], pairs: CheckedGroupPairs) -> Iterator[str]:
    """Yield a line where a pair is in no row that bounds its ε, or rows stand for more pairs than there are.

    Args:
        rows: all rows of privacy.json about one kind of unit towards one observer.
        pairs: classes of pairs of the groups.
    """
    if any(map(is_folded, rows)) and not pairs.observers_may_fold:
        yield "privacy.json: kinds_of_pairs: in these groups no observer stands for others"
        return
    there: defaultdict[Any, Counter[Any]] = defaultdict(Counter)
    charged_like: defaultdict[Any, set[Any]] = defaultdict(set)
    for kind, unit in enumerate(pairs.first):
        for observer, count in pairs.observers_of(unit):
            circle, place = _circle_of(pairs, unit, observer), pairs.place_of(unit, observer)
            there[circle][place] += int(pairs.facts.sizes[kind]) * count
            charged_like[circle, pairs.key_of(unit, observer)].add(place)
    stated: defaultdict[Any, list[_Counted]] = defaultdict(list)
    for row in rows:
        unit, observer = kind_and_index(row["unit"])[1], pairs.facts.party_named(row["observer"])
        circle = _circle_of(pairs, unit, observer)
        if not is_folded(row):
            places = charged_like[circle, pairs.key_of(unit, observer)]
        elif observer[0] == "device":
            places = pairs.places_that_see_no_more(unit, observer)
        else:
            yield f"privacy.json: kinds_of_pairs: {row['observer']}: a master stands for no other observer"
            return
        stated[circle].append(_Counted(row, read.count(row["stands_for"]), frozenset(places)))
    for circle in there.keys() | stated.keys():
        yield from _problems_of_circle(stated[circle], there[circle])


def _circle_of(pairs: CheckedGroupPairs, unit: int, observer: Party) -> Any:
    """A hashable key of the class of units, of whether the observer is a master, and whether it is near."""
    return *pairs.place_of(unit, observer)[:2], pairs.facts.is_near(unit, observer)


def _problems_of_circle(stated: Sequence[_Counted], there: Counter[Any]) -> Iterator[str]:
    """Yield a line where the pairs ``there``, by place, cannot be dealt out to rows as ``stated``."""
    who = "no row (pairs are left out)"
    if stated:
        who = f"{stated[0].row['unit']} towards {stated[0].row['observer']}"
    total = sum(counted.pairs for counted in stated)
    if total != there.total():
        yield f"privacy.json: stands_for: pairs placed like {who}: stated {total}; there are {there.total()}"
        return
    for counted in stated:
        most = sum(there[place] for place in counted.places)
        if counted.pairs > most:
            row = counted.row
            found = f"stated {counted.pairs}; it can stand for {most} at most"
            yield f"privacy.json: stands_for: {row['unit']} towards {row['observer']}: {found}"
            return
    if left := total - _most_dealt_out(stated, there):
        yield f"privacy.json: stands_for: pairs placed like {who}: {left} are in no row that bounds them"


def _most_dealt_out(stated: Sequence[_Counted], there: Counter[Any]) -> int:
    """How many of the pairs ``there`` can be in rows that may count them, with no row beyond its count.

    ``stated``: the rows; ``there``: number of pairs by place.

    Raises:
        ValueError: there are more pairs than SciPy's flows can count.
    """
    rows = Counter[frozenset[Any]]()  # rows that may count the same pairs are one
    for counted in stated:
        rows[counted.places] += counted.pairs
    unit = math.gcd(*rows.values(), *there.values()) or 1
    if there.total() // unit > np.iinfo(np.int32).max:
        raise ValueError(f"stands_for: {there.total()} pairs of one class are too many for this checker")
    number = {place: 1 + len(rows) + i for i, place in enumerate(there)}
    sink = 1 + len(rows) + len(there)
    edges = [(0, i, pairs) for i, pairs in enumerate(rows.values(), 1)]
    edges += [(number[place], sink, count) for place, count in there.items()]
    edges += [
        (i, number[place], min(pairs, there[place]))
        for i, (places, pairs) in enumerate(rows.items(), 1)
        for place in places
    ]
    tails, heads, counts = np.array(edges, dtype=np.int64).T
    capacity = csr_array(((counts // unit).astype(np.int32), (tails, heads)), shape=(sink + 1, sink + 1))
    return int(maximum_flow(capacity, 0, sink).flow_value) * unit
