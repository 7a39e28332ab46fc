"""``sfumato audit``: attack every release, and hold what that shows against what was promised."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.console import console, format_number, table
from sfumato.cli.options import Debug, Set
from sfumato.cli.progress import progress_bar
from sfumato.cli.spec_argument import locating_errors, read_spec
from sfumato.errors import SpecError

if TYPE_CHECKING:
    from sfumato.auditing import AuditReport
    from sfumato.spec import Spec


def audit(
    spec: Annotated[
        str,
        typer.Argument(metavar="SPEC|RUN", help="A YAML file, the name of a built-in spec, or a run folder."),
    ],
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
    """Attack the releases: what ε is at least, beside the promise. Of a run, its report shows it.

    Ends with status 1 where the promise does not hold.
    """
    import json

    from sfumato.auditing import audit as attack
    from sfumato.run_folder.reader import write_json

    run = _run_named(spec)
    loaded = read_spec(spec, changes) if run is None else _played(run, changes)
    with locating_errors(spec), progress_bar(loaded.name) as progress:
        report = attack(loaded, observers=tuple(observer or ()), trials=trials, progress=progress)
    if out is not None:
        write_json(out, report.to_dict())
    if run is not None:
        _keep(run, report)
    if as_json:
        print(json.dumps(report.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print(report)
    if not report.holds:
        raise typer.Exit(1)


def _run_named(source: str) -> Path | None:
    """The run folder that ``source`` names, if it is no spec."""
    from sfumato.run_folder.reader import holds_run
    from sfumato.spec.load import builtin_names

    return Path(source) if source not in builtin_names() and holds_run(Path(source)) else None


def _played(run: Path, changes: list[str] | None) -> Spec:
    """The spec of a run, once the folder has been checked."""
    from sfumato.run_folder.reader import SPEC_FILE, load_run_to_add
    from sfumato.spec import load_spec

    if changes:
        raise SpecError("--set", changes[0], "goes with a SPEC; a run was played as its folder says")
    return load_spec(load_run_to_add(run).path / SPEC_FILE)


def _keep(run: Path, report: AuditReport) -> None:
    """Put the findings where the run's report looks for them."""
    from sfumato.report.attack_findings import AUDIT_FILE
    from sfumato.run_folder.reader import ATTACKS_FOLDER, add_json

    add_json(run, f"{ATTACKS_FOLDER}/{AUDIT_FILE}", report.to_dict())


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
            format_number(row.lower.epsilon),
            format_number(row.upper),
            f"{row.lower.epsilon / row.upper:.2f}" if finite else "–",
            row.lower.how,
            "holds" if row.holds else "FAILS",
            f"{row.seconds:.1f}",
        )
    out.print(shown)
    for note in report.notes:
        out.print(f"note: {note}")
