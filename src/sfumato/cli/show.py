"""``sfumato show``: what a spec describes, before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.console import console, count, facts, figure, table
from sfumato.cli.options import Debug, Set, SpecSource
from sfumato.cli.spec_argument import blaming, read

if TYPE_CHECKING:
    from sfumato.cli.plan_summary import Shown
    from sfumato.schedule.base import Plan


def show(
    spec: SpecSource,
    pilot: Annotated[
        bool,
        typer.Option("--pilot", help="Also run 3 un-noised rounds to see the norms of updates: NOT private."),
    ] = False,
    changes: Set = None,
    debug: Debug = False,
) -> None:
    """Show the network, who is trusted, who adds noise, a round."""
    from sfumato.schedule.resolve import resolve

    loaded = read(spec, changes)
    with blaming(spec):
        plan = resolve(loaded)
    out = console()
    drawing = _drawing(plan)
    out.print(facts(drawing.described()))
    out.print()
    out.print(drawing.drawn())
    out.print(drawing.legend)
    for note in plan.notes:
        out.print(f"note: {note}")
    if pilot:
        from sfumato.simulation.run import pilot as play_pilot

        with blaming(spec):
            found = play_pilot(loaded)
        norms = table("quantile", "norm", right=("norm",))
        for quantile, norm in found.quantiles.items():
            norms.add_row(f"{quantile:g}", figure(norm))
        out.print()
        rounds = count(found.rounds, "round")
        out.print(f"Pilot, {rounds}: norms of {found.messages:,} {found.what}, neither clipped nor noised.")
        out.print("NOT ACCOUNTED: these figures are un-noised and leak.", style="bold")
        out.print("Never run --pilot on private data that you must protect.")
        out.print(norms)


def _drawing(plan: Plan) -> Shown:
    """What knows how to show a plan of this family."""
    from sfumato.families import family_of

    shown: Shown = family_of(plan.spec).summary(plan)
    return shown
