"""The least noise that meets the target of every pair: which bound to use for each, and which sources.

Each pair has several sound bounds, and it is enough if one of them meets the target. For a fixed choice of
bounds the problem is convex. A local search chooses the bounds: solve, give every pair the bound that is
slackest at the solution, solve again. The old solution satisfies the new constraints, so the noise never
grows, and there are finitely many choices. The search starts once from each kind of bound, and the best
result is taken. The result is sound for any choice, as every bound is; it is the least noise that this
search finds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.errors import RunError
from sfumato.planning.convex_program import Constraint, Optimum, minimise_variance
from sfumato.planning.noise_response import PlanResponse, ReleaseResponse, measure_response
from sfumato.planning.sources import NoiseSource
from sfumato.planning.targets import EpsilonTarget, ObservedPair
from sfumato.schedule.tree import TreePlan

FloatArray = npt.NDArray[np.float64]

_NEGLIGIBLE_SHARE = 1e-6  # a source that adds no more than this share to any release it is in is left out
_LEAST_SAVING = 1e-3  # noise that further sources must save, as a share, to be used


@dataclass(frozen=True)
class PairTarget:
    """``target`` for one of the pairs it is about."""

    target: EpsilonTarget
    pair: ObservedPair


@dataclass(frozen=True, eq=False)
class BindingConstraint:
    """The bound that was used for a pair, and the noise that it costs.

    Attributes:
        pair_target: the pair and its target.
        release_response: of the bound.
        elasticity: relative decrease of the total noise variance for a relative increase of the largest Q.
    """

    pair_target: PairTarget
    release_response: ReleaseResponse
    elasticity: float


@dataclass(frozen=True, eq=False)
class Allocation:
    """Noise for every source.

    Attributes:
        response: of the plan to the sources that are used.
        intensities: of these sources.
        variance: of the noise that they cause in the global model.
        binding_constraints: one for every pair that needs noise.
    """

    response: PlanResponse
    intensities: FloatArray
    variance: float
    binding_constraints: tuple[BindingConstraint, ...]


@dataclass(frozen=True, eq=False)
class _BoundOptions:
    """The usable bounds of a pair, each with the largest Q that it allows."""

    pair_target: PairTarget
    release_responses: tuple[ReleaseResponse, ...]
    limits: tuple[float, ...]

    def slackest_bound(self, intensities: FloatArray) -> int:
        ratios = [
            r.signal_to_noise(intensities) / m
            for r, m in zip(self.release_responses, self.limits, strict=True)
        ]
        return int(np.argmin(ratios))

    def constraint(self, number: int) -> Constraint:
        release_response = self.release_responses[number]
        return Constraint(
            release_response.squared_sensitivities,
            release_response.variance_per_intensity,
            release_response.fixed_variance,
            self.limits[number],
        )


def unattainable_pair_targets(response: PlanResponse, pair_targets: Iterable[PairTarget]) -> list[PairTarget]:
    """Pairs whose target no noise of these sources can meet."""
    return [
        d
        for d in pair_targets
        if all(release_response.is_raw for release_response in response.release_responses(d.pair))
    ]


def allocate(
    plan: TreePlan,
    sources: Sequence[NoiseSource],
    extra: Sequence[NoiseSource],
    pair_targets: Sequence[PairTarget],
) -> Allocation:
    """The least noise for ``pair_targets``, from ``sources``, and from ``extra`` ones if they reduce it.

    Args:
        plan: the plan whose noise is replaced.
        sources: sources that together can meet every target, except towards observers trusted with raw
            updates: there only ``extra`` sources below such an observer give a finite ε.
        extra: further sources that may reduce the noise.
        pair_targets: at least one.

    Raises:
        MissingExtraError: cvxpy is not installed.
        RunError: the solver finds no solution.
    """
    found = _least_noise(plan, sources, pair_targets)
    if extra:
        more = _least_noise(plan, (*sources, *extra), pair_targets)
        if more.variance < found.variance * (1 - _LEAST_SAVING):
            return more
    return found


def _least_noise(
    plan: TreePlan, sources: Sequence[NoiseSource], pair_targets: Sequence[PairTarget]
) -> Allocation:
    """Solve, leave out unused sources, and solve again until all sources are used.

    The sensitivity that a multiplier refers to depends on which sources below add noise.
    """
    while True:
        response = measure_response(plan, sources)
        found = _best_descent(response, pair_targets)
        busy = _used_sources(found)
        if busy.all() or not busy.any():
            return found
        sources = [source for source, used in zip(sources, busy, strict=True) if used]


def _best_descent(response: PlanResponse, pair_targets: Sequence[PairTarget]) -> Allocation:
    choices = _bound_options(response, pair_targets)
    if not choices:  # every target holds without noise, by δ alone
        return Allocation(response, np.zeros(len(response.sources)), 0.0, ())
    kinds = list(dict.fromkeys(r.bound for choice in choices for r in choice.release_responses))
    best: tuple[Optimum, list[int]] | None = None
    for kind in kinds:
        chosen = [_first_of_kind(choice, kind) for choice in choices]
        end = _descend(response.weights, choices, chosen)
        if best is None or end[0].value < best[0].value:
            best = end
        if all(len(choice.release_responses) == 1 for choice in choices):
            break
    assert best is not None  # there is a choice, so there is a kind
    optimum, chosen = best
    bindings = [
        BindingConstraint(choice.pair_target, choice.release_responses[number], float(share))
        for choice, number, share in zip(choices, chosen, optimum.elasticities, strict=True)
    ]
    return Allocation(response, optimum.intensities, optimum.value, tuple(bindings))


def _descend(
    weights: FloatArray, options: Sequence[_BoundOptions], chosen: list[int]
) -> tuple[Optimum, list[int]]:
    best = minimise_variance(weights, [c.constraint(n) for c, n in zip(options, chosen, strict=True)])
    while True:
        better = [choice.slackest_bound(best.intensities) for choice in options]
        if better == chosen:
            return best, chosen
        try:
            found = minimise_variance(
                weights, [c.constraint(n) for c, n in zip(options, better, strict=True)]
            )
        except RunError:  # what is there holds all the same
            return best, chosen
        if found.value >= best.value * (1 - 1e-7):
            return best, chosen
        best, chosen = found, better


def _bound_options(response: PlanResponse, pair_targets: Sequence[PairTarget]) -> list[_BoundOptions]:
    """Pairs that need noise and whose target these sources can meet; of equal constraints only the first."""
    choices: dict[object, _BoundOptions] = {}
    for pair_target in pair_targets:
        usable = [r for r in response.release_responses(pair_target.pair) if not r.is_raw]
        most = [
            response.max_signal_to_noise(release_response, pair_target.target.epsilon)
            for release_response in usable
        ]
        if not usable or math.inf in most:
            continue
        key = (
            str(pair_target.target),
            tuple(
                (r.squared_sensitivities.tobytes(), r.variance_per_intensity.tobytes(), m)
                for r, m in zip(usable, most, strict=True)
            ),
        )
        choices.setdefault(key, _BoundOptions(pair_target, tuple(usable), tuple(most)))
    return list(choices.values())


def _first_of_kind(choice: _BoundOptions, kind: str) -> int:
    return next(
        (n for n, release_response in enumerate(choice.release_responses) if release_response.bound == kind),
        0,
    )


def _used_sources(found: Allocation) -> npt.NDArray[np.bool_]:
    """Whether each source contributes to the noise of some release that is charged."""
    busy = np.zeros(len(found.intensities), dtype=np.bool_)
    for binding in found.binding_constraints:
        parts = binding.release_response.variance_per_intensity * found.intensities
        total = parts.sum(axis=1, keepdims=True) + binding.release_response.fixed_variance[:, None]
        busy |= (parts > _NEGLIGIBLE_SHARE * total).any(axis=0)
    return busy
