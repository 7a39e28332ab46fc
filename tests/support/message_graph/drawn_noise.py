"""The noise that other senders add to a sum whenever a Poisson draw takes them.

They are drawn independently of the unit, so who they are is a public draw (`privacy.public_draws`). Their
noise counts in a sum where it reaches the sum unseen, and where nothing but messages and noise depends on who
is drawn: all that is drawn is sent, nothing is rounded after its noise, and the channel is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from message_graph.audience import Coalition
from message_graph.vectors import Cohort, Key, Message, MessageGraph
from sfumato.privacy.release import DrawnNoise


@dataclass(frozen=True, eq=False)
class NoiseOfOthers:
    """What others add to the sums that one coalition is charged for.

    Attributes:
        graph: the vectors.
        unit: class of the unit.
        coalition: who knows its own noise.
    """

    graph: MessageGraph
    unit: Key
    coalition: Coalition

    def counts_under(self, cohort: Cohort) -> bool:
        """Whether noise of others counts in the sums of this draw."""
        graph = self.graph
        return (
            cohort.kind == "poisson"
            and cohort.rate < 1
            and cohort.is_always_sent
            and not cohort.may_lose_members
            and cohort.hop != "air"
            and not graph.groups_draw_separately
            and not any(message.rounded for message in graph.messages.values())
            and not any(vector.reveals_draw for vector in graph.sums.values())
        )

    def in_sum(self, key: Key) -> Mapping[Key, float]:
        """The variance that one member of every class adds to sum ``key``, if it is drawn."""
        return {m.sender: weight**2 * m.variance for m, weight in self._terms(key) if m.variance}

    def _terms(self, key: Key) -> Iterator[tuple[Message, float]]:
        """The messages in a sum whose noise the coalition does not know, and their least weights."""
        for term in self.graph.sums[key].terms:
            if term.key in self.graph.messages:
                message = self.graph.messages[term.key]
                if not self._may_be_told(message):
                    with_unit = self.unit in self.graph.cohort_of(message).classes
                    yield message, term.weight if with_unit else term.least_weight
            elif not self._is_told(term.key):
                yield from ((m, term.weight * weight) for m, weight in self._terms(term.key))

    def _is_told(self, key: Key) -> bool:
        """Whether the coalition has the noise in sum ``key``: a member forms it, or all of it is received."""
        owners = (noise.owner for noise in self.graph.sums[key].noise)
        return any(owner in self.coalition.parties for owner in owners) or self.coalition.receives(
            self.graph, key
        )

    def _may_be_told(self, message: Message) -> bool:
        """Whether the aggregator and senders of the unit's session collude.

        Few of them take the masks off in a session in which few are drawn.
        """
        cohort, to = self.graph.cohort_of(message), message.delivery.to
        colluders = sum(self.coalition.members[key] for key in cohort.classes)
        return self.unit in cohort.classes and to in self.coalition.parties and colluders > 0

    def of_draw(self, added: Sequence[Mapping[Key, float]]) -> tuple[DrawnNoise, ...]:
        """How many others add which variances to the releases of one draw.

        Args:
            added: to each release, as of `in_sum`.
        """
        counts: Counter[tuple[float, ...]] = Counter()
        for key in dict.fromkeys(key for of_release in added for key in of_release):
            others = self.graph.classes[key].count - (key == self.unit) - self.coalition.members[key]
            counts[tuple(of_release.get(key, 0.0) for of_release in added)] += others
        return tuple(DrawnNoise(count, variances) for variances, count in counts.items() if count > 0)
