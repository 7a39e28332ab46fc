"""``sfumato audit``: attack every release, and hold what that shows against what was promised."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.console import console, figure, table
from sfumato.cli.options import Debug, Set, SpecSource
from sfumato.cli.source import blaming, read
from sfumato.cli.steps import steps

if TYPE_CHECKING:
    from sfumato.auditing import AuditReport


def audit(
    spec: SpecSource,
    observer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OBSERVER[,OBSERVER...]",
            help="Attack as this party, coalition, or worst of a kind. Repeatable.",
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option(metavar="N", help="Trials judged in each world, with and without the device.")
    ] = 20_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON to this file too.")] = None,
    changes: Set = None,
    debug: Debug = False,
) -> None:
    """Attack the releases: what ε is at least, beside the promise.

    Ends with status 1 where the promise does not hold.
    """
    import json

    from sfumato.auditing import audit as attack

    loaded = read(spec, changes)
    with blaming(spec), steps(loaded.name) as progress:
        report = attack(loaded, observers=tuple(observer or ()), trials=trials, progress=progress)
    if out is not None:
        from sfumato.run_folder import write_json

        write_json(out, report.to_dict())
    if as_json:
        print(json.dumps(report.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print(report)
    if not report.holds:
        raise typer.Exit(1)


def _print(report: AuditReport) -> None:
    out = console()
    out.print(
        f"{report.name}: what attacks show against what is promised, δ = {report.delta:g}; "
        f"each lower bound is wrong with probability at most {report.error:g} "
        f"({report.trials:,} trials in each world)"
    )
    out.print()
    numbers = ("shown ε ≥", "promised ε ≤", "ratio", "s")
    shown = table("unit", "observer", *numbers[:3], "shown by", "verdict", numbers[3], right=numbers)
    for row in report.findings:
        finite = row.upper not in (0.0, float("inf"))
        shown.add_row(
            row.unit,
            row.observer,
            figure(row.lower.epsilon),
            figure(row.upper),
            f"{row.lower.epsilon / row.upper:.2f}" if finite else "–",
            row.lower.how,
            "holds" if row.holds else "FAILS",
            f"{row.seconds:.1f}",
        )
    out.print(shown)
    for note in report.notes:
        out.print(f"note: {note}")
