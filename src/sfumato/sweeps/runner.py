"""Plays a sweep: accounts for every point, then trains each, and gathers what became of them."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sfumato.errors import SpecError
from sfumato.report.html_page import share_script
from sfumato.run_folder.lock import only_writer
from sfumato.run_folder.manifest import Manifest, write_manifest
from sfumato.sweeps.grid import Axis, Over
from sfumato.sweeps.point_result import is_trained, result_of
from sfumato.sweeps.request import Asked, Failure, Source, Task
from sfumato.sweeps.results import SWEEP_FILE, Sweep, collect, write_asked
from sfumato.sweeps.worker_pool import Crew, Job

LOG_FILE = "workers.log"
_MOST_WORKERS = 1_000


@dataclass(frozen=True)
class Progress:
    """Where one point and seed stands.

    Attributes:
        point: its name.
        seed: its seed; ``None`` where the point could not even be read.
        round: rounds done.
        rounds: rounds in all; 0 until it trains.
        over: it is done, was done before, or failed.
        failure: why it failed, else empty.
    """

    point: str
    seed: int | None
    round: int = 0
    rounds: int = 0
    over: bool = False
    failure: str = ""


def sweep(
    spec: Source,
    over: Over,
    *,
    seeds: int = 1,
    out: str | Path | None = None,
    account_only: bool = False,
    device: str = "auto",
    workers: int | None = None,
    changes: Iterable[str] = (),
) -> Sweep:
    """Account for and train a grid of specs, in processes side by side; what ``out`` holds already is kept.

    Args:
        spec: a spec, or whatever `load_spec` takes.
        over: ``{"key": [a, b]}``; keys varied together: ``{("key1", "key2"): [(a1, a2), (b1, b2)]}``. The
            grid is the product of its entries.
        seeds: how many of every point, from its spec's on.
        out: the folder; default ``runs/NAME-sweep``.
        account_only: ε only, no training.
        device: auto, cpu or cuda.
        workers: processes; default one a core, or one on a GPU. Results do not depend on it.
        changes: ``key=value`` for all points, as `load_spec` takes them.

    Raises:
        SpecError: the call is wrong, or no point of the grid can be read. What fails later is among the
            sweep's ``failures``.
    """
    axes = [Axis.of(keys, values) for keys, values in over.items()]
    asked = Asked.of(spec, axes, seeds=seeds, out=out, account_only=account_only, changes=changes)
    return finish(asked, failures_of(play(asked, device=device, workers=workers)))


def play(
    asked: Asked, *, device: str = "auto", workers: int | None = None
) -> Generator[Progress, None, None]:
    """Do what is left of ``asked``: ε of every point first, so that mistakes show before anything trains.

    Raises:
        SpecError: another process is writing into the sweep's folder, or there are too many workers.
        DataError: points are done already, with data that have changed since.
    """
    if workers is not None and not 1 <= workers <= _MOST_WORKERS:
        raise SpecError("--workers", workers, f"must be from 1 to {_MOST_WORKERS:,}: each is a process")
    with only_writer(asked.folder, option="--out"):
        yield from _play(asked, device, workers)


def _play(asked: Asked, device: str, workers: int | None) -> Generator[Progress, None, None]:
    files = {SWEEP_FILE: write_asked(asked)}
    files |= dict([share_script(asked.folder)])
    write_manifest(asked.folder, Manifest(files=files))
    for failure in asked.unread:
        yield Progress(failure.point, None, over=True, failure=failure.message)
    chosen = "cpu" if asked.account_only else _device(device)
    size = workers or (1 if chosen.startswith("cuda") else _cores())
    with Crew(size, asked.folder / LOG_FILE) as crew:
        sound = set()
        for progress in _account(asked, crew):
            if not progress.failure:
                sound.add((progress.point, progress.seed))
            yield replace(progress, over=asked.account_only or bool(progress.failure))
        if asked.account_only:
            return
        left = []
        for task in asked.tasks:
            if is_trained(task.folder, task.spec):
                yield _at(task, over=True)
            elif (task.point.name, task.seed) in sound:
                left.append(task)
        yield from _work(crew, left, "run", chosen)


def _account(asked: Asked, crew: Crew) -> Iterator[Progress]:
    left = []
    for task in asked.tasks:
        if result_of(task.folder) is not None:
            yield _at(task, over=True)
        else:
            left.append(task)
    yield from _work(crew, left, "account", "cpu")


def _work(crew: Crew, tasks: Sequence[Task], what: str, device: str) -> Iterator[Progress]:
    jobs = [
        Job(i, what, task.spec.model_dump(mode="json", by_alias=True, exclude_none=True), task.folder, device)
        for i, task in enumerate(tasks)
    ]
    for job, said in crew.work(jobs):
        task = tasks[job.number]
        if "round" in said:
            yield replace(_at(task, over=False), round=said["round"], rounds=said["rounds"])
        else:
            yield replace(_at(task, over=True), failure=said.get("failed", ""))


def failures_of(progress: Iterable[Progress]) -> tuple[Failure, ...]:
    """What failed, once ``progress`` has run out."""
    return tuple(Failure(one.point, one.seed, one.failure) for one in progress if one.failure)


def finish(asked: Asked, failures: Sequence[Failure]) -> Sweep:
    """Gather the results of ``asked`` and draw its report.

    Raises:
        SpecError: another process is writing into the sweep's folder.
    """
    with only_writer(asked.folder, option="--out"):
        swept = collect(asked, failures)
        swept.report()
    return swept


def _at(task: Task, *, over: bool) -> Progress:
    return Progress(task.point.name, task.seed, over=over)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _device(wanted: str) -> str:
    """The device that ``auto`` stands for; torch is loaded only to find out."""
    if wanted != "auto":
        return wanted
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
