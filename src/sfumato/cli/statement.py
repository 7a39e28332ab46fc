"""``sfumato statement``: what is protected against whom, as a page and JSON for an auditor."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import Debug, SpecOrRun
from sfumato.cli.spec_argument import locating_errors, read_spec, run_folder_named

if TYPE_CHECKING:
    from sfumato.report.statement.content import Statement


def statement(
    spec: SpecOrRun,
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
    from sfumato.checked import write_statement

    run = run_folder_named(spec)
    if run is not None:
        page, found = write_statement(run, out)
    else:
        loaded = read_spec(spec, None)
        with locating_errors(spec):
            page, found = write_statement(loaded, out)
    print(page)
    print(page.with_suffix(".json"))
    for line in _summary(found):
        print(line, file=sys.stderr)
    if out is None:
        print(f"in the folder {Path.cwd()}", file=sys.stderr)


def _summary(found: Statement) -> Iterator[str]:
    """Lines on the largest ε towards each kind of observer, the check, and what a simulation protects.

    Only that it did not pass the check, where it did not.
    """
    from sfumato.report.formatting import epsilon, how_many, number

    wrong = () if found.run is None else found.run.mismatches
    if wrong:
        yield f"{how_many(len(wrong), 'figure')} did not pass the check: do not rely on this statement"
        return
    for kind in found.units:
        towards = [row.worst for row in found.largest if row.worst.unit_kind == kind]
        named = ", ".join(f"{found.observer(row)} {epsilon(row.epsilon)}" for row in towards)
        yield f"ε of a {kind} at most (δ = {number(found.privacy.delta)}): {named}"
    if found.run is not None:
        yield f"{how_many(found.run.recomputed, 'guarantee')} recomputed, 0 mismatches"
    if found.simulation:
        yield "simulated: the noise follows from the seed, so these ε are for secret noise, not for this run"
