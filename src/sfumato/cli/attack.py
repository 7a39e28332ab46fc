"""``sfumato attack``: attacks on what an observer received in a run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.console import print_json
from sfumato.cli.options import Debug
from sfumato.cli.spec_argument import titles_of


class AttackChoice(StrEnum):
    """The kind of attack."""

    INVERSION = "inversion"
    MEMBERSHIP = "membership"
    PROPERTY = "property"


def attack(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, of one seed.")],
    observer: Annotated[
        str,
        typer.Option(
            metavar="OBSERVER[,OBSERVER...]",
            help="Attack as this party or coalition. The run must have recorded it: run --record-views.",
        ),
    ],
    kind: Annotated[
        AttackChoice,
        typer.Option(
            help="inversion: reconstruct images. membership: which examples and devices the training used. "
            "property: which labels a device holds."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Attack a recorded run as an observer."""
    from sfumato.attacks import attack as attacked
    from sfumato.cli.attack_table import print_attack
    from sfumato.run_folder.reader import SPEC_FILE
    from sfumato.spec.load import load_spec

    found = attacked(run, observer=observer, kind=kind.value)
    if as_json:
        print_json(found)
        return
    print_attack(found, titles_of(load_spec(run / SPEC_FILE)))
    print(f"draw it with: sfumato report {run}")
