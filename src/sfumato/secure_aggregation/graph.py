"""Who exchanges masks and shares with whom: the random Harary graph of Bell et al. 2020, section 3.

Parties sit on a circle in random order, each joined to the ``degree / 2`` nearest on either side; with
``degree = parties - 1`` the graph is complete and the protocol that of Bonawitz et al. 2017.

Three things can go wrong with a sparse one, for colluders and dropouts that were fixed without sight of the
order (seed it with public randomness: an election's, or a hash of data that the server cannot choose):

  exposure   ``share_threshold`` of a party's neighbours collude: they know its secrets. A hypergeometric
             tail times the number of parties.
  isolation  colluders and dropouts cut the honest survivors into parts: the server learns each part's sum.
             An edge jumps over fewer than degree / 2 places, so survivors are cut only where two runs of
             degree / 2 neighbouring places are empty. There are at most n(n - 1)/2 pairs of runs, and a
             pair is empty with probability C(n - degree, g - degree) / C(n, g) if g places are; never if
             g < degree.
  failure    fewer than ``share_threshold`` of a party's neighbours survive: no result.

Whoever may choose dropouts with sight of the graph cuts a sparse one at will: `threats`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfumato.wire.key_stream import KeyStream
from sfumato.wire.keys import digest

SECURITY_BITS = 40.0


def neighbours(parties: int, degree: int, seed: bytes) -> list[tuple[int, ...]]:
    """Each party's neighbours in a random regular graph, ascending; the same for all who know ``seed``.

    Args:
        parties: enrolled.
        degree: neighbours of each party.
        seed: bytes of any length.

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
    colluders: int,
    dropouts: int,
    security_bits: float = SECURITY_BITS,
    correctness_bits: float = 30,
) -> Neighbourhood:
    """The graph of smallest degree that risks no more than ``security_bits`` and ``correctness_bits``.

    Exposure and isolation add up to 2^-security_bits at most, and failure is at most 2^-correctness_bits.

    40 and 30 bits are the figures of Bell et al. 2020. They bound the probability that a random graph is bad,
    which happens at most once a session; no amount of computation raises it.

    Args:
        parties: enrolled.
        colluders: parties that collude with the server, all of them following the protocol.
        dropouts: parties that may drop out, at whatever phase.
        security_bits: for exposure and isolation.
        correctness_bits: for failure.

    Raises:
        ValueError: even the complete graph does not suffice.
    """
    for name, count in (("colluders", colluders), ("dropouts", dropouts)):
        if not 0 <= count < parties:
            raise ValueError(f"{name}: got {count}; must be in 0..{parties - 1}")
    for degree in [*range(2, parties - 1, 2), parties - 1]:
        for threshold in range(degree // 2 + 1, degree + 1):
            risk = risks_of_graph(parties, degree, threshold, colluders=colluders, dropouts=dropouts)
            if risk.failure > 2.0**-correctness_bits:
                break  # grows with the threshold
            if risk.exposure + risk.isolation <= 2.0**-security_bits:
                return risk
    raise ValueError(
        f"{parties} parties cannot tolerate that {colluders} of them collude and {dropouts} drop out"
    )


def risks_of_graph(
    parties: int, degree: int, share_threshold: int, *, colluders: int, dropouts: int
) -> Neighbourhood:
    """Upper bounds of the risks of a graph in which each party has ``degree`` neighbours (see the module).

    Args:
        parties: enrolled.
        degree: neighbours of a party; ``parties - 1``: the complete graph.
        share_threshold: shares that rebuild a secret.
        colluders: parties that collude with the server.
        dropouts: parties that may drop out.
    """
    others = parties - 1
    if degree == others:
        exposure, isolation = float(colluders >= share_threshold), 0.0
        failure = float(parties - dropouts < share_threshold)
    else:
        from scipy.stats import hypergeom

        exposure = parties * float(hypergeom.sf(share_threshold - 1, others, colluders, degree))
        isolation = _isolation(parties, degree, min(parties, colluders + dropouts))
        failure = parties * float(hypergeom.cdf(share_threshold - 1, others, others - dropouts, degree))
    return Neighbourhood(degree, share_threshold, min(exposure, 1), isolation, min(failure, 1))


def _isolation(parties: int, degree: int, gone: int) -> float:
    """A bound on the probability that ``gone`` parties cut the others into parts (see the module).

    ``degree``: neighbours of each of the ``parties``.
    """
    pairs = math.comb(parties, 2)
    empty = (
        math.prod((gone - place) / (parties - place) for place in range(degree)) if gone >= degree else 0.0
    )
    return min(1.0, pairs * empty)
