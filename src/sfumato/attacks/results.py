"""Measurements of attacks beside the guaranteed ε, and their file in a run folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sfumato.attacks.attack_context import AttackContext
from sfumato.attacks.roc import LOW_RATES, ROC
from sfumato.privacy.guarantee import json_number
from sfumato.run_folder.reader import ATTACKS_FOLDER, add_json
from sfumato.run_folder.view_files import slug

UnitLevel = Literal["record", "device", "label"]
_ERROR = 1e-3


@dataclass(frozen=True, eq=False)
class AttackMeasurement:
    """The success of one attack.

    Attributes:
        level: what a member is: a record, a device, or a label that a device holds.
        attack: name of the attack.
        roc: ROC curve of the trials of all targets.
        epsilon: the largest guaranteed ε of a target, under replacement of its data.
        delta: δ of ``epsilon``.
    """

    level: UnitLevel
    attack: str
    roc: ROC
    epsilon: float
    delta: float

    @property
    def is_bounded(self) -> bool:
        """Whether the guaranteed ε bounds the attack's ROC curve.

        So it is where ε is finite and records or devices are attacked: there members and non-members have the
        same distribution, and exchanging them replaces a device's data. The labels that devices hold are not
        drawn in this way: an attack may score common labels high without any information about the device.
        """
        return self.level != "label" and math.isfinite(self.epsilon)

    @property
    def exceeds(self) -> bool:
        """Whether the ROC curve lies above what the guarantee allows; wrong with probability ≤ 0.1 %."""
        return self.is_bounded and self.roc.exceeds(epsilon=self.epsilon, delta=self.delta, error=_ERROR)

    def to_dict(self) -> dict[str, Any]:
        """The entry of ``results`` in the JSON file of the attack, a JSON object."""
        bound = {"epsilon": json_number(self.epsilon), "delta": self.delta, "neighbours": "replace"}
        return {
            "level": self.level,
            "attack": self.attack,
            "bound": bound,
            "exceeds_bound": self.exceeds,
            **self.roc.to_dict(),
        }


def measurements(
    context: AttackContext, level: UnitLevel, curves: Mapping[str, ROC]
) -> tuple[AttackMeasurement, ...]:
    """One measurement for each of ``curves`` (attack to ROC curve), beside the guaranteed ε under replace.

    ``level``: ``record``, ``device`` or ``label``.
    """
    epsilon, delta = context.guaranteed_epsilon("replace"), context.plan.spec.privacy.delta
    return tuple(AttackMeasurement(level, attack, roc, epsilon, delta) for attack, roc in curves.items())


def write_result(
    run: Path,
    kind: Literal["membership", "property"],
    context: AttackContext,
    found: Sequence[AttackMeasurement],
) -> dict[str, Any]:
    """Write ``attacks/KIND-OBSERVER.json`` into the run folder ``run``; returns its content.

    Args:
        run: the run folder.
        kind: of the attacks.
        context: of the attacks.
        found: their measurements.

    Raises:
        SpecError: another process is writing into the run folder.
    """
    privacy = context.plan.spec.privacy
    promised = json_number(context.guaranteed_epsilon(privacy.neighbours))
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
    """Sentences for the result file on how the figures of ``found`` are to be read."""
    notes = [
        "The success of an attack is a lower bound on what can be learned. Trials of one run share its "
        "models and its noise; the intervals treat them as independent."
    ]
    if not found:
        return ["Nothing was measured: every device holds every label.", *notes]
    if any(one.roc.non_members * LOW_RATES[0] < 1 for one in found):
        notes.append(
            f"With fewer than {1 / LOW_RATES[0]:,.0f} non-members, a false-positive rate of "
            f"{100 * LOW_RATES[0]:g} % means no false alarm at all."
        )
    if any(math.isinf(one.epsilon) for one in found):
        notes.append("ε = ∞: there is no guarantee towards this observer, so no curve contradicts one.")
    return notes
