"""What an observer learns from what it saw of a run: attacks, and how well they did (docs/attacks.md)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

from sfumato.errors import SpecError
from sfumato.progress import Progress, silent

AttackKind = Literal["inversion", "membership", "property"]
KINDS: tuple[AttackKind, ...] = get_args(AttackKind)


def attack(
    run: str | Path, *, observer: str, kind: AttackKind, progress: Progress = silent
) -> dict[str, Any]:
    """Attack what an observer saw of a run; what comes of it is also written to the run folder.

    Args:
        run: a run folder with the observer's view, see ``record_views`` of `sfumato.run`.
        observer: a party, or a coalition joined by commas.
        kind: inversion reconstructs images, membership asks who took part with which examples, property
            who holds which labels.
        progress: told how many targets are done.

    Returns:
        ``attacks/KIND-OBSERVER.json`` (docs/attacks.md).

    Raises:
        SpecError: no such run, view or kind, or nothing that this attack could work on.
        RunError: the run is damaged.
    """
    if kind not in KINDS:
        raise SpecError("--kind", kind, ", ".join(KINDS))
    found: dict[str, Any] = getattr(import_module(f"sfumato.attacks.{kind}"), f"attack_by_{kind}")(
        Path(run), observer, progress
    )
    return found


__all__ = ["KINDS", "attack"]
