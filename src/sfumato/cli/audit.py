"""``sfumato audit``: empirical lower bounds on ε beside the guaranteed ε."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.arguments import Argument
from sfumato.cli.console import console, empty_table, print_json
from sfumato.cli.options import Debug, Set, SpecOrRun
from sfumato.cli.spec_argument import locating_errors, read_spec, run_folder_named, titles_of
from sfumato.errors import SpecError
from sfumato.rounding import lower_bound, number, upper_bound

if TYPE_CHECKING:
    from sfumato.auditing import AuditReport
    from sfumato.schedule.control.adaptive import RoundSettings
    from sfumato.spec import Spec


def audit(
    spec: SpecOrRun,
    observer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OBSERVER[,OBSERVER...]",
            help="Attack as this party, this coalition, or the worst of this kind. Repeatable.",
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option(metavar="N", help="Test trials with the unit, and as many without it.")
    ] = 20_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the JSON to this file.")
    ] = None,
    changes: Set = None,
    debug: Debug = False,
) -> None:
    """Compare empirical lower bounds on ε with the guaranteed ε.

    Every release is attacked with a worst-case device, or the record or person that privacy.unit asks for;
    nothing is trained.

    The audit of a run folder is shown in the run's report. The exit status is 1 if a guarantee is refuted.
    """
    from sfumato.auditing import audit as attack
    from sfumato.run_folder.reader import write_json

    run = run_folder_named(spec)
    if out is not None:
        _require_outside_of_runs(out)
    loaded, settings = (
        (read_spec(spec, changes), ()) if run is None else _spec_and_settings_of_run(run, changes)
    )
    with locating_errors(spec):
        report = attack(loaded, observers=tuple(observer or ()), trials=trials, settings=settings)
    if out is not None:
        write_json(out, report.to_dict())
    if run is not None:
        _add_to_run_folder(run, report)
    if as_json:
        print_json(report.to_dict())
    else:
        _print_report(report, titles_of(loaded))
    if not report.holds:
        raise typer.Exit(1)


def _require_outside_of_runs(out: Path) -> None:
    """Raise `SpecError` if the file ``out`` is inside of a run folder, where no report reads it.

    It is called before anything is computed.
    """
    from sfumato.run_folder.manifest import MANIFEST_FILE
    from sfumato.run_folder.reader import has_run_files

    above = (at for at in (out.parent, out.parent.parent) if (at / MANIFEST_FILE).exists())
    folder = next(filter(has_run_files, above), None)
    if folder is not None:
        allowed = (
            f"is in a run folder, where no report finds it: sfumato audit {folder} keeps the audit of that "
            "run there by itself; give a file elsewhere"
        )
        raise SpecError(Argument("out"), str(out), allowed)


def _spec_and_settings_of_run(run: Path, changes: list[str] | None) -> tuple[Spec, tuple[RoundSettings, ...]]:
    """The spec of a run and, if it has control, the settings of its rounds, else an empty tuple.

    Raises:
        SpecError: there is no run, or ``changes`` are given.
        RunError: the folder is damaged.
    """
    from sfumato.run_folder.reader import SPEC_FILE, load_run_to_add
    from sfumato.schedule.control.realised_rounds import settings_of_run
    from sfumato.spec import load_spec

    if changes:
        raise SpecError(
            Argument("overrides"), changes[0], "can be used with a SPEC only, not with a run folder"
        )
    folder = load_run_to_add(run)
    spec = load_spec(folder.path / SPEC_FILE)
    return spec, () if spec.control is None else settings_of_run(folder.path)


def _add_to_run_folder(run: Path, report: AuditReport) -> None:
    """Write the findings into the run folder, where the report reads them."""
    from sfumato.report.results.attack_findings import AUDIT_FILE
    from sfumato.run_folder.reader import ATTACKS_FOLDER, add_json

    add_json(run, f"{ATTACKS_FOLDER}/{AUDIT_FILE}", report.to_dict())


def _print_report(report: AuditReport, titled: Callable[[str], str]) -> None:
    """Print the table of lower bounds beside the guaranteed ε, and notes.

    ``titled`` turns a party's name into its title.
    """
    out = console()
    out.print(
        f"{report.name}: empirical lower bounds on ε beside the guaranteed ε, δ = {number(report.delta)}. "
        f"Each lower bound is wrong with probability at most {report.error:g} ({report.trials:,} trials with "
        "the unit, and as many without it)."
    )
    out.print()
    numbers = ("empirical ε\n(lower bound)", "guaranteed ε", "ratio", "s")
    shown = empty_table("unit", "observer", *numbers[:3], "test", "verdict", numbers[3], right=numbers)
    for row in report.findings:
        finite = row.upper not in (0.0, float("inf"))
        shown.add_row(
            titled(row.unit),
            titled(row.observer),
            lower_bound(row.lower.epsilon),
            upper_bound(row.upper),
            lower_bound(row.lower.epsilon / row.upper, 2) if finite else "–",
            row.lower.how,
            "holds" if row.holds else "FAILS",
            f"{row.seconds:.1f}",
        )
    out.print(shown)
    for note in report.notes:
        out.print(f"note: {note}")
