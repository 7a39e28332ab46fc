"""Callbacks that report the progress of long computations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of finished pieces and of all pieces, before the first piece and after each."""

_Piece = TypeVar("_Piece")


def silent(done: int, total: int) -> None:
    """A `Progress` callback that does nothing."""


def track(pieces: Sequence[_Piece], progress: Progress) -> Iterator[_Piece]:
    """The ``pieces`` one by one; ``progress`` is called before the first and when each is done."""
    for done, piece in enumerate(pieces):
        progress(done, len(pieces))
        yield piece
    progress(len(pieces), len(pieces))
