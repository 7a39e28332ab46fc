"""The facts of overlapping groups as a graph of messages: every message and every release, each once.

In DP-OGL+ the models inside an interval are not noised. They depend on all that their group sends in the
interval, so the interval has two phases: the un-noised sum of the first is heard inside the group, and
what is released at the end was computed from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from message_graph.exposure import between, cut, flow
from message_graph.vectors import (
    Cohort,
    Delivery,
    Key,
    Message,
    MessageGraph,
    Noise,
    SenderClass,
    Sum,
    WeightedVector,
)
from sfumato.privacy.groups.facts import GroupFacts
from sfumato.privacy.observers import Party
from sfumato.privacy.release import Exposure


def messages_of_groups(facts: GroupFacts) -> MessageGraph:
    """The whole training of a grouped protocol."""
    return _Builder(facts).graph()


@dataclass(frozen=True, eq=False)
class GroupsAsMessages:
    """The bounds of overlapping groups, from their messages.

    Attributes:
        facts: of the protocol.
    """

    facts: GroupFacts

    @cached_property
    def graph(self) -> MessageGraph:
        """All vectors of the whole training."""
        return messages_of_groups(self.facts)

    def flow(self, unit: int, coalition: Sequence[Party]) -> Exposure:
        """Everything upstream is exposed, the unit being no link."""
        return flow(self.graph, unit, coalition)

    def cut(self, unit: int, coalition: Sequence[Party]) -> Exposure:
        """Only what the coalition receives is charged."""
        return cut(self.graph, unit, coalition)

    def between(self, unit: int, coalition: Sequence[Party], released: Sequence[int]) -> Exposure:
        """The first ``released[g]`` releases of every group g are charged, and what the coalition
        receives."""
        given = {
            ("release", group, step) for group, last in enumerate(released) for step in range(1, last + 1)
        }
        return between(self.graph, unit, coalition, given)


class _Builder:
    def __init__(self, facts: GroupFacts) -> None:
        self.facts = facts
        self.merging = {block.first for block in facts.blocks if block.merges}
        self.era = {
            step: block.era
            for block in facts.blocks
            for step in range(block.first, block.first + block.length)
        }

    def graph(self) -> MessageGraph:
        facts = self.facts
        classes: dict[Key, SenderClass] = {
            ("kind", k): SenderClass(("kind", k), int(size)) for k, size in enumerate(facts.kinds.size)
        }
        places = [(group, step) for step in range(1, facts.steps + 1) for group in range(facts.group_count)]
        cohorts: dict[Key, Cohort] = {place: self._cohort(*place) for place in places}
        return MessageGraph(
            tuple(vector for place in places for vector in self._vectors(*place)),
            classes,
            cohorts,
            lambda device: ("kind", int(facts.kinds.of[device])),
            1,
            groups_draw_separately=True,
            replaced_amplify=facts.raw_inside,
        )

    def _workers(self, group: int, era: int) -> tuple[int, ...]:
        """Kinds of workers in a group."""
        return tuple(k for k, rows in enumerate(self.facts.kinds.groups) if group in rows[era])

    def _cohort(self, group: int, step: int) -> Cohort:
        facts, kinds = self.facts, self._workers(group, self.era[step])
        draw = facts.draw(group, self.era[step])
        return Cohort(
            classes=tuple(("kind", k) for k in kinds),
            occasion=(group, step),
            kind=draw.kind,
            rate=draw.rate,
            drawn=draw.drawn,
            seen_by=frozenset({Party("node", 1, group)}),
            hop=facts.transport,
            guaranteed=draw.sure,
        )

    def _vectors(self, group: int, step: int) -> Iterator[Message | Sum]:
        facts, kinds = self.facts, self._workers(group, self.era[step])
        inside: tuple[Key, ...] = ()
        if facts.raw_inside:
            inside = (("inside", group, step),)
            yield from self._messages("first", group, step, kinds, ())
            yield Sum(
                key=inside[0],
                step=step,
                terms=self._terms("first", group, step, kinds),
                audience=self._listeners(group, step, later=False),
                given_away=False,
                name=f"group {group}",
                vector=f"the un-noised model of group {group}",
            )
        yield from self._messages("update", group, step, kinds, inside)
        added = 0.0 if facts.noised_by_devices(group) else facts.noise_variance(group)
        yield Sum(
            key=("release", group, step),
            step=step,
            terms=self._terms("update", group, step, kinds),
            noise=(Noise(Party("node", 1, group), added),),
            audience=self._listeners(group, step, later=True),
            reveals_draw=facts.sums_may_be_missing,
            name=f"group {group}",
            vector=f"the sum of group {group}",
        )

    def _messages(
        self, phase: str, group: int, step: int, kinds: Sequence[int], inside: tuple[Key, ...]
    ) -> Iterator[Message]:
        facts = self.facts
        norm = facts.message_norm(group)
        thresholds = facts.unmask_thresholds
        delivery = Delivery(
            Party("node", 1, group),
            facts.transport,
            thresholds[group] if thresholds else None,
            frozenset(("kind", k) for k in kinds),
        )
        for kind in kinds:
            yield Message(
                key=(phase, group, step, kind),
                step=step,
                sender=("kind", kind),
                cohort=(group, step),
                norm=norm,
                variance=facts.noise_variance(group) if facts.noised_by_devices(group) else 0.0,
                inputs=self._inputs(group, step, kind) | frozenset(inside),
                delivery=delivery,
                repeats=(("first", group, step, kind),) if inside else (),
                whole_norm=norm if inside else None,
            )

    def _inputs(self, group: int, step: int, kind: int) -> frozenset[Key]:
        """The releases that a worker's starting model is made of."""
        merged = step in self.merging
        groups = self.facts.kinds.groups[kind][self.era[step]] if merged else (group,)
        return frozenset(("release", g, before) for g in groups for before in range(1, step))

    def _terms(self, phase: str, group: int, step: int, kinds: Sequence[int]) -> tuple[WeightedVector, ...]:
        return tuple(WeightedVector((phase, group, step, kind), 1.0, 1.0) for kind in kinds)

    def _listeners(self, group: int, step: int, *, later: bool) -> frozenset[Party | Key]:
        """A group's master and workers; those who join later are handed a model made of all its releases."""
        facts = self.facts
        eras = [self.era[step]]
        if later:
            eras += [
                number
                for number, first in enumerate(facts.era_steps)
                if number > self.era[step] and first <= facts.steps
            ]
        found: set[Party | Key] = {Party("node", 1, group)}
        for era in eras:
            found |= {("kind", k) for k in self._workers(group, era)}
        return frozenset(found)
