"""Who is trusted with raw updates, from which round on, and whether they add noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sfumato.report.formatting import join_names
from sfumato.report.results.network import Network


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
    for first, names in network.trusted_by_round:
        titles = tuple(map(network.titled, names))
        if not found or found[-1].trusted != titles:
            found.append(TrustSince(first, titles))
    return tuple(found)


def noise_of_trusted(network: Network) -> str:
    """A sentence on which trusted parties add noise to what they send on.

    "" where nobody is ever trusted, or the network is not known.
    """
    names = dict.fromkeys(name for _, trusted in network.trusted_by_round for name in trusted)
    silent = [network.titled(name) for name in names if not network.adds_noise(name)]
    if not names:
        return ""
    if not silent:
        return "They add noise to what they send on."
    if len(silent) == len(names):
        return "They add no noise to what they send on."
    return f"They add noise to what they send on, except {join_names(silent, 12)}."


def changes_between_rounds(spec: Mapping[str, Any], trust: Sequence[TrustSince]) -> bool:
    """Whether it changes during the training who is under whom, or who is trusted.

    ``spec``: resolved; ``trust``: as of `trust_by_round`.
    """
    return any(spec["topology"].get(key) for key in ("moves", "eras")) or len(trust) > 1
