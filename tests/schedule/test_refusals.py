"""Rows of the tables of refusals that are read once the rounds of a spec are known (`schedule.resolve`)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sfumato.errors import SpecError
from sfumato.families import GROUPS
from sfumato.schedule.resolve import resolve
from sfumato.spec.document import KIND_OF
from sfumato.spec.load import load_spec

TREE: dict[str, Any] = {"kind": "tree", "edges": 2, "devices_per_edge": 3}
DEEP = {"kind": "tree", "levels": [2, 2, 3], "level_names": ["region", "edge"]}
RING = {"kind": "groups", "structure": "ring", "groups": 3, "devices": 6}
LINKS = {"preset": "h2fdp"}
GAINS = {"gain": {"kind": "rayleigh", "mean": 0.2, "min": 0.01}, "snr_db": [2, 15]}
AIR = {"transport": {"devices_to_edge": "air"}, "radio": GAINS}
MASKED = {"devices_to_edge": "secure-aggregation"}
LAPLACE = "laplace_noise:Laplace"
SPARSE = {"kind": "rand-k", "ratio": 0.5}
FEEDBACK = {"compression": {**SPARSE, "error_feedback": True}}
UPDATE = {"kind": "update", "norm": 0.5}
EVERY_2 = {"training.edge_every": 2}
NO_STEPS = {"training.local_steps": None}

CASES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    # over the air
    ("hdp", TREE, {**AIR, "training.denominator": {"kind": "clipped", "min_weight": 0.5}},
     "training.denominator: got 'clipped'; over the air it is fixed: nobody counts"),
    # compressed messages in trees
    ("h2fdp", TREE, {"compression": SPARSE, "training.global_update": "resend", **EVERY_2},
     "compression: goes with training.global_update: increment only"),
    ("h2fdp", TREE, {**FEEDBACK, "faults": {"dropout_rate": 0.1}},
     "compression.error_feedback: got True; does not go with faults"),
    ("h2fdp", TREE, {**FEEDBACK, "radio": LINKS, "control": {}},
     "compression.error_feedback: got True; does not go with control"),
    # secure aggregation
    ("h2fdp", TREE, {**AIR, "transport": {"devices_to_edge": "air", "edge_to_cloud": "secure-aggregation"}},
     "transport: got 'air'; cannot be mixed with secure-aggregation: the air adds no integers"),
    ("h2fdp", TREE, {"transport": {"edge_to_cloud": "secure-aggregation"},
                     "compression": {**SPARSE, "bits": 8}},
     "compression.bits: got 8; secure aggregation has a grid of its own"),
    # adapted clip norms
    ("h2fdp", TREE, {**AIR, "privacy.clip": {**UPDATE, "adapt": {}}},
     "privacy.clip.adapt: must be left out here: the power of the air is set for one clip norm"),
    ("h2fdp", TREE, {"privacy.clip": {**UPDATE, "adapt": {}}, "privacy.mechanism": LAPLACE},
     "privacy.clip.adapt: must be left out here: a mechanism of one's own may depend on the length of what "
     "it is given"),
    # drift correction
    ("h2fdp", TREE, {**AIR, "training.drift_correction": "scaffold"},
     "training.drift_correction: got 'scaffold'; must be none here: over the air it is not derived"),
    # mechanisms of users
    ("h2fdp", TREE, {"transport": MASKED, "privacy.mechanism": LAPLACE},
     f"privacy.mechanism: got '{LAPLACE}'; goes with plain transport only; secure-aggregation has a "
     "mechanism of its own"),
    ("h2fdp", TREE, {"radio": LINKS, "control": {}, "privacy.mechanism": LAPLACE},
     f"privacy.mechanism: got '{LAPLACE}'; must be left out with control, whose privacy filter is for "
     "Gaussian noise"),
    ("h2fdp", TREE, {"privacy.noise": {"epsilon": 3.0, "for": "cloud"}, "privacy.mechanism": LAPLACE},
     f"privacy.noise: got 'target'; must be a multiplier: the epsilon of {LAPLACE} is not known"),
    # control
    ("h2fdp", TREE, {"radio": LINKS, "control": {}, "training.global_update": "resend", **EVERY_2},
     "training.global_update: got 'resend'; must be increment with control"),
    # groups
    ("dp-ogl", RING, EVERY_2, "training.edge_every: got 2; must be left out: groups have no edges"),
    ("dp-ogl", RING, {"training.aggregate_every": [2]},
     "training.aggregate_every: got (2,); must be left out: groups have no edges"),
    ("dp-ogl", RING, {"training.global_update": "resend", **NO_STEPS},
     "training.global_update: got 'resend'; belongs to trees"),
    ("of-a-user", RING, {"compression": SPARSE},
     "compression: must be left out: of-a-user makes messages of its own"),
    # defaults of protocols
    ("hdp", TREE, EVERY_2, "training.edge_every: got 2; must be left out: hdp aggregates once a round"),
    ("hdp", TREE, {"training.edge_every": [2, 4]},
     "training.edge_every: got [2, 4]; must be left out: hdp aggregates once a round"),
    ("hdp", DEEP, {"training.aggregate_every": [4, 2]},
     "training.aggregate_every: got [4, 2]; must be left out: hdp aggregates once a round"),
    ("hdp", TREE, {"training.global_update": "resend", **NO_STEPS},
     "training.global_update: got 'resend'; must be increment: hdp aggregates once a round"),
    ("pedpfl", TREE, {"topology.zones": {"kind": "data"}},
     "topology.zones: got 'data'; must be left out with pedpfl: one cluster"),
    ("pedpfl", TREE, {"data.partition": {"edge": "iid", "device": "iid"}},
     "data.partition.edge: must be left out with pedpfl: one cluster"),
]  # fmt: skip


def document(protocol: str, topology: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A spec of 4 local steps and noise on clipped updates, and ``changes`` at their keys; None takes out."""
    found: dict[str, Any] = {
        "name": "refused",
        "protocol": protocol,
        "topology": topology,
        "data": {"source": "synthetic", "examples_per_device": 40},
        "model": {"kind": "softmax"},
        "training": {"rounds": 3, "local_steps": 4, "batch_size": 4, "learning_rate": 0.1},
        "privacy": {"clip": UPDATE, "noise": {"multiplier": 1.0}},
    }
    found = copy.deepcopy(found)
    for key, value in changes.items():
        *sections, last = key.split(".")
        section = found
        for name in sections:
            section = section[name]
        section[last] = value
        if value is None:
            del section[last]
    return found


@pytest.mark.parametrize(("protocol", "topology", "changes", "message"), CASES)
def test_a_row_says_the_key_the_value_and_what_is_allowed(
    protocol: str,
    topology: dict[str, Any],
    changes: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(KIND_OF, "of-a-user", "dp-ogl")
    monkeypatch.setitem(GROUPS.protocols, "of-a-user", GROUPS.protocols["dp-ogl"])
    spec = load_spec(document(protocol, topology, changes))
    with pytest.raises(SpecError) as refused:
        resolve(spec)
    assert str(refused.value) == message
