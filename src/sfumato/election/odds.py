"""What uniform elections amount to, in closed form; and how many colluders they tolerate."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from sfumato.wire.errors import TooManyColludersError

Adversary: TypeAlias = Literal["crash", "byzantine"]


def most_colluders(parties: int, adversary: Adversary) -> int:
    """The largest number of colluders that an election of ``parties`` tolerates.

    It is below 1/2 of the parties for a ``crash`` adversary, below 1/3 for a ``byzantine`` one.

    Raises:
        ValueError: no such adversary.
    """
    if adversary not in ("crash", "byzantine"):
        raise ValueError(f"adversary: got {adversary!r}; must be 'crash' or 'byzantine'")
    return (parties - 1) // (2 if adversary == "crash" else 3)


def require_minority(parties: int, colluders: int, adversary: Adversary) -> None:
    """Refuse more colluders than an election of ``parties`` tolerates.

    Raises:
        TooManyColludersError: more than `most_colluders`, or a negative number.
    """
    most = most_colluders(parties, adversary)
    if not 0 <= colluders <= most:
        share = "1/2 (crash)" if adversary == "crash" else "1/3 (Byzantine)"
        raise TooManyColludersError(
            f"{colluders} colluders of {parties}; an election tolerates fewer than {share}: at most {most}"
        )


def probability_elected(parties: int, elections: int, *, group: int = 1, terms: int = 1) -> float:
    """Probability that members of a group are elected at least ``terms`` times in several uniform elections.

    For one client and one term 1 − (1 − 1/m)^T.

    Args:
        parties: m, candidates in every election.
        elections: T.
        group: number of members.
        terms: number of terms of office.

    Raises:
        ValueError: a number is out of range.
    """
    if not (parties >= 1 and 0 <= group <= parties and elections >= 0 and terms >= 0):
        raise ValueError(
            f"got {group} of {parties} parties, {elections} elections, {terms} terms;"
            " must be 0 ≤ group ≤ parties"
        )
    return 1.0 - sum(probability_of_terms(parties, elections, served, group=group) for served in range(terms))


def probability_of_terms(parties: int, elections: int, terms: int, *, group: int = 1) -> float:
    """Probability that a group of ``group`` parties is elected exactly ``terms`` times in several elections.

    By Binomial(elections, group / parties); 0 for more terms than elections.
    """
    if not 0 <= terms <= elections:
        return 0.0
    share = group / parties
    if share == 1:
        return float(terms == elections)
    return math.comb(elections, terms) * share**terms * (1 - share) ** (elections - terms)


def expected_terms(parties: int, elections: int) -> float:
    """Mean number of terms of office of each of ``parties`` parties in ``elections`` elections: T/m."""
    return elections / parties
