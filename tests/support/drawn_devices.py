"""Deployments whose devices take part by coins of their own, and devices whose coins a test decides."""

from __future__ import annotations

from deployed_parties import Stage
from rehearsals import STAR, TREE

from sfumato.deployment.randomness import SystemRandomness

RATE = 0.3
DRAWN = {"participation": {"kind": "poisson", "rate": RATE}}
DRAWN_STAR = STAR | {"training": STAR["training"] | DRAWN}
DRAWN_TREE = TREE | {"training": TREE["training"] | DRAWN}
"""Devices 2 and 3 add noise; edge 0 adds that of devices 0 and 1."""
QUIET_DEVICES = DRAWN_TREE | {"trust": {"trusted_edges": [0, 1]}}
"""Both edges are trusted: all noise is theirs, so the account amplifies what the cloud sees."""
QUIET_STAR = DRAWN_STAR | {"trust": {"cloud": True}}
MASKED_EDGES = DRAWN_TREE | {"transport": {"devices_to_edge": "secure-aggregation"}}
MASKED = DRAWN_STAR | {"transport": {"devices_to_cloud": "secure-aggregation"}}


class Coins(SystemRandomness):
    """Coins that a test decides, and all else from the operating system."""

    def __init__(self, *, takes_part: bool) -> None:
        self.says = takes_part

    def takes_part(self, *_: object) -> bool:
        return self.says


def decide(stage: Stage, **says: bool) -> None:
    """Start devices whose next coins say ``d0=True`` and so on."""
    for name, one in says.items():
        stage.device(int(name[1:]))._randomness = Coins(takes_part=one)
