"""`plan_by_pilot`: the settings that reach an accuracy at least cost, each with the noise that targets need.

Every point of a grid is planned for the targets of ε, trained, and kept in the folder of a sweep. No formula
chooses: what noise and longer rounds cost in accuracy is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.planning import PlannedSpec, plan
from sfumato.planning.convex_program import solver
from sfumato.spec.document import Spec, require_spec
from sfumato.sweeps.grid import Axis, Over
from sfumato.sweeps.request import SweepRequest
from sfumato.sweeps.results import Sweep
from sfumato.sweeps.runner import run_request
from sfumato.sweeps.sweep_progress import PointProgress

PilotMinimize = Literal["noise", "energy", "delay", "rounds"]


@dataclass(frozen=True)
class PilotPoint:
    """A point of the grid that was planned and trained.

    Attributes:
        name: of its folder.
        settings: the keys that vary, and their values.
        accuracy: at the end of the training, the mean over seeds; NaN where a seed has failed.
        half_width: of its 95 % interval over seeds; NaN for one seed.
        cost: what is minimised: rounds, J, s, or the noise (`PlannedSpec.noise`), the mean over seeds.
        reaches: whether the mean accuracy is as high as asked for.
        chosen: whether the plan uses it.
    """

    name: str
    settings: Mapping[str, object]
    accuracy: float
    half_width: float
    cost: float
    reaches: bool
    chosen: bool = False


@dataclass(frozen=True)
class PilotPlan:
    """The result of a pilot scan.

    Attributes:
        planned: of the chosen point; its spec can be run.
        points: all points that could be planned, in the order of the grid.
        sweep: of the runs, with the points that could not be planned among its failures.
    """

    planned: PlannedSpec
    points: tuple[PilotPoint, ...]
    sweep: Sweep


def plan_by_pilot(
    spec: Spec,
    targets: Mapping[str, float],
    over: Over,
    *,
    accuracy: float,
    minimize: PilotMinimize = "rounds",
    seeds: int = 1,
    out: str | Path | None = None,
    device: str = "auto",
    workers: int | None = None,
    on: str = "local",
    progress: bool = True,
) -> PilotPlan:
    """Plan every point of a grid for ``targets``, train it, and choose the cheapest that is accurate enough.

    The privacy cost of these trainings is not accounted for, though the choice follows from their accuracies.
    Scan public data, or count every run as a release of its own.

    Args:
        spec: as of `sfumato.plan`.
        targets: of ε, as of `sfumato.plan`; every seed of every point meets them.
        over: the grid, as of `sfumato.sweep`: rounds, local steps, batches, participants, or any keys.
        accuracy: least mean accuracy over seeds at the end of the training, 0 to 1.
        minimize: rounds, energy or delay of the whole training, or the noise in the model.
        seeds: of every point.
        out: the folder of the sweep, where runs are kept; default ``runs/NAME-pilot``.
        device: as of `sfumato.sweep`, as are the rest.
        workers: number of processes.
        on: where they are.
        progress: whether bars are drawn.

    Raises:
        MissingExtraError: the extra ``plan`` is not installed.
        SpecError: the call is wrong, no point can be planned, or none is accurate enough.
    """
    require_spec(spec)
    if not isinstance(over, Mapping):
        raise SpecError(Argument("over"), over, "must be a mapping of keys to values, like {'seed': [0, 1]}")
    axes = [Axis.of(keys, values) for keys, values in over.items()]
    scan = PilotScan.of(spec, targets, axes, accuracy=accuracy, minimize=minimize, seeds=seeds, out=out)
    return scan.run(device=device, workers=workers, on=on, progress=progress)


@dataclass(frozen=True)
class PilotScan:
    """A grid whose points are planned for targets of ε; nothing is trained yet.

    Attributes:
        request: the sweep that trains the planned points.
        plans: of every point and seed, by the `id` of the planned spec.
        accuracy: at least so high at the end of the training, the mean over seeds.
        minimize: as of `plan_by_pilot`.
        seeds: of every point.
    """

    request: SweepRequest
    plans: Mapping[int, PlannedSpec]
    accuracy: float
    minimize: PilotMinimize
    seeds: int

    @classmethod
    def of(
        cls,
        spec: Spec,
        targets: Mapping[str, float],
        axes: Iterable[Axis],
        *,
        accuracy: float,
        minimize: PilotMinimize,
        seeds: int = 1,
        out: str | Path | None = None,
    ) -> PilotScan:
        """The scan with every point of the grid of ``axes`` planned for ``targets``.

        ``accuracy``, ``seeds``, ``out`` and the others, and errors, are those of `plan_by_pilot`.
        """
        if not 0 < accuracy <= 1:
            raise SpecError(Argument("accuracy"), accuracy, "must be above 0, at most 1")
        if spec.data.task == "regression":
            raise SpecError("data.task", spec.data.task, "has no accuracy to reach")
        if minimize in ("energy", "delay") and not spec.counts_radio:
            raise SpecError("radio", "none", f"has no {minimize} to minimise: give a radio")
        solver()  # before anything is read
        plans: dict[int, PlannedSpec] = {}

        def planned(one: Spec) -> Spec:
            """The spec ``one`` with noise planned for the targets; its plan is kept."""
            found = plan(one, targets)
            plans[id(found.spec)] = found
            return found.spec

        folder = Path(out) if out is not None else Path("runs") / f"{spec.name}-pilot"
        request = SweepRequest.of(spec, tuple(axes), seeds=seeds, out=folder, prepare=planned)
        return cls(request, plans, accuracy, minimize, seeds)

    def run(
        self,
        *,
        device: str = "auto",
        workers: int | None = None,
        on: str = "local",
        progress: bool = True,
        otherwise: Callable[[PointProgress], None] = lambda progress: None,
    ) -> PilotPlan:
        """Train the points, and choose the cheapest that is accurate enough.

        ``device``, ``workers``, ``on``, ``progress`` and ``otherwise`` are those of `run_request`.

        Raises:
            SpecError: no point is accurate enough.
        """
        swept = run_request(
            self.request, device=device, workers=workers, on=on, progress=progress, otherwise=otherwise
        )
        points = self._points(swept)
        measured = (point for point in points if point.reaches and not math.isnan(point.cost))
        best = min(measured, key=lambda point: (point.cost, -point.accuracy), default=None)
        if best is None:
            raise _none_is_accurate(points, self.accuracy, swept)
        first = next(task for task in self.request.tasks if task.point.name == best.name)
        marked = tuple(replace(point, chosen=point is best) for point in points)
        return PilotPlan(self.plans[id(first.spec)], marked, swept)

    def _points(self, swept: Sweep) -> tuple[PilotPoint, ...]:
        """What ``swept`` measured of every point that could be planned, in the order of the grid.

        Accuracies are NaN where a seed failed.
        """
        measured = {row["point"]: row for row in swept.summary().to_dict("records")}
        found = []
        for point in self.request.points:
            tasks = [task for task in self.request.tasks if task.point == point]
            if not tasks:
                continue
            row = measured[point.name]
            is_whole = row["seeds"] == self.seeds
            reached = float(row["accuracy"]) if is_whole else math.nan
            match self.minimize:
                case "rounds":
                    cost = float(tasks[0].spec.training.rounds)
                case "noise":
                    cost = sum(self.plans[id(task.spec)].noise for task in tasks) / len(tasks)
                case _:
                    cost = float(row["energy_j" if self.minimize == "energy" else "delay_s"])
            half_width = float(row["accuracy_half_width"]) if is_whole else math.nan
            reaches = reached >= self.accuracy
            found.append(PilotPoint(point.name, dict(point.values), reached, half_width, cost, reaches))
        return tuple(found)


def _none_is_accurate(points: Sequence[PilotPoint], accuracy: float, swept: Sweep) -> SpecError:
    """The error for a grid of which no point reaches the accuracy: it names the best point.

    Where every point failed it gives the reason of the first.
    """
    known = [point for point in points if not math.isnan(point.accuracy)]
    if not known:
        failure = swept.failures[0]
        allowed = f"no point was trained: {failure.point}: {failure.message}; the scan is in {swept.folder}"
        return SpecError(Argument("accuracy"), accuracy, allowed)
    best = max(known, key=lambda point: point.accuracy)
    allowed = f"no point is so accurate: {best.name} has {best.accuracy:.4f}; the scan is in {swept.folder}"
    return SpecError(Argument("accuracy"), accuracy, allowed)
