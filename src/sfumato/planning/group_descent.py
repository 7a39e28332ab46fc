"""The least noise of every group: exposed sets are chosen anew at every solution.

What a pair is charged for depends on the noise itself: account takes the cheapest exposed set it finds. So
the search goes from solution to solution. At each one account judges all pairs; those nearest to their target
set a constraint, the tangent of the bound that account reports there (`exposure_response`); the convex
programme gives the next solution. Its noise is scaled by what the worst pair needs, and the solution of least
noise is kept. The search begins at equal multipliers, so the plan never has more noise than these.

In the end all noise is scaled once more, to the least factor at which account confirms every target. What the
last programme would still save is told: it is how far the plan is from the least noise for the sets that
account uses, as far as tangents tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt

from sfumato.errors import RunError, SpecError
from sfumato.planning.allocate import Allocation, BindingConstraint, PairTarget
from sfumato.planning.certification import guarantees
from sfumato.planning.composed_response import ComposedResponse
from sfumato.planning.convex_program import Constraint, Optimum, minimise_variance
from sfumato.planning.exposure_response import responses_of
from sfumato.planning.noise_response import PlanResponse, measure_response
from sfumato.planning.problem import PlanProblem
from sfumato.planning.sources import NoiseSource, with_intensities, with_noise
from sfumato.planning.targets import TARGETS, EpsilonTarget, noise_scale, pair_charge
from sfumato.privacy.guarantee import Guarantee
from sfumato.rounding import number
from sfumato.schedule.base import Plan
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.noise.calibration import first_trial_multiplier
from sfumato.schedule.noise.least_noise import Verdict, least_noise, verdict_on_worst
from sfumato.schedule.resolve import resolve
from sfumato.spec.privacy import NoiseBySource, SourceNoise

FloatArray = npt.NDArray[np.float64]

_ROUNDS = 10  # solutions of the convex programme
_PATIENCE = 2  # of them in a row that need no less noise
_LEAST_DESCENT = 5e-4  # noise variance that a solution must save, as a share, to be one
_CONSTRAINTS = 4  # pairs of each target whose constraint is taken anew at a solution
_NEAR = 0.9  # of its target: a pair with less sets no new constraint
_CLOSE = 1.1  # as a factor on its target: within it the tangent of a pair tells what scale it needs
_FLOOR = 1e-6  # of the largest intensity: the least that the search gives a source
_UNTOLD = 1e-3  # share of the noise variance below which what could still be saved is not told


@dataclass(frozen=True, eq=False)
class _Trial:
    """A plan and what account says of the pairs that targets are about."""

    plan: Plan
    rows: tuple[tuple[PairTarget, Guarantee], ...]

    @classmethod
    def of(cls, plan: Plan, targets: Sequence[EpsilonTarget]) -> _Trial:
        """A trial of ``plan``: its guarantees for all ``targets``, the largest ε over its target first."""
        found = [
            (PairTarget(target, pair), row) for target in targets for pair, row in guarantees(plan, target)
        ]
        return cls(plan, tuple(sorted(found, key=_share_of_target, reverse=True)))

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
        """The verdict on this plan's noise, by the pair that is nearest to its target or above it."""
        one, row = self.rows[0]
        return verdict_on_worst(row.epsilon, one.target.epsilon, lambda: self.needed_factor)


def _share_of_target(judged: tuple[PairTarget, Guarantee]) -> float:
    """ε of a judged pair over its target; above 1 it misses the target."""
    one, row = judged
    return row.epsilon / one.target.epsilon


def scale_to_targets(plan: Plan, targets: Sequence[EpsilonTarget]) -> Plan:
    """``plan`` with all its noise stds scaled by the least factor at which account confirms ``targets``."""
    largest = max(row.multipliers[0] for row in _noise_of(plan).sources)
    start = _with_noise_scaled(plan, 1 / largest)
    return _with_noise_scaled(start, _least_factor(start, targets))


def _least_factor(plan: Plan, targets: Sequence[EpsilonTarget], first: float | None = None) -> float:
    """The least factor on all noise stds of ``plan`` at which account confirms ``targets``.

    ``first``: the factor to try first; by default what one multiplier for all groups begins with.
    """
    if first is None:
        first = max(first_trial_multiplier(cast("GroupPlan", plan), target.epsilon) for target in targets)

    def judged(factor: FloatArray) -> Verdict:
        return _Trial.of(_with_noise_scaled(plan, float(factor[0])), targets).verdict

    return float(least_noise(judged, np.array([first]))[0])


def _with_noise_scaled(plan: Plan, factor: float) -> Plan:
    """``plan``, resolved anew, with the noise std of every source times ``factor``."""
    rows = [
        SourceNoise(owners=row.owners, multipliers=(factor * row.multipliers[0],))
        for row in _noise_of(plan).sources
    ]
    return resolve(with_noise(plan.spec, NoiseBySource(sources=tuple(rows))))


def _noise_of(plan: Plan) -> NoiseBySource:
    """The noise section of a resolved ``plan``, which lists its sources."""
    noise = plan.spec.privacy.noise
    assert isinstance(noise, NoiseBySource)  # a resolved spec with noise lists its sources
    return noise


def plan_least_group_noise(problem: PlanProblem, targets: Sequence[EpsilonTarget]) -> tuple[Plan, Allocation]:
    """The plan of least noise found for ``problem`` at which account confirms all ``targets``.

    Returned with how its noise was allocated.

    Raises:
        MissingExtraError: cvxpy is not installed.
        SpecError: no target needs any noise.
        RunError: the solver finds no solution.
    """
    response = measure_response(problem.base, problem.sources)
    search = _Search(response, targets, {})
    equal = np.full(len(problem.sources), _least_factor(response.base, targets) ** 2)
    found = [equal]
    if len(problem.sources) > 1:
        found += search.scale_until_confirmed(search.descend(equal))
    best = min(found, key=lambda intensities: float(response.weights @ intensities))
    return search.plan_at(best), search.allocation(best)


@dataclass(frozen=True, eq=False)
class _Search:
    """The constraints that are known, each of a pair and a target.

    Attributes:
        response: of the plan to its sources; sets are those of the releases that are asked.
        targets: of the plan.
        known: the bound that a pair was charged by when it was last judged, and its tangent there.
    """

    response: PlanResponse
    targets: Sequence[EpsilonTarget]
    known: dict[PairTarget, tuple[ComposedResponse, Constraint]]

    @property
    def sources(self) -> tuple[NoiseSource, ...]:
        """The sources whose intensities are searched."""
        return self.response.sources

    def plan_at(self, intensities: FloatArray) -> Plan:
        """The plan in which the sources have these intensities, one for each of `sources`."""
        return with_intensities(self.response.base, self.sources, intensities)

    def trial_at(self, intensities: FloatArray) -> _Trial:
        """The plan at these intensities, with its guarantees."""
        return _Trial.of(self.plan_at(intensities), self.targets)

    def descend(self, start: FloatArray) -> FloatArray:
        """The intensities of least noise that successive convex programmes reach from ``start``.

        Each solution is scaled by what its worst pair needs before it is compared.
        """
        weights = self.response.weights
        best, misses = start, 0
        self.renew_constraints(self.trial_at(start), start)
        for _ in range(_ROUNDS):
            try:
                solved = self.solve().intensities
            except RunError:  # what is there holds all the same
                return best
            solved = np.maximum(solved, _FLOOR * solved.max())
            trial = self.trial_at(solved)
            self.renew_constraints(trial, solved)
            here = solved * self._needed_factor(trial) ** 2
            ratio = float(weights @ here) / float(weights @ best)
            saved = ratio < 1 - _LEAST_DESCENT
            best, misses = (here, 0) if saved else (best, misses + 1)
            if misses == _PATIENCE or (not saved and ratio < 1 + _LEAST_DESCENT):
                return best
        return best

    def _needed_factor(self, trial: _Trial) -> float:
        """The least factor on all noise stds with which the worst pair of ``trial`` meets its target.

        By the pair's tangent where it is within 10 % of the target, which is quick; else computed.
        """
        one, row = trial.rows[0]
        if one not in self.known or not 1 / _CLOSE <= _share_of_target((one, row)) <= _CLOSE:
            return trial.needed_factor
        excess = math.log(_share_of_target((one, row)))
        slope = self.known[one][1].limit + excess  # of ln ε by ln μ², which falls by 2 ln of the factor
        return math.exp(excess / (2 * slope))

    def solve(self) -> Optimum:
        """The intensities of least total variance at which every known constraint holds."""
        return minimise_variance(self.response.weights, [constraint for _, constraint in self.known.values()])

    def renew_constraints(self, trial: _Trial, intensities: FloatArray) -> None:
        """Replace the constraints of the pairs nearest to each target by those at the trial's intensities."""
        for target in self.targets:
            near = [
                (one, row)
                for one, row in trial.rows
                if one.target == target and _share_of_target((one, row)) >= _NEAR
            ]
            for one, row in near[: _CONSTRAINTS if len(self.sources) > 1 else 1]:
                found = self._tangent(trial.plan, one, row, intensities)
                if found is not None:
                    self.known[one] = found

    def _tangent(
        self, plan: Plan, one: PairTarget, row: Guarantee, intensities: FloatArray
    ) -> tuple[ComposedResponse, Constraint] | None:
        """The tangent of a pair's charge at ``intensities``, and the charge; ``None`` if no noise is needed.

        Args:
            plan: of the trial.
            one: the pair and its target.
            row: its guarantee, which says which exposed set was reported; its cheapest way of charging is
                taken.
            intensities: of the trial.
        """
        exposures = pair_charge(plan, one.pair).exposures
        reported = next(exposure for exposure in exposures if exposure.bound_name == row.bound)
        ways = list(responses_of(self.response, one.pair, reported))
        if not ways:
            return None
        way = min(ways, key=lambda each: each.epsilon(intensities))
        constraint = way.constraint(intensities, one.target.epsilon)
        return None if constraint is None else (way, constraint)

    def scale_until_confirmed(self, intensities: FloatArray) -> list[FloatArray]:
        """``intensities`` times the least factor at which account confirms all targets: 0 to 2 results.

        The second has sources of next to no noise switched off. A result that no factor confirms is left out.
        """
        tiny = intensities <= 2 * _FLOOR * intensities.max()
        tried = [intensities, np.where(tiny, 0.0, intensities)] if tiny.any() else [intensities]
        found = []
        for each in tried:
            trial = self.trial_at(each)
            if math.isfinite(trial.rows[0][1].epsilon):
                found.append(each * _least_factor(trial.plan, self.targets, 1.0) ** 2)
        return found

    def allocation(self, intensities: FloatArray) -> Allocation:
        """The allocation at ``intensities``: the constraints, their shares in the noise, what could still be
        saved.
        """
        self.renew_constraints(self.trial_at(intensities), intensities)
        optimum, spent = self.solve(), float(self.response.weights @ intensities)
        bindings = tuple(
            BindingConstraint(one, way, constraint, float(share))
            for (one, (way, constraint)), share in zip(self.known.items(), optimum.elasticities, strict=True)
        )
        left = 1 - optimum.value / spent
        told = (
            f"tangents at the plan leave room for {number(100 * left)} % less noise variance at most"
            if left > _UNTOLD
            else ""
        )
        return Allocation(self.response, intensities, spent, bindings, (told,) if told else ())
