"""The variance of every release of a pair, as a linear function of the sources' intensities.

This module has no rules of visibility of its own. The releases of the tree are evaluated with every source at
intensity 1, and once more for each source with that source at intensity 2; the differences are the
coefficients.

The limit that a target sets. However participants are drawn, the ε of a device depends on the noise only
through the signal-to-noise ratio ``Q = sum s_r^2 / v_r`` and grows with it. (Without sampling μ² is the sum
of Q over the releases; with one draw a round, a round is one Gaussian of multiplier ``1 / sqrt(Q)``, see
docs/accounting.md. Rounds of several trees are planned without sampling only.) So "ε is at most E" is the
same as "Q is at most Q_0 / f^2", where f is the factor by which the accountant scales the noise of an
exposure with ratio Q_0 to reach E. A record whose draws count is another matter
(`sfumato.planning.composed_response`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sfumato.families import family_of
from sfumato.planning.composed_response import (
    ComposedResponse,
    any_without_noise,
    linear_variances,
    record_response,
)
from sfumato.planning.convex_program import Constraint
from sfumato.planning.sources import NoiseSource, with_intensities
from sfumato.planning.targets import pair_charge
from sfumato.privacy.noise_scale import noise_scale_for
from sfumato.privacy.release import Exposure, Release
from sfumato.privacy.sampling import Neighbours
from sfumato.schedule.base import Plan
from sfumato.schedule.rows.observers import ObservedUnit

FloatArray = npt.NDArray[np.float64]

_LEAST_WEIGHT = 1e-3
_STEP = 0.05  # in ln epsilon, for the growth of a limit: well above the error of a root under sampling


@dataclass(frozen=True, eq=False)
class ReleaseResponse:
    """One exposure of a pair: ``Q(x) = sum_r squared_sensitivities_r / variance_r(x)`` at intensities ``x``.

    The variances are ``variance_per_intensity x + fixed_variance``.

    Attributes:
        bound: which bound of the pair it is.
        squared_sensitivities: squared sensitivities times counts, ``[releases]``.
        variance_per_intensity: ``[releases, sources]``.
        fixed_variance: variance that no source adds (the radio channel's), ``[releases]``.
        exposure: with every source at intensity 1.
        neighbours: the relation that it is charged under.
        delta: of the targets.
    """

    bound: str
    squared_sensitivities: FloatArray
    variance_per_intensity: FloatArray
    fixed_variance: FloatArray
    exposure: Exposure
    neighbours: Neighbours
    delta: float

    @property
    def is_raw(self) -> bool:
        """Whether some release has no noise whatever the intensities, so that ε is infinite."""
        return any_without_noise(self.variance_per_intensity, self.fixed_variance)

    def constraint(self, intensities: FloatArray, epsilon: float) -> Constraint | None:
        """The constraint "ε is at most ``epsilon``"; ``None`` if no noise is needed.

        It is exact, so ``intensities``, at which other responses take a tangent, make no difference.
        """
        limit = self._max_signal_to_noise(epsilon)
        if math.isinf(limit):
            return None
        return Constraint(self.squared_sensitivities, self.variance_per_intensity, self.fixed_variance, limit)

    def limit_growth(self, constraint: Constraint, epsilon: float) -> float:
        """By how many percent the limit of ``constraint`` grows if ``epsilon`` grows by 1 %."""
        above = self._max_signal_to_noise(epsilon * math.exp(_STEP))
        below = self._max_signal_to_noise(epsilon * math.exp(-_STEP))
        return math.log(above / below) / (2 * _STEP)

    def _max_signal_to_noise(self, epsilon: float) -> float:
        """The largest Q at which ε is at most ``epsilon``; infinite if no noise is needed."""
        alike = _single_release(self.exposure)
        factor = noise_scale_for((alike,), epsilon=epsilon, delta=self.delta, neighbours=self.neighbours)
        if factor == 0:
            return math.inf
        ((release, count),) = alike.counted_releases
        return count * release.mu_squared(self.neighbours) / factor**2


BoundResponse: TypeAlias = ReleaseResponse | ComposedResponse


@dataclass(frozen=True, eq=False)
class PlanResponse:
    """How the releases of a plan depend on the intensities of its ``sources``.

    Attributes:
        base: the plan with every source at intensity 1.
        sources: the sources whose intensities are to be chosen.
        probes: for each source, ``base`` with that source at intensity 2.
    """

    base: Plan
    sources: tuple[NoiseSource, ...]
    probes: tuple[Plan, ...]

    @cached_property
    def weights(self) -> FloatArray:
        """The variance that a unit of each source's intensity leaves in the global model, ``[sources]``.

        Noise that does not reach the global model (of edge aggregations, if updates are resent) gets a
        thousandth of the mean weight, so that it stays finite.
        """
        start = global_variance(self.base)
        found = np.array([global_variance(probe) - start for probe in self.probes])
        return np.asarray(np.maximum(found, _LEAST_WEIGHT * found.mean()))

    def bound_responses(self, pair: ObservedUnit) -> tuple[BoundResponse, ...]:
        """The responses of the ε of ``pair`` to the sources, one for each sound way to charge it.

        A record can be charged as if its whole device were replaced, and where its draws count, by them. The
        cheapest exposed set is not among the ways, as which one that is depends on the noise: it can only
        lower ε.
        """
        charge, *probed = (pair_charge(plan, pair) for plan in (self.base, *self.probes))
        delta = self.base.spec.privacy.delta
        neighbours: Neighbours = charge.neighbours if charge.record is None else "replace"
        found: list[BoundResponse] = [
            _release_response(exposure, [probe.exposures[number] for probe in probed], neighbours, delta)
            for number, exposure in enumerate(charge.exposures)
            if exposure.bound_name != "min-cost"
        ]
        record = charge.record
        if record is not None and any(map(record.counts_draws, charge.exposures)):
            of_probes = [probe.record for probe in probed if probe.record is not None]
            found.insert(0, record_response(record, of_probes, delta))
        return tuple(found)


def _single_release(exposure: Exposure) -> Exposure:
    """An exposure sampled like ``exposure``, with one release of multiplier 1 in every round.

    What the accountant finds for it holds for every exposure sampled alike, as they differ in Q only. Noise
    that is there by chance is left out: with it ε is smaller. Rounds of several trees are one release:
    without sampling only the sum over all of them counts.
    """
    drawn = exposure.draws[0]
    if len(exposure.draws) > 1:  # rounds of several trees, in which everybody takes part
        drawn = replace(drawn, count=1)
    one = Release("", "", 1.0, 0.0, 1.0, drawn.amplifies, drawn.divides_by_drawn)
    return replace(exposure, draws=(replace(drawn, releases=(one,), drawn_noise=()),))


def measure_response(plan: Plan, sources: Sequence[NoiseSource]) -> PlanResponse:
    """The response of the releases of ``plan`` to ``sources``: variances as linear functions of intensities.

    The plan is evaluated once with all at 1, and for each source once more with that one at 2.
    """
    ones = np.ones(len(sources))
    probes = [with_intensities(plan, sources, ones + unit) for unit in np.eye(len(sources))]
    return PlanResponse(with_intensities(plan, sources, ones), tuple(sources), tuple(probes))


def global_variance(plan: Plan) -> float:
    """Variance per parameter of all noise that is in the global model after the last round.

    In squared units of a parameter. Of groups, which have a model each: the mean over the groups.
    """
    return family_of(plan.spec).planning().variance(plan)


def _release_response(
    exposure: Exposure, probed: Sequence[Exposure], neighbours: Neighbours, delta: float
) -> ReleaseResponse:
    """How the variances of an exposure depend on the intensities.

    Args:
        exposure: with every source at intensity 1.
        probed: for each source, with that source at intensity 2.
        neighbours: the relation that it is charged under.
        delta: of the targets.
    """
    sensitivities = np.array([r.sensitivity(neighbours) for r in exposure.releases])
    counts = np.array([count for _, count in exposure.counted_releases], dtype=np.float64)
    variances = np.array([r.variance for r in exposure.releases])
    raised = np.array([[r.variance for r in each.releases] for each in probed])
    slopes, fixed = linear_variances(variances, raised.T)
    counted = sensitivities > 0
    squares = (counts * sensitivities**2)[counted]
    return ReleaseResponse(
        exposure.bound_name, squares, slopes[counted], fixed[counted], exposure, neighbours, delta
    )
