"""Which vectors a coalition receives, and which draws it sees: one rule for trees, groups and the air.

A coalition receives a sum whose audience a member belongs to, and a vector sent to a member by itself, unless
it travels within a sum and too few of the senders collude to take it apart (`privacy.received`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from message_graph.vectors import Cohort, Delivery, Key, MessageGraph
from sfumato.privacy.observers import Party
from sfumato.privacy.received import hides_draw, hides_messages


@dataclass(frozen=True)
class Coalition:
    """Parties that pool what they know.

    Attributes:
        parties: aggregators, and the public, whose knowledge everybody has.
        members: devices of each class.
    """

    parties: frozenset[Party]
    members: Counter[Key]

    @classmethod
    def of(cls, graph: MessageGraph, coalition: Iterable[Party]) -> Coalition:
        """The coalition of these parties, each once."""
        parties = frozenset(coalition)
        devices = (graph.class_of(party.index) for party in parties if party.kind == "device")
        others = frozenset(party for party in parties if party.kind != "device")
        return cls(others | {Party("public")}, Counter(devices))

    def receives_alone(self, delivery: Delivery | None) -> bool:
        """Whether a member receives what is sent this way by itself."""
        if delivery is None or delivery.to not in self.parties:
            return False
        colluders = sum(self.members[key] for key in delivery.classes) + len(delivery.nodes & self.parties)
        return not hides_messages(delivery.hop, colluders=colluders, threshold=delivery.threshold)

    def receives(self, graph: MessageGraph, key: Key) -> bool:
        """Whether a member receives vector ``key``."""
        if key in graph.messages:
            return self.receives_alone(graph.messages[key].delivery)
        found = graph.sums[key]
        listening = any(
            listener in self.parties if isinstance(listener, Party) else self.members[listener] > 0
            for listener in found.audience
        )
        return listening or self.receives_alone(found.delivery)

    def is_blind_to(self, cohort: Cohort) -> bool:
        """Whether no member sees who of ``cohort`` is drawn."""
        return hides_draw(
            cohort.hop,
            drawn_by_a_member=bool(cohort.seen_by & self.parties),
            peers=sum(self.members[key] for key in cohort.classes),
        )


def received(graph: MessageGraph, coalition: Coalition) -> frozenset[Key]:
    """All vectors that the coalition receives."""
    return frozenset(vector.key for vector in graph.vectors if coalition.receives(graph, vector.key))
