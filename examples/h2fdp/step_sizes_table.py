"""The runs of step_sizes.sh as a Markdown table: Part I of control on, off, and as the theorem has it.

python examples/h2fdp/step_sizes_table.py DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

from beside_the_paper import markdown, shown

from sfumato.report.results.series import load_series, mean

RULES = ("stable", "scheduled", "theorem")
LEVELS = ("1", "10", "100", "none")


def main(folder: Path) -> None:
    """Print the table."""
    rows = []
    for level in LEVELS:
        for rule in RULES:
            runs = [run.metrics for run in load_series([folder / level / rule])[0].runs]
            columns = [
                [100 * float(m["accuracy"].iloc[-1]) for m in runs],
                [float(m["energy_j"].sum()) for m in runs],
                [float(m["delay_s"].sum()) for m in runs],
                [float(m["step_size"].iloc[-1]) for m in runs],
                [float(m["smoothness"].iloc[-1]) for m in runs],
            ]
            rows.append(
                [
                    level,
                    rule,
                    *(shown(mean(c)) for c in columns[:3]),
                    *(f"{mean(c).value:.2g}" for c in columns[3:]),
                ]
            )
    heads = ["ε", "step size", "final accuracy %", "energy J", "delay s", "last step size", "last β"]
    print(markdown(heads, rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
