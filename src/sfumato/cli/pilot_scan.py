"""``sfumato plan --accuracy``: a grid of settings is planned, trained, and compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.arguments import Argument
from sfumato.cli.console import console, empty_table, exit_of_interrupted
from sfumato.cli.options import folder_named
from sfumato.cli.sweep import line_printer
from sfumato.errors import SpecError
from sfumato.rounding import number

if TYPE_CHECKING:
    from sfumato.spec.document import Spec
    from sfumato.sweeps.pilot_scan import PilotMinimize, PilotPlan

Accuracy = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Train every point of --over with the noise that it needs, and choose the cheapest whose "
        "accuracy at the end (0 to 1, mean over seeds) is at least this. What is trained is not accounted "
        "for.",
    ),
]
Varied = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=A,B,...",
        help="With --accuracy: values of a key that may be chosen, as in `sfumato sweep`. Repeatable.",
    ),
]
PilotSeeds = Annotated[
    int, typer.Option(min=1, metavar="N", help="With --accuracy: seeds of every point that is trained.")
]
PilotFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        parser=folder_named,
        help="With --accuracy: where runs are kept; default: runs/NAME-pilot. What it holds is not repeated.",
    ),
]
_COSTS = {"rounds": "rounds", "energy": "energy J", "delay": "delay s", "noise": "noise"}


def refuse_parts_of_a_scan(
    minimize: str, accuracy: float | None, over: Sequence[str] | None, seeds: int, pilot: Path | None
) -> None:
    """Refuse options of ``plan --accuracy`` (a pilot scan) that are given without others that they need.

    Args:
        minimize: what is minimised.
        accuracy: ``--accuracy``; ``None``: no scan is asked for.
        over: ``--over``, what varies.
        seeds: ``--seeds``; more than 1 need a scan.
        pilot: ``--pilot``, the folder.

    Raises:
        SpecError: rounds are minimised without ``--accuracy``, or some options of a scan are there and some
            not.
    """
    if accuracy is None:
        if minimize == "rounds":
            allowed = f"goes with {Argument('accuracy')}: how many rounds suffice is measured"
            raise SpecError(Argument("minimize"), minimize, allowed)
        for name, given in (("over", over), ("seeds", seeds > 1), ("pilot", pilot)):
            if given:
                raise SpecError(Argument(name), None, f"goes with {Argument('accuracy')} only")
    elif not over:
        allowed = (
            f"is required with {Argument('accuracy')}: what may be chosen, e.g. training.rounds=10,20,40"
        )
        raise SpecError(Argument("over"), None, allowed)


def run_scan(
    spec: Spec,
    targets: Mapping[str, float],
    over: Sequence[str],
    *,
    accuracy: float,
    minimize: PilotMinimize,
    seeds: int,
    pilot: Path | None,
    **running: Any,
) -> PilotPlan:
    """Run `sfumato.plan_by_pilot` with the arguments of the command line.

    Args:
        spec: what the points vary.
        targets: of ε, by observer.
        over: ``key=a,b,...`` each, the axes of the grid.
        accuracy: ``--accuracy``.
        minimize: ``--minimize``.
        seeds: ``--seeds``.
        pilot: ``--pilot``, the folder; ``None``: the default.
        running: device, workers and where they are, as of `PilotScan.run`.

    Raises:
        SpecError: as of `plan_by_pilot`; errors about the folder name ``--pilot``.
    """
    from sfumato.sweeps.grid import Axis
    from sfumato.sweeps.pilot_scan import PilotScan

    axes = [Axis.parse(text) for text in over]
    size = math.prod(len(axis.settings) for axis in axes) * seeds
    try:
        scan = PilotScan.of(spec, targets, axes, accuracy=accuracy, minimize=minimize, seeds=seeds, out=pilot)
        return scan.run(otherwise=line_printer(size), **running)
    except KeyboardInterrupt:
        raise exit_of_interrupted() from None
    except SpecError as error:
        if error.argument != Argument("out"):
            raise
        raise SpecError(Argument("pilot"), error.value, error.allowed) from None


def print_scan(found: PilotPlan, minimize: str) -> None:
    """Print accuracy and cost of every point, which one was chosen, and where the runs are.

    Failures are printed as notes. ``minimize``: what was minimised, for the heading: a key of `_COSTS`.
    """
    from sfumato.sweeps.grid import short_names

    keys = short_names(list(found.points[0].settings))
    shown = empty_table(*keys, "accuracy", _COSTS[minimize], "", right=("accuracy", _COSTS[minimize]))
    for point in found.points:
        accuracy = "failed" if math.isnan(point.accuracy) else f"{point.accuracy:.3f}"
        if not math.isnan(point.half_width):
            accuracy += f" ± {point.half_width:.3f}"
        values = [str(value) for value in point.settings.values()]
        mark = "chosen" if point.chosen else "" if point.reaches else "too low"
        shown.add_row(*values, accuracy, number(point.cost), mark)
    out = console()
    out.print(shown)
    for failure in found.sweep.failures:
        out.print(f"note: {failure.point}: {failure.message}")
    out.print("accuracy: at the end, the mean over seeds; not accounted for")
    print(f"pilot folder: {found.sweep.folder}; see report.html there")
    print()
