"""Runs at the edges of what a report must draw; each is a name and what ``make_folder`` takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_factory import RAW, guarantee, metrics, quickstart_spec

ATTACK = "</script><script>document.documentElement.dataset.pwned=1</script><img src=x onerror=alert(1)>%{y}"
MARKUP = "<img src=x onerror=alert(1)>%{y}"


def _spec(name: str, topology: dict[str, Any], owners: list[str], **trust: Any) -> dict[str, Any]:
    by_tier = [1.5, 0.8, 0.8, 0.8][: max(2, len(topology.get("levels", ())))]  # as a run writes them
    sources = [{"owners": owners, "multipliers": by_tier}]
    noise = {"kind": "sources", "sources": sources} if owners else "none"
    return quickstart_spec(name=name, topology=topology, trust=trust, privacy={"delta": 1e-5, "noise": noise})


def _privacy(*rows: dict[str, Any], claims: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"spec": "case", "delta": 1e-5, "guarantees": list(rows), "claims": list(claims)}


def one_round() -> dict[str, Any]:
    """One row, no radio, one finite guarantee, a star."""
    spec = _spec("one-round", {"kind": "star", "devices": 1}, ["cloud"], cloud=True)
    frame = metrics(1, radio=False, epsilons={"cloud": 2.0})
    return {"spec": spec, "frame": frame, "privacy": _privacy(guarantee("device:0", "public", 2.0))}


def nothing_known() -> dict[str, Any]:
    """Never evaluated, nobody watched, no guarantee, no claim, a topology that is not listed."""
    spec = _spec("empty", {"kind": "groups", "structure": "labels", "groups": 5, "devices": 9}, [])
    return {"spec": spec, "frame": metrics(3, radio=False, every=0), "privacy": _privacy(), "finished": False}


def all_infinite() -> dict[str, Any]:
    """No noise at all."""
    rows = [guarantee("device:0", o, math.inf, 200) for o in ("cloud", "edge:0", "device:1", "public")]
    spec = _spec("no-noise", {"kind": "tree", "edges": 5, "devices_per_edge": 40}, [])
    frame = metrics(15, top=0.95, epsilons={"cloud": math.inf})
    return {"spec": spec, "frame": frame, "privacy": _privacy(*rows)}


def thousand_edges() -> dict[str, Any]:
    """A million devices under a thousand edges, half of them trusted; epsilons over five decades."""
    owners = [f"edge:{e}" for e in range(500)] + [f"edge:{e}/devices" for e in range(500, 1000)]
    tree = {"kind": "tree", "edges": 1000, "devices_per_edge": 1000}
    rows = [
        guarantee(unit, observer, epsilon, 500_000)
        for unit, own in (("device:0", "edge:0"), ("device:500000", "edge:500"))
        for observer, epsilon in (
            ("cloud", 0.004),
            (own, math.inf if own == "edge:0" else 300.0),
            ("public", 0.0),
        )
    ]
    frame = metrics(200, epsilons={"cloud": 0.004, "edge:500": 300.0})
    spec = _spec("thousand", tree, owners, trusted_edges=list(range(500)))
    return {"spec": spec, "frame": frame, "privacy": _privacy(*rows)}


def deep() -> dict[str, Any]:
    """Devices, masts, cabinets, regions, cloud, and a coalition."""
    tree = {"kind": "tree", "levels": [2, 3, 4, 5], "level_names": ["region", "cabinet", "mast"]}
    observers = ["cloud", "public", "region:0", "region:1", "cabinet:0", "cabinet:1", "cabinet:3",
                 "mast:0", "mast:1",
                 "mast:4", "device:1", "device:5", "device:20", "device:60", "cloud,mast:1"]  # fmt: skip
    rows = [
        guarantee("device:0", o, math.inf if o == "mast:0" else 3.0 + i, 8, RAW)
        for i, o in enumerate(observers)
    ]
    spec = _spec("deep", tree, ["mast:0", "region:0"], trusted=["mast:0", "region:0"])
    return {"spec": spec, "frame": metrics(20, every=5), "privacy": _privacy(*rows)}


def ring() -> dict[str, Any]:
    """Overlapping groups."""
    groups = {"kind": "groups", "structure": "ring", "groups": 30, "devices": 300}
    pairs = [("device:1", "device:2", 33.7), ("device:1", "device:16", 32.7), ("device:0", "device:1", 52.0)]
    spec = _spec("ring", groups, [f"master:{m}" for m in range(30)])
    rows = [guarantee(*pair, 300) for pair in pairs]
    return {"spec": spec, "frame": metrics(40, radio=False), "privacy": _privacy(*rows)}


def malicious() -> dict[str, Any]:
    """Markup wherever a user can put text."""
    spec = quickstart_spec(name=ATTACK, protocol=ATTACK, data={"source": ATTACK}, model={"kind": ATTACK})
    spec["versions"] = {ATTACK: ATTACK}
    frame = metrics(4, epsilons={ATTACK: 2.0, f"{ATTACK}:0": math.inf})
    row = {"method": ATTACK, "bound": ATTACK, "neighbours": ATTACK, "relation": ATTACK}
    rows = [
        guarantee("device:0", ATTACK, 2.0, why=ATTACK) | row,
        guarantee(ATTACK, "cloud", math.inf, why=ATTACK),
    ]
    claim = {
        "source": ATTACK, "unit": ATTACK, "observer": ATTACK, "claimed_epsilon": 1.0,
        "rigorous_epsilon": "inf", "holds": False, "why": ATTACK,
    }  # fmt: skip
    return {"spec": spec, "frame": frame, "privacy": _privacy(*rows, claims=(claim,))}


def malicious_sites(folder: Path) -> dict[str, Any]:
    """Markup in a site's name: names may not hold slashes, but angle brackets they may."""
    path = folder / "sites.yaml"
    path.write_text(f"sites: [{{name: {MARKUP!r}, devices: 2}}]\n")
    return {"spec": _spec("sites", {"kind": "tree", "file": str(path)}, [])}


CASES: list[Callable[[], dict[str, Any]]] = [
    one_round, nothing_known, all_infinite, thousand_edges, deep, ring, malicious,
]  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
