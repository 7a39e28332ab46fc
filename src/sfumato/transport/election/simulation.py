"""Many elections without messages: the same result from the same nonces, by the same code; and the unsafe
rule.

Colluders are assumed to do their worst: speak last, knowing all nonces.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sfumato.transport.election.lottery import beacon, succession
from sfumato.transport.secure_aggregation.keys import Entropy


def draw_nonces(parties: int, entropy: Entropy) -> dict[int, bytes]:
    """Everybody's nonce."""
    return {party: entropy(32) for party in range(parties)}


def recoverable(session: bytes, nonces: Mapping[int, bytes]) -> int:
    """Who is elected where nonces are recoverable: whoever refuses to reveal changes nothing."""
    return succession(beacon(session, nonces), nonces)[0]


def excluding(session: bytes, nonces: Mapping[int, bytes], refusing: Collection[int]) -> int:
    """Who is elected where those who refuse are left out: unsafe, for comparison only."""
    left = {party: nonce for party, nonce in nonces.items() if party not in refusing}
    return succession(beacon(session, left), left)[0]


def colluders_refuse_in_turn(session: bytes, nonces: Mapping[int, bytes], colluders: Collection[int]) -> int:
    """Under the unsafe rule: while an honest party would win, one more colluder refuses."""
    refused: set[int] = set()
    winner = excluding(session, nonces, refused)
    for party in sorted(colluders):
        if winner in colluders:
            break
        refused.add(party)
        winner = excluding(session, nonces, refused)
    return winner
