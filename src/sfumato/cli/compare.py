"""``sfumato compare``: accuracy, privacy and costs of several runs in one table."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.console import console, count, format_number, table
from sfumato.cli.options import Debug
from sfumato.errors import SpecError

MOST_NAME = 24  # longest word that is not divided, in characters


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="Run folders, two or more.")],
    debug: Debug = False,
) -> None:
    """Print accuracy, privacy and costs of several runs in one table."""
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
    alike = {column for column in ("rounds", "seeds") if rows[column].nunique() == 1}
    numbers = {
        column: title
        for column, title in numbers.items()
        if column not in alike and rows[column].notna().any()
    }
    titles = ["run", "protocol", "accuracy %", *numbers.values()]
    shown = table(*titles, right=titles[2:])
    for row in rows.to_dict("records"):
        spread = row["final_accuracy_half_width"]
        value = row["final_accuracy"]
        accuracy = ("–" if math.isnan(value) else f"{100 * value:.1f}") + (
            "" if math.isnan(spread) else f" ± {100 * spread:.1f}"
        )
        values = [row[column] / 1e6 if column == "total_bytes" else row[column] for column in numbers]
        shown.add_row(
            str(row["run"]),
            str(row["protocol"]),
            accuracy,
            *(format_number(float(value)) for value in values),
        )
    out = console()
    name, *others = shown.columns
    name.min_width = min(MOST_NAME, max(len(word) for row in rows["run"] for word in str(row).split()))
    for column in others:  # a line may become too long; no name or number is cut
        column.min_width = max(len(str(cell)) for cell in (column.header, *column.cells))
    out.width = max(out.width, out.measure(shown, options=out.options.update(width=1000)).minimum)
    out.print(shown)
    said = [count(int(rows[column].iloc[0]), column.removesuffix("s")) for column in sorted(alike)]
    if said:
        out.print(f"each: {', '.join(said)}")
