"""Runs a study: its sweeps, the measures that are computed from specs, then the table and the page.

Whatever a folder holds already is kept: runs as in a sweep, computed measures by the fingerprint of their
spec.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from sfumato.arguments import Argument
from sfumato.data.dataset_sizes import request_of
from sfumato.data.datasets import load_dataset
from sfumato.pool.jobs import Job, run_jobs
from sfumato.pool.location import Location
from sfumato.progress_bars import ProgressBars, progress_bars
from sfumato.run_folder.lock import only_writer
from sfumato.run_folder.manifest import record_files
from sfumato.studies.catalogue import done_runs
from sfumato.studies.cost import request_steps
from sfumato.studies.grids import TABLE_FILE, StudyPlan, points_of
from sfumato.studies.observations import (
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
    """Tells how much of a study is done, line by line, where no progress bar is drawn.

    Attributes:
        tell: called with every line.
        size: number of runs and computed measures.
        done: how many of these are finished, failed or not.
        began: when, by ``time.monotonic``.
        computed: how many were finished since, without those that were done before.
    """

    tell: Callable[[str], None]
    size: int
    done: int = 0
    began: float = field(default_factory=time.monotonic)
    computed: int = 0

    def finished(self, title: str, failure: str, *, was_there: bool) -> None:
        """Tell that a run or measure is finished, and about how long the others will take.

        The line is such as ``3/20 fig6: rounds 50, seed 0: done; about 12 min left``.

        Args:
            title: of the run or measure.
            failure: why it failed; "" if it did not.
            was_there: whether it was done before; then it does not count for the estimate of time.
        """
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
    """A duration of ``seconds`` as text: ``40 s``, ``12 min`` (from 90 s) or ``3.5 h`` (from 90 min)."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _say_nothing(line: str) -> None:
    """Told a line, do nothing with it."""


def run_study(
    plan: StudyPlan,
    out: Path,
    *,
    device: str = "auto",
    workers: int | None = None,
    on: str = "local",
    progress: bool = True,
    tell: Callable[[str], None] = _say_nothing,
) -> StudyResult:
    """Run the part of a study that ``out`` does not hold yet, and write the study's table and page.

    Args:
        plan: of the study.
        out: the folder of all studies.
        device: auto, cpu or cuda.
        workers: number of processes; default one per core, or one on a GPU.
        on: where they are, as in `sfumato.sweep`.
        progress: whether bars are drawn, on a terminal and in a notebook.
        tell: called with a line for each run that is finished, where no bars are drawn.

    Returns:
        All that the study measured, and verdicts on the paper's statements. Runs that failed are listed in
        it (``failures``): they raise nothing.

    Raises:
        SpecError: a spec of the study is wrong, the folder holds something else, or another process is there.
        DataError: data that the form ``needs`` are missing; nothing was run.
        MissingExtraError: Ray is not installed.
        RunError: the Ray cluster cannot be reached.
    """
    began = time.monotonic()
    requests = {name: plan.request(name, out) for name in plan.study.grids}
    if plan.study.forms[plan.form].needs:
        _refuse_missing_data(requests.values())
    tasks = {name: formula_tasks(plan, name, request) for name, request in requests.items()}
    size = sum(len(request.tasks) + len(request.refused) for request in requests.values())
    failures: list[tuple[str, str]] = []
    failed: dict[str, set[tuple[str, int | None]]] = {}
    with progress_bars(wanted=progress) as bars:
        told = StudyProgress(_say_nothing if bars.are_drawn else tell, size + sum(map(len, tasks.values())))
        for name, request in requests.items():
            grid = _GridRun(name, request, _words_of(plan, name), bars, told, device, workers, on)
            found = failures_of(grid.run())
            collect_and_report(request, found)
            failures += [(f"{name}: {grid.words[one.point]}, seed {one.seed}", one.message) for one in found]
            failed[name] = {(one.point, one.seed) for one in found}
            lost = grid.compute(tasks[name])
            failures += [(f"{name}: {grid.title(task)}", why) for task, why in lost]
            failed[name] |= {(task.task.point.name, task.task.seed) for task, _ in lost}
    table = collect_observations(plan, requests, failed)
    verdicts = judge_statements(plan, table)
    steps = sum(map(request_steps, requests.values()))
    seconds = time.monotonic() - began
    result = StudyResult(plan, plan.folder(out), table, verdicts, tuple(failures), seconds, steps)
    _write(result)
    return result


def _refuse_missing_data(requests: Iterable[SweepRequest]) -> None:
    """Load every data set that runs are left to train on once, so that none begins where one is missing.

    Raises:
        DataError: a set is neither on this machine nor to be downloaded.
    """
    left = [one for one in requests if not one.account_only and len(done_runs(one)) < len(one.tasks)]
    found = {task.spec.data.source: request_of(task.spec.data, 1) for one in left for task in one.tasks}
    for source, request in found.items():
        load_dataset(source, request)


def _words_of(plan: StudyPlan, name: str) -> dict[str, str]:
    """What the points of the grid ``name`` are called, by their folders' names: ``epsilon 2, rounds 50``.

    Only axes that vary are named; of a grid without any it is the grid's name.
    """
    varied = [axis.name for axis in plan.axes(name) if len(axis.settings) > 1]
    return {
        point.folder_name: ", ".join(f"{axis} {point.settings[axis]}" for axis in varied) or name
        for point in points_of(plan.axes(name))
    }


@dataclass(frozen=True)
class _GridRun:
    """A grid with where its work is done, and who is told of it.

    Attributes:
        name: of the grid.
        request: its sweep.
        words: what its points are called, by their folders' names.
        bars: where bars are drawn.
        told: who is told where none are.
        device: auto, cpu or cuda.
        workers: number of processes.
        on: where they are.
    """

    name: str
    request: SweepRequest
    words: Mapping[str, str]
    bars: ProgressBars
    told: StudyProgress
    device: str
    workers: int | None
    on: str

    def run(self) -> list[PointProgress]:
        """Run the points that are left; returns what became of all of them."""
        request = self.request
        steps: list[PointProgress] = []
        size = len(request.tasks) + len(request.refused)
        drawn = SweepBars(self.bars, size, self.name) if self.bars.are_drawn else None
        kept = done_runs(request)
        running = run_points(request, device=self.device, workers=self.workers, on=self.on)
        with closing(running):
            for step in running:
                shown = replace(step, point=self.words[step.point])
                if drawn is not None:
                    drawn.show(shown)
                elif step.finished:
                    is_kept = (step.point, step.seed) in kept
                    self._finished(title_of_point(shown), step.failure, was_there=is_kept)
                steps.append(step)
        if drawn is not None:
            drawn.remove()
        return steps

    def compute(self, tasks: Sequence[FormulaTask]) -> list[tuple[FormulaTask, str]]:
        """Compute the measures ``tasks``, which follow from specs alone; what is computed already is kept.

        Returns:
            The tasks that failed, each with the reason.
        """
        left = []
        for task in tasks:
            if task.is_done:
                self._finished(self.title(task), "", was_there=True)
            else:
                left.append(task)
        if not left:
            return []
        location, workers = Location.named(self.on), self.workers
        if location.is_here:
            workers = workers or core_count()
        jobs = [
            Job(compute_measure, (written_spec(task.task), task.measure, task.file), task.task.folder)
            for task in left
        ]
        failed = []
        bar, done = self.bars.add(self.name), 0
        with (
            only_writer(self.request.folder, argument=Argument("out")),
            location.workers(workers, self.request.folder / LOG_FILE) as pool,
        ):
            bar.show(f"0/{len(left)} measures", 0, len(left))
            for step in run_jobs(pool, jobs):
                if not step.finished:
                    continue
                task, done = left[step.number], done + 1
                bar.show(f"{done}/{len(left)} measures", done, len(left))
                self._finished(self.title(task), step.failure, was_there=False)
                if step.failure:
                    failed.append((task, step.failure))
        bar.remove()
        return failed

    def title(self, task: FormulaTask) -> str:
        """A computed measure as a person reads it: ``pairs of rounds 50, seed 0``."""
        name = task.measure.partition(":")[0]
        return f"{name} of {self.words[task.task.point.name]}, seed {task.task.seed}"

    def _finished(self, title: str, failure: str, *, was_there: bool) -> None:
        """Tell that a run or measure is finished, with the name of the grid before its title.

        Arguments as of `StudyProgress.finished`.
        """
        self.told.finished(f"{self.name}: {title}", failure, was_there=was_there)


def _write(result: StudyResult) -> None:
    """Write the table and the page into the study's folder."""
    table, axes = result.folder / TABLE_FILE, result.plan.axis_names
    with only_writer(result.folder, argument=Argument("out")):
        files = {TABLE_FILE: write_observations(result.table, table, axes)}
        files[PAGE_FILE] = write_study_page(result)
        record_files(result.folder, files)
