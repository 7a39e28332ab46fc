"""Plans for overlapping groups: whose noise may differ, and what it leaves in the groups' models."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NoReturn, cast

import numpy as np

from sfumato.errors import SpecError
from sfumato.planning.allocate import Allocation
from sfumato.planning.group_descent import plan_least_group_noise, scale_to_targets
from sfumato.planning.problem import PlanProblem
from sfumato.planning.sources import NoiseSource
from sfumato.planning.targets import (
    NOISE_TARGET,
    TARGETS,
    EpsilonTarget,
    PairTarget,
    PlanTargets,
    guarantee,
    pair_charge,
)
from sfumato.privacy.observers import Party
from sfumato.rounding import number
from sfumato.schedule.base import Plan
from sfumato.schedule.groups import GroupPlan
from sfumato.spec.document import Spec
from sfumato.spec.privacy import NoiseBySource


class GroupPlanning:
    """Noise sources and least noise of plans for groups (`sfumato.planning.family.PlannedFamily`)."""

    models = "the groups' models"

    def refuse_unsupported(self, spec: Spec) -> None:
        """Raise a SpecError for protocols and clips with which no noise is added to messages."""
        if spec.protocol == "ms-fedavg":
            raise SpecError("protocol", spec.protocol, "adds no noise; plan for dp-ogl")
        if spec.privacy.clips_examples:
            allowed = "must be update: groups whose examples are clipped add noise at local steps only"
            raise SpecError("privacy.clip.kind", "example", allowed)

    def level_count(self, plan: GroupPlan) -> int:
        """Always 1: only masters aggregate."""
        return 1

    def level_name(self, plan: GroupPlan, level: int) -> str:
        """The name of the level that aggregates, ``group``."""
        return "group"

    def sources(self, plan: GroupPlan, named: frozenset[Party]) -> tuple[NoiseSource, ...]:
        """The noise sources: one for the owners of all groups that symmetries of the network exchange.

        Such a symmetry leaves every party of ``named`` in its place.
        """
        noise = plan.spec.privacy.noise
        assert isinstance(noise, NoiseBySource)  # a resolved spec with noise lists its sources
        orbits = plan.releases.pairs.group_orbits(named)
        alike: defaultdict[Hashable, list[str]] = defaultdict(list)
        for row in noise.sources:
            for owner in row.owners:
                master, _, what = owner.partition("/")
                group = plan.groups.find_master(master, place="privacy.noise.sources")
                alike[int(orbits[group]), what].append(owner)
        return tuple(NoiseSource(tuple(owners), 0) for owners in alike.values())

    def extra_sources(self, plan: GroupPlan, named: frozenset[Party]) -> tuple[NoiseSource, ...]:
        """Always empty: there is no party above the masters that could add noise."""
        return ()

    def variance(self, plan: GroupPlan) -> float:
        """Variance, a coordinate, that all releases of a group leave in its model, mean over the groups.

        In squared units of a parameter. What workers of several groups carry from one model to another is
        averaged with other models on the way, and not counted again.
        """
        played = plan.by_era
        per_era = [self._variance_of_release(era) for era in played]
        rounds = (number for number in range(plan.rounds) if plan.releases_after(number))
        return math.fsum(per_era[plan.era_of(number)] for number in rounds)

    def _variance_of_release(self, plan: GroupPlan) -> float:
        """Variance per coordinate that one release leaves in a group's model, mean over the groups.

        A group without members has none.
        """
        present = plan.groups.sizes > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.mean(np.where(present, plan.model_noise_std(0), 0.0) ** 2))

    def unattainable_targets(
        self, plan: GroupPlan, sources: Sequence[NoiseSource], pair_targets: Sequence[PairTarget]
    ) -> list[PairTarget]:
        """Those of ``pair_targets`` whose ε is infinite at any noise; ``sources`` makes no difference.

        Such a pair sees a release without noise or, under the relation *remove*, who takes part.
        """
        told = plan.spec.privacy.neighbours == "remove"
        return [
            one
            for one in pair_targets
            if pair_charge(plan, one.pair).is_unprotected
            or (told and math.isinf(guarantee(plan, one.pair).epsilon))
        ]

    def count_devices(self, plan: GroupPlan, units: set[int], *, alike: bool) -> int:
        """The number of ``units`` or, with ``alike``, of all workers that symmetries exchange with them."""
        return plan.releases.pairs.count_alike(units) if alike else len(units)

    def plan_least_noise(
        self, problem: PlanProblem, targets: Sequence[EpsilonTarget]
    ) -> tuple[Plan, Allocation]:
        """The plan of least noise found whose guarantees meet all ``targets``, and its allocation.

        The search is local: another plan may have less noise. ``problem``: the plan to change, and its
        sources.

        Raises:
            MissingExtraError: cvxpy is not installed.
            SpecError: no target needs any noise.
            RunError: the solver finds no solution.
        """
        return plan_least_group_noise(problem, targets)

    def own_noise(self, plan: GroupPlan, targets: Sequence[EpsilonTarget]) -> float:
        """Root mean square, a coordinate, of ``plan``'s noise scaled to the least that meets ``targets``.

        NaN if the plan has none.
        """
        if not plan.multipliers.any():
            return math.nan
        return math.sqrt(self.variance(cast("GroupPlan", scale_to_targets(plan, targets))))

    def refuse_too_much_noise(self, problem: PlanProblem, requested: PlanTargets) -> NoReturn:
        """Raise the SpecError on the target of ``requested`` that needs most noise by itself.

        Or on all of them together, if each by itself needs no more than is allowed.

        ``problem``: what the plan starts from.
        """
        needed: dict[EpsilonTarget, float] = {}
        for target in requested.targets:
            alone, _ = plan_least_group_noise(problem.with_only(target), (target,))
            needed[target] = math.sqrt(self.variance(cast("GroupPlan", alone)))
        worst = max(needed, key=lambda target: needed[target])
        limit = f"{NOISE_TARGET}={requested.max_noise:g}"
        if needed[worst] > requested.max_noise:
            why = f"conflicts with {limit}: it needs a noise of {number(needed[worst])}"
            raise SpecError(TARGETS.at(str(worst)), None, why)
        raise SpecError(TARGETS, None, f"all targets together need a noise above {limit}")
