"""How a pair's releases answer to noise: variances as linear functions of the sources' intensities.

Nothing about who sees what is known here. The ledger of the tree is evaluated with every source at
intensity 1, and once more for each source with that one at 2; the differences are the coefficients.

What an exposure allows. However participants are drawn, the epsilon of an exposure depends on noise through
``Q = sum s_r^2 / v_r`` alone (unsampled: mu^2 is the sum of Q over the releases; under one draw a round is
one Gaussian of multiplier ``1 / sqrt(Q)``, docs/accounting.md), and it grows with Q. So "epsilon is at most
E" is "Q is at most Q_0 / f^2", where f is the factor that the accountant asks of the noise behind some Q_0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sfumato.planning.sources import NoiseSource, with_intensities
from sfumato.planning.targets import ObservedPair
from sfumato.privacy.charges import noise_scale_for
from sfumato.privacy.relation import Neighbours
from sfumato.privacy.release import Exposure, Release
from sfumato.schedule.tree import TreePlan

FloatArray = npt.NDArray[np.float64]

# Beside the noise of all sources, a coefficient this small is rounding; leaving it out is on the safe side.
_ROUNDING = 1e-11
_LEAST_WEIGHT = 1e-3


@dataclass(frozen=True, eq=False)
class ReleaseResponse:
    """One exposure of a pair: ``Q(x) = sum_r squares_r / (slopes x + fixed)_r`` at intensities ``x``.

    Attributes:
        bound: which bound of the pair it is.
        squared_sensitivities: squared sensitivities times counts, ``[releases]``.
        variance_per_intensity: ``[releases, sources]``.
        fixed_variance: variance that is no source's, the channel's ``[releases]``.
        exposure: at intensity 1 of every source.
    """

    bound: str
    squared_sensitivities: FloatArray
    variance_per_intensity: FloatArray
    fixed_variance: FloatArray
    exposure: Exposure

    def signal_to_noise(self, intensities: FloatArray) -> float:
        """Q at ``intensities``; infinite where a release is bare."""
        with np.errstate(divide="ignore"):
            return float(
                (
                    self.squared_sensitivities
                    / (self.variance_per_intensity @ intensities + self.fixed_variance)
                ).sum()
            )

    @property
    def is_raw(self) -> bool:
        """Whether a release has no noise, whatever the sources do."""
        return bool(((self.variance_per_intensity.sum(axis=1) + self.fixed_variance) == 0).any())


@dataclass(frozen=True, eq=False)
class PlanResponse:
    """How a plan reacts to the intensities of its ``sources``.

    Attributes:
        base: the plan with every source at intensity 1.
        sources: whose intensities are free.
        probes: ``base`` with one source at intensity 2, for each.
    """

    base: TreePlan
    sources: tuple[NoiseSource, ...]
    probes: tuple[TreePlan, ...]

    @cached_property
    def weights(self) -> FloatArray:
        """Variance in the global model that one unit of each source's intensity causes over the training.

        Noise that the global model forgets (the edge aggregations of a resent round) counts a thousandth of
        the mean: enough to keep it finite.
        """
        start = global_variance(self.base)
        found = np.array([global_variance(probe) - start for probe in self.probes])
        return np.asarray(np.maximum(found, _LEAST_WEIGHT * found.mean()))

    def release_responses(self, pair: ObservedPair) -> tuple[ReleaseResponse, ...]:
        """One for each bound of ``pair``."""
        exposures = self.base.ledger.exposures(pair.unit, pair.coalition)
        probed = [probe.ledger.exposures(pair.unit, pair.coalition) for probe in self.probes]
        neighbours = self.base.spec.privacy.neighbours
        return tuple(
            _release_response(exposure, [each[number] for each in probed], neighbours)
            for number, exposure in enumerate(exposures)
        )

    def max_signal_to_noise(self, release_response: ReleaseResponse, epsilon: float) -> float:
        """The largest Q that keeps ``epsilon``; infinite where no noise is needed."""
        privacy = self.base.spec.privacy
        alike = _single_release(release_response.exposure)
        factor = noise_scale_for(
            (alike,), epsilon=epsilon, delta=privacy.delta, neighbours=privacy.neighbours
        )
        if factor == 0:
            return math.inf
        ((release, count),) = alike.counted
        return count * release.mu_squared(privacy.neighbours) / factor**2


def _single_release(exposure: Exposure) -> Exposure:
    """As sampled and as blind as ``exposure``, but one release a round, of multiplier 1.

    The accountant's answer for it serves every exposure of its kind: Q is all that they differ in.
    """
    (drawn,) = exposure.draws
    one = Release("", "", 1.0, 0.0, 1.0, drawn.amplifies, drawn.divides_by_drawn)
    return replace(exposure, draws=(replace(drawn, releases=(one,)),))


def measure_response(plan: TreePlan, sources: Sequence[NoiseSource]) -> PlanResponse:
    """Probe ``plan`` with each of ``sources``."""
    ones = np.ones(len(sources))
    probes = [with_intensities(plan, sources, ones + unit) for unit in np.eye(len(sources))]
    return PlanResponse(with_intensities(plan, sources, ones), tuple(sources), tuple(probes))


def global_variance(plan: TreePlan) -> float:
    """Variance a coordinate that all noise of the training leaves in the global model.

    In squared units of a parameter: every aggregation's noise in the global average, summed over the rounds,
    before a server optimizer other than plain averaging.
    """
    units = sum(plan.message_scale(number) ** 2 for number in range(plan.spec.training.rounds))
    return sum(plan.global_noise) * units


def _release_response(
    exposure: Exposure, probed: Sequence[Exposure], neighbours: Neighbours
) -> ReleaseResponse:
    sensitivities = np.array([r.sensitivity(neighbours) for r in exposure.releases])
    counts = np.array([count for _, count in exposure.counted], dtype=np.float64)
    variances = np.array([r.variance for r in exposure.releases])
    raised = np.array([[r.variance for r in each.releases] for each in probed])
    slopes = raised.T - variances[:, None]
    slopes[slopes < _ROUNDING * variances[:, None]] = 0.0
    fixed = variances - slopes.sum(axis=1)
    fixed[fixed < 1e-9 * variances] = 0.0
    counted = sensitivities > 0
    squares = (counts * sensitivities**2)[counted]
    return ReleaseResponse(exposure.bound_name, squares, slopes[counted], fixed[counted], exposure)
