"""What trees and groups alike are refused with."""

from __future__ import annotations

from sfumato.families import TREE, family_of
from sfumato.schedule.noise.placement import noise_law_of
from sfumato.spec.document import Spec
from sfumato.spec.refusals import Refusals

# fmt: off


def drift_correction_refusals(spec: Spec) -> Refusals:
    """The settings that cannot be combined with FedProx or SCAFFOLD, as rows (applies, key, value, allowed).

    If ``applies`` of a row is true, the spec is refused with an error about ``key`` (docs/accounting.md,
    "Drift correction").
    """
    training, clip, kind = spec.training, spec.privacy.clip, spec.training.drift_correction.kind
    if kind == "none":
        return
    key = "training.drift_correction"
    yield (spec.control is not None, key, kind,
           "must be none here: control sets the step size by a theorem on plain steps")
    if kind != "scaffold":
        return
    for applies, reason in (
        (family_of(spec) is not TREE, "workers of several groups would need control variates for each"),
        (training.local_steps is None,
         "it needs local_steps: how many steps an epoch has is each device's own secret"),
        (training.momentum > 0, "momentum makes an update more than the sum of its gradients"),
        (clip is not None and clip.kind != "update",
         "a clip of steps or examples does not bound the correction; use clip kind update"),
        (training.weights.kind != "uniform", "its mean counts all devices alike, and weights do not"),
        (spec.faults is not None, "devices whose message is lost would remember it"),
        (spec.compression is not None, "compression leaves coordinates out of the mean"),
        (spec.sends_over_the_air, "over the air it is not derived"),
    ):
        yield applies, key, kind, f"must be none here: {reason}"


def mechanism_refusals(spec: Spec) -> Refusals:
    """Rows (applies, key, value, allowed) of settings that do not go with a user's own mechanism.

    If ``applies`` of a row is true, the spec is refused with an error about ``key``.
    """
    if spec.privacy.mechanism is None:
        return
    kind, requested = spec.privacy.mechanism.kind, spec.privacy.requested_noise.kind
    other_transport = next((how for how in spec.transport.values() if how != "plain"), None)
    yield (other_transport is not None, "privacy.mechanism", kind,
           f"goes with plain transport only; {other_transport} has a mechanism of its own")
    yield (spec.control is not None, "privacy.mechanism", kind,
           "must be left out with control, whose privacy filter is for Gaussian noise")
    yield (requested in ("target", "formula") and noise_law_of(spec).why_not_composed, "privacy.noise",
           requested, f"must be a multiplier: the epsilon of {kind} is not known")
