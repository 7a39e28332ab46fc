"""The least noise that keeps every demand: which bound to use for each pair, which sources to use at all.

Each pair has several sound bounds, and one of them keeping the target is enough. For a fixed choice of
bounds the problem is convex. The choice descends: solve, give every pair the bound that is slackest at the
solution, solve again. The old solution keeps the new constraints, so noise never grows, and there are
finitely many choices. It starts once from each kind of bound; the best end counts. What comes out is
sound whatever the choice (every bound is), and the least noise as far as this descent finds it.
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
    """A demand's bound that was used, and what it costs.

    Attributes:
        pair_target: whose.
        release_response: the bound.
        elasticity: relative decrease of the total noise variance for a relative increase of the largest Q.
    """

    pair_target: PairTarget
    release_response: ReleaseResponse
    elasticity: float


@dataclass(frozen=True, eq=False)
class Allocation:
    """Noise for every source.

    Attributes:
        response: of the sources used.
        intensities: of them.
        variance: that they cause in the global model.
        binding_constraints: one for every demand that needs noise.
    """

    response: PlanResponse
    intensities: FloatArray
    variance: float
    binding_constraints: tuple[BindingConstraint, ...]


@dataclass(frozen=True, eq=False)
class _BoundOptions:
    """A demand's usable bounds with the largest Q of each."""

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
    """Demands that no noise of the response's sources can meet."""
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
    """The least noise for ``pair_targets``, by ``sources``, and by ``extra`` ones where they save any.

    Args:
        plan: whose noise is to be replaced.
        sources: that together can meet every demand, but for those that only ``extra`` ones give rise to:
            trust has an observer see raw updates, and a top-up below it makes an epsilon of that.
        extra: that may help.
        pair_targets: at least one.

    Raises:
        MissingExtraError: cvxpy is not installed.
        RunError: the solver gives up.
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
    """Solve, leave out idle sources, solve again: what a multiplier means depends on who noises below."""
    while True:
        response = measure_response(plan, sources)
        found = _best_descent(response, pair_targets)
        busy = _used_sources(found)
        if busy.all() or not busy.any():
            return found
        sources = [source for source, used in zip(sources, busy, strict=True) if used]


def _best_descent(response: PlanResponse, pair_targets: Sequence[PairTarget]) -> Allocation:
    choices = _bound_options(response, pair_targets)
    if not choices:  # delta alone covers every demand
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
    """Demands that need noise and that these sources can meet; of those that ask the same, the first."""
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
    """Sources that matter to some release that is charged."""
    busy = np.zeros(len(found.intensities), dtype=np.bool_)
    for binding in found.binding_constraints:
        parts = binding.release_response.variance_per_intensity * found.intensities
        total = parts.sum(axis=1, keepdims=True) + binding.release_response.fixed_variance[:, None]
        busy |= (parts > _NEGLIGIBLE_SHARE * total).any(axis=0)
    return busy
