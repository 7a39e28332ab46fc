"""The sum that a session of secure aggregation gives, to the bit, without its messages: for the simulator."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from sfumato.secure_aggregation.masks import RingVector
from sfumato.secure_aggregation.server import Phase, phases_of
from sfumato.secure_aggregation.threats import ThreatModel
from sfumato.wire.errors import BelowThresholdError


def fast_sum(vectors: Mapping[int, RingVector], survivors: Collection[int]) -> RingVector:
    """The survivors' vectors added modulo 2^bits, ``[dimension]``: what a session with masks would give.

    Args:
        vectors: each party's, as it would mask it, ``[dimension]``.
        survivors: whose vectors are summed; at least one.
    """
    first, *others = sorted(survivors)
    total = vectors[first].copy()
    for party in others:
        np.add(total, vectors[party], out=total)
    return total


def survivors_of(
    parties: int,
    threshold: int,
    drop: Mapping[Phase, Collection[int]],
    threat_model: ThreatModel = "malicious",
) -> tuple[int, ...]:
    """The parties, ascending, whose vectors a session over the complete graph would sum.

    A party that drops out after it has sent its masked vector is in the sum all the same.

    Args:
        parties: enrolled.
        threshold: fewest parties that must be left after each phase.
        drop: phase to the parties that drop out before their message of it.
        threat_model: with a malicious server there is a phase of consent.

    Raises:
        BelowThresholdError: too few are left: the session aborts, as the protocol would.
    """
    alive = set(range(parties))
    masked: tuple[int, ...] = ()
    for phase in phases_of(threat_model):
        alive -= set(drop.get(phase, ()))
        if len(alive) < threshold:
            raise BelowThresholdError(
                f"{phase.name.lower()}: {len(alive)} of {parties} parties are left; {threshold} needed"
            )
        if phase is Phase.MASK:
            masked = tuple(sorted(alive))
    return masked
