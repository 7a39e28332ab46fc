"""Rényi accounting as Opacus does it: the orders, divergences and conversion behind DP-OGL's figures.

The paper (Sec. VI) takes Rényi divergences, the set of orders and the conversion of Opacus's
``RDPAccountant``. The divergence of a sampled Gaussian is A_α of Mironov, Talwar and Zhang (2019): a finite
sum for whole orders (their 3.3), two series for the others, which Opacus cuts where a term is below e⁻³⁰. The
conversion is Proposition 12 of Balle et al. (2020). dp_accounting leaves out orders whose series converge
slowly, which are the best ones at large ε.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from sfumato.network.groups import FloatArray

ORDERS = (*(1 + x / 10 for x in range(1, 100)), *map(float, range(12, 64)))
"""``RDPAccountant.DEFAULT_ALPHAS``."""
_CUT = -30.0
_MOST_TERMS = 1 << 18


def epsilon_of(rdp: FloatArray, delta: float) -> float:
    """The ε ≥ 0 at ``delta`` of Rényi divergences ``[orders]`` at `ORDERS`, by Opacus's conversion.

    Orders at which the divergence is NaN are left out. ``delta``: in (0, 1).
    """
    return max(0.0, float(np.nanmin(_converted(rdp, delta))))


def divergence_of_best_order(rdp: FloatArray, delta: float) -> float:
    """The Rényi divergence, not converted, at the one of `ORDERS` that gives the smallest ε at ``delta``.

    ``rdp``: divergences at `ORDERS`, ``[orders]``. In nats; ``delta``: in (0, 1).
    """
    return float(rdp[np.nanargmin(_converted(rdp, delta))])


def _converted(rdp: FloatArray, delta: float) -> FloatArray:
    """The ε at ``delta`` that every order of `ORDERS` gives, ``[orders]``; it may be below 0."""
    orders = np.array(ORDERS)
    found = rdp - (math.log(delta) + np.log(orders)) / (orders - 1) + np.log((orders - 1) / orders)
    return np.asarray(found)


@cache
def divergences(sigma: float, rate: float) -> FloatArray:
    """Rényi divergences of one sampled Gaussian at `ORDERS`, ``[orders]``; ∞ where no series converges.

    Args:
        sigma: noise multiplier, above 0.
        rate: of Poisson sampling, above 0, at most 1.
    """
    if rate == 1:
        return np.array(ORDERS) / (2 * sigma**2)
    return np.array([_log_moment(sigma, rate, order) / (order - 1) for order in ORDERS])


def _log_moment(sigma: float, rate: float, order: float) -> float:
    """The logarithm of the moment of a Gaussian of multiplier ``sigma`` sampled at ``rate``, at ``order``.

    ``order``: above 1. ∞ where no series converges. Over order - 1 it is the Rényi divergence.
    """
    if order == int(order):
        return _log_moment_of_whole_order(sigma, rate, int(order))
    count = 64
    while (found := _log_moment_by_series(sigma, rate, order, count)) is None and count < _MOST_TERMS:
        count *= 4
    return math.inf if found is None else found


def _log_moment_of_whole_order(sigma: float, rate: float, order: int) -> float:
    """The logarithm of the moment of a sampled Gaussian at a whole ``order``, a finite sum.

    ln Σ_i C(α, i) (1-q)^(α-i) q^i e^((i² - i) / (2σ²)), with q the ``rate``.
    """
    from scipy import special

    i = np.arange(order + 1)
    logs = np.log(special.binom(order, i)) + i * math.log(rate) + (order - i) * math.log1p(-rate)
    return float(special.logsumexp(logs + (i * i - i) / (2 * sigma**2)))


def _log_moment_by_series(sigma: float, rate: float, order: float, count: int) -> float | None:
    """The logarithm of the moment at a fractional ``order``: two series up to the first term below e⁻³⁰.

    ``None`` if none of the first ``count`` terms is.
    """
    from scipy import special

    i = np.arange(count, dtype=np.float64)
    j = order - i
    signs = special.gammasgn(j + 1)
    logs = special.gammaln(order + 1) - special.gammaln(i + 1) - special.gammaln(j + 1)
    middle = sigma**2 * math.log(1 / rate - 1) + 0.5
    below = logs + i * math.log(rate) + j * math.log1p(-rate) + (i * i - i) / (2 * sigma**2)
    below += special.log_ndtr((middle - i) / sigma)
    above = logs + j * math.log(rate) + i * math.log1p(-rate) + (j * j - j) / (2 * sigma**2)
    above += special.log_ndtr((j - middle) / sigma)
    small = np.flatnonzero(np.maximum(below, above) < _CUT)
    if not len(small):
        return None
    kept = slice(0, int(small[0]) + 1)
    both = np.concatenate([below[kept], above[kept]])
    return float(special.logsumexp(both, b=np.concatenate([signs[kept], signs[kept]])))
