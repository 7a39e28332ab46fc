"""Rows of one person (``data.person_column``): at one site, and either to train on or to test on.

With ``privacy.unit: person`` a device draws persons and not rows (docs/accounting.md, *One person as the
unit*). What is guaranteed of a person at one device bounds nothing of rows that the person has elsewhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.data.builtin_datasets import PersonCounts
from sfumato.data.features import RowNumbers
from sfumato.errors import DataError


def numbered_persons(persons: NDArray[np.str_] | None, rows: RowNumbers) -> NDArray[np.int64] | None:
    """Number of the person of each of ``rows`` [n], from 0 in sorted order of the names that occur.

    ``persons``: name of the person of every row of the source [N]; ``None`` gives ``None``.
    """
    if persons is None:
        return None
    return np.unique(persons[rows], return_inverse=True)[1].astype(np.int64)


def refuse_divided(
    name: str, persons: NDArray[np.str_], parts: NDArray[np.str_] | NDArray[np.int64], what: str
) -> None:
    """Refuse a person who has rows in two parts (sites or groups): no bound would hold for both together.

    Args:
        name: of the source, for the message.
        persons: name of each row's person [N].
        parts: name or number of the part that each row is in [N].
        what: what one part is called in the message.

    Raises:
        DataError: a person has rows in two parts.
    """
    codes = np.unique(persons, return_inverse=True)[1]
    order = np.lexsort((parts, codes))
    pairs = np.flatnonzero((codes[order][1:] == codes[order][:-1]) & (parts[order][1:] != parts[order][:-1]))
    if not len(pairs):
        return
    one, other = order[pairs[0]], order[pairs[0] + 1]
    raise DataError(
        f"{name}: person {str(persons[one])!r} has rows at two {what}s, {str(parts[one])!r} (row {one + 1:,})"
        f" and {str(parts[other])!r} (row {other + 1:,}): with privacy.unit: person all rows of one must be "
        f"at one {what}; move them, leave some out, or call the person by two names (two persons to ε)"
    )


def refuse_trained_and_tested(name: str, trained: NDArray[np.str_], tested: NDArray[np.str_]) -> None:
    """Refuse a person who has both training and test rows: accuracies on test rows are not accounted for.

    Args:
        name: of the source, for the message.
        trained: name of the person of each training row.
        tested: name of the person of each test row.

    Raises:
        DataError: a name is in both.
    """
    both = np.intersect1d(trained, tested)
    if len(both):
        raise DataError(
            f"{name}: person {str(both[0])!r} has rows to train on and rows to test on: with privacy.unit: "
            "person these must be of different persons; data.test_fraction divides them so"
        )


def counts_of_persons(
    persons: NDArray[np.int64],
    groups: NDArray[np.int64] | None,
    sites: NDArray[np.int64] | None,
    site_count: int,
) -> PersonCounts:
    """How many persons there are: in all, in each group and at each site.

    Args:
        persons: number of each training row's person [N], from 0.
        groups: natural group of each row [N]; the same for all rows of a person.
        sites: site of each row [N]; the same for all rows of a person.
        site_count: how many sites there are.
    """
    first = first_row_of_each(persons)
    of_groups = None if groups is None else tuple(np.bincount(groups[first]).tolist())
    of_sites = None if sites is None else tuple(np.bincount(sites[first], minlength=site_count).tolist())
    return PersonCounts(len(first), of_groups, of_sites)


def first_row_of_each(persons: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of the first row of every person ``[persons]``, in the order of the persons' numbers."""
    return np.unique(persons, return_index=True)[1].astype(np.int64)
