"""The sweeps of study.sh as Markdown tables, and Table III with its rigorous figures.

python examples/hdp/beside_the_paper.py DIR
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

import sfumato as sf
from sfumato.claims.hdp import epsilon_by_old_conversion
from sfumato.report.results.series import Mean, mean
from sfumato.rounding import upper_bound

STUDY = Path(__file__).parent / "study.yaml"
PLACEMENTS = {"LDP": "{device: 1.0}", "HDP": "{edge: 1.0}", "CDP": "{cloud: true}"}
OBSERVERS = ("public", "cloud")


def shown(found: Mean) -> str:
    """``47.1 ± 2.3``; the mean over seeds and half its 95 % interval."""
    spread = "" if found.half_width != found.half_width else f" ± {found.half_width:.1f}"
    return f"{found.value:.1f}{spread}"


def figure(epsilon: float) -> str:
    """Three digits, rounded up, or the sign of no guarantee."""
    return upper_bound(epsilon, 3)


def markdown(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def select(table: pd.DataFrame, **values: object) -> pd.DataFrame:
    """The runs of one point; ``values`` by the last word of their key."""
    for column in table.columns:
        if (word := column.rpartition(".")[2]) in values:
            table = table[table[column] == values[word]]
    return table


def row(name: str, folder: Path, runs: pd.DataFrame) -> list[str]:
    """Accuracy, and what everybody learns; every supernode learns the same of its own clients."""
    epsilons = [float(runs[f"epsilon:{observer}"].max()) for observer in OBSERVERS]
    first = sf.load_run(folder / "points" / runs["point"].iloc[0] / f"seed-{runs['seed'].iloc[0]}")
    own = [line.epsilon for line in first.folder.privacy.guarantees if line.relation.words == "own edge"]
    return [name, shown(mean(100 * runs["accuracy"])), *map(figure, [*epsilons, max(own)])]


def aligned(folder: Path) -> None:
    """LDP, HDP and CDP at equal ε towards the public, towards the cloud, and at equal multiplier."""
    headers = ["", "accuracy %", "ε public", "ε cloud", "ε own supernode"]
    none = row("no DP", folder / "none", sf.load_sweep(folder / "none").table)
    public = sf.load_sweep(folder / "public").table
    print("(a) the same ε towards the public:\n")
    cases = {"LDP": (0.0, "false"), "HDP": (1.0, "false"), "CDP": (1.0, "true")}
    rows = [
        row(name, folder / "public", select(public, epsilon=epsilon, trusted_edges=edges, cloud=cloud))
        for epsilon in sorted(public["privacy.noise.epsilon"].unique())
        for name, (edges, cloud) in cases.items()
    ]
    print(markdown(headers, [*rows, none]))
    cloud = sf.load_sweep(folder / "cloud").table
    print("\n(b) the same ε towards the cloud:\n")
    zones = {"LDP": (10, 0.0), "HDP": (10, 1.0), "LDP without zones": (100, 0.0)}
    rows = [
        row(name, folder / "cloud", select(cloud, epsilon=epsilon, edges=edges, trusted_edges=trusted))
        for epsilon in sorted(cloud["privacy.noise.epsilon"].unique())
        for name, (edges, trusted) in zones.items()
    ]
    print(markdown(headers, [*rows, ["CDP", "none meets it", "", "∞", "∞"], none]))
    multiplier = sf.load_sweep(folder / "multiplier").table
    print("\n(c) the same multiplier, 1, at every noiser:\n")
    rows = [
        row(name, folder / "multiplier", select(multiplier, placement=placement))
        for name, placement in PLACEMENTS.items()
    ]
    print(markdown(headers, [*rows, none]))


def third_figure(folder: Path) -> None:
    """Accuracy and ε towards the public by number of zones and of clients online."""
    table = sf.load_sweep(folder / "fig3").table
    zones, rates = (
        sorted(table["topology.edges"].unique()),
        sorted(table["training.participation.rate"].unique()),
    )
    print("\nFig. 3, accuracy % (ε public) by zones s and mean number of clients online k:\n")
    rows = []
    for edges in zones:
        points = [select(table, edges=edges, rate=rate) for rate in rates]
        cells = [
            f"{shown(mean(100 * runs['accuracy']))} ({figure(runs['epsilon:public'].max())})"
            for runs in points
        ]
        rows.append([str(edges), *cells, figure(points[0]["epsilon:cloud"].max())])
    headers = ["s", *(f"k = {600 * rate:.0f}" for rate in rates), f"ε cloud, k = {600 * rates[0]:.0f}"]
    print(markdown(headers, rows))


def third_table() -> None:
    """Table III's ε, recomputed as the paper does, and what it is towards the public and the cloud."""
    reported = {"CIFAR-10": (500, (2.48, 7.48, 24.80)), "EMNIST": (3383, (0.30, 0.96, 3.06))}
    rows = []
    for data, (clients, figures) in reported.items():
        of_one = epsilon_by_old_conversion(1.0, 100 / clients, 200, 1e-5)
        for (name, placement), paper, noisers in zip(PLACEMENTS.items(), figures, (100, 10, 1), strict=True):
            rows.append(
                [data, name, f"{paper:g}", f"{of_one / noisers**0.5:.2f}", *_rigorous(clients, placement)]
            )
    headers = [
        "",
        "",
        "paper",
        "its rule, z = 1",
        "public, drawn by coin",
        "public, 10 of each zone",
        "cloud, 10 of each",
    ]
    print("\nTable III, k = 100 of n clients, s = 10, T = 200, δ = 1e-5:\n")
    print(markdown(headers, rows))


def _rigorous(clients: int, placement: str) -> list[str]:
    each = clients // 10
    size = f"[{', '.join(str(each + (zone < clients % 10)) for zone in range(10))}]"
    changes = [
        "data={source: synthetic, examples_per_device: 1}",
        f"topology.devices_per_edge={size}",
        f"privacy.noise.placement={placement}",
    ]
    draws = {"coin": f"{{rate: {100 / clients!r}}}", "fixed": "{kind: fixed, count: 10}"}
    found = {
        how: sf.account(sf.load_spec(STUDY, [*changes, f"training.participation={draw}"]))
        for how, draw in draws.items()
    }
    wanted = (("coin", "public"), ("fixed", "public"), ("fixed", "cloud"))
    return [
        figure(max(found[how].epsilon(unit=unit, observer=who) for unit in (0, clients - 1)))
        for how, who in wanted
    ]


def main(folder: Path) -> None:
    """Print the tables."""
    aligned(folder)
    third_figure(folder)
    third_table()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
