"""ε of composed releases: losses on a grid, composed by dp_accounting, else by an integral of moments.

*The library.* Distributions are composed by dp_accounting's PLD. Its Fourier transforms round by about 1e-16
of all mass, which is not small beside a tiny δ or after very many releases. A bound on that rounding (by
Parseval's identity) is charged to δ. The result counts if the bound could change ε by one part in ten
million at most; measured, that holds for δ of 1e-6 and more and up to a few thousand releases.

*The integral.* Elsewhere δ(ε) is computed for one ε at a time from moments M(z) = E e^(zL) of the losses, as
the integral of M(z) e^(−zε) / (z (z + 1)) along a line through the saddle point (Alghamdi et al. 2023, The
saddle-point method in differential privacy). On a grid the kernel is a geometric sum and the line one period
long. Rounding is relative to M(θ) e^(−θε), which is near δ, however small it is. No distribution is
composed, and ε is found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import fft, optimize

from sfumato.verify.loss_curves import CURVES, Event, LossCurve, chance_of_any
from sfumato.verify.read import Array

NEXT_TO_NOTHING = 1e-25
"""Probability of losses of a release above which they count as infinite."""
LOG_OUTSIDE = 46.0
"""-log of the probability of losses beyond a period of the integral."""
LIBRARY_IS_EXACT_TO = 1e-7
"""How far the library's rounding may move ε, relative to it."""
LIBRARY_POINTS = 1 << 32
"""Points of the grid times releases, beyond which the library would take gigabytes of memory."""
UNIT_ROUNDING = float(np.finfo(np.float64).eps)


class EqualReleaseLosses(NamedTuple):
    """Losses on the grid of one release, of which there are several equal ones.

    Attributes:
        first: number of the first grid point with mass; 0 is the loss 0.
        masses: probabilities from there on, one for each grid point.
        infinite: probability of an infinite loss.
        releases: how many equal releases there are.
    """

    first: int
    masses: Array
    infinite: float
    releases: int


def least_epsilon_below_delta(curve: Callable[[float], float], delta: float, above: float) -> float:
    """The least ε ≥ 0 with ``curve(ε) <= delta``, by root finding; 0 if the curve is that low at ε = 0.

    Args:
        curve: δ as a decreasing function of ε.
        delta: δ in (0, 1).
        above: an ε at which the curve is known to be at most ``delta``; with ∞ the answer is 0 or ∞.
    """
    if curve(0.0) <= delta:
        return 0.0
    if not math.isfinite(above):
        return math.inf
    return float(
        optimize.brentq(lambda e: curve(e) - delta, 0.0, above * (1 + 1e-12), xtol=1e-300, rtol=1e-13)
    )


def masses_on_grid(losses: LossCurve, reverse: LossCurve, interval: float) -> tuple[int, Array, float]:
    """A distribution of losses on a grid whose privacy curve is nowhere below that of ``losses``.

    Its curve joins the grid points of ``losses`` by chords: a curve is convex in e^ε, so chords lie above it.
    A loss of -l is e^-l times as likely as one of l in the other direction (``reverse``); using this avoids
    small differences of numbers near 1.

    Args:
        losses: the privacy curve of one of two neighbouring data sets against the other.
        reverse: that of the other against the one.
        interval: step of the grid, in nats.

    Returns:
        The number of the first grid point (0 is the loss 0), the masses from there on, the mass at infinity.
    """
    above, infinite = _masses_above_zero(losses, interval)
    below, _ = _masses_above_zero(reverse, interval)
    below = (below * np.exp(-interval * np.arange(1, len(below) + 1)))[::-1]
    at_zero = max(0.0, 1.0 - infinite - float(above.sum()) - float(below.sum()))
    return -len(below), np.concatenate([below, [at_zero], above]), infinite


def _masses_above_zero(losses: LossCurve, interval: float) -> tuple[Array, float]:
    """Masses of the losses at ``interval``, 2 ``interval``, … (nats), and the mass at infinity."""
    points = max(1, math.ceil(losses.most / interval)) + 1
    curve = np.clip(losses.curve(np.arange(points, dtype=np.float64) * interval), 0.0, 1.0)
    curve = curve[: max(2, np.count_nonzero(curve > NEXT_TO_NOTHING) + 1)]
    falls = -np.diff(np.minimum.accumulate(curve))
    found = falls / -math.expm1(-interval)
    found[:-1] -= falls[1:] / math.expm1(interval)
    return np.maximum(found, 0.0), float(curve[-1])


@lru_cache(maxsize=16)
def _masses_of_release(term: Event, forward: bool, interval: float) -> tuple[int, Array, float]:
    """Losses of one release of ``term`` on a grid of ``interval`` nats, as `masses_on_grid` gives them.

    ``forward``: whether they are those of the data set with the unit against that without it.
    """
    curve = CURVES[term.kind]
    return masses_on_grid(curve(term, forward), curve(term, not forward), interval)


def epsilon_on_grid(terms: Sequence[Event], delta: float, interval: float, forward: bool) -> float:
    """The ε ≥ 0 at ``delta`` of all ``terms`` composed, with losses on a grid, in one direction.

    By `epsilon_by_library` where its rounding can change ε by one part in ten million at most, else by
    `epsilon_by_integral`; ∞ if infinite losses alone exceed ``delta``.

    Args:
        terms: releases that are composed, one term or more.
        delta: δ in (0, 1).
        interval: step of the grid, in nats.
        forward: whether the data set with the unit is compared to that without it, else the reverse.
    """
    losses = [
        EqualReleaseLosses(*_masses_of_release(replace(term, count=1), forward, interval), term.count)
        for term in terms
    ]
    found = epsilon_by_library(losses, delta, interval)
    return epsilon_by_integral(losses, delta, interval) if found is None else found


def _rounding(size: int, factors: int, norm: float) -> float:
    """Bound on the sum of the absolute rounding errors of one convolution by Fourier transforms.

    Args:
        size: length of the transform.
        factors: how many distributions are convolved.
        norm: product of their Euclidean norms.
    """
    return 4 * UNIT_ROUNDING * (factors + math.log2(size)) * math.sqrt(size) * norm


def epsilon_by_library(losses: Sequence[EqualReleaseLosses], delta: float, interval: float) -> float | None:
    """ε ≥ 0 at ``delta`` of the composed losses, by the privacy loss distribution (PLD) of dp_accounting.

    ``None`` where its rounding could change ε by more than 1e-7 of it, where infinite losses alone exceed
    ``delta``, or where it would take too much memory. ``interval``: step of the grid, in nats.
    """
    from dp_accounting.pld import common, pld_pmf

    if any(one.releases * len(one.masses) > LIBRARY_POINTS for one in losses):
        return None
    composed, norm, rounding, above = None, 1.0, 0.0, 0.0
    cut = delta * LIBRARY_IS_EXACT_TO / 100 / len(losses)
    for first, masses, infinite, count in losses:
        start, one = 0, masses
        if count > 1:
            with np.errstate(all="ignore"):  # moments that are too large are left out
                start, found = common.self_convolve(masses, count, cut)
            one = np.asarray(found)
        lost = chance_of_any(infinite, count) + cut
        more = pld_pmf.DensePLDPmf(interval, first * count + start, one, lost, pessimistic_estimate=True)
        rounding += _rounding(len(one), count, float(np.linalg.norm(one))) if count > 1 else 0.0
        above += max(0.0, (first * count + start + len(one)) * interval)
        if composed is not None:
            more = composed.compose(more)
            rounding += _rounding(more.size, 2, norm * float(np.linalg.norm(one)))
        composed, norm = more, min(norm, float(np.linalg.norm(one)))
    assert composed is not None
    curve = composed.get_delta_for_epsilon
    if rounding >= delta or curve(above) + rounding > delta:
        return None
    found = least_epsilon_below_delta(lambda e: float(curve(e)) + rounding, delta, above)
    exact = found == 0 or curve(found * (1 - LIBRARY_IS_EXACT_TO)) - rounding >= delta
    return found if exact else None


def epsilon_by_integral(losses: Sequence[EqualReleaseLosses], delta: float, interval: float) -> float:
    """ε ≥ 0 at ``delta`` of composed losses on a grid of ``interval`` nats; ∞ if infinite losses exceed δ.

    By the integral of moments (see the module), through the θ at which Chernoff's bound of ε is smallest.
    """
    infinite = (n * math.log1p(-lost) if lost < 1 else -math.inf for _, _, lost, n in losses)
    delta += math.expm1(math.fsum(infinite))
    if delta <= 0:
        return math.inf
    with np.errstate(divide="ignore"):
        logs = [(np.log(p), first + np.arange(len(p), dtype=np.float64), n) for first, p, _, n in losses]

    def cumulant(theta: float) -> float:
        """Logarithm of the moment M(θ) of the composition at θ = ``theta``."""
        return math.fsum(n * _log_sum(log_p + theta * interval * at) for log_p, at, n in logs)

    def bound(log_theta: float) -> float:
        """Chernoff's bound of ε at θ = exp(``log_theta``): (1 − e^−x) e^−θx ≤ θ^θ / (1 + θ)^(1 + θ)."""
        theta = math.exp(log_theta)
        largest = theta * log_theta - (1 + theta) * math.log1p(theta)
        return (cumulant(theta) + largest - math.log(delta)) / theta

    def end(log_power: float) -> float:
        """A loss above which lies at most e^−46 of the tilted composition, by Chernoff's bound."""
        power = math.exp(log_power)
        return (cumulant(theta + power) - log_moment + LOG_OUTSIDE) / power

    log_theta, above = _minimum(bound, math.log(1e-3), math.log(max(1e3, 0.1 / interval)))
    theta = math.exp(log_theta)
    log_moment = cumulant(theta)
    _, most = _minimum(end, log_theta - 7, log_theta + 5)
    period = max(most, above, 0.0) + (LOG_OUTSIDE - math.log(delta)) / theta
    size = int(fft.next_fast_len(math.ceil(period / interval) + 2, real=True))
    moments = np.ones(size // 2 + 1, dtype=np.complex128)
    for log_p, at, n in logs:
        tilted = np.exp(log_p + theta * interval * at - _log_sum(log_p + theta * interval * at))
        moments *= fft.rfft(np.bincount(at.astype(np.int64) % size, tilted, size)) ** n
    steps = np.arange(len(moments))
    z = theta * interval - 2j * math.pi / size * steps
    integrand = moments * (1 / np.expm1(z) - 1 / np.expm1(z + interval)) / size
    integrand[1 : (size + 1) // 2] *= 2  # the other half of the period is the conjugate
    releases = sum(n for _, _, n in logs)
    rounding = 4 * UNIT_ROUNDING * (releases + math.log2(size)) * float(np.abs(integrand).sum())

    def log_delta(point: int) -> float:
        """Logarithm of δ at a point of the grid."""
        turned = np.exp(2j * math.pi / size * (point * steps % size))
        inside = max(float((integrand * turned).real.sum()), 0.0) + rounding
        return log_moment - theta * interval * point + math.log(inside)

    low, high = 0, max(1, math.ceil(above / interval) + 1)
    if log_delta(low) <= math.log(delta):
        return 0.0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if log_delta(middle) > math.log(delta) else (low, middle)
    at_low, at_high = (math.expm1(log_delta(at) - math.log(delta)) for at in (low, high))
    if at_high > 0:
        return high * interval
    return low * interval + math.log1p(at_low / (at_low - at_high) * math.expm1(interval))


def _log_sum(logs: Array) -> float:
    """log Σ exp(x) over ``logs``, without overflow."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


def _minimum(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """The place (to 0.02) and the value of the minimum of ``function`` on [``low``, ``high``]."""
    found = optimize.minimize_scalar(
        function, bounds=(low, high), method="bounded", options={"xatol": 0.02, "maxiter": 40}
    )
    return float(found.x), float(found.fun)
