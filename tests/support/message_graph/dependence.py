"""Which models depend on the unit's data, who passes that on, and what lies upstream of what is seen.

Fix a set of exposed models. A hidden model is *reached* if it holds a contribution of the unit, or of a
sender that started from a hidden model that was reached before. Such a sender *links*: it may send anything
else. A link is of the *same draw* if every hidden model through which it was reached belongs to the present
occasion: then it moves only if somebody is drawn in this occasion who moved that model.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from functools import cached_property

from message_graph.vectors import Key, Message, MessageGraph, Sum


@dataclass(frozen=True, eq=False)
class Dependence:
    """What depends on one unit, given which models are exposed.

    Attributes:
        graph: the vectors.
        unit: class of the unit.
        exposed: sums that are exposed: received, or given away for the bound.
    """

    graph: MessageGraph
    unit: Key
    exposed: Set[Key]

    def others(self, message: Message) -> int:
        """Senders of a message other than the unit."""
        return self.graph.classes[message.sender].count - (message.sender == self.unit)

    @cached_property
    def hidden_reached(self) -> dict[Key, Key]:
        """The hidden sums that depend on the unit, with the occasion in which they were formed."""
        found: dict[Key, Key] = {}
        for vector in self.graph.vectors:
            if isinstance(vector, Sum) and vector.key not in self.exposed and self._is_reached(vector, found):
                found[vector.key] = self._occasion(vector)
        return found

    def _is_reached(self, vector: Sum, found: dict[Key, Key]) -> bool:
        moved = any(
            message.sender == self.unit or (self.others(message) and self._inputs_reached(message, found))
            for message in self.graph.messages_in[vector.key]
        )
        return moved or any(key in found for key in self._carried(vector))

    def _inputs_reached(self, message: Message, found: dict[Key, Key]) -> bool:
        pieces = (message, *(self.graph.messages[key] for key in message.repeats))
        return any(key in found for piece in pieces for key in piece.inputs)

    def _carried(self, vector: Sum) -> tuple[Key, ...]:
        """Earlier models that a sum holds, itself or through the sums that it is made of."""
        below = tuple(
            key
            for term in vector.terms
            if term.key in self.graph.sums
            for key in self._carried(self.graph.sums[term.key])
        )
        return vector.carries + below

    def _occasion(self, vector: Sum) -> Key:
        return self.graph.cohort_of(self.graph.messages_in[vector.key][0]).occasion

    def links(self, message: Message) -> bool:
        """Whether other senders of ``message`` may have started from hidden data of the unit."""
        return self.others(message) > 0 and self._inputs_reached(message, self.hidden_reached)

    def links_from_before(self, message: Message) -> bool:
        """Whether they do so whatever the unit does in the occasion of ``message``."""
        occasion = self.graph.cohort_of(message).occasion
        pieces = (message, *(self.graph.messages[key] for key in message.repeats))
        reached = (self.hidden_reached.get(key, occasion) for piece in pieces for key in piece.inputs)
        return self.others(message) > 0 and any(found != occasion for found in reached)

    def own_norm(self, message: Message) -> float:
        """How long the unit's own part of its message is, at most."""
        pieces = (message, *(self.graph.messages[key] for key in message.repeats))
        held = sum(piece.norm for piece in pieces)
        return held if message.whole_norm is None else min(held, message.whole_norm)

    def moved_norm(self, message: Message) -> float:
        """How long the part of a linking sender's message is that may be anything, at most."""
        pieces = (message, *(self.graph.messages[key] for key in message.repeats))
        held = sum(piece.norm for piece in pieces if any(key in self.hidden_reached for key in piece.inputs))
        return held if message.whole_norm is None else min(held, message.whole_norm)


def upstream(graph: MessageGraph, unit: Key, seen: Set[Key], *, through_unit: bool) -> frozenset[Key]:
    """``seen`` and every model that anything in it depends on.

    Args:
        graph: the vectors.
        unit: class of the unit.
        seen: sums that are seen.
        through_unit: whether to follow what the unit itself started from. It need not be: the unit's message
            is 0 in one world and at most its bound in the other, whatever it started from.
    """
    found: set[Key] = set(seen)
    open_keys = [key for key in seen if key in graph.sums]
    while open_keys:
        vector = graph.sums[open_keys.pop()]
        inputs = set(vector.carries)
        for term in vector.terms:
            if term.key in graph.sums:
                inputs |= _carried_below(graph, term.key)
        for message in graph.messages_in[vector.key]:
            others = graph.classes[message.sender].count - (message.sender == unit)
            if others or through_unit:
                inputs |= message.inputs
        open_keys += [key for key in inputs if key not in found]
        found |= inputs
    return frozenset(key for key in found if key in seen or graph.sums[key].given_away)


def _carried_below(graph: MessageGraph, key: Key) -> set[Key]:
    vector = graph.sums[key]
    return set(vector.carries).union(
        *(_carried_below(graph, term.key) for term in vector.terms if term.key in graph.sums)
    )
