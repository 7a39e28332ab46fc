"""An estimate (no bound) of ε from canaries in one run of high dimension (Andrew et al. 2023).

In d dimensions a random direction has a cosine of about N(0, 1/d) with anything that does not depend on it.
Cosines of what an observer saw with the directions that were put in are fitted by N(m, s²), and ε is that
of distinguishing the two normals. It is exact for a Gaussian mechanism as d and the number of canaries grow.
At finite d, or for other mechanisms, it may be too small or too large, so it is never compared with an upper
bound.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

_LARGEST_EPSILON = 1e4


def epsilon_estimate(cosines: npt.ArrayLike, dimension: int, *, delta: float) -> float:
    """ε at ``delta`` of N(0, 1/d) against the normal that fits ``cosines``.

    Args:
        cosines: of the observation with every canary that was put in, ``[canaries]``, two or more.
        dimension: d.
        delta: in (0, 1).

    Raises:
        ValueError: fewer than two canaries.
    """
    values = np.asarray(cosines, dtype=np.float64)
    if len(values) < 2:
        raise ValueError(f"cosines: got {len(values)}; must be two or more")
    mean = float(values.mean()) * math.sqrt(dimension)
    std = float(values.std(ddof=1)) * math.sqrt(dimension)
    return epsilon_between_normals(mean, std, delta=delta)


def epsilon_between_normals(mean: float, std: float, *, delta: float) -> float:
    """Smallest ε ≥ 0 at which N(0, 1) and N(mean, std²) are (ε, delta)-indistinguishable, both ways."""

    def excess(epsilon: float) -> float:
        there = _hockey_stick(0.0, 1.0, mean, std, epsilon)
        back = _hockey_stick(mean, std, 0.0, 1.0, epsilon)
        return max(there, back) - delta

    if std == 0:
        return math.inf
    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
        if high > _LARGEST_EPSILON:
            return math.inf
    return float(optimize.brentq(excess, 0.0, high, xtol=1e-9))


def _hockey_stick(mean_p: float, std_p: float, mean_q: float, std_q: float, epsilon: float) -> float:
    """sup_A P(A) − e^ε Q(A): over the set where log p − log q > ε, which a quadratic bounds."""
    # log p − log q − ε = a x² + b x + c
    a = 0.5 / std_q**2 - 0.5 / std_p**2
    b = mean_p / std_p**2 - mean_q / std_q**2
    c = 0.5 * (mean_q / std_q) ** 2 - 0.5 * (mean_p / std_p) ** 2 + math.log(std_q / std_p) - epsilon
    if abs(a) < 1e-12 * max(1 / std_p**2, 1 / std_q**2):
        if b == 0:
            return max(0.0, 1 - math.exp(epsilon)) if c > 0 else 0.0
        pieces = [(-c / b, math.inf)] if b > 0 else [(-math.inf, -c / b)]
    else:
        square = b * b - 4 * a * c
        if square <= 0:
            pieces = [(-math.inf, math.inf)] if a > 0 else []
        else:
            low, high = sorted(((-b - math.sqrt(square)) / (2 * a), (-b + math.sqrt(square)) / (2 * a)))
            pieces = [(-math.inf, low), (high, math.inf)] if a > 0 else [(low, high)]
    total = 0.0
    for start, stop in pieces:
        total += _probability_between(start, stop, mean_p, std_p)
        log_q = math.log(max(_probability_between(start, stop, mean_q, std_q), 1e-300))
        total -= math.exp(min(epsilon + log_q, 700.0))
    return max(0.0, total)


def _probability_between(start: float, stop: float, mean: float, std: float) -> float:
    """P(start < X < stop) for a normal X, without cancelling in the upper tail."""
    low, high = (start - mean) / std, (stop - mean) / std
    if low > 0:
        low, high = -high, -low
    return float(special.ndtr(high) - special.ndtr(low))
