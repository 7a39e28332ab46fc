"""Reads the spec that the SPEC argument names, and adds its name to errors that are found later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sfumato.errors import SpecError

if TYPE_CHECKING:
    from sfumato.spec import Spec


def read_spec(source: str, changes: Iterable[str] | None) -> Spec:
    """The spec called ``source``, with ``--set`` changes."""
    from sfumato.spec import load_spec

    return load_spec(source, tuple(changes or ()))


@contextmanager
def locating_errors(source: str) -> Iterator[None]:
    """Put ``source`` before the key in spec errors raised inside the block; errors about options stay."""
    try:
        yield
    except SpecError as error:
        if type(error) is not SpecError or error.place.startswith(("--", source)):
            raise
        raise SpecError(f"{source}: {error.place}", error.value, error.allowed) from error
