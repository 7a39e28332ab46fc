"""Everything Sfumato raises on purpose.

SfumatoError                  one clear message for the person at the keyboard
├── SpecError                 the spec or the call is wrong (exit status 2)
│   └── MissingExtraError     an optional dependency is needed; names the pip command
├── DataError                 a data set cannot be read or does not fit the spec (exit status 2)
├── EnvelopeError             a run released something its schedule never declared (exit status 1)
└── RunError                  a run cannot start, go on or be read (exit status 1)
"""

from __future__ import annotations


class SfumatoError(Exception):
    """Base of all errors raised on purpose; ``exit_status`` is what the command line ends with."""

    exit_status = 1


class SpecError(SfumatoError):
    """Something a user wrote is wrong.

    Args:
        place: where, e.g. ``"quickstart.yaml: training.rounds"`` or ``"--unit"``.
        value: what stood there (shown with ``repr``), or ``None`` when nothing did.
        allowed: what would have been right, a short clause.
    """

    exit_status = 2

    def __init__(self, place: str, value: object, allowed: str) -> None:
        self.place = place
        self.value = value
        self.allowed = allowed
        shown = "" if value is None else f" got {_short(value)};"
        super().__init__(f"{place}:{shown} {allowed}")


class MissingExtraError(SpecError):
    """A feature needs an extra that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(feature, None, f"needs the extra '{extra}': pip install 'sfumato[{extra}]'")


class DataError(SfumatoError):
    """A data set cannot be found, read or divided as asked."""

    exit_status = 2


class EnvelopeError(SfumatoError):
    """A release fell outside what its schedule declared; the run stops before it is sent."""


class RunError(SfumatoError):
    """A run or a run folder is in a state that does not allow what was asked."""


def first_line(error: BaseException) -> str:
    """The first line of what an error says; its type where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _short(value: object, limit: int = 80) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        text = f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= limit else text[: limit - 1] + "…"
