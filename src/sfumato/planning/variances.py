"""The variances of releases as linear functions of the sources' intensities, from a ledger and its probes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# Relative to the noise of all sources, a coefficient this small is rounding error. Leaving it out is safe:
# the planned noise is then a little larger.
_ROUNDING = 1e-11
_FIXED_ROUNDING = 1e-9


def linear_variances(variances: FloatArray, raised: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Variance per intensity ``[releases, sources]``, and the variance that no source adds ``[releases]``.

    Args:
        variances: with every source at intensity 1, ``[releases]``.
        raised: the same with one source after the other at intensity 2, ``[releases, sources]``.
    """
    slopes = raised - variances[:, None]
    slopes[slopes < _ROUNDING * variances[:, None]] = 0.0
    fixed = variances - slopes.sum(axis=1)
    fixed[fixed < _FIXED_ROUNDING * variances] = 0.0
    return slopes, fixed


def any_without_noise(per_intensity: FloatArray, fixed: FloatArray) -> bool:
    """Whether a release of such variances has no noise at any intensities."""
    return bool(((per_intensity.sum(axis=1) + fixed) == 0).any())
