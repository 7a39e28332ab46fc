"""Gaussian differential privacy in closed form: δ, ε and μ of one Gaussian shift.

A composition of unsampled Gaussian releases, adaptive or not, is exactly as distinguishable as N(0, 1) from
N(μ, 1) with μ² the sum of (sensitivity / noise std)² (Dong, Roth and Su 2022). Its hockey-stick curve is

    δ(ε; μ) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)                                    (Balle and Wang 2018)

*A form that does not cancel.* Write a = μ/2 − ε/μ. Because e^ε φ(a − μ) = φ(a), and with Mills' ratio
M(x) = Φ(−x)/φ(x) = √(π/2) erfcx(x/√2),

    δ = φ(a) [M(−a) − M(μ − a)] = Φ(a) − φ(a) M(μ − a),

in which nothing is as large as e^ε. In a, ε = μ (μ/2 − a) and dδ/da = μ φ(a) M(μ − a); in μ, dδ/dμ = φ(a).

*Both inverses by a Newton iteration that cannot overshoot.* log δ is concave in ε, as the convolution of
log-concave functions δ(ε) = ∫_ε^∞ e^(ε−t) P(L > t) dt, and concave in μ, as the integral of the log-concave
dδ/dμ = φ(a). A tangent to a concave increasing function lies above it, so Newton steps from below stay
below: in a that means an ε never too small, in μ a μ never too large, both on the safe side up to rounding.
The starts come from δ ≤ Φ(a) and, for μ, from δ ≤ μ φ(0) too.

Against 60-digit arithmetic the relative error stays below 1e-9 for μ in 1e-6..1e4 and δ in 1e-15..0.9.
ε, δ and μ have no unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, overload

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_MOST_STEPS = 100
_SMALL_MU = 1e-5


@overload
def delta(*, epsilon: float, mu: float) -> float: ...
@overload
def delta(*, epsilon: float | Array, mu: Array) -> Array: ...
def delta(*, epsilon: float | Array, mu: float | Array) -> float | Array:
    """Smallest δ for which N(0, 1) against N(mu, 1) is (epsilon, δ)-indistinguishable.

    Args:
        epsilon: ε ≥ 0, may be infinite; broadcast against ``mu``.
        mu: GDP parameter μ ≥ 0; 0 (nothing is learnt) gives 0 and ∞ (no protection) gives 1.

    Returns:
        δ in [0, 1]: a float for a float ``mu``, else an array of the broadcast shape.

    Raises:
        ValueError: ``epsilon`` or ``mu`` is negative or not a number.
    """
    _require("epsilon", epsilon, np.asarray(epsilon) >= 0, ">= 0")
    _require("mu", mu, np.asarray(mu) >= 0, ">= 0")
    return _mapped(_delta, epsilon, mu)


@overload
def epsilon(*, delta: float, mu: float) -> float: ...
@overload
def epsilon(*, delta: float | Array, mu: Array) -> Array: ...
def epsilon(*, delta: float | Array, mu: float | Array) -> float | Array:
    """Smallest ε ≥ 0 for which N(0, 1) against N(mu, 1) is (ε, delta)-indistinguishable.

    Args:
        delta: δ in (0, 1); broadcast against ``mu``.
        mu: GDP parameter μ ≥ 0; 0 gives 0 and ∞ gives ∞.

    Returns:
        ε: a float for a float ``mu``, else an array of the broadcast shape.

    Raises:
        ValueError: ``delta`` is outside (0, 1), or ``mu`` is negative or not a number.
    """
    _require_delta(delta)
    _require("mu", mu, np.asarray(mu) >= 0, ">= 0")
    return _mapped(_epsilon, delta, mu)


@overload
def mu(*, epsilon: float, delta: float) -> float: ...
@overload
def mu(*, epsilon: Array, delta: float | Array) -> Array: ...
def mu(*, epsilon: float | Array, delta: float | Array) -> float | Array:
    """Largest GDP parameter μ that is (epsilon, delta)-indistinguishable: the calibration of Gaussian noise.

    The noise std that meets (epsilon, delta) exactly is sensitivity / μ; √T times that for T releases.

    Args:
        epsilon: ε ≥ 0, finite; broadcast against ``delta``.
        delta: δ in (0, 1).

    Returns:
        μ > 0: a float for a float ``epsilon``, else an array of the broadcast shape.

    Raises:
        ValueError: ``epsilon`` is negative or not finite, or ``delta`` is outside (0, 1).
    """
    values = np.asarray(epsilon)
    _require("epsilon", epsilon, (values >= 0) & np.isfinite(values), ">= 0 and finite")
    _require_delta(delta)
    return _mapped(_mu, epsilon, delta)


def delta_and_fall(*, epsilon: float, mu: Array) -> tuple[Array, Array]:
    """`delta` of every ``mu``, and how fast it falls with ε there: −dδ/dε, which is e^ε Φ(−μ/2 − ε/μ).

    Quick, for who evaluates one mixture at many ε: nothing is checked.

    Args:
        epsilon: ε ≥ 0, finite.
        mu: GDP parameters, each > 0 and finite, ``[count]``.

    Returns:
        δ in [0, 1] and its fall, ≥ 0, each ``[count]``.
    """
    with np.errstate(over="ignore", under="ignore"):
        return _delta_and_fall(epsilon, mu)


def _delta(epsilon: Array, mu: Array) -> Array:
    """Compute δ for flat arrays ``epsilon`` and ``mu`` of equal shape, both ≥ 0 or ∞, unchecked."""
    result = np.where(np.isinf(mu), 1.0, 0.0)
    some = np.isfinite(mu) & (mu > 0) & np.isfinite(epsilon)  # finite μ and infinite ε, or μ = 0: δ = 0
    mu, epsilon = mu[some], epsilon[some]
    result[some] = _delta_and_fall(epsilon, mu)[0]
    return result


def _delta_and_fall(epsilon: float | Array, mu: Array) -> tuple[Array, Array]:
    """Compute δ and −dδ/dε = φ(a) M(μ − a) for finite ``epsilon`` ≥ 0 and finite ``mu`` > 0, unchecked."""
    from scipy import special

    a = np.maximum(mu / 2 - epsilon / mu, -1e3)  # below, φ(a) is 0 in floating point
    density = np.exp(-0.5 * a * a - _LOG_SQRT_2PI)  # φ(a)
    beyond = _mills(mu - a)
    fall = density * beyond
    found = np.empty_like(a)
    large = a > 0
    found[large] = special.ndtr(a[large]) - fall[large]
    small = ~large
    found[small] = density[small] * _gap(-a[small], mu[small], beyond[small])
    return np.clip(found, 0.0, 1.0), fall


def _epsilon(delta: Array, mu: Array) -> Array:
    """Compute ε for flat arrays ``delta`` in (0, 1) and ``mu`` (≥ 0 or ∞) of equal shape, unchecked."""
    from scipy import special

    result = np.where(np.isinf(mu), np.inf, 0.0)
    some = np.isfinite(mu) & (special.erf(mu / math.sqrt(8)) > delta)  # where δ(0; μ) ≤ delta, ε = 0
    mu, delta = mu[some], delta[some]
    target = np.log(delta) + _LOG_SQRT_2PI

    def step(a: Array) -> Array:
        beyond = _mills(mu - a)
        gap = _gap(-a, mu, beyond)
        return (target + 0.5 * a * a - np.log(gap)) * gap / (mu * beyond)

    a = _climb(special.ndtri(delta), step, at_least=1.0)
    result[some] = np.maximum(mu * (mu / 2 - a), 0.0)
    return result


def _mu(epsilon: Array, delta: Array) -> Array:
    """Compute μ for flat arrays ``epsilon`` (≥ 0, finite) and ``delta`` in (0, 1), unchecked."""
    from scipy import special

    target = np.log(delta) + _LOG_SQRT_2PI
    # δ ≤ Φ(a) asks for μ/2 − ε/μ ≥ z = Φ⁻¹(δ), that is μ ≥ z + √(z² + 2ε) = 2ε / (√(z² + 2ε) − z).
    z = special.ndtri(delta)
    root = np.hypot(z, np.sqrt(2 * epsilon))
    start = np.where(z < 0, 2 * epsilon / (root + np.abs(z) + (root == 0)), z + root)

    def step(mu: Array) -> Array:
        a = mu / 2 - epsilon / mu
        gap = _gap(-a, mu, _mills(mu - a))
        return (target + 0.5 * a * a - np.log(gap)) * gap

    return _climb(np.maximum(start, delta * math.sqrt(2 * math.pi)), step, at_least=0.0)


def _mills(x: Array) -> Array:
    """Mills' ratio M(x) = Φ(−x)/φ(x); overflows for x < −37."""
    from scipy import special

    return np.asarray(math.sqrt(math.pi / 2) * special.erfcx(x / math.sqrt(2)))


def _gap(x: Array, mu: Array, beyond: Array) -> Array:
    """M(x) − M(x + μ) of Mills' ratio, elementwise; ``beyond`` is M(x + μ).

    For μ below 1e-5 by −M′ = 1 − x M(x) at the midpoint, with a relative error below μ². ``x`` and ``mu`` ≥ 0
    have the same shape, which is that of the result.
    """
    found: Array = _mills(x) - beyond
    tiny = mu < _SMALL_MU
    if tiny.any():
        middle = x[tiny] + mu[tiny] / 2
        found[tiny] = mu[tiny] * (1 - middle * _mills(middle))
    return found


def _climb(start: Array, step: Callable[[Array], Array], *, at_least: float) -> Array:
    """Run Newton's iteration from below to the root of a function, elementwise.

    Args:
        start: points at or below the roots, any shape.
        step: Newton's move at each point; a negative one counts as 0.
        at_least: scale of rounding: it ends when every move is below 1e-14 max(|x|, ``at_least``), or after
            100 moves.

    Returns:
        The roots, of the shape of ``start``.
    """
    x = start
    for _ in range(_MOST_STEPS):
        move = np.maximum(step(x), 0.0)
        x = x + move
        if np.all(move <= 1e-14 * np.maximum(np.abs(x), at_least)):
            break
    return x


def _mapped(function: Callable[[Array, Array], Array], x: float | Array, y: float | Array) -> float | Array:
    """``function`` of ``x`` and ``y``, which it gets as flat arrays, in their broadcast shape.

    A float where both are floats.
    """
    first, second = np.broadcast_arrays(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
    with np.errstate(over="ignore", under="ignore"):
        result = function(first.ravel(), second.ravel())
    return float(result[0]) if first.ndim == 0 else result.reshape(first.shape)


def _require(name: str, value: object, holds: NDArray[np.bool_], bound: str) -> None:
    """Raise a ValueError that ``name`` must be ``bound`` unless all of ``holds`` is true."""
    if not np.all(holds):
        raise ValueError(f"{name}: got {value}; must be {bound}")


def _require_delta(delta: float | Array) -> None:
    """Raise a ValueError unless every ``delta`` is in (0, 1)."""
    values = np.asarray(delta)
    _require("delta", delta, (values > 0) & (values < 1), "in (0, 1)")


def allowed_tpr(fpr: npt.ArrayLike, *, epsilon: float, delta: float) -> npt.NDArray[np.float64]:
    """The largest true-positive rate that (ε, δ) allows at each false-positive rate (Kairouz et al. 2015).

    Args:
        fpr: false-positive rates in [0, 1], any shape.
        epsilon: at least 0; may be infinite.
        delta: in [0, 1].

    Returns:
        True-positive rates in [0, 1], of the shape of ``fpr``.
    """
    rates = np.asarray(fpr, dtype=np.float64)
    if math.isinf(epsilon):
        return np.ones_like(rates)
    with np.errstate(over="ignore"):
        steep = np.exp(epsilon) * rates + delta
    flat = 1 - math.exp(-epsilon) * (1 - delta - rates)
    return np.asarray(np.clip(np.minimum(steep, flat), 0.0, 1.0), dtype=np.float64)
