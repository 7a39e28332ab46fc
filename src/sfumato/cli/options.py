"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.errors import SpecError

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


def folder_named(text: str) -> Path:
    """What ``--out DIR`` names; an empty word is a mistake, not this folder."""
    if not text.strip():
        raise SpecError("--out", text, "is empty; give a folder")
    return Path(text)


Debug = Annotated[bool, DEBUG]
