"""Arguments of functions as messages name them: by name in Python, by option on the command line.

Messages are written by code that does not know who called it. It names the argument; how that is spelled is
Python's way unless `spelled_by` says otherwise, which only ``sfumato.cli`` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias


@dataclass(frozen=True)
class Argument:
    """An argument of the function that a user called.

    Attributes:
        name: its name in Python.
        value: what it should be, in advice such as *set resume=True*; ``None`` where only the name is meant.
        key: the part of the argument that is meant, such as a key of a spec.
    """

    name: str
    value: object = None
    key: str = ""

    def __str__(self) -> str:
        return _spelling.get().argument(self)

    def at(self, key: str) -> Argument:
        """A copy of this argument for errors about one part of its value.

        ``key``: the entry of a mapping or list that is meant.
        """
        return replace(self, key=key)


@dataclass(frozen=True)
class Call:
    """A call that a message advises, such as ``sf.run(SPEC, resume=True)``.

    Attributes:
        function: its name in ``sfumato``, which is also that of the command.
        subject: the first argument.
        arguments: the others.
    """

    function: str
    subject: str
    arguments: tuple[Argument, ...]

    def __str__(self) -> str:
        return _spelling.get().call(self)


ErrorPlace: TypeAlias = str | Argument
"""Where a wrong value comes from: a key of a spec, a file, or an argument."""


class Spelling(Protocol):
    """How arguments and calls are written."""

    def argument(self, argument: Argument) -> str:
        """The text of ``argument`` in messages, with its value and its key if it has them."""

    def call(self, call: Call) -> str:
        """The text of ``call`` in messages, with all its arguments."""


class PythonSpelling:
    """``resume=True``, ``sf.run(SPEC, resume=True)``."""

    def argument(self, argument: Argument) -> str:
        """``argument`` as it is written in Python: ``name``, ``name=value`` or ``name: key``."""
        said = argument.name if argument.value is None else f"{argument.name}={argument.value!r}"
        return f"{said}: {argument.key}" if argument.key else said

    def call(self, call: Call) -> str:
        """``call`` as it is written in Python: ``sf.function(subject, name=value)``."""
        return f"sf.{call.function}({', '.join([call.subject, *map(str, call.arguments)])})"


@contextmanager
def spelled_by(spelling: Spelling) -> Iterator[None]:
    """Context in which messages write arguments and calls as ``spelling`` does."""
    token = _spelling.set(spelling)
    try:
        yield
    finally:
        _spelling.reset(token)


_PYTHON = PythonSpelling()
_spelling: ContextVar[Spelling] = ContextVar("spelling", default=_PYTHON)
