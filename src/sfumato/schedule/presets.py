"""What a protocol's name settles: presets of the tiered protocol, and what they ignore, said aloud."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.errors import SpecError
from sfumato.spec.document import TIERED_PROTOCOLS, Spec
from sfumato.spec.privacy import NoNoise
from sfumato.spec.topology import Trust

H2FDP_STEPS, H2FDP_EDGE_EVERY = 20, 5


@dataclass(frozen=True)
class Preset:
    """A spec with its protocol's choices made, and what the user should hear about them."""

    spec: Spec
    notes: tuple[str, ...]


def apply_preset(spec: Spec) -> Preset:
    """Make the choices that ``spec.protocol`` stands for (docs/concepts.md).

    Raises:
        SpecError: this version does not run the protocol, or a section it cannot honour is there.
    """
    if spec.protocol not in TIERED_PROTOCOLS:
        raise SpecError(
            "protocol", spec.protocol, f"is not in this version yet; it runs {', '.join(TIERED_PROTOCOLS)}"
        )
    _refuse_what_is_not_there(spec)
    notes: list[str] = []
    privacy, trust, training = spec.privacy, spec.trust, spec.training
    if spec.protocol == "hfl" and privacy.noise.kind != "none":
        notes.append("hfl adds no noise: privacy.noise is ignored and nobody has a guarantee")
        privacy = privacy.model_copy(update={"noise": NoNoise()})
    elif privacy.noise.kind == "none" and spec.protocol != "hfl":
        notes.append("privacy.noise is none: nobody has a guarantee")
    if spec.protocol in ("hfl-dp", "pedpfl") and trust != Trust():
        who = "edge" if spec.protocol == "hfl-dp" else "server"
        notes.append(
            f"{spec.protocol} trusts no {who}: the trust section is ignored, every device adds its own noise"
        )
        trust = Trust()
    if training.steps_per_round is None and training.local_steps is None and training.local_epochs is None:
        if spec.protocol not in ("h2fdp", "hfl", "hfl-dp"):
            raise SpecError("training.steps_per_round", None, "give steps_per_round or local_epochs")
        periods = {} if training.aggregate_every or training.edge_every else {"edge_every": H2FDP_EDGE_EVERY}
        training = training.model_copy(update={"steps_per_round": H2FDP_STEPS, **periods})
        notes.append(f"steps_per_round is H2FDP's default, {H2FDP_STEPS}")
    return Preset(
        spec.model_copy(update={"privacy": privacy, "trust": trust, "training": training}), tuple(notes)
    )


def _refuse_what_is_not_there(spec: Spec) -> None:
    for hop, transport in spec.transport.items():
        if transport != "plain":
            raise SpecError(f"transport.{hop}", transport, "is not in this version yet; use plain")
    for name in ("radio", "compression"):
        if getattr(spec, name) is not None:
            raise SpecError(name, None, f"is not in this version yet; leave {name} out")
    noise = spec.privacy.noise
    if noise.kind == "multiplier" and noise.placement is not None:
        raise SpecError("privacy.noise.placement", None, "belongs to protocol hdp, not in this version yet")
    if noise.kind == "formula" and noise.formula != "h2fdp":
        raise SpecError(
            "privacy.noise.formula", noise.formula, f"protocol {spec.protocol} uses formula h2fdp"
        )
    if getattr(spec.topology, "supernodes", "fixed") != "fixed":
        raise SpecError("topology.supernodes", "elected", "belongs to protocol hdp, not in this version yet")
