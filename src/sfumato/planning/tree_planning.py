"""Plans for stars and trees: where noise can be added, what it leaves in the global model, and its least."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from sfumato.errors import SpecError
from sfumato.planning.allocate import Allocation, PairTarget, unattainable_pair_targets
from sfumato.planning.certification import certified_plan, is_trusted
from sfumato.planning.conflict import refuse_noise
from sfumato.planning.noise_of_others import with_noise_of_others
from sfumato.planning.noise_response import measure_response
from sfumato.planning.problem import PlanProblem
from sfumato.planning.sources import NoiseSource
from sfumato.planning.targets import TARGETS, EpsilonTarget, PlanTargets, pairs_of
from sfumato.planning.tree_sources import extra_sources, sources_of
from sfumato.planning.unit_charge import is_sampled, noise_scale
from sfumato.privacy.observers import Party
from sfumato.privacy.tree.moving import MovingReleases
from sfumato.schedule.base import Plan
from sfumato.schedule.rows.explanations import is_covered_by_filter
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec


class TreePlanning:
    """See `sfumato.planning.family`."""

    models = "the global model"

    def check(self, spec: Spec) -> None:
        """Refuse protocols without noise, and elections."""
        if spec.protocol == "hfl":
            raise SpecError("protocol", "hfl", "adds no noise; plan for h2fdp, the same protocol with noise")
        if spec.elects_supernodes:
            allowed = "cannot be planned; plan with fixed supernodes"
            raise SpecError("topology.supernodes", "elected", allowed)

    def levels(self, plan: TreePlan) -> int:
        """The tiers that aggregate."""
        return plan.tree.depth

    def level_name(self, plan: TreePlan, level: int) -> str:
        """``global``, or the name of the tier."""
        return "global" if level == 0 else plan.tree.tiers[level].name

    def sources(self, plan: TreePlan, named: frozenset[Party]) -> tuple[NoiseSource, ...]:
        """See `tree_sources.sources_of`; drawn participants in a network that moves are refused."""
        if plan.is_sampled:
            plan.require_one_tree(
                "with participants drawn, rounds of several trees amount to no single signal-to-noise ratio; "
                "noise: {epsilon, for} sizes one multiplier over all rounds"
            )
        return sources_of(plan, named)

    def extra_sources(self, plan: TreePlan, named: frozenset[Party]) -> tuple[NoiseSource, ...]:
        """See `tree_sources.extra_sources`."""
        return extra_sources(plan, named)

    def variance(self, plan: TreePlan) -> float:
        """The noise of every aggregation in the global average, summed over the rounds.

        In squared units of a parameter, for plain averaging (a server optimizer changes it further).
        """
        rounds = ((plan.at(number), number) for number in range(plan.spec.training.rounds))
        return math.fsum(sum(one.global_noise) * plan.message_scale(number) ** 2 for one, number in rounds)

    def unattainable(
        self, plan: TreePlan, sources: Sequence[NoiseSource], pair_targets: Sequence[PairTarget]
    ) -> list[PairTarget]:
        """See `allocate.unattainable_pair_targets`."""
        return unattainable_pair_targets(measure_response(plan, sources), pair_targets)

    def devices_like(self, plan: TreePlan, units: set[int], *, alike: bool) -> int:
        """The number of devices under the leaves of ``units``, or of all leaves of their classes.

        Where devices move: of those that are always under the same leaves as one of ``units``.
        """
        if isinstance(plan.ledger, MovingReleases):
            numbers = plan.ledger.pairs.of_device
            return int(np.isin(numbers, numbers[list(units)]).sum())
        tree, orbits = plan.tree, plan.ledger.leaf_classes
        leaves = [tree.leaf_of(unit) for unit in units]
        wanted = np.isin(orbits, orbits[leaves]) if alike else np.isin(np.arange(tree.leaf_count), leaves)
        return int(tree.devices[wanted].sum())

    def planned(self, problem: PlanProblem, targets: Sequence[EpsilonTarget]) -> tuple[Plan, Allocation]:
        """See `certification` and `noise_of_others`. With control the schedule is that of the budget.

        Raises:
            SpecError: with control, a target for a coalition that has no budget.
        """
        base, sources = problem.base, problem.sources
        for target in targets:
            for pair in pairs_of(base, target):
                if not is_covered_by_filter(base, pair.coalition):
                    allowed = "has no budget under control: name this coalition in watch"
                    raise SpecError(TARGETS.at(target.observer), None, allowed)
        made, found = certified_plan(base, sources, problem.extra, problem.pair_targets, targets)
        return with_noise_of_others(base, made, found, sources, targets)

    def own_noise(self, plan: TreePlan, targets: Sequence[EpsilonTarget]) -> float:
        """What is charged does not depend on a factor on all noise: the largest that a pair needs.

        NaN if participants or records are sampled: the search for the scale would take longer than the plan.
        """
        if is_sampled(plan):
            return math.nan
        factor = 0.0
        for target in targets:
            for pair in pairs_of(plan, target):
                needed = noise_scale(plan, pair, target.epsilon)
                if math.isfinite(needed) or not is_trusted(plan, pair):
                    factor = max(factor, needed)
        return math.sqrt(self.variance(plan)) * factor if math.isfinite(factor) else math.nan

    def refuse_noise(self, problem: PlanProblem, requested: PlanTargets) -> NoReturn:
        """See `conflict.refuse_noise`."""
        refuse_noise(problem.base, problem.sources, problem.extra, problem.pair_targets, requested)
