"""Arguments and options that several commands share, and how messages name them."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from sfumato.arguments import Argument, Call
from sfumato.errors import SpecError

DEBUG = typer.Option("--debug", help="Show a traceback if there is an error.")

SpecSource = Annotated[
    str, typer.Argument(metavar="SPEC", help="A YAML file or the name of a built-in spec.")
]
SpecOrRun = Annotated[
    str, typer.Argument(metavar="SPEC|RUN", help="A YAML file, the name of a built-in spec, or a run folder.")
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

On = Annotated[
    str,
    typer.Option(
        metavar="local|ray|ray://ADDRESS",
        help="Where processes run: on this machine; on the Ray cluster that runs here, else on one of this "
        "machine; or on the cluster at ADDRESS.",
    ),
]

WorkerCount = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Number of processes; default: one per core. Results do not depend on it.",
    ),
]


def folder_named(text: str) -> Path:
    """The folder that the text of ``--out`` (or of another option for a folder) names; it need not exist.

    Raises:
        SpecError: the text is empty.
    """
    if not text.strip():
        raise SpecError(Argument("out"), text, "is empty; give a folder")
    return Path(text)


Debug = Annotated[bool, DEBUG]

_OPTIONS = {"observers": "--observer", "overrides": "--set", "targets": "--target"}
"""Arguments whose options have other names; all others are ``--name``."""


class OptionSpelling:
    """How messages name arguments and calls on the command line.

    An argument is ``--out runs/x``, a call ``sfumato run SPEC --resume``.
    """

    def argument(self, argument: Argument) -> str:
        """An argument of a Python function as its option on the command line, with its value and key if any.

        ``--resume`` for a value of ``True``, ``--name VALUE …`` otherwise; a key follows, after a colon if
        the value is ``True``. Values of ``None`` and "" are left out.
        """
        option = _OPTIONS.get(argument.name, "--" + argument.name.replace("_", "-"))
        if argument.value is True:
            return f"{option}: {argument.key}" if argument.key else option
        values = argument.value if isinstance(argument.value, list) else [argument.value]
        parts = [str(part) for part in (*values, argument.key) if part not in (None, "")]
        return " ".join([option, *parts])

    def call(self, call: Call) -> str:
        """A call of a Python function as a command: ``sfumato function subject --name VALUE``."""
        return " ".join(["sfumato", call.function, call.subject, *map(str, call.arguments)])
