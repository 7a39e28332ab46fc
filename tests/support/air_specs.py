"""Small specs over the air, for tests."""

from __future__ import annotations

from typing import Any

from sfumato.spec.document import Spec

CONSTANT = {"gain": {"kind": "constant", "mean": 0.1, "min": 0.1, "max": 0.1}, "snr_db": [2, 15]}
FADING = {"gain": {"kind": "exponential", "mean": 0.2, "min": 0.001, "max": 1.0}, "snr_db": [2, 15]}


def air_spec(**sections: Any) -> Spec:
    """A star of 20 devices, 5 a round; keyword arguments merge into sections, or replace them."""
    written: dict[str, Any] = {
        "name": "air",
        "protocol": "pfels",
        "data": {"source": "synthetic", "examples_per_device": 20},
        "model": {"kind": "softmax"},
        "topology": {"kind": "star", "devices": 20},
        "training": {
            "rounds": 4,
            "local_steps": 2,
            "batch_size": 5,
            "learning_rate": 0.1,
            "participation": {"kind": "fixed", "count": 5},
        },
        "radio": FADING,
        "compression": {"kind": "rand-k", "ratio": 0.3},
        "privacy": {
            "delta": 1e-3,
            "clip": {"kind": "update", "norm": 1.0},
            "noise": {"formula": "pfels", "epsilon": 1.5},
        },
    }
    for name, value in sections.items():
        old = written.get(name)
        whole = isinstance(value, dict) and "kind" not in value and "preset" not in value
        merged = {**old, **value} if isinstance(old, dict) and whole else value
        written[name] = merged
    return Spec.model_validate({name: value for name, value in written.items() if value is not None})
