"""Bounds on the privacy loss of a run ex post: once it is known who dropped out and who was supernode."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sfumato.privacy.observers import PairClass, Party
from sfumato.privacy.release import total_mu_squared
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.schedule.faults.dropouts import Attendance
from sfumato.schedule.tree import TreePlan

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RealisedDropouts:
    """Who dropped out and who was supernode in the first rounds of a run, and bounds on μ² that follow.

    Only for plans that aggregate once a round.

    Attributes:
        plan: of the run.
        survivors: messages of each leaf that somebody learnt, alone or in a sum, ``[rounds, leaves]``.
        formed: which leaves sent an average on, ``[rounds, leaves]``.
        terms: rounds in which each device was supernode, failed ones included, ``[devices]``.
    """

    plan: TreePlan
    survivors: IntArray
    formed: BoolArray
    terms: IntArray

    @classmethod
    def of(cls, plan: TreePlan, rounds: int) -> RealisedDropouts | None:
        """The dropouts of the first ``rounds`` rounds of a run, drawn again from its seed.

        ``None`` where nobody can drop out or be elected, or a round aggregates more than once.
        """
        if len(plan.aggregations) > 1:
            return None
        kept = Attendance.of(plan, rounds)
        if kept is None:
            return None
        return cls(plan, kept.received[:, 0], kept.formed[:, 0], kept.terms(plan.tree.device_count))

    def mu_squared(self, pair: PairClass, times: int) -> float:
        """An upper bound on μ² over the run, of any pair of the class whose unit took part ``times`` times.

        The sum of the ``times`` largest μ² of single rounds, each at the worst leaves that unit and observer
        can be in (`_worst_releases`). The observer counts as supernode in the rounds where that costs most,
        in as many as any device of its class was. By the flow bound; ∞ if such a round has no noise.

        Args:
            pair: a class of pairs.
            times: number of rounds in which the unit took part.
        """
        coalition = (pair.observer,)
        node = Party("node", self.plan.tree.depth - 1, self._leaf_of_observer(pair.observer))
        holder = (*coalition, node) if self._most_terms(pair) else coalition
        plain, office = [], []
        for releases in self._worst_releases(pair):
            plain.append(max(self._mu_squared(x, pair.unit, coalition) for x in releases))
            office.append(max(self._mu_squared(x, pair.unit, holder) for x in releases))
        worst = np.sort(np.array(plain))[::-1][:times]
        total = float(worst.sum())
        if math.isfinite(total):
            gains = np.array([more - less for more, less in zip(office, plain, strict=True)])
            total += float(np.sort(gains)[::-1][: min(self._most_terms(pair), times)].sum())
        return total

    def _mu_squared(self, declared: TreeReleases, unit: int, coalition: tuple[Party, ...]) -> float:
        """``mu^2`` of ``unit`` towards ``coalition`` in a round of ``declared``, under the flow bound."""
        flow, *_ = declared.exposures(unit, coalition)
        return total_mu_squared(flow.releases, self.plan.spec.privacy.neighbours)

    def _leaf_of_observer(self, observer: Party) -> int:
        """The number of the leaf that an observer is, or that it is a device of."""
        return self.plan.tree.leaf_of(observer.index) if observer.kind == "device" else observer.index

    def _most_terms(self, pair: PairClass) -> int:
        """The most rounds in which one device of the observer's class held office.

        0 where the observer is no device, or nobody is elected.
        """
        if not self.plan.releases.elections or pair.observer.kind != "device":
            return 0
        alike = self.plan.releases.leaves_like(self._leaf_of_observer(pair.observer))
        return int(self.terms[alike.repeat(self.plan.tree.devices)].max())

    def _worst_releases(self, pair: PairClass) -> Iterator[list[TreeReleases]]:
        """Yield, for each round in which a unit of the class was in a sum, releases that bound it.

        The unit's leaf is given the fewest that any leaf of its class was left with, and the other leaves
        what all had but the fullest of the class: no unit met less noise. An observer elsewhere may be in any
        of them: one declaration for each number that leaves of its class were left with.

        Yields:
            One or more declared releases of one round; the worst of them bounds what the unit met.
        """
        declared, tree = self.plan.releases, self.plan.tree
        mine = tree.leaf_of(pair.unit)
        alike = np.flatnonzero(declared.leaves_like(mine))
        seen = mine
        if pair.observer.kind == "device" or pair.observer.tier == tree.depth - 1 > 0:
            seen = self._leaf_of_observer(pair.observer)
        for survivors, formed in zip(self.survivors, self.formed, strict=True):
            left, there = np.where(formed, survivors, 0), formed.copy()
            heard = alike[survivors[alike] > 0]
            if not len(heard):
                continue
            fullest = int(alike[np.argmax(left[alike])])
            left[fullest], there[fullest] = left[mine], there[mine]
            left[mine], there[mine] = survivors[heard].min(), True
            places = [seen]
            if seen != mine:
                group = np.flatnonzero(declared.leaves_like(seen) & (np.arange(tree.leaf_count) != mine))
                places = [int(group[i]) for i in np.unique(left[group], return_index=True)[1]]
            yield [self._releases_of_round(pair, left, there, seen, place) for place in places]

    def _releases_of_round(
        self, pair: PairClass, left: IntArray, there: BoolArray, seen: int, place: int
    ) -> TreeReleases:
        """The declared releases of one round in which the leaves had so many survivors.

        Args:
            pair: a class of pairs.
            left: survivors of every leaf, ``[leaves]``.
            there: whether each leaf sent an average, ``[leaves]``.
            seen: the observer's leaf, or the unit's.
            place: the leaf whose figures ``seen`` gets, in exchange for its own.
        """
        left, there = left.copy(), there.copy()
        left[[seen, place]], there[[seen, place]] = left[[place, seen]], there[[place, seen]]
        step = self.plan.releases.steps[0]
        nodes = (*step.node_std[:-1], np.where(there, step.node_std[-1], 0.0))
        return replace(
            self.plan.releases,
            steps=(replace(step, node_std=nodes),),
            guaranteed_contributors=left,
            all_nodes_always_send=True,
            # an aggregator is whoever holds the office; devices hold it as often as they did
            elections=0.0 if pair.observer.kind == "device" else self.plan.releases.elections,
            rounds=1,
        )
