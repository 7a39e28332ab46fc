"""Entropy for parties in tests: the same bytes from the same seed."""

import hashlib

from sfumato.wire.keys import Entropy


def repeatable(seed: bytes) -> Entropy:
    """SHA-256 of seed and counter: whoever knows ``seed`` knows every secret."""
    counter = 0

    def draw(size: int) -> bytes:
        nonlocal counter
        out = b""
        while len(out) < size:
            out += hashlib.sha256(b"sfumato/1/repeatable" + counter.to_bytes(8, "big") + seed).digest()
            counter += 1
        return out[:size]

    return draw
