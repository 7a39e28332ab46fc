"""What secure aggregation costs a device, by zone size and model size; zones against none.

Usage: python benchmarks/secure_aggregation.py OUT [--clients K] [--zones S ...] [--parameters M ...]

Measured, not modelled: whole sessions of `sfumato.secure_aggregation` in one process (malicious server,
complete graph, threshold 2/3, a tenth of each zone dropping out before masking). Zones: the zones' sums are
aggregated among the supernodes in the same way. `sparse` is one flat session over the graph of Bell et al.
(server semi-honest, a fifth colluding). Writes OUT/secure_aggregation.csv, .md and .html.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sfumato.secure_aggregation.graph import choose_neighbourhood
from sfumato.secure_aggregation.server import Phase
from sfumato.secure_aggregation.session import aggregate
from sfumato.secure_aggregation.terms import SessionTerms, complete_terms
from sfumato.wire.keys import Identity

WORD = 4


@dataclass(frozen=True)
class Cost:
    """One session: seconds and bytes of the average party that stayed, and of the aggregator."""

    parties: int
    parameters: int
    graph: str
    device_seconds: float
    device_bytes: float
    server_seconds: float
    server_bytes: float

    @property
    def overhead(self) -> float:
        """Bytes up and down besides the vector itself, over the vector's."""
        return self.device_bytes / (WORD * self.parameters) - 1


def measure(parties: int, parameters: int, *, sparse: bool = False) -> Cost:
    """Run one session."""
    identities, server = [Identity() for _ in range(parties)], Identity()
    public, threshold = tuple(i.public for i in identities), math.floor(2 * parties / 3) + 1
    colluders, gone = 2 * threshold - parties - 1, range(parties // 10)
    terms = complete_terms(
        "cost",
        public,
        server.public,
        length=parameters,
        threshold=threshold,
        threat_model="malicious",
        colluders=min(colluders, threshold - 2),
    )
    if sparse:
        near = choose_neighbourhood(parties, colluders=parties // 5, dropouts=len(gone))
        terms = SessionTerms(
            "cost",
            public,
            server.public,
            parameters,
            parties - len(gone),
            near.degree,
            near.share_threshold,
            b"seed",
            threat_model="semi-honest",
            colluders=parties // 5,
        )
    vector = np.ones(parameters, dtype=np.uint32)
    outcome = aggregate(
        terms, identities, server, dict.fromkeys(range(parties), vector), drop={Phase.MASK: gone}
    )
    assert (outcome.total == len(outcome.survivors)).all()
    stayed = list(outcome.survivors)
    moved = np.array(outcome.bytes_up) + np.array(outcome.bytes_down)
    return Cost(
        parties,
        parameters,
        "sparse" if sparse else "complete",
        float(np.mean(np.array(outcome.client_seconds)[stayed])),
        float(np.mean(moved[stayed])),
        outcome.server_seconds,
        float(moved.sum()),
    )


def best(parties: int, parameters: int, repeats: int, *, sparse: bool = False) -> Cost:
    """The fastest of several runs: other work on the machine only adds time."""
    runs = [measure(parties, parameters, sparse=sparse) for _ in range(repeats)]
    return replace(
        runs[0],
        device_seconds=min(r.device_seconds for r in runs),
        server_seconds=min(r.server_seconds for r in runs),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--clients", type=int, default=96)
    parser.add_argument("--zones", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--parameters", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="24 clients, small models")
    options = parser.parse_args()
    if options.quick:
        options.clients, options.parameters, options.zones, options.repeats = (
            24,
            [1_000, 10_000],
            [1, 2, 4],
            1,
        )
    options.out.mkdir(parents=True, exist_ok=True)

    costs, rows = [], []
    for parameters in options.parameters:
        flat = best(options.clients, parameters, options.repeats)
        costs.append(flat)
        if options.clients >= 90:
            costs.append(best(options.clients, parameters, options.repeats, sparse=True))
        for zones in options.zones:
            zone = flat if zones == 1 else best(options.clients // zones, parameters, options.repeats)
            above = best(zones, parameters, options.repeats) if zones > 2 else None
            costs += [c for c in (zone, above) if c is not None and c is not flat]
            rows.append(
                {
                    "parameters": parameters,
                    "zones": zones,
                    "clients a zone": zone.parties,
                    "device time / flat": zone.device_seconds / flat.device_seconds,
                    "device overhead bytes / flat": zone.overhead / flat.overhead,
                    "device bytes / plain": 1 + zone.overhead,
                    "aggregator time / flat": max(zone.server_seconds, above.server_seconds if above else 0)
                    / flat.server_seconds,
                    "supernode's own time / device's": above.device_seconds / zone.device_seconds
                    if above
                    else 0.0,
                }
            )
            print(rows[-1], flush=True)
    table, sessions = pd.DataFrame(rows), pd.DataFrame([{**asdict(c), "overhead": c.overhead} for c in costs])
    sessions.to_csv(options.out / "secure_aggregation.csv", index=False)
    (options.out / "secure_aggregation.md").write_text(markdown(table))
    draw(table, sessions).write_html(options.out / "secure_aggregation.html", include_plotlyjs=True)
    print(table.to_string(index=False, float_format=lambda x: f"{x:.3g}"))


def markdown(table: pd.DataFrame) -> str:
    """The table of ratios."""
    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
    for row in table.itertuples(index=False):
        cells = [f"{value:,}" if isinstance(value, int) else f"{value:.3g}" for value in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(table: pd.DataFrame, sessions: pd.DataFrame) -> go.Figure:
    """Device time and bytes by session size, and zones against none."""
    figure = make_subplots(
        rows=1, cols=3, subplot_titles=("device time, s", "device bytes / plain", "zones: device time / flat")
    )
    colours = ["#1b6ca8", "#d1495b", "#66a182", "#edae49"]
    for (parameters, rows), colour in zip(sessions.groupby("parameters"), colours, strict=False):
        for kind, dash in (("complete", "solid"), ("sparse", "dot")):
            part = rows[rows.graph == kind].sort_values("parties").drop_duplicates("parties")
            style = {"line": {"color": colour, "dash": dash}, "name": f"M = {parameters:,}, {kind}"}
            style["legendgroup"] = style["name"]
            if len(part):
                figure.add_scatter(
                    x=part.parties, y=part.device_seconds, mode="lines+markers", **style, row=1, col=1
                )
                figure.add_scatter(
                    x=part.parties,
                    y=1 + part.overhead,
                    mode="lines+markers",
                    showlegend=False,
                    **style,
                    row=1,
                    col=2,
                )
        part = table[table.parameters == parameters]
        figure.add_scatter(
            x=part.zones,
            y=part["device time / flat"],
            mode="lines+markers",
            showlegend=False,
            line={"color": colour},
            name=f"M = {parameters:,}",
            row=1,
            col=3,
        )
    for column, title in ((1, "parties in a session"), (2, "parties in a session"), (3, "zones")):
        figure.update_xaxes(title_text=title, type="log", row=1, col=column)
        figure.update_yaxes(type="log", row=1, col=column)
    return figure.update_layout(
        template="simple_white", width=1200, height=420, title="Cost of secure aggregation"
    )


if __name__ == "__main__":
    main()
