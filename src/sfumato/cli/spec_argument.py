"""From what the user named to a spec, and blame for what is wrong with it later."""

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
    """Put the file's name before the key of errors that are found after loading; options keep theirs."""
    try:
        yield
    except SpecError as error:
        if type(error) is not SpecError or error.place.startswith(("--", source)):
            raise
        raise SpecError(f"{source}: {error.place}", error.value, error.allowed) from error
