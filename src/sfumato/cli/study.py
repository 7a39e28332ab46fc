"""``sfumato study``: lists studies of the papers' figures and tables, or runs them."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.console import console, empty_table, exit_of_interrupted, with_noun
from sfumato.cli.options import Debug, On, WorkerCount, folder_named
from sfumato.cli.run import Device
from sfumato.rounding import number

if TYPE_CHECKING:
    from sfumato.studies.grids import StudyPlan
    from sfumato.studies.result import StudyResult

DEFAULT_OUT = Path("runs/studies")
ALL = "all"


def study(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Studies, such as h2fdp/fig6; a paper, such as h2fdp; all; or the file of a study. Without "
            "a name, all studies are listed.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=folder_named,
            help="The folder of all studies; default: runs/studies. What it holds already is kept.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A look in minutes: shortened, so it decides nothing.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Seeds of every point that is trained; default: the study's."),
    ] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="With the paper's own data and model, where they are here.")
    ] = False,
    workers: WorkerCount = None,
    on: On = "local",
    device: Annotated[Device, typer.Option(help="The device that computes.")] = Device.AUTO,
    debug: Debug = False,
) -> None:
    """List studies of the papers' figures and tables, or run them and write a page for each."""
    out = out or DEFAULT_OUT
    if not names:
        _print_list(out, paper=paper, quick=quick)
        return
    from sfumato.studies.runner import run_study

    plans = _plans(names, paper=paper, quick=quick, seeds=seeds)
    failed = False
    for plan in plans:
        _announce(plan)
        try:
            result = run_study(plan, out, device=str(device), workers=workers, on=on, tell=_tell)
        except KeyboardInterrupt:
            raise exit_of_interrupted() from None
        _print_result(result)
        failed = failed or bool(result.failures)
    if failed:
        raise typer.Exit(1)


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def _plans(names: list[str], *, paper: bool, quick: bool, seeds: int | None) -> list[StudyPlan]:
    """The plans of the studies that ``names`` call, each once; all are checked before any is run.

    Args:
        names: of studies, of papers for all their studies, or `ALL`.
        paper: whether to take the form of the paper; of a paper's studies only those that have one.
        quick: whether to take few rounds.
        seeds: number of seeds; ``None``: as the study says.
    """
    from sfumato.studies.grids import PAPER_FORM, StudyPlan
    from sfumato.studies.load import load_study, study_names

    known = study_names()
    chosen: dict[str, None] = {}
    for name in names:
        of_paper = [one for one in known if name == ALL or one.partition("/")[0] == name]
        if paper:  # of several, those that have such a form
            of_paper = [one for one in of_paper if PAPER_FORM in load_study(one)[1].forms]
        chosen |= dict.fromkeys(of_paper or [name])
    loaded = [load_study(name) for name in chosen]
    return [StudyPlan.of(name, one, paper=paper, quick=quick, seeds=seeds) for name, one in loaded]


def _announce(plan: StudyPlan) -> None:
    """Say what is run, and what its data need."""
    print(f"{plan.name}: {plan.study.title} ({plan.form}{', quick' if plan.quick else ''})", file=sys.stderr)
    if needs := plan.study.forms[plan.form].needs:
        print(f"  {needs}", file=sys.stderr)


def _print_list(out: Path, *, paper: bool, quick: bool) -> None:
    """Print all studies, what they cost, and what of them is done in ``out``.

    ``paper`` and ``quick``: which form of the studies is listed.
    """
    from sfumato.studies.catalogue import catalogue

    right = ("steps", "× quickstart", "done")
    shown = empty_table("study", "figure or table", "data", *right, right=right)
    shown.columns[0].no_wrap = True
    for entry in catalogue(out, paper=paper, quick=quick):
        plan = entry.plan
        steps, multiple = _cost_of(entry.steps), _cost_of(entry.quickstarts)
        done = f"{entry.done}/{entry.runs}{', page' if entry.has_page else ''}"
        figure = re.split(r" \((?:Sec|App)\.", plan.study.figure)[0]
        shown.add_row(plan.name, f"{figure}: {plan.study.title}", plan.form, steps, multiple, done)
    out_console = console()
    out_console.print(shown)
    out_console.print("steps: local steps of one device each; –: accounts and formulas only")
    if paper:
        out_console.print("?: depends on the sizes of data that are not on this machine")
    out_console.print("× quickstart: the same in multiples of `sfumato run quickstart`")
    out_console.print(f"done: runs in {out}. Run one: sfumato study NAME, or NAME --quick for a look")


def _cost_of(steps: float) -> str:
    """Steps, or their multiple, in a cell of the list."""
    if math.isnan(steps):
        return "?"
    return number(steps, 2) if steps else "–"


def _print_result(result: StudyResult) -> None:
    """Print the verdicts of a study, and where its page is."""
    if result.verdicts and not result.plan.quick:
        shown = empty_table("place", "sentence", "verdict")
        for verdict in result.verdicts:
            shown.add_row(verdict.statement.place, verdict.statement.says, verdict.words)
        console().print(shown)
    if result.failures:
        print(f"{with_noun(len(result.failures), 'run')} failed; the first: {': '.join(result.failures[0])}")
    print(f"{result.page}")
