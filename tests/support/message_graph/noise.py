"""The noise that is sure to be in a vector and that the coalition does not know, source by source.

Of senders' noise only as much is counted as is there whoever takes part. Members of the coalition know what
they added; the other senders that are sure to be there are taken to be the quietest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

from message_graph.audience import Coalition
from message_graph.dependence import Dependence
from message_graph.vectors import Cohort, Key, Message, MessageGraph, Sum, WeightedVector

Source = Hashable


@dataclass(frozen=True, eq=False)
class SureNoise:
    """Noise of one step.

    Attributes:
        graph: the vectors.
        dependence: what depends on the unit.
        coalition: who knows its own noise.
        unit_present: whether the unit sends at this step.
        variances: of every source met so far, a coordinate.
    """

    graph: MessageGraph
    dependence: Dependence
    coalition: Coalition
    unit_present: bool = True
    variances: dict[Source, float] = field(default_factory=dict)

    def of(self, key: Key) -> dict[Source, float]:
        """Coefficient of every unknown source in vector ``key``, a sum."""
        vector = self.graph.sums[key]
        if self._is_missing(vector):
            return {}
        found: Counter[Source] = Counter()
        direct = [term for term in vector.terms if term.key in self.graph.messages]
        for source, weight in self._of_senders(direct).items():
            found[source] += weight  # type: ignore[assignment]
        for term in vector.terms:
            if term.key in self.graph.sums and self._has_unit_or_is_sent(self.graph.sums[term.key]):
                for source, weight in self.of(term.key).items():
                    found[source] += term.weight * weight  # type: ignore[assignment]
        for number, noise in enumerate(vector.noise):
            if noise.owner is None or noise.owner not in self.coalition.parties:
                source = ("added", key, number)
                self.variances[source] = noise.variance
                found[source] += 1.0  # type: ignore[assignment]
        return self._without_rounded(key, dict(found))

    def _has_unit(self, key: Key) -> bool:
        return any(m.sender == self.dependence.unit for m in self.graph.messages_in[key])

    def _has_unit_or_is_sent(self, vector: Sum) -> bool:
        """Whether what a sum adds to the sum above it is sure to be there."""
        return vector.is_always_sent or self._has_unit(vector.key)

    def _is_missing(self, vector: Sum) -> bool:
        """Whether a sum may hold only what it carries: the unit is silent, and too few senders are left."""
        silent = not self.unit_present and self._has_unit(vector.key)
        return silent and vector.needs_senders and not vector.is_always_sent

    def _of_senders(self, terms: list[WeightedVector]) -> dict[Source, float]:
        """Noise of the senders whose messages are added up, cohort by cohort."""
        found: dict[Source, float] = {}
        messages = [self.graph.messages[term.key] for term in terms]
        sure = self._sure_others(messages)
        for term, message in zip(terms, messages, strict=True):
            in_cohort = any(
                other.sender == self.dependence.unit for other in messages if other.cohort == message.cohort
            )
            weight = term.weight if in_cohort and self.unit_present else term.least_weight
            if message.sender == self.dependence.unit and self.unit_present:
                found["unit", message.key] = weight
                self.variances["unit", message.key] = message.variance
            found["others", message.key] = weight
            self.variances["others", message.key] = sure[message.key] * message.variance
        return found

    def _sure_others(self, messages: list[Message]) -> dict[Key, int]:
        """How many senders of each message, neither unit nor members, are sure to add their noise."""
        sure: dict[Key, int] = {}
        for name in dict.fromkeys(message.cohort for message in messages):
            cohort = self.graph.cohorts[name]
            alike = [message for message in messages if message.cohort == name]
            left = cohort.guaranteed - sum(self.coalition.members[key] for key in cohort.classes)
            left -= self.unit_present and self.dependence.unit in cohort.classes
            if cohort.kind != "poisson" and self.graph.groups_draw_separately:
                left = self._beside_movers(cohort, alike)
            for message in sorted(alike, key=lambda message: message.variance):
                others = self.dependence.others(message) - self.coalition.members[message.sender]
                sure[message.key] = min(max(left, 0), others)
                left -= sure[message.key]
                sure[message.key] = max(sure[message.key], self._movers(cohort, message))
        return sure

    def _beside_movers(self, cohort: Cohort, messages: list[Message]) -> int:
        """How many others than the unit add noise: members fill the places left by who moves the sum.

        Of the sum's fewest survivors, as many as are not needed for those who move it may be members.
        """
        mine = self.unit_present and self.dependence.unit in cohort.classes
        moving = sum(self.dependence.others(m) for m in messages if self.dependence.links(m))
        known = sum(self.coalition.members[key] for key in cohort.classes)
        return max(cohort.guaranteed - mine - known, min(moving, round(cohort.drawn) - mine))

    def _movers(self, cohort: Cohort, message: Message) -> int:
        """Linking senders under a Poisson draw, whose noise is there whenever they move the sum.

        The worst is that all of them are drawn: with t of them (own + 2t)^2 / (own + t) grows with t, as long
        as the unit moves by its own message alone, so that no hidden contribution of it is held again.
        """
        if cohort.kind != "poisson" or message.repeats or not self.dependence.links(message):
            return 0
        if any(s.carries for s in self.graph.sums.values() if s.step == message.step):
            return 0
        return self.dependence.others(message)

    def _without_rounded(self, key: Key, found: dict[Source, float]) -> dict[Source, float]:
        """A unit that rounds what it noised is protected by its own noise alone."""
        for message in self.graph.messages_in[key]:
            alone = ("unit", message.key)
            if message.rounded and found.get(alone) and self.variances[alone] > 0:
                return {alone: found[alone]}
        return found
