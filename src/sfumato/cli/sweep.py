"""``sfumato sweep``: runs or accounts for a grid of specs, and compares the points in one report."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.console import console, empty_table, exit_of_interrupted, with_noun
from sfumato.cli.options import Debug, On, Set, SpecSource, Track, WorkerCount, folder_named
from sfumato.cli.run import Device
from sfumato.cli.spec_argument import locating_errors
from sfumato.rounding import number, upper_bound

if TYPE_CHECKING:
    from sfumato.sweeps.results import Sweep
    from sfumato.sweeps.sweep_progress import PointProgress

MOST_ROWS = 40


def sweep(
    spec: SpecSource,
    over: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=A,B,...",
            help="Values of a key, as in --set. Repeatable: all combinations are used. For keys varied "
            "together: KEY1,KEY2=A1:A2,B1:B2.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=folder_named,
            help="The sweep's folder; default: runs/NAME-sweep. Points that it holds already are kept.",
        ),
    ] = None,
    changes: Set = None,
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Seeds of every point, beginning with the spec's.")
    ] = 1,
    account_only: Annotated[
        bool, typer.Option("--account-only", help="Compute ε only, without training.")
    ] = False,
    workers: WorkerCount = None,
    on: On = "local",
    device: Annotated[Device, typer.Option(help="The device that computes.")] = Device.AUTO,
    track: Track = None,
    debug: Debug = False,
) -> None:
    """Run or account for a grid of specs; write one report."""
    from sfumato.sweeps.grid import Axis
    from sfumato.sweeps.request import SweepRequest
    from sfumato.sweeps.runner import run_request

    axes = [Axis.parse(text) for text in over]
    with locating_errors(spec, changes):
        request = SweepRequest.of(
            spec, axes, seeds=seeds, out=out, account_only=account_only, overrides=changes or ()
        )
    told = line_printer(len(request.tasks) + len(request.refused))
    try:
        options: dict[str, Any] = {"device": str(device), "workers": workers, "on": on, "track": track or ()}
        swept = run_request(request, **options, otherwise=told)
    except KeyboardInterrupt:
        raise exit_of_interrupted() from None
    _print_summary(swept)
    if swept.failures:
        raise typer.Exit(1)


def line_printer(size: int) -> Callable[[PointProgress], None]:
    """A progress callback that prints a line to stderr whenever one of ``size`` runs is finished.

    The line is ``3/20 epsilon=2, seed 0: done``, or has the reason of a failure. Other progress is not
    printed.
    """
    from sfumato.sweeps.sweep_progress import title_of_point

    finished = 0

    def written(progress: PointProgress) -> None:
        """Print a line if a run is finished."""
        nonlocal finished
        if progress.finished:
            finished += 1
            how = f"failed: {progress.failure}" if progress.failure else "done"
            print(f"{finished}/{size} {title_of_point(progress)}: {how}", file=sys.stderr)

    return written


def _print_summary(swept: Sweep) -> None:
    """Print the table of the points of a sweep, and where its report is."""
    from sfumato.sweeps.grid import short_names

    summary = swept.summary()
    summary = summary[summary["seeds"] > 0]
    score = swept.score
    measures = [(score.column, score.title, score.scale)]
    measures += [(f"epsilon:{name}", f"ε {name}", 1.0) for name in swept.observers]
    if swept.asks_for_energy:
        measures += [("energy_j", "energy J", 1.0), ("delay_s", "delay s", 1.0)]
    measures = [measure for measure in measures if summary[measure[0]].notna().any()]
    titles = [title for _, title, _ in measures] + (["raw devices"] if swept.has_raw_devices else [])
    shown = empty_table(", ".join(short_names(swept.keys)), *titles, right=titles)
    for row in summary.head(MOST_ROWS).to_dict("records"):
        values = [row[key] if isinstance(row[key], str) else f"{row[key]:g}" for key in swept.keys]
        spread = row[f"{score.column}_half_width"]
        measured = [
            upper_bound(row[name])
            if name.startswith("epsilon:")
            else _format_measure(row[name], spread if name == score.column else math.nan, scale)
            for name, _, scale in measures
        ]
        raw = [row["raw_to_trusted_edge"]] if swept.has_raw_devices else []
        shown.add_row(", ".join(values), *measured, *raw)
    out = console()
    out.print(shown)
    deltas = sorted(set(swept.table["delta"].dropna()))
    if swept.observers and deltas:
        out.print(
            f"ε: the worst unit, before training; δ = {', '.join(f'{number(delta)}' for delta in deltas)}"
        )
    if swept.has_raw_devices:
        out.print(
            "ε edge leaves out a device's own edge if that is trusted; raw devices send raw updates to it"
        )
    for notice in swept.notices:
        out.print(f"note: {notice}")
    if len(summary) > MOST_ROWS:
        out.print(f"… {len(summary) - MOST_ROWS:,} more points are in the report")
    done = int((swept.table["error"] == "").sum())
    failed = f", {len(swept.failures):,} failed (see the report for the reasons)" if swept.failures else ""
    out.print(f"{with_noun(len(summary), 'point')} with results; {with_noun(done, 'run')} finished{failed}")
    print(f"sweep folder: {swept.folder}; see report.html there")


def _format_measure(value: float, half_width: float, scale: float) -> str:
    """``value ± half_width``, both times ``scale``, as text.

    Three significant digits, or one decimal of a percentage (scale 100); the interval to the same decimals.
    """
    if not math.isfinite(value):
        return number(value)
    value, half_width = scale * value, scale * half_width
    digits = 1 if scale == 100.0 else max(0, 2 - math.floor(math.log10(abs(value) or 1.0)))
    return f"{value:,.{digits}f}" + ("" if math.isnan(half_width) else f" ± {half_width:,.{digits}f}")
