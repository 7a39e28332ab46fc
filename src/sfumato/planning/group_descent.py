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
from functools import partial
from typing import cast

import numpy as np
import numpy.typing as npt

from sfumato.errors import RunError
from sfumato.planning.allocate import Allocation, BindingConstraint
from sfumato.planning.certification import Trial, least_confirmed_factor, share_of_target
from sfumato.planning.composed_response import ComposedResponse
from sfumato.planning.convex_program import Constraint, Optimum, minimise_variance
from sfumato.planning.exposure_response import responses_of
from sfumato.planning.noise_response import PlanResponse, measure_response
from sfumato.planning.problem import PlanProblem
from sfumato.planning.sources import NoiseSource, with_intensities, with_noise
from sfumato.planning.targets import EpsilonTarget, PairTarget, pair_charge
from sfumato.privacy.guarantee import Guarantee
from sfumato.rounding import number
from sfumato.schedule.base import Plan
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.noise.calibration import first_trial_multiplier
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


def scale_to_targets(plan: Plan, targets: Sequence[EpsilonTarget]) -> Plan:
    """``plan`` with all its noise stds scaled by the least factor at which account confirms ``targets``."""
    largest = max(row.multipliers[0] for row in _noise_of(plan).sources)
    start = _with_noise_scaled(plan, 1 / largest)
    return _with_noise_scaled(start, _least_multiplier(start, targets))


def _least_multiplier(plan: Plan, targets: Sequence[EpsilonTarget]) -> float:
    """The least factor on all noise stds of ``plan`` at which account confirms ``targets``.

    The search begins where that of one multiplier for all groups does: the largest of ``plan`` is 1.
    """
    first = max(first_trial_multiplier(cast("GroupPlan", plan), target.epsilon) for target in targets)
    return least_confirmed_factor(partial(_with_noise_scaled, plan), targets, first)


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
    """The plan of least noise found whose guarantees meet all ``targets``, and its allocation.

    The search is local: another plan may have less noise. ``problem``: the plan to change, and its sources.

    Raises:
        MissingExtraError: cvxpy is not installed.
        SpecError: no target needs any noise.
        RunError: the solver finds no solution.
    """
    response = measure_response(problem.base, problem.sources)
    search = _Search(response, targets, {})
    equal = np.full(len(problem.sources), _least_multiplier(response.base, targets) ** 2)
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
        """The plan in which the sources have ``intensities`` ``[sources]``."""
        return with_intensities(self.response.base, self.sources, intensities)

    def trial_at(self, intensities: FloatArray) -> Trial:
        """The plan at ``intensities`` (squared multipliers, ``[sources]``), with its guarantees."""
        return Trial.of(self.plan_at(intensities), self.targets)

    def descend(self, start: FloatArray) -> FloatArray:
        """The intensities ``[sources]`` of least noise that convex programmes reach from ``start``.

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

    def _needed_factor(self, trial: Trial) -> float:
        """The least factor on all noise stds with which the worst pair of ``trial`` meets its target.

        By the pair's tangent where it is within 10 % of the target, which is quick; else computed.
        """
        one, row = trial.rows[0]
        if one not in self.known or not 1 / _CLOSE <= share_of_target((one, row)) <= _CLOSE:
            return trial.needed_factor
        excess = math.log(share_of_target((one, row)))
        slope = self.known[one][1].limit + excess  # of ln ε by ln μ², which falls by 2 ln of the factor
        return math.exp(excess / (2 * slope))

    def solve(self) -> Optimum:
        """The intensities of least total variance at which every known constraint holds."""
        return minimise_variance(self.response.weights, [constraint for _, constraint in self.known.values()])

    def renew_constraints(self, trial: Trial, intensities: FloatArray) -> None:
        """Replace the constraints of the pairs nearest to each target by those at the trial's intensities."""
        for target in self.targets:
            near = [
                (one, row)
                for one, row in trial.rows
                if one.target == target and share_of_target((one, row)) >= _NEAR
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

        Each ``[sources]``. The second has sources of next to no noise switched off. A result that no factor
        confirms is left out.
        """
        tiny = intensities <= 2 * _FLOOR * intensities.max()
        tried = [intensities, np.where(tiny, 0.0, intensities)] if tiny.any() else [intensities]
        found = []
        for each in tried:
            trial = self.trial_at(each)
            if math.isfinite(trial.rows[0][1].epsilon):
                scaled = partial(_with_noise_scaled, trial.plan)
                found.append(each * least_confirmed_factor(scaled, self.targets) ** 2)
        return found

    def allocation(self, intensities: FloatArray) -> Allocation:
        """The constraints at ``intensities`` and their shares in the noise, and what could still be saved.

        ``intensities``: squared multipliers, ``[sources]``.
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
