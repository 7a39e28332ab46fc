"""Random small specs of every family whose sites hold unequally many records, for one unit, or for both."""

from __future__ import annotations

from random import Random
from typing import Any

from moving_trees import random_moves, random_record_moves

Document = dict[str, Any]

FAMILIES = ("star", "tree", "sites", "levels", "moving", "groups", "hdp", "air", "control")
_NAMES = ("Charité", "Bonn", "Kiel", "Ulm", "Jena", "Trier", "Mainz", "Halle", "Fulda", "Emden")


def random_unequal(rng: Random, family: str) -> Document:
    """A spec of ``family``: one of `FAMILIES`."""
    document: Document = _MADE[family](rng)
    document |= {"name": family, "model": {"kind": "softmax"}, "seed": rng.randrange(1000)}
    document["data"] = {
        "source": "synthetic",
        "examples_per_device": 8,
        "partition": {"kind": "iid", "size_sigma": rng.choice((0.5, 1.0))},
    }
    return document


def _training(rng: Random, **more: Any) -> Document:
    found: Document = {"rounds": 2, "local_steps": rng.choice((1, 1, 2))}
    found |= {"batch_size": 4, "learning_rate": 0.05, "batches": rng.choice(("poisson",) * 4 + ("shuffled",))}
    return found | more


def _participation(rng: Random, devices: int) -> Document:
    kind = rng.choice(("all", "all", "all", "poisson", "fixed"))
    if kind == "all":
        return {}
    more = {"rate": 0.5} if kind == "poisson" else {"count": rng.randint(1, devices)}
    return {"participation": {"kind": kind, **more}}


def _privacy(rng: Random, batches: str, *clips: str) -> Document:
    """Of a record mostly; clips of examples and noise at steps where these are allowed."""
    unit = rng.choice(("record",) * 4 + ("both", "device"))
    kinds = ["update", "step", *(clips if unit == "record" and batches == "poisson" else ())]
    kind = rng.choice(kinds)
    noise: Document = {"multiplier": rng.choice((1.0, 3.0))}
    if kind == "at step":
        kind, noise["at"] = "example", "step"
    neighbours = rng.choice(("zero-out", "zero-out", "replace"))
    return {"unit": unit, "clip": {"kind": kind, "norm": 1.0}, "noise": noise, "neighbours": neighbours}


def _watch(rng: Random, *names: str) -> Document:
    chosen = rng.sample(names, rng.randint(1, min(3, len(names))))
    return rng.choice(({}, {"watch": chosen}))


def _star(rng: Random) -> Document:
    devices = rng.randint(2, 6)
    topology: Document = {"kind": "star", "devices": devices}
    if rng.random() < 0.6:
        topology["device_names"] = rng.sample(_NAMES, devices)
    training = _training(rng, **_participation(rng, devices))
    document = {
        "protocol": "pedpfl",
        "topology": topology,
        "training": training,
        "privacy": _privacy(rng, training["batches"], "example", "example", "at step"),
        "trust": {"cloud": rng.random() < 0.2},
        "radio": "none",
    }
    return document | _watch(rng, "cloud", "public", "peer", "device:1", "cloud,device:0")


def _tree(rng: Random) -> Document:
    edges = rng.randint(2, 3)
    most = 4 if edges == 2 else 3
    each = (
        [rng.randint(1, most)] * edges if rng.random() < 0.5 else [rng.randint(1, most) for _ in range(edges)]
    )
    return _under_edges(rng, {"kind": "tree", "edges": edges, "devices_per_edge": each}, edges, min(each))


def _sites(rng: Random) -> Document:
    names = rng.sample(_NAMES, rng.randint(2, 3))
    devices = rng.randint(1, 3)
    sites = [{"name": name, "devices": devices} for name in names]
    return _under_edges(rng, {"kind": "tree", "sites": sites}, len(names), devices)


def _levels(rng: Random) -> Document:
    topology = {"kind": "tree", "levels": [2, 2, rng.randint(1, 2)], "names": ["region", "cabinet"]}
    return _under_edges(rng, topology, 4, 1, deep=True)


def _under_edges(rng: Random, topology: Document, edges: int, least: int, *, deep: bool = False) -> Document:
    training = _training(rng, local_steps=2, **_participation(rng, least))
    training |= {"aggregate_every": [2, 1]} if deep else {"edge_every": rng.choice((1, 1, 1, 2))}
    trusted = [edge for edge in range(edges) if rng.random() < 0.4]
    name = "cabinet" if deep else "edge"
    document: Document = {
        "protocol": "h2fdp",
        "topology": topology,
        "training": training,
        "privacy": _privacy(rng, training["batches"], "example"),
        "trust": {"trusted": [f"{name}:{edge}" for edge in trusted]},
    }
    return document | _watch(
        rng, "cloud", "public", "edge", "own-edge", "other-edge", "peer", "device", f"{name}:0"
    )


def _moving(rng: Random) -> Document:
    document = (random_record_moves if rng.random() < 0.8 else random_moves)(rng)
    rounds = document["training"]["rounds"]
    while rounds > 3 or sum(document["topology"]["devices_per_edge"]) > 7:
        document = (random_record_moves if rng.random() < 0.8 else random_moves)(rng)
        rounds = document["training"]["rounds"]
    clip = document["privacy"]["clip"]["kind"]
    document["privacy"]["unit"] = "record" if clip == "example" else rng.choice(("record", "record", "both"))
    return document | _watch(rng, "cloud", "public", "edge", "peer", "device:0")


def _groups(rng: Random) -> Document:
    rings = {"kind": "groups", "structure": "ring", "groups": 3, "devices": rng.choice((6, 9))}
    lists: list[list[list[int]]] = [[[0, 1], [1, 2], [2, 3, 0]], [[0, 1, 2], [2, 3]], [[0, 1, 2, 3]]]
    topology = rng.choice((rings, {"kind": "groups", "structure": "list", "groups": rng.choice(lists)}))
    workers = topology.get("devices") or len({worker for group in topology["groups"] for worker in group})
    if rng.random() < 0.5:
        topology = topology | {"worker_names": rng.sample(_NAMES, workers)}
    training = _training(rng, merge_every=rng.choice((1, 2)))
    if rng.random() < 0.3:
        training["participation"] = {"kind": "poisson", "rate": 0.5}
    privacy = _privacy(rng, training["batches"], "example", "at step")
    if privacy["clip"]["kind"] == "step":
        privacy["clip"]["kind"] = "update"
    document: Document = {
        "protocol": rng.choice(("dp-ogl", "dp-ogl", "dp-ogl+", "dp-ogl-local")),
        "topology": topology,
        "training": training,
        "privacy": privacy,
    }
    if rng.random() < 0.5 or "at" in privacy["noise"]:
        document["trust"] = {"trusted_aggregators": []}
    return document | _watch(rng, "peer", "device", "edge", "own-edge", "other-device", "device:0")


def _hdp(rng: Random) -> Document:
    edges, devices = 2, rng.randint(3, 4)
    topology: Document = {"kind": "tree", "edges": edges, "devices_per_edge": devices}
    topology |= rng.choice(({}, {"supernodes": "elected"}))
    training = _training(rng, **_participation(rng, devices))
    privacy = _privacy(rng, training["batches"])
    privacy["clip"]["kind"] = "update"
    privacy["noise"] |= rng.choice(
        ({}, {"placement": {"device": 0.5, "edge": 0.5}}, {"placement": {"edge": 1.0}})
    )
    document = {"protocol": "hdp", "topology": topology, "training": training, "privacy": privacy}
    return document | _watch(rng, "cloud", "public", "edge", "peer", "device:0")


def _air(rng: Random) -> Document:
    devices = rng.randint(4, 6)
    training = _training(rng, participation={"kind": "fixed", "count": rng.randint(2, devices)})
    noise = rng.choice(({"formula": "pfels", "epsilon": 1.5}, {"epsilon": 3.0, "for": "cloud"}))
    unit = rng.choice(("record", "record", "both", "device"))
    document = {
        "protocol": "pfels",
        "topology": {"kind": "star", "devices": devices},
        "training": training,
        "radio": {"gain": {"kind": "exponential", "mean": 0.2, "min": 0.001, "max": 1.0}, "snr_db": [2, 15]},
        "compression": {"kind": "rand-k", "ratio": 0.3},
        "privacy": {"delta": 1e-3, "unit": unit, "clip": {"kind": "update", "norm": 1.0}, "noise": noise},
    }
    return document | _watch(rng, "cloud", "public", "peer", "device:0")


def _control(rng: Random) -> Document:
    training = _training(rng, rounds=3, local_steps=4, edge_every=2, batches="shuffled")
    privacy = _privacy(rng, training["batches"])
    privacy["clip"]["kind"] = "step"
    document = {
        "protocol": "h2fdp",
        "topology": {"kind": "tree", "edges": 2, "devices_per_edge": rng.randint(1, 3)},
        "training": training,
        "privacy": privacy,
        "trust": {"trusted_edges": rng.choice(([], [0]))},
        "control": {"energy": 30.0, "delay": 30.0, "optimality_gap_weight": 0.02, "optimality_gap_scale": 1.0}
        | {"max_steps": 8, "smoothness": 0.5},
    }
    return document | _watch(rng, "cloud", "public", "edge", "peer", "device:0")


_MADE = {
    "star": _star, "tree": _tree, "sites": _sites, "levels": _levels, "moving": _moving, "groups": _groups,
    "hdp": _hdp, "air": _air, "control": _control,
}  # fmt: skip
