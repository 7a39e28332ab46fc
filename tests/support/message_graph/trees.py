"""A tree's facts as a graph of messages: every message and every average of one round, each once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

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
from sfumato.privacy.observers import Party
from sfumato.privacy.release import Exposure
from sfumato.privacy.tree.facts import TreeFacts


def messages_of_tree(facts: TreeFacts) -> MessageGraph:
    """One round of a tree protocol; every round starts from a global model, which everybody has."""
    return _Builder(facts).graph()


@dataclass(frozen=True, eq=False)
class TreeAsMessages:
    """The bounds of a tree, from its messages.

    Attributes:
        facts: of the tree.
    """

    facts: TreeFacts

    @cached_property
    def graph(self) -> MessageGraph:
        """All vectors of one round."""
        return messages_of_tree(self.facts)

    def flow(self, unit: int, coalition: Sequence[Party]) -> Exposure:
        """Every average is exposed, the unit's own inputs too."""
        return flow(self.graph, unit, coalition, through_unit=True)

    def cut(self, unit: int, coalition: Sequence[Party]) -> Exposure:
        """Only what the coalition receives is charged."""
        return cut(self.graph, unit, coalition)

    def between(self, unit: int, coalition: Sequence[Party], exposed: Collection[int]) -> Exposure:
        """What the coalition receives is charged, and the unit's averages at ``exposed`` aggregations."""
        steps, path = self.facts.steps, self.facts.paths[self.facts.leaf_of(unit)]
        given = {("average", n, steps[n].tier, int(path[steps[n].tier])) for n in exposed}
        return between(self.graph, unit, coalition, given)


class _Builder:
    def __init__(self, facts: TreeFacts) -> None:
        self.facts, self.depth = facts, facts.depth

    def graph(self) -> MessageGraph:
        facts = self.facts
        classes: dict[Key, SenderClass] = {
            ("class", c): SenderClass(("class", c), int(count), float(facts.classes.weight[c]))
            for c, count in enumerate(facts.classes.count)
        }
        cohorts: dict[Key, Cohort] = {
            ("leaf", leaf): self._cohort(leaf) for leaf in range(len(facts.devices))
        }
        vectors = [v for number in range(len(facts.steps)) for v in self._vectors(number)]
        return MessageGraph(
            tuple(vectors), classes, cohorts, lambda d: ("class", facts.class_of(d)), facts.rounds
        )

    def _classes(self, leaf: int) -> tuple[Key, ...]:
        return tuple(("class", c) for c in self.facts.classes.of_leaf(leaf))

    def _cohort(self, leaf: int) -> Cohort:
        facts, path = self.facts, self.facts.paths[leaf]
        return Cohort(
            classes=self._classes(leaf),
            occasion="round",
            kind=facts.draw_kind,
            rate=facts.draw_rate,
            drawn=float(facts.drawn[leaf]),
            seen_by=frozenset(
                Party("node", tier, int(path[tier])) for tier in range(facts.draw_seen_from, self.depth)
            ),
            hop=facts.hop(self.depth - 1),
            guaranteed=int(facts.min_contributors[leaf]),
            may_lose_members=facts.guaranteed_contributors is not None,
            is_always_sent=facts.all_nodes_always_send,
            divides_by_drawn=facts.divides_by_drawn,
        )

    def _vectors(self, number: int) -> Iterator[Message | Sum]:
        step, last = self.facts.steps[number], self.depth - 1
        for leaf in range(len(self.facts.devices)):
            if not step.sends(leaf):
                continue
            yield from self._messages(number, leaf)
            terms = self._message_terms(number, leaf)
            model = self._model(number, leaf)
            carries = () if model is None or step.resends[leaf] else (model,)
            yield from self._formed(number, last, leaf, terms, carries)
        for tier in range(last - 1, step.tier - 1, -1):
            for node in range(len(self.facts.parents[tier])):
                first, stop = self.facts.first_child[tier][node : node + 2].tolist()
                share = 1.0 / (stop - first)
                terms = tuple(
                    WeightedVector(("average", number, tier + 1, c), share, share) for c in range(first, stop)
                )
                yield from self._formed(number, tier, node, terms, ())

    def _model(self, number: int, leaf: int) -> Key | None:
        """What the devices of a leaf start from; ``None``: the global model of the round before."""
        before = [earlier for earlier in self.facts.steps_of(leaf) if earlier < number]
        if not before:
            return None
        tier = self.facts.steps[before[-1]].tier
        return ("average", before[-1], tier, int(self.facts.paths[leaf][tier]))

    def _messages(self, number: int, leaf: int) -> Iterator[Message]:
        facts, step, model = self.facts, self.facts.steps[number], self._model(number, leaf)
        resends = bool(step.resends[leaf])
        before = [earlier for earlier in facts.steps_of(leaf) if earlier < number]
        for c in facts.classes.of_leaf(leaf):
            weight = float(facts.classes.weight[c])
            bound = float(step.message_norm[leaf]) * weight
            # the last period of a round that is sent again is no longer than the first
            new = min(bound, float(facts.steps[before[0]].message_norm[leaf]) * weight) if resends else bound
            yield Message(
                key=("message", number, c),
                step=number,
                sender=("class", c),
                cohort=("leaf", leaf),
                norm=new,
                variance=float(facts.class_variance[number][c]),
                inputs=frozenset() if model is None else frozenset({model}),
                delivery=self._delivery(self.depth - 1, leaf),
                repeats=tuple(("message", k, c) for k in before) if resends else (),
                whole_norm=bound if resends else None,
                rounded=facts.rounds_after_noise,
            )

    def _message_terms(self, number: int, leaf: int) -> tuple[WeightedVector, ...]:
        most, least = self.facts.leaf_weight[leaf], 1.0 / self.facts.largest_denominators[leaf]
        return tuple(
            WeightedVector(("message", number, c), float(most), float(least))
            for c in self.facts.classes.of_leaf(leaf)
        )

    def _delivery(self, tier: int, node: int) -> Delivery:
        """How messages reach a node of ``tier``."""
        facts = self.facts
        threshold = int(facts.unmask_thresholds[tier][node]) if facts.unmask_thresholds else None
        if tier == self.depth - 1:
            senders, nodes = frozenset(self._classes(node)), frozenset[Party]()
        else:
            first, stop = facts.first_child[tier][node : node + 2].tolist()
            senders = frozenset[Key]()
            nodes = frozenset(Party("node", tier + 1, child) for child in range(first, stop))
        return Delivery(Party("node", tier, node), facts.hop(tier), threshold, senders, nodes)

    def _formed(
        self, number: int, tier: int, node: int, terms: tuple[WeightedVector, ...], carries: tuple[Key, ...]
    ) -> Iterator[Sum]:
        """What a node receives, all told, and the average that it sends on or broadcasts."""
        facts, step = self.facts, self.facts.steps[number]
        party = Party("node", tier, node)
        name = facts.party_name(party)
        arrives_summed = facts.hop(tier) != "plain"
        channel = np.broadcast_to(step.channel(tier), len(facts.parents[tier]))
        yield Sum(
            key=("received", number, tier, node),
            step=number,
            terms=terms,
            carries=carries,
            noise=(Noise(None, float(channel[node])),),
            audience=frozenset({party}) if arrives_summed else frozenset(),
            reveals_draw=step.reveals_draw,
            name=step.name,
            vector=f"the sum that {name} receives",
        )
        aggregates = tier == step.tier
        also = not aggregates and tier == self.depth - 1 and step.broadcasts(node)
        yield Sum(
            key=("average", number, tier, node),
            step=number,
            terms=(WeightedVector(("received", number, tier, node), 1.0, 1.0),),
            noise=(Noise(party, float(step.node_std[tier][node]) ** 2),),
            audience=self._below(tier, node) if aggregates or also else frozenset(),
            delivery=None if aggregates else self._delivery(tier - 1, int(facts.parents[tier][node])),
            is_always_sent=facts.all_nodes_always_send,
            needs_senders=tier == self.depth - 1,
            reveals_draw=step.reveals_draw,
            name=step.name,
            vector="the global average" if tier == 0 else f"the average of {name}",
        )

    def _below(self, tier: int, node: int) -> frozenset[Party | Key]:
        """Everybody who receives a node's broadcast: all below it, and itself."""
        found: set[Party | Key] = {Party("node", tier, node)}
        if tier == 0:
            found.add(Party("public"))
        for leaf, path in enumerate(self.facts.paths):
            if path[tier] == node:
                found |= {Party("node", t, int(path[t])) for t in range(tier, self.depth)}
                found |= set(self._classes(leaf))
        return frozenset(found)
