"""Small specs for the page, with all families of topologies."""

from __future__ import annotations

from typing import Any

import sfumato as sf
from sfumato.explore.edited_spec import EditedSpec

TREE: dict[str, Any] = {
    "name": "small",
    "protocol": "h2fdp",
    "data": {"source": "digits", "partition": "iid"},
    "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 4},
    "trust": {"trusted_edges": [0]},
    "training": {"rounds": 3, "local_steps": 2, "edge_every": 1, "batch_size": 8, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"epsilon": 8.0, "for": "cloud"}},
}
GROUPS: dict[str, Any] = {
    "name": "overlapping",
    "protocol": "dp-ogl",
    "data": {"source": "digits", "partition": "iid"},
    "topology": {"kind": "groups", "structure": "list", "groups": [[0, 1], [1, 2]]},
    "training": {"rounds": 3, "local_steps": 1, "batch_size": 16, "learning_rate": 0.1, "merge_every": 2},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
}
SITES: dict[str, Any] = TREE | {
    "topology": {
        "kind": "tree",
        "sites": [
            {"name": "north", "trusted": True, "devices": 2},
            {"name": "south", "devices": 3},
        ],
    },
    "trust": {},
}
STAR: dict[str, Any] = TREE | {
    "protocol": "dp-fedavg",
    "topology": {"kind": "star", "devices": 20},
    "trust": {"cloud": True},
    "training": {
        "rounds": 3,
        "local_steps": 2,
        "batch_size": 8,
        "learning_rate": 0.1,
        "participation": {"kind": "fixed", "count": 5},
    },
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
}


def edited(document: dict[str, Any], *overrides: str, source: str = "small.yaml") -> EditedSpec:
    """A spec as the page begins with it."""
    return EditedSpec.of(sf.load_spec(document, overrides), source)
