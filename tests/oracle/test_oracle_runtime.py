"""The oracle's facts hold of the runtime: who noises what, by how much, what sums are divided by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle_recorded import play, stds


def tree(**sections: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "name": "recorded",
        "protocol": "h2fdp",
        "seed": 3,
        "model": "softmax",
        "data": {"source": "synthetic", "examples_per_device": 8},
        "topology": {"kind": "tree", "edges": 2, "devices_per_edge": [3, 5]},
        "training": {
            "rounds": 12,
            "steps_per_round": 2,
            "edge_every": 1,
            "batch_size": 2,
            "learning_rate": 1e-9,
        },
        "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 0.8}},
        "evaluate_every": 100,
    }
    for key, value in sections.items():
        spec[key] = {**spec[key], **value} if key in ("training", "privacy") else value
    return spec


HDP = {"edge_every": None, "steps_per_round": None, "local_epochs": 1}
CASES = {
    "trust, two aggregations": tree(trust={"trusted_edges": [0]}),
    "sources, dropouts under masks": tree(
        transport={"devices_to_edge": "secure-aggregation"},
        faults={"dropout_rate": 0.3},
        privacy={
            "noise": {
                "sources": [
                    {"owners": ["edge:0"], "multipliers": [3.0, 0.5]},
                    {"owners": ["edge:1/devices:0-2"], "multipliers": [1.0, 2.0]},
                    {"owners": ["cloud"], "multipliers": [0.5, 0.5]},
                ]
            }
        },
    ),
    "hdp, clipped denominators, a drawn cohort, weights": tree(
        protocol="hdp",
        data={
            "source": "synthetic",
            "examples_per_device": 8,
            "partition": {"kind": "iid", "size_sigma": 0.7},
        },
        training={
            **HDP,
            "denominator": {"kind": "clipped", "min_weight": 1.5},
            "participation": {"kind": "poisson", "rate": 0.6},
            "weights": {"kind": "capped", "examples": 9},
        },
        privacy={"noise": {"multiplier": 0.8, "placement": {"device": [1], "edge": [0], "cloud": True}}},
    ),
    "three tiers, dropouts in plain sight": tree(
        topology={"kind": "tree", "levels": [2, 2, 2], "names": ["region", "cabinet"]},
        trust={"trusted": ["region:0", "cabinet:0", "cabinet:2"]},
        training={"steps_per_round": 4, "edge_every": None, "aggregate_every": [2, 1]},
        faults={"dropout_rate": {"advertise": 0.2, "unmask": 0.2}},
    ),
    "a star that adds the scaled noise of dp-fedavg": tree(
        protocol="dp-fedavg",
        topology={"kind": "star", "devices": 6},
        training={"edge_every": None, "participation": {"kind": "fixed", "count": 4}},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_recorded_vectors_are_as_large_as_the_oracle_says(name: str, tmp_path: Path) -> None:
    spec = CASES[name]
    rounds, realised = play(spec, tmp_path / "run")
    found = list(stds(spec, rounds, realised))
    assert len(found) >= 11
    silent = [(label, recorded) for label, std, recorded in found if std == 0]
    assert all(recorded < 1e-6 for _, recorded in silent), silent
    ratios = np.array([recorded / std for _, std, recorded in found if std > 0])
    assert np.all((ratios > 0.7) & (ratios < 1.35)), ratios
    assert abs(np.sqrt(np.mean(ratios**2)) - 1) < 0.05
