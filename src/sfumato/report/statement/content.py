"""What a privacy statement says, as one JSON document: from a resolved spec and its guarantees.

`sfumato.report.statement.page` writes it as HTML. An auditor reads who is protected against whom, under which
assumptions, by how much, whose noise does it, and which versions and files this is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sfumato.network.tree import Tree
from sfumato.privacy.guarantee import number
from sfumato.report.formatting import unit_of
from sfumato.report.results.network import GroupNetwork, read_network
from sfumato.report.results.who_adds_noise import noise_of, training_of
from sfumato.run_folder.reader import as_epsilon
from sfumato.spec.document import SPEC_HASH, fingerprint

STATEMENT_FORMAT = 1

UNITS = {
    "device": "all data of one device",
    "record": "any one example of one device",
}
RELATIONS = {
    "zero-out": (
        "The compared worlds differ in this: in one the unit contributes what it has, in the other "
        "everything that it contributes is zero. It takes part and counts as before in both. Numbers of "
        "devices and of examples, weights and schedules are public."
    ),
    "remove": (
        "The compared worlds differ in this: in one the device is there, in the other it is not, and its "
        "weight is in no denominator. Towards whoever sees who takes part there is no guarantee."
    ),
    "replace": (
        "The compared worlds differ in this: in the other one the unit has any other data instead of its "
        "own. It takes part and counts as before in both. Numbers, weights and schedules are public."
    ),
}
THREATS = (
    "Every observer follows the protocol and keeps everything that it receives (honest but curious).",
    "An observer may know the data of all other devices and every public setting, and may compute without "
    "limit.",
    "Each row is about one observer. Several that put together what they receive learn more; "
    "the command sfumato account SPEC --observer A,B says how much.",
    "Noise is drawn in secret by the party that adds it. Whoever has the seed of a simulation can compute "
    "it.",
)
NOT_COVERED = (
    "Losses, accuracies, shares of clipped messages and energies in the metrics. They are measured on "
    "devices' data, for whoever runs the simulation.",
    "The presence of a device on the network, and timing.",
    "Rounding of Gaussian noise to floating-point numbers, which is treated as exact.",
    "Parties that do not follow the protocol.",
)


def statement_of(
    spec: Mapping[str, Any], privacy: Mapping[str, Any], *, source: str, versions: Mapping[str, str]
) -> dict[str, Any]:
    """The statement.

    Args:
        spec: resolved, as `spec.yaml` of a run folder has it.
        privacy: as `privacy.json` has it.
        source: what it is made from: a spec before a run, or a run folder.
        versions: of the packages on which the figures depend.
    """
    rows = [
        {key: row[key] for key in _ROW if key in row} | {"epsilon": row["epsilon"]}
        for row in privacy["guarantees"]
    ]
    hashes = {name: value for name, value in (spec.get("hashes") or {}).items() if name != SPEC_HASH}
    return {
        "format": STATEMENT_FORMAT,
        "name": str(spec["name"]),
        "source": source,
        "protocol": str(spec["protocol"]),
        "units": {unit: UNITS[unit] for unit in _units(rows)},
        "neighbours": _relation(spec),
        "delta": privacy["delta"],
        "guarantees": rows,
        "largest": list(_largest(rows, read_network(spec).titled)),
        "sites": list(_sites(rows)),
        "threat_model": list(THREATS),
        "trust": _trust(spec, privacy),
        "noise": noise_of(spec),
        "training": training_of(spec),
        "findings": [str(finding["text"]) for finding in privacy.get("findings", ())],
        "notes": [str(note) for note in privacy.get("notes", ())],
        "not_covered": list(NOT_COVERED),
        "versions": dict(versions),
        "hashes": {SPEC_HASH: fingerprint(spec), **hashes},
    }


_ROW = (
    "unit",
    "observer",
    "relation",
    "stands_for",
    "epsilon_range",
    "sites",
    "neighbours",
    "releases",
    "bound",
    "method",
    "trusted",
    "why",
)


def _units(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    found = {str(row["unit"]).partition(":")[0] for row in rows}
    return [unit for unit in UNITS if unit in found]


def _relation(spec: Mapping[str, Any]) -> dict[str, str]:
    name = str(spec["privacy"].get("neighbours", "zero-out"))
    return {"relation": name, "meaning": RELATIONS[name]}


def _largest(rows: Sequence[Mapping[str, Any]], titled: Callable[[str], str]) -> Iterator[dict[str, Any]]:
    """The largest ε of each unit and relation of observer and unit; observers that it trusts apart."""
    groups: dict[tuple[str, str, bool], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = str(row["unit"]).partition(":")[0], str(row["relation"]), bool(row.get("trusted", False))
        groups.setdefault(key, []).append(row)
    for (unit, relation, trusted), found in groups.items():
        worst = max(found, key=lambda row: as_epsilon(row["epsilon"]))
        finite = [as_epsilon(row["epsilon"]) for row in found if as_epsilon(row["epsilon"]) < np.inf]
        yield {
            "unit": unit,
            "observer_is": relation,
            "trusted_by_the_unit": trusted,
            "epsilon": worst["epsilon"],
            "largest_finite_epsilon": max(finite, default=None),
            "for_example": f"{unit_of({**worst, 'unit': titled(worst['unit'])})} towards "
            f"{titled(worst['observer'])}",
            "method": worst["method"],
            "pairs": sum(int(row["stands_for"]) for row in found),
            "pairs_without_a_guarantee": sum(
                int(row["stands_for"]) for row in found if as_epsilon(row["epsilon"]) == np.inf
            ),
            "why": worst["why"],
        }


def _sites(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The largest ε of the units of every named site, by unit and relation, the largest first."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        trusted = ", trusted with raw updates" if row.get("trusted", False) else ""
        for site in row.get("sites", ()):
            largest = found.setdefault((str(site), str(row["unit"]).partition(":")[0]), {})
            whom = f"{row['relation']}{trusted}"
            largest[whom] = max(as_epsilon(row["epsilon"]), largest.get(whom, 0.0))
    for (site, unit), towards in sorted(found.items(), key=lambda one: -max(one[1].values())):
        yield {"site": site, "unit": unit, "epsilon": {whom: number(e) for whom, e in towards.items()}}


def _trust(spec: Mapping[str, Any], privacy: Mapping[str, Any]) -> dict[str, Any]:
    """Who is trusted with raw updates, and how many devices send theirs to one of them."""
    shape = read_network(spec).shape
    trusted: list[str] | None = None
    if isinstance(shape, Tree):
        tiers = enumerate(shape.tiers)
        trusted = [
            shape.titled(shape.node_name(t, int(i)))
            for t, tier in tiers
            for i in np.flatnonzero(tier.trusted)
        ]
    elif isinstance(shape, GroupNetwork):
        trusted = [shape.groups.titled(f"master:{group}") for group in np.flatnonzero(shape.trusted)]
    return {
        "trusted_with_raw_updates": trusted,
        "raw_to_trusted_edge": privacy.get("raw_to_trusted_edge"),
    }
