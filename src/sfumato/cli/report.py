"""``sfumato report``: figures and tables of runs as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.console import console
from sfumato.cli.options import Debug
from sfumato.progress_bars import progress_bars

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
    from sfumato.report import compare

    folder = runs[0] if len(runs) == 1 else Path()
    with progress_bars() as bars:
        bar = bars.add("report")
        bar.show("reading runs")
        compared = compare(runs)
        bar.show("drawing")
        page = compared.report(out or folder / "report.html")
    for notice in compared.notices:
        console().print(f"note: {notice}")
    print(page)
