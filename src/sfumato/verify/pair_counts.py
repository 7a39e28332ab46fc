"""Whether rows stand for every pair as often as there are such pairs, for every rate and every site."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sfumato.verify import read
from sfumato.verify.comparison import ROUNDING
from sfumato.verify.facts import Facts
from sfumato.verify.folded_rows import FoldedRows, is_folded
from sfumato.verify.group_pair_counts import group_count_problems
from sfumato.verify.group_pairs import CheckedGroupPairs
from sfumato.verify.moving_exposures import CheckedMovingTree
from sfumato.verify.moving_pairs import CheckedMovingPairs
from sfumato.verify.parties import is_within_device, kind_and_index
from sfumato.verify.read import Json
from sfumato.verify.spec_settings import places_of_named_sites
from sfumato.verify.tree_exposures import CheckedTree
from sfumato.verify.tree_pairs import CheckedTreePairs


def pair_problems(
    rows: Sequence[Json], facts: Facts, relation: str, sites: Mapping[int, str]
) -> Iterator[str]:
    """Yield a line where rows stand for more or fewer pairs of a unit and an observer than there are.

    Args:
        rows: rows of privacy.json about one kind of unit (devices, records or persons).
        facts: of ``ledger.json``.
        relation: ``zero-out``, ``remove`` or ``replace``.
        sites: site of each device, by index.
    """
    if isinstance(facts, CheckedMovingTree):
        moving = CheckedMovingPairs(facts, relation)
        yield from moving.problems(rows)
        yield from _record_rate_and_site_problems(rows, facts, moving, sites)
        return
    of_one = [row for row in rows if "," not in row["observer"]]
    for row in rows:
        if "," in row["observer"]:
            yield f"privacy.json: {row['unit']} towards {row['observer']}: is no pair with one observer"
    pairs = CheckedTreePairs(facts) if isinstance(facts, CheckedTree) else CheckedGroupPairs(facts)
    if not all(_is_of_device(row) for row in of_one if is_folded(row)):
        yield "privacy.json: kinds_of_pairs: only rows about devices stand for several kinds"
    elif isinstance(pairs, CheckedTreePairs):
        yield from _tree_count_problems(of_one, pairs, relation)
    else:
        yield from group_count_problems(of_one, pairs)
    yield from _record_rate_and_site_problems(rows, facts, pairs, sites)


def _tree_count_problems(rows: Sequence[Json], pairs: CheckedTreePairs, relation: str) -> Iterator[str]:
    """Yield a line where rows do not stand for every pair of a tree that stays as often as it is there.

    Args:
        rows: rows of privacy.json about one kind of unit towards one observer.
        pairs: classes of pairs of the tree.
        relation: ``zero-out``, ``remove`` or ``replace``.
    """
    folded, facts = [row for row in rows if is_folded(row)], pairs.facts
    stated, named = Counter[Any](), dict[Any, str]()
    for row in rows:
        if not is_folded(row):
            pair = pairs.key_of(kind_and_index(row["unit"])[1], facts.party_named(row["observer"]))
            stated[pair] += read.count(row["stands_for"])
            named.setdefault(pair, f"{row['unit']} towards {row['observer']}")
    wanted, of_kind = Counter[Any](), dict[Any, int]()
    for units, found in pairs.unit_classes():
        if folded:
            of_kind.update({pair[0]: units[0] for pair in found})
        wanted.update({pair: len(units) * count for pair, count in found.items()})
    if folded:
        left = Counter({pair: count for pair, count in wanted.items() if pair not in stated})
        yield from FoldedRows(facts, pairs, relation).problems(folded, left, of_kind)
        wanted = Counter({pair: count for pair, count in wanted.items() if pair in stated})
    for pair in stated.keys() | wanted.keys():
        if stated[pair] != wanted[pair]:
            who = named.get(pair, "no row (a pair is left out)")
            stands_for = f"stated {stated[pair]}; there are {wanted[pair]}"
            yield f"privacy.json: stands_for: pairs like {who}: {stands_for}"


def _record_rate_and_site_problems(
    rows: Sequence[Json],
    facts: Facts,
    pairs: CheckedTreePairs | CheckedGroupPairs | CheckedMovingPairs,
    sites: Mapping[int, str],
) -> Iterator[str]:
    """Yield a line where rows stand for a unit with a larger ε than theirs, or leave a site out.

    Such pairs differ in how often the records of their devices are drawn. None has a larger ε than its row if
    at least as many as lie above any row are stood for by rows above it.

    Args:
        rows: of privacy.json, of one kind of unit.
        facts: of the network.
        pairs: its classes of pairs.
        sites: name of the site of each device that has one.
    """
    first = facts.eras[0] if isinstance(facts, CheckedMovingTree) else facts
    of_records = any(map(is_within_device, rows)) and "batches" in first.ledger
    says_sites = any("sites" in row for row in rows)
    if not (of_records or says_sites):
        return
    listed = read.figures(first.ledger["batches"]["rate_per_device"]).tolist() if of_records else []
    rates: Mapping[int, float] = defaultdict(float, enumerate(listed))
    about: dict[Any, list[Json]] = {}
    for row in (row for row in rows if "," not in row["observer"]):
        pair = pairs.key_of(kind_and_index(row["unit"])[1], facts.party_named(row["observer"]))
        about.setdefault(pair, []).append(row)
    there: dict[Any, list[tuple[int, int]]] = {}
    for units, of_one in pairs.unit_classes():
        for pair, count in of_one.items():
            there.setdefault(pair, []).extend((unit, count) for unit in units)
    for pair, some in about.items():
        stated = [(rates[kind_and_index(row["unit"])[1]] * (1 + ROUNDING), row) for row in some]
        for level, row in stated:
            held = sum(read.count(other["stands_for"]) for rate, other in stated if rate > level)
            if sum(count for unit, count in there.get(pair, ()) if rates[unit] > level) > held:
                yield f"privacy.json: {row['unit']}: more such pairs have records that are drawn more often"
        if says_sites:
            least, named = defaultdict[str, float](float), defaultdict[str, float](float)
            for unit, _ in there.get(pair, ()):
                if unit in sites:
                    least[sites[unit]] = max(least[sites[unit]], rates[unit])
            for level, row in stated:
                for site in row.get("sites", ()):
                    named[site] = max(named[site], level)
            if least.keys() != named.keys() or any(named[site] < rate for site, rate in least.items()):
                who = f"{some[0]['unit']} towards {some[0]['observer']}"
                yield f"privacy.json: sites: rows like {who} name other sites than have such pairs"


def _is_of_device(row: Json) -> bool:
    """Whether the unit of a row of privacy.json is a device."""
    return str(row["unit"]).startswith("device:")


def site_of_each_device(topology: Json, facts: Facts) -> dict[int, str]:
    """The name of its site for each device, by index, where spec.yaml names devices or leaves above them.

    Empty where it names none. ``topology``: that section of spec.yaml.
    """
    names = topology.get("device_names") or topology.get("worker_names")
    if names:
        return {device: str(name) for device, name in enumerate(names)}
    if not isinstance(facts, CheckedTree):
        return {}
    found = {where: name for name, where in places_of_named_sites(topology.get("sites") or ()).items()}
    last = facts.depth - 1
    devices = range(int(facts.devices.sum())) if any(tier == last for tier, _ in found) else ()
    return {device: found[last, facts.leaf_of(device)] for device in devices}
