"""Recomputes every ε of a run folder from the certificates in its ``ledger.json``.

This file imports nothing else of Sfumato. It needs NumPy, SciPy and PyYAML, and runs by itself::

    python checker.py RUN

The exit status is 0 if everything that is checked holds, 1 if something does not, 2 if RUN is no run folder.

What is checked, in this order (docs/verify.md says what is not):

1. *Hashes.* ``manifest.json`` has its own hash and that of every file that it lists; ``spec.yaml``,
   ``privacy.json`` and ``ledger.json`` name the same spec, and it has the hash that they name.
2. *The spec.* Facts in ``ledger.json`` that ``spec.yaml`` determines are those of the spec.
3. *The exposed set.* For every row the releases are derived again from the facts: what the observer receives
   is in the set; a release moves as far as the facts say, has no more noise and no better hidden draw; no
   noise of the observer counts, and none counts twice.
4. *The charge.* The terms that were composed follow from the releases.
5. *ε.* It is recomputed from the terms by methods of this file. The stated ε must not be smaller.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import yaml
from scipy import fft, optimize, special

Array: TypeAlias = npt.NDArray[np.float64]
Json: TypeAlias = Mapping[str, Any]
Party: TypeAlias = tuple[str, int, int]  # kind, tier, index

FORMAT = 1
MOST_BYTES = 1 << 28
"""Of a file that is parsed."""
ROUNDING = 1e-9
"""Relative difference of two figures that were computed in another order."""
STATED_TOO_LOW = 1e-6
"""Relative rounding that is allowed where a stated ε is below the recomputed one."""
STATED_ABOVE = {"gdp": 1e-6, "pld": 0.03}
"""How far a stated ε may be above the recomputed one: closed forms not at all, distributions by what a
coarser grid and merged multipliers cost."""

_SAME_COST = 1e-5
_MOST_COMPARED = 100_000
"""Exposed sets of one row that are compared with the stated one, times their steps."""

LEAST_INTERVAL = 1e-12
"""Of the grid of the privacy losses, which takes memory."""
OF_A_CHANCE, LEAST_CHANCE = 1e-8, 1e-12
"""Relative and absolute rounding of the chances of a draw."""

# --- 1. Curves ----------------------------------------------------------------------------------------------

_TAIL = 9.5  # standard deviations: beyond is a probability of 1e-21
_LOG_TAIL = 46.0  # -log of the probability of losses outside the window of a composition
_MOST_ATOMS = 1 << 17
_MOST_POINTS = 1 << 23
_NEGLIGIBLE = 1e-30
_NEXT_TO_NOTHING = 1e-25  # of the probability of larger losses of a release
_SUMS_ON_GRID = 1 << 14


BROKEN = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What reading a file fails with whose content does not fit: a mismatch."""


class UnknownKindError(ValueError):
    """A kind of event or draw that this checker has no rule for."""


def gaussian_delta(epsilon: Array | float, mu: Array | float) -> Array:
    """δ of N(μ, 1) against N(0, 1) at any real ε: Φ(a) − e^ε Φ(a − μ) with a = μ/2 − ε/μ."""
    e, m = np.broadcast_arrays(np.asarray(epsilon, dtype=np.float64), np.asarray(mu, dtype=np.float64))
    with np.errstate(all="ignore"):
        nothing = np.maximum(-np.expm1(np.minimum(e, 0.0)), 0.0)  # μ = 0
        a = m / 2 - e / m
        large = special.ndtr(a) - np.exp(e + special.log_ndtr(a - m))
        low = np.minimum(a, 0.0)
        mills = special.erfcx(-low / math.sqrt(2)) - special.erfcx((m - low) / math.sqrt(2))
        small = np.exp(-0.5 * low * low) * mills / 2
        found = np.where(m == 0, nothing, np.where(np.isinf(m), 1.0, np.where(a > 0, large, small)))
    return np.clip(found, 0.0, 1.0)


def smallest_epsilon(curve: Callable[[float], float], delta: float, above: float) -> float:
    """The least ε ≥ 0 with ``curve(ε) <= delta``; ``above`` is known to be large enough."""
    if curve(0.0) <= delta:
        return 0.0
    if not math.isfinite(above):
        return math.inf
    return float(
        optimize.brentq(lambda e: curve(e) - delta, 0.0, above * (1 + 1e-12), xtol=1e-300, rtol=1e-13)
    )


def epsilon_of_mixture(squares: Array, chances: Array, lost: float, delta: float) -> float:
    """ε of Gaussians of those μ², each with its probability, where everybody sees which one it is."""
    if lost >= delta or math.isinf(float(squares.max())):
        return math.inf
    mus = np.sqrt(squares)
    top = float(mus.max())
    above = top * (top / 2 - float(special.ndtri(delta - lost))) if top > 0 else 0.0
    return smallest_epsilon(
        lambda e: float(chances @ gaussian_delta(e, mus)) + lost, delta, max(above, 1e-300)
    )


def binomial(count: int, rate: float) -> tuple[Array, Array, float]:
    """Values and probabilities of Binomial(count, rate), and the negligible probability that is left out."""
    times = np.arange(count + 1, dtype=np.float64)
    ways = special.gammaln(count + 1.0) - special.gammaln(times + 1) - special.gammaln(count - times + 1)
    chances = np.exp(ways + special.xlogy(times, rate) + special.xlog1py(count - times, -rate))
    kept = chances > _NEGLIGIBLE
    return times[kept], chances[kept], float(chances[~kept].sum())


def added(values: Array, chances: Array, more: Array, weights: Array) -> tuple[Array, Array, float]:
    """Distribution of the sum of two independent variables; rounded up where it has too many values."""
    sums = np.add.outer(values, more).ravel()
    products = np.outer(chances, weights).ravel()
    if len(sums) > _MOST_ATOMS:
        step = (sums.max() - sums.min()) / _MOST_ATOMS
        cells = np.ceil((sums - sums.min()) / step).astype(np.int64)
        products = np.bincount(cells, products).astype(np.float64)
        sums = (sums.min() + step * np.arange(cells.max() + 1)).astype(np.float64)
    kept = products > _NEGLIGIBLE
    return sums[kept], products[kept], float(products[~kept].sum())


@dataclass(frozen=True, order=True)
class Event:
    """``count`` independent releases of μ² = ``square`` where the unit is used, under one draw."""

    square: float
    count: int
    kind: str = "unsampled"
    rate: float = 1.0
    detail: tuple[Any, ...] = ()

    @property
    def mu(self) -> float:
        """Of one release that uses the unit."""
        return math.sqrt(self.square)


def revealed_epsilon(terms: Sequence[Event], delta: float) -> float:
    """ε where every draw is told: a finite mixture of Gaussian curves."""
    squares, chances, lost = (
        np.array([math.fsum(t.square * t.count for t in terms if t.rate == 1 and t.kind != "visible")]),
        np.ones(1),
        0.0,
    )
    for term in terms:
        if term.kind == "visible":
            sums, weights = sums_of_outcomes(term)
            squares, chances, more = added(squares, chances, sums, weights)
            lost += more
        elif 0 < term.rate < 1 and math.isfinite(float(squares.max())):
            if math.isinf(term.square):
                lost -= math.expm1(term.count * math.log1p(-term.rate))
                continue
            times, weights, beyond = binomial(term.count, term.rate)
            squares, chances, more = added(squares, chances, term.square * times, weights)
            lost += beyond + more
    return epsilon_of_mixture(squares, chances, lost, delta)


def sums_of_outcomes(term: Event) -> tuple[Array, Array]:
    """μ² of all releases of a mixture whose every draw is told, and the chances; on a grid where many.

    A value between two points of the grid is shared out between them so that the mean stays: what that
    changes is of the order of the grid's step squared, far below the rounding that a stated ε may have.
    """
    told: dict[float, float] = {}
    for chance, ratio, rate, *_ in term.detail:
        for square, share in ((term.square * ratio, chance * rate), (0.0, chance * (1 - rate))):
            told[square] = told.get(square, 0.0) + share
    power = np.array(sorted(told)), np.array([told[square] for square in sorted(told)])
    total = np.zeros(1), np.ones(1)
    count = term.count
    while count:
        total = _sum_of_both(total, power) if count % 2 else total
        count //= 2
        power = _sum_of_both(power, power) if count else power
    return total


def _sum_of_both(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    first, last = one[0][0] + other[0][0], one[0][-1] + other[0][-1]
    if len(one[0]) * len(other[0]) <= _SUMS_ON_GRID:
        values, places = np.unique(np.add.outer(one[0], other[0]).ravel(), return_inverse=True)
        chances = np.bincount(places.ravel(), np.outer(one[1], other[1]).ravel())
        return values, np.asarray(chances, dtype=np.float64)
    step = (last - first) / _SUMS_ON_GRID
    parts: list[Array] = []
    for values, weights in (one, other):
        places = (values - values[0]) / step
        cells = np.floor(places).astype(np.int64)
        above = places - cells
        held = np.bincount(cells, weights * (1 - above), cells[-1] + 2)
        parts.append(np.asarray(held + np.bincount(cells + 1, weights * above, cells[-1] + 2)))
    together = np.convolve(parts[0], parts[1])
    kept = np.flatnonzero(together > _NEGLIGIBLE)
    inner = slice(int(kept[0]), int(kept[-1]) + 1)
    return first + step * np.arange(len(together), dtype=np.float64)[inner], together[inner]


Profile: TypeAlias = Callable[[Array], Array]


class Losses(NamedTuple):
    """The hockey-stick curve of one release in one direction, and the range of its privacy losses."""

    curve: Profile
    least: float
    most: float


def _log_ratio(x: float, moves: Sequence[tuple[float, float]], rest: float) -> float:
    """ln of Σ c e^(μx − μ²/2) + rest."""
    parts = [math.log(c) + mu * x - mu * mu / 2 for c, mu in moves if c > 0]
    return float(special.logsumexp([*parts, math.log(rest)] if rest > 0 else parts))


def of_gaussian(term: Event, forward: bool) -> Losses:
    """N(μ, 1) against N(0, 1)."""
    mu, half = term.mu, term.square / 2
    return Losses(lambda e: gaussian_delta(e, mu), half - _TAIL * mu, half + _TAIL * mu)


def of_revealed(term: Event, forward: bool) -> Losses:
    """A Gaussian with probability q, else nothing; which one is seen."""
    one, q = of_gaussian(term, forward), term.rate
    curve: Profile = lambda e: q * one.curve(e) + (1 - q) * np.maximum(-np.expm1(np.minimum(e, 0.0)), 0.0)  # noqa: E731
    return Losses(curve, min(0.0, one.least), max(0.0, one.most))


def of_poisson(term: Event, forward: bool) -> Losses:
    """(1 − q) N(0, 1) + q N(μ, 1) against N(0, 1), or the other way round.

    With e^η = (e^ε − 1 + q)/q the first is q δ(η; μ) where e^ε > 1 − q, and 1 − e^ε below. With
    e^η = (e^−ε − 1 + q)/q the second is (1 − (1 − q) e^ε) δ(−η; μ) where e^−ε > 1 − q, and 0 above.
    """
    q, mu = term.rate, term.mu
    moves = [(q, mu)]

    def with_unit(e: Array) -> Array:
        with np.errstate(all="ignore"):
            inner = _inner(e, q)
            return np.where(e > math.log1p(-q), q * gaussian_delta(np.nan_to_num(inner), mu), -np.expm1(e))

    def without(e: Array) -> Array:
        with np.errstate(all="ignore"):
            found = -np.expm1(e + math.log1p(-q)) * gaussian_delta(-np.nan_to_num(_inner(-e, q)), mu)
            return np.where(e < -math.log1p(-q), found, 0.0)

    if forward:
        return Losses(with_unit, _log_ratio(-_TAIL, moves, 1 - q), _log_ratio(mu + _TAIL, moves, 1 - q))
    return Losses(without, -_log_ratio(_TAIL, moves, 1 - q), -_log_ratio(-_TAIL, moves, 1 - q))


def _inner(e: Array, q: float) -> Array:
    """η with e^η = (e^ε − 1 + q)/q, also where ε is small beside q."""
    near = np.log1p(np.expm1(np.minimum(e, 1.0)) / q)
    return np.asarray(np.where(e < 1, near, e + np.log1p((q - 1) * np.exp(-e)) - math.log(q)))


def _leaving(e: Array, p: float, s: float, t: float) -> Array:
    """The curve at ε ≥ 0 of pA + (1 − p)B against pA' + (1 − p)B, with A at most s from A' and t from B.

    Split A into cA + (1 − c)A: the divergence is at most the sum of those of cpA against e^ε pA' and of
    (1 − c)pA against (e^ε − 1)(1 − p)B, which compare pairs only. With all three Gaussians on one line, and
    the c at which both change sign in the same place z, that is
    p Φ(z) − e^ε p Φ(z − s) − (e^ε − 1)(1 − p) Φ(z − t).
    """
    if s == t:  # then it is p δ(η; s) with e^η = (e^ε − 1 + p) / p, which does not cancel
        with np.errstate(all="ignore"):
            return np.asarray(p * gaussian_delta(np.nan_to_num(_inner(e, p)), s))
    with np.errstate(all="ignore"):
        shared = np.log(np.expm1(e)) + math.log1p(-p) if p < 1 else np.full_like(e, -np.inf)
        z = np.minimum(s / 2 - e / s, (math.log(p) - shared) / t + t / 2)
        for _ in range(8):  # Newton from above: the difference is convex and increasing in z
            one, two = e + math.log(p) + s * z - s * s / 2, shared + t * z - t * t / 2
            both = np.logaddexp(one, two)
            z = z - (both - math.log(p)) / (s * np.exp(one - both) + t * np.exp(two - both))
        taken = np.exp(e + math.log(p) + special.log_ndtr(z - s)) + np.exp(shared + special.log_ndtr(z - t))
    return np.asarray(np.maximum(p * special.ndtr(z) - taken, 0.0))


def of_both(ways: Sequence[tuple[float, float, float, float]], forward: bool) -> Losses:
    """Both worlds leave a shared part: each way with its probability, s from each other, t and t' from it.

    Each way goes with its part of what is shared. Below ε = 0 the curve is that of the other direction,
    mirrored.
    """
    p = min(1.0, math.fsum(c for c, *_ in ways))

    def above(e: Array, place: int) -> Array:
        return np.asarray(sum(way[0] / p * _leaving(e, p, way[1], way[place]) for way in ways))

    def curve(e: Array) -> Array:
        there, back = (2, 3) if forward else (3, 2)
        mirrored = -np.expm1(np.minimum(e, 0.0)) + np.exp(np.minimum(e, 0.0)) * above(
            np.maximum(-e, 0.0), back
        )
        return np.where(e >= 0, above(np.maximum(e, 0.0), there), mirrored)

    top = max(max(way[1:]) for way in ways)
    most = _log_ratio(top + _TAIL, [(p, top)], 1 - p)
    return Losses(curve, -most, most)


def of_fixed(term: Event, forward: bool) -> Losses:
    """A fixed number drawn, unseen: with probability γ the unit takes the place of another device.

    Given all the others, A and A' are what is sent with the unit in the two worlds, and B with that device;
    or B without the unit, where each is drawn by itself and the unit is replaced.
    """
    one, other = term.detail
    return of_both([(term.rate, term.mu, term.mu * one, term.mu * other)], forward)


def of_batches(term: Event, forward: bool) -> Losses:
    """A record drawn by its device: N(0, 1) against a mixture of N(s, 1), or both worlds leave that part."""
    shares, *ways = term.detail
    if shares:
        return of_both([(c, s * term.mu, t * term.mu, t * term.mu) for c, s, t in ways if c > 0], forward)
    moves = [(c, s * term.mu) for c, s, _ in ways if c > 0]
    rest = max(0.0, 1.0 - math.fsum(c for c, _ in moves))
    top = max(mu for _, mu in moves)
    places = np.linspace(-2 * _TAIL, 2 * _TAIL + top, 1 << 14)

    def loss(x: Array) -> Array:
        total = np.full_like(x, math.log(rest) if rest > 0 else -math.inf)
        for c, mu in moves:
            total = np.logaddexp(total, math.log(c) + mu * x - mu * mu / 2)
        return total

    def slope(x: Array, at: Array) -> Array:
        return np.asarray(sum(mu * np.exp(math.log(c) + mu * x - mu * mu / 2 - at) for c, mu in moves))

    def place(wanted: Array) -> Array:
        x = np.interp(wanted, loss(places), places)
        for _ in range(4):  # Newton from below or above: the loss is convex and increasing
            at = loss(x)
            with np.errstate(all="ignore"):
                step = np.nan_to_num((wanted - at) / slope(x, at))
            x = np.clip(x + np.clip(step, -1.0, 1.0), places[0], places[-1])
        return np.where(wanted <= (math.log(rest) if rest > 0 else -math.inf), -math.inf, x)

    def mass(x: Array) -> Array:
        return np.asarray(rest * special.ndtr(-x) + sum(c * special.ndtr(mu - x) for c, mu in moves))

    def with_record(e: Array) -> Array:
        x = place(e)
        return np.asarray(mass(x) - np.exp(e + special.log_ndtr(-x)))

    def without(e: Array) -> Array:
        x = place(-e)
        below = rest * special.ndtr(x) + sum(c * special.ndtr(x - mu) for c, mu in moves)
        with np.errstate(all="ignore"):
            return np.asarray(special.ndtr(x) - np.where(below > 0, np.exp(e + np.log(below)), 0.0))

    if forward:
        return Losses(with_record, _log_ratio(-_TAIL, moves, rest), _log_ratio(top + _TAIL, moves, rest))
    return Losses(without, -_log_ratio(_TAIL, moves, rest), -_log_ratio(-_TAIL, moves, rest))


def of_visible(term: Event, forward: bool) -> Losses:
    """A mixture whose outcome everybody sees: its probability, μ² ratio, and the rate of a hidden draw."""
    ways = []
    for chance, ratio, rate, *apart in term.detail:
        kind = "unsampled" if rate == 1 else "replaced" if apart else "poisson"
        inner = Event(term.square * ratio, 1, kind, rate, tuple(apart))
        ways.append((chance, EVENTS[kind](inner, forward)))

    def curve(e: Array) -> Array:
        total = np.zeros_like(e)
        for chance, one in ways:
            first = min(one.least, 0.0)
            at_first, at_last = one.curve(np.array([first, one.most]))
            # The curve of the other direction at -ε is (D(ε) - 1 + e^ε) / e^ε; both curves only fall.
            mirrored = max(0.0, at_first + math.expm1(first)) / math.exp(first)
            low = np.minimum(e, 0.0)
            part = np.where(e > one.most, at_last, np.exp(low) * mirrored - np.expm1(low))
            reached = np.flatnonzero((e >= first) & (e <= one.most))
            part[reached] = one.curve(e[reached])
            total += chance * part
        return total

    return Losses(curve, min(one.least for _, one in ways), max(one.most for _, one in ways))


EVENTS: dict[str, Callable[[Event, bool], Losses]] = {
    "unsampled": of_gaussian,
    "revealed": of_revealed,
    "poisson": of_poisson,
    "fixed": of_fixed,
    "replaced": of_fixed,
    "batches": of_batches,
    "visible": of_visible,
}
"""Every kind of event that this checker can compose; any other is an error."""


def masses(losses: Losses, reverse: Losses, interval: float) -> tuple[int, Array, float]:
    """A distribution on the grid whose curve is nowhere below ``losses``: chords between its grid points.

    A curve is convex in e^ε, so chords lie above it. A loss of -l is e^-l times as likely as one of l the
    other way round (``reverse``), where no small differences of numbers near 1 are taken. Returns the first
    grid point, the masses from there on, and the mass at infinity.
    """
    above, infinite = _masses_above(losses, interval)
    below, _ = _masses_above(reverse, interval)
    below = (below * np.exp(-interval * np.arange(1, len(below) + 1)))[::-1]
    at_zero = max(0.0, 1.0 - infinite - float(above.sum()) - float(below.sum()))
    return -len(below), np.concatenate([below, [at_zero], above]), infinite


def _masses_above(losses: Losses, interval: float) -> tuple[Array, float]:
    """The masses at the points of the grid above 0, and that at infinity."""
    points = max(1, math.ceil(losses.most / interval)) + 1
    curve = np.clip(losses.curve(np.arange(points, dtype=np.float64) * interval), 0.0, 1.0)
    curve = curve[: max(2, np.count_nonzero(curve > _NEXT_TO_NOTHING) + 1)]  # what is left counts as infinite
    falls = -np.diff(np.minimum.accumulate(curve))
    found = falls / -math.expm1(-interval)
    found[:-1] -= falls[1:] / math.expm1(interval)
    return np.maximum(found, 0.0), float(curve[-1])


_masses_cached = lru_cache(maxsize=16)(
    lambda term, forward, interval: masses(
        EVENTS[term.kind](term, forward), EVENTS[term.kind](term, not forward), interval
    )
)


def _log_sum(logs: Array) -> float:
    """ln of the sum of exponentials."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


def _powers(interval: float) -> Array:
    """Of e, for moments of losses: up to 1e3, or a tenth of what a finer grid can tell apart."""
    return np.geomspace(1e-3, max(1e3, 0.1 / interval), 31 + max(0, round(-5 * math.log10(1e4 * interval))))


Parts: TypeAlias = Sequence[tuple[int, Array, int]]
"""First point of the grid, masses from there on, and how often, for each kind of release."""


def _blocks(parts: Parts, interval: float) -> list[tuple[Array, Array, Array, int]]:
    """Of stretches of every grid: logarithms of the masses, first and last losses; how often.

    A stretch at a loss l is about l / 64 long, and one point where that is less.
    """
    found: list[tuple[Array, Array, Array, int]] = []
    for first, p, count in parts:
        at = np.arange(first, first + len(p), dtype=np.float64)
        stretch = np.sign(at) * np.floor(64 * np.log1p(np.abs(at) / 64))
        starts = np.append(0, np.flatnonzero(np.diff(stretch)) + 1)
        ends = np.append(starts[1:], len(p)) - 1
        weights = np.asarray(np.add.reduceat(p, starts), dtype=np.float64)
        some = weights > 0
        places = np.stack([starts[some], ends[some]]).astype(np.float64)
        least, most = (first + places) * interval
        found.append((np.log(weights[some]), least, most, count))
    return found


def _window(parts: Parts, interval: float) -> tuple[float, float]:
    """Losses between which all but e^−46 of a composition lies, by Chernoff's bound on either side.

    Moments are bounded with every loss moved outwards, to the end of its block of the grid.
    """
    low = math.fsum(count * first * interval for first, _, count in parts)
    high = math.fsum(count * (first + len(p) - 1) * interval for first, p, count in parts)
    blocks = _blocks(parts, interval)
    for power in _powers(interval):
        above = math.fsum(n * _log_sum(w + power * most) for w, _, most, n in blocks)
        below = math.fsum(n * _log_sum(w - power * least) for w, least, _, n in blocks)
        high = min(high, (above + _LOG_TAIL) / power)
        low = max(low, -(below + _LOG_TAIL) / power)
    return low, max(high, low + interval)


def _tilted(parts: Parts, delta: float, interval: float) -> tuple[Parts, float, float]:
    """Every mass p at a loss l replaced by p e^(θl) / M; also θ and Σ count ln M.

    Any θ ≥ 0 will do. As (1 − e^−x) e^−θx is at most c = θ^θ / (1 + θ)^(1 + θ), δ(ε) is at most c M e^−θε.
    This θ makes the bound of ε at δ smallest, so that the mean of the composition is near ε.
    """
    blocks = _blocks(parts, interval)

    def bound(power: float) -> float:
        logs = math.fsum(n * _log_sum(w + power * most) for w, _, most, n in blocks)
        share = power * math.log(power) - (1 + power) * math.log1p(power)
        return (logs + share - math.log(delta)) / power

    tilt = float(min(_powers(interval), key=bound))
    tilted, log_moment = [], 0.0
    for first, p, count in parts:
        with np.errstate(divide="ignore"):
            logs = np.log(p) + tilt * interval * np.arange(first, first + len(p))
        one = _log_sum(logs)
        tilted.append((first, np.exp(logs - one), count))
        log_moment += count * one
    return tilted, tilt, log_moment


def composed_epsilon(terms: Sequence[Event], delta: float, interval: float, forward: bool) -> float:
    """ε of a composition by one Fourier transform of tilted distributions.

    With masses p e^(θl) / M in the place of p, those of the composition are q = p e^(θl) / M, M now the
    product of all moments. A mass x of q at losses of at least ε stands for at most M e^(−θε) x of p, which
    is about δ x. So rounding, and what lies beyond the window, are small beside δ however small δ is. Three
    errors are added to the mass at infinity: that mass of every term, the tail beyond the window, and a bound
    on the rounding of the transforms at the ε that there is without it. No ε below the window is given, so
    what lies there does not count.
    """
    parts, log_finite = [], 0.0
    for term in terms:
        first, p, infinite = _masses_cached(replace(term, count=1), forward, interval)
        parts.append((first, p, term.count))
        log_finite += term.count * math.log1p(-infinite) if infinite < 1 else -math.inf
    tilted, tilt, log_moment = _tilted(parts, delta, interval)
    low, high = _window(tilted, interval)
    start = math.floor(low / interval)
    size = int(fft.next_fast_len(math.ceil(high / interval) - start + 2, real=True))
    product, shift, releases = np.ones(size // 2 + 1, dtype=np.complex128), 0, 0
    for first, p, count in tilted:
        folded = np.bincount(np.arange(len(p)) % size, p, size)
        product *= fft.rfft(folded) ** count
        shift, releases = shift + first * count, releases + count
    found: Array = np.maximum(np.roll(fft.irfft(product, size), shift - start), 0.0).astype(np.float64)
    rounding = 4 * np.finfo(np.float64).eps * (releases + math.log2(size))
    rounding *= math.sqrt(size) * float(np.linalg.norm(found))
    losses = (start + np.arange(size, dtype=np.float64)) * interval
    with np.errstate(divide="ignore"):
        found = np.exp(np.minimum(np.log(found) + log_moment - tilt * losses, 0.0))
    beyond = math.exp(min(log_moment - tilt * high - _LOG_TAIL, 700.0))
    infinite = -math.expm1(log_finite) + 2 * beyond
    without = _epsilon_of_masses(losses, found, float(infinite), delta)
    if math.isinf(without):
        return math.inf
    without = max(without, low)
    infinite += rounding * math.exp(min(log_moment - tilt * without, 700.0))
    return max(_epsilon_of_masses(losses, found, float(infinite), delta), low)


def _epsilon_of_masses(losses: Array, found: Array, infinite: float, delta: float) -> float:
    """The least ε ≥ 0 with infinite + Σ_(l > ε) p (1 − e^(ε − l)) <= delta."""
    if infinite > delta:
        return math.inf
    some = losses > 0
    losses, found = losses[some], found[some]
    mass = np.cumsum(found[::-1])[::-1]
    with np.errstate(divide="ignore"):
        weighed = np.logaddexp.accumulate((np.log(found) - losses)[::-1])[::-1]
    if not len(losses) or infinite + mass[0] - math.exp(weighed[0]) <= delta:
        return 0.0
    after = infinite + np.append(mass[1:] - np.exp(losses[:-1] + weighed[1:]), 0.0)
    k = int(np.argmax(after <= delta))
    return float(math.log(infinite + mass[k] - delta) - weighed[k])


def recomputed_epsilon(terms: Iterable[Event], method: str, delta: float, interval: float | None) -> float:
    """ε of ``terms`` by the method that the row names."""
    charged = merged(terms)
    _require_known(charged)
    return _recomputed(tuple(charged), method, delta, interval)


def _require_known(events: Iterable[Event]) -> None:
    for event in events:
        if event.kind not in EVENTS:
            raise UnknownKindError(f"event: this checker has no rule for the kind {event.kind!r}")


@lru_cache(maxsize=4096)
def _recomputed(charged: tuple[Event, ...], method: str, delta: float, interval: float | None) -> float:
    if any(math.isinf(t.square) and t.rate == 1 for t in charged):
        return math.inf
    if method == "gdp":
        return revealed_epsilon([_at_its_largest(t) for t in charged], delta)
    if any(math.isinf(t.square) for t in charged):
        return math.inf
    grid = interval or 1e-4
    certain = math.fsum(t.square * t.count for t in charged if t.kind == "unsampled")
    others = [t for t in charged if t.kind != "unsampled"]
    pieces = [*others, Event(certain, 1)] if certain > 0 else others
    points = sum((_log_span(t) / grid) * min(t.count * t.rate + 1, 64) for t in pieces)
    fine = grid / 2 if points < _MOST_POINTS else grid
    return max(composed_epsilon(pieces, delta, fine, forward) for forward in (True, False)) if pieces else 0.0


def _at_its_largest(term: Event) -> Event:
    """A visible mixture as if there were always least noise, unless each of its draws is told by itself."""
    inner = {rate for _, ratio, rate, *_ in term.detail if ratio > 0} if term.kind == "visible" else set()
    if term.kind != "visible" or term.rate == 1 or (1.0 in inner and len(inner) > 1):
        return term
    largest = max(ratio for _, ratio, *_ in term.detail)
    return Event(term.square * largest, term.count, "revealed", term.rate)


def _log_span(term: Event) -> float:
    return float(term.square + 2 * _TAIL * term.mu)


def merged(terms: Iterable[Event]) -> list[Event]:
    """Equal terms added up; what never uses the unit, or tells nothing, left out; certain draws as none."""
    counts: Counter[Event] = Counter()
    for term in terms:
        if term.count > 0 and term.square > 0 and term.rate > 0:
            plain = term if term.rate < 1 or term.kind == "visible" else Event(term.square, 1)
            counts[replace(plain, count=1)] += term.count
    return sorted(replace(term, count=count) for term, count in counts.items())


# --- 2. What is composed: terms from releases ---------------------------------------------------------------


def number(value: Any) -> float:
    """A figure of a JSON file, where ∞ is ``"inf"``; no other text, no truth value and not NaN."""
    if value == "inf":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"{_short(value)} is no number")
    return float(value)


def whole(value: Any) -> int:
    """A count or an index of a JSON file: no fraction, which would be rounded, and not below 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{_short(value)} is no whole number from 0")
    return value


def flag(value: Any) -> bool:
    """A truth value of a JSON file."""
    if not isinstance(value, bool):
        raise ValueError(f"{_short(value)} is neither true nor false")
    return value


def numbers(values: Sequence[Any]) -> Array:
    """Figures of a JSON file."""
    return np.array([number(value) for value in values], dtype=np.float64)


def wholes(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Counts or indices of a JSON file."""
    return np.array([whole(value) for value in values], dtype=np.int64)


@dataclass(frozen=True)
class Draw:
    """The releases that one draw of participants serves."""

    sampling: Json
    count: int
    releases: tuple[Json, ...]
    max_weight_ratio: float
    drawn_noise: tuple[tuple[int, tuple[float, ...]], ...] = ()
    """Others whose noise is there if they are drawn: how many, and the variance each adds to each release."""

    @property
    def kind(self) -> str:
        """all, poisson, fixed."""
        return str(self.sampling.get("kind", "all"))

    @property
    def rate(self) -> float:
        """Expected share of draws that choose the unit."""
        return number(self.sampling.get("rate", 1.0))

    @property
    def divides_by_drawn(self) -> bool:
        """Whether what sums are divided by depends on who is drawn."""
        return any(r.get("divides_by_drawn", False) for r in self.releases)

    @property
    def amplifies(self) -> bool:
        """Whether the draw is hidden, and decides about the unit's message alone, whatever noise is there."""
        return (
            self.kind != "all"
            and flag(self.sampling.get("hidden", True))
            and all(
                r["noise_is_draw_independent"]
                and not whole(r.get("linking", 0))
                and (number(r["propagated_sensitivity"]) == 0 or r.get("amplifies_propagated", False))
                for r in self.releases
            )
        )

    @property
    def moved_rate(self) -> float:
        """Probability that anybody is drawn who moves a release."""
        movers = max((whole(r.get("linking", 0)) for r in self.releases), default=0)
        movers += any(number(r["own_sensitivity"]) > 0 for r in self.releases)
        if self.kind == "fixed" and movers > 1:
            left, sample = whole(self.sampling["population"]), whole(self.sampling["sample"])
            shares = [max(0, left - sample - taken) / (left - taken) for taken in range(min(movers, left))]
            return 1.0 - math.prod(shares)
        return (
            self.rate
            if movers <= 1
            else -math.expm1(movers * math.log1p(-self.rate))
            if self.rate < 1
            else 1.0
        )

    def square(self, relation: str) -> float:
        """μ² of all releases of the draw together."""
        return math.fsum(squared_mu(r, relation) for r in self.releases)


def sensitivity(release: Json, relation: str) -> float:
    """How far one release moves at most."""
    own, others = number(release["own_sensitivity"]), number(release["propagated_sensitivity"])
    twice = relation == "replace" or (relation == "remove" and release.get("divides_by_drawn", False))
    return own * (2 if twice else 1) + others


def squared_mu(release: Json, relation: str) -> float:
    """(sensitivity / noise std)² of one release."""
    moves, variance = sensitivity(release, relation), number(release["variance"])
    if moves == 0:
        return 0.0
    return moves**2 / variance if variance > 0 else math.inf


def amplified(draw: Draw, relation: str) -> bool:
    """Whether a hidden Poisson draw amplifies what it serves."""
    return draw.amplifies and draw.kind == "poisson" and (relation != "zero-out" or not draw.divides_by_drawn)


def apart_from_absent(draws: Sequence[Draw], relation: str) -> tuple[float, ...]:
    """How far a replaced unit is from the same draw without it, over how far the two worlds are apart.

    Without it nothing of its own is there; where denominators depend on who is drawn they move as well.
    Nothing under other relations, where one of the worlds is that draw.
    """
    if relation != "replace":
        return ()
    moving = [r for draw in draws for r in draw.releases if sensitivity(r, relation) > 0]
    away = max((sensitivity(r, "remove") / sensitivity(r, relation) for r in moving), default=0.0)
    return (away, away) if away else ()


def terms_of(draws: Sequence[Draw], relation: str) -> tuple[list[Event], float]:
    """The terms of ``draws`` under a relation, and the probability that nothing protects."""
    terms: list[Event] = []
    for draw in draws:
        hidden = amplified(draw, relation)
        if (
            relation == "remove"
            and not hidden
            and any(number(r["own_sensitivity"]) > 0 for r in draw.releases)
        ):
            return [], 1.0
        terms += _terms_of_draw(draw, relation, hidden)
    return terms, 0.0


def _terms_of_draw(draw: Draw, relation: str, hidden: bool) -> list[Event]:
    if draw.kind == "all":
        return [Event(squared_mu(r, relation), draw.count) for r in draw.releases]
    square = draw.square(relation)
    if draw.kind not in ("poisson", "fixed"):
        raise UnknownKindError(f"draw: this checker has no rule for the kind {draw.kind!r}")
    if not hidden:
        return [Event(square, draw.count, "revealed", draw.moved_rate)]
    apart = apart_from_absent([draw], relation)
    return [Event(square, draw.count, "replaced" if apart else "poisson", draw.rate, apart)]


def terms_without_replacement(draws: Sequence[Draw], relation: str) -> list[Event]:
    """The unit in a round against another device in its place, which may count for more.

    The two messages lie up to the sum of both bounds apart, that of a unit that sends zeros only the other's.
    Where denominators depend on who is drawn, what all others contribute moves too.
    """
    terms: list[Event] = []
    for draw in draws:
        if not (draw.amplifies and draw.kind == "fixed"):
            terms += _terms_of_draw(draw, relation, False)
            continue
        heaviest, moves = draw.max_weight_ratio, draw.divides_by_drawn
        farthest = 2 * max(1.0, heaviest) if moves else 1 + heaviest
        apart = (farthest, farthest if moves else heaviest)
        if relation == "replace":
            apart = (farthest / 2, farthest / 2)
        rate = number(draw.sampling["sample"]) / max(number(draw.sampling["population"]), 1)
        terms.append(Event(draw.square(relation), draw.count, "fixed", min(1.0, rate), apart))
    return terms


def noise_beside(draw: Draw) -> list[tuple[Array, Array, Array]]:
    """Noise of others who are drawn: its proportions over the releases, how much there is, and the chances.

    Of the proportions in which devices add noise the two with the most of it count.
    """
    sides: dict[tuple[float, ...], list[tuple[float, int]]] = {}
    for count, variances in draw.drawn_noise:
        most = max(variances)
        if count > 0 and most > 0:
            sides.setdefault(tuple(v / most for v in variances), []).append((most, count))
    order = sorted(sides.items(), key=lambda side: -sum(most * count for most, count in side[1]))
    return [(np.array(proportions), *_drawn_sum(parts, draw.rate)) for proportions, parts in order[:2]]


def _drawn_sum(parts: Sequence[tuple[float, int]], rate: float) -> tuple[Array, Array]:
    """Sums of the variances of those who are drawn, and their chances.

    Variances that differ count in whole shares of the largest, rounded down.
    """
    largest, total = max(v for v, _ in parts), sum(count for _, count in parts)
    shares = 1 if all(v == largest for v, _ in parts) else max(32, (1 << 14) // total)
    counts: Counter[int] = Counter()
    for variance, count in parts:
        counts[math.floor(variance / largest * shares * (1 + 1e-12))] += count
    start, chances = 0, np.ones(1)
    for units, count in sorted(counts.items()):
        if units > 0:
            times, weights, _ = binomial(count, rate)
            apart = np.zeros(units * (len(times) - 1) + 1)
            apart[::units] = weights / weights.sum()
            chances, start = np.convolve(chances, apart), start + units * int(times[0])
            kept = np.flatnonzero(chances > _NEGLIGIBLE)
            chances, start = chances[kept[0] : kept[-1] + 1], start + int(kept[0])
    return largest / shares * (start + np.arange(len(chances), dtype=np.float64)), chances


def chances_above(draw: Draw, relation: str, levels: Array) -> tuple[Array, float]:
    """Chance that μ² of a round is above each of the ascending ``levels`` but finite; and that it is not."""
    moves = np.array([sensitivity(r, relation) for r in draw.releases])
    sure = np.array([number(r["variance"]) for r in draw.releases])
    nothing = np.zeros(len(moves)), np.zeros(1), np.ones(1)
    sides = sorted([*noise_beside(draw), nothing, nothing][:2], key=lambda side: len(side[1]))
    (one, amounts, chances), (other, more, weights) = sides
    edges = np.append(levels, np.finfo(np.float64).max)
    found = np.zeros(len(edges) + 1)
    for amount, chance in zip(amounts, chances, strict=True):
        variances = (sure + amount * one + more[:, None] * other)[:, moves > 0]
        with np.errstate(divide="ignore"):
            squares = (moves[moves > 0] ** 2 / variances).sum(axis=1)
        found += chance * np.bincount(np.searchsorted(edges, squares), weights, len(found))
    return np.cumsum(found[-2:0:-1])[::-1], float(found[-1])


def mixture_problems(
    draws: Sequence[Draw], relation: str, widened: float, terms: Sequence[Json], failure: float
) -> Iterator[str]:
    """How stated mixtures over who else is drawn have more noise than these add.

    Every draw has terms of its own, in order: one mixture where others add noise if they are drawn, else what
    its releases amount to. ``widened``: by how much every μ² is larger than that of the releases.
    """
    left, least = list(terms), 0.0
    for draw in draws:
        if draw.drawn_noise:
            lost, found = _mixture_of_draw(draw, relation, widened, left[:1])
            least += lost
            del left[:1]
            yield from found
            continue
        derived = _terms_of_draw(draw, relation, amplified(draw, relation))
        mine = [stated_term(term) for term in left[: len(derived)]]
        del left[: len(derived)]
        if not same_terms(mine, [replace(one, square=widened * one.square) for one in derived]):
            yield f"terms: those of the draw of {draw.count} rounds do not follow from its releases"
    if left:
        yield f"terms: {len(terms)} are stated; the draws have {len(terms) - len(left)}"
    times = sum(draw.count for draw in draws)
    if not least * (1 - OF_A_CHANCE) - LEAST_CHANCE <= failure <= least + (least + times) * OF_A_CHANCE:
        yield f"failure_probability: stated {failure:.9g}; rounds without any noise give {least:.9g}"


def _mixture_of_draw(
    draw: Draw, relation: str, widened: float, terms: Sequence[Json]
) -> tuple[float, list[str]]:
    """The chance that a round of the draw has no noise, and how its stated mixture has more than there is.

    The stated μ² must be above every level at least as often as it is by the draws.
    """
    found = list[str]()
    hidden = amplified(draw, relation)
    rate = draw.rate if hidden else draw.moved_rate
    term: Json = terms[0] if len(terms) == 1 else {"multiplier": "inf"}
    square = stated_term({"multiplier": term["multiplier"]}).square
    sampling: Json = term.get("sampling") or {"kind": "poisson", "rate": rate, "hidden": hidden}
    scales = sampling.get("scales", [(1.0, 1.0)] if square else [])
    drawn = sampling["kind"], flag(sampling.get("hidden", True)), whole(term.get("count", 1)), len(terms)
    if drawn != ("poisson", hidden, draw.count, 1) or not close(number(sampling.get("rate", 1.0)), rate):
        who = "unseen" if hidden else "seen"
        found.append(
            f"terms: must be one mixture, {draw.count} times, over draws at rate {rate:.9g} that are {who}"
        )
    if term.get("sampling"):
        found += _apart_problems(sampling, [draw] if hidden else [], relation)
    stated = [(number(p), square * number(share) ** 2) for p, share in scales]
    if min((p for p, _ in stated), default=0.0) < 0 or math.fsum(p for p, _ in stated) > 1 + ROUNDING:
        found.append("terms: scales: the probabilities are below 0 or add up to more than 1")
    levels = np.unique([0.0, *(mu for _, mu in stated if math.isfinite(mu))])
    least, bare = chances_above(draw, relation, levels * (1 + ROUNDING) / widened)
    for level, chance in zip(levels, least, strict=True):
        mine = math.fsum(p for p, mu in stated if mu > level)
        if mine < chance * (1 - OF_A_CHANCE) - LEAST_CHANCE:
            found.append(
                f"terms: scales: μ² is above {level:.9g} with probability {mine:.9g}; "
                f"by who else may be drawn with {chance:.9g}"
            )
            break
    lost = -math.expm1(draw.count * math.log1p(-rate * bare)) if rate * bare < 1 else 1.0
    return lost, found


def _apart_problems(sampling: Json, hidden: Sequence[Draw], relation: str) -> Iterator[str]:
    """How a replaced unit is stated to be nearer to a draw without it than it may be."""
    wanted = apart_from_absent(hidden, relation)
    if len(stated_apart(sampling)) != len(wanted) or min(stated_apart(sampling), default=0.0) < max(
        wanted, default=0.0
    ) * (1 - ROUNDING):
        yield f"terms: apart: stated {stated_apart(sampling)}; by the releases {wanted}"


def term_of_record(part: Json, releases: Sequence[Json], rate: float, relation: str) -> Event:
    """Releases that were trained on the same draws of a record, which is in a local step with that rate."""
    square = math.fsum(squared_mu(r, "replace") for r in releases)
    moves = [number(m) for m in part.get("moves", ())]
    if not moves:
        return Event(square * number(part.get("largest_move", 1.0)) ** 2, whole(part["count"]))
    replaced = [number(m) for m in part.get("replaced_moves", ())]
    participation = number(part.get("participation", 1.0))
    between = replaced or moves if relation == "replace" else moves
    shared = [max(m, 0.5) if participation < 1 else m for m in moves]
    largest = max(*between, *shared)
    ways: dict[tuple[float, float], float] = {}
    for step, (one, other) in enumerate(zip(between, shared, strict=True)):
        key = one / largest, other / largest
        ways[key] = ways.get(key, 0.0) + participation * rate * (1 - rate) ** step
    leaves = participation < 1 or relation == "replace"
    listed = tuple((chance, *shares) for shares, chance in sorted(ways.items(), reverse=True))
    total = min(1.0, math.fsum(chance for chance, *_ in listed))
    return Event(square * largest**2, whole(part["count"]), "batches", total, (leaves, *listed))


def stated_term(term: Json) -> Event:
    """A term as the certificate states it."""
    multiplier, count, sampling = (
        number(term["multiplier"]),
        whole(term.get("count", 1)),
        term.get("sampling"),
    )
    square = math.inf if multiplier == 0 else 0.0 if math.isinf(multiplier) else multiplier**-2
    if sampling is None or sampling.get("kind", "all") == "all":
        return Event(square, count)
    kind, rate = str(sampling["kind"]), number(sampling.get("rate", 1.0))
    if sampling.get("scales") or sampling.get("seen_scales"):
        return _visible(square, count, sampling)
    if kind == "poisson" and not flag(sampling.get("hidden", True)):
        return Event(square, count, "revealed", rate)
    if apart := stated_apart(sampling):
        return Event(square, count, "replaced", rate, apart)
    if kind == "fixed":
        apart = tuple(number(x) for x in sampling.get("apart", (1.0, 1.0)))
        return Event(square, count, kind, number(sampling["sample"]) / number(sampling["population"]), apart)
    if kind == "batches":
        ways = tuple(tuple(number(x) for x in way) for way in sampling["moves"])
        return Event(square, count, kind, rate, (flag(sampling.get("shares_a_part", False)), *ways))
    return Event(square, count, kind, rate)


def _visible(square: float, count: int, sampling: Json) -> Event:
    """A draw whose noise depends on who else is drawn: by the shares of the largest sensitivity over noise.

    What the probabilities lack to 1, the rounds without noise, tells nothing here: it is charged as failure.
    """
    if sampling["kind"] != "poisson":
        raise UnknownKindError(f"draw: this checker has no rule for scales of the kind {sampling['kind']!r}")
    rate = number(sampling.get("rate", 1.0))
    used, inner = (1.0, rate) if flag(sampling.get("hidden", True)) else (rate, 1.0)
    apart = stated_apart(sampling)
    ways = [(used * number(p), number(share) ** 2, inner, *apart) for p, share in sampling.get("scales", ())]
    ways += [(number(p), number(share) ** 2, 1.0) for p, share in sampling.get("seen_scales", ())]
    rest = max(0.0, 1.0 - math.fsum(p for p, *_ in ways))
    return Event(square, count, "visible", rate, (*ways, (rest, 0.0, 1.0)))


def stated_apart(sampling: Json) -> tuple[float, ...]:
    """How far a replaced unit is stated to be from the draw without it, in the two worlds; else nothing."""
    if sampling.get("kind") != "poisson" or not flag(sampling.get("shares_a_part", False)):
        return ()
    one, other = (number(x) for x in sampling.get("apart", (1.0, 1.0)))
    return one, other


def close(one: float, other: float) -> bool:
    """Equal up to the order in which things were added up; ∞ only if both are."""
    largest = max(abs(one), abs(other), 1e-300)
    return one == other or (math.isfinite(largest) and abs(one - other) <= ROUNDING * largest)


def same_terms(stated: Sequence[Event], derived: Sequence[Event]) -> bool:
    """Whether the terms are the same, one by one."""
    return len(stated) == len(derived) and all(
        a.count == b.count
        and a.kind == b.kind
        and close(a.square, b.square)
        and close(a.rate, b.rate)
        and len(a.detail) == len(b.detail)
        and all(np.allclose(x, y, rtol=ROUNDING, atol=1e-12) for x, y in zip(a.detail, b.detail, strict=True))
        for a, b in zip(stated, derived, strict=True)
    )


# --- 3. The exposed set: releases from facts ----------------------------------------------------------------


class Expected(NamedTuple):
    """A release as the facts have it; its noise by kind of owner."""

    name: str
    vector: str
    own: float
    others: float
    noise: Array  # of devices, aggregators, channel
    draw_independent: bool
    divides_by_drawn: bool = False
    linking: int = 0
    amplifies_propagated: bool = False

    def squared_mu(self, relation: str) -> float:
        """(sensitivity / noise std)²."""
        twice = relation == "replace" or (relation == "remove" and self.divides_by_drawn)
        moves, variance = self.own * (2 if twice else 1) + self.others, float(self.noise.sum())
        if moves == 0:
            return 0.0
        return moves**2 / variance if variance > 0 else math.inf


OWNERS = ("devices", "aggregators", "channel")


def release_problems(stated: Json, wanted: Expected) -> Iterator[str]:
    """How a stated release claims more protection than the facts give."""
    what = f"{wanted.name}, {wanted.vector}"
    if (stated["name"], stated["vector"]) != (wanted.name, wanted.vector):
        yield f"exposed set: it has {stated['name']}, {stated['vector']}; the observer meets {what}"
        return
    for key, least in (("own_sensitivity", wanted.own), ("propagated_sensitivity", wanted.others)):
        if number(stated[key]) < least * (1 - ROUNDING):
            yield f"{what}: {key}: stated {number(stated[key]):.9g}; the facts give {least:.9g}"
    parts = stated.get("noise", {})
    held = [number(parts.get(owner, 0.0)) for owner in OWNERS]
    for owner, mine, most in zip(OWNERS, held, wanted.noise, strict=True):
        if mine > most * (1 + ROUNDING) + 1e-300:
            yield f"{what}: noise of {owner}: variance {mine:.9g} counted; the facts leave {most:.9g}"
    if set(parts) - set(OWNERS) or not close(math.fsum(held), number(stated["variance"])):
        total = number(stated["variance"])
        yield f"{what}: variance: stated {total:.9g}; its sources add up to {math.fsum(held):.9g}"
    for key, mine, allowed in (
        (
            "noise_is_draw_independent",
            not flag(stated["noise_is_draw_independent"]),
            not wanted.draw_independent,
        ),
        ("divides_by_drawn", flag(stated.get("divides_by_drawn", False)), wanted.divides_by_drawn),
        ("linking", whole(stated.get("linking", 0)), wanted.linking),
        (
            "amplifies_propagated",
            not flag(stated.get("amplifies_propagated", False)),
            not wanted.amplifies_propagated,
        ),
    ):
        if mine < allowed:
            yield f"{what}: {key}: the certificate says more in its favour than the facts do"


def sampling_problems(stated: Draw, wanted: Json, count: int, ratio: float = 1.0) -> Iterator[str]:
    """How a stated draw differs from that of the facts."""
    if stated.count != count:
        yield f"draw: stated {stated.count} times; it happens {count} times"
    defaults = {"kind": "all", "rate": 1.0, "hidden": True, "population": 0, "sample": 0}
    for key, default in defaults.items():
        mine, theirs = stated.sampling.get(key, default), wanted.get(key, default)
        if key == "hidden" and wanted["kind"] == "all":
            continue
        if not (close(number(mine), number(theirs)) if key not in ("kind", "hidden") else mine == theirs):
            seen = " (who sees it)" if key == "hidden" else ""
            yield f"draw: {key}{seen}: stated {mine}; the facts give {theirs}"
    if stated.max_weight_ratio < ratio * (1 - ROUNDING):
        yield f"draw: max_weight_ratio: stated {stated.max_weight_ratio}; the facts give {ratio:.9g}"


def _numbered(name: str) -> tuple[str, int]:
    """Kind and number of a party, written in the one way that there is."""
    found = re.fullmatch(r"(.+):(0|[1-9][0-9]{0,9})", name, re.ASCII)
    if found is None:
        raise ValueError(f"there is no party {name!r}")
    return found[1], int(found[2])


def _require_below(name: str, index: int, count: int) -> None:
    if index >= count:
        raise ValueError(f"there is no party {name!r}")


class TreeFacts:
    """A tree of aggregators: who is where, and what is sent in a round."""

    def __init__(self, ledger: Json) -> None:
        self.ledger = ledger
        self.names = [str(tier["name"]) for tier in ledger["tiers"]]
        self.parents = [np.zeros(len(ledger["tiers"][0]["parents"]), dtype=np.int64)]
        self.parents += [wholes(tier["parents"]) for tier in ledger["tiers"][1:]]
        self.depth = len(self.parents)
        self.devices = wholes(ledger["devices_per_leaf"])
        self.last = np.cumsum(self.devices)
        self.children = [
            np.bincount(below, minlength=len(above))
            for above, below in zip(self.parents, self.parents[1:], strict=False)
        ]
        self.drawn = numbers(ledger["participants_per_leaf"])
        self.least_divisor = numbers(ledger["denominator_per_leaf"])
        self.most_divisor = numbers(ledger["largest_denominator_per_leaf"])
        self.sure = wholes(ledger["sure_per_leaf"])
        self.always_sent = flag(ledger["always_sent"])
        self.class_leaf = wholes([c["leaf"] for c in ledger["device_classes"]])
        self.class_size = wholes([c["devices"] for c in ledger["device_classes"]])
        self.class_weight = numbers([c["weight"] for c in ledger["device_classes"]])
        self.class_noisy = np.array([flag(c["noisy"]) for c in ledger["device_classes"]], dtype=np.bool_)
        self.steps = ledger["steps"]
        self.paths = self._paths()
        self._noise_cache: dict[Any, list[Array]] = {}

    def _paths(self) -> npt.NDArray[np.int64]:
        """For every leaf, its ancestors from the root down to itself."""
        columns = [np.arange(len(self.devices))]
        for parents in reversed(self.parents[1:]):
            columns.insert(0, parents[columns[0]])
        return np.stack(columns, axis=1)

    @property
    def pairs(self) -> int:
        """Ordered pairs of a device and an observer: aggregators, the public, and the other devices."""
        devices = int(self.devices.sum())
        return devices * (sum(map(len, self.parents)) + devices)

    def party(self, name: str) -> Party:
        """What the name of an observer stands for."""
        if name in ("public", "cloud"):
            return ("public", 0, 0) if name == "public" else ("node", 0, 0)
        kind, index = _numbered(name)
        if kind == "device":
            _require_below(name, index, int(self.devices.sum()))
            return "device", self.depth, index
        if kind not in self.names[1:]:
            raise ValueError(f"there is no party {name!r}")
        tier = self.names.index(kind)
        _require_below(name, index, len(self.parents[tier]))
        return "node", tier, index

    def name(self, tier: int, index: int) -> str:
        """Of an aggregator."""
        return "cloud" if tier == 0 else f"{self.names[tier]}:{index}"

    def leaf(self, device: int) -> int:
        """That a device is under."""
        listed = self.ledger.get("class_per_device")
        if listed is not None:
            return int(self.class_leaf[int(listed[device])])
        return int(np.searchsorted(self.last, device, side="right"))

    def device_class(self, device: int) -> int:
        """That a device is in."""
        listed = self.ledger.get("class_per_device")
        return self.leaf(device) if listed is None else int(listed[device])

    def variance(self, step: int) -> Array:
        """That a device of each class adds to its message."""
        std = np.array(self.steps[step]["device_noise_std_per_leaf"], dtype=np.float64)
        return np.asarray((std[self.class_leaf] * self.class_weight * self.class_noisy) ** 2)

    def sends(self, step: int, leaf: int) -> bool:
        """Whether the devices of a leaf send anything at a step."""
        listed = self.steps[step].get("takes_part_per_leaf")
        return listed is None or flag(listed[leaf])

    def steps_of(self, leaf: int) -> list[int]:
        """The steps at which the devices of a leaf send."""
        return [step for step in range(len(self.steps)) if self.sends(step, leaf)]

    def broadcasts(self, step: int, leaf: int) -> bool:
        """Whether a leaf sends its own average to its devices although a tier above aggregates."""
        listed = self.steps[step].get("also_broadcasts_per_leaf")
        return listed is not None and flag(listed[leaf])

    def _told(self, step: int, coalition: Sequence[Party]) -> set[tuple[int, int]]:
        """Nodes whose average, as they send it, the coalition has."""
        found = {(tier, index) for kind, tier, index in coalition if kind == "node"}
        leaves = {self.leaf(index) for kind, _, index in coalition if kind == "device"}
        return found | {(self.depth - 1, leaf) for leaf in leaves if self.broadcasts(step, leaf)}

    def share(self, leaf: int, tier: int) -> float:
        """Largest weight of a message of weight 1 in the average of the leaf's ancestor on ``tier``."""
        weight = 1.0 / float(self.least_divisor[leaf])
        for t in range(tier, self.depth - 1):
            weight /= float(self.children[t][self.paths[leaf, t]])
        return weight

    def receives_sum(self, node: Party, coalition: Sequence[Party]) -> bool:
        """Whether a member meets only the sum of what its children send."""
        _, tier, index = node
        hop = self.ledger["hops"][tier]
        if hop != "secure-aggregation":
            return bool(hop == "air")
        below = 0
        for kind, t, i in coalition:
            if kind == "device" and tier == self.depth - 1:
                below += self.leaf(i) == index
            elif kind == "node" and t == tier + 1:
                below += int(self.parents[t][i]) == index
        thresholds = self.ledger["shares_that_unmask"]
        return not thresholds or below < whole(thresholds[tier][index])

    # noise that nobody in the coalition knows

    def _of_devices(self, step: int, leaf: int, unit: int | None, coalition: Sequence[Party]) -> float:
        """Least variance of devices' noise in a leaf's average; ``unit``: its class, where it is in it."""
        variance = self.variance(step)
        members = Counter(self.device_class(i) for kind, _, i in coalition if kind == "device")
        alike = np.flatnonzero(self.class_leaf == leaf)
        left = int(self.sure[leaf]) - sum(members[int(c)] for c in alike) - (unit is not None)
        total = float(variance[unit]) if unit is not None else 0.0
        for c in sorted(alike, key=lambda c: float(variance[c])):
            taken = max(0, min(left, int(self.class_size[c]) - members[int(c)] - (c == unit)))
            left, total = left - taken, total + taken * float(variance[c])
        divisor = self.least_divisor if unit is not None else self.most_divisor
        return total / float(divisor[leaf]) ** 2

    def _quiet(self, step: int) -> Array:
        """`_of_devices` of every leaf without the unit and without members."""
        key = ("quiet", step)
        if key not in self._noise_cache:
            leaves = [self._of_devices(step, leaf, None, ()) for leaf in range(len(self.devices))]
            self._noise_cache[key] = [np.array(leaves)]
        return self._noise_cache[key][0]

    def noise(
        self, step: int, unit: int, coalition: Sequence[Party], tier: int, sent: bool, present: bool = True
    ) -> Array:
        """Variance by owner in the average of the unit's ancestor on ``tier``, or in what it receives."""
        facts, path = self.steps[step], self.paths[self.leaf(unit)]
        alone = float(self.variance(step)[self.device_class(unit)]) if present else 0.0
        if self.ledger["rounded_after_noise"] and alone > 0:
            return np.array([alone * self.share(self.leaf(unit), tier) ** 2, 0.0, 0.0])
        below = self._averages_of_leaves(step, unit, coalition, present)
        for t in range(self.depth - 1, tier - 1, -1):
            if t < self.depth - 1:
                if not self.always_sent:
                    below *= (np.arange(len(below)) == path[t + 1])[:, None]
                sums = np.zeros((len(self.parents[t]), 3))
                np.add.at(sums, self.parents[t + 1], below)
                below = sums / (self.children[t] ** 2)[:, None]
            if facts["channel_noise_std"]:
                below[:, 2] += numbers(facts["channel_noise_std"][t]) ** 2
            if t > tier or sent:
                below[:, 1] += np.array(facts["node_noise_std"][t]) ** 2
            if t == self.depth - 1 and not present and not self.always_sent:
                below[path[t]] = 0.0
            if t > tier:
                for level, index in self._told(step, coalition):
                    if level == t and path[t] != index:
                        below[index] = 0.0  # all that a member off the path sends is known
        return np.asarray(below[path[tier]])

    def _averages_of_leaves(self, step: int, unit: int, coalition: Sequence[Party], present: bool) -> Array:
        mine = self.leaf(unit)
        devices = self._quiet(step).copy()
        for leaf in {mine, *(self.leaf(i) for kind, _, i in coalition if kind == "device")}:
            inside = self.device_class(unit) if leaf == mine and present else None
            devices[leaf] = self._of_devices(step, leaf, inside, coalition)
        below = np.zeros((len(self.devices), 3))
        below[:, 0] = devices
        return below

    # releases

    def sees_average(self, step: int, unit: int, coalition: Sequence[Party]) -> bool:
        """Whether the coalition receives the average that the unit's message enters at a step."""
        tier = whole(self.steps[step]["aggregating_tier"])
        above = int(self.paths[self.leaf(unit), tier])
        for kind, t, index in coalition:
            if kind == "device" and int(self.paths[self.leaf(index), tier]) == above:
                return True
            if kind == "node" and t >= tier and self._ancestor(t, index, tier) == above:
                return True
        return tier == 0

    def _ancestor(self, tier: int, index: int, above: int) -> int:
        for t in range(tier, above, -1):
            index = int(self.parents[t][index])
        return index

    def finest(self, step: int, unit: int, coalition: Sequence[Party]) -> tuple[int, bool]:
        """Whose average is the finest sum with the unit's message: tier, and whether its noise is in it."""
        aggregating = whole(self.steps[step]["aggregating_tier"])
        path = self.paths[self.leaf(unit)]
        for tier in range(self.depth - 1, aggregating - 1, -1):
            node = ("node", tier, int(path[tier]))
            if node in coalition:
                return (tier, False) if self.receives_sum(node, coalition) else (tier + 1, True)
            if (tier, int(path[tier])) in self._told(step, coalition):
                return tier, True
        return aggregating, True

    def release(self, step: int, unit: int, coalition: Sequence[Party]) -> Expected:
        """What is charged for one step under flow."""
        facts, leaf = self.steps[step], self.leaf(unit)
        own = float(facts["message_bound_per_leaf"][leaf]) * float(self.class_weight[self.device_class(unit)])
        tier, sent = self.finest(step, unit, coalition)
        sure = self.ledger["draw"]["kind"] == "all"
        if tier == self.depth:
            alone = np.array([float(self.variance(step)[self.device_class(unit)]), 0.0, 0.0])
            return Expected(facts["name"], "the device's own message", own, 0.0, self._counted(alone), sure)
        node = self.name(tier, int(self.paths[leaf, tier]))
        vector = (
            f"the sum that {node} receives"
            if not sent
            else "the global average"
            if tier == 0
            else f"the average of {node}"
        )
        return Expected(
            facts["name"],
            vector,
            own * self.share(leaf, tier),
            0.0,
            self._counted(self.noise(step, unit, coalition, tier, sent)),
            self._draw_independent(step, leaf),
            bool(self.ledger["denominator_depends_on_draw"]),
        )

    def noise_of_records(self, step: int, unit: int, coalition: Sequence[Party]) -> float:
        """Variance in what is charged under flow, where single examples are clipped."""
        tier, sent = self.finest(step, unit, coalition)
        if tier == self.depth:
            return float(self.variance(step)[self.device_class(unit)])
        return float(self.noise(step, unit, coalition, tier, sent).sum())

    def _counted(self, noise: Array) -> Array:
        """No noise of a law that is not composed."""
        return np.asarray(noise * ("noise_not_composed" not in self.ledger))

    def _draw_independent(self, step: int, leaf: int) -> bool:
        """Whether the noise counted is the same whether the unit is drawn or not."""
        kind = self.ledger["draw"]["kind"]
        noises = self.variance(step)[self.class_leaf == leaf]
        if kind == "all" or self.steps[step]["tells_who_was_drawn"]:
            return bool(kind == "all")
        if kind == "poisson":
            return self.always_sent and int(self.sure[leaf]) == 0 and not noises.any()
        if not noises.any():
            return True
        constant = not self.ledger["denominator_depends_on_draw"] and bool((noises == noises[0]).all())
        return constant and int(self.sure[leaf]) == round(float(self.drawn[leaf]))

    def flow(self, unit: int, coalition: Sequence[Party]) -> list[Expected]:
        """Every aggregation of the unit's messages."""
        return [self.release(step, unit, coalition) for step in self.steps_of(self.leaf(unit))]

    def cut(self, unit: int, coalition: Sequence[Party]) -> list[Expected]:
        """Every average that is received, with all that was hidden before it."""
        return self.between(unit, coalition, self.seen_steps(unit, coalition))

    def seen_steps(self, unit: int, coalition: Sequence[Party]) -> list[int]:
        """The aggregations of the unit's messages whose average the coalition receives."""
        steps = self.steps_of(self.leaf(unit))
        return [step for step in steps if self.sees_average(step, unit, coalition)]

    def between(self, unit: int, coalition: Sequence[Party], exposed: Sequence[int]) -> list[Expected]:
        """Every average that is exposed, with all that was hidden before it."""
        found, hidden = [], list[int]()
        for step in self.steps_of(self.leaf(unit)):
            if step not in exposed:
                hidden.append(step)
                continue
            release = self.release(step, unit, coalition)
            found.append(self._with_hidden(release, step, unit, coalition, hidden) if hidden else release)
            hidden = []
        return found

    def sets(self, unit: int, coalition: Sequence[Party]) -> tuple[list[list[int]], bool]:
        """Sets of averages above the unit that may be charged; whether these are all of them."""
        steps, seen = self.steps_of(self.leaf(unit)), self.seen_steps(unit, coalition)
        hidden = [step for step in steps if step not in seen]
        if 2 ** len(hidden) * len(steps) > _MOST_COMPARED:
            return [seen, steps], False
        more = (one for count in range(len(hidden) + 1) for one in combinations(hidden, count))
        found = (sorted({*seen, *one}) for one in more)
        return [one for one in found if not any(self.exposed_problems(one, unit, coalition))], True

    def cost(
        self, exposed: Sequence[int], unit: int, coalition: Sequence[Party], relation: str
    ) -> float | None:
        """μ² of a round of a set where everybody takes part, else ``None``."""
        if self.sampling(unit, coalition)[0]["kind"] != "all":
            return None
        return math.fsum(one.squared_mu(relation) for one in self.between(unit, coalition, exposed))

    def exposed_problems(
        self, exposed: Sequence[int], unit: int, coalition: Sequence[Party]
    ) -> Iterator[str]:
        """Why a set of averages may not be charged by itself.

        Once an average is exposed, devices outside its node must not have started from a hidden one: nothing
        above it was hidden since an average was exposed. And what is sent again at the end of a round moves
        by all that was hidden.
        """
        steps, seen = self.steps_of(self.leaf(unit)), self.seen_steps(unit, coalition)
        if list(exposed) != sorted(set(exposed) & set(steps)):
            yield "exposed set: it must list aggregations of the unit's messages, each once, in order"
        for step in sorted(set(seen) - set(exposed)):
            yield f"exposed set: {self.steps[step]['name']} is not in it; the observer receives that average"
        again = any(self.steps[step]["repeats_hidden_steps_per_leaf"][self.leaf(unit)] for step in steps)
        if again and list(exposed) not in (steps, seen):
            yield "exposed set: a round that is sent again has all averages exposed, or what is received"
        hidden = list[int]()
        for step in steps:
            if step not in exposed:
                hidden.append(step)
                continue
            tier = whole(self.steps[step]["aggregating_tier"])
            if any(whole(self.steps[one]["aggregating_tier"]) < tier for one in hidden):
                yield f"exposed set: {self.steps[step]['name']} comes after a hidden average of a tier above"
            hidden = []

    def _with_hidden(
        self, seen: Expected, step: int, unit: int, coalition: Sequence[Party], hidden: Sequence[int]
    ) -> Expected:
        """Pieces of hidden steps reach the sum that is seen; only the noise of the seen step hides them."""
        leaf = self.leaf(unit)
        tier, sent = self.finest(step, unit, coalition)
        noise = seen.noise
        if self.ledger["devices_may_drop_out"] and tier < self.depth:
            absent = self._counted(self.noise(step, unit, coalition, tier, sent, present=False))
            noise = noise if noise.sum() < absent.sum() else absent
        again = bool(self.steps[step]["repeats_hidden_steps_per_leaf"][leaf])
        mine = self.share(leaf, tier) * float(self.class_weight[self.device_class(unit)])
        own, others, widest = seen.own, 0.0, self.depth
        for earlier in hidden:
            others += self._influenced(earlier, earlier, unit, widest, tier)
            if not again:
                own += mine * float(self.steps[earlier]["message_bound_per_leaf"][leaf])
            widest = min(widest, whole(self.steps[earlier]["aggregating_tier"]))
        last = self._influenced(step, step, unit, widest, tier)
        if again:  # all that was done since the first hidden average is sent again
            others = min(others + self._influenced(step, hidden[0], unit, widest, tier), last)
        else:
            others += last
        if self.ledger["rounded_after_noise"] and (others or not again):
            others = math.inf  # nothing bounds how far a rounded message moves
        name = f"{seen.name} (with {len(hidden)} hidden before it)"
        return seen._replace(name=name, own=own, others=others, noise=noise)

    def _influenced(self, step: int, bounds: int, unit: int, widest: int, to: int) -> float:
        """Σ 2 a_j C_j of the devices, but the unit, that started from a hidden average of tier ``widest``."""
        if widest >= self.depth:
            return 0.0
        leaf, top = self.leaf(unit), max(widest, to)
        norms, total = self.steps[bounds]["message_bound_per_leaf"], 0.0
        for other in np.flatnonzero(self.paths[:, top] == self.paths[leaf, top]):
            weight = self.class_weight[self.class_leaf == other]
            count = self.class_size[self.class_leaf == other]
            fixed = self.ledger["draw"]["kind"] == "fixed"
            most = float(self.drawn[other]) * float(weight.max()) if fixed else float((weight * count).sum())
            total += most * self.share(int(other), to) * float(norms[other])
        mine = self.share(leaf, to) * float(self.class_weight[self.device_class(unit)]) * float(norms[leaf])
        return 2 * max(0.0, total - mine)

    def sampling(self, unit: int, coalition: Sequence[Party]) -> tuple[Json, float]:
        """The draw as the coalition meets it, and how much more the heaviest device counts than the unit."""
        draw, leaf = self.ledger["draw"], self.leaf(unit)
        first = (
            0
            if draw["seen_by"].split(" of ")[0] == self.names[0]
            else self.names.index(draw["seen_by"].split(" of ")[0])
        )
        path = self.paths[leaf]
        draws = any(kind == "node" and t >= first and int(path[t]) == i for kind, t, i in coalition)
        peers = sum(kind == "device" and self.leaf(i) == leaf for kind, _, i in coalition)
        hidden = not draws and not (peers and self.ledger["hops"][self.depth - 1] == "secure-aggregation")
        if draw["kind"] != "fixed":
            return {"kind": draw["kind"], "rate": draw["rate"], "hidden": hidden}, 1.0
        left, sample = int(self.devices[leaf]) - peers, round(float(self.drawn[leaf]))
        weights, mine = (
            self.class_weight[self.class_leaf == leaf],
            float(self.class_weight[self.device_class(unit)]),
        )
        ratio = float(weights.max()) / mine if mine else 1.0
        sampled = {"kind": "fixed", "rate": sample / int(self.devices[leaf]), "hidden": hidden}
        return sampled | {"population": left, "sample": min(sample, left)}, ratio

    def _of_one_drawn(self, step: int, unit: int, coalition: Sequence[Party]) -> Array:
        """Variance that a drawn device of each class adds to what is charged for a step."""
        mine, (tier, _) = self.leaf(unit), self.finest(step, unit, coalition)
        if tier == self.depth:
            return np.zeros(len(self.class_leaf))
        weight = 1 / self.most_divisor
        weight[mine] = 1 / self.least_divisor[mine]
        for t in range(tier, self.depth - 1):
            weight = weight / self.children[t][self.paths[:, t]]
        path = self.paths[mine]
        weight[self.paths[:, tier] != path[tier]] = 0.0
        for t, index in self._told(step, coalition):
            if t > tier and path[t] != index:
                weight[self.paths[:, t] == index] = 0.0  # all that a member off the path sends is known
        inside = any(kind == "device" and self.leaf(index) == mine for kind, _, index in coalition)
        if inside and ("node", self.depth - 1, int(path[-1])) in coalition:
            weight[mine] = 0.0  # few of them take the masks off
        return np.asarray(self.variance(step) * weight[self.class_leaf] ** 2)

    def _why_no_drawn_noise(self) -> str:
        """Why the noise of others counts for nothing even if they are drawn; empty if it counts."""
        ledger = self.ledger
        reasons = {
            "draws are not Poisson": ledger["draw"]["kind"] != "poisson" or ledger["draw"]["rate"] == 1,
            "devices may drop out": ledger["devices_may_drop_out"],
            "messages are rounded after their noise": ledger["rounded_after_noise"],
            "messages go over the air": ledger["hops"][self.depth - 1] == "air",
            "more than messages tells who was drawn": any(s["tells_who_was_drawn"] for s in self.steps),
            "the law of the noise is not composed": "noise_not_composed" in ledger,
        }
        return ", ".join(reason for reason, holds in reasons.items() if holds)

    def drawn_noise_problems(
        self, draw: Draw, steps: Sequence[int], unit: int, coalition: Sequence[Party]
    ) -> Iterator[str]:
        """How the noise of others who may be drawn is more than the facts give."""
        if not draw.drawn_noise:
            return
        if why := self._why_no_drawn_noise():
            yield f"drawn noise: counts for nothing where {why}"
            return
        columns = [self._of_one_drawn(step, unit, coalition) for step in steps]
        left = self.class_size.copy()
        left[self.device_class(unit)] -= 1
        for index in (index for kind, _, index in coalition if kind == "device"):
            left[self.device_class(index)] -= 1
        each = np.stack(columns, axis=1)
        for count, variances in draw.drawn_noise:
            alike = np.flatnonzero(np.isclose(each, variances, rtol=ROUNDING, atol=0.0).all(axis=1))
            there = left[alike]
            if count > there.sum():
                amounts = ", ".join(f"{v:.9g}" for v in variances)
                yield f"drawn noise: {count} others that add {amounts}; the facts give {there.sum()}"
            left[alike] -= np.clip(count - (np.cumsum(there) - there), 0, there)

    def with_whoever_is_elected(self, unit: int, coalition: Sequence[Party]) -> list[Party]:
        """An elected supernode is a device of the unit's leaf that knows its own noise: maybe the loudest."""
        leaf = self.leaf(unit)
        if not number(self.ledger["elections_per_round"]) or ("node", self.depth - 1, leaf) not in coalition:
            return list(coalition)
        loudness = np.sum([self.variance(step) for step in range(len(self.steps))], axis=0)
        first = int(self.last[leaf] - self.devices[leaf])
        others = [
            ("device", self.depth, device)
            for device in range(first, int(self.last[leaf]))
            if device != unit and ("device", self.depth, device) not in coalition
        ]
        loudest = sorted(others, key=lambda party: -float(loudness[self.device_class(party[2])]))
        return [*coalition, *loudest[:1]]

    def chances_of_office(self, coalition: Sequence[Party]) -> dict[int, float]:
        """The probability that a leaf elects a member in a round, of leaves that have any."""
        elections = number(self.ledger["elections_per_round"])
        members = Counter(self.leaf(index) for kind, _, index in coalition if kind == "device")
        return {
            leaf: min(1.0, elections * count / int(self.devices[leaf]))
            for leaf, count in members.items()
            if elections and ("node", self.depth - 1, leaf) not in coalition
        }

    def problems(
        self, bound: str, cert: Json, draws: Sequence[Draw], unit: int, coalition: Sequence[Party],
        allowed: Sequence[Expected] | None = None,
    ) -> Iterator[str]:  # fmt: skip
        """How the exposed set of a bound differs from what the facts require (or ``allowed``, if given)."""
        if cert.get("elections") or cert.get("chances"):
            yield "elections: nobody is elected who observes this"
            return
        exposed = self._exposed(bound, cert, unit, coalition)
        yield from self.exposed_problems(exposed, unit, coalition)
        wanted = allowed
        if wanted is None:
            wanted = self.between(unit, coalition, exposed)
        stated = [r for draw in draws for r in draw.releases]
        if len(draws) != 1 or len(stated) != len(wanted):
            yield f"exposed set: it has {len(stated)} releases a round; the observer meets {len(wanted)}"
            return
        sampling, ratio = self.sampling(unit, coalition)
        yield from sampling_problems(draws[0], sampling, whole(self.ledger["rounds"]), ratio)
        yield from self.drawn_noise_problems(draws[0], exposed, unit, coalition)
        for mine, theirs in zip(stated, wanted, strict=True):
            yield from release_problems(mine, theirs)

    def _exposed(self, bound: str, cert: Json, unit: int, coalition: Sequence[Party]) -> list[int]:
        """The aggregations of a round that a bound charges."""
        if bound == "flow":
            return self.steps_of(self.leaf(unit))
        if bound == "cut":
            return self.seen_steps(unit, coalition)
        if bound == "min-cost":
            return [whole(number) - 1 for number in cert["exposed_aggregations"]]
        raise UnknownKindError(f"bound: this checker has no rule for the kind {bound!r} in a tree")


class MovingFacts:
    """Edges under a cloud whose devices move, or whose trust changes: a tree for every era, in order."""

    def __init__(self, ledger: Json) -> None:
        self.ledger = ledger
        self.eras = [_EraFacts(era) for era in ledger["eras"]]

    @property
    def pairs(self) -> int:
        """Ordered pairs of a device and an observer."""
        return self.eras[0].pairs

    def party(self, name: str) -> Party:
        """What the name of an observer stands for."""
        return self.eras[0].party(name)

    def problems(
        self, bound: str, cert: Json, draws: Sequence[Draw], unit: int, coalition: Sequence[Party]
    ) -> Iterator[str]:
        """How the exposed set of a bound differs from what the facts of every era require."""
        if len(draws) != len(self.eras):
            yield f"exposed set: it has {len(draws)} draws; there are {len(self.eras)} eras"
            return
        if bound not in ("flow", "cut"):
            raise UnknownKindError(f"bound: this checker has no rule for the kind {bound!r} in a tree")
        wanted = [
            era.flow(unit, coalition) if bound == "flow" else era.cut(unit, coalition) for era in self.eras
        ]
        owners = _most_by_owner(one for releases in wanted for one in releases)
        for facts, draw, releases in zip(self.eras, draws, wanted, strict=True):
            where = f"from round {facts.ledger['from_round']}"
            allowed = [one._replace(noise=owners[_alike(one)]) for one in releases]
            for problem in facts.problems(bound, cert, [draw], unit, coalition, allowed):
                yield f"{where}: {problem}"
            for stated, one in zip(draw.releases, releases, strict=False):
                if number(stated["variance"]) > float(one.noise.sum()) * (1 + ROUNDING) + 1e-300:
                    least = float(one.noise.sum())
                    yield f"{where}: {one.name}: variance: {stated['variance']}; the facts leave {least:.9g}"


def _alike(release: Expected) -> tuple[str, ...]:
    """Equal for releases that a certificate lists once."""
    figures = (release.own, release.others, float(release.noise.sum()))
    return (release.name, release.vector, *(f"{figure:.9g}" for figure in figures))


def _most_by_owner(releases: Iterable[Expected]) -> dict[tuple[str, ...], Array]:
    """The most noise of each owner: equal releases of several eras may owe the same sum to different ones."""
    found: dict[tuple[str, ...], Array] = {}
    for one in releases:
        found[_alike(one)] = np.maximum(found.get(_alike(one), np.zeros(3)), one.noise)
    return found


class _EraFacts(TreeFacts):
    """The rounds of one tree; what is charged is computed once for all observers that are placed alike."""

    def __init__(self, ledger: Json) -> None:
        super().__init__(ledger)
        self.symmetry = TreePairs(self)
        self._charged: dict[Any, list[Expected]] = {}

    def flow(self, unit: int, coalition: Sequence[Party]) -> list[Expected]:
        """Every aggregation of the unit's messages."""
        return self._once("flow", super().flow, unit, coalition)

    def cut(self, unit: int, coalition: Sequence[Party]) -> list[Expected]:
        """Every average that is received, with all that was hidden before it."""
        return self._once("cut", super().cut, unit, coalition)

    def _once(
        self, bound: str, charged: Callable[..., list[Expected]], unit: int, coalition: Sequence[Party]
    ) -> list[Expected]:
        if len(coalition) > 1:
            return charged(unit, coalition)
        key = bound, self.leaf(unit), self.symmetry.of(unit, coalition[0])
        if key not in self._charged:
            self._charged[key] = charged(unit, coalition)
        return self._charged[key]

    def squares(self, unit: int, party: Party, relation: str) -> Array:
        """μ² of one round under the flow and the cut bound."""
        factor = 2.0 if relation == "replace" else 1.0
        found = []
        for charged in (self.flow(unit, [party]), self.cut(unit, [party])):
            moves = [(factor * one.own + one.others, float(one.noise.sum())) for one in charged]
            found.append(math.fsum(s**2 / v if v > 0 else math.inf for s, v in moves if s > 0))
        return np.array(found)


class GroupFacts:
    """Overlapping groups: who is in which group when, and what a group releases."""

    def __init__(self, ledger: Json) -> None:
        self.ledger = ledger
        self.kind = str(ledger["kind"])
        self.every = whole(ledger["merge_every"])
        self.intervals = self.kind in ("dp-ogl+", "dp-ogl-local") and self.every > 1
        self.raw_inside = self.kind == "dp-ogl+" and self.every > 1
        rounds = whole(ledger["rounds"])
        begun = -(-rounds // self.every) if self.raw_inside else rounds // self.every
        self.steps = begun if self.intervals else rounds
        length = self.every if self.intervals else 1
        self.era_starts = [(whole(era["first_epoch"]) - 1) // length + 1 for era in ledger["eras"]]
        self.groups = len(ledger["eras"][0]["groups"])
        self.workers = whole(ledger["devices"])
        self.inside = [self._incidence(era["groups"]) for era in ledger["eras"]]
        # workers that are in the same groups in every era count together
        rows = np.concatenate(self.inside, axis=1)
        kinds, self.kind_of, self.sizes = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
        self.kind_of = self.kind_of.reshape(-1)
        self.kinds = np.split(kinds, len(self.inside), axis=1)
        self.devices_add_noise = self._by_devices(ledger["noise_added_by"])

    def _by_devices(self, stated: Any) -> list[bool]:
        """Of every group whether its workers add the noise: stated once for all, or for each of them."""
        owners = [stated] * self.groups if isinstance(stated, str) else list(stated)
        if len(owners) != self.groups or not set(owners) <= {"master", "devices"}:
            raise ValueError(f"noise_added_by: {stated!r}: must be master or devices, for every group")
        if self.raw_inside and "devices" in owners:
            raise UnknownKindError(
                "noise_added_by: this checker has no rule for dp-ogl+ where devices add it"
            )
        return [owner == "devices" for owner in owners]

    def trusts(self, unit: int, observer: Party) -> bool:
        """Whether a worker sends raw updates to an observer: a master that noises the sums of its group."""
        kind, _, group = observer
        own = kind == "master" and any(bool(inside[unit, group]) for inside in self.inside)
        return own and not self.devices_add_noise[group]

    @property
    def raw_workers(self) -> int:
        """How many workers send raw updates to a master."""
        raw = [~np.array(self.devices_add_noise) & inside for inside in self.inside]
        return int(np.logical_or.reduce(raw).any(axis=1).sum())

    def _incidence(self, groups: Sequence[Sequence[int]]) -> npt.NDArray[np.bool_]:
        found = np.zeros((self.workers, self.groups), dtype=np.bool_)
        for group, members in enumerate(groups):
            found[list(members), group] = True
        return found

    @property
    def pairs(self) -> int:
        """Ordered pairs of a device and an observer: masters, and the other devices."""
        return self.workers * (self.groups + self.workers - 1)

    def party(self, name: str) -> Party:
        """What the name of an observer stands for."""
        kind, index = _numbered(name)
        if kind not in ("device", "master"):
            raise ValueError(f"there is no party {name!r}")
        _require_below(name, index, self.workers if kind == "device" else self.groups)
        return (kind, 0 if kind == "device" else 1, index)

    def era(self, step: int) -> int:
        """Which structure holds at a step."""
        return sum(start <= step for start in self.era_starts) - 1

    def merges(self, step: int) -> bool:
        """Whether workers start a step from the mean of their groups' models."""
        period = 1 if self.intervals or self.kind == "ms-fedavg" else self.every
        return (step - 1) % period == 0

    def norm(self, group: int) -> float:
        """Bound of one worker's contribution to a release."""
        if self.kind == "ms-fedavg":
            return 1.0
        return float(self.ledger["clip_per_group"][group]) * (
            math.sqrt(self.every) if self.intervals else 1.0
        )

    def seen(self, coalition: Sequence[Party]) -> list[int]:
        """How many releases of each group the coalition receives."""
        found = [0] * self.groups
        for era, start in enumerate(self.era_starts):
            last = self.era_starts[era + 1] - 1 if era + 1 < len(self.era_starts) else self.steps
            for kind, _, index in coalition if start <= self.steps else ():
                mine = np.flatnonzero(self.inside[era][index]) if kind == "device" else [index]
                for group in mine:
                    found[int(group)] = max(found[int(group)], min(last, self.steps))
        return found

    def masters(self, coalition: Sequence[Party]) -> dict[int, bool]:
        """Masters in the coalition, and whether one meets single messages in any era."""
        found = {}
        for kind, _, group in coalition:
            if kind == "device":
                continue
            single = self.ledger["transport"] == "plain"
            for inside in self.inside if not single else ():
                below = sum(bool(inside[i, group]) for kind, _, i in coalition if kind == "device")
                thresholds = self.ledger["shares_that_unmask"]
                single |= bool(thresholds) and below >= whole(thresholds[group])
            found[group] = single
        return found

    def upstream(self, unit: int, seen: Sequence[int]) -> list[int]:
        """How many releases of each group the first ``seen`` ones follow from, the unit being no link."""
        until = np.array(seen)
        others = self.sizes.copy()
        others[self.kind_of[unit]] -= 1
        for step in range(self.steps, 1, -1):
            if self.merges(step):
                inside = self.kinds[self.era(step)][others > 0]
                near = inside[(inside & (until >= step)).any(axis=1)].any(axis=0)
                until[near] = np.maximum(until[near], step - 1)
        return [int(n) for n in until]

    def charged(self, unit: int, exposed: Sequence[int]) -> tuple[Counter[Any], Counter[Any]]:
        """Sums to charge where the first releases of each group are exposed, step by step.

        A hidden model holds the unit's data once the unit, or a worker that started from such a model, was in
        its group. A worker starts from its own group's model, or, at a merging step, from those of all its
        groups. Returns counts of (group, era, whether the unit contributes, workers that link), and how often
        the unit starts from models of which one is hidden, by group and era.
        """
        until = np.array(exposed)
        others = self.sizes.copy()
        others[self.kind_of[unit]] -= 1
        held = np.zeros(self.groups, dtype=np.bool_)
        sums: Counter[Any] = Counter()
        unknown: Counter[Any] = Counter()
        cache: dict[Any, Any] = {}
        for step in range(1, self.steps + 1):
            era, merging, shown = self.era(step), self.merges(step), until >= step
            own = self.inside[era][unit]
            key = era, merging, held.tobytes(), shown.tobytes()
            if key not in cache:
                linking = np.zeros(self.groups)
                if merging:
                    several = (self.kinds[era].sum(axis=1) > 1) & (others > 0)
                    reached = (self.kinds[era] & held).any(axis=1) & several
                    linking = (others * reached) @ self.kinds[era]
                rows = [
                    (int(g), era, bool(own[g]), int(linking[g]))
                    for g in np.flatnonzero(shown & (own | (linking > 0)))
                ]
                cache[key] = rows, ~shown & (held | own | (linking > 0))
            rows, held = cache[key]
            sums.update(rows)
            if merging and own.sum() > 1 and (until[own] < step - 1).any():
                unknown.update((int(g), era) for g in np.flatnonzero(own & shown))
        return sums, unknown

    def sets(self, unit: int, coalition: Sequence[Party]) -> tuple[list[list[int]], bool]:
        """How many releases of every group may be exposed; whether these are all choices that matter.

        Once a release is hidden, later ones determine nothing until workers start from the mean of several
        groups' models, or the structure changes.
        """
        seen = self.seen(coalition)
        reach = self.upstream(unit, seen)
        ends = [s for s in range(1, self.steps) if self.merges(s + 1) or s + 1 in self.era_starts]
        choices = [
            [least, *(s for s in ends if least < s < most), *([most] if most > least else [])]
            for least, most in zip(seen, reach, strict=True)
        ]
        if math.prod(map(len, choices)) * self.steps > _MOST_COMPARED:
            return [seen, reach], False
        return [list(one) for one in product(*choices)], True

    def cost(
        self, exposed: Sequence[int], unit: int, coalition: Sequence[Party], relation: str
    ) -> float | None:
        """μ² of a set under zero-out where everybody takes part, else ``None``."""
        if self.ledger.get("cohort_per_group") or self.raw_inside:
            return None
        if any(float(rate) != 1 for rate in self.ledger["poisson_rate_per_group"]):
            return None
        seen = self.seen(coalition)
        return math.fsum(
            count * times * release.squared_mu("zero-out")
            for row, count in self.charged(unit, exposed)[0].items()
            for release, _, times in self.releases(row, seen, coalition)
        )

    def releases(
        self, row: tuple[int, int, bool, int], seen: Sequence[int], coalition: Sequence[Party],
        *, composed: bool = False,
    ) -> list[tuple[Expected, Json, int]]:  # fmt: skip
        """What a charged sum amounts to towards the coalition: releases, their draw, and how many of each."""
        group, era, own, linking = row
        members = [i for kind, _, i in coalition if kind == "device"]
        size = int(self.inside[era][:, group].sum())
        known = sum(bool(self.inside[era][i, group]) for i in members)
        master = self.masters(coalition).get(group)
        rate, count = self._drawn(group, size)
        norm = self.norm(group)
        each = (
            0.0
            if self.kind == "ms-fedavg"
            else (norm * float(self.ledger["noise_multiplier_per_group"][group])) ** 2
        )
        moving = linking
        if self.raw_inside and (master is not None or seen[group]):
            each = 0.0
        elif self.raw_inside:
            moving = size - own
        others = 2.0 * moving
        if count is not None and own + moving > count:
            # the unit and all but one of those drawn, or all of these without the unit
            others = max(2.0 * (count - own), 2.0 * count - own if linking or not own else 0.0)
        each *= composed or "noise_not_composed" not in self.ledger
        name = f"group {group}" + (f", {linking} linking" if linking else "")
        sure = rate == 1
        drawn: Json = {"kind": "all" if sure else "poisson", "rate": rate, "hidden": False}
        by_devices = self.devices_add_noise[group]
        if count is not None:
            room = size - known
            drawn = {**drawn, "kind": "fixed", "population": room, "sample": min(count, room)}
        if by_devices and master:
            noise = np.array([each, 0.0, 0.0])
            mine = Expected(name, "single messages", norm, 0.0, noise, sure)
            linked = mine._replace(own=0.0, others=2 * norm, linking=1)
            # of a fixed number workers are not drawn independently: those there is room for count as drawn
            theirs = drawn if count is None else {"kind": "all", "rate": 1.0, "hidden": False}
            times = linking if count is None else min(linking, count)
            return [(mine, drawn, 1)] * own + [(linked, theirs, times)] * (linking > 0)
        least = self._least_survivors(group, era)
        if by_devices:
            noisers = own + linking
            if sure or count is not None:
                # members fill the places that those who move the sum leave, of all drawn or of who is left
                most = size if count is None else count
                noisers = max((most if least is None else least) - known, min(most, own + linking))
            noise = np.array([each * noisers, 0.0, 0.0])
        else:
            noise = np.array([0.0, 0.0 if master is not None else each, 0.0])
        hidden = master is None and not (known and self.ledger["transport"] == "secure-aggregation")
        independent = self._hides_draw(group, sure, count, least)
        found = Expected(
            name, f"the sum of group {group}", own * norm, others * norm, noise, independent,
            linking=linking, amplifies_propagated=self.raw_inside,
        )  # fmt: skip
        return [(found, {**drawn, "hidden": hidden}, 1)]

    def _drawn(self, group: int, size: int) -> tuple[float, int | None]:
        """Rate at which a worker is drawn, and how many are where that is a fixed number, not everybody."""
        cohort = self.ledger.get("cohort_per_group")
        if not cohort:
            return float(self.ledger["poisson_rate_per_group"][group]), None
        count = whole(cohort[group])
        return count / size, count if count < size else None

    def _hides_draw(self, group: int, sure: bool, count: int | None, least: int | None) -> bool:
        """Whether a sum has the same noise, and is sent, whoever is drawn."""
        if sure and count is None:
            return True
        noisy = self.devices_add_noise[group] and float(self.ledger["noise_multiplier_per_group"][group])
        noisy = bool(noisy) and self.kind != "ms-fedavg"
        if least is None:
            return count is not None or not noisy  # as many add noise, whoever they are
        # a session that may end without a sum tells of the draw; so does the noise of who is left
        return self.ledger["transport"] != "secure-aggregation" and not noisy

    def _least_survivors(self, group: int, era: int) -> int | None:
        """Messages that a released sum holds at least, where messages may be lost."""
        listed = self.ledger.get("least_survivors_per_group")
        return whole(listed[era][group]) if listed else None

    def _messages_of(self, row: tuple[int, int, bool, int], found: Expected) -> list[tuple[Expected, int]]:
        """The messages of those who move a sum, which may be charged in its place."""
        group, _, own, linking = row
        drawn = float(self.ledger["poisson_rate_per_group"][group]) < 1 and not self.raw_inside
        if not (drawn and self.devices_add_noise[group] and own + linking > 1):
            return []
        each = found._replace(vector=f"messages of {found.vector}", noise=found.noise / (own + linking))
        linked = each._replace(own=0.0, others=found.others / linking, linking=1)
        return [(each._replace(others=0.0, linking=0), 1)] * own + [(linked, linking)]

    def record_noise_problems(
        self, parts: Sequence[Json], table: Sequence[Json], exposed: Sequence[int], unit: int,
        coalition: Sequence[Party], gaussian: bool,
    ) -> Iterator[str]:  # fmt: skip
        """Whether more noise is counted behind a record's releases than there is (clipped examples)."""
        left: dict[tuple[str, str], list[tuple[float, int]]] = {}
        for row, count in self.charged(unit, exposed)[0].items():
            for release, _, times in self.releases(row, self.seen(coalition), coalition, composed=gaussian):
                key = release.name, release.vector
                left.setdefault(key, []).append((float(release.noise.sum()), count * times))
        for (name, vector), there in left.items():
            counted = [
                (number(table[whole(i)]["variance"]), whole(part["count"]))
                for part in parts
                for i in part["releases"]
                if (table[whole(i)]["name"], table[whole(i)]["vector"]) == (name, vector)
            ]
            for variance, _ in counted:
                more = sum(count for one, count in counted if one >= variance)
                most = sum(count for one, count in there if one * (1 + ROUNDING) >= variance)
                if more > most:
                    here = f"record: {name}: variance {variance:.9g}"
                    yield f"{here} counted {more} times; the facts leave {most}"
                    break

    def problems(
        self, bound: str, cert: Json, draws: Sequence[Draw], unit: int, coalition: Sequence[Party]
    ) -> Iterator[str]:
        """How the exposed set of a bound differs from what the facts require."""
        if any(draw.drawn_noise for draw in draws):
            yield "drawn noise: counts for nothing in groups"
        exposed = [whole(n) for n in cert["exposed_releases_per_group"]]
        seen = self.seen(coalition)
        if len(exposed) != self.groups or max(exposed, default=0) > self.steps:
            most = max(exposed, default=0)
            yield f"exposed set: it names {len(exposed)} groups and up to {most} releases of one"
            return
        for group, (mine, least) in enumerate(zip(exposed, seen, strict=True)):
            if mine < least:
                yield f"exposed set: {mine} releases of group {group}; the observer receives {least}"
        stated: dict[Any, list[Draw]] = {}
        for draw in draws:
            key = tuple(
                sorted((r["name"], r["vector"], number(r["own_sensitivity"]) > 0) for r in draw.releases)
            )
            stated.setdefault(key, []).append(draw)
        counts: Counter[Any] = Counter()  # equal draws of different eras count together
        alike: dict[Any, tuple[Expected, Json]] = {}
        for row, count in self.charged(unit, exposed)[0].items():
            (release, drawn, _), *more = charged = self.releases(row, seen, coalition)
            apart = () if more else self._messages_of(row, release)
            if any(((part.name, part.vector, part.own > 0),) in stated for part, _ in apart):
                charged = [(part, drawn, times) for part, times in apart]
            for release, drawn, times in charged:
                same = repr((release._replace(noise=release.noise.tolist()), drawn))
                alike[same] = release, drawn
                counts[same] += times * count
        wanted: dict[Any, list[tuple[Expected, Json, int]]] = {}
        for same, (release, drawn) in alike.items():
            key = ((release.name, release.vector, release.own > 0),)
            wanted.setdefault(key, []).append((release, drawn, counts[same]))
        for key in sorted(wanted.keys() | stated.keys()):
            yield from _group_problems(key, stated.get(key, []), wanted.get(key, []))


def _group_problems(
    key: Any, stated: Sequence[Draw], wanted: Sequence[tuple[Expected, Json, int]]
) -> Iterator[str]:
    """One kind of sum: how often it is charged, and by what; over eras, the least favourable counts."""
    total, least = sum(draw.count for draw in stated), sum(count for *_, count in wanted)
    if total != least:
        yield f"exposed set: {key[0][0]}, {key[0][1]}: charged {total} times; must be {least}"
        return
    if len(stated) != len(wanted):
        yield f"exposed set: {key[0][0]}: {len(stated)} kinds of draws; the facts give {len(wanted)}"
        return
    order = sorted(
        wanted, key=lambda w: (w[0].others, -float(w[0].noise.sum()), w[1].get("population", 0), w[2])
    )
    mine = sorted(
        stated,
        key=lambda d: (
            number(d.releases[0]["propagated_sensitivity"]),
            -number(d.releases[0]["variance"]),
            number(d.sampling.get("population", 0)),
            d.count,
        ),
    )
    for draw, (release, drawn, count) in zip(mine, order, strict=True):
        yield from sampling_problems(draw, drawn, count)
        yield from release_problems(draw.releases[0], release)


# --- Pairs that rows stand for


class TreePairs:
    """Pairs of a device and an observer in a tree, by what a symmetry of the tree can tell apart.

    A node is alike another if what is below it is, and all above them. A pair is known by its device, its
    observer, and the deepest aggregator that is above both.
    """

    def __init__(self, facts: TreeFacts) -> None:
        self.facts = facts
        self.kinds = list(zip(facts.class_weight.tolist(), facts.class_noisy.tolist(), strict=True))
        self.members: list[Counter[Any]] = [Counter() for _ in facts.devices]
        for leaf, kind, size in zip(facts.class_leaf, self.kinds, facts.class_size, strict=True):
            self.members[int(leaf)][kind] += int(size)
        self.alike = self._alike()

    def _alike(self) -> list[npt.NDArray[np.int64]]:
        """A number for each node of each tier."""
        facts, known = self.facts, dict[Any, int]()
        below: list[list[Any]] = [[] for _ in facts.devices]
        numbered: list[list[int]] = []
        for tier in range(facts.depth - 1, -1, -1):
            found = []
            for node in range(len(facts.parents[tier])):
                own = [self._noise_of_node(step, tier, node) for step in facts.steps]
                leaf = self._leaf(node) if tier == facts.depth - 1 else ()
                key = tier, leaf, tuple(sorted(below[node])), tuple(own)
                found.append(known.setdefault(key, len(known)))
            numbered.insert(0, found)
            if tier:
                below = [[] for _ in facts.parents[tier - 1]]
                for node, parent in enumerate(facts.parents[tier]):
                    below[int(parent)].append(found[node])
        alike: list[npt.NDArray[np.int64]] = []
        for tier, found in enumerate(numbered):
            above = alike[-1][facts.parents[tier]] if tier else [-1] * len(found)
            keys = [("path", int(a), n) for a, n in zip(above, found, strict=True)]
            alike.append(np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64))
        return alike

    @staticmethod
    def _noise_of_node(step: Json, tier: int, node: int) -> tuple[float, float]:
        channel = step["channel_noise_std"]
        return number(step["node_noise_std"][tier][node]), number(channel[tier][node]) if channel else 0.0

    def _leaf(self, leaf: int) -> Any:
        facts = self.facts
        steps = tuple(
            (s["message_bound_per_leaf"][leaf], s["device_noise_std_per_leaf"][leaf],
             s["repeats_hidden_steps_per_leaf"][leaf], facts.sends(place, leaf),
             facts.broadcasts(place, leaf))
            for place, s in enumerate(facts.steps)
        )  # fmt: skip
        sums = facts.drawn[leaf], facts.least_divisor[leaf], facts.most_divisor[leaf], int(facts.sure[leaf])
        return (*sums, tuple(sorted(self.members[leaf].items())), steps)

    def of(self, unit: int, observer: Party) -> Any:
        """What tells a pair from others."""
        facts = self.facts
        leaf, kind = facts.leaf(unit), self.kinds[facts.device_class(unit)]
        mine = int(self.alike[-1][leaf]), kind
        who, tier, index = observer
        if who == "public":
            return mine, "public"
        path = facts.paths[facts.leaf(index)] if who == "device" else None
        tier = facts.depth - 1 if who == "device" else tier
        node = int(path[-1]) if path is not None else index
        common = sum(facts._ancestor(tier, node, t) == facts.paths[leaf, t] for t in range(tier + 1)) - 1
        theirs = (self.kinds[facts.device_class(index)],) if who == "device" else ()
        return mine, who, common, tier, int(self.alike[tier][node]), *theirs

    def counts(self) -> Counter[Any]:
        """How many pairs there are of each kind."""
        found = Counter[Any]()
        times = Counter(self.alike[-1].tolist())
        for leaf, kind, pairs in self._each():
            units = self.members[leaf][kind] * times[int(self.alike[-1][leaf])]
            found.update({key: units * count for key, count in pairs.items()})
        return found

    def units(self) -> Iterator[tuple[list[int], Counter[Any]]]:
        """Devices that are alike, and the pairs of one of them."""
        facts, alike = self.facts, dict[Any, list[int]]()
        for device in range(int(facts.devices.sum())):
            key = int(self.alike[-1][facts.leaf(device)]), self.kinds[facts.device_class(device)]
            alike.setdefault(key, []).append(device)
        for leaf, kind, pairs in self._each():
            yield alike[int(self.alike[-1][leaf]), kind], pairs

    def _each(self) -> Iterator[tuple[int, Any, Counter[Any]]]:
        """One leaf of those that are alike, with every kind of its devices, and the pairs of one of these."""
        _, firsts = np.unique(self.alike[-1], return_index=True)
        for leaf in firsts.tolist():
            others = self._observers_of(leaf)
            for kind in self.members[leaf]:
                mine = int(self.alike[-1][leaf]), kind
                found = Counter[Any]({(mine, "public"): 1})
                for key, count in others.items():
                    itself = key[:2] == ("device", self.facts.depth - 1) and key[4] == kind
                    if count > itself:
                        found[(mine, *key)] += count - itself
                yield leaf, kind, found

    def _observers_of(self, leaf: int) -> Counter[Any]:
        """Aggregators and devices, those of the leaf too, by what tells them apart for one of its devices."""
        facts, found = self.facts, Counter[Any]()
        for tier in range(facts.depth):
            above = np.arange(len(facts.parents[tier]))
            common = np.full(len(above), -1)
            for t in range(tier, -1, -1):
                common += above == facts.paths[leaf, t]
                above = facts.parents[t][above]
            for node, (shared, alike) in enumerate(zip(common, self.alike[tier], strict=True)):
                found["node", int(shared), tier, int(alike)] += 1
                for kind, size in self.members[node].items() if tier == facts.depth - 1 else ():
                    found["device", int(shared), tier, int(alike), kind] += size
        return found


class MovingPairs:
    """Whether rows stand for all pairs of a run whose devices move, none with more than its row says.

    Units are alike that are under one edge in every era. Where everybody takes part, the rows about one unit
    and observers placed alike (an edge that is ever above it, one that never is, ...) stand for the pairs
    if at least as many pairs as lie above any row's μ² are stood for by rows above it. Where participants are
    drawn, a row stands for pairs that no era tells apart.
    """

    def __init__(self, facts: MovingFacts, relation: str) -> None:
        self.eras, self.relation = facts.eras, relation
        self.count = int(facts.eras[0].devices.sum())
        self.places = [tuple(era.leaf(device) for era in self.eras) for device in range(self.count)]
        edges = range(len(facts.eras[0].devices))
        self.observers: list[Party] = [("public", 0, 0), ("node", 0, 0), *(("node", 1, e) for e in edges)]
        self.observers += [("device", 2, device) for device in range(self.count)]

    def _placed(self, unit: int, party: Party) -> str:
        who, tier, index = party
        mine = self.places[unit]
        if who == "device":
            near = any(a == b for a, b in zip(mine, self.places[index], strict=True))
        else:
            near = index in mine
        return who if who == "public" or tier == 0 else f"{who} {'near' if near else 'elsewhere'}"

    def _figure(self, unit: int, party: Party) -> float:
        total = np.zeros(2)
        for era in self.eras:
            total += whole(era.ledger["rounds"]) * era.squares(unit, party, self.relation)
        return float(total.min())

    def problems(self, rows: Sequence[Json], facts: MovingFacts) -> Iterator[str]:
        """Where rows and pairs do not match."""
        stated: dict[Any, list[tuple[Any, int]]] = {}
        drawn = self.eras[0].ledger["draw"]["kind"] != "all" or "batches" in self.eras[0].ledger
        for row in rows:
            unit, party = _numbered(row["unit"])[1], facts.party(row["observer"])
            _require_below(row["unit"], unit, self.count)
            key = self.places[unit], self._placed(unit, party)
            found = self._told_apart(unit, party) if drawn else self._figure(unit, party)
            stated.setdefault(key, []).append((found, whole(row["stands_for"])))
        alike = Counter(self.places)
        units = {place: self.places.index(place) for place in alike}
        for place, unit in units.items():
            there: dict[Any, list[tuple[Any, int]]] = {}
            for party in self.observers:
                if party != ("device", 2, unit):
                    found = self._told_apart(unit, party) if drawn else self._figure(unit, party)
                    key = place, self._placed(unit, party)
                    there.setdefault(key, []).append((found, alike[place]))
            for key in there.keys() | {key for key in stated if key[0] == place}:
                yield from self._compared(unit, key[1], stated.get(key, []), there.get(key, []), drawn)

    def of(self, unit: int, party: Party) -> Any:
        """What tells a pair from others."""
        return self.places[unit], self._placed(unit, party), self._told_apart(unit, party)

    def units(self) -> Iterator[tuple[list[int], Counter[Any]]]:
        """Devices that are under the same edge in every era, and the pairs of one of them."""
        alike: dict[Any, list[int]] = {}
        for device, place in enumerate(self.places):
            alike.setdefault(place, []).append(device)
        for units in alike.values():
            others = (party for party in self.observers if party != ("device", 2, units[0]))
            yield units, Counter(self.of(units[0], party) for party in others)

    def _told_apart(self, unit: int, party: Party) -> Any:
        return tuple(era.symmetry.of(unit, party) for era in self.eras)

    def _compared(
        self, unit: int, placed: str, rows: list[tuple[Any, int]], pairs: list[tuple[Any, int]], drawn: bool
    ) -> Iterator[str]:
        what = f"privacy.json: stands_for: device:{unit} towards observers placed as {placed}"
        total, wanted = sum(n for _, n in rows), sum(n for _, n in pairs)
        if total != wanted:
            yield f"{what}: stated {total}; there are {wanted}"
        elif drawn:
            one, other = Counter[Any](), Counter[Any]()
            for found, count in rows:
                one[found] += count
            for found, count in pairs:
                other[found] += count
            if one != other:
                yield f"{what}: rows are not about these pairs as often as there are such"
        else:
            for level, _ in rows:
                above = level * (1 + ROUNDING)
                held, there = (sum(n for f, n in found if f > above) for found in (rows, pairs))
                if there > held:
                    yield f"{what}: {there} pairs have a larger figure than a row; rows stand for {held}"
                    return


class GroupPairs:
    """Pairs of a worker and an observer in groups, by all that is charged if everything upstream is exposed,
    by how often the unit and linking workers move what the observer receives, and by trust.

    To find them each pair is looked at once of those that counting neighbours again and again (colour
    refinement) does not tell apart: such pairs are charged alike.
    """

    def __init__(self, facts: GroupFacts) -> None:
        self.facts = facts
        self.first = [int(np.flatnonzero(facts.kind_of == kind)[0]) for kind in range(len(facts.sizes))]
        self._known: dict[Any, int] = {}
        self._charges: dict[Any, Any] = {}
        self._colours: dict[int, tuple[list[int], list[int]]] = {}

    def _numbered(self, key: Any) -> int:
        return self._known.setdefault(key, len(self._known))

    def colours(self, unit_kind: int) -> tuple[list[int], list[int]]:
        """A number for every kind of workers and every group, where one worker of a kind is the unit."""
        if unit_kind in self._colours:
            return self._colours[unit_kind]
        facts, ledger = self.facts, self.facts.ledger
        shares = ledger["shares_that_unmask"] or [0] * facts.groups
        columns = ("clip_per_group", "noise_multiplier_per_group", "poisson_rate_per_group")
        cohort = ledger.get("cohort_per_group") or [0] * facts.groups
        least = ledger.get("least_survivors_per_group") or []
        groups = [
            self._numbered(
                (
                    "group",
                    *(ledger[c][g] for c in columns),
                    shares[g],
                    cohort[g],
                    facts.devices_add_noise[g],
                    *(era[g] for era in least),
                )
            )
            for g in range(facts.groups)
        ]
        kinds = [
            self._numbered(("kind", int(size), kind == unit_kind)) for kind, size in enumerate(facts.sizes)
        ]
        inside = [[np.flatnonzero(row).tolist() for row in era] for era in facts.kinds]
        around = [[np.flatnonzero(row).tolist() for row in era.T] for era in facts.kinds]
        told = 0
        while told < (told := len({*kinds, *groups})):
            kinds, groups = (
                [
                    self._numbered((k, *(tuple(sorted(groups[g] for g in era[i])) for era in inside)))
                    for i, k in enumerate(kinds)
                ],
                [
                    self._numbered((g, *(tuple(sorted(kinds[k] for k in era[i])) for era in around)))
                    for i, g in enumerate(groups)
                ],
            )
        self._colours[unit_kind] = kinds, groups
        return kinds, groups

    def of(self, unit: int, observer: Party) -> Any:
        """What tells a pair from others."""
        unit_kind = int(self.facts.kind_of[unit])
        kinds, groups = self.colours(unit_kind)
        who, _, index = observer
        place = kinds[int(self.facts.kind_of[index])] if who == "device" else groups[index]
        key = tuple(sorted(kinds)), tuple(sorted(groups)), who, place
        if key not in self._charges:
            self._charges[key] = self.facts.trusts(unit, observer), self._charged(unit, observer)
        return self._charges[key]

    def _charged(self, unit: int, observer: Party) -> Any:
        facts, found = self.facts, Counter[Any]()
        seen = facts.seen([observer])
        exposed = facts.upstream(unit, seen)
        charged = facts.charged(unit, seen)[0]
        received = [row for row in charged if row[2]]
        of_unit = [release for row in received for release, *_ in facts.releases(row, seen, [observer])]
        if any(release.own > 0 and not release.noise.any() for release in of_unit):
            return "unprotected"  # whatever else is exposed
        for row, count in facts.charged(unit, exposed)[0].items():
            for release, drawn, times in facts.releases(row, seen, [observer]):
                figures = release.own, release.others, float(release.noise.sum()), drawn["rate"]
                rest = release.draw_independent, release.linking, release.amplifies_propagated
                rounded = tuple(f"{figure:.6g}" for figure in figures)
                left = drawn.get("population"), drawn.get("sample")
                found[(*rounded, *rest, drawn["kind"], drawn["hidden"], *left)] += times * count
        return frozenset(found.items())

    def counts(self) -> Counter[Any]:
        """How many pairs there are of each kind."""
        found = Counter[Any]()
        for units, pairs in self.units():
            found.update({key: len(units) * count for key, count in pairs.items()})
        return found

    def units(self) -> Iterator[tuple[list[int], Counter[Any]]]:
        """Workers of the same groups, and the pairs of one of them."""
        facts = self.facts
        for kind, unit in enumerate(self.first):
            found = Counter[Any]()
            for group in range(facts.groups):
                found[self.of(unit, ("master", 1, group))] += 1
            for other, more in enumerate(facts.sizes):
                count = int(more) - (other == kind)
                if count:
                    worker = next(i for i in np.flatnonzero(facts.kind_of == other) if i != unit)
                    found[self.of(unit, ("device", 0, int(worker)))] += count
            yield np.flatnonzero(facts.kind_of == kind).tolist(), found


def pair_problems(
    rows: Sequence[Json], facts: Facts, relation: str, sites: Mapping[int, str]
) -> Iterator[str]:
    """Where the rows about one kind of unit do not stand for every pair as often as there are such pairs."""
    pairs: TreePairs | GroupPairs | MovingPairs
    if isinstance(facts, MovingFacts):
        pairs = MovingPairs(facts, relation)
        yield from pairs.problems(rows, facts)
        yield from _unit_problems(rows, facts, pairs, sites)
        return
    pairs = TreePairs(facts) if isinstance(facts, TreeFacts) else GroupPairs(facts)
    stated, named = Counter[Any](), dict[Any, str]()
    for row in rows:
        unit = _numbered(row["unit"])[1]
        if "," in row["observer"]:
            yield f"privacy.json: {row['unit']} towards {row['observer']}: is no pair with one observer"
            continue
        pair = pairs.of(unit, facts.party(row["observer"]))
        stated[pair] += whole(row["stands_for"])
        named.setdefault(pair, f"{row['unit']} towards {row['observer']}")
    wanted = pairs.counts()
    for pair in stated.keys() | wanted.keys():
        if stated[pair] != wanted[pair]:
            who = named.get(pair, "no row (a pair is left out)")
            yield (
                f"privacy.json: stands_for: pairs like {who}: stated {stated[pair]}; there are {wanted[pair]}"
            )
    yield from _unit_problems(rows, facts, pairs, sites)


def _unit_problems(
    rows: Sequence[Json], facts: Facts, pairs: TreePairs | GroupPairs | MovingPairs, sites: Mapping[int, str]
) -> Iterator[str]:
    """Where rows about one kind of pairs stand for a unit with a larger ε than theirs, or leave a site out.

    Such pairs differ in how often the records of their devices are drawn. None has a larger ε than its row if
    at least as many as lie above any row are stood for by rows above it.
    """
    first = facts.eras[0] if isinstance(facts, MovingFacts) else facts
    of_records = any(row["unit"].startswith("record:") for row in rows) and "batches" in first.ledger
    says_sites = any("sites" in row for row in rows)
    if not (of_records or says_sites):
        return
    listed = [number(q) for q in first.ledger["batches"]["rate_per_device"]] if of_records else []
    rates: Mapping[int, float] = defaultdict(float, enumerate(listed))
    about: dict[Any, list[Json]] = {}
    for row in (row for row in rows if "," not in row["observer"]):
        pair = pairs.of(_numbered(row["unit"])[1], facts.party(row["observer"]))
        about.setdefault(pair, []).append(row)
    there: dict[Any, list[tuple[int, int]]] = {}
    for units, of_one in pairs.units():
        for pair, count in of_one.items():
            there.setdefault(pair, []).extend((unit, count) for unit in units)
    for pair, some in about.items():
        stated = [(rates[_numbered(row["unit"])[1]] * (1 + ROUNDING), row) for row in some]
        for level, row in stated:
            held = sum(whole(other["stands_for"]) for rate, other in stated if rate > level)
            if sum(count for unit, count in there.get(pair, ()) if rates[unit] > level) > held:
                yield f"privacy.json: {row['unit']}: more such pairs have records that are drawn more often"
        if says_sites:
            least, named = defaultdict[str, float](float), defaultdict[str, float](float)
            for unit, _ in there.get(pair, ()):
                if unit in sites:
                    least[sites[unit]] = max(least[sites[unit]], rates[unit])
            for level, row in stated:
                for site in row.get("sites", ()):
                    named[site] = max(named[site], level)
            if least.keys() != named.keys() or any(named[site] < rate for site, rate in least.items()):
                who = f"{some[0]['unit']} towards {some[0]['observer']}"
                yield f"privacy.json: sites: rows like {who} name other sites than have such pairs"


def _sites(topology: Json, facts: Facts) -> dict[int, str]:
    """The site of every device, where spec.yaml names devices, or the aggregators above them."""
    names = topology.get("device_names") or topology.get("worker_names")
    if names:
        return {device: str(name) for device, name in enumerate(names)}
    if not isinstance(facts, TreeFacts):
        return {}
    found = {where: name for name, where in _site_names(topology.get("sites") or ()).items()}
    last = facts.depth - 1
    devices = range(int(facts.devices.sum())) if any(tier == last for tier, _ in found) else ()
    return {device: found[last, facts.leaf(device)] for device in devices}


Facts: TypeAlias = TreeFacts | MovingFacts | GroupFacts
FACTS: dict[str, type[TreeFacts] | type[MovingFacts] | type[GroupFacts]] = {
    "tiered": TreeFacts,
    "moving": MovingFacts,
    "dp-ogl": GroupFacts,
    "dp-ogl+": GroupFacts,
    "dp-ogl-local": GroupFacts,
    "ms-fedavg": GroupFacts,
}
"""Every kind of protocol whose facts this checker can read; any other is an error."""

# --- 4. Facts that the spec determines ----------------------------------------------------------------------


def spec_problems(spec: Json, ledger: Json) -> Iterator[str]:
    """Where ``ledger.json`` says something else than ``spec.yaml`` determines."""
    yield from _optimizer_problems(spec, in_tree=ledger["kind"] in ("tiered", "moving"))
    if ledger["kind"] == "moving":
        yield from _moving_problems(spec, ledger)
        return
    yield from _unlike("rounds", ledger["rounds"], spec["training"]["rounds"])
    yield from _law_and_batch_problems(spec, ledger)
    if ledger["kind"] != "tiered":
        yield from _groups_problems(spec, ledger)
        return
    eras = _eras_of(spec)
    if len(eras) > 1:
        yield "ledger.json: it has one tree; spec.yaml has moves, or trust that changes, and so several"
    yield from _tree_problems(spec, TreeFacts(ledger), eras[0] if eras else None)


def _optimizer_problems(spec: Json, *, in_tree: bool) -> Iterator[str]:
    """Adam and weight decay at local steps, where bounds of messages rest on plain steps."""
    training, privacy = spec["training"], spec["privacy"]
    optimizer, decay = training.get("optimizer") or "sgd", number(training.get("weight_decay") or 0.0)
    adam = (optimizer if isinstance(optimizer, str) else optimizer["kind"]) != "sgd"
    clip, noise = (privacy.get("clip") or {}).get("kind", "update"), privacy["noise"]
    if clip == "update" or noise["kind"] == "none" or noise.get("at") == "step" or not (adam or decay):
        return
    if adam or clip == "step" or not in_tree:
        yield (
            f"spec.yaml: training: with Adam or weight_decay, privacy.clip.kind: {clip} does not bound by "
            "how much a message moves"
        )
    rate = training["learning_rate"]
    rates = [rate["initial"], rate.get("final", 0.0)] if isinstance(rate, dict) else [rate]
    if decay * max(map(number, rates)) > 1:
        yield "spec.yaml: training.weight_decay: steps turn the model round, so that differences may grow"


def _law_and_batch_problems(spec: Json, ledger: Json) -> Iterator[str]:
    """The law of the noise, and how devices draw their batches."""
    training, privacy = spec["training"], spec["privacy"]
    mechanism = privacy.get("mechanism") or {}
    clip = privacy.get("clip") or {}
    other_law = (mechanism and mechanism.get("law", "other") != "gaussian") or clip.get("kind") == "example"
    yield from _unlike("noise_not_composed", "noise_not_composed" in ledger, bool(other_law))
    if training.get("batches") != "poisson" and "batches" in ledger:
        yield "spec.yaml: training.batches is not poisson, so no record is drawn; ledger.json has batches"
    elif "batches" in ledger:
        yield from _batch_problems(spec, ledger)
    noise = privacy["noise"]
    at_steps = noise.get("multiplier") if noise["kind"] == "multiplier" and noise.get("at") == "step" else 0.0
    yield from _unlike(
        "batches.noise_at_steps", ledger.get("batches", {}).get("noise_at_steps", 0.0), at_steps
    )


class WrittenEra(NamedTuple):
    """Rounds in a row with the same devices under the same edges, and the same trust."""

    first: int
    rounds: int
    places: tuple[int, ...]
    trusted: tuple[int, ...]
    trust_changes: bool


def _eras_of(spec: Json) -> list[WrittenEra]:
    """The eras that spec.yaml determines; none where it has neither moves nor ``trust.from``."""
    moves, changes = spec["topology"].get("moves"), (spec.get("trust") or {}).get("from")
    if moves is None and changes is None:
        return []
    names, _, sizes = _shape(spec["topology"])
    if len(names) != 2 or (moves is not None and moves.get("trace") is None):
        raise UnknownKindError("spec.yaml: topology.moves: this checker has no rule for them as they stand")
    place = [edge for edge, size in enumerate(sizes) for _ in range(size)]
    told = {whole(int(first)): tuple(sorted(set(edges))) for first, edges in (changes or {}).items()}
    trusted = told[0] if changes is not None else tuple(np.flatnonzero(_trusted(spec, len(sizes))).tolist())
    found: list[WrittenEra] = []
    for number_of in range(1, whole(spec["training"]["rounds"]) + 1):
        for first, device, edge in (moves or {}).get("trace", ()):
            if first == number_of:
                place[whole(device)] = whole(edge)
        trusted = told.get(number_of, trusted)
        if found and (found[-1].places, found[-1].trusted) == (tuple(place), trusted):
            found[-1] = found[-1]._replace(rounds=found[-1].rounds + 1)
        else:
            found.append(WrittenEra(number_of, 1, tuple(place), trusted, False))
    several = len({era.trusted for era in found}) > 1
    return [era._replace(trust_changes=several) for era in found]


def _moving_problems(spec: Json, ledger: Json) -> Iterator[str]:
    """Where the eras of ``ledger.json`` are not those of ``spec.yaml``."""
    eras, held = _eras_of(spec), ledger["eras"]
    for key in ("batches", "elections_per_round", "noise_not_composed", "steps"):
        if key in ledger:
            yield f"ledger.json: {key}: belongs to the eras"
    yield from _unlike("rounds", ledger["rounds"], spec["training"]["rounds"])
    yield from _unlike("number of eras", len(held), len(eras))
    for place, (era, facts) in enumerate(zip(eras, held, strict=False)):
        what = f"eras[{place}]"
        yield from _unlike(f"{what}.from_round", facts["from_round"], era.first)
        yield from _unlike(f"{what}.rounds", facts["rounds"], era.rounds)
        for problem in (*_law_and_batch_problems(spec, facts), *_tree_problems(spec, TreeFacts(facts), era)):
            yield f"{what}: {problem}"


def _keeps_variates(spec: Json) -> bool:
    """Whether messages depend on earlier ones, by the control variates of SCAFFOLD."""
    correction = spec.get("training", {}).get("drift_correction") or {}
    return (correction if isinstance(correction, str) else correction.get("kind")) == "scaffold"


CLASS_COUNTS: dict[str, tuple[int, ...]] = {
    "digits": (142, 146, 141, 147, 144, 146, 145, 143, 139, 144),
    "mnist": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    "fashion-mnist": (6_000,) * 10,
    "emnist": (24_000,) * 10,
    "cifar10": (5_000,) * 10,
    "cifar100": (500,) * 100,
}
"""Training examples of every label of the data sets that are known by name."""
FEMNIST = 814_277
"""Examples of a data set without a test split; how many each label has is not tabulated."""

Pool: TypeAlias = tuple[int, Array | None]
"""How many examples there are, and how many of each label where that is known."""


def examples_held(spec: Json) -> tuple[Array | None, str]:
    """How many examples every device holds; where spec.yaml does not say so, ``None`` and what does.

    The data set is made or tabulated, and the seed of the spec fixes every draw of the rule of partition.
    """
    data, topology = spec["data"], spec["topology"]
    places = [_workers(topology)] if topology["kind"] == "groups" else _shape(topology)[2]
    pool = _all_examples(data, sum(places))
    rule = data.get("partition") or {"kind": "iid"}
    if pool is None:
        return None, f"data.source: {data['source']}"
    levels = (rule["edge"], rule["device"]) if rule["kind"] == "two-level" else (rule,)
    floor = 0 if rule.get("empty_devices", "refuse") == "allow" else 1
    draws = _Partition(whole(spec.get("seed", 0)), floor)
    weights = places if len(levels) == 2 else [1] * sum(places)
    pools = draws.pools(levels[0], pool, np.array(weights), 0, 0)
    if pools is not None and len(levels) == 2:
        inner = [
            draws.pools(levels[1], own, np.ones(count, np.int64), 1, number_of)
            for number_of, (own, count) in enumerate(zip(pools, places, strict=True))
        ]
        pools = None if None in inner else [one for own in inner for one in own or ()]
    if pools is None:
        return None, f"data.partition of {data['source']}"
    sizes = np.array([count for count, _ in pools], dtype=np.float64)
    zones = topology.get("zones")
    if zones and (sizes != sizes[0]).any():
        order = draws.zones(zones, len(sizes))
        return (None, f"topology.zones: {zones['kind']}") if order is None else (sizes[order], "")
    return sizes, ""


def _all_examples(data: Json, devices: int) -> Pool | None:
    source = str(data["source"])
    if data.get("group_column") is not None or data.get("site_column") is not None:
        return None
    if source == "synthetic":
        total = whole(data["examples_per_device"]) * devices
        return total, np.array([total // 10 + (label < total % 10) for label in range(10)], dtype=np.float64)
    if source == "femnist":
        return FEMNIST - int(FEMNIST * number(data.get("test_fraction") or 0.1) + 0.5), None
    counts = CLASS_COUNTS.get(source)
    return None if counts is None else (sum(counts), np.array(counts, dtype=np.float64))


class _Partition:
    """The draws of a rule of partition: every part gets so many examples, heavier parts more."""

    def __init__(self, seed: int, floor: int) -> None:
        self.seed, self.floor = seed, floor

    def _generator(self, *address: int) -> np.random.Generator:
        return np.random.Generator(
            np.random.Philox(np.random.SeedSequence(entropy=self.seed, spawn_key=address))
        )

    def pools(
        self, rule: Json, pool: Pool, weights: npt.NDArray[np.int64], level: int, place: int
    ) -> list[Pool] | None:
        """What each part holds; ``None`` where counts do not tell."""
        total, counts = pool
        rng = self._generator(1, level, place, 0)
        floor = self.floor if rule.get("min_examples") is None else whole(rule["min_examples"])
        sigma = number(rule.get("size_sigma", 0.0))
        if rule["kind"] == "iid":
            if sigma == 0:
                sizes = np.diff(np.cumsum(weights) * total // weights.sum(), prepend=0)
            else:
                floors = min(floor, total // int(weights.sum())) * weights
                shares = np.cumsum(weights * rng.lognormal(0.0, sigma, len(weights)))
                rest = total - int(floors.sum())
                cuts = np.floor(shares / shares[-1] * rest).astype(np.int64)
                cuts[-1] = rest
                sizes = np.diff(cuts, prepend=0) + floors
            return [(int(size), None) for size in sizes]
        if counts is None or rule["kind"] not in ("labels", "dirichlet"):
            return None
        if rule["kind"] == "labels":
            table = self._labels(whole(rule["labels_per_device"]), counts, weights, rng)
        else:
            table = self._dirichlet(number(rule["alpha"]), counts, weights, rng)
            _fill_up(table, floor * weights)
        return [(int(own.sum()), own.astype(np.float64)) for own in table]

    @staticmethod
    def _labels(
        each: int, counts: Array, weights: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> npt.NDArray[np.int64]:
        """Systematic sampling of who holds a label, label by label in random order; then equal shares."""
        present = rng.permutation(np.flatnonzero(counts))
        table = np.zeros((len(weights), len(counts)), np.int64)
        needed = np.full(len(weights), each, np.int64)
        for left, label in zip(range(len(present), 0, -1), present, strict=True):
            order = rng.permutation(len(weights))
            steps = (np.cumsum(needed[order]) + rng.integers(left)) // left
            holders = order[np.diff(steps, prepend=0) > 0]
            needed[holders] -= 1
            held = weights[holders]
            table[holders, label] = np.diff(
                np.cumsum(held) * int(counts[label]) // max(int(held.sum()), 1), prepend=0
            )
        return table

    @staticmethod
    def _dirichlet(
        alpha: float, counts: Array, weights: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> npt.NDArray[np.int64]:
        """Shares of every label by Dirichlet's law; who has an even share of all gets no more."""
        table, weight = np.zeros((len(weights), len(counts)), np.int64), int(weights.sum())
        for label in rng.permutation(np.flatnonzero(counts)):
            free = np.flatnonzero(table.sum(axis=1) * weight < weights * int(counts.sum()))
            shares = np.cumsum(rng.dirichlet(alpha * weights[free] * (len(weights) / weight)))
            cuts = np.floor(shares / shares[-1] * counts[label] + 0.5).astype(np.int64)
            table[free, label] = np.diff(cuts, prepend=0)
        return table

    def zones(self, zones: Json, count: int) -> npt.NDArray[np.int64] | None:
        """Which share each device holds; ``None`` where that depends on the data."""
        kind = zones["kind"]
        if kind == "random":
            return self._generator(23, 0).permutation(count)
        if kind == "distance":
            return np.argsort(self._generator(23, 1).random(count))
        if kind == "compute":
            return np.argsort(self._generator(23, 2).standard_normal(count))
        return wholes([i for members in zones["members"] for i in members]) if kind == "list" else None


def _fill_up(table: npt.NDArray[np.int64], floors: npt.NDArray[np.int64]) -> None:
    """Every row gets its floor, from the largest labels of the rows with most to spare, in place."""
    spare = table.sum(axis=1) - floors
    if spare.sum() < 0:
        raise ValueError(f"data.partition.min_examples: {floors.sum()} examples are needed")
    for part in np.flatnonzero(spare < 0):
        while spare[part] < 0:
            donor = int(np.argmax(spare))
            label = int(table[donor].argmax())
            moved = min(-int(spare[part]), int(spare[donor]), int(table[donor, label]))
            for row, more in ((donor, -moved), (part, moved)):
                table[row, label] += more
                spare[row] += more


def _workers(topology: Json) -> int:
    return topology.get("devices") or 1 + max(max(group) for group in _groups(topology))


def _rate_problems(spec: Json, rates: Array) -> Iterator[str]:
    """Record rates that are not the batch over the examples that spec.yaml gives a device."""
    sizes, _ = examples_held(spec)
    batch = whole(spec["training"]["batch_size"])
    if sizes is not None:
        wanted = np.where(sizes > 0, np.minimum(1.0, batch / np.maximum(sizes, 1)), 0.0)
        yield from _unlike("batches.rate_per_device", rates, wanted)
        return
    pool = _all_examples(spec["data"], len(rates))
    drawn = rates[(rates > 0) & (rates < 1)]
    if pool is not None and (batch / drawn).sum() > pool[0] * (1 + ROUNDING):
        yield f"ledger.json: batches.rate_per_device: of more examples than the {pool[0]:,} of the data set"


def _batch_problems(spec: Json, ledger: Json) -> Iterator[str]:
    """How far a record moves a message that is first drawn at one of its local steps."""
    training, clip = spec["training"], (spec["privacy"].get("clip") or {}).get("kind", "update")
    batches, momentum = ledger["batches"], training.get("momentum", 0.0)
    rates, tree = numbers(batches["rate_per_device"]), ledger["kind"] == "tiered"
    devices = wholes(ledger["devices_per_leaf"]).sum() if tree else whole(ledger["devices"])
    if len(rates) != devices or (rates < 0).any() or (rates > 1).any():
        yield "ledger.json: batches.rate_per_device: must be one probability for each device"
        return
    yield from _rate_problems(spec, rates)
    if (spec.get("compression") or {}).get("error_feedback") and not number(batches["noise_at_steps"]):
        yield "ledger.json: batches: devices remember (error feedback), so a record counts as drawn"
    if _keeps_variates(spec):
        yield "ledger.json: batches: devices remember (control variates), so a record counts as drawn"
    if tree:
        held = np.stack([one.new for one in _aggregations(training, ledger)], axis=1)
        pieces = [own[own > 0].tolist() for own in held]
    else:
        by_interval = ledger["kind"] in ("dp-ogl+", "dp-ogl-local")
        pieces = [[(training.get("local_steps") or 1) * (whole(ledger["merge_every"]) if by_interval else 1)]]
    most, answering = _most_records(spec, rates), batches.get("answering")
    if answering is not None:
        yield from _answer_problems(training["batch_size"], whole(answering), number(batches["beyond"]), most)
        most = whole(answering)
    bits = (spec.get("compression") or {}).get("bits")
    if bits is not None and not number(batches["noise_at_steps"]) and not batches.get("rounded"):
        yield "ledger.json: batches: rounded: devices round their messages (compression.bits)"
    for leaf, steps in enumerate(pieces):
        for gradients, listed in enumerate(_moved_shares(batches, leaf), start=1):
            name = f"batches.moved_share_by_first_step{'_replaced' if gradients == 2 else ''}"
            yield from _unlike(f"{name}: steps", [len(one) for one in listed], steps)
            for own, count in zip(listed, steps, strict=False):
                mine, gain = np.array(own), np.array([_gain(left, momentum) for left in range(count, -1, -1)])
                wanted = gain[:-1] / gain[0] if clip == "step" else np.ones(count)
                if clip == "example":
                    wanted = (gradients * -np.diff(gain) + 2 * most * gain[1:]) / (2 * gain[0])
                if len(mine) == count and (mine < wanted * (1 - ROUNDING)).any():
                    yield f"ledger.json: {name}: {_short(mine)}; spec.yaml gives {_short(wanted)}"


def _most_records(spec: Json, rates: Array) -> int:
    """The most records that a device has: of q < 1, batch_size / q; of q = 1 not more than batch_size."""
    sizes, _ = examples_held(spec)
    if sizes is not None:
        return int(sizes.max())
    batch = whole(spec["training"]["batch_size"])
    least = [q for q in rates if 0 < q < 1]
    return round(batch / min(least)) if least else 1


def _answer_problems(batch_size: int, count: int, beyond: float, most: int) -> Iterator[str]:
    """Whether a step has so many gradients at most, but for the chance stated (Chernoff's bound)."""
    if count >= most:
        return
    log = count - batch_size + count * math.log(batch_size / count) if count > batch_size else 0.0
    if not 0 < beyond <= 1 or log > math.log(beyond) * (1 - ROUNDING):
        yield (
            f"ledger.json: batches.answering: {count} of up to {most} records are in a step, more with "
            f"probability {beyond:.3g} stated; the bound on it is {math.exp(log):.3g}"
        )


def _moved_shares(batches: Json, leaf: int) -> tuple[list[tuple[float, ...]], list[tuple[float, ...]]]:
    """How much of each message moves by the first step that the record is in: zeroed out, and replaced."""
    found = []
    for name in ("moved_share_by_first_step", "moved_share_by_first_step_replaced"):
        listed = batches[f"{name}_per_leaf"][leaf] if f"{name}_per_leaf" in batches else batches[name]
        found.append([tuple(number(move) for move in one) for one in listed])
    return found[0], found[1]


def _unlike(name: str, held: Any, wanted: Any) -> Iterator[str]:
    if isinstance(held, bool) or isinstance(wanted, str | bool):
        same = held == wanted
    else:
        one, other = np.atleast_1d(np.asarray(held, float)), np.atleast_1d(np.asarray(wanted, float))
        same = one.shape == other.shape and np.allclose(one, other, rtol=ROUNDING, atol=0.0)
    if not same:
        yield f"ledger.json: {name}: {_short(held)}; spec.yaml gives {_short(wanted)}"


def _short(value: Any) -> str:
    text = str(value if not isinstance(value, np.ndarray) else value.tolist())
    return text if len(text) <= 80 else text[:77] + "..."


def _tree_problems(spec: Json, tree: TreeFacts, era: WrittenEra | None) -> Iterator[str]:
    yield from _shape_problems(spec["topology"], tree, era)
    yield from _class_problems(spec, tree, era)
    yield from _participation_problems(spec, tree)
    yield from _step_problems(spec, tree, era)
    yield from _certainty_problems(spec, tree)
    elected = spec["topology"].get("supernodes") == "elected"
    faults = spec.get("faults") or {}
    failing = number(faults.get("supernode_failure_rate", 0.0))
    taken_over = faults.get("when_supernode_fails", "repeat") == "repeat"
    each = 1.0 / (1.0 - failing) if taken_over else 1.0  # whoever takes over is elected too
    yield from _unlike(
        "elections_per_round", number(tree.ledger["elections_per_round"]), each if elected else 0.0
    )
    yield from _source_problems(spec, tree, era)


def _shape(topology: Json) -> tuple[list[str], list[list[int]], list[int]]:
    """Names of the tiers, the parents of their nodes, and the devices under each leaf."""
    if topology["kind"] == "star":
        return ["cloud"], [[-1]], [topology["devices"]]
    if topology.get("edges") is not None:
        count, each = topology["edges"], topology["devices_per_edge"]
        return ["cloud", "edge"], [[-1], [0] * count], each if isinstance(each, list) else [each] * count
    parents, named = [[-1]], topology.get("level_names") or ["edge"]
    if topology.get("levels") is not None:
        *above, below = topology["levels"]
        for children in above:
            parents.append([node for node in range(len(parents[-1])) for _ in range(children)])
        return ["cloud", *named], parents, [below] * len(parents[-1])
    if topology.get("sites") is None:
        raise UnknownKindError(
            "spec.yaml: topology: this checker has no rule for a tree that is not written out"
        )
    sites = list(topology["sites"])
    parents.append([0] * len(sites))
    while any(site.get("sites") for site in sites):
        parents.append([place for place, site in enumerate(sites) for _ in site["sites"]])
        sites = [below for site in sites for below in site["sites"]]
    return ["cloud", *named], parents, [site["devices"] for site in sites]


def _shape_problems(topology: Json, tree: TreeFacts, era: WrittenEra | None) -> Iterator[str]:
    names, parents, devices = _shape(topology)
    if era is not None:
        devices = np.bincount(era.places, minlength=len(devices)).tolist()
    yield from _unlike("tiers: names", tree.names == names, True)
    yield from _unlike("number of tiers", tree.depth, len(parents))
    for tier, (held, wanted) in enumerate(zip(tree.parents[1:], parents[1:], strict=True), start=1):
        yield from _unlike(f"tiers[{tier}].parents", held, wanted)
    yield from _unlike("number of clouds", len(tree.parents[0]), 1)
    yield from _unlike("devices_per_leaf", tree.devices, devices)


def _class_problems(spec: Json, tree: TreeFacts, era: WrittenEra | None) -> Iterator[str]:
    """Devices in classes: as many as there are, and of weight 1 unless weights depend on data."""
    inside = np.bincount(tree.class_leaf, tree.class_size, len(tree.devices))
    yield from _unlike("device_classes: devices of each leaf", inside, tree.devices)
    listed = tree.ledger.get("class_per_device")
    if listed is not None:
        leaf_of = np.repeat(np.arange(len(tree.devices)), tree.devices)
        if era is not None:
            leaf_of = np.array(era.places, dtype=np.int64)
        in_class = wholes(listed)
        yield from _unlike("class_per_device: leaves", tree.class_leaf[in_class], leaf_of)
        sizes = np.bincount(in_class, minlength=len(tree.class_size))
        yield from _unlike("device_classes: devices", tree.class_size, sizes)
    elif len(tree.class_leaf) != len(tree.devices) or (np.diff(tree.class_leaf) != 1).any():
        yield "ledger.json: class_per_device: is missing; there are several classes in a leaf"
    elif era is not None and list(era.places) != sorted(era.places):
        yield "ledger.json: class_per_device: is missing; devices have moved"
    weights = spec["training"].get("weights") or {}
    examples = examples_held(spec)[0] if weights else None
    if weights.get("kind", "uniform") == "uniform":
        yield from _unlike("device_classes: weight", tree.class_weight, np.ones(len(tree.class_weight)))
    elif examples is not None:
        leaf_of = np.repeat(np.arange(len(tree.devices)), tree.devices)
        held = tree.class_weight[leaf_of if listed is None else wholes(listed)]
        yield from _unlike(
            "device_classes: weight", held, np.minimum(examples / number(weights["examples"]), 1.0)
        )
    elif (tree.class_weight < 0).any() or (tree.class_weight > 1).any():
        yield "ledger.json: device_classes: weight: must be from 0 to 1"


def _participation_problems(spec: Json, tree: TreeFacts) -> Iterator[str]:
    """Who is drawn, who sees it, and what sums are divided by."""
    ledger, part = tree.ledger, spec["training"]["participation"]
    drawn = tree.devices * part["rate"] if part["kind"] == "poisson" else tree.devices.astype(float)
    if part["kind"] == "fixed":
        drawn = np.array(_per_edge(part["count"], len(tree.devices)), dtype=float)
    yield from _unlike("draw.kind", ledger["draw"]["kind"], part["kind"])
    rates = {"poisson": part.get("rate"), "all": 1.0, "fixed": float(np.max(drawn / tree.devices))}
    yield from _unlike("draw.rate", number(ledger["draw"]["rate"]), rates[part["kind"]])
    yield from _unlike("participants_per_leaf", tree.drawn, drawn)
    seen_by = tree.names[0 if spec["protocol"] == "hdp" else -1]
    yield from _unlike("draw.seen_by", ledger["draw"]["seen_by"], f"{seen_by} of the device")
    names = [*tree.names, "devices"]
    hops = spec.get("transport") or {}
    wanted = [hops.get(f"{names[tier + 1]}_to_{names[tier]}", "plain") for tier in range(tree.depth)]
    yield from _unlike("number of hops", len(ledger["hops"]), tree.depth)
    for tier, (hop, stated) in enumerate(zip(ledger["hops"], wanted, strict=True)):
        yield from _unlike(f"hops[{tier}]", hop, stated)
    least, most = _divisors(spec, tree, drawn)
    yield from _unlike("denominator_per_leaf", tree.least_divisor, least)
    yield from _unlike("largest_denominator_per_leaf", tree.most_divisor, most)
    moves = not np.allclose(least, most, rtol=1e-12, atol=0.0)
    yield from _unlike("denominator_depends_on_draw", ledger["denominator_depends_on_draw"], moves)
    sessions = [*tree.children, np.ceil(tree.drawn)]
    yield from _unlike("number of shares_that_unmask", len(ledger["shares_that_unmask"]), tree.depth)
    for tier, held in enumerate(ledger["shares_that_unmask"]):
        shares = [_threshold(spec, int(parties)) for parties in sessions[tier]]
        yield from _unlike(f"shares_that_unmask[{tier}]", wholes(held), shares)


def _threshold(spec: Json, parties: int) -> int:
    """Fewest survivors of a session of secure aggregation: more than 2/3, or the share that is asked for."""
    share = (spec.get("faults") or {}).get("survival_threshold")
    if share is None:
        return 2 * parties // 3 + 1
    share = number(share)
    return max(math.ceil(share * parties - 1e-9), parties // 2 + 1)


def _divisors(spec: Json, tree: TreeFacts, drawn: Array) -> tuple[Array, Array]:
    """The least and the most that the sum of each leaf is divided by: weights of who is drawn."""
    leaves = range(len(tree.devices))
    whole_weight = np.bincount(tree.class_leaf, tree.class_weight * tree.class_size, len(tree.devices))
    denominator = spec["training"].get("denominator") or {}
    if denominator.get("kind", "fixed") == "fixed":
        expected = drawn / tree.devices * whole_weight
        return expected, expected
    kind = spec["training"]["participation"]["kind"]
    least = np.zeros(len(tree.devices)) if kind == "poisson" else whole_weight.copy()
    most = whole_weight.copy()
    for leaf in leaves if kind == "fixed" else ():
        mine = tree.class_leaf == leaf
        weights = np.sort(np.repeat(tree.class_weight[mine], tree.class_size[mine]))
        count = round(float(drawn[leaf]))
        least[leaf], most[leaf] = weights[:count].sum(), weights[len(weights) - count :].sum()
    floor = drawn / tree.devices * denominator["min_weight"]
    return np.maximum(least, floor), np.maximum(most, floor)


def _gain(steps: int, momentum: float) -> float:
    """How far clipped local steps with momentum go, in clip norms."""
    return math.fsum((steps - j) * momentum**j for j in range(steps))


class Aggregation(NamedTuple):
    """Of a round: after which local step, of which tier, local steps of each leaf since its last one (0: it
    takes no part), and which leaves broadcast their own average besides."""

    step: int
    tier: int
    new: npt.NDArray[np.int64]
    both: npt.NDArray[np.bool_]


def _per_edge(value: Any, edges: int) -> list[int]:
    """One number for each edge, of one for all or a list."""
    if isinstance(value, dict):
        raise UnknownKindError("spec.yaml: training: this checker has no rule for counts by name of edges")
    found = [whole(one) for one in value] if isinstance(value, list) else [whole(value)] * edges
    if len(found) != edges:
        raise ValueError(f"spec.yaml: training: {len(found)} numbers for {edges} edges")
    return found


def _aggregations(training: Json, ledger: Json) -> list[Aggregation]:
    """The aggregations of a round that spec.yaml asks for."""
    depth, leaves = len(ledger["tiers"]), len(ledger["devices_per_leaf"])
    steps = training.get("local_steps") or 1
    above = [[period] * leaves for period in training.get("aggregate_every") or [steps] * (depth - 1)]
    if depth == 2 and training.get("edge_every") is not None:
        above = [_per_edge(training["edge_every"], leaves)]
    periods = np.array(above, dtype=np.int64).reshape(len(above), leaves)
    found, before = [], np.zeros(leaves, dtype=np.int64)
    for step in range(1, steps + 1):
        due = step % periods == 0
        if step < steps and not due.any():
            continue
        tier = 0 if step == steps else int(np.argmax(due.any(axis=1))) + 1
        part = np.ones(leaves, dtype=np.bool_) if tier == 0 else due[tier - 1]
        both = np.zeros(leaves, dtype=np.bool_)
        if step == steps and training.get("edge_at_global"):
            both = due[-1]
        found.append(Aggregation(step, tier, np.where(part, step - before, 0), both))
        before = np.where(part, step, before)
    return found


def _step_problems(spec: Json, tree: TreeFacts, era: WrittenEra | None) -> Iterator[str]:
    """The aggregations of a round, and how far one device's message moves each."""
    training, kind = spec["training"], (spec["privacy"].get("clip") or {}).get("kind", "update")
    rounds = _aggregations(training, tree.ledger)
    yield from _unlike("number of steps", len(tree.steps), len(rounds))
    gains = np.zeros((len(rounds), len(tree.devices)))
    for place, one in enumerate(rounds):
        for new in np.unique(one.new[one.new > 0]).tolist():
            gain = _gain(new, training.get("momentum", 0.0)) if kind != "update" else 1.0
            gains[place, one.new == new] = gain
    resend = training.get("global_update") == "resend"
    for place, (step, (when, tier, new, both)) in enumerate(zip(tree.steps, rounds, strict=True)):
        what = f"steps[{place}]"
        who = "global" if tier == 0 else tree.names[tier]
        yield from _unlike(f"{what}.name", step["name"], f"{who} aggregation at step {when}")
        yield from _unlike(f"{what}.aggregating_tier", whole(step["aggregating_tier"]), tier)
        again = np.zeros(len(tree.devices), dtype=np.bool_)
        if resend and place == len(rounds) - 1:
            trusted = _trusted(spec, len(tree.devices))
            if era is not None:
                trusted = np.isin(np.arange(len(tree.devices)), era.trusted)
            again = trusted & ((gains > 0).sum(axis=0) > 1)
        held = [flag(one) for one in step["repeats_hidden_steps_per_leaf"]]
        yield from _unlike(
            f"{what}.repeats_hidden_steps_per_leaf", np.array(held, float), again.astype(float)
        )
        leaves = range(len(tree.devices))
        sends = np.array([tree.sends(place, leaf) for leaf in leaves], dtype=float)
        yield from _unlike(f"{what}.takes_part_per_leaf", sends, (new > 0).astype(float))
        told = np.array([tree.broadcasts(place, leaf) for leaf in leaves], dtype=float)
        yield from _unlike(f"{what}.also_broadcasts_per_leaf", told, both.astype(float))
        bounds = np.where(again, gains.sum(axis=0) if kind != "update" else 1.0, gains[place])
        yield from _unlike(f"{what}.message_bound_per_leaf", numbers(step["message_bound_per_leaf"]), bounds)
        yield from _channel_problems(what, step["channel_noise_std"], tree)


def _trusted(spec: Json, leaves: int) -> npt.NDArray[np.bool_]:
    """Which edges under a cloud are trusted, in all rounds."""
    trust, found = spec.get("trust") or {}, np.zeros(leaves, dtype=np.bool_)
    for site in enumerate(spec["topology"].get("sites") or ()):
        found[site[0]] = bool(site[1].get("trusted"))
    listed = trust.get("trusted_edges") or []
    if not isinstance(listed, list):
        raise UnknownKindError("spec.yaml: trust: this checker has no rule for a share of trusted edges")
    found[listed] = True
    named = _site_names(spec["topology"].get("sites") or ())
    level = _shape(spec["topology"])[0][-1]
    named |= {f"{level}:{leaf}": (1, leaf) for leaf in range(leaves)}
    found[[named[name][1] for name in trust.get("trusted") or ()]] = True
    return found


def _channel_problems(what: str, channel: Sequence[Any], tree: TreeFacts) -> Iterator[str]:
    """Only devices send over the air, and only the air adds noise that nobody owns."""
    air = tree.ledger["hops"][-1] == "air"
    yield from _unlike(f"{what}.channel_noise_std: tiers", len(channel), tree.depth if air else 0)
    for tier, held in enumerate(channel):
        stds = numbers(held)
        above = tier < tree.depth - 1
        if len(stds) != len(tree.parents[tier]) or (above and stds.any()):
            yield f"ledger.json: {what}.channel_noise_std[{tier}]: only what devices send goes over the air"


def _certainty_problems(spec: Json, tree: TreeFacts) -> Iterator[str]:
    """Whose noise is sure to be there. The air may make less of it sure than the spec alone says."""
    faults, compression, ledger = spec.get("faults") or {}, spec.get("compression") or {}, tree.ledger
    dropping = _drops_out(spec)
    secure, poisson = ledger["hops"][-1] == "secure-aggregation", ledger["draw"]["kind"] == "poisson"
    always = not (secure and dropping) and not faults.get("supernode_failure_rate", 0.0)
    noisy = any(any(numbers(step["device_noise_std_per_leaf"])) for step in tree.steps)
    rounded = compression.get("bits") is not None and noisy
    sure = np.zeros(len(tree.devices)) if poisson else np.rint(tree.drawn)
    if dropping:
        sure = np.array([_threshold(spec, int(n)) if secure and not poisson else 0 for n in tree.drawn])
    if rounded:
        sure = np.zeros(len(tree.devices))
    yield from _unlike("rounded_after_noise", ledger["rounded_after_noise"], rounded)
    remembers = bool(compression.get("error_feedback")) or _keeps_variates(spec)
    if ledger["hops"][-1] != "air":
        yield from _unlike("sure_per_leaf", tree.sure, sure)
        yield from _unlike("always_sent", tree.always_sent, always)
        yield from _unlike("devices_may_drop_out", ledger["devices_may_drop_out"], dropping or not always)
    else:
        flag(ledger["devices_may_drop_out"])
        if (tree.sure > sure).any() or tree.always_sent > always:
            yield "ledger.json: sure_per_leaf, always_sent: more than spec.yaml gives"
        if dropping or not always or not tree.always_sent or (tree.sure < sure).any():
            yield from _unlike("devices_may_drop_out", ledger["devices_may_drop_out"], True)
    for place, step in enumerate(tree.steps):
        if remembers or ledger["hops"][-1] != "air":
            yield from _unlike(f"steps[{place}].tells_who_was_drawn", step["tells_who_was_drawn"], remembers)
        flag(step["tells_who_was_drawn"])


def _sources(spec: Json, tree: TreeFacts) -> tuple[Array, list[Array], npt.NDArray[np.bool_]]:
    """Multipliers of devices by leaf and of nodes, by aggregating tier, and which devices add noise."""
    device = np.zeros((len(tree.devices), tree.depth))
    node = [np.zeros((len(parents), tree.depth)) for parents in tree.parents]
    noisy = np.ones(int(tree.last[-1]), dtype=np.bool_)
    named = {tree.name(t, i): (t, i) for t in range(tree.depth) for i in range(len(tree.parents[t]))}
    named |= _site_names(spec["topology"].get("sites") or ())
    for source in spec["privacy"]["noise"].get("sources", ()):
        for owner in source["owners"]:
            name, slash, some = owner.partition("/devices")
            tier, index = named[name]
            (device if slash else node[tier])[index] = source["multipliers"]
            if some:
                first = int(tree.last[index] - tree.devices[index])
                noisy[first : int(tree.last[index])] = False
                for span in some[1:].split(","):
                    start, _, stop = span.partition("-")
                    noisy[first + int(start) : first + int(stop or start) + 1] = True
    return device, node, noisy


def _site_names(sites: Sequence[Json], tier: int = 1) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    below: list[Json] = []
    for index, site in enumerate(sites):
        if site.get("name"):
            found[str(site["name"])] = tier, index
        below += site.get("sites") or ()
    return found | (_site_names(below, tier + 1) if below else {})


def _in_era(device: Array, node: list[Array], spec: Json, era: WrittenEra) -> tuple[Array, list[Array]]:
    """Multipliers of the sources that add noise in an era: where messages first leave trusted hands."""
    trusted = np.isin(np.arange(len(device)), era.trusted)
    cloud = bool((spec.get("trust") or {}).get("cloud"))
    edges = np.stack([trusted & (not cloud), trusted], axis=1)
    return device * ~trusted[:, None], [node[0] * (cloud and trusted.any()), node[1] * edges]


def _source_problems(spec: Json, tree: TreeFacts, era: WrittenEra | None) -> Iterator[str]:
    """Noise of every source: its multiplier times what it hides."""
    device, node, noisy = _sources(spec, tree)
    if era is not None and era.trust_changes:
        device, node = _in_era(device, node, spec, era)
    leaf_of = np.repeat(np.arange(len(tree.devices)), tree.devices)
    in_class = np.array(tree.ledger.get("class_per_device", leaf_of), dtype=np.int64)
    yield from _unlike("device_classes: noisy", tree.class_noisy[in_class].astype(float), noisy.astype(float))
    partly = np.array([not noisy[leaf_of == leaf].all() for leaf in range(len(tree.devices))])
    for number_of, step in enumerate(tree.steps):
        tier = whole(step["aggregating_tier"])
        norms = np.array(step["message_bound_per_leaf"], dtype=np.float64)
        what = f"steps[{number_of}]"
        yield from _unlike(
            f"{what}.device_noise_std_per_leaf", step["device_noise_std_per_leaf"], device[:, tier] * norms
        )
        share = norms / tree.least_divisor * (2.0 if tree.ledger["denominator_depends_on_draw"] else 1.0)
        raw = (device[:, tier] == 0) | partly
        for t in range(tree.depth - 1, -1, -1):
            ancestors = tree.paths[:, t]
            if t < tree.depth - 1:
                raw = raw & (node[t + 1][tree.paths[:, t + 1], tier] == 0)
                share = share / tree.children[t][ancestors]
            hidden = np.zeros((2, len(tree.parents[t])))
            np.maximum.at(hidden[0], ancestors[raw], share[raw])
            np.maximum.at(hidden[1], ancestors, share)
            sensitivity = np.where(hidden[0] > 0, hidden[0], hidden[1])
            wanted = node[t][:, tier] * sensitivity * (t >= tier)
            if t == tree.depth - 1 > tier:  # what leaves broadcast themselves is noised for their devices
                both = np.array([tree.broadcasts(number_of, leaf) for leaf in range(len(wanted))])
                bare = both & ((device[:, tier] == 0) | partly) & (wanted == 0)
                wanted = np.where(bare, node[t][:, t] * sensitivity, wanted)
            yield from _unlike(f"{what}.node_noise_std[{t}]", step["node_noise_std"][t], wanted)


def _groups_problems(spec: Json, ledger: Json) -> Iterator[str]:
    training, privacy, noise = spec["training"], spec["privacy"], spec["privacy"]["noise"]
    listed = _groups(spec["topology"])
    groups, workers = len(listed), 1 + max(max(group) for group in listed)
    yield from _unlike("kind", ledger["kind"], spec["protocol"])
    yield from _unlike("devices", whole(ledger["devices"]), spec["topology"].get("devices") or workers)
    changes = spec["topology"].get("eras") or ()
    eras = [(1, listed), *((whole(era["from_round"]), _sorted_groups(era["groups"])) for era in changes)]
    held = [(whole(era["first_epoch"]), _sorted_groups(era["groups"])) for era in ledger["eras"]]
    yield from _unlike("eras begin with rounds", [first for first, _ in held], [first for first, _ in eras])
    for (first, mine), (_, theirs) in zip(held, eras, strict=False):
        yield from _unlike(f"groups from round {first} are those of the topology", mine == theirs, True)
    yield from _unlike("merge_every", whole(ledger["merge_every"]), training.get("merge_every") or 1)
    part, clip = training["participation"], privacy.get("clip") or {}
    rates = part.get("rates") or [part.get("rate", 1.0)] * groups
    yield from _unlike("poisson_rate_per_group", numbers(ledger["poisson_rate_per_group"]), rates)
    bare = ledger["kind"] == "ms-fedavg"
    norms = clip.get("norms") or [clip.get("norm", 1.0)] * groups
    norms = [1.0] * groups if bare or clip.get("kind") == "example" else norms
    yield from _unlike("clip_per_group", numbers(ledger["clip_per_group"]), norms)
    transport = (spec.get("transport") or {}).get("devices_to_master", "plain")
    yield from _unlike("transport", ledger["transport"], transport)
    fewest = [min(map(len, structure)) for structure in zip(*(found for _, found in eras), strict=True)]
    cohort = wholes(ledger.get("cohort_per_group") or ()).tolist()
    wanted_cohort = []
    if part["kind"] == "fixed":
        wanted_cohort = part["count"] if isinstance(part["count"], list) else [part["count"]] * groups
    yield from _unlike("cohort_per_group", cohort, wanted_cohort)
    if any(count > least for count, least in zip(cohort, fewest, strict=False)):
        yield f"cohort_per_group: {cohort} of groups of {fewest}"
    lost = [
        [_least_survivors(spec, len(group), place, numbers(rates)) for place, group in enumerate(structure)]
        for _, structure in eras
    ]
    held_least = [wholes(row).tolist() for row in ledger.get("least_survivors_per_group") or ()]
    yield from _unlike("least_survivors_per_group", held_least, lost if _drops_out(spec) else [])
    shares = [_colluders(spec, parties, rate) for parties, rate in zip(cohort or fewest, rates, strict=False)]
    masked = transport == "secure-aggregation"
    yield from _unlike("shares_that_unmask", wholes(ledger["shares_that_unmask"]), shares if masked else [])
    wanted = np.zeros(groups)
    owners = [
        (owner, source["multipliers"][0])
        for source in (noise.get("sources") or () if not bare else ())
        for owner in source["owners"]
    ]
    for owner, multiplier in owners:
        wanted[_numbered(owner.removesuffix("/devices"))[1]] = multiplier
    yield from _unlike("noise_multiplier_per_group", numbers(ledger["noise_multiplier_per_group"]), wanted)
    by = ["master" if trusted else "devices" for trusted in _trusted_masters(spec, groups)]
    one_for_all = len(set(by)) == 1
    wanted_by = by[0] if one_for_all else by
    if ledger["noise_added_by"] != wanted_by:
        held_by = _short(ledger["noise_added_by"])
        yield f"ledger.json: noise_added_by: {held_by}; spec.yaml gives {_short(wanted_by)}"
    for owner, _ in owners:
        group = _numbered(owner.removesuffix("/devices"))[1]
        if owner.endswith("/devices") != (by[group] == "devices"):
            yield f"spec.yaml: privacy.noise: {owner}: trust says that the noise is by {by[group]}"


def _trusted_masters(spec: Json, groups: int) -> list[bool]:
    """Of every master whether it is trusted: all are where the spec names none."""
    trust = spec.get("trust") or {}
    listed, named = trust.get("trusted_aggregators"), trust.get("trusted") or []
    if listed is None and not named:
        return [True] * groups
    if listed is not None and not isinstance(listed, list):
        raise UnknownKindError("spec.yaml: trust: this checker has no rule for a share of trusted masters")
    trusted = {*map(whole, listed or ()), *(_numbered(name)[1] for name in named)}
    return [group in trusted for group in range(groups)]


def _colluders(spec: Json, parties: int, rate: float) -> int:
    """How many workers of a group, with its master, hold enough shares to take masks off.

    Where the session is drawn, that of the smallest session that holds the unit and as many colluders. Where
    the group has none, its number of workers.
    """
    if rate == 1:
        return _threshold(spec, parties)
    # by default a session of four is the smallest, and its number is stated for a smaller group too
    sizes = range(2, max(parties, 4) + 1)
    return next((size - 1 for size in sizes if _threshold(spec, size) <= size - 1), parties)


def _drops_out(spec: Json) -> bool:
    """Whether a message may be lost."""
    rates = (spec.get("faults") or {}).get("dropout_rate", 0.0)
    return any(rates.values() if isinstance(rates, dict) else [rates])


def _least_survivors(spec: Json, size: int, group: int, rates: Array) -> int:
    """Messages that a released sum of a group of so many workers holds at least."""
    masked = (spec.get("transport") or {}).get("devices_to_master") == "secure-aggregation"
    part = spec["training"]["participation"]
    if not masked or rates[group] < 1:
        return 0
    if part["kind"] == "fixed":
        size = whole(part["count"][group] if isinstance(part["count"], list) else part["count"])
    return _threshold(spec, size)


def _sorted_groups(listed: Any) -> list[list[int]]:
    """The workers of every group in a list, ascending."""
    return [sorted(wholes(group).tolist()) for group in listed]


def _groups(topology: Json) -> list[list[int]]:
    """The workers of every group, ascending."""
    if isinstance(topology.get("groups"), list):
        return [sorted(group) for group in topology["groups"]]
    structure, workers = topology["structure"], topology["devices"]
    if structure == "global":
        return [list(range(workers))]
    if structure not in ("clusters", "ring", "string"):
        raise UnknownKindError(f"spec.yaml: topology: this checker has no rule for groups by {structure!r}")
    count = topology["groups"]
    starts = [group * workers // count for group in range(count + 1)]
    shared = 0 if structure == "clusters" else 1
    found = []
    for first, stop in pairwise(starts):
        held = range(first, stop + shared)
        found.append(
            sorted({i % workers for i in held} if structure == "ring" else {i for i in held if i < workers})
        )
    return found


# --- 5. Rows ------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a check found.

    Attributes:
        problems: what does not hold, each with the row or file that it is about.
        rows: rows of ``privacy.json`` that were checked.
        finite: bounds with a finite ε among them, each recomputed.
        gaps_beyond: rows with ``certified`` and ``gap``, of which not all exposed sets were compared.
        unchecked: what the folder has that is not checked, in words.
    """

    problems: list[str] = field(default_factory=list)
    rows: int = 0
    finite: int = 0
    gaps_beyond: int = 0
    unchecked: list[str] = field(default_factory=list)


def row_problems(row: Json, cert: Json, spec: Json, facts: Facts, table: Sequence[Json]) -> Iterator[str]:
    """What does not hold in one row and its certificate."""
    relation = spec["privacy"].get("neighbours", "zero-out")
    delta = number(cert["delta"])
    yield from _differs("relation", cert["relation"], relation)
    if (cert["unit"], cert["observer"]) != (row["unit"], row["observer"]):
        yield f"certificate: it is about {cert['unit']} towards {cert['observer']}"
        return
    if cert["bounds"].keys() != row["bounds"].keys():
        yield f"bounds: the row has {', '.join(row['bounds'])}; its certificate {', '.join(cert['bounds'])}"
        return
    best = min(number(b["epsilon"]) for b in row["bounds"].values())
    named = row["bounds"][row["bound"]]["epsilon"]
    if not close(number(row["epsilon"]), number(named)):
        yield f"ε: the row says {row['epsilon']}, its bound {row['bound']} {named}"
    if number(row["epsilon"]) < best * (1 - ROUNDING):
        yield f"ε: the row says {row['epsilon']}; its smallest bound is {best}"
    coalition = [facts.party(name) for name in row["observer"].split(",")]
    unit = row["unit"].partition(":")[2]
    if isinstance(facts, GroupFacts):
        trusted = any(facts.trusts(int(unit), party) for party in coalition)
        if row.get("trusted", False) != trusted:
            yield f"trusted: the row says {row.get('trusted')}; the facts give {trusted}"
    if "epsilon_range" in row and number(row["epsilon_range"][1]) != number(row["epsilon"]):
        yield f"epsilon_range: its largest is {row['epsilon_range'][1]}; the row says {row['epsilon']}"
    if row.get("as_seen_by") != cert.get("as_seen_by"):
        yield f"as_seen_by: the row says {row.get('as_seen_by')}, its certificate {cert.get('as_seen_by')}"
        return
    if "as_seen_by" in row:  # what a larger coalition learns at most, each of its parts learns at most
        larger = [facts.party(name) for name in row["as_seen_by"].split(",")]
        if not set(coalition) <= set(larger):
            yield f"as_seen_by: {row['as_seen_by']} does not contain {row['observer']}"
            return
        coalition = larger
    if ("device", unit) in [(name, str(i)) for name, _, i in coalition]:
        yield "observer: the unit observes itself"
    for name, bound in cert["bounds"].items():
        stated = row["bounds"][name]
        yield from _differs(f"{name}: ε", number(bound["epsilon"]), number(stated["epsilon"]))
        yield from _differs(f"{name}: releases", whole(bound["releases"]), whole(stated["releases"]))
        if "exposed" in stated:
            listed = bound.get("exposed_aggregations", bound.get("exposed_releases_per_group"))
            yield from _differs(f"{name}: exposed", listed, stated["exposed"])
            gaps = _gap_problems(stated, facts, int(unit), coalition, row["unit"], relation)
            yield from (f"{name}: {problem}" for problem in gaps)
        if name == row["bound"]:
            for key in ("method", "neighbours"):
                yield from _differs(f"{name}: {key}", bound[key], row[key])
        draws = [_draw(draw, table) for draw in bound["draws"]]
        found = [*_bound_problems(name, bound, draws, row, spec, facts, table, int(unit), coalition, delta)]
        yield from (f"{name}: {problem}" for problem in found)


def _gap_problems(
    stated: Json, facts: Facts, unit: int, coalition: Sequence[Party], name: str, relation: str
) -> Iterator[str]:
    """Whether a set is further from the cheapest one than its bound says.

    Every other set that may be charged shows how far at least: `_gap_is_checked` says where all are tried.
    """
    gap = number(stated["gap"])
    if not gap >= 1:
        yield f"gap: {gap}; it is at least 1"
    if flag(stated["certified"]) != (gap == 1):
        yield f"certified: {stated['certified']}; with a gap of {gap} it is {gap == 1}"
    if not name.startswith("device:") or isinstance(facts, MovingFacts):
        return
    first = 1 if isinstance(facts, TreeFacts) else 0  # aggregations are counted from 1
    mine = facts.cost([whole(one) - first for one in stated["exposed"]], unit, coalition, relation)
    for exposed in facts.sets(unit, coalition)[0] if mine is not None else ():
        other = facts.cost(exposed, unit, coalition, relation)
        if mine is not None and other is not None and mine > gap * other * (1 + _SAME_COST):
            listed = [one + first for one in exposed]
            yield f"gap: stated {gap:.9g}; μ² of the set is {mine:.9g}, that of {listed} is {other:.9g}"
            return


def _gap_is_checked(row: Json, facts: Facts) -> bool:
    """Whether all sets are compared with the one that a row charges."""
    if not any("exposed" in bound for bound in row["bounds"].values()):
        return True
    if not row["unit"].startswith("device:") or isinstance(facts, MovingFacts):
        return False
    unit, coalition = _numbered(row["unit"])[1], [facts.party(one) for one in row["observer"].split(",")]
    sets, all_of_them = facts.sets(unit, coalition)
    has_costs = len(sets) == 1 or facts.cost(sets[0], unit, coalition, "zero-out") is not None
    return all_of_them and has_costs


def _differs(what: str, one: Any, other: Any) -> Iterator[str]:
    if one != other and not (isinstance(one, float) and isinstance(other, float) and close(one, other)):
        yield f"{what}: the certificate says {one}; it must be {other}"


def _draw(draw: Json, table: Sequence[Json]) -> Draw:
    releases = tuple(table[whole(i)] for i in draw["releases"])
    ratio = number(draw.get("max_weight_ratio", 1.0))
    beside = [(whole(d["count"]), tuple(map(number, d["variances"]))) for d in draw.get("drawn_noise", ())]
    if any(len(variances) != len(releases) for _, variances in beside):
        raise ValueError("drawn_noise: it does not have one variance a release")
    return Draw(draw["sampling"], whole(draw["count"]), releases, ratio, tuple(beside))


def _bound_problems(
    name: str, cert: Json, draws: Sequence[Draw], row: Json, spec: Json, facts: Facts,
    table: Sequence[Json], unit: int, coalition: Sequence[Party], delta: float,
) -> Iterator[str]:  # fmt: skip
    """The exposed set, the charge and ε of one bound of a row."""
    office: Office | None = None
    if isinstance(facts, TreeFacts) and number(facts.ledger["elections_per_round"]):
        coalition = facts.with_whoever_is_elected(unit, coalition)
        office = _office(facts, coalition)
    if office is None:
        yield from facts.problems(name, cert, draws, unit, coalition)
    else:
        assert isinstance(facts, TreeFacts)
        found = [*_office_problems(name, cert, draws, facts, office, table, unit, coalition)]
        yield from found
        if found:
            return
    record = cert.get("record")
    released = sum(draw.count * len(draw.releases) for draw in draws)
    if office is not None and isinstance(facts, TreeFacts):
        once = facts.flow(unit, coalition) if name == "flow" else facts.cut(unit, coalition)
        released = whole(facts.ledger["rounds"]) * len(once)
    parts = record["parts"] if record else []
    if record and office is not None:
        yield "record: no draw of records amplifies where a member may be elected"
    if record:
        yield from _record_problems(name, cert, draws, spec, facts, table, unit, coalition)
    is_record = row["unit"].startswith("record:")
    own_count = sum(whole(part["count"]) * len(part["releases"]) for part in parts)
    if whole(cert["releases"]) not in {released, own_count} and not (
        (is_record and name == "flow")
        or any(r["vector"].startswith("messages of ") for d in draws for r in d.releases)
    ):
        yield f"releases: stated {cert['releases']}; the exposed set has {released}"
    stated = tuple(stated_term(term) for term in cert["terms"])
    _require_known(stated)
    derived, failure, under = _derived(cert, stated, draws, spec, table, is_record)
    yield from _differs("composed_under", cert["composed_under"], under)
    claimed = number(cert["failure_probability"])
    if cert.get("chances"):
        chances = [number(chance) for chance in cert["chances"]]
        yield from outcome_problems(draws, chances, under, cert["terms"], claimed)
        derived, failure = stated, claimed
    elif cert.get("elections"):
        more, beside = _terms_of_office(cert["elections"], table, under)
        derived, failure = (*derived, *more), failure + beside
    elif any(draw.drawn_noise for draw in draws) and not record and failure < 1:
        widened = 4.0 if is_record and under != "replace" else 1.0  # as in `_derived`
        yield from mixture_problems(draws, under, widened, cert["terms"], claimed)
        derived, failure = stated, claimed
    if not same_terms(stated, derived):
        yield "terms: what was composed does not follow from the releases and draws of the certificate"
    if not close(claimed, failure):
        yield f"failure_probability: stated {claimed}; it is {failure}"
    yield from _epsilon_problems(cert, derived, failure, delta)


class Office(NamedTuple):
    """The leaf that may elect a member, the probability in a round, and the supernode."""

    leaf: int
    chance: float
    node: Party


def _office(facts: TreeFacts, coalition: Sequence[Party]) -> Office | None:
    chances = facts.chances_of_office(coalition)
    if len(chances) > 1:
        raise UnknownKindError("elections: this checker has no rule for members in several zones")
    for leaf, chance in chances.items():
        return Office(leaf, chance, ("node", facts.depth - 1, leaf))
    return None


def _office_problems(
    name: str, cert: Json, draws: Sequence[Draw], facts: TreeFacts, office: Office,
    table: Sequence[Json], unit: int, coalition: Sequence[Party],
) -> Iterator[str]:  # fmt: skip
    """How the certificate of an observer that may be elected differs from what the facts require.

    It may state the outcomes of a round's election (``chances``), what a term of office adds (``elections``),
    or charge every round as one in office, which is what whoever is elected meets at most.
    """
    elected, plain = [*coalition, office.node], {**cert, "chances": None, "elections": None}
    if cert.get("chances") and cert.get("elections"):
        yield "elections: outcomes and terms of office are two ways of charging"
    elif cert.get("chances"):
        wanted = [(1 - office.chance, coalition)] * (office.chance < 1) + [(office.chance, elected)]
        stated = [number(chance) for chance in cert["chances"]]
        if (len(stated), len(draws)) != (len(wanted), len(wanted)):
            yield f"elections: {len(stated)} outcomes of {len(draws)} draws; a round has {len(wanted)}"
            return
        for place, (chance, (least, members)) in enumerate(zip(stated, wanted, strict=True)):
            if not close(chance, least):
                stated_chance = f"probability stated {chance:.9g}; the facts give {least:.9g}"
                yield f"elections: outcome {place}: {stated_chance}"
            for problem in facts.problems(name, plain, [draws[place]], unit, members):
                yield f"elections: outcome {place}: {problem}"
    elif cert.get("elections"):
        yield from _term_problems(name, cert, draws, facts, office, table, unit, coalition)
    else:
        yield from facts.problems(name, plain, draws, unit, elected)


def _term_problems(
    name: str, cert: Json, draws: Sequence[Draw], facts: TreeFacts, office: Office,
    table: Sequence[Json], unit: int, coalition: Sequence[Party],
) -> Iterator[str]:  # fmt: skip
    """The same of a certificate that charges rounds out of office, and what a term of office adds."""
    charged = facts.flow if name == "flow" else facts.cut
    met = [charged(unit, [*coalition, office.node]), charged(unit, coalition)]
    stated = [release for draw in draws for release in draw.releases]
    if len(draws) != 1 or len(cert["elections"]) != 1 or len(stated) != len(met[1]):
        yield "elections: there must be one draw of what is met out of office, and one zone that may elect"
        return
    sampling, ratio = facts.sampling(unit, coalition)
    if sampling["kind"] != "all":  # whoever may be elected is charged as if every draw were seen
        sampling = {"kind": "poisson", "rate": sampling["rate"], "hidden": False}
    yield from sampling_problems(draws[0], sampling, whole(facts.ledger["rounds"]), ratio)
    if draws[0].drawn_noise:
        yield "drawn noise: counts for nothing beside terms of office"
    for mine, theirs in zip(stated, met[1], strict=True):
        yield from release_problems(mine, theirs)
    (event,) = cert["elections"]
    if not close(number(event["probability"]), office.chance):
        yield f"elections: probability stated {event['probability']}; the facts give {office.chance:.9g}"
    if whole(event["rounds"]) != whole(facts.ledger["rounds"]):
        yield f"elections: {event['rounds']} rounds; there are {facts.ledger['rounds']}"
    if len(event["pairs"]) != 1:
        yield f"elections: {len(event['pairs'])} pairs of rounds in office and out of it; there is one"
        return
    for what, listed, wanted in zip(("in office", "out of office"), event["pairs"][0], met, strict=True):
        if len(listed) != len(wanted):
            yield f"elections: {what}: {len(listed)} releases; the observer meets {len(wanted)}"
            continue
        for place, theirs in zip(listed, wanted, strict=True):
            yield from (f"elections: {what}: {one}" for one in release_problems(table[whole(place)], theirs))
    if [table[whole(place)] for place in event["pairs"][0][1]] != list(draws[0].releases):
        yield "elections: out of office: must be the releases that are charged in every round"


def _terms_of_office(
    events: Sequence[Json], table: Sequence[Json], relation: str
) -> tuple[list[Event], float]:
    """What terms of office add to μ², as draws that are seen; and the chance that nothing protects in one."""
    terms: list[Event] = []
    failure = 0.0
    for event in events:
        chance, rounds = number(event["probability"]), whole(event["rounds"])
        more, less = (
            math.fsum(squared_mu(table[whole(i)], relation) for i in listed) for listed in event["pairs"][0]
        )
        if math.isinf(less):
            continue
        if math.isinf(more):
            failure += 1.0 if chance >= 1 else -math.expm1(rounds * math.log1p(-chance))
        elif more > less:
            terms.append(
                Event(more - less, rounds, "revealed", chance) if chance < 1 else Event(more - less, rounds)
            )
    return terms, failure


def outcome_problems(
    draws: Sequence[Draw], chances: Sequence[float], relation: str, terms: Sequence[Json], failure: float
) -> Iterator[str]:
    """How a stated mixture over a round's outcomes reveals less than these do.

    Outcomes in which the draw is hidden are compared among each other, and so are those in which it is seen:
    the stated μ² must be above every level at least as often as it is.
    """
    term: Json = terms[0] if len(terms) == 1 else {"multiplier": 0.0}
    square = stated_term({"multiplier": term["multiplier"]}).square
    sampling: Json = term.get("sampling") or {"rate": 1.0, "hidden": False}
    if len(terms) != 1 or whole(term.get("count", 1)) != draws[0].count or not math.isfinite(square):
        yield f"terms: must be one mixture over the outcomes of a round, {draws[0].count} times"
        return
    unseen = flag(sampling.get("hidden", True))
    rate = number(sampling.get("rate", 1.0))
    listed = {
        True: [(number(p), number(share)) for p, share in sampling.get("scales", ()) if unseen],
        False: [(number(p) * rate, number(share)) for p, share in sampling.get("scales", ()) if not unseen],
    }
    listed[False] += [(number(p), number(share)) for p, share in sampling.get("seen_scales", ())]
    if unseen and not close(rate, draws[0].rate):
        yield f"terms: rate: stated {rate:.9g}; the facts give {draws[0].rate:.9g}"
    yield from _apart_problems(sampling, draws if unseen else [], relation)
    everything = [p for ways in listed.values() for p, _ in ways]
    if min(everything, default=0.0) < 0 or math.fsum(everything) > 1 + ROUNDING:
        yield "terms: scales: the probabilities are below 0 or add up to more than 1"
    bare = 0.0
    for hidden, ways in listed.items():
        stated = [(p, square * share**2) for p, share in ways]
        levels = np.unique([0.0, *(mu for _, mu in stated)])
        least = np.zeros(len(levels))
        for draw, chance in zip(draws, chances, strict=True):
            if amplified(draw, relation) == hidden:
                used = 1.0 if hidden else draw.moved_rate
                above, nothing = chances_above(draw, relation, levels * (1 + ROUNDING))
                least += chance * used * above
                bare += chance * (draw.rate if hidden else used) * nothing
        for level, chance in zip(levels, least, strict=True):
            mine = math.fsum(p for p, mu in stated if mu > level)
            if mine < chance * (1 - OF_A_CHANCE) - LEAST_CHANCE:
                how = "unseen" if hidden else "seen"
                yield (
                    f"terms: scales: μ² is above {level:.9g}, in draws that are {how}, with probability "
                    f"{mine:.9g}; by the outcomes with {chance:.9g}"
                )
    least_failure = 1.0 if bare >= 1 else -math.expm1(draws[0].count * math.log1p(-bare))
    if failure < least_failure * (1 - OF_A_CHANCE) - LEAST_CHANCE:
        yield f"failure_probability: stated {failure:.9g}; by the outcomes it is {least_failure:.9g}"


def _derived(
    cert: Json,
    stated: Sequence[Event],
    draws: Sequence[Draw],
    spec: Json,
    table: Sequence[Json],
    is_record: bool,
) -> tuple[tuple[Event, ...], float, str]:
    """The terms that the releases amount to, the probability of failure, and the relation they are under."""
    relation = spec["privacy"].get("neighbours", "zero-out")
    under = relation
    if is_record:
        under = "replace" if relation == "replace" else "zero-out"
        if not draws:  # nothing of the device is received, under any relation
            stated_under = str(cert["composed_under"])
            return (), 0.0, stated_under if stated_under in ("replace", "zero-out") else under
        if record := cert.get("record"):
            parts = [(part, [table[i] for i in part["releases"]]) for part in record["parts"]]
            rate = number(record["rate"])
            failure = math.fsum(whole(part["count"]) * number(part.get("beyond", 0.0)) for part, _ in parts)
            composed = tuple(term_of_record(part, found, rate, under) for part, found in parts)
            return composed, min(1.0, failure), under
        if (
            spec.get("control") and under == "zero-out"
        ):  # a filter holds the device's budget: four times its μ²
            terms, failure = terms_of(draws, "zero-out")
            return tuple(replace(t, square=4 * t.square) for t in terms), failure, "zero-out"
        under = "replace"
    if any(term.kind == "fixed" for term in stated) and relation != "remove":
        return tuple(terms_without_replacement(draws, under)), 0.0, under
    terms, failure = terms_of(draws, under)
    return tuple(terms), failure, under


def _epsilon_problems(cert: Json, terms: tuple[Event, ...], failure: float, delta: float) -> Iterator[str]:
    stated, method = number(cert["epsilon"]), str(cert["method"])
    if method not in STATED_ABOVE:
        raise UnknownKindError(f"method: this checker has no rule for the kind {method!r}")
    interval = None if cert["losses"]["interval"] is None else number(cert["losses"]["interval"])
    if interval is not None and not LEAST_INTERVAL <= interval <= 1:
        yield f"losses: interval: {interval} is no grid; must be from {LEAST_INTERVAL} to 1"
        return
    yield from _differs("losses: direction", cert["losses"]["direction"], "rounded up")
    above = STATED_ABOVE["pld" if any(term.kind == "visible" for term in terms) else method]
    found = math.inf
    if failure < delta:
        found = recomputed_epsilon(terms, method, delta - failure, interval)
    if stated == found:
        return
    if not stated >= found * (1 - STATED_TOO_LOW) - 1e-12:
        yield f"ε: stated {stated:.9g}; recomputed {found:.9g}, which is more"
    elif math.isinf(stated) and any(math.isinf(term.square) for term in terms):
        return  # that releases without noise are rare enough for δ need not be claimed
    elif math.isinf(stated) or stated > found * (1 + above) + 1e-9:
        yield f"ε: stated {stated:.9g}; recomputed {found:.9g}, which is less than rounding explains"


def _record_problems(
    name: str, cert: Json, draws: Sequence[Draw], spec: Json, facts: Facts,
    table: Sequence[Json], unit: int, coalition: Sequence[Party],
) -> Iterator[str]:  # fmt: skip
    """Whether a record is charged by draws that the facts have, on the releases of the flow bound."""
    record = cert["record"]
    first = facts.eras[0] if isinstance(facts, MovingFacts) else facts
    batches = first.ledger.get("batches")
    if batches is None or name != "flow" or spec.get("control"):
        yield "record: no draw of records amplifies this bound"
        return
    rates = [number(q) for q in batches["rate_per_device"]]
    if number(record["rate"]) < rates[unit] * (1 - ROUNDING):  # `_unit_problems` looks at others of the row
        yield f"record: rate: stated {record['rate']}; the facts give {rates[unit]}"
    if isinstance(facts, MovingFacts):
        at_steps = number(batches["noise_at_steps"]) > 0  # one part an era, whatever is sent
        sizes = [1 if at_steps else len(draw.releases) for draw in draws]
        for era, draw, parts in zip(facts.eras, draws, _by_era(record["parts"], sizes), strict=True):
            where = f"from round {era.ledger['from_round']}"
            for problem in _part_of_era_problems(cert, [draw], parts, spec, era, table, unit, coalition):
                yield f"{where}: {problem}"
        return
    yield from _part_of_era_problems(cert, draws, record["parts"], spec, first, table, unit, coalition)


def _by_era(parts: Sequence[Json], sizes: Sequence[int]) -> Iterator[list[Json]]:
    """As many parts in order as have each number of releases; whatever is left goes with the last."""
    left = list(parts)
    for place, size in enumerate(sizes, start=1):
        mine: list[Json] = []
        while left and (place == len(sizes) or sum(len(part["releases"]) for part in mine) < size):
            mine.append(left.pop(0))
        yield mine


def _part_of_era_problems(
    cert: Json, draws: Sequence[Draw], parts: Sequence[Json], spec: Json, facts: TreeFacts | GroupFacts,
    table: Sequence[Json], unit: int, coalition: Sequence[Party],
) -> Iterator[str]:  # fmt: skip
    """Whether the parts of a record's charge are what the releases of one tree, or of groups, amount to."""
    batches = facts.ledger["batches"]
    multiplier = number(batches["noise_at_steps"])
    if multiplier:
        yield from _noised_step_problems(parts, table, multiplier, facts, unit)
        return
    moves, replaced = _moved_shares(batches, facts.leaf(unit) if isinstance(facts, TreeFacts) else 0)
    own = facts.steps_of(facts.leaf(unit)) if isinstance(facts, TreeFacts) else []
    examples = (spec["privacy"].get("clip") or {}).get("kind") == "example"
    flow = Counter[int]()
    for draw in draws:
        for place, release in enumerate(draw.releases):
            step = place if isinstance(facts, TreeFacts) else 0
            flow[_place(release)] += draw.count
            most = number(release["variance"])
            if examples and isinstance(facts, TreeFacts):
                most = facts.noise_of_records(own[step], unit, coalition) if _is_gaussian(spec) else 0.0
            elif examples:  # `record_noise_problems` compares all of a group at once
                most = math.inf
            rounded = bool(batches.get("rounded")) and not _noised_first(facts, unit, own)
            shares = (moves[step], replaced[step])
            if rounded:
                most, shares = (0.0 if examples else most), ((1.0,) * len(moves[step]),) * 2
            answers = (whole(batches.get("answering", 0)), number(batches.get("beyond", 0.0)))
            all_steps = sum(len(one) for one in moves)
            yield from _part_problems(
                release, most, draw, parts, table, shares, all_steps, answers if examples else None
            )
    charged = Counter[int]()
    for part in parts:
        for i in part["releases"]:
            charged[_place(table[i])] += whole(part["count"])
    if charged != flow:
        yield "record: the releases charged are not those of the flow bound"
    if isinstance(facts, GroupFacts):
        exposed = [whole(n) for n in cert["exposed_releases_per_group"]]
        yield from _unknown_start_problems(parts, facts, exposed, unit, table)
        if examples:
            yield from facts.record_noise_problems(parts, table, exposed, unit, coalition, _is_gaussian(spec))


def _is_gaussian(spec: Json) -> bool:
    mechanism = spec["privacy"].get("mechanism")
    return not mechanism or str(mechanism.get("law", "other")) == "gaussian"


def _place(release: Json) -> int:
    """Equal for releases of one name, vector and sensitivity."""
    own = number(release["own_sensitivity"])
    return hash((release["name"], release["vector"], own, number(release["propagated_sensitivity"])))


def _noised_first(facts: Facts, unit: int, steps: Sequence[int]) -> bool:
    """Whether the unit adds noise to every message itself, before it rounds any."""
    if not isinstance(facts, TreeFacts):
        return False  # in groups bits go with masters who add the noise
    return all(facts.variance(step)[facts.device_class(unit)] > 0 for step in steps)


def _part_problems(
    release: Json, most: float, draw: Draw, parts: Sequence[Json], table: Sequence[Json],
    shares: tuple[tuple[float, ...], tuple[float, ...]], all_steps: int, answers: tuple[int, float] | None,
) -> Iterator[str]:  # fmt: skip
    """How the draws of records behind one release are claimed to move it less than they may.

    Where gradients of examples are clipped, ``answers`` says how many a step has, and how likely more.
    """
    where = release["name"]
    moved = number(release["propagated_sensitivity"]) > 0 or whole(release.get("linking", 0)) > 0
    for part in parts:
        alike = [table[whole(i)] for i in part["releases"] if _place(table[whole(i)]) == _place(release)]
        if not alike:
            continue
        variance = max(number(one["variance"]) for one in alike)
        mine = tuple(number(m) for m in part.get("moves", ()))
        others = tuple(number(m) for m in part.get("replaced_moves", ())) or mine
        together = len(part["releases"]) > 1
        largest = 1.0
        if answers is not None and (not mine or together or len(mine) > 1):
            largest = float(answers[0] or 1)
            if variance > 0 and (not answers[0] or moved):
                yield f"record: {where}: clipped examples that answer each other have no bound"
            steps = all_steps if together else len(shares[0])
            if variance > 0 and number(part.get("beyond", 0.0)) < answers[1] * steps * (1 - ROUNDING):
                stated = part.get("beyond", 0.0)
                yield f"record: {where}: beyond: stated {stated}; {steps} steps may add up more"
        if not mine and variance > 0 and number(part.get("largest_move", 1.0)) < largest:
            yield f"record: {where}: moves by {part.get('largest_move', 1.0)}; may by {largest}"
        if variance > most * (1 + ROUNDING):
            yield f"record: {where}: variance {variance:.9g} counted; the facts leave {most:.9g}"
        if mine and moved:
            yield f"record: {where}: others move it, so the record counts as drawn"
        if mine and together:
            if mine != (largest,) * all_steps or len(part["releases"]) != len(draw.releases):
                yield f"record: {where}: releases on one draw move by all of their bound, at any step"
        elif mine and (mine, others) != shares:
            yield f"record: {where}: the shares that move are not those of the facts"
        participation = number(part.get("participation", 1.0))
        alone = len(draw.releases) == 1 and draw.kind == "poisson" and draw.amplifies
        alone = alone and not draw.divides_by_drawn and answers is None
        if participation < (draw.rate * (1 - ROUNDING) if alone else 1.0):
            least = draw.rate if alone else 1.0
            yield f"record: {where}: participation: stated {participation}; the facts give {least}"


def _noised_step_problems(
    parts: Sequence[Json], table: Sequence[Json], multiplier: float, facts: Facts, unit: int
) -> Iterator[str]:
    """Noise at local steps: the device's own, in every one of its steps."""
    ledger = facts.ledger
    leaf = facts.leaf(unit) if isinstance(facts, TreeFacts) else 0
    steps = [len(one) for one in _moved_shares(ledger["batches"], leaf)[0]]
    if isinstance(facts, GroupFacts):
        groups = max(int(inside[unit].sum()) for inside in facts.inside)
        count = groups * -(-whole(ledger["rounds"]) // (facts.every if facts.intervals else 1)) * steps[0]
    else:
        count = whole(ledger["rounds"]) * sum(steps)
    one = len(parts) == 1 and len(parts[0]["releases"]) == 1
    release = table[parts[0]["releases"][0]] if one else {}
    fits = (
        one
        and whole(parts[0]["count"]) == count
        and number(release["variance"]) <= multiplier**2 * (1 + ROUNDING)
    )
    fits = fits and (number(release["own_sensitivity"]), tuple(parts[0]["moves"])) == (1.0, (0.5,))
    fits = fits and number(parts[0].get("participation", 1.0)) == 1
    if not fits or tuple(parts[0].get("replaced_moves", ())) != (1.0,):
        yield f"record: noise at local steps: must be {count} steps of multiplier {multiplier}"


def _unknown_start_problems(
    parts: Sequence[Json], facts: GroupFacts, exposed: Sequence[int], unit: int, table: Sequence[Json]
) -> Iterator[str]:
    """Where the unit starts from models of which one is hidden, its record counts as drawn."""
    _, unknown = facts.charged(unit, exposed)
    for (group, _), least in unknown.items():
        sure = sum(
            whole(part["count"])
            for part in parts
            for i in part["releases"]
            if table[i]["name"].split(",")[0] == f"group {group}" and not part.get("moves")
        )
        if sure < least:
            yield f"record: group {group}: it counts as drawn in {sure} releases; must in {least}"


# --- 6. The folder ------------------------------------------------------------------------------------------


class NoRunError(Exception):
    """The folder holds no run."""


class DamagedFileError(Exception):
    """A file of the run cannot be read."""


def _read(folder: Path, name: str) -> Any:
    """The mapping in a JSON or YAML file."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        path = folder / name
        if path.exists() and not path.is_file():
            raise DamagedFileError(f"{name}: is not a file")
        if path.stat().st_size > MOST_BYTES:
            raise DamagedFileError(f"{name}: is larger than {MOST_BYTES:,} bytes")
        content = path.read_bytes()
        if name.endswith(".json"):
            found = json.loads(content, object_pairs_hook=_once, parse_constant=_no_constant)
        elif any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(content, loader)):
            raise DamagedFileError(f"{name}: has aliases, which could stand for any amount of text")
        else:
            _require_once(yaml.compose(content, loader))
            found = yaml.load(content, loader)
    except OSError as error:
        raise DamagedFileError(f"{name}: cannot be read: {error.strerror}") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise DamagedFileError(f"{name}: cannot be parsed: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(found, dict):
        raise DamagedFileError(f"{name}: must hold a mapping")
    return found


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping of a JSON file; a key that is there twice would mean another thing to another reader."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"the key {_short(twice)} is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _require_once(node: Any) -> None:
    """`_once` for YAML."""
    left = [node]
    while left:
        node = left.pop()
        if isinstance(node, yaml.MappingNode):
            _once([(str(key.value), None) for key, _ in node.value])
            left += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            left += node.value


def _hash(value: Any, *, ascii_only: bool = True) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=ascii_only, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def hash_problems(folder: Path, manifest: Json, spec: Json, documents: Mapping[str, Json]) -> Iterator[str]:
    """Files that are not those that the manifest lists, or that name another spec."""
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    if _hash(body) != manifest.get("sha256"):
        yield "manifest.json: has another SHA-256 than it says of itself"
    files = manifest.get("files", {})
    for name in ("spec.yaml", *documents):
        if name not in files:
            yield f"manifest.json: does not list {name}"
    for name, record in sorted(files.items()):
        path = folder / name
        if not path.is_file():
            yield f"{name}: is missing"
        elif hashlib.sha256(path.read_bytes()).hexdigest() != record["sha256"]:
            yield f"{name}: has another SHA-256 than manifest.json lists"
    said = {key: value for key, value in spec.items() if key not in ("versions", "hashes")}
    said["hashes"] = {name: value for name, value in (spec.get("hashes") or {}).items() if name != "spec"}
    found = _hash(said)
    for name, hashes in {
        "spec.yaml": spec.get("hashes"),
        **{n: d.get("hashes") for n, d in documents.items()},
    }.items():
        if (hashes or {}).get("spec") != found:
            yield f"{name}: hashes.spec: it is not the SHA-256 of spec.yaml"
        if (hashes or {}) != (spec.get("hashes") or {}):
            yield f"{name}: hashes: they are not those in spec.yaml"
    if manifest.get("spec") != found:
        yield "manifest.json: spec: it is not the SHA-256 of spec.yaml"


def check_run(folder: Path) -> Outcome:
    """Check everything in a run folder.

    Raises:
        NoRunError: there is no run in the folder.
    """
    if not (folder / "spec.yaml").is_file():
        raise NoRunError(f"{folder}: is no run folder: it has no spec.yaml")
    outcome = Outcome()
    try:
        names = ("manifest.json", "spec.yaml", "privacy.json", "ledger.json")
        manifest, spec, privacy, ledger = (_read(folder, name) for name in names)
    except DamagedFileError as error:
        outcome.problems.append(str(error))
        return outcome
    outcome.problems += hash_problems(
        folder, manifest, spec, {"privacy.json": privacy, "ledger.json": ledger}
    )
    try:
        with np.errstate(all="ignore"):  # figures that do not fit are mismatches, not warnings
            outcome.problems += _document_problems(spec, privacy, ledger, outcome)
    except BROKEN as error:
        known = isinstance(error, UnknownKindError)
        outcome.problems.append(
            str(error) if known else f"ledger.json: cannot be checked: {type(error).__name__}: {error}"
        )
    outcome.unchecked = _unchecked(spec, privacy, ledger)
    if outcome.gaps_beyond:
        rows = f"in {outcome.gaps_beyond} of {outcome.rows} rows"
        outcome.unchecked.append(f"{rows}, whether no exposed set is cheaper than certified and gap say")
    return outcome


def _document_problems(spec: Json, privacy: Json, ledger: Json, outcome: Outcome) -> Iterator[str]:
    if ledger.get("kind") not in FACTS:
        raise UnknownKindError(f"ledger.json: this checker has no rule for the kind {ledger.get('kind')!r}")
    if "certificates" not in ledger:
        yield "ledger.json: it has no certificates; the run was made by a version before there were any"
        return
    certificates = ledger["certificates"]
    if certificates["format"] != FORMAT:
        raise UnknownKindError(
            f"ledger.json: this checker has no rule for certificates of format {certificates['format']}"
        )
    yield from spec_problems(spec, ledger)
    if not close(number(privacy["delta"]), number(spec["privacy"]["delta"])):
        yield f"privacy.json: delta: {privacy['delta']}; spec.yaml gives {spec['privacy']['delta']}"
    rows, listed = privacy["guarantees"], certificates["rows"]
    if len(rows) != len(listed):
        yield f"privacy.json: it has {len(rows)} guarantees; ledger.json has {len(listed)} certificates"
    facts = FACTS[ledger["kind"]](ledger)
    raw = privacy.get("raw_to_trusted_edge")
    if raw is not None and isinstance(facts, GroupFacts):
        of = {"devices": facts.raw_workers, "of": facts.workers}
        if raw != of:
            yield f"privacy.json: raw_to_trusted_edge: {raw}; the facts give {of}"
    for kind in sorted({row["unit"].partition(":")[0] for row in rows}):
        about = [row for row in rows if row["unit"].startswith(f"{kind}:")]
        for (unit, observer), times in Counter((row["unit"], row["observer"]) for row in about).items():
            if times > 1:  # a row that stands for one pair is charged for that pair alone
                yield f"privacy.json: {unit} towards {observer}: {times} rows"
        stood_for = sum(whole(row["stands_for"]) for row in about)
        if stood_for != facts.pairs:
            yield f"privacy.json: rows about a {kind} stand for {stood_for} pairs; there are {facts.pairs}"
        else:
            relation = spec["privacy"].get("neighbours", "zero-out")
            of_unit = "replace" if kind == "record" else relation
            yield from pair_problems(about, facts, of_unit, _sites(spec["topology"], facts))
    units = {"device", "record"} if spec["privacy"]["unit"] == "both" else {spec["privacy"]["unit"]}
    if {row["unit"].partition(":")[0] for row in rows} != units:
        yield f"privacy.json: rows are not about a {' and a '.join(sorted(units))}, as spec.yaml asks"
    for place, (row, cert) in enumerate(zip(rows, listed, strict=False)):
        outcome.rows += 1
        outcome.finite += sum(math.isfinite(number(b["epsilon"])) for b in row["bounds"].values())
        where = f"guarantees[{place}] ({row['unit']} towards {row['observer']})"
        if not close(number(cert["delta"]), number(privacy["delta"])):
            yield f"{where}: δ: the certificate says {cert['delta']}; privacy.json {privacy['delta']}"
        try:
            yield from (
                f"{where}: {problem}"
                for problem in row_problems(row, cert, spec, facts, certificates["releases"])
            )
            outcome.gaps_beyond += not _gap_is_checked(row, facts)
        except UnknownKindError as error:
            yield f"{where}: {error}"
        except BROKEN as error:
            yield f"{where}: cannot be checked: {type(error).__name__}: {error}"


def _unchecked(spec: Json, privacy: Json, ledger: Json) -> list[str]:
    """What the folder states that no certificate covers."""
    found = []
    if privacy.get("claims"):
        found.append("claims of papers and the figures beside them")
    if privacy.get("coalitions"):
        found.append("coalitions of clients")
    if any("ex_post" in row for row in privacy["guarantees"]):
        found.append("what rows amount to after the run (ex_post)")
    if spec.get("control"):
        found.append("whether the run kept the budget of its privacy filter")
    if spec["topology"].get("moves"):
        found.append("whether moves that were drawn follow from the seed; each is written in spec.yaml")
    if any(step.get("channel_noise_std") for step in ledger.get("steps", ())):
        found.append(
            "the noise of the channel, whether it tells who was drawn, and how many devices are sure to be "
            "heard: believed; they follow from the radio and not from one figure of spec.yaml"
        )
    if any("epsilon_range" in row for row in privacy["guarantees"]):
        found.append("the smallest ε of the units of a row (epsilon_range); the largest is the row's own")
    return found + _believed(spec, ledger)


def _believed(spec: Json, ledger: Json) -> list[str]:
    """Facts of ``ledger.json`` that spec.yaml does not determine, by name."""
    capped = (spec["training"].get("weights") or {}).get("kind", "uniform") != "uniform"
    drawn = "batches" in ledger or any("batches" in era for era in ledger.get("eras", ()))
    if not capped and not drawn:
        return []
    try:
        sizes, unknown = examples_held(spec)
    except BROKEN:
        return []  # a mismatch has been named
    if sizes is not None:
        return []
    what = f"how many records a device has follows from {unknown}, which spec.yaml does not spell out"
    found = [f"record rates of all devices: believed; {what}"] if drawn else []
    return found + ([f"weights of all devices: believed; {what}"] if capped else [])


def main(arguments: Sequence[str]) -> int:
    """Check the run folder that is named; returns the exit status."""
    if len(arguments) != 1:
        print("usage: python checker.py RUN", file=sys.stderr)
        return 2
    try:
        outcome = check_run(Path(arguments[0]))
    except NoRunError as error:
        print(error, file=sys.stderr)
        return 2
    for problem in outcome.problems:
        print(problem)
    print(
        f"{outcome.rows} rows checked, {outcome.finite} finite bounds recomputed, "
        f"{len(outcome.problems)} mismatches"
    )
    for what in outcome.unchecked:
        print(f"not checked: {what}")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
