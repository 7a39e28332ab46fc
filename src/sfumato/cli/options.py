"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.arguments import Argument
from sfumato.errors import SpecError

DEBUG = typer.Option("--debug", help="Show a traceback if there is an error.")

SpecSource = Annotated[
    str, typer.Argument(metavar="SPEC", help="A YAML file or the name of a built-in spec.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a value of the spec, e.g. training.batch_size=60. Repeatable.",
    ),
]


def folder_named(text: str) -> Path:
    """The folder that ``--out DIR`` names; an empty text is refused."""
    if not text.strip():
        raise SpecError(Argument("out"), text, "is empty; give a folder")
    return Path(text)


Debug = Annotated[bool, DEBUG]
