"""``sfumato explore``: a web page on this machine to change trust and noise, and to see who learns what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import Debug, folder_named
from sfumato.cli.spec_argument import locating_errors


def explore(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="A YAML file or the name of a built-in spec.")
    ] = "quickstart",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Where to listen; 0: any free port.")
    ] = 8050,
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=folder_named,
            help="The folder of runs: accuracies are looked up in it, and new runs are written to it; "
            "default: runs.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Open a page on this machine: change trust and noise, see who learns what."""
    from sfumato.explore.server import serving

    folder = runs or Path("runs")
    with locating_errors(spec), serving(spec, port=port, runs=folder) as (address, server):
        print(f"open {address}\nCtrl-C ends the page and stops the runs that it started", flush=True)
        server.serve_forever()
