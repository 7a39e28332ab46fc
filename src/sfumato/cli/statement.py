"""``sfumato statement``: what is protected against whom, as a page and JSON for an auditor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import Debug
from sfumato.cli.spec_argument import locating_errors, read_spec

Source = Annotated[
    str, typer.Argument(metavar="SPEC|RUN", help="A YAML file, the name of a built-in spec, or a run folder.")
]


def statement(
    spec: Source,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The page to write, NAME.html; NAME.json beside it. Default: statement.html"
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write a privacy statement for an auditor: an HTML page, and the same as JSON.

    Of a run folder every ε is recomputed first, as by `sfumato verify`; the statement says what was found.
    """
    from sfumato.checked import statement as write_statement
    from sfumato.run_folder.reader import holds_run
    from sfumato.spec.load import builtin_names

    if spec not in builtin_names() and holds_run(Path(spec)):
        page = write_statement(Path(spec), out)
    else:
        loaded = read_spec(spec, None)
        with locating_errors(spec):
            page = write_statement(loaded, out)
    print(page)
    print(page.with_suffix(".json"))
    if out is None:
        print(f"in the folder {Path.cwd()}", file=sys.stderr)
