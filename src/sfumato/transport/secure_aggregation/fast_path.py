"""The sum that a session of secure aggregation gives, to the bit, without the cryptography: for the
simulator."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from sfumato.transport.errors import BelowThresholdError
from sfumato.transport.secure_aggregation.encoding import encode
from sfumato.transport.secure_aggregation.masks import RingVector, ring_type
from sfumato.transport.secure_aggregation.quantisation import QuantisationPlan
from sfumato.transport.secure_aggregation.server import Phase
from sfumato.transport.secure_aggregation.terms import ServerTrust


def fast_sum(
    plan: QuantisationPlan,
    vectors: Mapping[int, npt.NDArray[np.floating]],
    keys: Mapping[int, bytes],
    survivors: Collection[int],
) -> RingVector:
    """The survivors' quantised, noised vectors, added modulo 2^bits.

    Args:
        plan: public.
        vectors: each party's, ``[dimension]``.
        keys: each party's key for rounding and noise, 32 bytes: those it would use in the session.
        survivors: whose vectors are summed.
    """
    total: RingVector = np.zeros(plan.dimension, dtype=ring_type(plan.bits))
    for party in sorted(survivors):
        np.add(total, encode(vectors[party], plan, keys[party]), out=total)
    return total


def survivors_of(
    parties: int,
    threshold: int,
    drop: Mapping[Phase, Collection[int]],
    server: ServerTrust = "malicious",
) -> tuple[int, ...]:
    """Whose vectors a session over the complete graph adds up, by who drops out when.

    Who drops out after masking is in the sum all the same.

    Raises:
        BelowThresholdError: too few reach the end: the session aborts, as the protocol would.
    """
    alive = set(range(parties))
    masked: tuple[int, ...] = ()
    for phase in (Phase.ADVERTISE, Phase.SHARE, Phase.MASK, Phase.CONSENT, Phase.UNMASK):
        if phase is Phase.CONSENT and server != "malicious":
            continue  # there is no such phase
        alive -= set(drop.get(phase, ()))
        if len(alive) < threshold:
            raise BelowThresholdError(
                f"{phase.name.lower()}: {len(alive)} of {parties} parties are left; {threshold} needed"
            )
        if phase is Phase.MASK:
            masked = tuple(sorted(alive))
    return masked
