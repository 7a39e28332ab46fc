"""How much of a message compression lets through: the part that needs no tensors."""

from __future__ import annotations

from sfumato.spec.transport import Compression

FLOAT_BITS = 32


def kept_coordinates(compression: Compression | None, parameters: int) -> int:
    """k: how many of the model's coordinates a message holds; at least one."""
    if compression is None:
        return parameters
    return max(1, round(compression.ratio * parameters))


def message_bytes(compression: Compression | None, parameters: int) -> int:
    """Bytes of one device's message.

    The coordinates are public (a shared seed, or the released model), so only their values are sent:
    32-bit floats, or so many bits each and one float that scales them (QSGD).
    """
    kept = kept_coordinates(compression, parameters)
    if compression is None or compression.bits is None:
        return kept * FLOAT_BITS // 8
    return -(-kept * compression.bits // 8) + FLOAT_BITS // 8


def sent_bits(compression: Compression | None, parameters: int, float_bits: int) -> int:
    """Bits of one device's message on a radio that sends a float in ``float_bits``."""
    if compression is None or compression.bits is None:
        return kept_coordinates(compression, parameters) * float_bits
    return 8 * message_bytes(compression, parameters)
