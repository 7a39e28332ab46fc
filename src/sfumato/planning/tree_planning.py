"""Plans for stars and trees: where noise can be added, what it leaves in the global model, and its least."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.planning.allocate import Allocation, unattainable_pair_targets
from sfumato.planning.certification import certified_plan
from sfumato.planning.conflict import refuse_too_much_noise
from sfumato.planning.noise_of_others import with_noise_of_others
from sfumato.planning.noise_response import measure_response
from sfumato.planning.problem import PlanProblem
from sfumato.planning.sources import NoiseSource
from sfumato.planning.targets import (
    TARGETS,
    EpsilonTarget,
    PairTarget,
    PlanTargets,
    has_trusted_member,
    is_sampled,
    noise_scale,
    pairs_of,
)
from sfumato.privacy.observers import Party
from sfumato.privacy.tree.moving_releases import MovingReleases
from sfumato.schedule.base import Plan
from sfumato.schedule.rows.explanations import is_covered_by_filter
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec
from sfumato.spec.privacy import NoiseBySource

IntArray = npt.NDArray[np.int64]


class TreePlanning:
    """Noise sources and least noise of plans for trees (`sfumato.planning.family.PlannedFamily`)."""

    models = "the global model"

    def refuse_unsupported(self, spec: Spec) -> None:
        """Raise a SpecError for protocols without noise, and for elected supernodes."""
        if spec.protocol == "hfl":
            raise SpecError("protocol", "hfl", "adds no noise; plan for h2fdp, the same protocol with noise")
        if spec.elects_supernodes:
            allowed = "cannot be planned; plan with fixed supernodes"
            raise SpecError("topology.supernodes", "elected", allowed)

    def level_count(self, plan: TreePlan) -> int:
        """Number of tiers of aggregators, each of which aggregates."""
        return plan.tree.depth

    def level_name(self, plan: TreePlan, level: int) -> str:
        """``global`` for level 0, else the name of the tier."""
        return "global" if level == 0 else plan.tree.tiers[level].name

    def sources(self, plan: TreePlan, named: frozenset[Party]) -> tuple[NoiseSource, ...]:
        """The noise sources: for each level, one for all owners that symmetries exchange.

        A party in ``named`` is in a source of its own.

        Raises:
            SpecError: participants are drawn in a network that moves.
        """
        if plan.is_sampled:
            plan.require_one_tree(
                "with participants drawn, rounds of several trees amount to no single signal-to-noise ratio; "
                "noise: {epsilon, for} sizes one multiplier over all rounds"
            )
        noise = plan.spec.privacy.noise
        assert isinstance(noise, NoiseBySource)  # a resolved spec with noise lists its sources
        classes = _exchangeable_classes(plan, named)
        alike: defaultdict[tuple[Hashable, str, int], list[str]] = defaultdict(list)
        for row in noise.sources:
            for owner in row.owners:
                name, _, what = owner.partition("/")
                tier, index = plan.tree.find_node(name, place="privacy.noise.sources")
                for level in np.flatnonzero(row.multipliers):
                    alike[(tier, int(classes[tier][index])), what, int(level)].append(owner)
        return tuple(NoiseSource(tuple(owners), level) for (_, _, level), owners in alike.items())

    def extra_sources(self, plan: TreePlan, named: frozenset[Party]) -> tuple[NoiseSource, ...]:
        """Trusted aggregators, as sources at the levels at which they add no noise yet."""
        there = {(owner, s.level) for s in self.sources(plan, named) for owner in s.owners}
        classes = _exchangeable_classes(plan, named)
        alike: defaultdict[tuple[int, int, int], list[str]] = defaultdict(list)
        for tier, nodes in enumerate(plan.tree.tiers):
            for index in np.flatnonzero(nodes.trusted):
                owner = plan.tree.node_name(tier, int(index))
                for level in range(tier + 1):
                    if (owner, level) not in there:
                        alike[tier, int(classes[tier][index]), level].append(owner)
        return tuple(NoiseSource(tuple(owners), level) for (_, _, level), owners in alike.items())

    def variance(self, plan: TreePlan) -> float:
        """Variance, a coordinate, that the noise of all aggregations and rounds leaves in the global model.

        In squared units of a parameter, for plain averaging (a server optimizer changes it further).
        """
        rounds = ((plan.at(number), number) for number in range(plan.spec.training.rounds))
        return math.fsum(sum(one.global_noise) * plan.message_scale(number) ** 2 for one, number in rounds)

    def unattainable_targets(
        self, plan: TreePlan, sources: Sequence[NoiseSource], pair_targets: Sequence[PairTarget]
    ) -> list[PairTarget]:
        """Those of ``pair_targets`` that no noise of ``sources`` meets, however much each of them adds.

        Whatever bound is used for such a pair, it charges a release without noise to which they add none.
        """
        return unattainable_pair_targets(measure_response(plan, sources), pair_targets)

    def count_devices(self, plan: TreePlan, units: set[int], *, alike: bool) -> int:
        """Number of devices under the leaves that the devices ``units`` are under.

        With ``alike``: under all leaves of the classes of these leaves. Where devices move: of those that are
        always under the same leaves as one of ``units``.
        """
        if isinstance(plan.releases, MovingReleases):
            numbers = plan.releases.pairs.of_device
            return int(np.isin(numbers, numbers[list(units)]).sum())
        tree, orbits = plan.tree, plan.releases.leaf_classes
        leaves = [tree.leaf_of(unit) for unit in units]
        wanted = np.isin(orbits, orbits[leaves]) if alike else np.isin(np.arange(tree.leaf_count), leaves)
        return int(tree.devices[wanted].sum())

    def plan_least_noise(
        self, problem: PlanProblem, targets: Sequence[EpsilonTarget]
    ) -> tuple[Plan, Allocation]:
        """The plan of least noise for ``problem`` whose guarantees meet all ``targets``, and its allocation.

        With control the schedule is that of the budget.

        Raises:
            SpecError: with control, a target for a coalition that has no budget.
            MissingExtraError: cvxpy is not installed.
            RunError: the solver finds no solution, or no plan can be certified.
        """
        for target in targets:
            for pair in pairs_of(problem.base, target):
                if not is_covered_by_filter(problem.base, pair.coalition):
                    allowed = "has no budget under control: name this coalition in watch"
                    raise SpecError(TARGETS.at(target.observer), None, allowed)
        made, found = certified_plan(problem, targets)
        return with_noise_of_others(problem, made, found, targets)

    def own_noise(self, plan: TreePlan, targets: Sequence[EpsilonTarget]) -> float:
        """Root mean square, a coordinate, of the plan's noise, scaled by one factor until ``targets`` hold.

        What is charged does not depend on a factor on all noise. NaN if no factor is enough, or if
        participants or records are sampled: the search for the scale would take longer than the plan.
        """
        if is_sampled(plan):
            return math.nan
        factor = 0.0
        for target in targets:
            for pair in pairs_of(plan, target):
                needed = noise_scale(plan, pair, target.epsilon)
                if math.isfinite(needed) or not has_trusted_member(plan, pair):
                    factor = max(factor, needed)
        return math.sqrt(self.variance(plan)) * factor if math.isfinite(factor) else math.nan

    def refuse_too_much_noise(self, problem: PlanProblem, requested: PlanTargets) -> NoReturn:
        """Raise the SpecError on the targets that together need more noise than ``requested.max_noise``.

        It names one target, two, or says that all together do (`conflict.refuse_too_much_noise`). Call it
        only where all targets of ``requested`` together need more noise than its limit. ``problem``: what
        the plan starts from.
        """
        refuse_too_much_noise(problem, requested)


def _exchangeable_classes(plan: TreePlan, named: frozenset[Party]) -> tuple[IntArray, ...]:
    """For each tier, a class number for every node: equal only if a symmetry fixing ``named`` exchanges them.

    Each int64 ``[nodes]``; the cloud's first. Where devices move or trust changes, no two edges are taken as
    alike.
    """
    tree = plan.tree
    orbits = np.arange(tree.leaf_count) if plan.eras else plan.releases.leaf_classes
    numbers: dict[Hashable, int] = {}

    def class_number(key: Hashable) -> int:
        return numbers.setdefault(key, len(numbers))

    devices = {tree.leaf_of(p.index) for p in named if p.kind == "device"}
    nodes = {(p.tier, p.index) for p in named if p.kind == "node"}

    def colour(tier: int, index: int, below: Hashable) -> int:
        mark = index if (tier, index) in nodes else -1
        return class_number((tier, bool(tree.tiers[tier].trusted[index]), mark, below))

    last = tree.depth - 1
    below = [
        colour(last, leaf, (int(orbit), leaf if leaf in devices else -1)) for leaf, orbit in enumerate(orbits)
    ]
    subtrees = [below]
    for tier in range(last - 1, -1, -1):
        children: list[list[int]] = [[] for _ in range(tree.tiers[tier].size)]
        for child, parent in enumerate(tree.parents[tier + 1]):
            children[int(parent)].append(below[child])
        below = [colour(tier, index, tuple(sorted(each))) for index, each in enumerate(children)]
        subtrees.append(below)
    found: list[IntArray] = []
    for tier, own in enumerate(subtrees[::-1]):
        above = found[-1][tree.parents[tier]] if tier else np.zeros(1, dtype=np.int64)
        found.append(np.array([class_number(("path", int(a), c)) for a, c in zip(above, own, strict=True)]))
    return tuple(found)
