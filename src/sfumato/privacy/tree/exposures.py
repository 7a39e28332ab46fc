"""What of a unit's messages in a tree is charged towards a coalition: flow, cut, and sets between the two.

What a coalition sees is a linear map of the noised messages: at a step where the nodes of tier ``a``
aggregate, every node at or below tier ``a`` on the way receives its children's averages, and everybody under
a tier-``a`` node receives that node's average. Two bounds for a unit ``u`` and a coalition ``o``
(docs/accounting.md derives both):

*flow*: every aggregation of ``u``'s messages is charged, at the finest sum of it that ``o`` sees, or,
where ``o`` sees none, at the average that goes to ``u``'s own subtree (an ancestor of what ``o`` sees
later, as devices start from it). Only ``u``'s own contribution counts.

*cut*: only what ``o`` sees is charged. Aggregations hidden from ``o`` reach it summed up in the next
one that it sees; the devices that started from a hidden average count with ``2 a_j C_j``. The noise of a
hidden aggregation went into those devices' inputs, so what they send may cancel it: only the noise that is
added at the seen aggregation itself counts.

Between the two some of the hidden averages above ``u`` are exposed. Once an average is exposed, everybody
under its node starts from something known, so what was hidden before it is charged with it and never again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfumato.privacy.observers import Party
from sfumato.privacy.received import CoalitionView, fixed_draw, hides_draw, noise_is_draw_independent
from sfumato.privacy.release import DrawnNoise, DrawnReleases, Exposure, Release
from sfumato.privacy.sampling import Sampling
from sfumato.privacy.tree.facts import AggregationFacts, TreeFacts, TreeNoise
from sfumato.privacy.tree.shape import FloatArray, IntArray

_KEPT = 1 << 12
"""How many views, and how many releases, are kept for the next pair."""


def view_of_coalition(facts: TreeFacts, coalition: Sequence[Party], step: AggregationFacts) -> CoalitionView:
    """What ``coalition`` receives at ``step``.

    Everything goes through the aggregating node, whose average everybody below receives; that of the
    cloud goes to all, the public included. Nodes over leaves that take no part aggregate nothing. A leaf may
    send its own average to its devices besides. Where messages arrive summed up (secure aggregation, the
    air), a node meets the sum of its children before its own noise, and no single message, unless the
    coalition can take masks off.
    """
    tier, active = step.tier, _aggregating(facts, step)
    nodes = [
        p
        for p in coalition
        if p.kind == "node" and p.tier >= tier and active[facts.ancestor(p.tier, p.index, tier)]
    ]
    devices = [p.index for p in coalition if p.kind == "device"]
    roots, heard = {0}, set[int]()
    if tier or step.takes_part is not None or step.leaf_broadcasts is not None:
        leaves = {device: facts.leaf_of(device) for device in devices}
        devices = [device for device, leaf in leaves.items() if step.sends(leaf)]
        heard = {leaves[device] for device in devices if step.broadcasts(leaves[device])}
    if tier:
        roots = {int(facts.paths[leaves[device]][tier]) for device in devices}
        roots |= {facts.ancestor(node.tier, node.index, tier) for node in nodes}
    sums = facts.receiving_sums(nodes, coalition)
    return CoalitionView(
        single=frozenset((p.tier, p.index) for p in nodes if p not in sums),
        summed=frozenset((p.tier, p.index) for p in sums),
        averages=frozenset([(tier, root) for root in roots] + [(facts.depth - 1, leaf) for leaf in heard]),
        senders=frozenset(
            [(p.tier, p.index) for p in nodes if p.tier > tier] + [(facts.depth, d) for d in devices]
        ),
    )


def _aggregating(facts: TreeFacts, step: AggregationFacts) -> npt.NDArray[np.bool_]:
    """Which nodes of the step's tier aggregate: those over leaves that take part, ``[nodes]``."""
    found = np.zeros(len(facts.parents[step.tier]), dtype=np.bool_)
    leaves = slice(None) if step.takes_part is None else step.takes_part
    found[facts.paths[leaves, step.tier]] = True
    return found


@dataclass(frozen=True)
class TreeExposures:
    """What is charged for one unit towards one coalition at a time.

    Attributes:
        facts: of the tree.
    """

    facts: TreeFacts

    @cached_property
    def noise(self) -> TreeNoise:
        """How much noise there is in the sums of the tree."""
        return TreeNoise(self.facts)

    @cached_property
    def _views(self) -> Callable[[tuple[Party, ...], int], CoalitionView]:
        """`view_of_coalition` by coalition and step, computed once for all units."""
        return lru_cache(_KEPT)(
            lambda coalition, number: view_of_coalition(self.facts, coalition, self.facts.steps[number])
        )

    @cached_property
    def _released(self) -> Callable[[int, tuple[Party, ...], int], Release]:
        """`_release` by unit, coalition and step: what is seen is charged under both bounds."""
        return lru_cache(_KEPT)(self._release)

    def flow(self, unit: int, coalition: Sequence[Party]) -> Exposure:
        """The flow bound of ``unit`` towards ``coalition``, who pools knowledge."""
        return self.between(unit, coalition, self.facts.steps_of(self.facts.leaf_of(unit)), "flow")

    def cut(self, unit: int, coalition: Sequence[Party]) -> Exposure:
        """The cut bound; arguments as of `flow`."""
        return self.between(unit, coalition, self.received_steps(unit, coalition), "cut")

    def flow_and_cut(self, unit: int, coalition: Sequence[Party]) -> tuple[Exposure, Exposure]:
        """Both bounds: one and the same where every average above ``unit`` is received."""
        found = self.flow(unit, coalition)
        if self.received_steps(unit, coalition) == self.facts.steps_of(self.facts.leaf_of(unit)):
            return found, replace(found, bound_name="cut")
        return found, self.cut(unit, coalition)

    def between(
        self,
        unit: int,
        coalition: Sequence[Party],
        exposed: Collection[int],
        bound_name: Literal["flow", "cut", "min-cost"] = "min-cost",
    ) -> Exposure:
        """What is charged if the averages above ``unit`` are exposed at some aggregations of a round.

        Args:
            unit: as of `flow`.
            coalition: as of `flow`.
            exposed: numbers of aggregations, the `received_steps` among them. None of a tier comes after one
                of a tier above it that is hidden (`sfumato.privacy.tree.exposed_averages`).
            bound_name: of the exposure.
        """
        leaf = self.facts.leaf_of(unit)
        releases: list[tuple[int, Release]] = []
        hidden: list[int] = []
        for number in self.facts.steps_of(leaf):
            if number not in exposed:
                hidden.append(number)
                continue
            releases.append((number, self.release(unit, coalition, number, hidden)))
            hidden = []
        draw = self._drawn(unit, self.facts.paths[leaf], coalition, releases)
        return Exposure(bound_name, (draw,))

    def received_steps(self, unit: int, coalition: Sequence[Party]) -> list[int]:
        """The aggregations of a round whose average, of the node above ``unit``, the coalition receives."""
        leaf = self.facts.leaf_of(unit)
        path = self.facts.paths[leaf]
        return [
            number
            for number in self.facts.steps_of(leaf)
            if (tier := self.facts.steps[number].tier, int(path[tier]))
            in self._views(self._under(path, coalition, self.facts.steps[number].tier), number).averages
        ]

    def release(
        self, unit: int, coalition: Sequence[Party], number: int, hidden: Sequence[int] = ()
    ) -> Release:
        """What is charged for an aggregation that is exposed, with those before it that are ``hidden``."""
        path = self.facts.paths[self.facts.leaf_of(unit)]
        found = self._released(unit, self._under(path, coalition, self.facts.steps[number].tier), number)
        if not hidden:
            return found
        return self._with_hidden(found, unit, path, coalition, number, hidden)

    def _under(self, path: IntArray, coalition: Sequence[Party], tier: int) -> tuple[Party, ...]:
        """The members at or under the node of ``tier`` above the unit: no other learns of what enters it.

        They are few, so that what is computed for them serves many coalitions.
        """
        if not tier:
            return tuple(coalition)
        facts, top = self.facts, path[tier]
        return tuple(
            p
            for p in coalition
            if (p.kind == "device" and facts.paths[facts.leaf_of(p.index), tier] == top)
            or (p.kind == "node" and p.tier >= tier and facts.ancestor(p.tier, p.index, tier) == top)
        )

    def unknown_variance(
        self, unit: int, coalition: Sequence[Party], number: int, tier: int, sent: bool, present: bool = True
    ) -> float:
        """`TreeNoise.variance_unknown_to`, computed once for all coalitions that are alike under the node."""
        under = self._under(self.facts.paths[self.facts.leaf_of(unit)], coalition, tier)
        return self._variances(unit, under, number, tier, sent, present)

    @cached_property
    def _variances(self) -> Callable[..., float]:
        return lru_cache(_KEPT)(self.noise.variance_unknown_to)

    def finest_sum(self, path: IntArray, coalition: Sequence[Party], number: int) -> tuple[int, bool]:
        """Whose average is the finest sum with the unit's message: a tier, and whether its own noise is in.

        One past the last tier stands for the device's own message.
        """
        step, view = (
            self.facts.steps[number],
            self._views(self._under(path, coalition, self.facts.steps[number].tier), number),
        )
        for tier in range(self.facts.depth - 1, step.tier - 1, -1):
            how = view.how(tier, int(path[tier]))
            if how is not None:
                return (tier, False) if how == "sum" else (tier + 1, True)
            if (tier, int(path[tier])) in view.averages:
                return tier, True
        return step.tier, True

    def _release(self, unit: int, coalition: tuple[Party, ...], number: int) -> Release:
        """The finest sum with the unit's message that is seen at a step, or exposed by flow."""
        facts, step, mine = self.facts, self.facts.steps[number], self.facts.class_of(unit)
        path = facts.paths[facts.leaf_of(unit)]
        own = float(step.message_norm[path[-1]]) * float(facts.classes.weight[mine])
        tier, sent = self.finest_sum(path, coalition, number)
        if tier == facts.depth:
            variance = float(facts.class_variance[number][mine])
            return Release(
                step.name, "the device's own message", own, 0.0, variance, facts.draw_kind == "all"
            )
        variance = self.unknown_variance(unit, coalition, number, tier, sent)
        node = facts.party_name(Party("node", tier, int(path[tier])))
        if not sent:
            view = f"the sum that {node} receives"
        else:
            view = "the global average" if tier == 0 else f"the average of {node}"
        own *= facts.unit_weight(path, tier)
        standing = facts.draw_kind == "all" or self._is_draw_independent(path, number)
        return Release(step.name, view, own, 0.0, variance, standing, facts.divides_by_drawn)

    # --- the draw -------------------------------------------------------------------------------

    def _is_draw_independent(self, path: IntArray, number: int) -> bool:
        """Whether the noise counted at step ``number`` is the same whether the unit is drawn or not."""
        facts, leaf = self.facts, int(path[-1])
        return noise_is_draw_independent(
            facts.draw_kind,
            sender_variances=facts.class_variance[number][list(facts.classes.of_leaf(leaf))].tolist(),
            drawn=float(facts.drawn[leaf]),
            guaranteed=int(facts.min_contributors[leaf]),
            always_sent=facts.all_nodes_always_send,
            divides_by_drawn=facts.divides_by_drawn,
            revealed_otherwise=facts.steps[number].reveals_draw,
        )

    def _drawn(
        self, unit: int, path: IntArray, coalition: Sequence[Party], found: list[tuple[int, Release]]
    ) -> DrawnReleases:
        """The releases of a round under the draw of the unit's leaf, as ``coalition`` meets it."""
        facts, leaf, hidden = self.facts, int(path[-1]), self._is_blind(path, coalition)
        releases = tuple(release for _, release in found)
        if facts.draw_kind != "fixed":
            sampling = Sampling(facts.draw_kind, facts.draw_rate, hidden)
            noise = self._drawn_noise(unit, path, coalition, [number for number, _ in found])
            return DrawnReleases(sampling, releases, facts.rounds, drawn_noise=noise)
        members = sum(p.kind == "device" and facts.leaf_of(p.index) == leaf for p in coalition)
        sampling = fixed_draw(
            devices=int(facts.devices[leaf]),
            sample=round(float(facts.drawn[leaf])),
            members=members,
            hidden=hidden,
        )
        mine = float(facts.classes.weight[facts.class_of(unit)])
        heaviest = float(facts.classes.weight[list(facts.classes.of_leaf(leaf))].max())
        return DrawnReleases(sampling, releases, facts.rounds, heaviest / mine if mine else 1.0)

    def _drawn_noise(
        self, unit: int, path: IntArray, coalition: Sequence[Party], numbers: Sequence[int]
    ) -> tuple[DrawnNoise, ...]:
        """Noise of others under Poisson participation, where everything that is drawn is sent and counts.

        With thresholds or dropouts, rounding after the noise, or noise of the channel that depends on who is
        drawn, nobody else's noise counts.
        """
        facts = self.facts
        if facts.draw_kind != "poisson" or not facts.draw_rate < 1:
            return ()
        certain = not facts.may_drop_out and not facts.rounds_after_noise
        by_draw = any(step.reveals_draw for step in facts.steps) or facts.hop(facts.depth - 1) == "air"
        silent = not any(variance.any() for variance in facts.class_variance)
        if not certain or by_draw or silent:
            return ()
        added = np.zeros((len(facts.classes.count), len(numbers)))
        for column, number in enumerate(numbers):
            tier, _ = self.finest_sum(path, coalition, number)
            if tier < facts.depth:
                added[:, column] = self.noise.variance_if_drawn(path, coalition, number, tier)
        others = Counter({c: int(count) for c, count in enumerate(facts.classes.count)})
        others.subtract([facts.class_of(unit)])
        others.subtract(facts.class_of(p.index) for p in coalition if p.kind == "device")
        counts: Counter[tuple[float, ...]] = Counter()
        for c, variances in enumerate(added.tolist()):
            if any(variances):
                counts[tuple(variances)] += others[c]
        return tuple(DrawnNoise(count, variances) for variances, count in counts.items() if count > 0)

    def _is_blind(self, path: IntArray, coalition: Sequence[Party]) -> bool:
        """Whether nobody in ``coalition`` sees who is drawn in the unit's leaf."""
        facts = self.facts
        above = any(
            p.kind == "node" and p.tier >= facts.draw_seen_from and path[p.tier] == p.index for p in coalition
        )
        if above:
            return False
        leaf = int(path[-1])
        peers = any(p.kind == "device" and facts.leaf_of(p.index) == leaf for p in coalition)
        return hides_draw(facts.hop(facts.depth - 1), drawn_by_a_member=above, peers=int(peers))

    # --- hidden aggregations --------------------------------------------------------------------

    def _with_hidden(
        self,
        seen: Release,
        unit: int,
        path: IntArray,
        coalition: Sequence[Party],
        number: int,
        hidden: Sequence[int],
    ) -> Release:
        """``seen`` together with the hidden aggregations that it sums up, behind its own noise alone.

        Noise of a hidden aggregation is in the inputs of whoever started from it, so it is no shield for what
        they did then: with the hidden noise given, the sum moves by at most ``own + others``.

        What was hidden reaches the sum through the leaf's model even if the unit, or its whole leaf, sends
        nothing at the seen aggregation. Where that may happen, only noise that is there all the same counts.
        """
        facts, step, leaf = self.facts, self.facts.steps[number], int(path[-1])
        to, sent = self.finest_sum(path, coalition, number)
        if facts.may_drop_out and to < facts.depth:
            least = self.unknown_variance(unit, coalition, number, to, sent, present=False)
            seen = replace(seen, variance=min(seen.variance, least))
        weight = facts.unit_weight(path, to) * float(facts.classes.weight[facts.class_of(unit)])
        fresh = bool(step.resends[leaf])
        own, others = seen.own_sensitivity, 0.0
        widest = facts.depth
        for earlier in hidden:
            before = facts.steps[earlier]
            if widest < facts.depth:
                others += self._influenced(path, before, widest, to, weight)
            if not fresh:
                own += float(before.message_norm[leaf]) * weight
            widest = min(widest, before.tier)
        last = step
        if fresh:
            # the resent sum moves by what everybody did since the first hidden average
            last = AggregationFacts(
                step.name,
                step.tier,
                facts.steps[hidden[0]].message_norm,
                step.device_std,
                step.node_std,
                step.resends,
            )
        others += self._influenced(path, last, widest, to, weight)
        if fresh:  # nor by more than their whole messages
            others = min(others, self._influenced(path, step, widest, to, weight))
        if facts.rounds_after_noise and (others or not fresh):
            # nothing bounds how far a rounded message moves, given its noise; not the unit's own hidden one
            others = math.inf
        name = f"{seen.name} (with {len(hidden)} hidden before it)"
        return replace(seen, name=name, own_sensitivity=own, propagated_sensitivity=others)

    def _influenced(
        self, path: IntArray, step: AggregationFacts, widest: int, to: int, weight: float
    ) -> float:
        """Replace sensitivity of the others under ``path[widest]``, in the average of ``path[to]``."""
        facts, top = self.facts, max(widest, to)
        under = facts.paths[:, top] == path[top]
        mass = facts.weight_below(path, top, to) * float(self._most_weight[under].max())
        bound = float(step.message_norm[under].max())
        return 2.0 * bound * max(0.0, mass - weight)

    @cached_property
    def _most_weight(self) -> FloatArray:
        """Most that weights in a leaf's average can add up to: more devices than expected may take part."""
        facts = self.facts
        heaviest = np.zeros(len(facts.devices))
        np.maximum.at(heaviest, facts.classes.leaf, facts.classes.weight)
        drawn = facts.drawn * heaviest if facts.draw_kind == "fixed" else facts.classes.total_weight
        most: FloatArray = drawn * facts.leaf_weight
        return most
