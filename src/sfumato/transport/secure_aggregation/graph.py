"""Who exchanges masks and shares with whom: the random Harary graph of Bell et al. 2020, section 3.

Parties sit on a circle in random order, each joined to the ``degree / 2`` nearest on either side; with
``degree = parties - 1`` the graph is complete and the protocol that of Bonawitz et al. 2017.

Three things can go wrong, each over the random order only, for colluders and dropouts fixed without sight of
it (seed the order with public randomness: an election's, or a hash of data the server cannot choose):
  exposure   ``share_threshold`` of a party's neighbours collude: they know its secrets;
  isolation  colluders and dropouts cut the honest survivors into parts: the server learns each part's sum;
  failure    fewer than ``share_threshold`` of a party's neighbours survive: no result.
A malicious server, which may claim dropouts with sight of the graph, is outside the second bound: towards it
the complete graph is the safe choice (a zone's size), the sparse one a choice against honest-but-curious
ones. The first and third are hypergeometric tails times the number of parties; the second needs a run of
``degree / 2`` neighbouring colluders or dropouts on the circle, at most ``parties · (colluding +
dropping)^(degree/2)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.transport.secure_aggregation.keys import digest
from sfumato.transport.secure_aggregation.masks import KeyStream


def neighbours(parties: int, degree: int, seed: bytes) -> list[tuple[int, ...]]:
    """Each party's neighbours, ascending; the same for all who know ``seed``.

    Raises:
        ValueError: ``degree`` is not an even number below ``parties - 1``, nor ``parties - 1``.
    """
    if degree == parties - 1 and degree > 0:
        return [tuple(j for j in range(parties) if j != i) for i in range(parties)]
    if not 0 < degree < parties - 1 or degree % 2:
        raise ValueError(f"degree: got {degree}; must be even and below {parties - 1}, or {parties - 1}")
    circle = KeyStream(digest(b"graph", seed)).permutation(range(parties))
    reach = [step for step in range(-degree // 2, degree // 2 + 1) if step]
    found: list[tuple[int, ...]] = [()] * parties
    for place, party in enumerate(circle):
        found[party] = tuple(sorted(circle[(place + step) % parties] for step in reach))
    return found


@dataclass(frozen=True)
class Neighbourhood:
    """A degree with its threshold, and what they risk.

    Attributes:
        degree: neighbours of each party.
        share_threshold: shares that rebuild a secret, of the ``degree + 1`` handed out.
        exposure: probability that some honest party's secrets are known to the colluders.
        isolation: probability that the honest survivors fall apart.
        failure: probability that some secret cannot be rebuilt.
    """

    degree: int
    share_threshold: int
    exposure: float
    isolation: float
    failure: float


def choose_neighbourhood(
    parties: int,
    *,
    colluding: float,
    dropping: float,
    malicious: bool = True,
    security_bits: float = 40,
    correctness_bits: float = 30,
) -> Neighbourhood:
    """The smallest degree for which exposure + isolation ≤ 2^-security_bits, failure ≤ 2^-correctness_bits.

    40 and 30 bits are the figures of Bell et al. 2020: chances of a graph, met
    once a session, not of a computation. With a malicious server and x colluding holders one secret of each
    party stays hidden iff 2·share_threshold > degree + 1 + x; otherwise iff share_threshold > x.

    Args:
        parties: enrolled.
        colluding: share of parties that collude (with the server).
        dropping: share of parties that may drop out, at whatever phase.
        malicious: whether the server may deviate (show different survivors to different parties).
        security_bits: for exposure and isolation.
        correctness_bits: for failure.

    Raises:
        ValueError: not even the complete graph will do.
    """
    for name, share in (("colluding", colluding), ("dropping", dropping)):
        if not 0 <= share < 1:
            raise ValueError(f"{name}: got {share}; must be in [0, 1)")
    for degree in [*_degrees(parties), parties - 1]:
        for threshold in range(degree // 2 + 1, degree + 1):
            risk = assess(
                parties, degree, threshold, colluding=colluding, dropping=dropping, malicious=malicious
            )
            if risk.failure > 2.0**-correctness_bits:
                break  # grows with the threshold
            if risk.exposure + risk.isolation <= 2.0**-security_bits:
                return risk
    raise ValueError(
        f"{parties} parties cannot tolerate a share of {colluding:g} colluding and {dropping:g} dropping out"
    )


def assess(
    parties: int,
    degree: int,
    share_threshold: int,
    *,
    colluding: float,
    dropping: float,
    malicious: bool = True,
) -> Neighbourhood:
    """What a degree and a threshold risk (the module's bounds); arguments as of `choose_neighbourhood`."""
    from scipy.stats import hypergeom

    bad, gone = (math.ceil(parties * share - 1e-9) for share in (colluding, dropping))
    others = parties - 1
    tolerated = 2 * share_threshold - degree - 2 if malicious else share_threshold - 1
    if degree == others:
        exposure, isolation = float(bad > tolerated), 0.0
        failure = float(parties - gone < share_threshold)
    else:
        exposure = parties * float(hypergeom.sf(tolerated, others, bad, degree))
        isolation = parties * (colluding + dropping) ** (degree // 2)
        failure = parties * float(hypergeom.cdf(share_threshold - 1, others, others - gone, degree))
    return Neighbourhood(degree, share_threshold, min(exposure, 1), min(isolation, 1), min(failure, 1))


def _degrees(parties: int) -> Sequence[int]:
    return range(2, parties - 1, 2)
