"""Elected supernodes: the probability that a client serves, how often clients served, and the effect on ε."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.election.odds import expected_terms, probability_elected, probability_of_terms
from sfumato.privacy.guarantee import Guarantee
from sfumato.report import formatting as text
from sfumato.report.figures.figure import Figure, Json, colour, over_legend, transparent
from sfumato.report.results.series import Series
from sfumato.run_folder.reader import RunFolder


@dataclass(frozen=True)
class SupernodeTerms:
    """Elections of a finished run.

    Attributes:
        devices: number of devices of every zone.
        rounds: number of elections of every zone, without replacements of failed supernodes.
        served: number of terms of every client, by zone.
        failures: number of supernodes that failed.
        epsilon: largest ε towards another client of the same zone; NaN if there is no such row.
        unelected: ε of the same client towards the public, which is what a client that never serves sees.
    """

    devices: tuple[int, ...]
    rounds: int
    served: tuple[int, ...]
    failures: int
    epsilon: float
    unelected: float


def supernode_terms(run: RunFolder) -> SupernodeTerms | None:
    """The elections of ``run``; ``None`` if there were none, or the run is not finished.

    A client that failed in office counts a term, as does the one that took its place.
    """
    ledger: Mapping[str, Any] = run.ledger if run.finished else {}
    supernodes = ledger.get("realised", {}).get("supernodes")
    if not supernodes or not supernodes[0][0]:
        return None
    devices = tuple(int(count) for count in ledger["devices_per_leaf"])
    zones = [zone for number in supernodes for zone in number[0]]
    served = np.bincount([device for zone in zones for device in zone], minlength=sum(devices))
    epsilon, unelected = _peer_and_public_epsilon(run.privacy.guarantees)
    failures = sum(len(zone) - 1 for zone in zones)
    return SupernodeTerms(devices, len(supernodes), tuple(served.tolist()), failures, epsilon, unelected)


def _peer_and_public_epsilon(guarantees: Sequence[Guarantee]) -> tuple[float, float]:
    """The largest ε of a device towards another of its zone, and that device's ε towards the public.

    NaN where there are no such rows.
    """
    near = [row for row in guarantees if row.unit_kind == "device" and row.relation.kind == "peer"]
    if not near:
        return math.nan, math.nan
    worst = max(near, key=lambda row: row.epsilon)
    public = (row.epsilon for row in guarantees if (row.unit, row.observer) == (worst.unit, "public"))
    return worst.epsilon, next(public, math.nan)


def elections_table(terms: SupernodeTerms) -> str:
    """An HTML table by size of zones: probability that a device is elected, and how often devices served."""
    zones = np.repeat(np.arange(len(terms.devices)), terms.devices)
    served, rows = np.array(terms.served), []
    for size in sorted(set(terms.devices)):
        alike = np.flatnonzero(np.array(terms.devices) == size)
        found = served[np.isin(zones, alike)]
        chance, expected = probability_elected(size, terms.rounds), expected_terms(size, terms.rounds)
        rows.append((
            text.whole(size), text.whole(len(alike)), text.percent(chance), f"{expected:.1f}",
            f"{found.min()} to {found.max()}", text.percent(float((found > 0).mean())),
        ))  # fmt: skip
    return text.html_table(
        ["devices in a zone", "zones", "probability to serve at least once", "expected terms", "terms served",
         "devices that served"],
        rows,
        caption=f"Uniform elections, one per round and zone over {terms.rounds} rounds; "
        f"{terms.failures} supernodes failed and were replaced",
        numeric=tuple(range(6)),
    )  # fmt: skip


def elections_summary(terms: SupernodeTerms, delta: str = "") -> str:
    """Two sentences on what zones and elections are, and a third on their ε where it is known.

    ``delta``: text that stands beside each ε.
    """
    said = (
        "A zone is an edge with its devices. An elected device receives the sum of its zone and so becomes "
        "an observer of the zone. "
    )
    if math.isnan(terms.epsilon):
        return said
    largest = f"{text.epsilon(terms.epsilon)}{delta}"
    said += f"The largest ε before training towards another device of the zone is {largest}"
    if not math.isnan(terms.unelected):
        said += (
            f"; towards a device that never serves, which sees the public model only, it is "
            f"{text.epsilon(terms.unelected)}{delta}"
        )
    return said + "."


def elections_figure(series: Sequence[Series]) -> Figure | None:
    """Numbers of devices by terms served, beside what uniform elections expect, of the runs in ``series``.

    ``None`` without elections.
    """
    found = [(one, terms) for one in series if (terms := supernode_terms(one.first)) is not None]
    if not found:
        return None
    data: list[Json] = []
    for number, (one, terms) in enumerate(found):
        name = f"{one.name}: " if len(series) > 1 else ""
        counts = np.bincount(terms.served)
        chances = [
            sum(size * probability_of_terms(size, terms.rounds, served) for size in terms.devices)
            for served in range(len(counts))
        ]
        times = {"x": list(range(len(counts)))}
        bars = {
            "y": counts.tolist(),
            "name": f"{name}served",
            "marker": {"color": transparent(colour(number), 0.45)},
        }
        line = {"y": chances, "name": f"{name}expected of uniform elections", "mode": "lines+markers"}
        data.append({"type": "bar"} | times | bars)
        data.append({"type": "scatter", "line": {"color": colour(number), "dash": "dot"}} | times | line)
    return Figure(
        title="Terms as supernode",
        caption="Devices by number of terms; dotted: expectation of uniform elections without failures.",
        description="Devices by number of terms as supernode. "
        + " ".join(f"{one.name}: at most {max(terms.served)} terms." for one, terms in found),
        data=data,
        layout=over_legend(300, data, -0.28)
        | {
            "xaxis": {"title": {"text": "terms"}, "dtick": 1},
            "yaxis": {"title": {"text": "devices"}, "rangemode": "tozero"},
        },
        kind="elections",
    )


def elections_part(one: Series) -> str:
    """HTML with the sentences and the table on elections of a series; "" without elections."""
    terms = supernode_terms(one.first)
    if terms is None:
        return ""
    said = elections_summary(terms, text.at_delta(one.first.privacy.delta))
    return text.paragraphs([said]) + elections_table(terms)
