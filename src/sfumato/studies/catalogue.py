"""The list of studies: what each is about, what it costs, and what of it is done in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sfumato.errors import SfumatoError
from sfumato.run_folder.reader import POINTS_FOLDER, read_json
from sfumato.studies.cost import quickstart_steps, study_steps
from sfumato.studies.grids import PAPER_FORM, TABLE_FILE, StudyPlan, points_of
from sfumato.studies.load import load_study, study_names
from sfumato.sweeps.request import RESULT_FILE, SweepRequest


@dataclass(frozen=True)
class CatalogueEntry:
    """A study in the list.

    Attributes:
        plan: of the study.
        runs: number of runs or accounts, one for each point and seed.
        done: how many of these have results in the folder.
        steps: device steps of all runs; NaN where they depend on data that are not on this machine.
        has_page: whether its folder has the table, which is written with the page.
    """

    plan: StudyPlan
    runs: int
    done: int
    steps: float
    has_page: bool

    @property
    def quickstarts(self) -> float:
        """The cost in multiples of the quickstart's device steps.

        NaN where ``steps`` is.
        """
        return self.steps / quickstart_steps()


def catalogue(out: Path, *, paper: bool = False, quick: bool = False) -> Iterator[CatalogueEntry]:
    """Yield an entry for every study of the package, in the form that these options choose.

    Entries are sorted by name.

    Args:
        out: the folder of all studies.
        paper: whether to choose the form with the paper's own data and model; studies without it are left
            out.
        quick: whether to choose the shortened form.
    """
    for name in study_names():
        _, study = load_study(name)
        if paper and PAPER_FORM not in study.forms:
            continue
        plan = StudyPlan.of(name, study, paper=paper, quick=quick)
        yield CatalogueEntry(
            plan,
            sum(len(points_of(plan.axes(grid))) * plan.seeds_of(grid) for grid in plan.study.grids),
            sum(_done_in(plan, grid, out) for grid in plan.study.grids),
            study_steps(plan),
            (plan.folder(out) / TABLE_FILE).is_file(),
        )


def _done_in(plan: StudyPlan, name: str, out: Path) -> int:
    """How many runs of the grid ``name`` have results in ``out``, the folder of all studies.

    Specs are not read. Of each point at most as many are counted as the plan has seeds.
    """
    points = plan.folder(out) / name / POINTS_FOLDER
    trains, seeds = plan.study.grids[name].trains, plan.seeds_of(name)
    return sum(
        min(
            seeds,
            sum(_is_done(folder, trains=trains) for folder in (points / point.folder_name).glob("seed-*")),
        )
        for point in points_of(plan.axes(name))
    )


def done_runs(request: SweepRequest) -> set[tuple[str, int]]:
    """Pairs (name of the point, seed) of the runs whose results are in the folder of ``request``.

    Hashes are not checked. Of a sweep that trains, those with metrics, else those with ε.
    """
    trains = not request.account_only
    return {(task.point.name, task.seed) for task in request.tasks if _is_done(task.folder, trains=trains)}


def _is_done(folder: Path, *, trains: bool) -> bool:
    """Whether the folder of a point and seed holds its result; ``trains``: that of a training."""
    try:
        result = read_json(folder / RESULT_FILE)
    except SfumatoError:
        return False
    return not trains or result.get("metrics") is not None
