"""``sfumato attack``: what an observer can make of what it received."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import Debug
from sfumato.cli.progress import progress_bar


class AttackChoice(StrEnum):
    """What to find out."""

    INVERSION = "inversion"
    MEMBERSHIP = "membership"
    PROPERTY = "property"


def attack(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, of one seed.")],
    observer: Annotated[
        str,
        typer.Option(
            metavar="OBSERVER[,OBSERVER...]",
            help="Attack as this party or coalition; the run must have recorded it (run --record-views).",
        ),
    ],
    kind: Annotated[
        AttackChoice,
        typer.Option(
            help="inversion: reconstruct images. membership: who took part, with which examples. "
            "property: who holds which labels."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Attack a recorded run as an observer; beside what is promised."""
    import json

    from sfumato.attacks import attack as attacked
    from sfumato.cli.attack_table import print_attack

    with progress_bar(f"{kind.value} as {observer}") as progress:
        found = attacked(run, observer=observer, kind=kind.value, progress=progress)
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False))
        return
    print_attack(found)
    print(f"draw it: sfumato report {run}")
