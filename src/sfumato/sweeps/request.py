"""A requested sweep: every point is read and checked against the content of the sweep's folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.network.inlining import inlined
from sfumato.run_folder.reader import POINTS_FOLDER, has_run_files
from sfumato.spec.diff import changed_values, first_difference
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec
from sfumato.spec.overrides import seeds_from
from sfumato.sweeps.grid import Axis, Point, grid

MAX_RUNS = 100_000
POINT_FILE = "point.yaml"
RESULT_FILE = "result.json"
"""In the run folder of a point and seed: its spec, and its ε and metrics (`sfumato.sweeps.point_result`)."""

SpecLike = Spec | str | os.PathLike[str] | Mapping[str, Any]


@dataclass(frozen=True)
class Failure:
    """A point and seed that failed, and the error.

    Attributes:
        point: name of its folder.
        seed: ``None``: all seeds, as its spec was refused.
        message: one line.
    """

    point: str
    seed: int | None
    message: str


@dataclass(frozen=True)
class Task:
    """A point with a seed, and the run folder of the two.

    Attributes:
        point: of the grid.
        seed: of the run, which the spec has too.
        spec: that is run.
        folder: of the run.
    """

    point: Point
    seed: int
    spec: Spec
    folder: Path


@dataclass(frozen=True)
class SweepRequest:
    """The points of a sweep that are to be run; nothing is computed yet.

    Attributes:
        folder: of the sweep.
        points: all points of the grid.
        tasks: the points with a valid spec, one task for each seed.
        refused: the points with an invalid spec, and the errors.
        account_only: whether only ε is computed, without training.
    """

    folder: Path
    points: tuple[Point, ...]
    tasks: tuple[Task, ...]
    refused: tuple[Failure, ...]
    account_only: bool

    @classmethod
    def of(
        cls,
        spec: SpecLike,
        axes: Iterable[Axis],
        *,
        seeds: int = 1,
        out: str | Path | None = None,
        account_only: bool = False,
        overrides: Iterable[str] = (),
        prepare: Callable[[Spec], Spec] = lambda spec: spec,
    ) -> SweepRequest:
        """The sweep to do, with the spec of every point; points whose spec is refused are kept as failures.

        Args:
            spec: what the points vary.
            axes: what varies, each with its values.
            seeds: how many seeds every point is trained with, beginning with its spec's.
            out: the folder; ``None``: ``runs/NAME-sweep``.
            account_only: whether only ε is computed, without training.
            overrides: ``key=value`` for all points.
            prepare: makes, of the spec of a point and seed, the spec that is run; if it raises `SpecError`
                that point is a failure.

        Raises:
            SpecError: the call is wrong, no point has a valid spec, or ``out`` holds something else.
        """
        points = grid(tuple(axes))
        runs = len(points) * len(seeds_from(0, seeds))
        if runs > MAX_RUNS:
            allowed = f"with {len(points):,} points makes {runs:,} runs; at most {MAX_RUNS:,} are allowed"
            raise SpecError(Argument("seeds"), seeds, allowed)
        if isinstance(spec, Spec):
            spec = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        common = tuple(overrides)
        read: list[tuple[Point, Sequence[Spec]]] = []
        errors: list[SpecError] = []
        refused = []
        for point in points:
            try:
                one = _load(spec, common, point)
                own = (one.model_copy(update={"seed": seed}) for seed in seeds_from(one.seed, seeds))
                read.append((point, [prepare(each) for each in own]))
            except SpecError as error:
                errors.append(error)
                refused.append(Failure(point.name, None, str(error)))
        if not read:
            raise errors[0]
        folder = Path(out) if out is not None else Path("runs") / f"{read[0][1][0].name}-sweep"
        tasks = tuple(
            Task(point, one.seed, one, task_folder(folder, point.name, one.seed))
            for point, each in read
            for one in each
        )
        _check_folder(folder, tasks)
        return cls(folder, points, tasks, tuple(refused), account_only)


def task_folder(folder: Path, point: str, seed: int) -> Path:
    """The run folder of the point named ``point`` with ``seed``, in the ``folder`` of a sweep."""
    return folder / POINTS_FOLDER / point / f"seed-{seed}"


def _load(
    source: str | os.PathLike[str] | Mapping[str, Any], overrides: tuple[str, ...], point: Point
) -> Spec:
    """The spec of ``point``, with the contents of the files that it names.

    Args:
        source: as of `load_spec`.
        overrides: ``key=value`` for all points.
        point: whose values are set after these.

    Raises:
        SpecError: it is refused; an error in the point's own values names the argument ``over``.
    """
    try:
        return inlined(load_spec(source, (*overrides, *point.overrides)))
    except SpecError as error:
        place = "" if error.argument is None else error.argument.key
        if not any(place.startswith(key) for key, _ in point.values):
            raise
        raise SpecError(Argument("over", key=place), error.value, error.allowed) from None


def _check_folder(folder: Path, tasks: Iterable[Task]) -> None:
    """Raise `SpecError`, before anything is computed, if ``folder`` holds something else than this sweep.

    ``tasks``: of the sweep.
    """
    if os.path.exists(folder) and not os.path.isdir(folder):  # never raise
        raise SpecError(Argument("out"), str(folder), "is a file; give a folder")
    if has_run_files(folder):
        raise SpecError(Argument("out"), str(folder), "holds a run; give another folder")
    for task in tasks:
        kept = task.folder / POINT_FILE
        if not os.path.isfile(kept):
            continue
        for key, (old, new) in changed_values(load_spec(kept), task.spec).items():
            if key.startswith("hashes"):  # of files whose content is compared
                continue
            where, old, new = first_difference(key, old, new)
            raise SpecError(
                Argument("out"),
                str(folder),
                f"holds point {task.point.name} of another spec: {where} was {old!r} and now is {new!r}; "
                "give another folder",
            )
