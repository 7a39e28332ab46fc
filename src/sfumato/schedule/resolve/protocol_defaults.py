"""What a spec leaves open and nobody draws: its protocol's defaults, and counts listed edge by edge.

PEDPFL is as H2FDP's paper compares with it: all devices form one untrusted cluster (section 6.2).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sfumato.errors import SpecError
from sfumato.network.tree import Tree, mark_edges
from sfumato.spec.base import BY_TRUST, WrittenPerEdge
from sfumato.spec.document import Spec
from sfumato.spec.privacy import NoNoise
from sfumato.spec.refusals import Refusals, refuse_first, tuple_as_list
from sfumato.spec.topology import TreeTopology, Trust
from sfumato.spec.training import FixedParticipation

H2FDP_STEPS, H2FDP_EDGE_EVERY = 20, 5
WITHOUT_TRUST = ("hfl-dp", "pedpfl")
"""Protocols that trust nobody; they say so where a spec trusts somebody."""


def _default_refusals(spec: Spec) -> Refusals:
    """Refusals of what the protocol cannot honour: other formulas, and in HDP aggregations within a round."""
    training, noise, is_hdp = spec.training, spec.privacy.noise, spec.protocol == "hdp"
    formula = getattr(noise, "formula", "h2fdp")
    yield (
        formula != "h2fdp" and not spec.sends_over_the_air,
        "privacy.noise.formula",
        formula,
        f"protocol {spec.protocol} uses formula h2fdp",
    )
    for period in ("edge_every", "aggregate_every"):
        value = getattr(training, period)
        yield (
            is_hdp and value is not None,
            f"training.{period}",
            tuple_as_list(value),
            "must be left out: hdp aggregates once a round",
        )
    yield (
        is_hdp and training.global_update != "increment",
        "training.global_update",
        "resend",
        "must be increment: hdp aggregates once a round",
    )


def with_protocol_defaults(spec: Spec, depth: int) -> tuple[Spec, tuple[str, ...]]:
    """``spec`` with the choices that its protocol stands for (docs/concepts.md), and notes for the user.

    Without ``local_steps`` and ``local_epochs``, ``h2fdp``, ``hfl``, ``hfl-dp`` and, with edges under the
    cloud, ``pedpfl`` get H2FDP's default. Noise or trust that the protocol does not have is dropped, with a
    note.

    Args:
        spec: with its topology written out.
        depth: tiers of nodes: 1 for a star, 2 for edges under a cloud.

    Returns:
        The spec with ``privacy``, ``trust`` and ``training`` filled in, and one sentence for each note.

    Raises:
        SpecError: a key says what the protocol cannot honour, or the length of local training is missing
            where the protocol has no default.
    """
    refuse_first(_default_refusals(spec))
    notes: list[str] = []
    privacy, trust, training = spec.privacy, spec.trust, spec.training
    if spec.protocol == "hfl" and privacy.noise.kind != "none":
        notes.append("the protocol hfl adds no noise: privacy.noise is ignored and nobody has a guarantee")
        privacy = privacy.model_copy(update={"noise": NoNoise()})
    elif privacy.noise.kind == "none" and spec.protocol != "hfl" and not spec.sends_over_the_air:
        notes.append("privacy.noise is none: nobody has a guarantee")
    if spec.protocol in WITHOUT_TRUST and trust != Trust():
        who = "edge" if spec.protocol == "hfl-dp" else "server"
        notes.append(
            f"the protocol {spec.protocol} trusts no {who}: the trust section is ignored, every device adds "
            "its own noise"
        )
        trust = Trust()
    if training.local_steps is None and training.local_epochs is None:
        if spec.protocol not in ("h2fdp", "hfl", "hfl-dp") and (spec.protocol, depth) != ("pedpfl", 2):
            raise SpecError("training.local_steps", None, "give local_steps or local_epochs")
        stated = training.aggregate_every or training.edge_every or depth != 2
        periods = {} if stated else {"edge_every": H2FDP_EDGE_EVERY}
        training = training.model_copy(update={"local_steps": H2FDP_STEPS, **periods})
        notes.append(f"local_steps is H2FDP's default, {H2FDP_STEPS}")
    if getattr(getattr(spec.topology, "zones", None), "kind", None) == "data":
        notes.append("zones: data: a device's zone tells which label it holds most of; that is not accounted")
    update = {"privacy": privacy, "trust": trust, "training": training}
    return spec.model_copy(update=update), tuple(notes)


def _single_cluster_refusals(spec: Spec) -> Refusals:
    """Refusals of what is said about single edges of a tree whose devices form one cluster."""
    zones = getattr(spec.topology, "zones", None)
    yield (spec.elects_supernodes, "topology.supernodes", "elected", "must be fixed with protocol pedpfl")
    yield (
        zones is not None,
        "topology.zones",
        zones and zones.kind,
        "must be left out with pedpfl: one cluster",
    )
    yield (
        hasattr(spec.data.partition, "edge"),
        "data.partition.edge",
        None,
        "must be left out with pedpfl: one cluster",
    )


def as_single_cluster(spec: Spec) -> tuple[Spec, tuple[str, ...]]:
    """For ``pedpfl`` on a tree: ``spec`` with all devices under one edge, and notes for the user.

    Devices keep their order and so their data, distances and fading: only who averages them changes. Local
    steps and the edge's period stay. Otherwise ``spec`` as it is, and no notes.

    Raises:
        SpecError: the tree is deeper, or something is said about single edges of it.
    """
    topology = spec.topology
    if spec.protocol != "pedpfl" or not isinstance(topology, TreeTopology):
        return spec, ()
    counts = _devices_of_edges(topology)
    if len(counts) == 1 and topology.edges is not None:
        return spec, ()
    refuse_first(_single_cluster_refusals(spec))
    one = TreeTopology(edges=1, devices_per_edge=sum(counts))
    note = f"pedpfl: the {sum(counts)} devices of {len(counts)} edges form one cluster that is not trusted"
    return spec.model_copy(update={"topology": one}), (note,)


def _devices_of_edges(topology: TreeTopology) -> list[int]:
    """The number of devices under every edge, as the topology says it.

    Raises:
        SpecError: the topology does not say it, or has no edges directly under the cloud.
    """
    if topology.edges is not None:
        each = topology.devices_per_edge
        return list(each) if isinstance(each, tuple) else [each or 1] * topology.edges
    if topology.levels is not None and len(topology.levels) == 2:
        return [topology.levels[1]] * topology.levels[0]
    if topology.sites is not None and all(site.devices is not None for site in topology.sites):
        return [site.devices or 0 for site in topology.sites]
    raise SpecError("topology", None, "must have edges directly under the cloud with protocol pedpfl")


def list_count_by_edge(value: WrittenPerEdge, tree: Tree, *, place: str) -> int | tuple[int, ...]:
    """``value`` with one count for each edge, in the tree's order; a single number if all are the same.

    Args:
        value: a number, a list, or a mapping to numbers from edges' names, or from ``trusted`` and
            ``untrusted``.
        tree: with trust marked.
        place: the key of the spec, for errors.

    Raises:
        SpecError: a list of another length, a name of no edge, or an edge without a number.
    """
    leaves, what = tree.leaf_count, tree.tiers[-1].name
    if isinstance(value, Mapping):
        value = (
            _counts_by_trust(value, tree, place)
            if set(value) <= BY_TRUST
            else _counts_by_name(value, tree, place)
        )
    if isinstance(value, int):
        return value
    if len(value) != leaves:
        raise SpecError(place, list(value), f"must list one number for each {what}: {leaves} here")
    return value[0] if len(set(value)) == 1 else tuple(value)


def _counts_by_trust(value: Mapping[str, int], tree: Tree, place: str) -> tuple[int, ...]:
    """A number for every edge, in order, from ``value`` with the keys ``trusted`` and ``untrusted``.

    Raises:
        SpecError: there are such edges and no number for them; blames ``place``.
    """
    trusted = tree.tiers[-1].trusted
    for kind, there in (("trusted", trusted.any()), ("untrusted", not trusted.all())):
        if there and kind not in value:
            raise SpecError(place, dict(value), f"must have a number for {kind} edges too")
    return tuple(value["trusted" if mark else "untrusted"] for mark in trusted.tolist())


def _counts_by_name(value: Mapping[str, int], tree: Tree, place: str) -> tuple[int, ...]:
    """A number for every edge, from ``value`` with the names of edges as keys, in the order of the edges.

    Raises:
        SpecError: a name that is no edge, an edge that is named twice or not at all; blames ``place``.
    """
    tier = tree.depth - 1
    names = {tree.node_name(tier, leaf): leaf for leaf in range(tree.leaf_count)}
    names |= {label: leaf for leaf, label in enumerate(tree.tiers[tier].labels)}
    found = np.zeros(tree.leaf_count, dtype=np.int64)
    for name, number in value.items():
        if name not in names:
            known = ", ".join(list(names)[:8]) + (", ..." if len(names) > 8 else "")
            raise SpecError(place, name, f"is no {tree.tiers[tier].name}; there are {known}")
        if found[names[name]]:
            raise SpecError(place, name, "must have one number")
        found[names[name]] = number
    if not found.all():
        missing = tree.node_name(tier, int(np.argmin(found > 0)))
        raise SpecError(place, dict(value), f"must have a number for {missing} too")
    return tuple(found.tolist())


def with_listed_counts(spec: Spec, tree: Tree) -> Spec:
    """``spec`` with every count that may differ by edge as a list; one number if all are the same.

    Raises:
        SpecError: a list or mapping that does not fit the edges, or that goes by trust which changes.
    """
    if spec.trust.from_ is not None:
        _refuse_trust_that_changes(spec, tree)
    training, update = spec.training, dict[str, object]()
    if training.edge_every is not None:
        if tree.depth != 2 and not isinstance(training.edge_every, int):
            raise SpecError("training.edge_every", None, "goes with edges under the cloud")
        update["edge_every"] = list_count_by_edge(training.edge_every, tree, place="training.edge_every")
    if training.edge_at_global is False:
        update["edge_at_global"] = None
    if isinstance(training.participation, FixedParticipation):
        count = list_count_by_edge(training.participation.count, tree, place="training.participation.count")
        update["participation"] = FixedParticipation(count=count)
    return spec.model_copy(update={"training": training.model_copy(update=update)}) if update else spec


def _refuse_trust_that_changes(spec: Spec, tree: Tree) -> None:
    """Raise a `SpecError` if counts are given by trust, and trust changes: a count holds for all rounds."""
    later = [mark_edges(tree, edges) for edges in (spec.trust.from_ or {}).values()]
    if all((marks == tree.tiers[-1].trusted).all() for marks in later):
        return
    training, counts = spec.training, dict[str, object]()
    counts["training.edge_every"] = training.edge_every
    if isinstance(training.participation, FixedParticipation):
        counts["training.participation.count"] = training.participation.count
    for place, value in counts.items():
        if isinstance(value, Mapping) and set(value) <= BY_TRUST:
            allowed = "must have a number for each edge: which edges are trusted changes with trust.from"
            raise SpecError(place, dict(value), allowed)
