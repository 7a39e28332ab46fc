"""All exceptions of Sfumato.

SfumatoError                  base class; the message is meant for the user
├── SpecError                 the spec or the call is wrong (exit status 2)
│   ├── SpecProblemsError     several values of a spec are
│   ├── MissingExtraError     an optional dependency is needed; names the pip command
│   └── RanksDifferError      the processes of one run do not fit together
├── DataError                 a data set cannot be read or does not match the spec (exit status 2)
├── EnvelopeError             a run was about to release what its schedule does not declare (exit status 1)
└── RunError                  a run cannot be started, continued or read (exit status 1)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sfumato.arguments import Argument, ErrorPlace

_MOST_LISTED = 20


class SfumatoError(Exception):
    """Base class of all exceptions of Sfumato; ``exit_status`` is that of the command line."""

    exit_status = 1


class SpecError(SfumatoError):
    """A value from the user is wrong.

    Args:
        place: of the value, e.g. ``"quickstart.yaml: training.rounds"`` or ``Argument("unit")``.
        value: the value (shown with ``repr``), or ``None`` to show none.
        allowed: what is allowed, as a short clause.
    """

    exit_status = 2

    def __init__(self, place: ErrorPlace, value: object, allowed: str) -> None:
        self.argument = place if isinstance(place, Argument) else None
        self.place = str(place)
        self.value = value
        self.allowed = allowed
        shown = "" if value is None else f" got {_shorten(value)};"
        super().__init__(f"{self.place}:{shown} {allowed}")


class SpecProblemsError(SpecError):
    """Several values of a spec are wrong: one message for each, in lines; the attributes are the first's.

    Args:
        problems: two or more.
    """

    def __init__(self, problems: Sequence[SpecError]) -> None:
        first = problems[0]
        super().__init__(first.argument or first.place, first.value, first.allowed)
        self.problems = tuple(problems)
        self.args = ("\n".join(map(str, problems)),)


class MissingExtraError(SpecError):
    """A feature needs an extra that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(feature, None, f"needs the extra '{extra}': pip install 'sfumato[{extra}]'")


class RanksDifferError(SpecError):
    """The processes of one run would not compute the same.

    Args:
        rank: one that differs from rank 0.
        name: of what differs.
        here: on that rank; ``None``: it has none.
        first: on rank 0.
    """

    def __init__(self, rank: int, name: str, here: str | None, first: str | None) -> None:
        self.rank, self.name = rank, name
        has = f"rank {rank} has {here or 'none'}, rank 0 has {first or 'none'}"
        super().__init__("torchrun", None, f"{name}: {has}; it must be the same on every rank")


class DataError(SfumatoError):
    """A data set cannot be found, read or divided as requested."""

    exit_status = 2


class EnvelopeError(SfumatoError):
    """A release is outside of what its schedule declares; the run stops before it is sent."""


class RunError(SfumatoError):
    """The state of a run or a run folder does not allow the requested operation."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def first_names(names: Sequence[str], most: int = 5) -> str:
    """The first ``most`` of ``names``, joined by commas, and how many more there are: ``a, b and 3 more``."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def listed_names(names: Collection[str]) -> str:
    """``names``, joined by commas; of more than 20 the first, and how many: ``a, b, ... (30 in all)``."""
    more = f", ... ({len(names)} in all)" if len(names) > _MOST_LISTED else ""
    return ", ".join(list(names)[:_MOST_LISTED]) + more


def _shorten(value: object, limit: int = 80) -> str:
    """``value`` as ``repr`` writes it, cut to ``limit`` characters."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        text = f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= limit else text[: limit - 1] + "…"
