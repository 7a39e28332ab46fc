"""Shamir's secret sharing (Shamir 1979) over the prime field of 2^256 + 297 elements.

The field holds every 256-bit secret; 2^256 + 297 is the smallest prime above 2^256. Any ``threshold`` shares
rebuild a secret, and fewer are independent of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from sfumato.wire.keys import Entropy

PRIME = 2**256 + 297
SHARE_BYTES = 33
_SECRET_BYTES = 32
_COEFFICIENT_BYTES = 48


def draw_coefficients(secret: bytes, threshold: int, entropy: Entropy) -> list[int]:
    """The ``threshold`` coefficients, lowest first, of a random polynomial whose value at 0 is ``secret``.

    The others are 384 random bits modulo the prime: within 2^-127 of uniform. ``entropy``: gives random
    bytes.

    Raises:
        ValueError: ``secret`` has not 32 bytes, or ``threshold`` is below 1.
    """
    if len(secret) != _SECRET_BYTES:
        raise ValueError(f"secret: got {len(secret)} bytes; must be {_SECRET_BYTES}")
    if threshold < 1:
        raise ValueError(f"threshold: got {threshold}; must be at least 1")
    drawn = entropy(_COEFFICIENT_BYTES * (threshold - 1))
    pieces = range(0, len(drawn), _COEFFICIENT_BYTES)
    return [
        int.from_bytes(secret, "big"),
        *(int.from_bytes(drawn[at : at + _COEFFICIENT_BYTES], "big") % PRIME for at in pieces),
    ]


def polynomial_values(coefficients: Sequence[int], points: Iterable[int]) -> dict[int, int]:
    """The values of a polynomial modulo the prime at ``points``, by point.

    ``coefficients``: the constant first.
    """
    backwards = coefficients[::-1]
    values = {}
    for point in points:
        value = 0
        for coefficient in backwards:
            value = (value * point + coefficient) % PRIME
        values[point] = value
    return values


def split(secret: bytes, threshold: int, points: Iterable[int], entropy: Entropy) -> dict[int, int]:
    """Split a 32-byte secret into shares (Shamir): a dict from a point to the polynomial's value there.

    Args:
        secret: what is shared.
        threshold: how many shares rebuild it.
        points: distinct, in ``1..PRIME-1``: never 0, where the value is the secret itself.
        entropy: gives random bytes for the polynomial.

    Raises:
        ValueError: a point is 0 or repeated, or there are fewer points than ``threshold``.
    """
    chosen = list(points)
    if len(set(chosen)) != len(chosen) or not all(0 < point < PRIME for point in chosen):
        raise ValueError("points: must be distinct and not 0")
    if len(chosen) < threshold:
        raise ValueError(f"points: got {len(chosen)}; must be at least the threshold, {threshold}")
    return polynomial_values(draw_coefficients(secret, threshold, entropy), chosen)


def rebuild(shares: Mapping[int, int], threshold: int) -> bytes | None:
    """The 32-byte secret from shares (point to share); ``None`` if ``threshold`` of them fit no secret.

    Raises:
        ValueError: fewer than ``threshold`` shares.
    """
    if len(shares) < threshold:
        raise ValueError(f"shares: got {len(shares)}; must be at least the threshold, {threshold}")
    points = tuple(sorted(shares)[:threshold])
    value = sum(w * shares[point] for w, point in zip(_weights(points), points, strict=True)) % PRIME
    return value.to_bytes(_SECRET_BYTES, "big") if value < 1 << 256 else None


@lru_cache(maxsize=4096)
def _weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's coefficients at 0 for ``points``, in their order, modulo the prime."""
    weights = []
    for point in points:
        above, below = 1, 1
        for other in points:
            if other != point:
                above = above * other % PRIME
                below = below * (other - point) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)
