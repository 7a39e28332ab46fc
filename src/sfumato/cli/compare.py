"""``sfumato compare``: runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.console import console, figure, table
from sfumato.cli.options import Debug
from sfumato.errors import SpecError


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="Run folders, two or more.")],
    debug: Debug = False,
) -> None:
    """Print accuracy, privacy and costs of runs side by side."""
    from sfumato.report import compare as compare_runs

    if len(runs) < 2:
        raise SpecError("RUN", str(runs[0]), "give two or more runs to compare")
    rows = compare_runs(runs).table()
    numbers = {
        "rounds": "rounds",
        "seeds": "seeds",
        "epsilon_cloud": "ε cloud",
        "epsilon_own_edge": "ε edge",
        "total_bytes": "MB",
        "energy_j": "energy J",
        "delay_s": "delay s",
    }
    numbers = {column: title for column, title in numbers.items() if rows[column].notna().any()}
    titles = ["run", "protocol", "accuracy %", *numbers.values()]
    shown = table(*titles, right=titles[2:])
    shown.columns[1].no_wrap = True
    for row in rows.to_dict("records"):
        spread = row["final_accuracy_half_width"]
        accuracy = f"{100 * row['final_accuracy']:.1f}" + (
            f" ± {100 * spread:.1f}" if spread == spread else ""
        )
        values = [row[column] / 1e6 if column == "total_bytes" else row[column] for column in numbers]
        shown.add_row(
            str(row["run"]), str(row["protocol"]), accuracy, *(figure(float(value)) for value in values)
        )
    console().print(shown)
