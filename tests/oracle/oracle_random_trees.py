"""Random specs on stars and trees, as a user might write them, and random coalitions for them.

Every dimension that the accountant distinguishes is crossed with every other, small enough for the oracle to
play all that may happen. What the library refuses is left to the caller, who draws again.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

MULTIPLIERS = (0.05, 0.2, 0.5, 0.8, 1.0, 1.5, 2.5, 6.0, 20.0)


def random_tree(rng: Random) -> dict[str, Any]:
    """A spec of the tree family."""
    kind = rng.choices(("h2fdp", "hdp", "star", "hfl-dp"), (9, 8, 3, 1))[0]
    spec: dict[str, Any] = {
        "name": "random",
        "protocol": kind if kind != "star" else rng.choice(("dp-fedavg", "pedpfl")),
        "seed": rng.randrange(10**6),
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": _topology(rng, kind),
        "training": {"rounds": rng.choice((1, 1, 2, 3, 4, 4, 10)), "batch_size": 4, "learning_rate": 0.1},
        "privacy": {
            "delta": rng.choice((1e-5, 1e-5, 1e-6, 1e-3, 1e-12)),
            "clip": {"kind": "update", "norm": 1.0},
            "noise": {"multiplier": rng.choice(MULTIPLIERS)},
            "neighbours": rng.choice(("zero-out", "zero-out", "replace")),
        },
    }
    if kind == "hdp":
        _hdp(spec, rng)
    elif kind == "star":
        spec["training"]["steps_per_round"] = rng.choice((1, 3))
        spec["trust"] = {"cloud": rng.random() < 0.4}
    else:
        _periods(spec, rng)
        if kind == "h2fdp":
            _trust(spec, rng)
            if rng.random() < 0.35:
                spec["privacy"]["noise"] = _sources(spec, rng)
    _participation(spec, rng)
    _transport(spec, rng)
    _faults(spec, rng)
    if rng.random() < 0.06:
        spec["compression"] = {"kind": "rand-k", "ratio": 0.5}
    return spec


def _topology(rng: Random, kind: str) -> dict[str, Any]:
    if kind == "star":
        return {"kind": "star", "devices": rng.randint(2, 10)}
    if rng.random() < (0.1 if kind == "hdp" else 0.35):
        levels, names = rng.choice(
            (
                ([2, 2, 2], ["region", "cabinet"]),
                ([2, 1, 3], ["region", "cabinet"]),
                ([1, 3, 2], ["region", "cabinet"]),
                ([2, 2, 3], ["region", "cabinet"]),
                ([1, 2, 2, 2], ["country", "region", "cabinet"]),
            )
        )
        return {"kind": "tree", "levels": levels, "names": names}
    edges = rng.choice((1, 2, 2, 2, 3, 3, 4))
    most = {1: 8, 2: 6, 3: 4, 4: 3}[edges]
    each = [rng.randint(1, most) for _ in range(edges)]
    if rng.random() < 0.05:
        each[-1] = rng.choice((30, 100))
    return {"kind": "tree", "edges": edges, "devices_per_edge": each}


def shape(spec: dict[str, Any]) -> tuple[list[str], list[int], list[int]]:
    """Names of the tiers, how many nodes each has, how many devices each leaf has."""
    topology = spec["topology"]
    if topology["kind"] == "star":
        return ["cloud"], [1], [topology["devices"]]
    if "levels" in topology:
        sizes = [math.prod(topology["levels"][:depth]) for depth in range(len(topology["levels"]))]
        return ["cloud", *topology["names"]], sizes, [topology["levels"][-1]] * sizes[-1]
    return ["cloud", "edge"], [1, topology["edges"]], topology["devices_per_edge"]


def _periods(spec: dict[str, Any], rng: Random) -> None:
    training, names = spec["training"], shape(spec)[0]
    tiers = len(names) - 1
    steps = rng.choice((1, 2, 2, 3, 4))
    training["steps_per_round"] = steps
    if tiers == 1:
        if rng.random() < 0.75:
            training["edge_every"] = rng.randint(1, steps)
    elif rng.random() < 0.8:
        periods = [rng.randint(1, steps)]
        while len(periods) < tiers:
            periods.append(rng.randint(1, periods[-1]))
        training["aggregate_every"] = periods
    if rng.random() < 0.3:
        spec["privacy"]["clip"]["kind"] = "step"
        training["momentum"] = rng.choice((0.0, 0.9))
    if rng.random() < 0.2:
        training["global_step"] = "resend"


def _trust(spec: dict[str, Any], rng: Random) -> None:
    names, sizes, _ = shape(spec)
    trusted = [
        f"{name}:{node}"
        for name, size in zip(names[1:], sizes[1:], strict=True)
        for node in range(size)
        if rng.random() < 0.45
    ]
    spec["trust"] = {"cloud": rng.random() < 0.15, "trusted": trusted}


def _sources(spec: dict[str, Any], rng: Random) -> dict[str, Any]:
    """Every leaf's noise by hand: at the node, at its devices, or at some of them; now and then above it too.

    A multiplier of 0 only where no node above adds noise: what is raw there would be a matter of taste.
    """
    names, sizes, each = shape(spec)
    above = rng.random() < 0.25
    least = 0.05 if above else 0.0
    sources = []
    for leaf in range(sizes[-1]):
        multipliers = [rng.choice((least, *MULTIPLIERS, 60.0)) for _ in names]
        node = f"{names[-1]}:{leaf}"
        owner = rng.choice((node, f"{node}/devices", f"{node}/devices:0-{rng.randrange(each[leaf])}", None))
        if owner is not None:
            sources.append({"owners": [owner], "multipliers": multipliers})
    if above or not sources:
        tier = rng.randrange(len(names) - 1) if len(names) > 1 else 0
        node = "cloud" if tier == 0 else f"{names[tier]}:{rng.randrange(sizes[tier])}"
        sources.append({"owners": [node], "multipliers": [rng.choice(MULTIPLIERS) for _ in names]})
    return {"sources": sources}


def _hdp(spec: dict[str, Any], rng: Random) -> None:
    training, (_, sizes, each) = spec["training"], shape(spec)
    zones = sizes[-1]
    training["local_epochs"] = 1
    if rng.random() < 0.35:
        training["weights"] = {"kind": "capped", "examples": rng.choice((10, 20, 40))}
        spec["data"]["partition"] = {"kind": "iid", "size_sigma": rng.choice((0.3, 0.9))}
    if rng.random() < 0.35:
        training["denominator"] = {"kind": "clipped", "min_weight": rng.choice((0.5, 1, 2, 4))}
    if rng.random() < 0.2:
        spec["trust"] = {"cloud": rng.random() < 0.5}
        if len(shape(spec)[0]) == 2:
            spec["trust"]["trusted_edges"] = [zone for zone in range(zones) if rng.random() < 0.5]
    else:
        placement: dict[str, Any] = {}
        if rng.random() < 0.3:
            least = min(each)
            placement["clients"] = sorted(rng.sample(range(least), rng.randint(1, least)))
            if rng.random() < 0.4:
                placement["edge"] = [zone for zone in range(zones) if rng.random() < 0.5]
        else:
            owners = [rng.choice(("device", "edge", None)) for _ in range(zones)]
            placement = {
                owner: [zone for zone, own in enumerate(owners) if own == owner]
                for owner in ("device", "edge")
            }
        placement["cloud"] = rng.random() < 0.35
        spec["privacy"]["noise"]["placement"] = {key: value for key, value in placement.items() if value}
        if not spec["privacy"]["noise"]["placement"]:
            spec["privacy"]["noise"]["placement"] = {"device": 1}
    if rng.random() < 0.3:
        spec["topology"]["supernodes"] = "elected"


def with_zone_settings(spec: dict[str, Any], rng: Random) -> dict[str, Any]:
    """``spec``, of H2FDP with several aggregations a round, with some of what HDP brought to trees."""
    training, (names, sizes, each) = spec["training"], shape(spec)
    spec["protocol"], spec["trust"] = "h2fdp", spec.get("trust") or {}
    training.pop("global_step", None)
    if rng.random() < 0.4:
        training["weights"] = {"kind": "capped", "examples": rng.choice((10, 20, 40))}
        spec["data"]["partition"] = {"kind": "iid", "size_sigma": rng.choice((0.3, 0.9))}
    if rng.random() < 0.6:
        owners = [rng.choice(("device", "device", "edge")) for _ in range(sizes[-1])]
        placement: dict[str, Any] = {
            owner: [zone for zone, own in enumerate(owners) if own == owner] for owner in ("device", "edge")
        }
        if rng.random() < 0.3:
            placement = {"clients": sorted(rng.sample(range(min(each)), rng.randint(1, min(each))))}
        if len(names) > 2 and rng.random() < 0.5:
            tier = rng.randrange(1, len(names))
            chosen = sorted(rng.sample(range(sizes[tier]), rng.randint(1, sizes[tier])))
            placement["levels"] = {names[tier]: chosen}
        placement["cloud"] = rng.random() < 0.2
        placement = {key: value for key, value in placement.items() if value}
        spec["privacy"]["noise"] = {"multiplier": rng.choice(MULTIPLIERS), "placement": placement}
    if rng.random() < 0.6:
        spec["topology"]["supernodes"] = "elected"
    if "faults" in spec:
        spec["faults"].pop("supernode_failure_rate", None)
    return spec


def _participation(spec: dict[str, Any], rng: Random) -> None:
    least, kind = min(shape(spec)[2]), rng.choices(("all", "poisson", "fixed"), (5, 2, 2))[0]
    if kind == "poisson":
        spec["training"]["participation"] = {
            "kind": "poisson",
            "rate": rng.choice((1e-4, 0.1, 0.3, 0.5, 0.8, 1.0)),
        }
    elif kind == "fixed":
        spec["training"]["participation"] = {"kind": "fixed", "count": rng.randint(1, least)}


def _transport(spec: dict[str, Any], rng: Random) -> None:
    names = shape(spec)[0]
    below = [*names[1:], "devices"]
    spec["transport"] = {}
    for to, sender in zip(names, below, strict=True):
        likely = 0.4 if sender == "devices" else 0.25
        if rng.random() < likely:
            spec["transport"][f"{sender}_to_{to}"] = "secure-aggregation"


def _faults(spec: dict[str, Any], rng: Random) -> None:
    elected = spec["topology"].get("supernodes") == "elected"
    if rng.random() > (0.5 if elected else 0.25):
        return
    faults: dict[str, Any] = {}
    rates = (0.05, 0.2, 0.4)
    if rng.random() < 0.8:
        faults["dropout_rate"] = rng.choice(rates)
        if rng.random() < 0.4:
            phases = rng.sample(("advertise", "share", "mask", "consent", "unmask"), 2)
            faults["dropout_rate"] = {phase: rng.choice(rates) for phase in phases}
    if elected and rng.random() < 0.7:
        faults["supernode_failure_rate"] = rng.choice(rates)
        faults["when_supernode_fails"] = rng.choice(("repeat", "skip"))
    if "secure-aggregation" in spec["transport"].values() and rng.random() < 0.4:
        faults["survival_threshold"] = rng.choice((0.51, 0.6, 0.8, 1.0))
    if faults:
        spec["faults"] = faults


def random_pair(spec: dict[str, Any], rng: Random) -> tuple[int, str]:
    """A unit, and an observer or coalition without it."""
    names, sizes, each = shape(spec)
    unit = rng.randrange(sum(each))
    leaf, first = 0, 0
    while first + each[leaf] <= unit:
        first, leaf = first + each[leaf], leaf + 1
    nodes = [f"{name}:{node}" if name != "cloud" else "cloud" for name, size in zip(names, sizes, strict=True)
             for node in range(size)]  # fmt: skip
    home = [device for device in range(first, first + each[leaf]) if device != unit]
    away = [device for device in range(sum(each)) if device != unit and device not in home]
    kind = rng.random()
    if kind < 0.12:
        return unit, rng.choice(["public", *(f"public,device:{one}" for one in home[:1])])
    if kind < 0.5:
        return unit, rng.choice([*nodes, *(f"device:{device}" for device in home + away)] or ["public"])
    members = [node for node in nodes if rng.random() < 1.3 / len(nodes)]
    if home and rng.random() < 0.7:
        members += [f"device:{one}" for one in rng.sample(home, rng.randint(1, len(home)))]
    if away and rng.random() < 0.3:
        members += [f"device:{one}" for one in rng.sample(away, rng.randint(1, min(4, len(away))))]
    return unit, ",".join(members) or "cloud"
