"""Specs written by hand: the ones that version 0.1 reported too little for, and the ones that tests vary."""

from __future__ import annotations

from typing import Any


def tree(**sections: Any) -> dict[str, Any]:
    """Two untrusted edges of five devices, one aggregation a round; sections are merged or replaced."""
    spec: dict[str, Any] = {
        "name": "by-hand",
        "protocol": "h2fdp",
        "seed": 5,
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "tree", "edges": 2, "devices_per_edge": [5, 5]},
        "training": {"rounds": 1, "steps_per_round": 2, "batch_size": 2, "learning_rate": 0.1},
        "privacy": {
            "delta": 1e-5,
            "clip": {"kind": "update", "norm": 1.0},
            "noise": {"multiplier": 1.0},
        },
    }
    return _with(spec, sections)


def hdp(**sections: Any) -> dict[str, Any]:
    """The same with protocol hdp."""
    training = {"local_epochs": 1, "steps_per_round": None} | sections.pop("training", {})
    return tree(protocol="hdp", training=training, **sections)


def star(devices: int, **sections: Any) -> dict[str, Any]:
    """Devices under an untrusted cloud, each with noise of its own."""
    return tree(protocol="pedpfl", topology={"kind": "star", "devices": devices}, **sections)


def groups(members: list[list[int]], **sections: Any) -> dict[str, Any]:
    """Overlapping groups with trusted masters, dp-ogl, an exchange every round."""
    spec: dict[str, Any] = {
        "name": "by-hand",
        "protocol": "dp-ogl",
        "seed": 5,
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "groups", "structure": "list", "groups": members},
        "training": {"rounds": 4, "local_steps": 1, "batch_size": 2, "learning_rate": 0.1, "merge_every": 1},
        "privacy": {
            "delta": 1e-5,
            "clip": {"kind": "update", "norm": 1.0},
            "noise": {"multiplier": 1.0},
        },
    }
    return _with(spec, sections)


def _with(spec: dict[str, Any], sections: dict[str, Any]) -> dict[str, Any]:
    for key, value in sections.items():
        spec[key] = {**spec[key], **value} if key in ("training", "privacy") else value
    return spec


MASKED_ZONES = {"devices_to_edge": "secure-aggregation"}
MASKED_GROUPS = {"devices_to_master": "secure-aggregation"}


def devices(*numbers: int) -> str:
    """A coalition of devices."""
    return ",".join(f"device:{number}" for number in numbers)


UNEQUAL_DENOMINATORS = hdp(
    topology={"kind": "tree", "edges": 2, "devices_per_edge": [2, 100]},
    training={"denominator": {"kind": "clipped", "min_weight": 2}},
    privacy={"noise": {"multiplier": 1.0, "placement": {"device": 1}}},
)
NOISE_MISSING_AT_THE_LAST_STEP = tree(
    trust={"trusted_edges": [0, 1]},
    training={"rounds": 3, "edge_every": 1},
    transport=MASKED_ZONES,
    faults={"dropout_rate": 0.4},
    privacy={"noise": {"sources": [{"owners": ["edge:0", "edge:1"], "multipliers": [60.0, 0.0]}]}},
)
LATE_NOISE_OF_DROPPED_DEVICES = tree(
    training={"rounds": 3, "edge_every": 1},
    faults={"dropout_rate": 0.4},
    privacy={
        "noise": {"sources": [{"owners": ["edge:0/devices", "edge:1/devices"], "multipliers": [60.0, 0.05]}]}
    },
)
LATE_NOISE_OF_DRAWN_DEVICES = tree(  # the same where nobody knows how many are drawn
    topology={"kind": "tree", "edges": 1, "devices_per_edge": 3},
    training={"edge_every": 1, "participation": {"kind": "poisson", "rate": 0.8}},
    faults={"dropout_rate": 0.05},
    privacy={
        "noise": {
            "sources": [
                {"owners": ["edge:0/devices"], "multipliers": [60.0, 0.05]},
                {"owners": ["cloud"], "multipliers": [1.5, 1.0]},
            ]
        }
    },
)
PEERS_KNOW_THE_COHORT = groups(
    [list(range(20))],
    transport=MASKED_GROUPS,
    training={"rounds": 50, "participation": {"kind": "poisson", "rate": 0.1}},
)
MASTER_WITH_A_THRESHOLD = groups(
    [list(range(10))],
    transport=MASKED_GROUPS,
    trust={"trusted_aggregators": []},
    training={"rounds": 10},
    privacy={"noise": {"multiplier": 2.0}},
)
