"""``sfumato compare``: accuracy, privacy and costs of several runs in one table."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.console import console, empty_table, with_noun
from sfumato.cli.options import Debug
from sfumato.errors import SpecError
from sfumato.rounding import number, upper_bound
from sfumato.run_folder.headline import HEADLINES

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

MOST_NAME = 24  # longest word that is not divided, in characters
NUMBERS = {
    "rounds": "rounds",
    "seeds": "seeds",
    "epsilon_cloud": "ε cloud",
    "epsilon_own_edge": "ε own-edge",
    "epsilon_other_edge": "ε other-edge",
    "delta": "δ",
    "total_bytes": "MB",
    "energy_j": "energy J",
    "delay_s": "delay s",
}


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="Run folders, two or more.")],
    debug: Debug = False,
) -> None:
    """Print accuracy, privacy and costs of several runs in one table."""
    from sfumato.report import compare as compare_runs

    if len(runs) < 2:
        raise SpecError("RUN", str(runs[0]), "give two or more runs to compare")
    compared = compare_runs(runs)
    rows = compared.table()
    alike = {column for column in ("rounds", "seeds", "delta") if rows[column].nunique() == 1}
    raw_differs = rows["raw_to_trusted_edge"].nunique() > 1
    shown = _comparison_table(rows, {*alike, *compared.unasked_columns}, with_raw=raw_differs)
    out = console()
    name, *others = shown.columns
    name.min_width = min(MOST_NAME, max(len(word) for row in rows["run"] for word in str(row).split()))
    for column in others:  # a line may become too long; no name or number is cut
        column.min_width = max(len(str(cell)) for cell in (column.header, *column.cells))
    out.width = max(out.width, out.measure(shown, options=out.options.update(width=1000)).minimum)
    out.print(shown)
    first = rows.iloc[0]
    said = [with_noun(int(first[column]), column.removesuffix("s")) for column in sorted(alike - {"delta"})]
    said += [f"δ = {number(first['delta'])}"] if "delta" in alike else []
    raw = first["raw_to_trusted_edge"]
    said += [] if raw_differs or raw == "–" else [f"raw to a trusted edge: {raw} devices"]
    if said:
        out.print(f"each: {', '.join(said)}")
    if raw_differs or rows["epsilon_own_edge"].notna().any():
        out.print("own-edge: where the edge is not trusted; raw devices send raw updates to a trusted edge")
    for notice in compared.notices:
        out.print(f"note: {notice}")


def _comparison_table(rows: pd.DataFrame, left_out: set[str], *, with_raw: bool) -> Table:
    """A table with a line for each run.

    Args:
        rows: of `Comparison.table`.
        left_out: columns not to show; those in which nothing was measured are left out, too.
        with_raw: show how many devices send raw updates.
    """
    numbers = {
        column: title
        for column, title in NUMBERS.items()
        if column not in left_out and rows[column].notna().any()
    }
    scores = {headline.column: headline for headline in HEADLINES}
    alone = scores[rows["score"].iloc[0]].title if rows["score"].nunique() == 1 else "score"
    titles = ["run", "protocol", alone, *numbers.values(), *(["raw devices"] if with_raw else [])]
    shown = empty_table(*titles, right=titles[2:])
    for row in rows.to_dict("records"):
        score = scores[row["score"]]
        spread, value = row["final_score_half_width"], row["final_score"]
        reached = score.figure(value) + ("" if math.isnan(spread) else f" ± {score.figure(spread)}")
        values = {column: row[column] / (1e6 if column == "total_bytes" else 1) for column in numbers}
        shown.add_row(
            str(row["run"]),
            str(row["protocol"]),
            reached if alone != "score" else f"{score.name} {reached}",
            *((upper_bound if name.startswith("epsilon") else number)(x) for name, x in values.items()),
            *([row["raw_to_trusted_edge"]] if with_raw else []),
        )
    return shown
