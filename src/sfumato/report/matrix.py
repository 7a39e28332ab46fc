"""Who learns what: guarantees as a small matrix of unit classes against observers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sfumato.report.parties import Column, Naming, Row
from sfumato.run_folder import as_epsilon

MOST = 40
Guarantee = Mapping[str, Any]
_Entry = TypeVar("_Entry", Row, Column)


@dataclass(frozen=True)
class Cell:
    """What one class of units has towards one kind of observer: its guarantees, the weakest first."""

    guarantees: tuple[Guarantee, ...]

    @property
    def epsilon(self) -> float:
        """The weakest guarantee's epsilon."""
        return as_epsilon(self.guarantees[0]["epsilon"])

    @property
    def pairs(self) -> int:
        """Ordered pairs of unit and observer that the cell stands for."""
        return sum(int(g["stands_for"]) for g in self.guarantees)


@dataclass(frozen=True)
class Matrix:
    """Cells by ``(row, column)``; not every unit class has every kind of observer."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: Mapping[tuple[int, int], Cell]

    def worst(self, columns: Iterable[int]) -> float:
        """The largest epsilon in ``columns``; NaN where they hold nothing."""
        wanted = set(columns)
        return max((c.epsilon for (_, column), c in self.cells.items() if column in wanted), default=math.nan)

    def worst_towards(self, title: str) -> float:
        """The largest epsilon towards the observers called ``title``."""
        return self.worst(i for i, column in enumerate(self.columns) if column.title == title)

    def worst_towards_own_aggregator(self) -> float:
        """The largest epsilon towards the unit's own edge (its lowest aggregator, or its master)."""
        return self.worst(i for i, column in enumerate(self.columns) if column.own_aggregator)


def build(guarantees: Iterable[Guarantee], naming: Naming) -> Matrix:
    """The matrix of ``guarantees``, of at most ``MOST`` rows and columns: what is weakest keeps its own."""
    placed = [
        (naming.row(str(g["unit"])), naming.column(str(g["unit"]), str(g["observer"])), g) for g in guarantees
    ]
    weakest_rows: dict[Row, float] = {}
    weakest_columns: dict[Column, float] = {}
    for row, column, g in placed:
        epsilon = as_epsilon(g["epsilon"])
        weakest_rows[row] = max(epsilon, weakest_rows.get(row, 0.0))
        weakest_columns[column] = max(epsilon, weakest_columns.get(column, 0.0))
    rows, row_rest = _weakest(weakest_rows)
    columns, column_rest = _weakest(weakest_columns)
    if row_rest:
        rows.append(Row((1 << 61, ""), f"{row_rest} more classes", "each with a smaller or equal worst ε"))
    if column_rest:
        columns.append(Column((1 << 61, ""), f"{column_rest} more"))
    row_at = {row: i for i, row in enumerate(rows)}
    column_at = {column: i for i, column in enumerate(columns)}
    cells: dict[tuple[int, int], list[Guarantee]] = {}
    for row, column, g in placed:
        at = row_at.get(row, len(rows) - 1), column_at.get(column, len(columns) - 1)
        cells.setdefault(at, []).append(g)
    return Matrix(
        tuple(rows),
        tuple(columns),
        {
            at: Cell(tuple(sorted(found, key=lambda g: as_epsilon(g["epsilon"]), reverse=True)))
            for at, found in cells.items()
        },
    )


def _weakest(epsilons: dict[_Entry, float]) -> tuple[list[_Entry], int]:
    """At most ``MOST`` entries in reading order, and how many were left out."""
    kept = sorted(epsilons, key=lambda entry: epsilons[entry], reverse=True)
    if len(kept) > MOST:
        kept = kept[: MOST - 1]
    return sorted(kept, key=lambda entry: entry.order), len(epsilons) - len(kept)
