"""Print the table of docs/records.md from the sweeps of hospitals.sh: python table.py DIR."""

from __future__ import annotations

import sys
from pathlib import Path

import sfumato as sf

ROWS = {
    "none": "no noise",
    "messages": "a patient; noise on messages (R2)",
    "steps": "a patient; noise at every local step (R3)",
    "hospital": "a whole hospital; noise on messages",
}


def row(folder: Path, what: str) -> str:
    """One line: the point with the best mean accuracy."""
    found = sf.load_sweep(folder)
    best = found.summary().sort_values("accuracy").iloc[-1]
    epsilons = [f"{best[f'epsilon:{who}']:.4g}" for who in ("cloud", "public")]
    accuracy = f"{100 * best['accuracy']:.1f} ± {100 * best['accuracy_half_width']:.1f}"
    return f"| {what} | {best['point']} | {' | '.join(epsilons)} | {accuracy} |"


def main() -> None:
    """Print all rows."""
    print("| protected | best point | ε cloud | ε public | accuracy, % |\n|---|---|---|---|---|")
    for name, what in ROWS.items():
        print(row(Path(sys.argv[1]) / name, what))


if __name__ == "__main__":
    main()
