"""How a charge depends on the sources where its releases compose each in its own way.

A record is in every message with a probability of its own, so messages of different lengths, or with
different noise, do not amount to one Gaussian: ε is a function of several signal-to-noise ratios
``Q_c = sum_r s_r^2 / v_r``, one for each *component*, the releases that compose alike. The convex programme
takes the tangent of ``ln ε`` at given ratios instead (`ComposedResponse.constraint`). It is exact there, and
the search solves again with the tangent at its solution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sfumato.planning.convex_program import Constraint
from sfumato.privacy.accountant import composed_epsilon
from sfumato.privacy.charges import Composition
from sfumato.privacy.noise_scale import scale_for
from sfumato.privacy.records import RecordCharge
from sfumato.privacy.release import total_mu_squared
from sfumato.privacy.sampling import GaussianTerm, Neighbours

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_NEAR = 1.3  # how far from the target, as a factor, the tangent of ε may be taken
_STEP = 0.05  # of ln Q, for the tangent: well above the error of a composition
# Relative to the noise of all sources, a coefficient this small is rounding error. Leaving it out is safe:
# the planned noise is then a little larger.
_ROUNDING = 1e-11
_FIXED_ROUNDING = 1e-9


def linear_variances(variances: FloatArray, raised: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The variance of each release as a linear function of the sources' intensities.

    Args:
        variances: with every source at intensity 1, ``[releases]``.
        raised: the same with one source after the other at intensity 2, ``[releases, sources]``.

    Returns:
        Variance per unit of intensity ``[releases, sources]``, and the variance that no source adds
        ``[releases]``; rounding errors are set to 0.
    """
    slopes = raised - variances[:, None]
    slopes[slopes < _ROUNDING * variances[:, None]] = 0.0
    fixed = variances - slopes.sum(axis=1)
    fixed[fixed < _FIXED_ROUNDING * variances] = 0.0
    return slopes, fixed


def any_without_noise(per_intensity: FloatArray, fixed: FloatArray) -> bool:
    """Whether some release has no noise, however much the sources add.

    ``per_intensity``: variance per unit of intensity, ``[releases, sources]``; ``fixed``: variance that no
    source adds, ``[releases]``.
    """
    return bool(((per_intensity.sum(axis=1) + fixed) == 0).any())


@dataclass(frozen=True, eq=False)
class ComposedResponse:
    """How the ε of one way to charge a pair depends on the sources' intensities, where terms are composed.

    Attributes:
        bound: which bound of the pair it is.
        squared_sensitivities: ``[releases]``.
        variance_per_intensity: ``[releases, sources]``.
        fixed_variance: variance that no source adds, ``[releases]``.
        component: of each release.
        terms: one for each component, at whatever noise.
        neighbours: the relation they refer to.
        delta: of the targets.
    """

    bound: str
    squared_sensitivities: FloatArray
    variance_per_intensity: FloatArray
    fixed_variance: FloatArray
    component: IntArray
    terms: tuple[GaussianTerm, ...]
    neighbours: Neighbours
    delta: float

    @property
    def is_raw(self) -> bool:
        """Whether some release has no noise whatever the intensities, so that ε is infinite."""
        return any_without_noise(self.variance_per_intensity, self.fixed_variance)

    def epsilon(self, intensities: FloatArray) -> float:
        """ε at ``intensities``, squared noise multipliers ``[sources]``; ∞ without noise."""
        return self._epsilon_at(self._signal_to_noise(intensities))

    def constraint(self, intensities: FloatArray, epsilon: float) -> Constraint | None:
        """The linear constraint for "ε is at most ``epsilon``" near ``intensities`` ``[sources]``.

        It is the tangent at ``intensities``; ``None`` if no noise is needed. Where the ε of ``intensities``
        is far from ``epsilon``, all noise is scaled to meet it first. With ``h_c`` the derivative of ``ln ε``
        by ``ln Q_c``: ``sum h_c Q'_c / Q_c <= sum h_c + ln(epsilon / ε)``.
        """
        ratios = self._signal_to_noise(intensities)
        found = self._epsilon_at(ratios)
        if not epsilon / _NEAR <= found <= epsilon * _NEAR:
            ways = (Composition(self._terms_at(ratios), self.neighbours, ""),)
            factor = scale_for(ways, epsilon=epsilon, delta=self.delta)
            if factor == 0:
                return None
            ratios = ratios / factor**2
            found = self._epsilon_at(ratios)
        raised = np.exp(_STEP * np.eye(len(ratios))) * ratios
        slopes = np.array([math.log(self._epsilon_at(each) / found) / _STEP for each in raised])
        return Constraint(
            self.squared_sensitivities * (slopes / ratios)[self.component],
            self.variance_per_intensity,
            self.fixed_variance,
            float(slopes.sum()) + math.log(epsilon / found),
        )

    def limit_growth(self, constraint: Constraint, epsilon: float) -> float:
        """By how many percent the limit of ``constraint`` grows if ``epsilon`` grows by 1 %."""
        return 1.0 / constraint.limit

    def _signal_to_noise(self, intensities: FloatArray) -> FloatArray:
        """Q of every component, ``[components]``, at ``intensities`` ``[sources]``.

        It is the sum of squared sensitivities over variances.
        """
        variances = self.variance_per_intensity @ intensities + self.fixed_variance
        with np.errstate(divide="ignore"):
            ratios = np.bincount(self.component, weights=self.squared_sensitivities / variances)
        return ratios.astype(np.float64)

    def _terms_at(self, ratios: FloatArray) -> tuple[GaussianTerm, ...]:
        """The terms at signal-to-noise ``ratios`` ``[components]``, above 0: multipliers are 1/√ratio."""
        found = zip(self.terms, ratios, strict=True)
        return tuple(replace(term, multiplier=float(ratio) ** -0.5) for term, ratio in found)

    def _epsilon_at(self, ratios: FloatArray) -> float:
        """The composed ε at these signal-to-noise ``ratios`` ``[components]``."""
        return composed_epsilon(self._terms_at(ratios), self.neighbours, self.delta)[0]


def record_response(charge: RecordCharge, probed: Sequence[RecordCharge], delta: float) -> ComposedResponse:
    """The response of a record's ε to the sources' intensities, where random draws of the record count.

    Args:
        charge: with every source at intensity 1.
        probed: for each source, with that source at intensity 2.
        delta: of the targets.
    """
    squares, variances, raised, component = list[float](), list[float](), list[list[float]](), list[int]()
    numbers: dict[object, int] = {}
    terms: list[GaussianTerm] = []
    terms_of_probes = [each.drawn_terms() for each in probed]
    for place, (part, term) in enumerate(zip(charge.drawn, charge.drawn_terms(), strict=True)):
        if term.multiplier == math.inf:
            continue  # nothing in it depends on the record
        alike = (term, *(round(found[place].multiplier / term.multiplier, 9) for found in terms_of_probes))
        number = numbers.setdefault(alike, len(terms))
        if number < len(terms):  # the same releases, drawn anew
            terms[number] = replace(terms[number], count=terms[number].count + term.count)
            continue
        terms.append(term)
        of_probes = [each.drawn[place].releases for each in probed]
        units = _sensitivity_unit(term, total_mu_squared(part.releases, "replace"))
        for index, release in enumerate(part.releases):
            if release.depends_on_unit:
                squares.append(units * release.sensitivity("replace") ** 2)
                variances.append(release.variance)
                raised.append([releases[index].variance for releases in of_probes])
                component.append(number)
    slopes, fixed = linear_variances(
        np.array(variances), np.array(raised).reshape(len(variances), len(probed))
    )
    return ComposedResponse(
        "drawn record",
        np.array(squares),
        slopes,
        fixed,
        np.array(component, dtype=np.int64),
        tuple(terms),
        charge.neighbours,
        delta,
    )


def _sensitivity_unit(term: GaussianTerm, total: float) -> float:
    """The factor that puts squared sensitivities of a term's releases into the unit of its sampling.

    ``total``: μ² of these releases, summed.
    """
    return 1.0 if term.multiplier == 0 else 1.0 / (term.multiplier**2 * total)
