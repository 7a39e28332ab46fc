"""Pairs of a class of units and an observer whose ε differs between two settings.

Units that form one class in a setting may be two classes in the other, for example if an edge is no longer
trusted. In trees of the same leaves the finest common classes are compared: leaves that are alike in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sfumato.explore.accounted_setting import AccountedSetting
from sfumato.network.tree import Tree
from sfumato.report import formatting as text
from sfumato.report.results.matrix import Matrix
from sfumato.report.results.network import owners_in_words

_MOST_NAMES = 6
ABSENT = "–"


class Difference(NamedTuple):
    """An ε that differs between two settings.

    Attributes:
        unit: title of the class of units.
        observer: title of the kind of observer.
        before: the largest ε in the kept setting, as text; `ABSENT` where there is no such pair.
        now: that in the present setting.
    """

    unit: str
    observer: str
    before: str
    now: str


class _Class(NamedTuple):
    """A class of units, and its rows in the matrices of the two settings; ``None`` where it has none."""

    title: str
    before: int | None
    now: int | None


def differing_pairs(kept: AccountedSetting, now: AccountedSetting) -> list[Difference]:
    """The pairs whose ε, as text of four digits, differs, in the order of classes and observers.

    [] if none does. ``kept``: the setting before, ``now``: the present one. A pair that only one of them has
    differs, too.
    """
    observers = dict.fromkeys(one.title for m in (kept.matrix, now.matrix) for one in m.columns)
    found = [
        Difference(
            one.title,
            observer,
            _epsilon(kept.matrix, one.before, observer),
            _epsilon(now.matrix, one.now, observer),
        )
        for one in _common_classes(kept, now)
        for observer in observers
    ]
    return [one for one in found if one.before != one.now]


def side_by_side(kept: AccountedSetting, now: AccountedSetting) -> tuple[list[str], list[Difference], str]:
    """Headings, rows and caption of a table of the pairs whose ε differs; rows as of `differing_pairs`."""
    deltas = dict.fromkeys(text.number(one.report.delta) for one in (kept, now))
    caption = f"Where the largest ε differs (δ = {' and '.join(deltas)}); all other pairs are as they were"
    return ["of", "towards", "the kept setting", "this setting"], differing_pairs(kept, now), caption


def _epsilon(matrix: Matrix, row: int | None, observer: str) -> str:
    """The largest ε of a row of the matrix towards an observer, as text; `ABSENT` for no such pair.

    ``row``: ``None`` where the setting has no such class. ``observer``: title of its column.
    """
    for (at, column), cell in matrix.cells.items():
        if at == row and matrix.columns[column].title == observer:
            return text.epsilon(cell.epsilon)
    return ABSENT


def _common_classes(kept: AccountedSetting, now: AccountedSetting) -> list[_Class]:
    """The classes of both settings: by leaves where these are the same, else by title."""
    return _by_leaf(kept, now) or list(_by_title(kept.matrix, now.matrix))


def _by_title(before: Matrix, now: Matrix) -> Iterator[_Class]:
    """Yield the classes of both matrices by title, each once, with ``None`` where one lacks it."""
    rows = [{row.title: at for at, row in enumerate(matrix.rows)} for matrix in (before, now)]
    for title in rows[0] | rows[1]:
        yield _Class(title, rows[0].get(title), rows[1].get(title))


def _by_leaf(kept: AccountedSetting, now: AccountedSetting) -> list[_Class]:
    """The classes of leaves that are charged alike in both settings, each with its row in both matrices.

    [] where the settings have no trees of the same leaves, or one of the matrices has merged classes.
    """
    before, tree = kept.network.shape, now.network.shape
    if not (isinstance(before, Tree) and isinstance(tree, Tree)) or tree.depth == 1 or before.depth == 1:
        return []
    moving = kept.network.trees or now.network.trees
    if moving or not np.array_equal(tree.devices, before.devices):
        return []
    firsts = np.cumsum(tree.devices) - tree.devices
    alike: dict[tuple[str, int, int], list[int]] = {}
    for kind in dict.fromkeys(row.unit_kind for row in now.report.guarantees):
        for leaf in np.flatnonzero(tree.devices).tolist():
            unit = f"{kind}:{firsts[leaf]}"
            old, new = _row_of(kept, unit), _row_of(now, unit)
            if old is None or new is None:
                return []
            alike.setdefault((kind, old, new), []).append(leaf)
    return [_Class(_title(now, tree, kind, leaves), old, new) for (kind, old, new), leaves in alike.items()]


def _row_of(accounted: AccountedSetting, unit: str) -> int | None:
    """The row of the matrix that a unit is counted in; ``None`` where its class was merged with others."""
    title = accounted.labels.row(unit).title
    return next((at for at, row in enumerate(accounted.matrix.rows) if row.title == title), None)


def _title(accounted: AccountedSetting, tree: Tree, kind: str, leaves: list[int]) -> str:
    """Names of the units of ``kind`` under some leaves: ``40 devices under edge 0``."""
    names = [accounted.network.titled(tree.node_name(tree.depth - 1, leaf)) for leaf in leaves]
    devices = text.how_many(int(tree.devices[leaves].sum()), "device")
    of = "" if kind == "device" else f"one {kind} of "
    return f"{of}{devices} under {owners_in_words(names, _MOST_NAMES)}"
