"""The runs of control.sh as Markdown tables, beside the paper's Figs. 5, 8 and 10.

python examples/h2fdp/control_beside_the_paper.py DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from beside_the_paper import markdown, shown

from sfumato.report.results.series import load_series, mean

SYSTEMS = {"control": "control", "no-control": "no control", "hfl-dp": "HFL-DP", "pedpfl": "PEDPFL"}
PAPER = {"no-control": ("−25.1", "−24.9"), "hfl-dp": ("−46.2", "−43.2"), "pedpfl": ("−71.5", "−51.3")}
STEP = 0.01
EPSILONS = (1, 10)
PAPER_LEVEL = 0.75


def runs_of(folder: Path) -> list[pd.DataFrame]:
    """The metrics of every seed."""
    return [run.metrics for run in load_series([folder])[0].runs]


def until(metrics: pd.DataFrame, level: float) -> tuple[float, float]:
    """Energy and delay up to the first evaluated round with at least this accuracy; NaN if there is none."""
    reached = np.flatnonzero(metrics["accuracy"].to_numpy() >= level)
    if not len(reached):
        return float("nan"), float("nan")
    so_far = metrics.iloc[: reached[0] + 1]
    return float(so_far["energy_j"].sum()), float(so_far["delay_s"].sum())


def five(folder: Path, epsilon: int) -> None:
    """Fig. 5: the cost of the highest accuracy that every run of every system reaches, or the paper's."""
    found = {name: runs_of(folder / f"epsilon-{epsilon}" / name) for name in SYSTEMS}
    best = min(float(m["accuracy"].max()) for runs in found.values() for m in runs)
    level = min(np.floor(best / STEP) * STEP, PAPER_LEVEL)
    words = f"cost of {level:.0%} accuracy, reached by all (paper: 75 %)"
    print(f"\nFig. 5, Fashion-MNIST, ε = {epsilon}: {words}\n")
    spent = {name: [until(m, level) for m in runs] for name, runs in found.items()}
    rows = []
    for name, title in SYSTEMS.items():
        energy, delay = (mean(pair[i] for pair in spent[name]) for i in (0, 1))
        final = mean(100 * float(m["accuracy"].iloc[-1]) for m in found[name])
        row = [title, shown(final), shown(energy), shown(delay)]
        for i in (0, 1):
            if name == "control":
                row.append("–")
                continue
            pairs = zip(spent["control"], spent[name], strict=True)
            change = mean(100 * (ours[i] / theirs[i] - 1) for ours, theirs in pairs)
            row.append(f"{shown(change, sign=True)} / {PAPER.get(name, '––')[i]}")
        rows.append(row)
    print(
        markdown(
            ["", "final accuracy %", "energy J", "delay s", "control's energy % (here / paper)",
             "control's delay % (here / paper)"],
            rows,
        )
    )  # fmt: skip


def eight(folder: Path, weight: str, symbol: str) -> None:
    """Figs. 8 and 10: mean interval and participation against one weight."""
    rows = []
    points = sorted((folder / weight / "points").iterdir(), key=lambda p: float(p.name.partition("=")[2]))
    for point in points:
        runs = runs_of(point)
        columns = ("interval", "participants_trusted", "participants_untrusted")
        means = [mean(float(m[column].mean()) for m in runs) for column in columns]
        rows.append([point.name.partition("=")[2], *(shown(m) for m in means)])
    print(f"\n{symbol}\n")
    print(markdown([symbol, "mean τ", "mean s, trusted", "mean s, untrusted"], rows))


def main(folder: Path) -> None:
    """Print the tables."""
    for epsilon in EPSILONS:
        five(folder, epsilon)
    eight(folder, "energy", "α1 (energy)")
    eight(folder, "delay", "α2 (delay)")
    eight(folder, "optimality_gap_weight", "α3 (gap)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
