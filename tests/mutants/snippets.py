"""What mutants are made of: odd numbers, names and values; sections and files from ``snippets.yaml``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_WRITTEN: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "snippets.yaml").read_text("utf-8"))
FILES: dict[str, str] = _WRITTEN.pop("files")
SECTIONS: dict[str, list[Any]] = _WRITTEN

NUMBERS = (
    0, 1, 2, 3, 7, 10, 100, 1000, 10**4, 10**5, 10**6, 10**7, 10**9, 10**12, 2**31, 2**31 - 1, 2**32,
    2**53, 2**53 + 1, 2**63, 2**64, 10**30, 10**308, 10**400, -1, -2, -(10**9), -(10**400),
    0.0, -0.0, 0.5, 0.1, 0.999999999, 0.999999999999, 1.0000001, 1e-5, 1e-9, 1e-12, 1e-16, 1e-100,
    1e-200, 1e-300, 1e-308, 1e-320, 5e-324, 1e5, 1e12, 1e16, 1e17, 1e100, 1e154, 1e155, 1e300, 1.7e308,
    float("inf"), float("-inf"), float("nan"),
    "1e-5", "1e400", "0x10", "1_000", "1e1000000000", " 3 ", "٣", "²", "Infinity",
)  # fmt: skip

NAMES = (
    "kind", "cloud", "public", "device", "edge", "master", "record", "own-edge", "other-edge", "peer",
    "edge:0", "a,b", "a:b", "a b", "", " ", "\u0000", "\u202e", "\n", "a\tb", "=list", "é", "x" * 5000,
    "rate", "count", "multiplier", "epsilon", "for", "towards", "sources", "placement", "levels", "edges",
    "names", "alpha", "initial", "file", "radio", "compression", "transport", "server", "norm", "norms",
    "rates", "multipliers", "per_layer", "momentum", "aggregate_every", "edge_every", "merge_every",
    "faults", "control", "air", "watch", "versions", "zones", "supernodes", "trusted", "trusted_edges",
    "trusted_aggregators", "weights", "denominator", "evaluate_every", "test_fraction", "image_column",
    "examples_per_device", "hidden", "bias", "1", "None", "level_names", "steps_per_round", "dropout_rate",
    "survival_threshold", "least", "device_fraction", "clients", "optimality_gap_weight", "gap",
)  # fmt: skip

VALUES = (
    None, True, False, "", " ", "none", "all", "iid", "natural", "digits", "synthetic", "h2fdp", "pfels",
    "plain", "air", "secure-aggregation", "cloud", "public", "edge", "device", "peer", "edge:0", "device:0",
    "device:99999", "edge:" + "9" * 5000, "x" * 10_000, "/dev/zero", "/dev/stdin", "/", ".", "..",
    "/dev/null", "~nobody/x", "missing.yaml", "tree.yaml", "graph.json", "graph.graphml",
    "graph.edgelist", "bipartite.json", "distances.txt", "pipe", "a\u0000b", "\ud800", "os:_exit", "sys:exit",
    "builtins:exit", "antigravity:geohash", "a:b", ":", "a.b:c.d",
    [], {}, [[]], [{}], {"": None}, [None], [0], [0, 1], [1, 0], [0, 0], [True], ["cloud"],
    ["cloud", "edge"], ["edge", "edge"], [[0, 1], [1, 2]], [[0], [1]], [0.5, 0.5], [1] * 1000, [0.1] * 1000,
    list(range(100_000)), ["device:0"] * 5000, [[0, 1]] * 1000, [1e-300, 1e300], [2, 2**31], [-400, 400],
    {"a": {"b": {"c": 1}}}, {"kind": "none"}, {"kind": "x"}, {"kind": None}, {"kind": []}, {"kind": {}},
    {"multiplier": 1}, {"epsilon": 1, "for": "cloud"}, {"epsilon": 1e-300, "for": "edge"},
    {"multiplier": 1e-12}, {"multiplier": 1e12}, {"rate": 1e-9}, {"count": 1},
    {"kind": "update", "norm": 1e12}, {"kind": "step", "norm": 1e-12},
)  # fmt: skip
