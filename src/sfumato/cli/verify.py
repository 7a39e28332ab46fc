"""``sfumato verify``: recomputes every ε of a run folder without the accountant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import Debug


def _write_checker(file: Path | None) -> None:
    """Write the checker to ``file`` and exit, where ``--write-checker`` is given."""
    if file is not None:
        from sfumato.verify.archive import write_zip_application

        write_zip_application(file)
        print(file)
        raise typer.Exit


def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    write_checker: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            is_eager=True,
            callback=_write_checker,
            help="Write the checker as one file that runs without Sfumato, and check nothing.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Recompute every ε of a run from its certificates, without the accountant.

    The exit status is 1 if anything in the folder does not match.
    """
    from sfumato.checked import verify_run
    from sfumato.verify.checker import print_outcome

    if print_outcome(str(run), verify_run(run)):
        raise typer.Exit(1)
