"""What an attack found, beside what was promised; and where it lies in a run folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sfumato.attacks.attack_context import AttackContext
from sfumato.attacks.roc import LOW_RATES, ROC
from sfumato.privacy.guarantee import number
from sfumato.run_folder.reader import ATTACKS_FOLDER, add_json
from sfumato.run_folder.view_files import slug

Level = Literal["record", "device", "label"]
_ERROR = 1e-3


@dataclass(frozen=True, eq=False)
class AttackMeasurement:
    """How well one attack did.

    Attributes:
        level: what a member is: a record, a device, or a label that a device holds.
        attack: its name.
        roc: of all targets' trials together.
        epsilon: the largest that is promised for a target whose data are replaced.
        delta: of that.
    """

    level: Level
    attack: str
    roc: ROC
    epsilon: float
    delta: float

    @property
    def is_bounded(self) -> bool:
        """Whether the promise bounds the curve.

        Members and others of the first two levels are drawn alike: that they change places replaces a
        device's data. Which labels are held is not drawn, so that common labels, no secret, may look held.
        """
        return self.level != "label" and math.isfinite(self.epsilon)

    @property
    def exceeds(self) -> bool:
        """Whether the curve is above what is promised, wrongly with probability at most 0.1 %."""
        return self.is_bounded and self.roc.exceeds(epsilon=self.epsilon, delta=self.delta, error=_ERROR)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        bound = {"epsilon": number(self.epsilon), "delta": self.delta, "neighbours": "replace"}
        return {
            "level": self.level,
            "attack": self.attack,
            "bound": bound,
            "exceeds_bound": self.exceeds,
            **self.roc.to_dict(),
        }


def measurements(
    context: AttackContext, level: Level, curves: Mapping[str, ROC]
) -> tuple[AttackMeasurement, ...]:
    """The curves of attacks on one level, by name, beside what is promised."""
    epsilon, delta = context.guaranteed_epsilon("replace"), context.plan.spec.privacy.delta
    return tuple(AttackMeasurement(level, attack, roc, epsilon, delta) for attack, roc in curves.items())


def write_result(
    run: Path,
    kind: Literal["membership", "property"],
    context: AttackContext,
    found: Sequence[AttackMeasurement],
) -> dict[str, Any]:
    """Write ``attacks/KIND-OBSERVER.json`` and return what it holds."""
    privacy = context.plan.spec.privacy
    promised = number(context.guaranteed_epsilon(privacy.neighbours))
    result = {
        "kind": kind,
        "spec": context.plan.spec.name,
        "observer": context.observer,
        "seed": context.plan.spec.seed,
        "rounds": context.rounds,
        "targets": [f"device:{target}" for target in context.targets],
        "promised": {"epsilon": promised, "delta": privacy.delta, "neighbours": privacy.neighbours},
        "results": [one.to_dict() for one in found],
        "notes": _notes(found),
    }
    add_json(run, f"{ATTACKS_FOLDER}/{kind}-{slug(context.observer)}.json", result)
    return result


def _notes(found: Sequence[AttackMeasurement]) -> list[str]:
    notes = [
        "An attack shows what can be learned at least, never what cannot. Trials of one run share its models "
        "and its noise; intervals treat them as independent."
    ]
    if not found:
        return ["There was nothing to tell apart: every device holds every label.", *notes]
    if any(one.roc.non_members * LOW_RATES[0] < 1 for one in found):
        notes.append(
            f"Where fewer than {1 / LOW_RATES[0]:,.0f} others are told apart, a false-positive rate of "
            f"{100 * LOW_RATES[0]:g} % means no false alarm at all."
        )
    if any(math.isinf(one.epsilon) for one in found):
        notes.append("ε = ∞: nothing is promised towards this observer, so no curve is too high.")
    return notes
