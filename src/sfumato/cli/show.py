"""``sfumato show``: the network, trust, noise and aggregations of a spec."""

from __future__ import annotations

from typing import Annotated

import typer

from sfumato.cli.console import console, empty_table, key_value_table, with_noun
from sfumato.cli.options import Debug, Set, SpecSource
from sfumato.cli.spec_argument import locating_errors, read_spec
from sfumato.rounding import number


def show(
    spec: SpecSource,
    pilot: Annotated[
        bool,
        typer.Option(
            "--pilot", help="Also run 3 rounds without noise and print norms of updates: NOT private."
        ),
    ] = False,
    changes: Set = None,
    debug: Debug = False,
) -> None:
    """Show the network, trust, noise and aggregations of a spec."""
    from sfumato.families import family_of
    from sfumato.findings.found import findings_of_plan
    from sfumato.schedule.resolve import resolve

    loaded = read_spec(spec, changes)
    with locating_errors(spec, changes):
        plan = resolve(loaded)
    out = console()
    summary = family_of(loaded).summary(plan)
    out.print(key_value_table(summary.rows()))
    out.print()
    out.print(summary.drawing())
    out.print(summary.legend)
    for note in plan.notes:
        out.print(f"note: {note}")
    for finding in findings_of_plan(plan, plan.spec.privacy.delta):
        out.print(f"finding: {finding.text}")
    if pilot:
        from sfumato.simulation.pilot import pilot as play_pilot

        with locating_errors(spec, changes):
            found = play_pilot(loaded)
        norms = empty_table("quantile", "norm", right=("norm",))
        for quantile, norm in found.quantiles.items():
            norms.add_row(f"{quantile:g}", number(norm))
        out.print()
        rounds = with_noun(found.rounds, "round")
        out.print(f"Pilot, {rounds}: norms of {found.messages:,} {found.what}, without clipping and noise.")
        out.print("NOT ACCOUNTED: these figures have no noise and leak information.", style="bold")
        out.print("Do not run --pilot on private data.")
        out.print(norms)
