"""The least noise that meets the target of every pair: which bound to use for each, and which sources.

Each pair has several sound bounds, and it is enough if one of them meets the target. For a fixed choice of
bounds the problem is convex. A local search chooses the bounds: solve, give every pair the bound that is
slackest at the solution, solve again. The old solution satisfies the new constraints, so the noise never
grows, and there are finitely many choices. The search starts once from each kind of bound, and the best
result is taken. Constraints that are tangents (`sfumato.planning.composed_response`) are then taken anew at
the solution, until the noise falls no further. The result is sound for any choice, as every bound is; it is
the least noise that this search finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.errors import RunError
from sfumato.planning.composed_response import ComposedResponse
from sfumato.planning.convex_program import Constraint, Optimum, minimise_variance
from sfumato.planning.noise_response import BoundResponse, PlanResponse, measure_response
from sfumato.planning.problem import PlanProblem
from sfumato.planning.sources import NoiseSource
from sfumato.planning.targets import PairTarget
from sfumato.schedule.base import Plan

FloatArray = npt.NDArray[np.float64]

_NEGLIGIBLE_SHARE = 1e-6  # a source that adds no more than this share to any release it is in is left out
_LEAST_SAVING = 1e-3  # noise that further sources must save, as a share, to be used
_TANGENTS = 12  # at most so many times are tangents taken anew
_LEAST_DESCENT = 1e-5  # noise that new tangents must save, as a share, to be taken again
_SLACK = 0.7  # of its limit: a constraint with less keeps its tangent


@dataclass(frozen=True, eq=False)
class BindingConstraint:
    """The bound that was used for a pair, and the noise that it costs.

    Attributes:
        pair_target: the pair and its target.
        bound_response: of the bound.
        constraint: that it set.
        elasticity: relative decrease of the total noise variance for a relative increase of the largest Q.
    """

    pair_target: PairTarget
    bound_response: BoundResponse
    constraint: Constraint
    elasticity: float


@dataclass(frozen=True, eq=False)
class Allocation:
    """Noise for every source.

    Attributes:
        response: of the plan to the sources that are used.
        intensities: of these sources.
        variance: of the noise that they cause in the global model.
        binding_constraints: one for every pair that needs noise.
        notes: messages for the user.
    """

    response: PlanResponse
    intensities: FloatArray
    variance: float
    binding_constraints: tuple[BindingConstraint, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _BoundOptions:
    """The usable bounds of a pair, each with the constraint that it sets at intensities of 1."""

    pair_target: PairTarget
    bound_responses: tuple[BoundResponse, ...]
    constraints: tuple[Constraint, ...]

    def slackest_bound(self, intensities: FloatArray) -> int:
        """The bound, by index, whose constraint is farthest below its limit at ``intensities`` (sources')."""
        return int(np.argmin([constraint.share_of_limit(intensities) for constraint in self.constraints]))

    def constraint_at(self, number: int, intensities: FloatArray, known: Constraint) -> Constraint:
        """The constraint of bound ``number``, computed at ``intensities``.

        ``known`` itself where it is slack there, or where the bound sets no constraint there.
        """
        if known.share_of_limit(intensities) < _SLACK:
            return known
        found = self.bound_responses[number].constraint(intensities, self.pair_target.target.epsilon)
        return known if found is None else found


def unattainable_pair_targets(response: PlanResponse, pair_targets: Iterable[PairTarget]) -> list[PairTarget]:
    """Those of ``pair_targets`` that no noise can meet: every bound of the pair has a release without noise.

    ``response``: of the plan to its sources.
    """
    return [one for one in pair_targets if all(bound.is_raw for bound in response.bound_responses(one.pair))]


def allocate(problem: PlanProblem) -> Allocation:
    """The noise of least variance that meets all pair targets of ``problem``, at least one.

    As far as the search of this module finds it. Extra sources are used only if they reduce the noise.

    Raises:
        MissingExtraError: cvxpy is not installed.
        RunError: the solver finds no solution.
    """
    found = _least_noise(problem.base, problem.sources, problem.pair_targets)
    if problem.extra:
        more = _least_noise(problem.base, (*problem.sources, *problem.extra), problem.pair_targets)
        if more.variance < found.variance * (1 - _LEAST_SAVING):
            return more
    return found


def _least_noise(
    plan: Plan, sources: Sequence[NoiseSource], pair_targets: Sequence[PairTarget]
) -> Allocation:
    """The allocation of least noise over ``sources``, found by solving until every source is used.

    After each solution the sources that add next to nothing are left out: the sensitivity that a multiplier
    refers to depends on which sources below add noise.

    Args:
        plan: with every source at a multiplier of 1.
        sources: that may add noise.
        pair_targets: the pairs and their targets.
    """
    while True:
        response = measure_response(plan, sources)
        found = _best_choice_of_bounds(response, pair_targets)
        busy = _used_sources(found)
        if busy.all() or not busy.any():
            return found
        sources = [source for source, used in zip(sources, busy, strict=True) if used]


def _best_choice_of_bounds(response: PlanResponse, pair_targets: Sequence[PairTarget]) -> Allocation:
    """The allocation of least noise that meets ``pair_targets``, over choices of a bound for each pair."""
    choices = _bound_options(response, pair_targets)
    if not choices:  # every target holds without noise, by δ alone
        return Allocation(response, np.zeros(len(response.sources)), 0.0, ())
    kinds = list(dict.fromkeys(r.bound for choice in choices for r in choice.bound_responses))
    best: tuple[Optimum, list[int]] | None = None
    for kind in kinds:
        chosen = [_first_of_kind(choice, kind) for choice in choices]
        end = _choose_bounds(response.weights, choices, chosen)
        if best is None or end[0].value < best[0].value:
            best = end
        if all(len(choice.bound_responses) == 1 for choice in choices):
            break
    assert best is not None  # there is a choice, so there is a kind
    chosen = best[1]
    optimum, constraints = _with_tangents_at_solution(response.weights, choices, *best)
    bindings = [
        BindingConstraint(choice.pair_target, choice.bound_responses[number], constraint, float(share))
        for choice, number, constraint, share in zip(
            choices, chosen, constraints, optimum.elasticities, strict=True
        )
    ]
    return Allocation(response, optimum.intensities, optimum.value, tuple(bindings))


def _choose_bounds(
    weights: FloatArray, options: Sequence[_BoundOptions], chosen: list[int]
) -> tuple[Optimum, list[int]]:
    """Local search over the bounds of the pairs, from ``chosen`` on.

    Every pair takes the bound that is slackest at the last solution, until the variance falls no further.

    Args:
        weights: variance in the global model by a unit of each source's intensity, ``[sources]``.
        options: the usable bounds of every pair.
        chosen: index of each pair's bound to begin with.

    Returns:
        The last solution, and the index of each pair's bound there.

    Raises:
        RunError: the solver finds no solution for ``chosen``.
    """
    best = minimise_variance(weights, [c.constraints[n] for c, n in zip(options, chosen, strict=True)])
    while True:
        better = [choice.slackest_bound(best.intensities) for choice in options]
        if better == chosen:
            return best, chosen
        try:
            found = minimise_variance(
                weights, [c.constraints[n] for c, n in zip(options, better, strict=True)]
            )
        except RunError:  # what is there holds all the same
            return best, chosen
        if found.value >= best.value * (1 - 1e-7):
            return best, chosen
        best, chosen = found, better


def _with_tangents_at_solution(
    weights: FloatArray, options: Sequence[_BoundOptions], optimum: Optimum, chosen: Sequence[int]
) -> tuple[Optimum, list[Constraint]]:
    """``optimum`` and its constraints, with tangents taken at the solution instead of at equal intensities.

    Solutions are compared, and the best is returned, with all noise scaled until the tangents there hold.
    Without tangents among the constraints nothing changes.

    Args:
        weights: variance that each source leaves, per unit of intensity, ``[sources]``.
        options: the usable bounds of each pair.
        optimum: the solution so far.
        chosen: index of each pair's bound in its ``options``.
    """
    pairs = list(zip(options, chosen, strict=True))
    constraints = [choice.constraints[number] for choice, number in pairs]
    if not any(isinstance(choice.bound_responses[number], ComposedResponse) for choice, number in pairs):
        return optimum, constraints
    best: tuple[Optimum, list[Constraint]] | None = None
    for _ in range(_TANGENTS):
        tangents = [
            choice.constraint_at(number, optimum.intensities, known)
            for (choice, number), known in zip(pairs, constraints, strict=True)
        ]
        scale = max(tangent.share_of_limit(optimum.intensities) for tangent in tangents)
        value = optimum.value * scale
        if best is not None and value >= best[0].value * (1 - _LEAST_DESCENT):
            return best
        best = Optimum(optimum.intensities * scale, value, optimum.elasticities), constraints
        constraints, optimum = tangents, minimise_variance(weights, tangents)
    assert best is not None  # there is more than one attempt
    return best


def _bound_options(response: PlanResponse, pair_targets: Sequence[PairTarget]) -> list[_BoundOptions]:
    """The usable bounds of every pair that needs noise and whose target these sources can meet.

    Of pairs with equal constraints only the first is kept.
    """
    choices: dict[object, _BoundOptions] = {}
    ones = np.ones(len(response.sources))
    for pair_target in pair_targets:
        usable = [r for r in response.bound_responses(pair_target.pair) if not r.is_raw]
        constraints = [r.constraint(ones, pair_target.target.epsilon) for r in usable]
        needed = tuple(constraint for constraint in constraints if constraint is not None)
        if not usable or len(needed) < len(usable):
            continue
        key = (
            str(pair_target.target),
            tuple(
                (c.squared_sensitivities.tobytes(), c.variance_per_intensity.tobytes(), c.limit)
                for c in needed
            ),
        )
        choices.setdefault(key, _BoundOptions(pair_target, tuple(usable), needed))
    return list(choices.values())


def _first_of_kind(choice: _BoundOptions, kind: str) -> int:
    """The index of the first bound of a pair that is called ``kind`` (flow, cut, …); 0 where none is."""
    return next(
        (n for n, bound_response in enumerate(choice.bound_responses) if bound_response.bound == kind), 0
    )


def _used_sources(found: Allocation) -> npt.NDArray[np.bool_]:
    """Mask ``[sources]`` of those that add over a millionth of the noise of some charged release."""
    busy = np.zeros(len(found.intensities), dtype=np.bool_)
    for binding in found.binding_constraints:
        parts = binding.constraint.variance_per_intensity * found.intensities
        total = parts.sum(axis=1, keepdims=True) + binding.constraint.fixed_variance[:, None]
        busy |= (parts > _NEGLIGIBLE_SHARE * total).any(axis=0)
    return busy
