"""What sending over the air, and compressing, settle and refuse at the outset (docs/pfels.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sfumato.errors import SpecError
from sfumato.network.tree import Tree
from sfumato.radio.channels import radio_of
from sfumato.rounding import number
from sfumato.schedule.air.power_control import AirPlan
from sfumato.schedule.local_steps import of_training
from sfumato.schedule.model_size import parameter_count
from sfumato.schedule.noise.placement import NoisePlan
from sfumato.spec.document import Spec
from sfumato.spec.privacy import NoiseByFormula, NoNoise
from sfumato.spec.radio import AirRadio
from sfumato.spec.transport import Air
from sfumato.spec.used_keys import AIR_PROTOCOLS


def devices_hop(tree: Tree) -> str:
    """Name of the hop on which devices send: ``devices_to_cloud`` of a star, else to the lowest level."""
    return f"devices_to_{tree.tiers[-1].name}"


def settle_air(spec: Spec, tree: Tree) -> tuple[Spec, tuple[str, ...]]:
    """The choices that PFELS and its baselines stand for, and what the user should hear about them.

    Args:
        spec: any; one that uses neither the air nor compression comes back as it is.
        tree: of its topology.

    Raises:
        SpecError: sections that do not fit sending over the air, or compression.
    """
    notes: list[str] = []
    hop = devices_hop(tree)
    if spec.protocol in AIR_PROTOCOLS:
        stated = spec.transport.get(hop, "air")
        if stated != "air":
            raise SpecError(f"transport.{hop}", stated, f"{spec.protocol} is over the air; use dp-fedavg")
        spec = spec.model_copy(update={"transport": {**spec.transport, hop: "air"}})
    for other, transport in spec.transport.items():
        if transport == "air" and other != hop:
            raise SpecError(f"transport.{other}", "air", f"only devices send over the air: {hop}")
    if spec.protocol in ("wfl-p", "wfl-pdp") and spec.compression is not None:
        notes.append(f"{spec.protocol} sends whole updates: compression is ignored")
        spec = spec.model_copy(update={"compression": None})
    noise = spec.privacy.noise
    if spec.protocol == "wfl-p" and isinstance(noise, NoiseByFormula):
        notes.append("wfl-p has no epsilon term: privacy.noise is ignored, power alone limits the signal")
        quiet = spec.privacy.model_copy(update={"noise": NoNoise()})
        spec = spec.model_copy(update={"privacy": quiet})
    if spec.transport.get(hop) == "air":
        _check_air(spec)
    elif spec.air is not None:
        raise SpecError("air", None, f"goes with transport: {{{hop}: air}}")
    if spec.compression is not None:
        _check_compression(spec, tree, hop)
        if spec.compression.ratio < 1:
            notes.append(
                f"compression lets {spec.compression.ratio:g} of every update through and nothing scales it "
                "up: the average that arrives is smaller than the updates' by about that much (Lemma 1 of "
                "PFELS)"
            )
    return spec, tuple(notes)


def _check_air(spec: Spec) -> None:
    noise, air = spec.privacy.noise, spec.air or Air()
    if spec.privacy.clip is None:
        needed = (
            "is required over the air: power control needs a bound, {kind: update, norm: a number above 0}"
        )
        raise SpecError("privacy.clip", None, needed)
    if isinstance(noise, NoiseByFormula):
        if noise.formula != "pfels":
            raise SpecError("privacy.noise.formula", noise.formula, "over the air it is pfels")
        if air.power_control in ("wfl-p", "fixed"):
            allowed = "has no epsilon term; use pfels or wfl-pdp with privacy.noise.formula"
            raise SpecError("air.power_control", air.power_control, allowed)
    radio = radio_of(spec)
    if isinstance(radio, AirRadio) and (air.min_gain or 0.0) > radio.gain.largest:
        allowed = f"must be at most {radio.gain.largest:g}, the largest gain there is: nobody would send"
        raise SpecError("air.min_gain", air.min_gain, allowed)
    if air.beta is not None and spec.privacy.clip.kind == "step":
        raise SpecError(
            "air.power_control", "fixed", "goes with privacy.clip.kind: update; steps differ in length"
        )
    if spec.control is not None:
        raise SpecError("control", None, "does not go with the air")
    if spec.training.denominator.kind != "fixed":
        raise SpecError(
            "training.denominator", spec.training.denominator.kind, "over the air it is fixed: nobody counts"
        )
    adds_noise = not isinstance(noise, NoiseByFormula | NoNoise)
    if adds_noise and air.csi.is_wrong:
        raise SpecError(
            "air.csi",
            None,
            "with devices that do not know their channels nobody can say how much of their noise arrives; "
            "use privacy.noise: none or formula: pfels",
        )


def _check_compression(spec: Spec, tree: Tree, hop: str) -> None:
    compression, training, transport = spec.compression, spec.training, spec.transport.get(hop, "plain")
    assert compression is not None
    if training.global_update == "resend":
        raise SpecError("compression", None, "goes with training.global_update: increment only")
    if compression.bits is not None and transport != "plain":
        why = {
            "air": "the air carries amplitudes, not bits",
            "secure-aggregation": "secure aggregation rounds",
        }
        raise SpecError("compression.bits", compression.bits, f"goes with a plain hop: {why[transport]}")
    several = len(of_training(training, tree.depth)) > 1
    if compression.kind == "top-k" and several:
        raise SpecError(
            "compression.kind", "top-k", "goes with one aggregation a round: edges have models of their own"
        )
    if not compression.error_feedback:
        return
    if several:
        raise SpecError(
            "compression.error_feedback",
            True,
            "goes with one aggregation a round: what a device remembers must follow from global models",
        )
    if spec.faults is not None or spec.control is not None:
        key = "control" if spec.faults is None else "faults"
        raise SpecError("compression.error_feedback", True, f"does not go with {key}")
    if spec.air is not None and spec.air.min_gain is not None:
        raise SpecError(
            "compression.error_feedback", True, "does not go with air.min_gain: the silent would forget"
        )


def filled_up(plan: NoisePlan, air: AirPlan, multiplier: float) -> NoisePlan:
    """``plan`` with as much noise at devices as a received sum lacks to have ``multiplier``; none at the
    least.

    What the channel has at its loudest (the envelope) is counted on; the rest is shared by those expected.
    """
    lacking = np.maximum(multiplier**2 - air.multiplier**2, 0.0)
    share = np.sqrt(lacking / air.participants)[:, None]
    return replace(plan, device=np.where(plan.device > 0, share, 0.0))


def check_power(plan: NoisePlan, air: AirPlan) -> None:
    """Refuse a fixed beta at which the devices' own noise would break their power limits.

    Messages that are too loud yield; noise cannot, as it must not depend on data. By (36) to (38) there is
    always room for it.

    Raises:
        SpecError: on the weakest channel that a device sends on, its noise alone is too loud.
    """
    stated, noise = air.spec.air, float(plan.device.max())
    if stated is None or stated.beta is None or noise <= air.max_noise_multiplier():
        return
    raise SpecError(
        "air.beta",
        stated.beta,
        f"at this beta devices' noise of multiplier {noise:.4g} breaks their power limits on the weakest "
        f"channels, which carry {air.max_noise_multiplier():.4g} at most; a smaller beta needs less noise, "
        "and air.min_gain leaves weak channels out",
    )


def air_notes(plan: AirPlan) -> Sequence[str]:
    """What the user should hear about sending over the air, once it is known who takes part."""
    std = plan.channels.noise_std
    notes = [
        f"the receivers' noise (standard deviation {std:g} a coordinate) is taken on trust: whoever hears "
        "better, or from nearer, is not accounted for"
    ]
    if plan.needs_size and parameter_count(plan.spec) is None:
        notes.append(
            f"how loud devices can send depends on the number of parameters of {plan.spec.model.kind}, which "
            "only a run can tell: accounting does not build models; no limit of power is counted on"
        )
    noise = plan.spec.privacy.requested_noise
    if not isinstance(noise, NoiseByFormula):
        return notes
    delta = plan.spec.privacy.delta
    rates = plan.participants / plan.tree.devices
    if (1.25 * rates <= delta).any():
        notes.append(
            f"PFELS's formula (21) has no value at delta = {number(delta)}: it needs delta below 1.25 r/N = "
            f"{1.25 * float(rates.min()):.4g}; power alone limits the signal and its claim is void"
        )
    domain = 2 * float(rates.min())
    if noise.epsilon >= domain:
        notes.append(
            f"PFELS's Theorem 3 is proved for epsilon below 2 r/N = {domain:.4g} only; at {noise.epsilon:g} "
            "its claim is void (P1)"
        )
    return notes
