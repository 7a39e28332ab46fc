"""How many bytes a session sends, from the encodings of its messages."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.secure_aggregation.messages import BOX_BYTES
from sfumato.secure_aggregation.shares import SHARE_BYTES
from sfumato.secure_aggregation.threats import ThreatModel
from sfumato.wire.frames import OVERHEAD
from sfumato.wire.keys import KEY_BYTES

_COUNT = 4
_ADVERTISEMENT = OVERHEAD + 3 * KEY_BYTES
_DIGEST = 32


@dataclass(frozen=True)
class SessionBytes:
    """Bytes of one party, all rounds together.

    Attributes:
        survivor_up: by a party that stays to the end.
        survivor_down: to it.
        dropped_up: by a party that falls silent before it sends its masked vector.
        dropped_down: to it.
    """

    survivor_up: int
    survivor_down: int
    dropped_up: int
    dropped_down: int


def session_bytes(
    *,
    survivors: int,
    length: int,
    degree: int,
    threshold: int,
    bits: int = 32,
    threat_model: ThreatModel = "malicious",
) -> SessionBytes:
    """Bytes that a party sends and receives in a session, if it survives and if it drops out.

    A party that drops out falls silent between sharing keys and masking.

    Args:
        survivors: how many parties survive.
        length: of the vectors.
        degree: neighbours of a party.
        threshold: fewest survivors whose sum may be learnt.
        bits: of the ring.
        threat_model: of the session.
    """
    boxes = OVERHEAD + _COUNT + degree * (_COUNT + BOX_BYTES)
    roster = OVERHEAD + _COUNT + degree * (_COUNT + _ADVERTISEMENT)
    masked = OVERHEAD + length * bits // 8
    listed = OVERHEAD + _COUNT + survivors * _COUNT
    reveal = OVERHEAD + 2 * _COUNT + (degree + 1) * (_COUNT + SHARE_BYTES)
    consent = OVERHEAD + _DIGEST
    consents = OVERHEAD + _COUNT + threshold * (_COUNT + consent)
    wary = threat_model == "malicious"
    return SessionBytes(
        survivor_up=_ADVERTISEMENT + boxes + masked + reveal + wary * consent,
        survivor_down=roster + boxes + listed + wary * consents,
        dropped_up=_ADVERTISEMENT + boxes,
        dropped_down=roster,
    )
