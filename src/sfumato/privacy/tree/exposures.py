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
from functools import cached_property, lru_cache, partial
from typing import Literal

import numpy as np

from sfumato.privacy.kept_results import Kept
from sfumato.privacy.observers import Party
from sfumato.privacy.received import CoalitionView, fixed_draw, hides_draw, noise_is_draw_independent
from sfumato.privacy.release import DrawnNoise, DrawnReleases, Exposure, Release
from sfumato.privacy.sampling import Sampling
from sfumato.privacy.tree.facts import TreeFacts, TreeNoise
from sfumato.privacy.tree.shape import FloatArray, IntArray
from sfumato.privacy.tree.views import view_of_coalition

_KEPT = 1 << 12  # views, variances and releases


@dataclass(frozen=True)
class TreeExposures:
    """What is charged for any unit towards any coalition, and what the pairs of a tree share.

    Attributes:
        facts: of the tree.
        roughly: whether ε of all exposures may be up to 2 % above that of a finer grid (`Exposure.roughly`).
    """

    facts: TreeFacts
    roughly: bool = False

    def flow(self, unit: int, coalition: Sequence[Party]) -> Exposure:
        """The flow bound of device ``unit``: all releases that the view of ``coalition`` is computed from."""
        return self.pair(unit, tuple(coalition)).flow()

    def cut(self, unit: int, coalition: Sequence[Party]) -> Exposure:
        """The cut bound of device ``unit``: only the releases that ``coalition`` sees."""
        return self.pair(unit, tuple(coalition)).cut()

    def pair(self, unit: int, coalition: tuple[Party, ...]) -> PairExposures:
        """What is charged for ``unit`` towards ``coalition``, whose members are named once each."""
        return PairExposures(self, unit, coalition)

    @cached_property
    def noise(self) -> TreeNoise:
        """The `TreeNoise` of these facts: how much noise is in the sums of the tree."""
        return TreeNoise(self.facts)

    @cached_property
    def variance_unknown_to(self) -> Callable[..., float]:
        """`TreeNoise.variance_unknown_to` with results kept, as many coalitions are alike under one node."""
        return lru_cache(_KEPT)(self.noise.variance_unknown_to)

    @cached_property
    def view(self) -> Callable[[tuple[Party, ...], int], CoalitionView]:
        """A function of coalition and step number that gives `view_of_coalition`; results are kept."""
        facts, steps = self.facts, self.facts.steps  # a function of ``self`` would keep it in memory
        return lru_cache(_KEPT)(lambda members, number: view_of_coalition(facts, members, steps[number]))

    @cached_property
    def releases(self) -> Kept[Release]:
        """Results of `PairExposures.finest_release`, which many pairs share."""
        return Kept(_KEPT)

    @cached_property
    def is_draw_independent(self) -> Callable[[int, int], bool]:
        """A function of leaf and step: is the noise counted the same whether the unit is drawn or not?"""
        facts = self.facts

        def compute(leaf: int, number: int) -> bool:
            return noise_is_draw_independent(
                facts.draw_kind,
                sender_variances=facts.class_variance[number][list(facts.classes.of_leaf(leaf))].tolist(),
                drawn=float(facts.drawn[leaf]),
                guaranteed=int(facts.min_contributors[leaf]),
                always_sent=facts.all_nodes_always_send,
                divides_by_drawn=facts.divides_by_drawn,
                revealed_otherwise=facts.steps[number].reveals_draw,
            )

        return lru_cache(_KEPT)(compute)

    @cached_property
    def heaviest(self) -> FloatArray:
        """The largest weight of a device under each leaf, ``[leaves]``."""
        found = np.zeros(len(self.facts.devices))
        np.maximum.at(found, self.facts.classes.leaf, self.facts.classes.weight)
        return found

    @cached_property
    def most_weight(self) -> FloatArray:
        """The largest sum that devices' weights in each leaf's average can have, ``[leaves]``."""
        facts = self.facts
        drawn = facts.drawn * self.heaviest if facts.draw_kind == "fixed" else facts.classes.total_weight
        most: FloatArray = drawn * facts.leaf_weight
        return most


@dataclass(frozen=True, eq=False)
class PairExposures:
    """What is charged for one unit towards one coalition.

    Attributes:
        tree: what pairs share.
        unit: the device.
        coalition: who observes it and pools knowledge.
    """

    tree: TreeExposures
    unit: int
    coalition: tuple[Party, ...]

    @property
    def facts(self) -> TreeFacts:
        """Facts of the tree."""
        return self.tree.facts

    @cached_property
    def leaf(self) -> int:
        """Number of the unit's leaf."""
        return self.facts.leaf_of(self.unit)

    @cached_property
    def path(self) -> IntArray:
        """Indices of the nodes above the unit from the root to its leaf, ``[depth]``."""
        path: IntArray = self.facts.paths[self.leaf]
        return path

    @cached_property
    def weight(self) -> float:
        """The weight of the unit's message, relative to that of a device of weight 1."""
        return float(self.facts.classes.weight[self.facts.class_of(self.unit)])

    @cached_property
    def steps(self) -> list[int]:
        """Numbers of the aggregations of a round that the unit's leaf takes part in."""
        return self.facts.steps_of(self.leaf)

    @cached_property
    def received_steps(self) -> list[int]:
        """Those of `steps` whose average, of the node above the unit, the coalition receives."""
        tiers = ((number, self.facts.steps[number].tier) for number in self.steps)
        return [
            number for number, tier in tiers if (tier, int(self.path[tier])) in self._view(number).averages
        ]

    def flow(self) -> Exposure:
        """The flow bound: all of `steps` are exposed."""
        return self.exposure(self.steps, "flow")

    def cut(self) -> Exposure:
        """The cut bound: only `received_steps` are exposed."""
        return self.exposure(self.received_steps, "cut")

    def flow_and_cut(self) -> tuple[Exposure, Exposure]:
        """Both bounds; they share their draws where every average above the unit is received."""
        flow = self.flow()
        is_cut = self.received_steps == self.steps
        return flow, replace(flow, bound_name="cut") if is_cut else self.cut()

    def exposure(
        self, exposed: Collection[int], bound_name: Literal["flow", "cut", "min-cost"] = "min-cost"
    ) -> Exposure:
        """The exposure in which the averages above the unit are exposed at some aggregations of a round.

        Args:
            exposed: numbers of aggregations, from 0, the `received_steps` among them. No other one may
                follow a hidden aggregation of a tier above its own
                (`sfumato.privacy.tree.exposed_averages`).
            bound_name: of the exposure.
        """
        releases: list[Release] = []
        hidden: list[int] = []
        for number in self.steps:
            if number not in exposed:
                hidden.append(number)
                continue
            releases.append(self.release(number, hidden))
            hidden = []
        numbers = [number for number in self.steps if number in exposed]
        return Exposure(bound_name, (self._drawn(tuple(releases), numbers),), roughly=self.tree.roughly)

    def release(self, number: int, hidden: Sequence[int] = ()) -> Release:
        """The release charged for exposed aggregation ``number``, with the ``hidden`` ones before it.

        Args:
            number: of the aggregation in a round, from 0.
            hidden: numbers of the aggregations since the exposed one before it.
        """
        members = self._members_under[self.facts.steps[number].tier]
        compute = partial(self.finest_release, number)
        found = self.tree.releases.once((self.unit, members, number), compute)
        return self._with_hidden(found, number, hidden) if hidden else found

    @cached_property
    def _members_under(self) -> list[tuple[Party, ...]]:
        """For each tier, the members at or under its node above the unit: no other learns of what enters it.

        They are few, so that what is computed for them serves many coalitions.
        """
        facts, found = self.facts, [self.coalition]
        for tier in range(1, facts.depth):
            top = self.path[tier]
            found.append(tuple(
                p
                for p in found[-1]
                if (p.kind == "device" and facts.paths[facts.leaf_of(p.index), tier] == top)
                or (p.kind == "node" and p.tier >= tier and facts.ancestor(p.tier, p.index, tier) == top)
            ))  # fmt: skip
        return found

    def _view(self, number: int) -> CoalitionView:
        """What the coalition receives in aggregation ``number``, as far as the unit's message enters it."""
        return self.tree.view(self._members_under[self.facts.steps[number].tier], number)

    def unknown_variance(self, number: int, tier: int, sent: bool, present: bool = True) -> float:
        """Variance, a coordinate, of the noise in an average that no member of the coalition knows.

        Args:
            number: of the aggregation in a round, from 0.
            tier: whose node above the unit forms the average.
            sent: ``True``: the average as the node sends it, with its own noise; ``False``: as it is
                received.
            present: whether the unit sends at this aggregation.
        """
        return self.tree.variance_unknown_to(
            self.unit, self._members_under[tier], number, tier, sent, present
        )

    def finest_sum(self, number: int) -> tuple[int, bool]:
        """The finest sum with the unit's message that the coalition sees in aggregation ``number``.

        Returns:
            The tier of its node, and whether that node's own noise is in it. One past the last tier stands
            for the unit's own message. If nothing is seen: the average as the aggregating node sends it.
        """
        lowest, view = self.facts.steps[number].tier, self._view(number)
        for tier in range(self.facts.depth - 1, lowest - 1, -1):
            node = int(self.path[tier])
            how = view.how(tier, node)
            if how is not None:
                return (tier, False) if how == "sum" else (tier + 1, True)
            if (tier, node) in view.averages:
                return tier, True
        return lowest, True

    def finest_release(self, number: int) -> Release:
        """The release of `finest_sum`: the finest sum with the unit's message, in aggregation ``number``."""
        facts, step = self.facts, self.facts.steps[number]
        own = float(step.message_norm[self.leaf]) * self.weight
        tier, sent = self.finest_sum(number)
        everybody = facts.draw_kind == "all"
        if tier == facts.depth:
            variance = float(facts.class_variance[number][facts.class_of(self.unit)])
            return Release(step.name, "the device's own message", own, 0.0, variance, everybody)
        variance = self.unknown_variance(number, tier, sent)
        node = facts.party_name(Party("node", tier, int(self.path[tier])))
        if not sent:
            vector = f"the sum that {node} receives"
        else:
            vector = "the global average" if tier == 0 else f"the average of {node}"
        own *= facts.unit_weight(self.path, tier)
        standing = everybody or self.tree.is_draw_independent(self.leaf, number)
        return Release(step.name, vector, own, 0.0, variance, standing, facts.divides_by_drawn)

    def _drawn(self, releases: tuple[Release, ...], numbers: Sequence[int]) -> DrawnReleases:
        """``releases`` of aggregations ``numbers`` of a round, under the draw of the unit's leaf."""
        rounds, sampling = self.facts.rounds, self._sampling
        if sampling.kind == "fixed":
            heaviest = float(self.tree.heaviest[self.leaf])
            return DrawnReleases(sampling, releases, rounds, heaviest / self.weight if self.weight else 1.0)
        return DrawnReleases(sampling, releases, rounds, drawn_noise=self._drawn_noise(numbers))

    @cached_property
    def _sampling(self) -> Sampling:
        """The draw of the unit's leaf, as the coalition meets it."""
        facts, leaf = self.facts, self.leaf
        peers = sum(p.kind == "device" and facts.leaf_of(p.index) == leaf for p in self.coalition)
        drawn_by_a_member = any(
            p.kind == "node" and p.tier >= facts.draw_seen_from and self.path[p.tier] == p.index
            for p in self.coalition
        )
        hidden = hides_draw(facts.hop(facts.depth - 1), drawn_by_a_member=drawn_by_a_member, peers=peers)
        if facts.draw_kind != "fixed":
            return Sampling(facts.draw_kind, facts.draw_rate, hidden)
        return fixed_draw(
            devices=int(facts.devices[leaf]),
            sample=round(float(facts.drawn[leaf])),
            members=peers,
            hidden=hidden,
        )

    def _drawn_noise(self, numbers: Sequence[int]) -> tuple[DrawnNoise, ...]:
        """List other devices' noise in aggregations ``numbers`` of a round, under Poisson participation.

        It counts where everything that is drawn is sent and added up. With thresholds or dropouts, rounding
        after the noise, or noise of the channel that depends on who is drawn, nobody else's noise counts.
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
            tier, _ = self.finest_sum(number)
            if tier < facts.depth:
                added[:, column] = self.tree.noise.variance_if_drawn(self.path, self.coalition, number, tier)
        others = Counter({c: int(count) for c, count in enumerate(facts.classes.count)})
        others.subtract([facts.class_of(self.unit)])
        others.subtract(facts.class_of(p.index) for p in self.coalition if p.kind == "device")
        counts: Counter[tuple[float, ...]] = Counter()
        for c, variances in enumerate(added.tolist()):
            if any(variances):
                counts[tuple(variances)] += others[c]
        return tuple(DrawnNoise(count, variances) for variances, count in counts.items() if count > 0)

    def _with_hidden(self, seen: Release, number: int, hidden: Sequence[int]) -> Release:
        """``seen``, as it is charged if its sum also holds what was hidden in aggregations before it.

        Only the noise of the seen aggregation protects: noise of a hidden one is in the inputs of whoever
        started from it, so it does not hide what they did then. With the hidden noise given, the sum moves
        by at most ``own + others``.

        What was hidden reaches the sum through the leaf's model even if the unit, or its whole leaf, sends
        nothing at the seen aggregation. Where that may happen, only noise that is there all the same counts.

        Args:
            seen: the release of the exposed aggregation alone.
            number: of that aggregation in a round, from 0.
            hidden: numbers of the hidden aggregations since the exposed one before it, one or more.
        """
        facts, step = self.facts, self.facts.steps[number]
        seen_tier, has_own_noise = self.finest_sum(number)
        if facts.may_drop_out and seen_tier < facts.depth:
            least = self.unknown_variance(number, seen_tier, has_own_noise, present=False)
            seen = replace(seen, variance=min(seen.variance, least))
        weight = facts.unit_weight(self.path, seen_tier) * self.weight
        is_resent = bool(step.resends[self.leaf])
        own, others = seen.own_sensitivity, 0.0
        widest_tier = facts.depth
        for earlier in hidden:
            facts_before = facts.steps[earlier]
            if widest_tier < facts.depth:
                others += self._influenced(facts_before.message_norm, widest_tier, seen_tier, weight)
            if not is_resent:
                own += float(facts_before.message_norm[self.leaf]) * weight
            widest_tier = min(widest_tier, facts_before.tier)
        # a resent sum moves by what everybody did since the first hidden aggregation
        last = facts.steps[hidden[0]] if is_resent else step
        others += self._influenced(last.message_norm, widest_tier, seen_tier, weight)
        if is_resent:  # nor by more than their whole messages
            others = min(others, self._influenced(step.message_norm, widest_tier, seen_tier, weight))
        if facts.rounds_after_noise and (others or not is_resent):
            # nothing bounds how far a rounded message moves, given its noise; not the unit's own hidden one
            others = math.inf
        name = f"{seen.name} (with {len(hidden)} hidden before it)"
        return replace(seen, name=name, own_sensitivity=own, propagated_sensitivity=others)

    def _influenced(self, message_norm: FloatArray, widest: int, to: int, weight: float) -> float:
        """Bound how far other devices, started from other models, may move an average above the unit, l2.

        Args:
            message_norm: bound of a message, ``[leaves]``.
            widest: tier of the node above the unit whose devices all started from moved models.
            to: tier of the node that forms the average.
            weight: of the unit's own message in the average; it is not counted here.
        """
        facts, top = self.facts, max(widest, to)
        under = facts.paths[:, top] == self.path[top]
        weight_of_all = facts.weight_below(self.path, top, to) * float(self.tree.most_weight[under].max())
        return 2.0 * float(message_norm[under].max()) * max(0.0, weight_of_all - weight)
