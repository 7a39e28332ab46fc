"""Fewer rows for trees with many unequal parts: a class of pairs stands for those that it surely dominates.

A tree of k unequal edges has 2k² + 2k classes of pairs. Above `MOST_CLASSES` an observer that is elsewhere,
or a peer, stands for those of its kind that know no more noise than it does; if there are still too many, a
unit stands for those whose releases are surely charged no more. What a row says of its worst pair is charged
as ever, and every pair that it stands for has at most that ε (docs/accounting.md, "Rows that stand for
unequal pairs").
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

import numpy as np

from sfumato.privacy.dominance import Ways, approximate_size, are_ways_at_most, chains, monotone_figures
from sfumato.privacy.observers import PairClass, Party, Relation, covering
from sfumato.privacy.tree.facts import TreeNoise
from sfumato.privacy.tree.pair_classes import TreePairs
from sfumato.privacy.tree.shape import BoolArray, FloatArray, IntArray

MOST_CLASSES = 60
"""More classes of equal pairs than so many are folded."""

Charged = tuple[Ways, Ways]
"""How a pair is charged, and how the mildest one of those is that it stands for."""


@dataclass(frozen=True)
class Chains:
    """Observers sorted into chains, in which each one knows at least the noise that the next one knows.

    Attributes:
        order: their numbers, the one that knows most first, chain after chain.
        chain: the chain of each of ``order``.
    """

    order: IntArray
    chain: IntArray

    @classmethod
    def of(cls, known: FloatArray) -> Chains:
        """Sort observers into chains by the noise that each of them knows.

        Args:
            known: variances of noise, one row for each observer, ``[observers, figures]``. In a chain, each
                observer knows at least as much in every figure as the next one.
        """
        order = np.lexsort(-known.T[::-1]) if known.shape[1] else np.arange(len(known))
        if (np.diff(known[order], axis=0) <= 0).all():
            return cls(order, np.zeros(len(order), dtype=np.int64))
        ends: list[FloatArray] = []
        chain = np.empty(len(order), dtype=np.int64)
        for place, observer in enumerate(order):
            fitting = (number for number, end in enumerate(ends) if (known[observer] <= end).all())
            chain[place] = found = next(fitting, len(ends))
            ends[found : found + 1] = [known[observer]]
        by_chain = np.argsort(chain, kind="stable")
        return cls(order[by_chain], chain[by_chain])

    def among(self, some: BoolArray) -> Iterator[IntArray]:
        """Yield, chain by chain, the numbers of those in the mask ``some``, who knows most noise first.

        Chains without any of ``some`` are left out.
        """
        kept = some[self.order]
        order, chain = self.order[kept], self.chain[kept]
        if len(order) and chain[0] == chain[-1]:
            yield order
            return
        yield from np.split(order, np.flatnonzero(np.diff(chain)) + 1) if len(order) else ()


@dataclass(frozen=True)
class WorstObservers(TreePairs):
    """`TreePairs`, where an observer stands for all that surely learn no more than it does.

    Of observers with one lowest common ancestor with the unit, all receive the same averages with the unit's
    message; they differ in how much of the noise in these they know.
    """

    @cached_property
    def _noise(self) -> TreeNoise:
        """The variances of the noise in the sums of the tree."""
        return TreeNoise(self.facts)

    def _peers(self, unit: int, units: int) -> Iterator[PairClass]:
        """Yield one pair for each chain of peers of ``unit``: the peer that knows most noise, for all.

        ``units``: how many units ``unit`` stands for; they multiply the ``pair_count``.
        """
        facts, mine = self.facts, self.facts.class_of(unit)
        classes = np.array(facts.classes.of_leaf(facts.leaf_of(unit)))
        if len(classes) == 1:  # they all know the same
            yield from super()._peers(unit, units)
            return
        counts = facts.classes.count[classes] - (classes == mine)
        known = -np.array([self._left_without(unit, int(number)) for number in classes])
        for alike in Chains.of(known).among(counts > 0):
            pairs = [self._peer_of(unit, int(classes[at]), units * int(counts[at])) for at in alike]
            yield _standing_for(pairs[0], pairs[-1], sum(p.pair_count for p in pairs), len(pairs))

    def _left_without(self, unit: int, number: int) -> list[float]:
        """For each aggregation, the variances of devices' noise in the leaf's average unknown to a peer.

        ``number``: of the peer's class of devices. Two entries for each aggregation of a round: the variance
        if the unit sends, and if it does not.
        """
        facts, leaf, mine = self.facts, self.facts.leaf_of(unit), self.facts.class_of(unit)
        members = Counter([number])
        return [
            self._noise.variance_of_devices(step, leaf, mine, members, present=present)
            for step in range(len(facts.steps))
            for present in (True, False)
        ]

    def _elsewhere(self, unit: int, path: IntArray, common: int, units: int) -> Iterator[PairClass]:
        """One pair for each chain of observers that share just ``path[common]`` and above with the unit.

        ``units``: how many units ``unit`` stands for.
        """
        facts, names, place = self.facts, self.facts.names, self._place_elsewhere(common)
        for tier in range(common + 1, facts.depth):
            there = self._nodes_elsewhere(tier, path, common)
            relation = Relation.edge(names[tier], place)
            for alike in self._chains_of_nodes(tier, common).among(there):
                worst, least = (
                    PairClass(unit, Party("node", tier, int(node)), relation, units)
                    for node in (alike[0], alike[-1])
                )
                kinds = _how_many(self.orbits[tier][alike])
                yield _standing_for(worst, least, units * len(alike), kinds)
            if tier == facts.depth - 1:
                yield from self._devices_elsewhere(unit, there, common, units, Relation.device(place))

    def _devices_elsewhere(
        self, unit: int, leaves: BoolArray, common: int, units: int, relation: Relation
    ) -> Iterator[PairClass]:
        """One pair for each chain of classes of devices under the masked ``leaves``.

        ``common``: tier of the lowest common ancestor with the unit, which stands for ``units`` units.
        """
        classes = self.facts.classes
        for alike in self._chains_of_devices(common).among(leaves[classes.leaf]):
            worst, least = (
                PairClass(unit, Party("device", 0, int(classes.members(int(c), 1)[0])), relation, units)
                for c in (alike[0], alike[-1])
            )
            kinds = _how_many(self._kind_of_class[alike])
            yield _standing_for(worst, least, units * int(classes.count[alike].sum()), kinds)

    @cached_property
    def _kind_of_class(self) -> IntArray:
        """A number for every class, ``[classes]``, equal only where a symmetry exchanges their devices."""
        classes, known = self.facts.classes, dict[Any, int]()
        keys = ((int(self.orbits[-1][leaf]), *classes.kind(c)) for c, leaf in enumerate(classes.leaf))
        return np.array([known.setdefault(key, len(known)) for key in keys])

    @cached_property
    def _chains(self) -> dict[tuple[str, int, int], Chains]:
        """Chains computed so far, by kind of observer, tier and tier of the common ancestor."""
        return {}

    def _chains_of_nodes(self, tier: int, common: int) -> Chains:
        """Chains of the nodes of ``tier``, by the noise that each knows in averages up to tier ``common``."""
        if ("node", tier, common) not in self._chains:
            known = self._weighted(tier, common, [sent[tier] for sent in self._noise.sent])
            self._chains["node", tier, common] = Chains.of(known)
        return self._chains["node", tier, common]

    def _chains_of_devices(self, common: int) -> Chains:
        """Chains of classes of devices, by the noise that one knows in averages up to tier ``common``."""
        key = "device", self.facts.depth, common
        if key not in self._chains:
            facts, last = self.facts, self.facts.depth - 1
            of_class = [self._known_to_member(step) for step in range(len(facts.steps))]
            self._chains[key] = Chains.of(self._weighted(last, common, of_class, facts.classes.leaf))
        return self._chains[key]

    def _known_to_member(self, number: int) -> FloatArray:
        """Noise variance of what its leaf sends that a device of each class knows, ``[classes]``.

        ``number``: of the aggregation.
        """
        facts, sent = self.facts, self._noise.sent[number][-1]
        step, found = facts.steps[number], np.empty(len(facts.classes.count))
        for c, leaf in enumerate(facts.classes.leaf.tolist()):
            if step.tier < facts.depth - 1 and step.broadcasts(leaf):
                found[c] = sent[leaf]
                continue
            left = self._noise.variance_of_devices(number, leaf, None, Counter([c]), present=True)
            others = step.channel_of(facts.depth - 1, leaf) + float(step.node_std[-1][leaf]) ** 2
            found[c] = sent[leaf] - left - others
        return found

    def _weighted(
        self, tier: int, common: int, known: Sequence[FloatArray], of_node: IntArray | None = None
    ) -> FloatArray:
        """Known noise variances as they count in the averages of tiers up to ``common``.

        Args:
            tier: of the nodes that send the noise.
            common: only steps that aggregate at this tier or above count.
            known: for each step, the variance known of what a node sends, for each thing.
            of_node: the node of each thing; ``None``: the things are the nodes of ``tier``.

        Returns:
            ``[things, steps]``.
        """
        facts, columns = self.facts, []
        nodes = np.arange(len(facts.parents[tier])) if of_node is None else of_node
        for step, variance in zip(facts.steps, known, strict=True):
            if step.tier > common:
                continue
            weighted, above = variance.copy(), nodes
            for t in range(tier, step.tier, -1):
                above = facts.parents[t][above]
                weighted = weighted / facts.children[t - 1][above] ** 2
            columns.append(weighted)
        return np.stack(columns, axis=1) if columns else np.zeros((len(nodes), 0))


def _how_many(numbers: IntArray) -> int:
    """How many different ones there are among ``numbers``, each at least 0."""
    return int(np.count_nonzero(np.bincount(numbers)))


def _standing_for(worst: PairClass, least: PairClass, pairs: int, kinds: int) -> PairClass:
    """``worst`` as the pair that stands for a chain of pairs.

    Args:
        worst: the pair with the largest ε.
        least: the pair with the smallest ε; it is kept as ``mildest`` if there are several kinds.
        pairs: how many pairs the chain has.
        kinds: of how many kinds they are.
    """
    mildest = least if kinds > 1 else None
    return replace(worst, pair_count=pairs, kinds=kinds, mildest=mildest)


@dataclass(frozen=True)
class FoldedPairs:
    """Classes of pairs of a unit and an observer; more than `MOST_CLASSES` are put together.

    Attributes:
        pairs: of the tree.
        ways: every way to charge the device of a pair.
    """

    pairs: TreePairs
    ways: Callable[[PairClass], Ways]

    def of(self, unit: int | None, *, apart: bool, every_unit: bool) -> Iterator[PairClass]:
        """Yield one pair for every class; above `MOST_CLASSES` classes a pair may stand for others, too.

        At every δ the ε of the pairs that it stands for is at most its own.

        Args:
            unit: only pairs of this device; ``None``: of all.
            apart: whether sites whose records are drawn unequally often are classes of their own.
            every_unit: whether no unit may stand for one towards which observers are placed otherwise.

        Raises:
            RuntimeError: an internal error: the classes do not add up to all pairs.
        """
        if self._counts_noise_by_chance:
            return self.pairs.of(unit, apart=apart)
        some = list(islice(self.pairs.listed(unit, apart=apart), MOST_CLASSES + 1))
        if len(some) <= MOST_CLASSES:
            return covering(some, self.pairs.pair_count(unit))
        facts = self.pairs.facts
        # where a cheapest set is searched for, less known noise need not mean a smaller ε: do not fold
        searched = facts.draw_kind != "all" and sum(step.tier > 0 for step in facts.steps) > 1
        found = list((self.pairs if searched else WorstObservers(facts)).listed(unit, apart=apart))
        if len(found) > MOST_CLASSES and unit is None and not every_unit and facts.sites is None:
            found = list(self._by_worst_unit(found))
        return covering(found, self.pairs.pair_count(unit))

    @property
    def _counts_noise_by_chance(self) -> bool:
        """Whether noise of others may count if they are drawn: how many are left matters then, too."""
        facts = self.pairs.facts
        return facts.draw_kind == "poisson" and any(variance.any() for variance in facts.class_variance)

    def _by_worst_unit(self, found: Sequence[PairClass]) -> Iterator[PairClass]:
        """Put together those of ``found`` that are placed alike and where one surely dominates the other.

        Yields:
            One pair for each chain: the worst, with the pair counts and kinds of all.
        """
        alike: defaultdict[Any, list[PairClass]] = defaultdict(list)
        who_adds_noise = lru_cache(self._who_adds_noise)  # the pairs of a unit follow each other
        for pair in found:
            alike[pair.relation, who_adds_noise(pair.unit)].append(pair)
        for some in alike.values():
            charged = [self._charged(pair) for pair in some]

            def is_under(one: int, other: int, charged: Sequence[Charged] = charged) -> bool:
                """Whether a pair and its mildest one are surely charged no more than those of another."""
                return all(map(are_ways_at_most, charged[one], charged[other]))

            sizes = [approximate_size(worst) for worst, _ in charged]
            known = [(*monotone_figures(worst), *monotone_figures(mildest)) for worst, mildest in charged]
            for chain in chains(sizes, known, is_under):
                yield _worst_of([some[number] for number in chain])

    def _charged(self, pair: PairClass) -> Charged:
        """How ``pair`` is charged, and how the mildest pair that it stands for is."""
        worst = self.ways(pair)
        return worst, worst if pair.mildest is None else self.ways(pair.mildest)

    def _who_adds_noise(self, unit: int) -> Any:
        """A key that tells units apart whose trust may differ: who adds noise to their messages on the way.

        Equal for two units if, at every aggregation, the device and each node above it add noise for both or
        for neither. Where nobody does, it is the number of the unit's leaf.
        """
        facts = self.pairs.facts
        leaf, mine = facts.leaf_of(unit), facts.class_of(unit)
        who = tuple(
            (
                bool(variance[mine] > 0),
                *(bool(std[i] > 0) for std, i in zip(step.node_std, facts.paths[leaf], strict=True)),
            )
            for step, variance in zip(facts.steps, facts.class_variance, strict=True)
        )
        return who if any(map(any, who)) else leaf


def _worst_of(chain: Sequence[PairClass]) -> PairClass:
    """Merge a chain of classes of pairs into one class, whose unit and observer are those of the first.

    Args:
        chain: one or more classes of pairs, the worst first: each surely has at most the ε of the one before
            it.

    Returns:
        The first class, with the pair counts and the numbers of kinds of all added up, and as ``mildest`` the
        mildest pair of the last; a chain of one class is returned as it is.
    """
    worst, last = chain[0], chain[-1]
    if worst is last:
        return worst
    pairs, kinds = sum(pair.pair_count for pair in chain), sum(pair.kinds for pair in chain)
    return replace(worst, pair_count=pairs, kinds=kinds, mildest=last.mildest or last)
