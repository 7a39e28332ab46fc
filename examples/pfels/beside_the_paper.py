"""The sweeps of study.sh as Markdown tables, beside the figures that PFELS reports.

python examples/pfels/beside_the_paper.py DIR
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

import sfumato as sf
from sfumato.report.results.series import mean
from sfumato.sweeps.request import task_folder

RATIO, EPSILON = "compression.ratio", "privacy.noise.epsilon"
# Table 2 (CIFAR-10, epsilon 1.5): accuracy %, subcarriers over d, energy in 1e11 J, after 2,000 rounds.
TABLE_2 = {"pfels": (76.42, 600, 2.55), "wfl-p": (72.72, 2000, 5.19), "wfl-pdp": (72.23, 2000, 3.70)}


def shown(values: pd.Series[float], digits: int = 1) -> str:
    """``47.1 ± 2.3``; the mean over seeds and half its 95 % interval."""
    found = mean(values)
    spread = "" if found.half_width != found.half_width else f" ± {found.half_width:.{digits}f}"
    return f"{found.value:.{digits}f}{spread}"


def markdown(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_uses(sweep: sf.Sweep) -> pd.DataFrame:
    """The sweep's table with the channel uses of every run."""
    table = sweep.table.copy()
    folders = [
        task_folder(sweep.folder, p, int(s)) for p, s in zip(table["point"], table["seed"], strict=True)
    ]
    table["uses"] = [sf.load_run(folder).metrics["channel_uses"].sum() for folder in folders]
    return table


def main(folder: Path) -> None:
    """Print the tables."""
    ratio, epsilon = (with_uses(sf.load_sweep(folder / name)) for name in ("ratio", "epsilon"))
    print("Fig. 3, accuracy against the compression ratio (the paper's best: 0.3 and 0.5):\n")
    rows = [
        [f"{p:g}", shown(100 * part["accuracy"]), f"{part['energy_j'].mean():.3g}"]
        for p, part in ratio.groupby(RATIO)
    ]
    print(markdown(["k/d", "accuracy %", "energy"], rows))
    print("\nFig. 4, accuracy % against the claimed epsilon:\n")
    budgets = sorted(epsilon[EPSILON].unique())
    rows = []
    for protocol, part in epsilon.groupby("protocol"):
        by_budget = {e: shown(100 * found["accuracy"]) for e, found in part.groupby(EPSILON)}
        # wfl-p has no epsilon: one figure for all
        only = next(iter(by_budget.values())) if len(by_budget) == 1 else "-"
        rows.append([str(protocol), *(by_budget.get(e, only) for e in budgets)])
    print(markdown(["", *(f"ε = {e:g}" for e in budgets)], rows))
    print("\nTable 2 at ε = 1.5 (here / in the paper, CIFAR-10):\n")
    rows = []
    for protocol, part in epsilon[epsilon[EPSILON] == 1.5].groupby("protocol"):
        accuracy, subcarriers, energy = TABLE_2[str(protocol)]
        rows.append(
            [
                str(protocol),
                f"{shown(100 * part['accuracy'])} / {accuracy}",
                f"{part['uses'].mean():.3g} / {subcarriers} d",
                f"{part['energy_j'].mean():.3g} / {energy}e11",
            ]
        )
    print(markdown(["", "accuracy %", "channel uses", "energy"], rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
