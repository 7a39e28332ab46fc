"""What a spec of groups is refused with, read from the first row on."""

from __future__ import annotations

from sfumato.schedule.groups import HOP
from sfumato.spec.document import KIND_OF, Spec
from sfumato.spec.refusals import AT_KEY, Refusal
from sfumato.spec.training import Server
from sfumato.spec.transport import Compression


def _other_hop(spec: Spec) -> str | None:
    return next((hop for hop in spec.transport if hop != HOP), None)


def _is(kind: str, spec: Spec) -> bool:
    """Whether the protocol makes the releases of ``kind``; a variant goes by another name."""
    return KIND_OF[spec.protocol] == kind


def _clip_kind(spec: Spec) -> str | None:
    return None if spec.privacy.clip is None else spec.privacy.clip.kind


def noises_messages(spec: Spec) -> bool:
    """Whether noise is added to messages, or to their sums."""
    return spec.privacy.noise.kind != "none" and not spec.privacy.step_noise


GROUPS: tuple[Refusal[Spec], ...] = (
    Refusal(lambda spec: _other_hop(spec) is not None, lambda spec: f"transport.{_other_hop(spec)}", None,
            f"is no hop of this topology; hops are {HOP}"),
    Refusal(lambda spec: spec.transport.get(HOP) == "air", f"transport.{HOP}", "air",
            "is not in this version yet; use plain or secure-aggregation"),
    Refusal(lambda spec: spec.training.edge_every is not None, "training.edge_every", AT_KEY,
            "must be left out: groups have no edges"),
    Refusal(lambda spec: spec.training.aggregate_every is not None, "training.aggregate_every",
            lambda spec: spec.training.aggregate_every, "must be left out: groups have no edges"),
    Refusal(lambda spec: spec.training.global_update != "increment", "training.global_update", AT_KEY,
            "belongs to trees"),
    Refusal(lambda spec: spec.training.server != Server()
                         and (_is("ms-fedavg", spec) or spec.protocol != KIND_OF[spec.protocol]),
            "training.server", None,
            lambda spec: f"must be left out: {spec.protocol} makes its models in a way of its own"),
    Refusal(lambda spec: spec.training.local_steps is None and spec.training.local_epochs is None,
            "training.local_steps", None, "give local_steps or local_epochs"),
    Refusal(lambda spec: _is("ms-fedavg", spec) and spec.training.merge_every not in (None, 1),
            "training.merge_every", AT_KEY, "must be 1 or left out: ms-fedavg merges in every round"),
    Refusal(lambda spec: getattr(spec.topology, "eras", ()) and getattr(spec.radio, "distances_m", None),
            "radio.distances_m", None,
            "must be left out with topology.eras: there is one for each membership"),
    Refusal(lambda spec: _clip_kind(spec) == "step", "privacy.clip.kind", "step",
            "must be update or example: groups clip whole updates, or examples"),
    Refusal(lambda spec: _clip_kind(spec) == "example" and _is("ms-fedavg", spec),
            "privacy.clip.kind", "example", "must be left out: ms-fedavg averages models and clips nothing"),
    Refusal(lambda spec: _clip_kind(spec) == "example" and _is("dp-ogl+", spec) and noises_messages(spec),
            "privacy.noise.at", "message",
            "must be step with clip: {kind: example} in dp-ogl+: the models inside a group are un-noised, so "
            "all its workers answer to a record, each with all of its records"),
    Refusal(lambda spec: getattr(spec.privacy.noise, "placement", None) is not None
                         and noises_messages(spec) and not _is("ms-fedavg", spec),
            "privacy.noise.placement", None,
            "belongs to trees; groups place noise by trust.trusted_aggregators"),
    Refusal(lambda spec: spec.privacy.noise.kind == "formula" and not _is("ms-fedavg", spec),
            "privacy.noise", lambda spec: spec.privacy.noise.kind,
            "belongs to trees; give a multiplier, or a target"),
)  # fmt: skip
"""What groups do not have, or have not derived for them."""


def _compression(spec: Spec) -> Compression:
    assert spec.compression is not None  # who asks has seen to it
    return spec.compression


COMPRESSION: tuple[Refusal[Spec], ...] = (
    Refusal(lambda spec: _is("dp-ogl+", spec), "compression", None,
            "must be left out: dp-ogl+ noises a sum of several rounds, each sent with other coordinates"),
    Refusal(lambda spec: _is("ms-fedavg", spec), "compression", None,
            "must be left out: ms-fedavg sends whole models"),
    Refusal(lambda spec: spec.protocol != KIND_OF[spec.protocol], "compression", None,
            lambda spec: f"must be left out: {spec.protocol} makes messages of its own"),
    Refusal(lambda spec: _compression(spec).error_feedback, "compression.error_feedback", True,
            "must be false in groups: what a worker has not sent yet carries its data, and what it read in "
            "other groups, past the releases that account charges"),
    Refusal(lambda spec: _compression(spec).bits is not None and spec.transport.get(HOP, "plain") != "plain",
            "compression.bits", AT_KEY, "goes with a plain hop: secure aggregation rounds"),
)  # fmt: skip
"""Compressed messages (docs/dp-ogl.md).

Compressing a clipped update makes it no longer, and which coordinates are sent follows from a shared seed or
from the group's own model, so every release keeps its sensitivity and its place among the exposed sets.
Whatever would break one of the two is refused.
"""
