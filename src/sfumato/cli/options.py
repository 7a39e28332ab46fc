"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

DEBUG = typer.Option("--debug", help="Show a traceback if something goes wrong.")

SpecSource = Annotated[
    str, typer.Argument(metavar="SPEC", help="A YAML file or the name of a built-in spec.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change the spec, e.g. training.batch_size=60. Repeatable."
    ),
]
Debug = Annotated[bool, DEBUG]
