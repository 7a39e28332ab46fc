"""Folders that name one spec and hold the figures of another, from which all else follows."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from certified_folders import Documents, certified_folder
from manipulated_folders import SMALLER, Case, _with

import sfumato as sf
from sfumato.verify import read


def _scaled(*path: str, by: float) -> Any:
    """The figure at a path, times ``by``; ``None`` where there is none."""

    def change(document: Documents) -> Documents | None:
        found = copy.deepcopy(document)
        at: Any = found
        for key in path[:-1]:
            at = at.get(key) if isinstance(at, dict) else None
        held = at.get(path[-1]) if isinstance(at, dict) else None
        if isinstance(held, bool) or not isinstance(held, int | float):
            return None
        at[path[-1]] = max(1, int(held * by)) if isinstance(held, int) else held * by
        return found

    return change


def _put(**sections: Any) -> Any:
    return lambda document: _with(document, **sections)


def _topology(**changes: Any) -> Any:
    return lambda document: document | {"topology": document["topology"] | changes}


def _without(*sections: str) -> Any:
    return lambda document: {key: value for key, value in document.items() if key not in sections}


CHANGES: dict[str, Any] = {
    "fewer rounds": _scaled("training", "rounds", by=0.5),
    "fewer local steps": _scaled("training", "local_steps", by=0.5),
    "more local steps": _scaled("training", "local_steps", by=2),
    "a longer period of edges": _scaled("training", "edge_every", by=2),
    "smaller batches": _scaled("training", "batch_size", by=0.4),
    "more data": _scaled("data", "examples_per_device", by=10),
    "rarer participation": _scaled("training", "participation", "rate", by=0.5),
    "fewer participants": _scaled("training", "participation", "count", by=0.5),
    "merged more rarely": _scaled("training", "merge_every", by=2),
    "no momentum": _put(training={"momentum": None}),
    "everybody": _put(training={"participation": None}),
    "drawn by chance": _put(training={"participation": {"kind": "poisson", "rate": 0.1}}),
    "sent once": _put(training={"global_update": None}),
    "equal weights": _put(training={"weights": None}),
    "another denominator": _put(training={"denominator": {"kind": "clipped", "min_weight": 3.0}}),
    "drawn records": _put(training={"batches": "poisson"}),
    "more noise": _scaled("privacy", "noise", "multiplier", by=2.0),
    "less demanded of the air": _scaled("privacy", "noise", "epsilon", by=0.5),
    "noise by zones": _put(privacy={"noise": {"multiplier": 4.0, "placement": {"edge": 1.0}}}),
    "noise by the cloud, too": _put(
        privacy={"noise": {"multiplier": 4.0, "placement": {"device": 0.5, "edge": 0.5, "cloud": True}}}
    ),
    "zeroed out": _put(privacy={"neighbours": "zero-out"}),
    "a larger δ": _scaled("privacy", "delta", by=100.0),
    "the other δ": _put(privacy={"delta": 1e-2}),
    "clipped updates": _put(privacy={"clip": {"kind": "update", "norm": 0.5}}),
    "clipped examples": _put(privacy={"clip": {"kind": "example", "norm": 0.5}}),
    "devices": _put(privacy={"unit": "device"}),
    "records": _put(training={"batches": "poisson"}, privacy={"unit": "record"}),
    "more devices of an edge": _topology(devices_per_edge=8),
    "more devices": _topology(devices=24),
    "fewer edges": _topology(edges=1),
    "fixed supernodes": _topology(supernodes="fixed"),
    "nobody moves": _topology(moves={"trace": []}),
    "another device moves": _topology(moves={"trace": [[3, 3, 0]]}),
    "separate groups": _topology(structure="clusters"),
    "no trust": _put(trust={"trusted_edges": [], "trusted": [], "from": None}),
    "trust": _put(trust={"trusted_edges": [0, 1], "from": None}),
    "a trusted cloud": _put(trust={"cloud": True}),
    "trusted masters": _put(trust={"trusted_aggregators": None}),
    "masked": _put(transport={"devices_to_edge": "secure-aggregation"}),
    "masked star": _put(transport={"devices_to_cloud": "secure-aggregation"}),
    "masked groups": _put(transport={"devices_to_master": "secure-aggregation"}),
    "nobody drops out": _without("faults"),
    "a higher threshold": _put(faults={"survival_threshold": 0.95}),
    "no control": _without("control"),
    "one protocol for another": _put(protocol="dp-ogl-local"),
    "noise inside, too": _put(protocol="dp-ogl"),
    "a noisier channel": lambda document: (
        document | {"radio": document["radio"] | {"snr_db": [-5, 2]}} if "radio" in document else None
    ),
    "sizes of another seed": lambda document: (
        document | {"seed": 9} if "partition" in document["data"] else None
    ),
}


def least(case: Case) -> dict[Any, float]:
    """The smallest ε of every relation of unit and observer."""
    found: dict[Any, float] = {}
    for row in case.privacy["guarantees"]:
        key = row["unit"].split(":")[0], row["relation"]
        found[key] = min(read.figure(row["epsilon"]), found.get(key, float("inf")))
    return found


def swapped(
    document: Documents, folder: Path, only: Sequence[str] | None = None
) -> Iterator[tuple[str, Case]]:
    """Folders that name ``document`` and have a smaller ε somewhere, from another spec."""
    own = Case.read(certified_folder(folder / "own", sf.load_spec(document)))
    before, spec = least(own), sf.load_spec(document)
    for number, (name, change) in enumerate(CHANGES.items()):
        if only is not None and name not in only:
            continue
        try:
            changed = change(document)
            if changed is None or changed == document:
                continue
            other = sf.load_spec(changed)
            found = Case.read(certified_folder(folder / str(number), other, named=spec))
        except sf.SfumatoError:
            continue
        after = least(found)
        if any(epsilon < before.get(key, 0.0) * SMALLER for key, epsilon in after.items()):
            yield name, found
