"""Who is trusted with raw updates, from which round on, and whether they add noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sfumato.network.tree import Tree
from sfumato.report.formatting import join_names
from sfumato.report.results.network import GroupNetwork, Network


class TrustSince(NamedTuple):
    """The parties trusted with raw updates from one round until the next entry.

    Attributes:
        from_round: the first such round, from 1.
        trusted: their titles.
    """

    from_round: int
    trusted: tuple[str, ...]


def trust_by_round(network: Network) -> tuple[TrustSince, ...]:
    """Who is trusted, by title, one entry wherever that changes; () where the network is not known."""
    found: list[TrustSince] = []
    for first, names in _names_by_round(network):
        titles = tuple(map(network.titled, names))
        if not found or found[-1].trusted != titles:
            found.append(TrustSince(first, titles))
    return tuple(found)


def noise_of_trusted(network: Network) -> str:
    """A sentence on which trusted parties add noise to what they send on; "" where nobody is ever trusted."""
    names = dict.fromkeys(name for _, trusted in _names_by_round(network) for name in trusted)
    silent = [network.titled(name) for name in names if not network.adds_noise(name)]
    if not names:
        return ""
    if not silent:
        return "They add noise to what they send on."
    if len(silent) == len(names):
        return "They add no noise to what they send on."
    return f"They add noise to what they send on, except {join_names(silent, 12)}."


def _names_by_round(network: Network) -> list[tuple[int, list[str]]]:
    """Names of trusted parties by the round (from 1) from which on they are."""
    match network.shape:
        case Tree() as tree:
            return [(first + 1, _trusted_in(one)) for first, one in network.trees or ((0, tree),)]
        case GroupNetwork() as grouped:
            return [(1, [f"master:{group}" for group in np.flatnonzero(grouped.trusted)])]
        case _:
            return []


def _trusted_in(tree: Tree) -> list[str]:
    """Names of the aggregators of a tree that are trusted."""
    return [
        tree.node_name(t, int(i)) for t, tier in enumerate(tree.tiers) for i in np.flatnonzero(tier.trusted)
    ]
