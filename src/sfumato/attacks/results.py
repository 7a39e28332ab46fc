"""What an attack found, beside what was promised; and where it lies in a run folder."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sfumato.attacks.roc import LOW_RATES, ROC
from sfumato.attacks.scene import Scene
from sfumato.privacy.accountant import Neighbours
from sfumato.privacy.guarantee import number
from sfumato.protocols.recording import slug
from sfumato.run_folder import ATTACKS_FOLDER, replacing

_ERROR = 1e-3


@dataclass(frozen=True, eq=False)
class Measured:
    """How well one attack did.

    Attributes:
        level: what a member is: a record, a device, or a label that a device holds.
        attack: its name.
        roc: of all targets' trials together.
        epsilon: the largest that is promised for a target, under ``neighbours``; bounds the curve.
        delta: of that.
        neighbours: what the two worlds differ in: a device's data left out, or replaced.
    """

    level: Literal["record", "device", "label"]
    attack: str
    roc: ROC
    epsilon: float
    delta: float
    neighbours: Neighbours

    @property
    def exceeds(self) -> bool:
        """Whether the curve is above what is promised, wrongly with probability at most 0.1 %."""
        return self.roc.exceeds(epsilon=self.epsilon, delta=self.delta, error=_ERROR)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        bound = {"epsilon": number(self.epsilon), "delta": self.delta, "neighbours": self.neighbours}
        return {
            "level": self.level,
            "attack": self.attack,
            "bound": bound,
            "exceeds_bound": self.exceeds,
            **self.roc.to_dict(),
        }


def measured(
    scene: Scene, level: Literal["record", "device", "label"], attack: str, roc: ROC, neighbours: Neighbours
) -> Measured:
    """One attack's curve beside the promise that bounds it."""
    delta = scene.plan.spec.privacy.delta
    return Measured(level, attack, roc, scene.promised(neighbours), delta, neighbours)


def write_result(
    run: Path, kind: Literal["membership", "property"], scene: Scene, found: Sequence[Measured]
) -> dict[str, Any]:
    """Write ``attacks/KIND-OBSERVER.json`` and return what it holds."""
    result = {
        "kind": kind,
        "spec": scene.plan.spec.name,
        "observer": scene.observer,
        "seed": scene.plan.spec.seed,
        "rounds": scene.rounds,
        "targets": [f"device:{target}" for target in scene.targets],
        "results": [one.to_dict() for one in found],
        "notes": _notes(found),
    }
    path = run / ATTACKS_FOLDER / f"{kind}-{slug(scene.observer)}.json"
    with replacing(path) as temporary:
        text = json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8", newline="\n")
    return result


def _notes(found: Sequence[Measured]) -> list[str]:
    notes = [
        "An attack shows what can be learned at least, never what cannot. Trials of one run share its models "
        "and its noise; intervals treat them as independent."
    ]
    if not found:
        return ["There was nothing to tell apart: every device holds every label.", *notes]
    if any(one.roc.others * LOW_RATES[0] < 1 for one in found):
        notes.append(
            f"Where fewer than {1 / LOW_RATES[0]:,.0f} trials are without, a false-positive rate of "
            f"{LOW_RATES[0]:.1%} means no false alarm at all."
        )
    if any(math.isinf(one.epsilon) for one in found):
        notes.append("ε = ∞: nothing is promised towards this observer, so no curve is too high.")
    return notes
