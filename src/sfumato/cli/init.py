"""``sfumato init``: writes a spec to start from, a copy of a built-in one or one for a table of one's own."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sfumato.arguments import Argument
from sfumato.cli.console import print_next
from sfumato.cli.options import Debug
from sfumato.errors import SpecError

if TYPE_CHECKING:
    from sfumato.new_spec.table import OwnTable

Ids = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN[,...]",
        help="A column that is no feature, beside those called like ids. Repeatable.",
    ),
]

Person = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="The column that says who a row is of, where a person may have several: all are protected "
        "together.",
    ),
]

Ranges = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=LOW:HIGH[,...]",
        help="A public range of a feature, known without the rows; it becomes 0 to 1. Repeatable.",
    ),
]

Tables = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="A table of your own, .csv or .parquet: write a spec for it. What options leave open and "
        "nobody can choose for you is asked on a terminal. Repeated, a CSV file a site: they are put "
        "together into NAME.csv.",
    ),
]


def init(
    name: Annotated[
        str | None,
        typer.Argument(
            help="The built-in spec to copy, or the name of the new spec (a copy of quickstart, or of --csv)."
        ),
    ] = None,
    csv: Tables = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column to predict.")] = None,
    site: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column that says whose row it is.")
    ] = None,
    sites: Annotated[
        int | None, typer.Option(min=2, max=1000, help="Without --site: deal the rows evenly among so many.")
    ] = None,
    person: Person = None,
    id: Ids = None,
    scale: Ranges = None,
    row: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What one row is, e.g. 'a patient'; for people.")
    ] = None,
    several: Annotated[
        bool | None, typer.Option("--several/--one-each", help="Whether several rows may be of one person.")
    ] = None,
    protect: Annotated[
        str | None,
        typer.Option(
            metavar="record|person|device",
            help="One row (record, the default), all rows of one person (person, the default with --person), "
            "or all rows of a site together (device).",
        ),
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(metavar="E", help="ε towards the server that combines the models.")
    ] = None,
    delta: Annotated[str | None, typer.Option(metavar="D", help="δ; default: 1e-5.")] = None,
    debug: Debug = False,
) -> None:
    """Write a spec to edit, NAME.yaml, into the working directory."""
    options: dict[str, Any] = {
        "label": label, "site": site, "sites": sites, "person": person, "id": id, "scale": scale, "row": row,
        "several": several, "protect": protect, "epsilon": epsilon, "delta": delta,
    }  # fmt: skip
    if csv:
        from sfumato.new_spec.table import open_own_table

        if name is not None and name.lower().endswith((".csv", ".parquet")):
            raise SpecError("NAME", name, f"is a table; write --csv before each: --csv {csv[0]} --csv {name}")
        if len(csv) == 1:
            _init_from_table(name, open_own_table(csv[0]), options)
        else:
            _init_from_files(name, csv, options)
        return
    for option, value in options.items():
        if value is not None:
            raise SpecError(Argument(option), None, "goes with --csv FILE, a table of your own")
    if name is not None and name.lower().endswith((".csv", ".parquet")):
        raise SpecError("NAME", name, f"is a table; write: sfumato init --csv {name}")
    _copy_builtin("quickstart" if name is None else name)


def _init_from_files(name: str | None, files: list[Path], options: dict[str, Any]) -> None:
    """Join several tables, one a site, and write a spec for them; arguments as of `_init_from_table`.

    Raises:
        SpecError: ``--site`` or ``--sites`` is given, or the spec exists.
    """
    from sfumato.new_spec.joined_files import SITE, joined_path, joined_sites
    from sfumato.new_spec.written_spec import refuse_existing

    for option in ("site", "sites"):
        if options[option] is not None:
            raise SpecError(Argument(option), options[option], "must be left out: each file is a site")
    refuse_existing(joined_path(name).with_suffix(".yaml"))
    with joined_sites(files, name) as table:
        print(f"{table.path}: {len(files)} files put together; the column {SITE} has their names")
        _init_from_table(name, table, options | {"site": SITE})


def _init_from_table(name: str | None, table: OwnTable, options: dict[str, Any]) -> None:
    """Write a spec for a table of one's own, and say who will learn what.

    ``name``: of the new spec; ``options``: the others of ``init``, by name.
    """
    from sfumato.new_spec.decisions import (
        check_decisions,
        parsed_columns,
        parsed_delta,
        parsed_epsilon,
        parsed_unit,
        ranges_in,
    )
    from sfumato.new_spec.hints import hints
    from sfumato.new_spec.questions import Given, ask_for_missing
    from sfumato.new_spec.written_spec import spec_path, table_summary, who_learns_what, write_checked_spec

    path = spec_path(name, table)
    if options["site"] is not None and options["sites"] is not None:
        raise SpecError(Argument("sites"), options["sites"], "must be left out: --site says whose row it is")
    stated, scale = options.pop("id"), options.pop("scale")
    readers: dict[str, Callable[[str], object]] = {
        "protect": parsed_unit,
        "epsilon": parsed_epsilon,
        "delta": parsed_delta,
    }
    for option, read in readers.items():
        if options[option] is not None:
            options[option] = read(options[option])
    called = table.ids(options["label"], options["site"], options["person"])
    ids = [name for text in stated or () for name in parsed_columns(text, "id", table)]
    given = Given(
        ids=None if stated is None else tuple(dict.fromkeys([*ids, *called])),
        scale=None if scale is None else ranges_in(scale),
        **options,
    )
    if missing := given.missing():
        if not sys.stdin.isatty():
            candidates = table.categories()
            may = f"; columns of text with few values: {', '.join(candidates)}" if candidates else ""
            raise SpecError("init", None, f"needs {', '.join(missing)}; on a terminal it asks{may}")
        given = ask_for_missing(given, table, _ask, lambda text: typer.echo(f"  {text}", err=True))
    decisions = given.with_defaults(table)
    check_decisions(decisions, table)
    report = write_checked_spec(path, decisions, table)
    for line in table_summary(path, decisions, table):
        print(line)
    for hint in hints(decisions, table):
        print(f"hint: {hint}")
    for finding in report.findings:
        if finding.kind not in ("persons", "unscaled"):  # hints say it, with the options to write
            print(f"finding: {finding.text}")
    for line in who_learns_what(report, decisions):
        print(line)
    run = f"runs/{path.stem}"
    print_next(
        ["sfumato", "run", str(path), "--baseline"], ["sfumato", "verify", run], ["sfumato", "statement", run]
    )


def _ask(question: str, default: str) -> str:
    """Ask ``question`` on the terminal; returns the answer.

    ``default`` is taken for an empty answer, unless it is empty too.
    """
    return cast("str", typer.prompt(question, default=default or None, err=True))


def _copy_builtin(name: str) -> None:
    """Write NAME.yaml: a copy of the built-in spec ``name``, or of quickstart if there is none of that name.

    Raises:
        SpecError: the name cannot be one, or the file exists or cannot be written.
    """
    from sfumato.spec import builtin_names, builtin_text, load_spec

    name = name.removesuffix(".yaml")
    text = builtin_text(name if name in builtin_names() else "quickstart")
    try:
        load_spec(name if name in builtin_names() else "quickstart", [f"name='{name}'"])
    except SpecError as error:
        raise SpecError("NAME", error.value, error.allowed) from None
    text = re.sub(r"^name: .*$", f"name: {name}", text, count=1, flags=re.MULTILINE)
    path = Path(f"{name}.yaml")
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise SpecError(str(path), None, "exists already; give another name: sfumato init NAME") from None
    except OSError as error:
        raise SpecError(str(path), None, f"cannot be written: {error.strerror}") from None
    print(f"{path}: edit it, then: sfumato run {path}")
