"""Certification of plans: their specs are accounted for, and noise is scaled until every target holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sfumato.errors import RunError, SpecError
from sfumato.planning.allocate import Allocation, allocate
from sfumato.planning.problem import PlanProblem
from sfumato.planning.sources import with_intensities
from sfumato.planning.targets import (
    TARGETS,
    EpsilonTarget,
    PairTarget,
    guarantee,
    has_trusted_member,
    noise_scale,
    pairs_of,
)
from sfumato.privacy.guarantee import Guarantee
from sfumato.schedule.base import Plan
from sfumato.schedule.noise.least_noise import Verdict, least_noise, verdict_on_worst
from sfumato.schedule.rows.observers import ObservedUnit

_ATTEMPTS = 20
_SOLVER_ERROR = 1e-4


def guarantees(plan: Plan, target: EpsilonTarget) -> Iterator[tuple[ObservedUnit, Guarantee]]:
    """Compute the guarantee, under ``plan``, of each pair of a unit and an observer that ``target`` is about.

    Pairs whose ε is infinite because the observer is trusted with raw updates are left out.

    Yields:
        Pairs of the unit with its observer, and their guarantee at the spec's δ.
    """
    for pair in pairs_of(plan, target):
        row = guarantee(plan, pair)
        if math.isfinite(row.epsilon) or not has_trusted_member(plan, pair):
            yield pair, row


@dataclass(frozen=True, eq=False)
class Trial:
    """A plan that is tried, and the guarantees of the pairs that the targets are about.

    Attributes:
        plan: resolved.
        rows: each pair with its target, and its guarantee; the largest ε over its target first.
    """

    plan: Plan
    rows: tuple[tuple[PairTarget, Guarantee], ...]

    @classmethod
    def of(cls, plan: Plan, targets: Sequence[EpsilonTarget]) -> Trial:
        """A trial of ``plan`` for all ``targets``."""
        found = [
            (PairTarget(target, pair), row) for target in targets for pair, row in guarantees(plan, target)
        ]
        return cls(plan, tuple(sorted(found, key=share_of_target, reverse=True)))

    @cached_property
    def needed_factor(self) -> float:
        """The least factor on all noise at which the worst pair meets its target, as it is charged now.

        Raises:
            SpecError: every target holds without noise.
        """
        one, row = self.rows[0]
        asked = [one] if row.epsilon > 0 else [other for other, _ in self.rows]
        found = max(noise_scale(self.plan, each.pair, each.target.epsilon) for each in asked)
        if found == 0:
            why = "needs no noise: its observers learn so little that every noise meets it"
            raise SpecError(TARGETS.at(str(one.target)), None, why)
        return found

    @property
    def verdict(self) -> Verdict:
        """Whether this plan's noise is enough: judged by the pair whose ε is the largest for its target."""
        pair, row = self.rows[0]
        return verdict_on_worst(row.epsilon, pair.target.epsilon, lambda: self.needed_factor)


def share_of_target(judged: tuple[PairTarget, Guarantee]) -> float:
    """ε of a pair divided by its target; above 1 the pair misses the target.

    ``judged``: the pair with its target, and its guarantee under the plan that is tried.
    """
    one, row = judged
    return row.epsilon / one.target.epsilon


def least_confirmed_factor(
    plan_at: Callable[[float], Plan], targets: Sequence[EpsilonTarget], first: float = 1.0
) -> float:
    """The least factor on all noise stds at which the guarantees meet all ``targets``, found by trials.

    Args:
        plan_at: gives the plan whose noise stds are multiplied by a factor.
        targets: at least one.
        first: the factor to try first.

    Raises:
        SpecError: every target holds without noise.
    """

    def judged(factor: npt.NDArray[np.float64]) -> Verdict:
        return Trial.of(plan_at(float(factor[0])), targets).verdict

    return float(least_noise(judged, np.array([first]))[0])


def certified_plan(problem: PlanProblem, targets: Sequence[EpsilonTarget]) -> tuple[Plan, Allocation]:
    """The plan of least noise for ``problem``, whose guarantees are then computed and meet all ``targets``.

    The problem names one pair of each class that is equivalent in the plan to start from. A solution may
    split such a class: pairs that miss their target are then added to the problem. What remains is the
    solver's error, and all noise is scaled up to remove it.

    Raises:
        MissingExtraError: cvxpy is not installed.
        RunError: the solver finds no solution, or no plan can be certified.
    """
    found = allocate(problem)
    intensities = found.intensities
    for _ in range(_ATTEMPTS):
        made = with_intensities(problem.base, found.response.sources, intensities)
        factor, missed = _shortfall(made, targets)
        if factor <= 1.0:
            return made, found
        new = [pair_target for pair_target in missed if pair_target not in problem.pair_targets]
        if factor > 1 + _SOLVER_ERROR and new:
            problem = replace(problem, pair_targets=(*problem.pair_targets, *new))
            found = allocate(problem)
            intensities = found.intensities
        else:
            intensities = intensities * factor**2
    raise RunError("the planned noise could not be certified; please report the spec and the targets")


def _shortfall(plan: Plan, targets: Sequence[EpsilonTarget]) -> tuple[float, list[PairTarget]]:
    """The factor (at least 1) on all noise stds that ``plan`` lacks, and the pairs that miss their target."""
    factor, missed = 1.0, []
    for target in targets:
        for pair, row in guarantees(plan, target):
            if row.epsilon <= target.epsilon:
                continue
            above = row.epsilon / target.epsilon  # ε falls at least as fast as noise grows
            needed = above if above <= 1 + _SOLVER_ERROR else noise_scale(plan, pair, target.epsilon)
            if needed <= 1:  # it is found on a finer grid than the ε of rows that are composed roughly
                needed = above
            factor = max(factor, needed)
            missed.append(PairTarget(target, pair))
    return factor, missed
