"""How far long work has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many of how many pieces are done, before the first and after each."""

_Piece = TypeVar("_Piece")


def silent(done: int, total: int) -> None:
    """Tells nobody."""


def track(pieces: Sequence[_Piece], progress: Progress) -> Iterator[_Piece]:
    """The pieces one by one; ``progress`` is told as each is done."""
    for done, piece in enumerate(pieces):
        progress(done, len(pieces))
        yield piece
    progress(len(pieces), len(pieces))
