"""The list of studies: what each is about, what it costs, and what of it is done in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sfumato.errors import SfumatoError
from sfumato.run_folder.reader import read_json
from sfumato.studies.cost import quickstart_steps, request_steps
from sfumato.studies.grids import PAPER_FORM, StudyPlan
from sfumato.studies.load import load_study, study_names
from sfumato.studies.observations import TABLE_FILE
from sfumato.sweeps.point_result import RESULT_FILE
from sfumato.sweeps.request import SweepRequest


@dataclass(frozen=True)
class CatalogueEntry:
    """A study in the list.

    Attributes:
        plan: of the study.
        runs: number of points and seeds.
        done: of them that are in the folder.
        steps: device steps of all runs.
        has_page: whether its table and page are there.
    """

    plan: StudyPlan
    runs: int
    done: int
    steps: float
    has_page: bool

    @property
    def quickstarts(self) -> float:
        """Device steps in multiples of the quickstart's."""
        return self.steps / quickstart_steps()


def catalogue(out: Path, *, paper: bool = False, quick: bool = False) -> Iterator[CatalogueEntry]:
    """Every study that comes with the package, in the form that these options choose.

    Args:
        out: the folder of all studies.
        paper: whether the form has the paper's own data and model; studies without it are left out.
        quick: whether the form is shortened.
    """
    for name in study_names():
        _, study = load_study(name)
        if paper and PAPER_FORM not in study.forms:
            continue
        plan = StudyPlan.of(name, study, paper=paper, quick=quick)
        requests = [plan.request(grid, out) for grid in study.grids]
        yield CatalogueEntry(
            plan,
            sum(len(request.tasks) for request in requests),
            sum(len(done_runs(request)) for request in requests),
            sum(map(request_steps, requests)),
            (plan.folder(out) / TABLE_FILE).is_file(),
        )


def done_runs(request: SweepRequest) -> set[tuple[str, int]]:
    """Points and seeds whose results are in the folder; a run checks them again before it keeps them."""
    done = set()
    for task in request.tasks:
        try:
            result = read_json(task.folder / RESULT_FILE)
        except SfumatoError:
            continue
        if request.account_only or result.get("metrics") is not None:
            done.add((task.point.name, task.seed))
    return done
