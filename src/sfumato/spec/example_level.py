"""Checks of Poisson mini-batches, clips of examples and noise at steps: what record guarantees rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.spec.base import refuse
from sfumato.spec.privacy import NoiseByMultiplier, NoiseBySource, NoiseByTarget, NoNoise

if TYPE_CHECKING:  # the document imports this module
    from sfumato.spec.document import Spec


def check_example_level(spec: Spec) -> None:
    """Refuse Poisson mini-batches, clips of examples and noise at steps where other sections contradict them.

    Raises:
        PydanticCustomError: with the place of the key that does not fit.
    """
    if spec.training.batches == "poisson":
        _poisson_fits(spec)
    if spec.privacy.clip is not None and spec.privacy.clip.kind == "example":
        _example_clip_fits(spec)
    noise = spec.privacy.requested_noise
    if isinstance(noise, NoiseByMultiplier) and noise.at == "step":
        _step_noise_fits(spec, noise)


def _poisson_fits(spec: Spec) -> None:
    place, training = "training.batches", spec.training
    if training.local_epochs is not None:
        allowed = (
            "goes with training.local_steps: Poisson mini-batches make no passes over the data, so there "
            "are no epochs to count"
        )
        raise refuse(place, "poisson", allowed)
    if training.batch_size == "all":
        allowed = (
            "must be a number with training.batches: poisson: every sum of gradients is divided by it; use "
            "batches: shuffled to take all examples in every step"
        )
        raise refuse("training.batch_size", "all", allowed)
    if spec.control is not None:
        raise refuse(place, "poisson", "must be shuffled with control, whose estimates are made for it")


def _example_clip_fits(spec: Spec) -> None:
    place, clip = "privacy.clip.kind", spec.privacy.clip
    assert clip is not None  # the caller found its kind
    if spec.training.batches != "poisson":
        allowed = (
            "needs training.batches: poisson: a step is then a sum of clipped gradients over a public "
            "constant; with shuffled batches it is a mean over what is there"
        )
        raise refuse(place, "example", allowed)
    if clip.norms is not None:
        raise refuse(
            "privacy.clip.norm", list(clip.norms), "must be one number with kind: example, for all groups"
        )
    if spec.sends_over_the_air:
        allowed = (
            "must be update or step over the air: the power of a message is set by its bound, and clipped "
            "examples leave the message of a device without one"
        )
        raise refuse(place, "example", allowed)
    noise = spec.privacy.requested_noise
    for_records = isinstance(noise, NoiseByTarget) and spec.privacy.unit == "record"
    if not (for_records or isinstance(noise, NoNoise | NoiseByMultiplier | NoiseBySource)):
        allowed = (
            "must be none, a multiplier, or with privacy.unit: record a target where privacy.clip.kind is "
            "example: for a device it is computed from the bound of its message, which clipped examples do "
            "not give"
        )
        raise refuse("privacy.noise.kind", noise.kind, allowed)


def _step_noise_fits(spec: Spec, noise: NoiseByMultiplier) -> None:
    place, clip = "privacy.noise.at", spec.privacy.clip
    if clip is None or clip.kind != "example":
        allowed = "needs privacy.clip.kind: example: the noise is a multiple of the norm that examples get"
        raise refuse(place, "step", allowed)
    if noise.multiplier == 0:
        raise refuse("privacy.noise.multiplier", 0.0, "must be above 0 with at: step; write noise: none")
    if noise.placement is not None:
        raise refuse(
            "privacy.noise.placement", None, "must be left out with at: step: every device adds its own noise"
        )
    if noise.multipliers is not None:
        raise refuse("privacy.noise.multiplier", list(noise.multipliers), "must be one number with at: step")
    if spec.privacy.mechanism is not None:
        raise refuse(
            "privacy.mechanism",
            spec.privacy.mechanism.kind,
            "must be left out with privacy.noise.at: step, which adds Gaussian noise",
        )
