"""Where devices are."""

from __future__ import annotations

import numpy as np

from sfumato.radio.units import FloatArray
from sfumato.spec.radio import REFERENCE_M


def disc_distances_m(rng: np.random.Generator, count: int, radius_m: float) -> FloatArray:
    """Distances to the centre of points uniform over a disc, without its innermost metre.

    The area within d grows as d squared, so a uniform share of the area gives the distance.

    Raises:
        ValueError: a radius of a metre or less.
    """
    if not radius_m > REFERENCE_M:
        raise ValueError(f"radius_m: got {radius_m}; must be above {REFERENCE_M:g}")
    return np.sqrt(REFERENCE_M**2 + rng.random(count) * (radius_m**2 - REFERENCE_M**2))
