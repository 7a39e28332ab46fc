"""``sfumato report``: figures and tables of runs as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import Debug

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")]


def report(
    runs: Runs,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The page to write; default: report.html in the run folder, or here for several runs.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write one self-contained HTML page about one or more runs."""
    from sfumato.report import write_report

    folder = runs[0] if len(runs) == 1 else Path()
    print(write_report(runs, out or folder / "report.html"))
