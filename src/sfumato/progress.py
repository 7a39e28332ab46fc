"""Callbacks that report the progress of long computations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of finished pieces and of all pieces, before the first piece and after each."""

_Piece = TypeVar("_Piece")


def silent(done: int, total: int) -> None:
    """A `Progress` callback that does nothing with ``done`` and ``total``."""


def track(pieces: Sequence[_Piece], progress: Progress) -> Iterator[_Piece]:
    """Yield ``pieces`` one by one; ``progress`` is called with (done, total) at first and after each."""
    for done, piece in enumerate(pieces):
        progress(done, len(pieces))
        yield piece
    progress(len(pieces), len(pieces))
