"""Arguments and options that several commands share."""

from __future__ import annotations

import enum
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


class TrackerChoice(enum.StrEnum):
    """An experiment tracker."""

    WANDB = "wandb"
    MLFLOW = "mlflow"


Track = Annotated[
    list[TrackerChoice] | None,
    typer.Option(
        help="Also send every round's metrics, which no guarantee covers, to this experiment tracker. "
        "Repeatable."
    ),
]


def folder_named(text: str) -> Path:
    """The folder that ``--out DIR`` names; an empty text is refused."""
    if not text.strip():
        raise SpecError(Argument("out"), text, "is empty; give a folder")
    return Path(text)


Debug = Annotated[bool, DEBUG]
