"""What a spec of groups is refused with."""

from __future__ import annotations

from sfumato.schedule.groups import HOP
from sfumato.spec.document import KIND_OF, Spec
from sfumato.spec.refusals import Refusals, tuple_as_list
from sfumato.spec.training import Server

# fmt: off


def _makes_releases_of(kind: str, spec: Spec) -> bool:
    """Whether the spec's protocol makes the releases of ``kind``, as that protocol or a variant of it."""
    return KIND_OF[spec.protocol] == kind


def _is_variant(spec: Spec) -> bool:
    """Whether the protocol goes by another name than that of the releases it makes."""
    return KIND_OF[spec.protocol] != spec.protocol


def noises_messages(spec: Spec) -> bool:
    """Whether the spec adds noise to messages or their sums, not only to local steps."""
    return spec.privacy.noise.kind != "none" and not spec.privacy.step_noise


def group_refusals(spec: Spec) -> Refusals:
    """Rows (applies, key, value, allowed) of settings that groups lack, or that nothing is derived for.

    If ``applies`` of a row is true, the spec is refused with an error about ``key``.
    """
    training, noise, protocol = spec.training, spec.privacy.noise, spec.protocol
    clip_kind = None if spec.privacy.clip is None else spec.privacy.clip.kind
    is_ms_fedavg, is_dp_ogl_plus = _makes_releases_of("ms-fedavg", spec), _makes_releases_of("dp-ogl+", spec)
    other_hop = next((hop for hop in spec.transport if hop != HOP), None)
    yield (other_hop is not None, f"transport.{other_hop}", None,
           f"is no hop of this topology; hops are {HOP}")
    yield (spec.transport.get(HOP) == "air", f"transport.{HOP}", "air",
           "is not in this version yet; use plain or secure-aggregation")
    yield (training.edge_every is not None, "training.edge_every", tuple_as_list(training.edge_every),
           "must be left out: groups have no edges")
    yield (training.aggregate_every is not None, "training.aggregate_every", training.aggregate_every,
           "must be left out: groups have no edges")
    yield (training.global_update != "increment", "training.global_update", training.global_update,
           "belongs to trees")
    yield (training.server != Server() and (is_ms_fedavg or _is_variant(spec)), "training.server", None,
           f"must be left out: {protocol} makes its models in a way of its own")
    yield (training.local_steps is None and training.local_epochs is None, "training.local_steps", None,
           "give local_steps or local_epochs")
    yield (is_ms_fedavg and training.merge_every not in (None, 1), "training.merge_every",
           training.merge_every, "must be 1 or left out: ms-fedavg merges in every round")
    yield (getattr(spec.topology, "eras", ()) and getattr(spec.radio, "distances_m", None),
           "radio.distances_m", None,
           "must be left out with topology.eras: there is one for each membership")
    yield (clip_kind == "step", "privacy.clip.kind", "step",
           "must be update or example: groups clip whole updates, or examples")
    yield (clip_kind == "example" and is_ms_fedavg, "privacy.clip.kind", "example",
           "must be left out: ms-fedavg averages models and clips nothing")
    yield (clip_kind == "example" and is_dp_ogl_plus and noises_messages(spec),
           "privacy.noise.at", "message",
           "must be step with clip: {kind: example} in dp-ogl+: the models inside a group are un-noised, so "
           "all its workers answer to a record, each with all of its records")
    yield (noise.kind == "formula" and not is_ms_fedavg, "privacy.noise", noise.kind,
           "belongs to trees; give a multiplier, or a target")


def group_compression_refusals(spec: Spec) -> Refusals:
    """Refusals of keys that cannot be used together with ``compression`` in groups.

    Every compression that is left over meets two conditions, on which the accounting rests (docs/dp-ogl.md):
    the norm of a compressed update is at most that of the clipped one, so that sensitivities stay; and which
    coordinates are sent follows from a shared seed or from the group's own model, so that exposed sets stay.

    Yields:
        Rows (applies, key, value, allowed); where ``applies`` is true the spec must be refused. Nothing where
        the spec has no ``compression``.
    """
    if spec.compression is None:
        return
    bits = spec.compression.bits
    yield (_makes_releases_of("dp-ogl+", spec), "compression", None,
           "must be left out: dp-ogl+ noises a sum of several rounds, each sent with other coordinates")
    yield (_makes_releases_of("ms-fedavg", spec), "compression", None,
           "must be left out: ms-fedavg sends whole models")
    yield (_is_variant(spec), "compression", None,
           f"must be left out: {spec.protocol} makes messages of its own")
    yield (spec.compression.error_feedback, "compression.error_feedback", True,
           "must be false in groups: what a worker has not sent yet carries its data, and what it read in "
           "other groups, past the releases that account charges")
    yield (bits is not None and spec.transport.get(HOP, "plain") != "plain", "compression.bits", bits,
           "goes with a plain hop: secure aggregation rounds")
