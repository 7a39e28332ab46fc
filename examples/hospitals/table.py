"""Print the table of docs/records.md from the sweeps of hospitals.sh: python table.py DIR."""

from __future__ import annotations

import sys
from pathlib import Path

import sfumato as sf
from sfumato.rounding import upper_bound

ROWS = {
    "none": "nothing",
    "messages": "a patient; gradients of examples clipped, noise on messages (R2)",
    "steps": "a patient; noise at every local step (R3)",
    "hospital": "a whole hospital; messages clipped, noise on messages",
}


def row(folder: Path, what: str) -> str:
    """One line: the point with the best mean accuracy."""
    found = sf.load_sweep(folder)
    best = found.summary().sort_values("accuracy").iloc[-1]
    epsilons = [upper_bound(best[f"epsilon:{who}"]) for who in ("cloud", "public")]
    accuracy = f"{100 * best['accuracy']:.1f} ± {100 * best['accuracy_half_width']:.1f}"
    return f"| {what} | {best['point']} | {' | '.join(epsilons)} | {accuracy} |"


def main() -> None:
    """Print all rows."""
    print("| protected | best point | ε cloud | ε public | accuracy, % |\n|---|---|---|---|---|")
    for name, what in ROWS.items():
        print(row(Path(sys.argv[1]) / name, what))


if __name__ == "__main__":
    main()
