"""The sweeps of figures.sh as Markdown tables, beside what the paper's text says of its Figs. 6, 7 and 9.

python examples/h2fdp/beside_the_paper.py DIR
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

import sfumato as sf
from sfumato.report.results.series import Mean, mean

PC, EPSILON = "trust.trusted_edges", "privacy.noise.epsilon"


def accuracies(table: pd.DataFrame, **values: object) -> pd.Series[float]:
    """Accuracy in percent of one point, by seed; ``values`` by the last word of their key."""
    for column in table.columns:
        if (word := column.rpartition(".")[2]) in values:
            table = table[table[column] == values[word]]
    return 100 * table.set_index("seed")["accuracy"]


def shown(found: Mean, *, sign: bool = False) -> str:
    """``47.1 ± 2.3``; the mean over seeds and half its 95 % interval."""
    spread = "" if found.half_width != found.half_width else f" ± {found.half_width:.1f}"
    return f"{found.value:{'+' if sign else ''}.1f}{spread}".replace("-", "−")


def gain(after: pd.Series[float], before: pd.Series[float]) -> str:
    """Points gained, seed by seed (a seed draws the same partition and initial model in both)."""
    return shown(mean((after - before).dropna()), sign=True)


def markdown(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(folder: Path) -> None:
    """Print the tables."""
    fig6, fig7, fig9 = (sf.load_sweep(folder / name).table for name in ("fig6", "fig7", "fig9"))
    budgets = sorted(fig6[EPSILON].unique())

    def six(share: float, budget: float) -> pd.Series[float]:
        return accuracies(fig6, trusted_edges=share, epsilon=budget)

    def seven(edges: int, size: int) -> pd.Series[float]:
        return accuracies(fig7, edges=edges, devices_per_edge=size)

    def nine(protocol: str, budget: float) -> pd.Series[float]:
        return accuracies(fig9, protocol=protocol, epsilon=budget)

    print("Fig. 6, accuracy % by trusted share and claimed ε:\n")
    rows = [[f"{p:g}", *(shown(mean(six(p, e))) for e in budgets)] for p in sorted(fig6[PC].unique())]
    print(markdown(["p_c", *(f"ε = {e:g}" for e in budgets)], rows))
    print("\nFig. 7, accuracy % by number of devices:\n")
    rows = [
        [
            str(n),
            shown(mean(seven(n // 5, 5))),
            shown(mean(seven(2, n // 2))),
            gain(seven(2, n // 2), seven(n // 5, 5)),
        ]
        for n in (10, 20, 30, 40, 50)
    ]
    print(markdown(["devices", "Config. 1: edges of 5", "Config. 2: 2 edges", "2 over 1"], rows))
    print("\nFig. 9, accuracy % by claimed ε:\n")
    points = [("0.5", "h2fdp", 0.5), ("1", "h2fdp", 1.0), ("1.5", "h2fdp", 1.5), ("∞ (hfl)", "hfl", 1.0)]
    print(markdown(["ε", "accuracy %"], [[name, shown(mean(nine(p, e)))] for name, p, e in points]))
    print("\nPoints of accuracy, paper and here:\n")
    claims = [
        ("Fig. 6", "all trusted over none, ε = 1", "at least +10", gain(six(1, 1), six(0, 1))),
        ("Fig. 6", "all trusted over none, ε = 0.5", "+25", gain(six(1, 0.5), six(0, 0.5))),
        ("Fig. 7", "50 devices over 10, Config. 1", "up to +42", gain(seven(10, 5), seven(2, 5))),
        ("Fig. 7", "50 devices over 10, Config. 2", "up to +42", gain(seven(2, 25), seven(2, 5))),
        ("Fig. 7", "Config. 2 over Config. 1, 50 devices", "above 0", gain(seven(2, 25), seven(10, 5))),
        ("Fig. 9", "ε = 0.5 over ε = 1", "−13", gain(nine("h2fdp", 0.5), nine("h2fdp", 1))),
        ("Fig. 9", "ε = 1.5 over ε = 1", "+8.5", gain(nine("h2fdp", 1.5), nine("h2fdp", 1))),
    ]
    print(markdown(["", "comparison", "paper", "here"], claims))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
