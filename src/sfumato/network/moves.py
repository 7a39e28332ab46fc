"""Who is under which edge, and which edges are trusted, from which round on."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sfumato.errors import SpecError
from sfumato.network.tree import BoolArray, IntArray, Tree, mark_edges
from sfumato.random import Stream, generator
from sfumato.spec.limits import MAX_MOVES
from sfumato.spec.moves import Move, TopologyMoves
from sfumato.spec.topology import Trust
from sfumato.user_text import decimal, read_bytes, read_text

MOVES_FILE = "topology.moves.file"
_COLUMNS = ("round", "device", "edge")


def trace_of(
    moves: TopologyMoves, tree: Tree, *, rounds: int, least: Sequence[int], seed: int
) -> tuple[Move, ...]:
    """All moves of a run, (round, device, edge), sorted by round and device: as written, or drawn.

    Before every round but the first, each device in turn goes to another edge with probability ``rate``, to
    each of the others alike. A device stays if its edge would have fewer than its ``least`` without it.

    Args:
        moves: the section of the spec.
        tree: of the first round.
        rounds: of the run.
        least: devices that each edge must keep.
        seed: of the spec.

    Raises:
        SpecError: there is one edge only, or there are too many moves.
    """
    if moves.rate is None:
        return tuple(sorted(moves.trace or ()))
    if tree.leaf_count < 2:
        raise SpecError("topology.moves.rate", moves.rate, "goes with two edges or more")
    if moves.rate * tree.device_count * (rounds - 1) > MAX_MOVES / 2:
        allowed = f"makes more than {MAX_MOVES // 2:,} moves; each is written into the resolved spec"
        raise SpecError("topology.moves.rate", moves.rate, allowed)
    edge_of, sizes, trace = _first_places(tree), tree.devices.copy(), list[Move]()
    for number in range(1, rounds):
        rng = generator(seed, Stream.TOPOLOGY, number)
        moves_now = rng.random(tree.device_count) < moves.rate
        others = rng.integers(tree.leaf_count - 1, size=tree.device_count)
        for device in np.flatnonzero(moves_now).tolist():
            here = int(edge_of[device])
            if sizes[here] > least[here]:
                there = int(others[device]) + int(others[device] >= here)
                edge_of[device] = there
                sizes[here] -= 1
                sizes[there] += 1
                trace.append((number + 1, device, there))
    return tuple(trace)


def trees_over_time(
    tree: Tree, trace: Sequence[Move], trust: Trust, *, rounds: int, least: Sequence[int]
) -> tuple[tuple[int, Tree], ...]:
    """The trees of a run, each with its first round (from 0); it holds until the first round of the next.

    Args:
        tree: of the first round, with trust marked.
        trace: moves (round from 1, device, edge), sorted by round and device.
        trust: may change from a round on.
        rounds: of the run; later changes are left out.
        least: devices that each edge must keep.

    Raises:
        SpecError: no such device or edge, or an edge keeps too few devices.
    """
    changes = {first - 1: edges for first, edges in (trust.from_ or {}).items() if 0 < first <= rounds}
    moves_by_round: dict[int, list[Move]] = {}
    for number, move in enumerate(trace):
        _check_move(tree, move, f"topology.moves.trace[{number}]")
        if move[0] <= rounds:
            moves_by_round.setdefault(move[0] - 1, []).append(move)
    edge_of, trusted = _first_places(tree), tree.tiers[-1].trusted
    first_edge_of, found = edge_of.copy(), [(0, tree)]
    for first in sorted({*changes, *moves_by_round}):
        edge_of = edge_of.copy()
        for _, device, edge in moves_by_round.get(first, ()):
            edge_of[device] = edge
        if first in changes:
            trusted = mark_edges(tree, changes[first])
        _check_sizes(tree, edge_of, least, first + 1)
        before = found[-1][1]
        if (edge_of != before.leaves_of(np.arange(len(edge_of)))).any() or (
            trusted != before.tiers[-1].trusted
        ).any():
            found.append((first, _tree_with_places(tree, edge_of, first_edge_of, trusted)))
    return tuple(found)


def moves_without_change(tree: Tree, trace: Sequence[Move]) -> tuple[Move, ...]:
    """The moves of a trace that change nothing: they name the edge that their device is under already.

    ``tree``: of the first round; ``trace``: sorted by round.
    """
    under, found = _first_places(tree), []
    for move in trace:
        _, device, edge = move
        if under[device] == edge:
            found.append(move)
        under[device] = edge
    return tuple(found)


def _first_places(tree: Tree) -> IntArray:
    """Number of the edge of every device in the first round ``[devices]``."""
    return np.repeat(np.arange(tree.leaf_count, dtype=np.int64), tree.devices)


def _tree_with_places(tree: Tree, place: IntArray, home: IntArray, trusted: BoolArray) -> Tree:
    """``tree`` with every device under the edge that ``place`` gives, and the edges of the mask trusted.

    ``place`` and ``home``: number of the edge of every device now and in the first round, ``[N]``.
    """
    tiers = (*tree.tiers[:-1], replace(tree.tiers[-1], trusted=trusted))
    sizes = np.bincount(place, minlength=tree.leaf_count).astype(np.int64)
    if (place == home).all():
        return replace(tree, tiers=tiers)
    return replace(tree, tiers=tiers, devices=sizes, placed=place, home=home)


def _check_move(tree: Tree, move: Move, what: str) -> None:
    """Raise a SpecError at ``what`` if a move names a device or an edge that is not there."""
    _, device, edge = move
    if device >= tree.device_count:
        raise SpecError(what, list(move), f"there are devices 0 to {tree.device_count - 1}")
    if edge >= tree.leaf_count:
        raise SpecError(what, list(move), f"there are edges 0 to {tree.leaf_count - 1}")


def _check_sizes(tree: Tree, place: IntArray, least: Sequence[int], number: int) -> None:
    """Raise a SpecError if, in round ``number`` (from 1), an edge has fewer devices than ``least`` says.

    ``place``: number of the edge of every device, ``[N]``; ``least``: for each edge.
    """
    sizes = np.bincount(place, minlength=tree.leaf_count)
    small = int((sizes - np.array(least)).argmin())
    if sizes[small] < least[small]:
        allowed = (
            f"leaves edge:{small} with {sizes[small]} devices in round {number}; it must keep "
            f"{least[small]} or more, so that it has an average to send"
        )
        raise SpecError("topology.moves", None, allowed)


def read_trace(path: Path) -> tuple[Move, ...]:
    """The moves (round, device, edge) in the CSV or Parquet file ``path``, whose columns have these names.

    Raises:
        SpecError: it cannot be read, or holds something else.
    """
    place = f"{MOVES_FILE}: {path.name}"
    rows = _parquet_rows(path, place) if path.suffix == ".parquet" else _csv_rows(path, place)
    found: list[Move] = []
    for number, row in enumerate(rows, start=1):
        values = [decimal(str(value).strip()) for value in row]
        if len(values) != len(_COLUMNS) or None in values or (values[0] or 0) < 2:
            allowed = "must be whole numbers: a round of 2 or more, a device, an edge"
            raise SpecError(f"{place}: row {number}", list(row), allowed)
        found.append((values[0] or 0, values[1] or 0, values[2] or 0))
    if len(found) > MAX_MOVES:
        raise SpecError(place, None, f"must have at most {MAX_MOVES:,} moves, not {len(found):,}")
    return tuple(found)


def _csv_rows(path: Path, place: str) -> list[tuple[object, ...]]:
    """Round, device and edge of every move in a CSV file, as text; ``place``: the file, for errors.

    Raises:
        SpecError: it cannot be read, or lacks a column.
    """
    reader = csv.DictReader(io.StringIO(read_text(path, place=MOVES_FILE)))
    try:
        if set(_COLUMNS) - set(reader.fieldnames or ()):
            raise SpecError(place, reader.fieldnames, f"must have the columns {', '.join(_COLUMNS)}")
        return [tuple(row[name] for name in _COLUMNS) for row in reader]
    except csv.Error as error:
        raise SpecError(place, None, f"is no CSV file: {error}") from None


def _parquet_rows(path: Path, place: str) -> list[tuple[object, ...]]:
    """Round, device and edge of every move in a Parquet file; ``place``: the file, for errors.

    Raises:
        SpecError: it cannot be read, or lacks a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(read_bytes(path, place=MOVES_FILE)))
        columns = [table.column(name).to_pylist() for name in _COLUMNS]
    except (KeyError, pa.ArrowException) as error:
        allowed = f"must be a Parquet file with the columns {', '.join(_COLUMNS)}"
        raise SpecError(place, str(error).splitlines()[0], allowed) from None
    return list(zip(*columns, strict=True))
