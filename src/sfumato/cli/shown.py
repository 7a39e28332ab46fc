"""What ``sfumato show`` says of any plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sfumato.spec.document import Spec


class Shown(Protocol):
    """A plan, to be printed."""

    @property
    def legend(self) -> str:
        """What the drawing's signs mean."""

    def described(self) -> Iterable[tuple[str, str]]:
        """What there is, in a few lines: names and what they are."""

    def drawn(self) -> RenderableType:
        """Who there is, who is trusted, who adds which noise."""


def keys(section: object) -> str:
    """A section of a spec in one line: its kind, and what is set in it."""
    from sfumato.spec.base import Section

    if not isinstance(section, Section):
        return f"{section:g}"
    written = section.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
    kind = str(getattr(section, "kind", ""))
    return ", ".join([kind, *(f"{key} {value}" for key, value in written.items() if key != "kind")])


def rate(spec: Spec) -> str:
    """The learning rate in one line."""
    return f"learning rate {keys(spec.training.learning_rate)}"
