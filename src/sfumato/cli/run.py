"""``sfumato run``: trains a spec and writes a run folder, showing progress."""

from __future__ import annotations

import enum
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.console import console, exit_of_interrupted, print_next
from sfumato.cli.options import Debug, Set, SpecSource, Track, folder_named
from sfumato.cli.spec_argument import locating_errors, read_spec
from sfumato.cli.torchrun import command_over_ranks, joined_ranks
from sfumato.distributed.launch import Launch

if TYPE_CHECKING:
    from sfumato.spec import Spec


class Device(enum.StrEnum):
    """The device that computes."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


_NEXT = ("verify", "statement")
"""Commands that a user calls after a run."""

Baseline = Annotated[
    bool,
    typer.Option(
        "--baseline",
        help="Also train the twin without noise, in DIR-without-noise; the report says what privacy "
        "costs. The twin has no guarantee.",
    ),
]
RecordViews = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OBSERVER[,OBSERVER...]",
        help="Record all that this party or coalition receives, for attacks. Repeatable.",
    ),
]


def run(
    spec: SpecSource,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=folder_named,
            help="The run folder; default: runs/NAME with the spec's name.",
        ),
    ] = None,
    changes: Set = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Run N seeds, beginning with the spec's; report mean and 95 % interval."
        ),
    ] = None,
    device: Annotated[Device, typer.Option(help="The device that computes.")] = Device.AUTO,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the run folder's checkpoint.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run that the folder holds.")] = False,
    record_views: RecordViews = None,
    baseline: Baseline = False,
    track: Track = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    debug: Debug = False,
) -> None:
    """Train a model; write model, metrics and guarantees to a folder."""
    from sfumato.simulation.plays import check_folders, default_folder, plays_of, twins_of

    options = {"device": str(device), "resume": resume, "force": force}
    again = ["run", spec]
    again += [part for change in changes or () for part in ("--set", change)]
    again += [] if seeds is None else ["--seeds", str(seeds)]
    again += [part for names in record_views or () for part in ("--record-views", names)]
    again += [part for name in track or () for part in ("--track", str(name))]
    again += ["--baseline"] if baseline else []
    again += [] if device is Device.AUTO else ["--device", str(device)]
    with _naming_resume_command(again), joined_ranks(str(device)) as ranks, locating_errors(spec, changes):
        loaded = read_spec(spec, changes)
        folder = out or default_folder(loaded)
        again[2:2] = ["--out", str(folder)]
        plays, silent = plays_of(loaded, folder, seeds), quiet or ranks.rank > 0
        twins = twins_of(loaded, folder, seeds) if baseline else []
        if ranks.rank == 0:
            check_folders(folder, goes_on=resume or force, several=seeds is not None, baseline=baseline)
        seen = {"record_views": record_views or (), "track": track or ()}
        played = 0
        for one, where in plays:
            played += _run_with_progress(one, where, quiet=silent, ranks=ranks, **options, **seen)
        for one, where in twins:
            _run_with_progress(one, where, quiet=silent, ranks=ranks, **options)
        if baseline and ranks.rank == 0:
            _write_report(folder)
        if not silent:
            _print_summary(folder, [where for _, where in plays], played)
            if baseline:
                _print_cost(folder)
            print_next(*(["sfumato", do, str(plays[0][1])] for do in _NEXT))


@contextmanager
def _naming_resume_command(again: Sequence[str]) -> Iterator[None]:
    """Context that ends an interrupted run with a line on the command that continues it.

    Args:
        again: words of the command; read when it is interrupted.
    """
    try:
        yield
    except KeyboardInterrupt:
        command = command_over_ranks([*again, "--resume"], Launch.of().count)
        raise exit_of_interrupted(command) from None


def _run_with_progress(spec: Spec, folder: Path, *, quiet: bool, **options: Any) -> int:
    """Run the spec in ``folder``, with a progress bar unless ``quiet``; returns how many rounds were run.

    They are 0 for a run that is resumed and was finished. ``options`` and errors are those of `run_rounds`.
    """
    from sfumato.simulation.run_progress import run_progress

    if quiet:
        os.environ.setdefault("WANDB_SILENT", "true")
    with run_progress(spec, wanted=not quiet) as shown:
        shown.step("loading PyTorch")
        from sfumato.simulation.run import run_rounds

        played = 0
        with closing(run_rounds(spec, out=folder, on_step=shown.step, **options)) as playing:
            for result in playing:
                played += 1
                shown.round(result.round, result.rounds, result.metrics)
    return played


def _write_report(folder: Path) -> None:
    """Write the report of the run in ``folder`` again, now that its twin without noise is beside it."""
    from sfumato.report import write_report
    from sfumato.run_folder.reader import REPORT_FILE

    write_report([folder], folder / REPORT_FILE)


def _print_cost(folder: Path) -> None:
    """Print what privacy costs: the differences between the run in ``folder`` and its twin without noise."""
    from sfumato.report.results.cost_of_privacy import costs_of_noise
    from sfumato.report.results.series import load_series
    from sfumato.run_folder.beside import baseline_folder

    twin = baseline_folder(folder)
    (with_noise,), (without_noise,) = load_series([folder]), load_series([twin])
    for cost in costs_of_noise([with_noise, replace(without_noise, name="its twin")]):
        console().print(cost.sentence)
    console().print(f"the twin in {twin} has no guarantee: keep it as private as the data")


def _print_summary(folder: Path, runs: Sequence[Path], played: int) -> None:
    """Print the final score, ε and costs of ``runs``, and where the report is.

    Args:
        folder: of the run, or of the runs of several seeds.
        runs: the folder of every seed.
        played: rounds that were run now; none of runs that were finished and resumed.
    """
    from sfumato.report.figures.control import stop_reasons
    from sfumato.report.results.protection_words import warnings_of_run
    from sfumato.report.results.series import load_series
    from sfumato.report.results.summary import (
        guessing_of_run,
        matrix_of,
        raw_to_trusted_in_words,
    )
    from sfumato.report.results.watched_epsilons import epsilon_lines
    from sfumato.run_folder.headline import ACCURACY, headline_of
    from sfumato.run_folder.reader import REPORT_FILE

    series = load_series([folder])[0]
    score = headline_of(series.first.metrics)
    final = series.final(score.column)
    seeds = f", mean of {len(runs)} seeds" if len(runs) > 1 else ""
    spread = f" ± {score.figure(final.half_width)} (95 %)" if len(runs) > 1 else ""
    out = console()
    if not played:
        out.print("nothing was left to do: all rounds had been run before")
    said = f"final {score.name} {score.text(final.value)}{spread}{seeds}"
    out.print(f"{series.name}: {series.rounds_played} rounds, {said}")
    if score is ACCURACY and (guess := guessing_of_run(series)):
        out.print(guess)
    for ending in stop_reasons(series):
        out.print(ending)
    for line in epsilon_lines(series):
        out.print(line)
    if series.first.privacy.raw_to_trusted_edge:
        out.print(raw_to_trusted_in_words(series))
    for finding in warnings_of_run(series, matrix_of(series)):
        out.print(f"finding: {finding.rstrip('.')}")
    page = folder / REPORT_FILE
    drawn = (
        f"report: {page}"
        if page.exists()
        else f"draw it with: {shlex.join(['sfumato', 'report', str(folder)])}"
    )
    print(f"run folder: {folder}; {drawn}")
