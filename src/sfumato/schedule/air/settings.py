"""What sending over the air, and compressing, settle and refuse (docs/pfels.md)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from sfumato.errors import SpecError
from sfumato.network.tree import Tree
from sfumato.radio.channels import radio_of
from sfumato.rounding import number
from sfumato.schedule.air.power_control import AirPlan, FloatArray
from sfumato.schedule.model_size import parameter_count
from sfumato.schedule.noise.placement import NoisePlan
from sfumato.spec.document import Spec
from sfumato.spec.privacy import NoiseByFormula, NoNoise
from sfumato.spec.radio import AirRadio
from sfumato.spec.refusals import Refusals
from sfumato.spec.transport import Air
from sfumato.spec.used_keys import AIR_PROTOCOLS


def settle_air(spec: Spec, tree: Tree) -> tuple[Spec, tuple[str, ...]]:
    """``spec`` with the transport, noise and compression that PFELS or a baseline stands for, and notes.

    Args:
        spec: any; one that uses neither the air nor compression comes back as it is.
        tree: of its topology.

    Returns:
        The spec, and notes for the user.

    Raises:
        SpecError: sections that do not fit sending over the air, or compression.
    """
    notes: list[str] = []
    hop = tree.hop_names[-1]
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
    if spec.transport.get(hop) != "air" and spec.air is not None:
        raise SpecError("air", None, f"goes with transport: {{{hop}: air}}")
    return spec, (*notes, *compression_notes(spec))


def compression_notes(spec: Spec) -> tuple[str, ...]:
    """At most one note to the user, on what compression does to averages; empty without compression."""
    if spec.compression is None or spec.compression.ratio == 1:
        return ()
    return (
        f"compression lets {spec.compression.ratio:g} of every update through and nothing scales it up: the "
        f"average that arrives is about {spec.compression.ratio:g} times the updates' (Lemma 1 of PFELS)",
    )


def _largest_gain(spec: Spec) -> float:
    """The strongest gain that a channel of the spec's radio may have; infinite without a radio of the air."""
    radio = radio_of(spec)
    return radio.gain.largest if isinstance(radio, AirRadio) else math.inf


# fmt: off
def air_refusals(spec: Spec) -> Refusals:
    """The settings that cannot be combined with sending over the air, as rows (applies, key, value, allowed).

    If ``applies`` of a row is true, the spec is refused with an error about ``key``.
    """
    air, clip, noise = spec.air or Air(), spec.privacy.clip, spec.privacy.noise
    denominator = spec.training.denominator
    formula = noise.formula if isinstance(noise, NoiseByFormula) else None
    yield (clip is None, "privacy.clip", None,
           "is required over the air: power control needs a bound, {kind: update, norm: a number above 0}")
    yield formula not in (None, "pfels"), "privacy.noise.formula", formula, "over the air it is pfels"
    yield (formula is not None and air.power_control in ("wfl-p", "fixed"), "air.power_control",
           air.power_control, "has no epsilon term; use pfels or wfl-pdp with privacy.noise.formula")
    largest = _largest_gain(spec)
    yield ((air.min_gain or 0.0) > largest, "air.min_gain", air.min_gain,
           f"must be at most {largest:g}, the largest gain there is: nobody would send")
    yield (air.beta is not None and clip is not None and clip.kind == "step", "air.power_control", "fixed",
           "goes with privacy.clip.kind: update; steps differ in length")
    yield spec.control is not None, "control", None, "does not go with the air"
    yield (denominator.kind != "fixed", "training.denominator", denominator.kind,
           "over the air it is fixed: nobody counts")
    yield (noise.kind not in ("formula", "none") and air.csi.is_wrong, "air.csi", None,
           "with devices that do not know their channels nobody can say how much of their noise arrives; "
           "use privacy.noise: none or formula: pfels")
# fmt: on


def with_noise_up_to_multiplier(plan: NoisePlan, air: AirPlan, multiplier: float) -> NoisePlan:
    """Set the devices' noise so that every received sum has at least the noise multiplier ``multiplier``.

    The receiver's noise counts with its least multiplier (`AirPlan.multiplier`); the expected participants
    add the rest in equal shares.

    Args:
        plan: says which devices add noise; those without stay without.
        air: the devices' uplink.
        multiplier: wanted, of every sum.
    """
    lacking = np.maximum(multiplier**2 - air.multiplier**2, 0.0)
    share = np.sqrt(lacking / air.participants)[:, None]
    return replace(plan, device=np.where(plan.device > 0, share, 0.0))


def with_received_noise(plan: NoisePlan, start: NoisePlan, air: AirPlan, size: FloatArray) -> NoisePlan:
    """Set the devices' noise so that every received sum has ``size`` times the noise of ``start``.

    Devices add nothing where the receiver's own noise is enough.

    Args:
        plan: any; its devices' noise is replaced.
        start: the plan that ``size`` refers to; devices without noise in it get none.
        air: the devices' uplink.
        size: a factor on the standard deviation for every leaf ``[leaves]``.
    """
    floor, present = air.multiplier[:, None] ** 2, air.guaranteed_noisers[:, None]
    wanted = (start.device**2 * present + floor) * size[:, None] ** 2
    added = np.sqrt(np.maximum(wanted - floor, 0.0) / present)
    return replace(plan, device=np.where(start.device > 0, added, 0.0))


def check_power(plan: NoisePlan, air: AirPlan) -> None:
    """Refuse a fixed beta at which the devices' own noise alone would exceed their power limits.

    A message that is too loud is scaled down; noise cannot be, as it must not depend on data. Under the other
    rules of power control noise always fits, by (36) to (38) of PFELS.

    Raises:
        SpecError: at ``air.beta``; the noise is too loud on the weakest channel that a device sends on.
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


def air_notes(plan: AirPlan) -> tuple[str, ...]:
    """The notes to the user about sending over the air, one sentence each.

    ``plan``: of the devices' uplink; it says who takes part.
    """
    std = plan.channels.noise_std
    notes = [
        f"the receiver's noise (standard deviation {std:g} in each coordinate of what it receives) is taken "
        "on trust: whoever hears better, or from nearer, is not accounted for"
    ]
    if plan.needs_size and parameter_count(plan.spec) is None:
        notes.append(
            f"how loud devices can send depends on the number of parameters of {plan.spec.model.kind}, which "
            "only a run can tell: accounting does not build models; no limit of power is counted on"
        )
    noise = plan.spec.privacy.requested_noise
    if not isinstance(noise, NoiseByFormula):
        return tuple(notes)
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
            f"PFELS's Theorem 3 is proved for ε below 2r/N = {domain:.4g} only (r of N devices take part in "
            f"a round); at {noise.epsilon:g} its claim is void (P1)"
        )
    return tuple(notes)
