"""Small runs with recorded views, as attacks meet them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sfumato.attacks.attack_context import AttackContext
from sfumato.simulation.run import run
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec


def spec_of(*, multiplier: float | None, **changes: Any) -> Spec:
    """Devices that each overfit a dozen digits; under untrusted edges, where there is noise."""
    training = {
        "rounds": 2,
        "steps_per_round": 60,
        "edge_every": 60,
        "batch_size": "all",
        "learning_rate": 0.5,
    }
    document: dict[str, Any] = {
        "name": "member",
        "protocol": "hfl",
        "seed": 0,
        "data": {"source": "digits", "partition": {"kind": "labels", "labels_per_device": 3}},
        "model": {"kind": "softmax"},
        "topology": {"kind": "tree", "edges": 4, "devices_per_edge": 25},
        "training": training | dict(changes.pop("training", {})),
        "privacy": {"delta": 1e-5},
    }
    if multiplier is not None:
        document["protocol"] = "hfl-dp"
        document["privacy"] |= {
            "clip": {"kind": "update", "norm": 1.0},
            "noise": {"multiplier": multiplier},
        }
    return load_spec(document | changes)


def played(folder: Path, observers: tuple[str, ...], *, multiplier: float | None, **changes: Any) -> Path:
    """The folder of such a run, with these observers' views."""
    run(spec_of(multiplier=multiplier, **changes), out=folder, device="cpu", record_views=observers)
    return folder


def scenes(
    folder: Path, observers: tuple[str, ...], *, multiplier: float | None, **changes: Any
) -> Mapping[str, AttackContext]:
    """What each observer of such a run saw."""
    played(folder, observers, multiplier=multiplier, **changes)
    return {observer: AttackContext.of_run(folder, observer) for observer in observers}
