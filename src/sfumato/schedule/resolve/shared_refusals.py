"""What trees and groups alike are refused with; `resolve` asks whether a spec uses the subject at all."""

from __future__ import annotations

from collections.abc import Callable

from sfumato.families import family_of
from sfumato.schedule.noise.placement import law_of
from sfumato.spec.document import Spec
from sfumato.spec.refusals import Refusal


def _without(reason: str, applies: Callable[[Spec], object], *kinds: str) -> Refusal[Spec]:
    """A refusal of these kinds of drift correction."""
    return Refusal(
        lambda spec: spec.training.drift_correction.kind in kinds and applies(spec),
        "training.drift_correction",
        lambda spec: spec.training.drift_correction.kind,
        f"must be none here: {reason}",
    )


DRIFT_CORRECTION: tuple[Refusal[Spec], ...] = (
    _without("control sets the step size by a theorem on plain steps",
             lambda spec: spec.control is not None, "fedprox", "scaffold"),
    _without("workers of several groups would need control variates for each",
             lambda spec: family_of(spec).name != "tree", "scaffold"),
    _without("it needs local_steps: how many steps an epoch has is each device's own secret",
             lambda spec: spec.training.local_steps is None, "scaffold"),
    _without("momentum makes an update more than the sum of its gradients",
             lambda spec: spec.training.momentum > 0, "scaffold"),
    _without("a clip of steps or examples does not bound the correction; use clip kind update",
             lambda spec: spec.privacy.clip is not None and spec.privacy.clip.kind != "update", "scaffold"),
    _without("its mean counts all devices alike, and weights do not",
             lambda spec: spec.training.weights.kind != "uniform", "scaffold"),
    _without("devices whose message is lost would remember it",
             lambda spec: spec.faults is not None, "scaffold"),
    _without("compression leaves coordinates out of the mean",
             lambda spec: spec.compression is not None, "scaffold"),
    _without("over the air it is not derived", lambda spec: spec.sends_over_the_air, "scaffold"),
)  # fmt: skip
"""What is not derived for FedProx and SCAFFOLD (docs/accounting.md, "Drift correction")."""


def _other_transport(spec: Spec) -> str | None:
    return next((how for how in spec.transport.values() if how != "plain"), None)


def _mechanism(spec: Spec) -> str:
    assert spec.privacy.mechanism is not None  # who asks has seen to it
    return spec.privacy.mechanism.kind


MECHANISM: tuple[Refusal[Spec], ...] = (
    Refusal(lambda spec: _other_transport(spec) is not None, "privacy.mechanism", _mechanism,
            lambda spec: f"goes with plain transport only; {_other_transport(spec)} has a mechanism of its "
                         "own"),
    Refusal(lambda spec: spec.control is not None, "privacy.mechanism", _mechanism,
            "must be left out with control, whose privacy filter is for Gaussian noise"),
    Refusal(lambda spec: spec.privacy.requested_noise.kind in ("target", "formula")
                         and law_of(spec).why_not_composed,
            "privacy.noise", lambda spec: spec.privacy.requested_noise.kind,
            lambda spec: f"must be a multiplier: the epsilon of {_mechanism(spec)} is not known"),
)  # fmt: skip
"""What a mechanism from outside the package does not go with."""
