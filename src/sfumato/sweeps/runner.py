"""Runs a sweep: accounts for every point, then trains each of them, and collects the results."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.pool.jobs import Job, Workers, run_jobs
from sfumato.pool.location import Location
from sfumato.report.page.html import share_script
from sfumato.run_folder.contents import refuse_folders
from sfumato.run_folder.lock import only_writer
from sfumato.run_folder.manifest import MANIFEST_FILE, Manifest, write_manifest
from sfumato.run_folder.reader import REPORT_FILE
from sfumato.simulation.tracking import requested_trackers
from sfumato.sweeps.grid import Axis, Over
from sfumato.sweeps.point_jobs import account_point, train_point
from sfumato.sweeps.point_result import is_trained, result_of
from sfumato.sweeps.request import Failure, SpecLike, SweepRequest, Task
from sfumato.sweeps.results import SWEEP_FILE, TABLE_FILE, Sweep, collect, write_request
from sfumato.sweeps.sweep_progress import PointProgress, sweep_progress

LOG_FILE = "workers.log"
_MOST_WORKERS = 1_000


def sweep(
    spec: SpecLike,
    over: Over,
    *,
    seeds: int = 1,
    out: str | Path | None = None,
    account_only: bool = False,
    device: str = "auto",
    workers: int | None = None,
    on: str = "local",
    overrides: Iterable[str] = (),
    track: str | Sequence[str] = (),
    progress: bool = True,
) -> Sweep:
    """Account for and train a grid of specs in parallel processes; points that ``out`` holds are kept.

    Args:
        spec: a spec, or an argument of `load_spec`.
        over: ``{"key": [a, b]}``; keys varied together: ``{("key1", "key2"): [(a1, a2), (b1, b2)]}``. The
            grid consists of all combinations of its entries.
        seeds: number of seeds of every point, beginning with its spec's.
        out: the folder; default ``runs/NAME-sweep``.
        account_only: whether only ε is computed, without training.
        device: auto, cpu or cuda.
        workers: number of processes; default one per core, or one on a GPU (on Ray: of all its machines, and
            one per GPU). Results do not depend on it.
        on: where they are: ``local``, on this machine; ``ray``, on the Ray cluster that runs here, else on
            one of this machine alone; ``ray://HOST:PORT``, on a cluster whose machines share their files.
        overrides: ``key=value`` for all points, as in `load_spec`.
        track: ``wandb`` or ``mlflow``, or both, as in `sfumato.run`: every point and seed is a run there.
        progress: whether bars are drawn, on a terminal and in a notebook.

    Raises:
        SpecError: the call is wrong, or no point of the grid has a valid spec. Later errors are in the
            sweep's ``failures``.
        MissingExtraError: a tracker or Ray is not installed.
        RunError: the Ray cluster cannot be reached.
        DataError: the data of points that are done have changed since.
    """
    if not isinstance(over, Mapping):
        allowed = "must be a mapping of keys to values, like {'privacy.noise.epsilon': [2, 8]}"
        raise SpecError(Argument("over"), over, allowed)
    axes = [Axis.of(keys, values) for keys, values in over.items()]
    request = SweepRequest.of(
        spec, axes, seeds=seeds, out=out, account_only=account_only, overrides=overrides
    )
    return run_request(request, device=device, workers=workers, on=on, track=track, progress=progress)


def run_request(
    request: SweepRequest,
    *,
    device: str = "auto",
    workers: int | None = None,
    on: str = "local",
    track: str | Sequence[str] = (),
    progress: bool = True,
    otherwise: Callable[[PointProgress], None] = lambda progress: None,
) -> Sweep:
    """Run the points of ``request`` that are not done yet, and write results and report.

    Args:
        request: the sweep.
        device: that trains: auto, cpu or cuda.
        workers: processes; ``None``: one a core, or one here on a GPU; on Ray as many as the cluster has.
        on: ``local``, ``ray`` or a cluster's address.
        track: experiment trackers, by name.
        progress: whether to draw bars.
        otherwise: called with the progress where no bars are drawn.

    Raises:
        SpecError: another process is writing into the sweep's folder, there are too many workers, or no such
            tracker or place.
        MissingExtraError: a tracker or Ray is not installed.
        RunError: the Ray cluster cannot be reached.
        DataError: the data of points that are done have changed since.
    """
    steps = []
    size = len(request.tasks) + len(request.refused)
    with (
        sweep_progress(size, wanted=progress, otherwise=otherwise) as show,
        closing(run_points(request, device=device, workers=workers, on=on, track=track)) as running,
    ):
        for step in running:
            show(step)
            steps.append(step)
    return collect_and_report(request, failures_of(steps))


def run_points(
    request: SweepRequest,
    *,
    device: str = "auto",
    workers: int | None = None,
    on: str = "local",
    track: str | Sequence[str] = (),
) -> Generator[PointProgress, None, None]:
    """Run the points of ``request`` that are not done yet; yields their progress.

    ε of every point is computed first, so that errors are found early. ``device`` and the others are those of
    `run_request`.

    Raises:
        SpecError: another process is writing into the sweep's folder, there are too many workers, or no such
            tracker or place.
        MissingExtraError: a tracker or Ray is not installed.
        RunError: the Ray cluster cannot be reached.
        DataError: the data of points that are done have changed since.
    """
    if workers is not None and not 1 <= workers <= _MOST_WORKERS:
        raise SpecError(Argument("workers"), workers, f"must be from 1 to {_MOST_WORKERS:,}")
    location, trackers = Location.named(on), requested_trackers(track)
    if trackers and request.account_only:
        raise SpecError(Argument("track"), trackers[0], "goes with training: an account has no rounds")
    with only_writer(request.folder, argument=Argument("out")):
        yield from _run_points(request, device, location, workers, trackers)


def _run_points(
    request: SweepRequest, device: str, location: Location, workers: int | None, track: tuple[str, ...]
) -> Generator[PointProgress, None, None]:
    """Run the remaining points in the sweep's folder, of which this process is the only writer.

    ``device``, ``workers`` and ``track``: as of `run_request`.
    """
    refuse_folders(request.folder, (SWEEP_FILE, TABLE_FILE, REPORT_FILE, LOG_FILE, MANIFEST_FILE))
    files = {SWEEP_FILE: write_request(request)}
    files |= dict([share_script(request.folder)])
    write_manifest(request.folder, Manifest(files=files))
    for failure in request.refused:
        yield PointProgress(failure.point, None, finished=True, failure=failure.message)
    if location.is_here:
        device = "cpu" if request.account_only else _picked(device)
        workers = workers or (1 if device.startswith("cuda") else core_count())
    with location.workers(workers, request.folder / LOG_FILE) as pool:
        accounted = set()
        for progress in _account_points(request, pool):
            if not progress.failure:
                accounted.add((progress.point, progress.seed))
            yield replace(progress, finished=request.account_only or bool(progress.failure))
        if request.account_only:
            return
        untrained, jobs = [], []
        for task in request.tasks:
            if is_trained(task.folder, task.spec):
                yield _progress(task, finished=True)
            elif (task.point.name, task.seed) in accounted:
                untrained.append(task)
                jobs.append(
                    Job(train_point, (written_spec(task), task.folder, device, track), task.folder, device)
                )
        yield from _run_tasks(pool, untrained, jobs)


def _account_points(request: SweepRequest, pool: Workers) -> Iterator[PointProgress]:
    """Compute ε of the points that have none; yields the progress of all, those that had it first."""
    unaccounted = []
    for task in request.tasks:
        if result_of(task.folder) is not None:
            yield _progress(task, finished=True)
        else:
            unaccounted.append(task)
    yield from _run_tasks(
        pool,
        unaccounted,
        [Job(account_point, (written_spec(task), task.folder), task.folder) for task in unaccounted],
    )


def _run_tasks(pool: Workers, tasks: Sequence[Task], jobs: Sequence[Job]) -> Iterator[PointProgress]:
    """Do ``jobs``, one for each of ``tasks``; yields their progress."""
    for told in run_jobs(pool, jobs):
        task = tasks[told.number]
        progress = replace(_progress(task, finished=told.finished), failure=told.failure)
        yield (
            progress
            if told.finished
            else replace(progress, round=told.rounds, rounds=task.spec.training.rounds)
        )


def written_spec(task: Task) -> dict[str, Any]:
    """The spec of ``task`` as a mapping of plain values, which `load_spec` reads.

    Keys without a value are left out.
    """
    return task.spec.model_dump(mode="json", by_alias=True, exclude_none=True)


def failures_of(progress: Iterable[PointProgress]) -> tuple[Failure, ...]:
    """The failures (point, seed, error) among the ``progress`` of all points; () if none failed."""
    return tuple(Failure(one.point, one.seed, one.failure) for one in progress if one.failure)


def collect_and_report(request: SweepRequest, failures: Sequence[Failure]) -> Sweep:
    """Collect the results of ``request`` into its table, and write its report.

    ``failures``: points and seeds that failed, with their errors.

    Raises:
        SpecError: another process is writing into the sweep's folder.
        RunError: the table or the report cannot be written.
    """
    with only_writer(request.folder, argument=Argument("out")):
        swept = collect(request, failures)
        swept.report()
    return swept


def _progress(task: Task, *, finished: bool) -> PointProgress:
    """The progress of ``task``: at its end if ``finished``, else before its first round."""
    return PointProgress(task.point.name, task.seed, finished=finished)


def core_count() -> int:
    """The number of CPU cores that this process may use, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _picked(device: str) -> str:
    """The device on which ``device`` (auto, cpu or cuda) lets train, as of `picked_device`.

    It needs torch, which is imported only where something is trained.
    """
    from sfumato.engine.base import picked_device

    return picked_device(device)
