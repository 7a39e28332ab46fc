"""``sfumato plan``: from targets of ε to a spec whose noise meets them."""

from __future__ import annotations

import enum
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from sfumato.arguments import Argument
from sfumato.cli.console import console, empty_table, key_value_table, with_noun
from sfumato.cli.options import Debug, On, Set, SpecSource, WorkerCount
from sfumato.cli.pilot_scan import (
    Accuracy,
    PilotFolder,
    PilotSeeds,
    Varied,
    print_scan,
    refuse_parts_of_a_scan,
    run_scan,
)
from sfumato.cli.run import Device
from sfumato.cli.spec_argument import locating_errors, read_spec
from sfumato.errors import SpecError
from sfumato.rounding import number, upper_bound

if TYPE_CHECKING:
    from rich.table import Table

    from sfumato.planning import PlannedSpec
    from sfumato.planning.cost_search import Minimize as PlanMinimize

MOST_ROWS = 24
MOST_OWNERS = 2
SUFFIX = "-plan"


class Minimize(enum.StrEnum):
    """The quantity that a plan minimises."""

    NOISE = "noise"
    ENERGY = "energy"
    DELAY = "delay"
    ROUNDS = "rounds"


Target = Annotated[
    list[str],
    typer.Option(
        metavar="OBSERVER=EPSILON",
        help="Largest ε of any device (with privacy.unit: record or person, of any of these) towards a "
        "kind of observer (cloud, own-edge, other-edge, edge, peer, other-device, device, public), a "
        "party, or a coalition joined by commas. noise=X limits the noise in the global model (in "
        "groups: in their models). Repeatable.",
    ),
]


def plan(
    spec: SpecSource,
    target: Target,
    minimize: Annotated[
        Minimize,
        typer.Option(
            help="What to minimise. energy and delay also choose participation and round length. With "
            "--accuracy: of the points of --over, as rounds always do."
        ),
    ] = Minimize.NOISE,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="SPEC", help="The file to write; default: NAME-plan.yaml, if it does not exist."
        ),
    ] = None,
    accuracy: Accuracy = None,
    over: Varied = None,
    seeds: PilotSeeds = 1,
    pilot: PilotFolder = None,
    workers: WorkerCount = None,
    on: On = "local",
    device: Annotated[Device, typer.Option(help="The device that computes.")] = Device.AUTO,
    changes: Set = None,
    debug: Debug = False,
) -> None:
    """Choose the noise that meets targets of ε, and write the spec."""
    from sfumato.planning import plan as plan_for

    targets = _parse_targets(target)
    refuse_parts_of_a_scan(minimize.value, accuracy, over, seeds, pilot)
    loaded = read_spec(spec, changes)
    path = out or Path(f"{loaded.name}{SUFFIX}.yaml")
    if out is None and path.exists():
        raise SpecError(str(path), None, "exists already; name another file with --out")
    with locating_errors(spec, changes):
        if accuracy is None or over is None:
            planned = plan_for(loaded, targets, minimize=cast("PlanMinimize", minimize.value))
        else:
            running = {"device": str(device), "workers": workers, "on": on}
            found = run_scan(
                loaded,
                targets,
                over,
                accuracy=accuracy,
                minimize=minimize.value,
                seeds=seeds,
                pilot=pilot,
                **running,
            )
            print_scan(found, minimize.value)
            planned = found.planned
    _write_planned_spec(
        planned, path, f"# Planned for {', '.join(f'{o}={e:g}' for o, e in targets.items())}.\n"
    )
    _print_plan(planned, minimize)
    print(f"written: {path}\nverify it with: {shlex.join(['sfumato', 'account', str(path)])}")


def _parse_targets(written: list[str]) -> dict[str, float]:
    """ε by observer, from targets written ``observer=ε``, such as ``cloud=2`` or ``device:1,device:2=8``.

    ``noise=X`` is one of them, by the name ``noise``.

    Raises:
        SpecError: one is written otherwise, is not above 0 and finite, or an observer is named twice.
    """
    found: dict[str, float] = {}
    for text in written:
        observer, equals, value = text.rpartition("=")
        try:
            epsilon = float(value)
        except ValueError:
            epsilon = math.nan
        if not equals or not observer.strip() or not 0 < epsilon < math.inf:
            raise SpecError(
                Argument("targets"), text, "must be OBSERVER=EPSILON, a number above 0, e.g. cloud=2"
            )
        if observer in found:
            raise SpecError(
                Argument("targets"), text, f"contradicts {observer}={found[observer]:g}: give one of them"
            )
        found[observer] = epsilon
    return found


def _write_planned_spec(planned: PlannedSpec, path: Path, header: str) -> None:
    """Write the planned spec as YAML to ``path``, below a header of comments.

    A file that is there is replaced. The spec's name gets the ending ``-plan``.

    Raises:
        SpecError: the file cannot be written.
    """
    from sfumato.spec import dump_spec
    from sfumato.spec.document import MAX_NAME

    name = f"{planned.spec.name[: MAX_NAME - len(SUFFIX)]}{SUFFIX}"  # so that a run of it gets its own folder
    text = dump_spec(planned.spec.model_copy(update={"name": name}))
    try:
        path.write_text(header + text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise SpecError(Argument("out", str(path)), None, f"cannot be written: {error.strerror}") from None


def _print_plan(planned: PlannedSpec, minimize: Minimize) -> None:
    """Print the targets, the sources of noise, the options tried and a summary of a plan."""
    out = console()
    delta = planned.spec.privacy.delta
    out.print(f"{planned.spec.name}: least {minimize} that meets the targets at δ = {number(delta)}")
    out.print()
    out.print(_target_table(planned))
    out.print("price: % of the noise variance that a target 1 % larger would save")
    out.print()
    out.print(_source_table(planned))
    if len(planned.sources) > MOST_ROWS:
        out.print(f"… {len(planned.sources) - MOST_ROWS:,} more sources; the written spec lists all of them")
    out.print("multiplier: noise standard deviation over the zero-out sensitivity of a message")
    out.print()
    if planned.options:
        out.print(_option_table(planned))
        out.print(
            "allowed: at most the noise given by noise=X; without it, at most the noise that the spec's own "
            "participation and rounds need, relative to the distance that the model can move"
        )
        out.print()
    out.print(key_value_table(_summary_rows(planned)))
    for note in planned.notes:
        out.print(f"note: {note}")


def _target_table(planned: PlannedSpec) -> Table:
    """The table of targets: the worst pair of each, its ε and its price."""
    shown = empty_table("target", "worst unit", "observer", "ε", "binding", "price", right=("ε", "price"))
    for row in planned.targets:
        binding = "yes" if row.is_binding else "no"
        shown.add_row(
            str(row.target),
            planned.plan.parties.titled(row.unit),
            planned.plan.parties.titled(row.observer),
            upper_bound(row.epsilon),
            binding,
            number(row.price),
        )
    return shown


def _source_table(planned: PlannedSpec) -> Table:
    """The table of parties that add noise, with their noise multipliers."""
    shown = empty_table("noise added by", "at aggregations", "multiplier", right=("multiplier",))
    for source in planned.sources[:MOST_ROWS]:
        more = len(source.owners) - MOST_OWNERS
        named = map(planned.plan.parties.titled, source.owners[:MOST_OWNERS])
        owners = ", ".join(named) + (f" and {more} more" if more > 0 else "")
        shown.add_row(owners, source.aggregation, number(source.multiplier))
    return shown


def _option_table(planned: PlannedSpec) -> Table:
    """The table of the participations and round lengths that were tried."""
    right = ("participants", "local steps", "noise", "energy J", "delay s")
    shown = empty_table(*right, "allowed", "", right=right)
    for option in planned.options:
        shown.add_row(
            option.participation,
            str(option.local_steps) if option.local_steps else "epochs",
            number(option.noise),
            number(option.cost.energy_j),
            number(option.cost.delay_s),
            "yes" if option.allowed else "no",
            "chosen" if option.chosen else "",
        )
    return shown


def _summary_rows(planned: PlannedSpec) -> list[tuple[str, str]]:
    """(name, text) of the plan's noise, of the spec's own noise where it is known, and of ε without a target.

    The latter is the largest towards each kind of observer without a target; left out where all have one.
    """
    rounds = with_noun(planned.spec.training.rounds, "round")
    noise = f"{number(planned.noise)} root mean square per coordinate of {planned.models}, over {rounds}"
    rows = [("noise", noise)]
    if not math.isnan(planned.own_noise):
        saved = f"; the plan has {100 * planned.saved:.1f} % less variance" if planned.saved > 5e-4 else ""
        text = (
            f"{number(planned.own_noise)} with the spec's own noise sources, all scaled by one factor{saved}"
        )
        rows.append(("own noise", text))
    others = ", ".join(f"{other.observer_kind} {upper_bound(other.epsilon)}" for other in planned.untargeted)
    if others:
        rows.append(("no target", f"largest ε towards {others}"))
    return rows
