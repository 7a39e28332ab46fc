"""Runs with adaptive control, and the state that they end in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sfumato as sf
from sfumato.privacy.observers import Party
from sfumato.protocols.adaptive.state import AdaptiveState
from sfumato.schedule.tree import TreePlan
from sfumato.simulation.checkpoint import load
from sfumato.spec.load import load_spec

CONTROLLED: dict[str, Any] = {
    "name": "controlled",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 30, "partition": {"kind": "iid"}},
    "model": {"kind": "softmax", "bias": False},
    "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 5},
    "trust": {"trusted_edges": [0]},
    "training": {"rounds": 4, "local_steps": 8, "edge_every": 4, "batch_size": 5, "learning_rate": 0.1},
    "privacy": {"delta": 1e-5, "clip": {"kind": "step", "norm": 1.0}, "noise": {"multiplier": 3.0}},
    "control": {"energy": 30.0, "delay": 30.0, "optimality_gap_weight": 0.02, "optimality_gap_scale": 1.0}
    | {"max_steps": 8, "smoothness": 0.5},
    "evaluate_every": 100,
}


def observers(plan: TreePlan, unit: int) -> Iterator[Party]:
    """Everybody but the unit."""
    yield Party("public")
    yield Party("node", 0, 0)
    yield from (Party("node", 1, edge) for edge in range(plan.tree.leaf_count))
    yield from (Party("device", 0, d) for d in range(plan.tree.device_count) if d != unit)


def played(spec: Path, out: Path, *changes: str) -> tuple[sf.Run, AdaptiveState]:
    run = sf.run(load_spec(spec, list(changes)), out=out)
    held = load(out)
    assert held is not None
    assert isinstance(held.position.state, AdaptiveState)
    return run, held.position.state
