"""Who is trusted with raw updates: the spec's ``trust`` section, drawn and checked."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from sfumato.errors import SpecError
from sfumato.network.moves import edges_trusted
from sfumato.network.tree import Tree
from sfumato.random import Stream, generator
from sfumato.spec.topology import Trust


def with_trust(tree: Tree, trust: Trust, *, seed: int) -> Tree:
    """``tree`` with its trusted aggregators marked.

    A fraction of ``trusted_edges`` is rounded half up and drawn without replacement from the stream
    TRUST of ``seed``; parties that the topology's own file trusts stay trusted.

    Raises:
        SpecError: a trusted party does not exist.
    """
    marks = [tier.trusted.copy() for tier in tree.tiers]
    marks[0][0] |= trust.cloud
    if trust.from_ is not None:
        _check_changes(tree)
        marks[-1] = edges_trusted(tree, trust.from_[0])
    elif tree.depth > 1:
        marks[-1][_edges(tree, trust, seed)] = True
    for name in trust.trusted:
        tier, index = tree.find_node(name, place="trust.trusted")
        marks[tier][index] = True
    tiers = tuple(replace(tier, trusted=mark) for tier, mark in zip(tree.tiers, marks, strict=True))
    return replace(tree, tiers=tiers)


def _check_changes(tree: Tree) -> None:
    """Refuse trust that changes anywhere but at edges under the cloud, all of them in ``trust.from``.

    Raises:
        SpecError: another tree, or one whose sites say who is trusted.
    """
    if tree.depth != 2:
        raise SpecError("trust.from", None, "goes with edges under the cloud")
    if tree.tiers[1].trusted.any():
        raise SpecError("trust.from", None, "says who is trusted; leave trusted out of topology's sites")


def as_written(tree: Tree, trust: Trust) -> Trust:
    """A ``trust`` section that names every trusted party of ``tree``: what a resolved spec says."""
    if trust.from_ is not None:
        return trust.model_copy(update={"cloud": bool(tree.tiers[0].trusted[0])})
    if tree.depth == 2:
        edges = tuple(int(i) for i in np.flatnonzero(tree.tiers[1].trusted))
        return Trust(cloud=bool(tree.tiers[0].trusted[0]), trusted_edges=edges)
    names = tuple(
        tree.node_name(depth, int(i))
        for depth, tier in enumerate(tree.tiers[1:], start=1)
        for i in np.flatnonzero(tier.trusted)
    )
    return Trust(cloud=bool(tree.tiers[0].trusted[0]), trusted=names)


def _edges(tree: Tree, trust: Trust, seed: int) -> list[int]:
    edges = tree.tiers[-1].size
    if isinstance(trust.trusted_edges, tuple):
        for edge in trust.trusted_edges:
            if edge >= edges:
                raise SpecError("trust.trusted_edges", edge, f"there are edges 0 to {edges - 1}")
        return list(trust.trusted_edges)
    count = math.floor(trust.trusted_edges * edges + 0.5)
    drawn = generator(seed, Stream.TRUST).choice(edges, size=count, replace=False)
    return sorted(int(edge) for edge in drawn)
