"""``sfumato verify``: recomputes every ε of a run folder without the accountant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import Debug
from sfumato.errors import SpecError


def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    debug: Debug = False,
) -> None:
    """Recompute every ε of a run from its certificates, without the accountant.

    The exit status is 1 if anything in the folder does not match.
    """
    from sfumato.verify.checker import NoRunError, check_run

    try:
        outcome = check_run(run)
    except NoRunError:
        raise SpecError(str(run), None, "is not a run folder: it has no spec.yaml") from None
    for problem in outcome.problems:
        print(f"mismatch: {problem}")
    print(
        f"{run}: {outcome.rows:,} guarantees checked, {outcome.finite:,} finite bounds recomputed, "
        f"{len(outcome.problems):,} mismatches"
    )
    for what in outcome.unchecked:
        print(f"not checked: {what}")
    if outcome.problems:
        raise typer.Exit(1)
