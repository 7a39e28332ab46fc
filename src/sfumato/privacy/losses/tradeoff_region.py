"""What (ε, δ) says of whoever tests two neighbouring worlds against each other."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt


def allowed_tpr(fpr: npt.ArrayLike, *, epsilon: float, delta: float) -> npt.NDArray[np.float64]:
    """The largest true-positive rate that (ε, δ) allows at each false-positive rate (Kairouz et al. 2015).

    Args:
        fpr: in [0, 1], any shape.
        epsilon: at least 0; may be infinite.
        delta: in [0, 1].
    """
    rates = np.asarray(fpr, dtype=np.float64)
    if math.isinf(epsilon):
        return np.ones_like(rates)
    with np.errstate(over="ignore"):
        steep = np.exp(epsilon) * rates + delta
    flat = 1 - math.exp(-epsilon) * (1 - delta - rates)
    return np.asarray(np.clip(np.minimum(steep, flat), 0.0, 1.0), dtype=np.float64)
