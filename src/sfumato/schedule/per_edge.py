"""Counts that differ from edge to edge, as a user wrote them and as a resolved spec lists them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sfumato.errors import SpecError
from sfumato.network.tree import Tree, edges_trusted
from sfumato.spec.base import BY_TRUST, WrittenPerEdge
from sfumato.spec.document import Spec
from sfumato.spec.training import FixedParticipation


def per_edge(value: WrittenPerEdge, edges: int) -> tuple[int, ...]:
    """One number for each edge, of a number for all or a list."""
    assert not isinstance(value, Mapping)  # `listed` came before
    return (value,) * edges if isinstance(value, int) else value


def listed(value: WrittenPerEdge, tree: Tree, *, place: str) -> int | tuple[int, ...]:
    """``value`` with a number for each edge: the number itself where all edges have the same.

    Args:
        value: as written.
        tree: with trust marked.
        place: the key.

    Raises:
        SpecError: a list of another length, a name of no edge, or an edge without a number.
    """
    leaves, what = tree.leaf_count, tree.tiers[-1].name
    if isinstance(value, Mapping):
        value = _by_trust(value, tree, place) if set(value) <= BY_TRUST else _by_name(value, tree, place)
    if isinstance(value, int):
        return value
    if len(value) != leaves:
        raise SpecError(place, list(value), f"must list one number for each {what}: {leaves} here")
    return value[0] if len(set(value)) == 1 else tuple(value)


def _by_trust(value: Mapping[str, int], tree: Tree, place: str) -> tuple[int, ...]:
    trusted = tree.tiers[-1].trusted
    for kind, there in (("trusted", trusted.any()), ("untrusted", not trusted.all())):
        if there and kind not in value:
            raise SpecError(place, dict(value), f"must have a number for {kind} edges too")
    return tuple(value["trusted" if mark else "untrusted"] for mark in trusted.tolist())


def _by_name(value: Mapping[str, int], tree: Tree, place: str) -> tuple[int, ...]:
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
    """``spec`` with every count that may differ from edge to edge listed; one number where all are the same.

    Raises:
        SpecError: what is written fits no edges, or goes by trust that changes.
    """
    _refuse_trust_that_changes(spec, tree)
    training, update = spec.training, dict[str, object]()
    if training.edge_every is not None:
        if tree.depth != 2 and not isinstance(training.edge_every, int):
            raise SpecError("training.edge_every", None, "goes with edges under the cloud")
        update["edge_every"] = listed(training.edge_every, tree, place="training.edge_every")
    if training.edge_at_global is False:
        update["edge_at_global"] = None
    if isinstance(training.participation, FixedParticipation):
        count = listed(training.participation.count, tree, place="training.participation.count")
        update["participation"] = FixedParticipation(count=count)
    return spec.model_copy(update={"training": training.model_copy(update=update)}) if update else spec


def _refuse_trust_that_changes(spec: Spec, tree: Tree) -> None:
    """Refuse counts by trust where trust changes: a count is an edge's own for all rounds."""
    later = [edges_trusted(tree, edges) for edges in (spec.trust.from_ or {}).values()]
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
