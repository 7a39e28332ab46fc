"""Runs a study: its sweeps, the measures that are computed from specs, then the table and the page.

Whatever a folder holds already is kept: runs as in a sweep, computed measures by the fingerprint of their
spec.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sfumato.arguments import Argument
from sfumato.pool.jobs import Job, run_jobs
from sfumato.pool.location import Location
from sfumato.progress_bars import ProgressBars, progress_bars
from sfumato.run_folder.lock import only_writer
from sfumato.run_folder.manifest import record_files
from sfumato.studies.catalogue import done_runs
from sfumato.studies.cost import request_steps
from sfumato.studies.grids import StudyPlan
from sfumato.studies.observations import (
    TABLE_FILE,
    FormulaTask,
    collect_observations,
    compute_measure,
    formula_tasks,
    write_observations,
)
from sfumato.studies.page.document import write_study_page
from sfumato.studies.result import PAGE_FILE, StudyResult
from sfumato.studies.verdicts import judge_statements
from sfumato.sweeps.request import SweepRequest
from sfumato.sweeps.runner import (
    LOG_FILE,
    collect_and_report,
    core_count,
    failures_of,
    run_points,
    written_spec,
)
from sfumato.sweeps.sweep_progress import PointProgress, SweepBars, title_of_point


@dataclass
class StudyProgress:
    """How much of a study is done, as lines on a terminal that draws no bars.

    Attributes:
        tell: takes a line.
        size: number of runs and computed measures.
    """

    tell: Callable[[str], None]
    size: int
    done: int = 0
    began: float = field(default_factory=time.monotonic)
    computed: int = 0

    def finished(self, title: str, failure: str, *, was_there: bool) -> None:
        """One is finished; if it ``was_there`` before, it says nothing about the time that others take."""
        self.done += 1
        self.computed += not was_there
        how = f"failed: {failure}" if failure else "was there" if was_there else "done"
        left = self.size - self.done
        when = ""
        if self.computed and left:
            seconds = (time.monotonic() - self.began) / self.computed * left
            when = f"; about {describe_seconds(seconds)} left"
        self.tell(f"{self.done}/{self.size} {title}: {how}{when}")


def describe_seconds(seconds: float) -> str:
    """``40 s``, ``12 min`` or ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def run_study(
    plan: StudyPlan,
    out: Path,
    *,
    device: str = "auto",
    workers: int | None = None,
    on: str = "local",
    progress: bool = True,
    tell: Callable[[str], None] = lambda line: None,
) -> StudyResult:
    """Run what is left of a study, and write its table and page.

    Args:
        plan: of the study.
        out: the folder of all studies.
        device: auto, cpu or cuda.
        workers: number of processes; default one per core, or one on a GPU.
        on: where they are, as in `sfumato.sweep`.
        progress: whether bars are drawn, on a terminal and in a notebook.
        tell: is told a line for each run that is finished, where no bars are drawn.

    Raises:
        SpecError: a spec of the study is wrong, the folder holds something else, or another process is there.
        MissingExtraError: Ray is not installed.
        RunError: the Ray cluster cannot be reached.
    """
    began = time.monotonic()
    requests = {name: plan.request(name, out) for name in plan.study.grids}
    tasks = {name: formula_tasks(plan, name, request) for name, request in requests.items()}
    size = sum(len(request.tasks) + len(request.refused) for request in requests.values())
    told = StudyProgress(tell, size + sum(map(len, tasks.values())))
    failures: list[tuple[str, str]] = []
    failed: dict[str, set[tuple[str, int | None]]] = {}
    with progress_bars(wanted=progress) as bars:
        for name, request in requests.items():
            states = _run_grid(name, request, bars, told, device=device, workers=workers, on=on)
            found = failures_of(states)
            collect_and_report(request, found)
            failures += [(f"{name}: {one.point}, seed {one.seed}", one.message) for one in found]
            failed[name] = {(one.point, one.seed) for one in found}
            lost = _compute(name, tasks[name], request, bars, told, workers=workers, on=on)
            failures += [(f"{name}: {task.task.point.name}, {task.measure}", why) for task, why in lost]
            failed[name] |= {(task.task.point.name, task.task.seed) for task, _ in lost}
    table = collect_observations(plan, requests, failed)
    verdicts = judge_statements(plan, table)
    seconds = time.monotonic() - began
    folder = plan.folder(out)
    steps = sum(map(request_steps, requests.values()))
    result = StudyResult(plan, folder, table, verdicts, tuple(failures), seconds, steps)
    _write(result)
    return result


def _run_grid(
    name: str,
    request: SweepRequest,
    bars: ProgressBars,
    told: StudyProgress,
    *,
    device: str,
    workers: int | None,
    on: str,
) -> Sequence[PointProgress]:
    """Run the points of a grid that are left; returns what became of all of them."""
    size = len(request.tasks) + len(request.refused)
    drawn = SweepBars(bars, size, name) if bars.are_drawn else None
    kept, steps = done_runs(request), []
    for step in run_points(request, device=device, workers=workers, on=on):
        if drawn is not None:
            drawn.show(step)
        elif step.finished:
            is_kept = (step.point, step.seed) in kept
            told.finished(f"{name}: {title_of_point(step)}", step.failure, was_there=is_kept)
        steps.append(step)
    if drawn is not None:
        drawn.remove()
    return steps


def _compute(
    name: str,
    tasks: Sequence[FormulaTask],
    request: SweepRequest,
    bars: ProgressBars,
    told: StudyProgress,
    *,
    workers: int | None,
    on: str,
) -> list[tuple[FormulaTask, str]]:
    """Compute the measures of a grid that follow from specs; returns those that failed, and why."""
    left = [task for task in tasks if not task.is_done]
    for task in tasks:
        if task not in left:
            told.finished(f"{name}: {_title(task)}", "", was_there=True)
    if not left:
        return []
    location = Location.named(on)
    if location.is_here:
        workers = workers or core_count()
    jobs = [
        Job(compute_measure, (written_spec(task.task), task.measure, task.file), task.task.folder)
        for task in left
    ]
    failed = []
    bar = bars.add(name)
    with (
        only_writer(request.folder, argument=Argument("out")),
        location.workers(workers, request.folder / LOG_FILE) as pool,
    ):
        done = 0
        bar.show(f"0/{len(left)} measures", 0, len(left))
        for step in run_jobs(pool, jobs):
            if not step.finished:
                continue
            done += 1
            bar.show(f"{done}/{len(left)} measures", done, len(left))
            told.finished(f"{name}: {_title(left[step.number])}", step.failure, was_there=False)
            if step.failure:
                failed.append((left[step.number], step.failure))
    bar.remove()
    return failed


def _title(task: FormulaTask) -> str:
    return f"{task.measure} of {task.task.point.name}, seed {task.task.seed}"


def _write(result: StudyResult) -> None:
    """Write the table and the page into the study's folder."""
    plan = result.plan
    axes = list(dict.fromkeys(axis.name for grid in plan.study.grids for axis in plan.axes(grid)))
    with only_writer(result.folder, argument=Argument("out")):
        files = {TABLE_FILE: write_observations(result.table, result.folder / TABLE_FILE, axes)}
        files[PAGE_FILE] = write_study_page(result)
        record_files(result.folder, files)
