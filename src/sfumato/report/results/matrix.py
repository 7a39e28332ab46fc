"""The matrix of guarantees: classes of units (rows) towards kinds of observers (columns)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sfumato.privacy.guarantee import Guarantee
from sfumato.report.results.observer_labels import Column, ObserverLabels, Row

MOST = 18
_Entry = TypeVar("_Entry", Row, Column)


@dataclass(frozen=True)
class Cell:
    """The guarantees of one class of units towards one kind of observer, the largest ε first."""

    guarantees: tuple[Guarantee, ...]

    @property
    def epsilon(self) -> float:
        """The largest ε of the cell's guarantees; ∞ if one pair has none."""
        return self.guarantees[0].epsilon

    @property
    def pairs(self) -> int:
        """The number of ordered pairs of unit and observer that the cell stands for."""
        return sum(g.stands_for for g in self.guarantees)

    @property
    def trusts_all(self) -> bool:
        """Whether all observers without a guarantee are trusted with raw updates.

        True if all have a guarantee.
        """
        return all(g.trusted for g in self.guarantees if g.epsilon == math.inf)


@dataclass(frozen=True)
class Matrix:
    """Guarantees as a table: a row for each class of units, a column for each kind of observer.

    Attributes:
        rows: the classes of units.
        columns: the kinds of observers.
        cells: by (row, column), both indices; pairs that do not occur are missing.
    """

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: Mapping[tuple[int, int], Cell]


def build_matrix(guarantees: Iterable[Guarantee], naming: ObserverLabels) -> Matrix:
    """The guarantees as a matrix: a row for each class of units, a column for each kind of observer.

    Of more than ``MOST`` rows or columns those with the largest ε are kept, and the rest is merged into one,
    the last; columns of single observers are kept before coalitions. Rows and columns ascend by their
    ``order``. Without guarantees the matrix is empty.

    Args:
        guarantees: of a run, for any pairs.
        naming: gives the row and the column of a pair.
    """
    placed = [(naming.row(g.unit, g.sites), naming.column(g.unit, g.observer), g) for g in guarantees]
    weakest_rows: dict[Row, float] = {}
    weakest_columns: dict[Column, float] = {}
    for row, column, g in placed:
        weakest_rows[row] = max(g.epsilon, weakest_rows.get(row, 0.0))
        weakest_columns[column] = max(g.epsilon, weakest_columns.get(column, 0.0))
    rows, row_rest = _weakest(weakest_rows, lambda row: weakest_rows[row])
    columns, column_rest = _weakest(
        weakest_columns, lambda column: (not column.is_coalition, weakest_columns[column])
    )
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
    ordered = {at: sorted(found, key=lambda g: -g.epsilon) for at, found in cells.items()}
    return Matrix(tuple(rows), tuple(columns), {at: Cell(tuple(found)) for at, found in ordered.items()})


def _weakest(entries: Iterable[_Entry], rank: Callable[[_Entry], Any]) -> tuple[list[_Entry], int]:
    """At most ``MOST`` entries of the highest ``rank``, ascending by ``order``, and how many were left out.

    Where some are left out, only ``MOST - 1`` are kept: one place is for the rest.
    """
    kept = sorted(entries, key=rank, reverse=True)
    left = max(0, len(kept) - MOST)
    if left:
        kept, left = kept[: MOST - 1], left + 1
    return sorted(kept, key=lambda entry: entry.order), left
