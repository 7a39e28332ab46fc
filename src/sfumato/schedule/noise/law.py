"""The law of the noise that parties add, as the spec states it; no code that the spec names is run."""

from __future__ import annotations

from sfumato.errors import SpecError
from sfumato.privacy.release import GAUSSIAN, NoiseLaw
from sfumato.spec.document import Spec

_PLACE = "privacy.mechanism"


def law_of(spec: Spec) -> NoiseLaw:
    """The law of the noise that parties add: Gaussian, or of an unknown kind that is not composed.

    Raises:
        SpecError: a mechanism from outside the package does not go with another section.
    """
    mechanism, law = spec.privacy.mechanism, GAUSSIAN
    if spec.privacy.clips_examples:
        law = NoiseLaw(
            "Gaussian",
            "privacy.clip.kind: example bounds what single examples contribute, and leaves the message of a "
            "whole device without a bound",
            composed_for_records=True,
        )
    if mechanism is None:
        return law
    if mechanism.law != "gaussian":
        law = NoiseLaw(mechanism.kind, "the accountant composes Gaussian noise only")
    _refuse_what_does_not_fit(spec, mechanism.kind, law)
    return law


def _refuse_what_does_not_fit(spec: Spec, name: str, law: NoiseLaw) -> None:
    other = next((how for how in spec.transport.values() if how != "plain"), None)
    if other is not None:
        raise SpecError(_PLACE, name, f"goes with plain transport only; {other} has a mechanism of its own")
    if spec.control is not None:
        raise SpecError(
            _PLACE, name, "must be left out with control, whose privacy filter is for Gaussian noise"
        )
    noise = spec.privacy.noise
    stated = getattr(noise, "calibrated_from", None) or noise
    if law.why_not_composed and stated.kind in ("target", "formula"):
        raise SpecError(
            "privacy.noise", stated.kind, f"must be a multiplier: the epsilon of {name} is not known"
        )
