"""``sfumato statement``: what is protected against whom, as a page and JSON for an auditor."""

from __future__ import annotations

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

    page = Path("statement.html") if out is None else out
    if spec not in builtin_names() and holds_run(Path(spec)):
        write_statement(Path(spec), page)
    else:
        loaded = read_spec(spec, None)
        with locating_errors(spec):
            write_statement(loaded, page)
    print(page)
    print(page.with_suffix(".json"))
