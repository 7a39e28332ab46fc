"""Ranks that would not compute the same refuse to start."""

from __future__ import annotations

from collections.abc import Mapping

from sfumato.distributed.ranks import Ranks
from sfumato.errors import RanksDifferError


def require_same(ranks: Ranks, facts: Mapping[str, str]) -> None:
    """Refuse to go on unless every rank has the same ``facts``: texts by name.

    Raises:
        RanksDifferError: on every rank, if any two differ: the first difference from rank 0.
    """
    every = ranks.gather(dict(facts))
    for name in dict.fromkeys(name for one in every for name in one):
        for rank, one in enumerate(every):
            if one.get(name) != every[0].get(name):
                raise RanksDifferError(rank, name, one.get(name), every[0].get(name))
