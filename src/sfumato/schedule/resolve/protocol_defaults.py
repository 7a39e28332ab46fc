"""What a protocol's name settles: presets of the tiered protocol, and what they ignore, said aloud."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.errors import SpecError
from sfumato.spec.document import Spec
from sfumato.spec.privacy import NoNoise
from sfumato.spec.topology import Tree, Trust

H2FDP_STEPS, H2FDP_EDGE_EVERY = 20, 5
WITHOUT_TRUST = ("hfl-dp", "pedpfl")
"""Protocols that trust nobody; they say so where a spec trusts somebody."""


@dataclass(frozen=True)
class Preset:
    """A spec with its protocol's choices made, and what the user should hear about them."""

    spec: Spec
    notes: tuple[str, ...]


def apply_preset(spec: Spec, depth: int) -> Preset:
    """Make the choices that ``spec.protocol`` stands for (docs/concepts.md), on a tree of ``depth`` tiers.

    Raises:
        SpecError: a section that the protocol cannot honour is there.
    """
    _refuse_what_is_not_there(spec)
    if spec.protocol == "hdp":
        _check_hdp(spec)
    notes: list[str] = []
    privacy, trust, training = spec.privacy, spec.trust, spec.training
    if spec.protocol == "hfl" and privacy.noise.kind != "none":
        notes.append("hfl adds no noise: privacy.noise is ignored and nobody has a guarantee")
        privacy = privacy.model_copy(update={"noise": NoNoise()})
    elif privacy.noise.kind == "none" and spec.protocol != "hfl" and "air" not in spec.transport.values():
        notes.append("privacy.noise is none: nobody has a guarantee")
    if spec.protocol in WITHOUT_TRUST and trust != Trust():
        who = "edge" if spec.protocol == "hfl-dp" else "server"
        notes.append(
            f"{spec.protocol} trusts no {who}: the trust section is ignored, every device adds its own noise"
        )
        trust = Trust()
    if training.local_steps is None and training.local_epochs is None:
        if spec.protocol not in ("h2fdp", "hfl", "hfl-dp") and (spec.protocol, depth) != ("pedpfl", 2):
            raise SpecError("training.local_steps", None, "give local_steps or local_epochs")
        stated = training.aggregate_every or training.edge_every or depth != 2
        periods = {} if stated else {"edge_every": H2FDP_EDGE_EVERY}
        training = training.model_copy(update={"local_steps": H2FDP_STEPS, **periods})
        notes.append(f"local_steps is H2FDP's default, {H2FDP_STEPS}")
    if (
        isinstance(spec.topology, Tree)
        and spec.topology.zones is not None
        and spec.topology.zones.kind == "data"
    ):
        notes.append("zones: data: a device's zone tells which label it holds most of; that is not accounted")
    return Preset(
        spec.model_copy(update={"privacy": privacy, "trust": trust, "training": training}), tuple(notes)
    )


def _refuse_what_is_not_there(spec: Spec) -> None:
    noise = spec.privacy.noise
    if noise.kind == "formula" and noise.formula != "h2fdp" and "air" not in spec.transport.values():
        raise SpecError(
            "privacy.noise.formula", noise.formula, f"protocol {spec.protocol} uses formula h2fdp"
        )


def _check_hdp(spec: Spec) -> None:
    """HDP aggregates once a round, all the way up."""
    for key in ("edge_every", "aggregate_every"):
        value = getattr(spec.training, key)
        if value is not None:
            raise SpecError(f"training.{key}", value, "must be left out: hdp aggregates once a round")
    if spec.training.global_update != "increment":
        raise SpecError("training.global_update", "resend", "must be increment: hdp aggregates once a round")
