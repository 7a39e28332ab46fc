"""Which devices are elected supernode of their zone: the protocol's own lottery, on nonces from the seed."""

from __future__ import annotations

from sfumato.election.lottery import beacon, draw_nonces, succession
from sfumato.network.tree import Tree
from sfumato.random import Stream, generator
from sfumato.wire.keys import digest


def succession_of(seed: int, number: int, tree: Tree, zone: int) -> tuple[int, ...]:
    """All devices of ``zone`` in the order in which they hold office in round ``number``.

    Every device commits to a nonce of its own; in a simulation all come from the stream ELECTION of ``seed``.
    """
    first, last = int(tree.first_device[zone]), int(tree.first_device[zone + 1])
    nonces = draw_nonces(last - first, generator(seed, Stream.ELECTION, number, zone).bytes)
    session = digest(b"election", *(_bytes(value) for value in (seed, number, zone)))
    return tuple(first + place for place in succession(beacon(session, nonces), nonces))


def _bytes(value: int) -> bytes:
    """Eight bytes, or as many as it takes: an audit's own seeds have 128 bits."""
    return value.to_bytes(max(8, -(-value.bit_length() // 8)), "big")
