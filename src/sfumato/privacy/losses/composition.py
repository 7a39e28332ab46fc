"""Privacy losses on a grid: their distributions, from hockey-stick profiles, and how these compose.

*Distributions.* The profile of a pair of worlds, D(ε) for every ε, is convex in e^ε and falls. Chords
between the points of a grid therefore lie above it. The distribution of losses whose profile these chords
are dominates the pair, and is the least on this grid that does ("connect the dots", Doroshenko et al. 2022):
with ε_i the points, h the interval and f_i = D(ε_i) - D(ε_(i+1)), a loss of ε_i has the probability f_(i-1)
/ (1 - e^(-h)) - f_i / (e^h - 1), an infinite one D at the last point.

A loss of -l of the first world against the second is one of l the other way round, and e^(-l) times as
likely. So losses below 0 follow from the profile of the other direction, where differences of small numbers
are taken instead of differences of numbers near 1. A loss of 0 has what is left.

*Composition* is one Fourier transform of tilted distributions. Losses of independent releases add up, so
their distributions are convolved. A transform of the probabilities p themselves rounds by about 1e-16 of 1,
which is not small beside a small δ. Every p at a loss l is therefore replaced by q = p e^(θl) / M(θ), with
M(θ) = Σ p e^(θl). Products of the factors are factors of sums: what is composed of all q is p e^(θl) / M
again, with M the product of all moments and p of the whole composition. A mass x of q at losses of at least
ε stands for at most M e^(−θε) x of p. As (1 − e^(−x)) e^(−θx) is at most c = θ^θ / (1 + θ)^(1 + θ), δ(ε) is
at most c M(θ) e^(−θε). Where θ makes this bound smallest, M e^(−θε) x is not much more than δ x, so what the
transform rounds, and what lies outside of the window that is kept, is small beside δ however small δ is.

Both are bounded and charged. *The window* leaves out at most e^−46 of q on either side, by Chernoff's bound
with losses moved outwards; what lies outside of it is wrapped into it by the transform, which only adds to
δ, and is charged once more, as M e^(−θε) 2e^−46. *Rounding*: with u the machine epsilon, a transform of
size N has errors with a norm of at most 2 u log2(N) times that of its input, in every pass a few u; a power
adds its exponent times u to an entry, and as many times the error of the entry itself. By Parseval's
identity the composed entries then have errors with a norm of at most 4 u (log2 N + Σ count (1 + |q_one|
log2 N)) |q|, and by Cauchy's inequality errors that add up to at most √N times that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import TypeAlias

import numpy as np

from sfumato.privacy.losses.gaussian import Array


@dataclass(frozen=True, eq=False)
class GridLosses:
    """Distribution of the losses of one release.

    Attributes:
        first: the first point of the grid, in intervals.
        masses: probabilities from there on.
        infinite: probability of an infinite loss.
    """

    first: int
    masses: Array
    infinite: float


_NEGLIGIBLE = 1e-25
PairLosses: TypeAlias = tuple[GridLosses, GridLosses]
"""Of the world with the unit against the other, and the other way round; one object where they are alike."""


def losses_from_profiles(right: Array, mirrored: Array, interval: float) -> GridLosses:
    """The least distribution of losses on a grid whose profile is nowhere below the given one.

    A profile is the hockey-stick divergence as a function of ε; ε takes the values 0, h, 2h, … of a grid with
    interval h.

    Args:
        right: the profile of the first world against the second, ``[points]``, two points or more.
        mirrored: the profile of the second world against the first, the same; lengths may differ.
        interval: h, in nats.
    """
    right, mirrored = _without_tail(right), _without_tail(mirrored)
    above, infinite = _masses_above_zero(right, interval), max(0.0, float(right[-1]))
    below = _masses_above_zero(mirrored, interval)
    below = (below * np.exp(-interval * np.arange(1, len(below) + 1)))[::-1]
    rest = max(0.0, 1.0 - infinite - float(above.sum()) - float(below.sum()))
    return GridLosses(-len(below), np.concatenate([below, [rest], above]), infinite)


def _masses_above_zero(profile: Array, interval: float) -> Array:
    """Probabilities ``[points - 1]`` of the losses of 1, 2, … intervals, from the profile at 0, 1, …
    intervals.

    Args:
        profile: hockey-stick divergence at these points, ``[points]``, two or more.
        interval: of the grid, in nats.
    """
    falls = -np.diff(np.minimum.accumulate(np.clip(profile, 0.0, 1.0)))
    masses: Array = falls / -math.expm1(-interval)
    masses[:-1] -= falls[1:] / math.expm1(interval)
    return np.maximum(masses, 0.0)  # convex up to rounding


def _without_tail(profile: Array) -> Array:
    """``profile`` up to its first point of at most 1e-25; what lies beyond is charged as no protection."""
    return profile[: max(2, np.count_nonzero(profile > _NEGLIGIBLE) + 1)]


_EXACT = 64  # points of a grid on either side of 0 that are stretches of their own in bounds of moments
_LOG_OUTSIDE = -46.0  # logarithm of the probability of what is left out on either side of the window
_LARGE = 700.0  # e to this power is a float
_UNIT = float(np.finfo(np.float64).eps)
_POINTS_AT_ONCE = 1 << 13  # of a composition, from the largest loss on, as far as they are needed
_SPAN = 300.0  # nats that these lie apart at most: e to that power is a float, and so is its inverse

_Parts: TypeAlias = Sequence[tuple[GridLosses, int]]


@cache
def _powers(interval: float) -> Array:
    """Candidates for the tilt θ: five a decade, from 1e-3 to 1e6, or to 100 over a finer grid's interval."""
    return np.asarray(10.0 ** (np.arange(46 + max(0, math.ceil(-5 * math.log10(interval / 1e-4)))) / 5 - 3))


@dataclass(frozen=True, eq=False)
class _Tilted:
    """The composition as one tilt has it.

    Attributes:
        losses: points of the grid, ascending.
        tilted: masses q at these points.
        scale: ln M − θε for ε = 0: logarithm of the most that a mass 1 of q can stand for.
        tilt: θ.
        missing: mass of q that rounding and the window may have taken.
    """

    losses: Array
    tilted: Array
    scale: float
    tilt: float
    missing: float

    def masses(self, some: slice) -> Array:
        """Probabilities p, at most 1, of the losses at the points ``some``, with the tilt taken back."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.tilted[some]) + self.scale - self.tilt * self.losses[some]
        return np.asarray(np.exp(np.minimum(logs, 0.0)))

    def delta(self, epsilon: float) -> float:
        """δ at ``epsilon`` (nats) of the masses that are kept, Σ_(l > ε) p (1 − e^(ε − l))."""
        above = slice(int(np.searchsorted(self.losses, epsilon, side="right")), None)
        return float(self.masses(above) @ -np.expm1(epsilon - self.losses[above]))

    def charged(self, epsilon: float) -> float:
        """Upper bound on how much rounding and the window may have lowered δ at ``epsilon``, perhaps ∞."""
        log_scale = self.scale - self.tilt * epsilon
        return self.missing * math.exp(log_scale) if log_scale < _LARGE else math.inf

    def epsilon(self, delta: float) -> float:
        """The least ε >= 0 at which `delta` and `charged` together are at most ``delta`` > 0."""
        sums = self._sums_from_above(delta)
        least = sums.epsilon(delta)
        if self.charged(least) > delta / 2:  # it takes at most half of δ from here on
            least = (self.scale + math.log(self.missing) - math.log(delta / 2)) / self.tilt
        return max(least, sums.epsilon(delta - self.charged(least)))

    def _sums_from_above(self, delta: float) -> _SumsFromAbove:
        """Sum from the largest loss down, to where δ exceeds ``delta`` or to the last point above 0.

        ``delta``: the largest δ that the sums will be asked about; of half of it at least they can be asked.
        """
        stop, first = len(self.losses), int(np.searchsorted(self.losses, 0.0, side="right"))
        mass, weighed, after = sums = np.empty((3, max(0, stop - first)))
        done, last = 0, (0.0, -math.inf, 0.0)
        step = float(self.losses[1] - self.losses[0]) if stop > 1 else _SPAN
        many = max(1, min(_POINTS_AT_ONCE, int(_SPAN / step)))
        while done < len(mass) and not last[-1] > delta:
            some = slice(max(first, stop - done - many), stop - done)
            losses, masses = self.losses[some][::-1], self.masses(some)[::-1]
            least = float(losses[-1])  # sums of p e^(−l) are in units of e^(−least)
            weights = masses * np.exp(least - losses)
            up_to = np.add.accumulate(np.append(last[0], masses))
            weighing = np.add.accumulate(np.append(math.exp(last[1] + least), weights))
            here = slice(done, done + len(losses))
            with np.errstate(divide="ignore"):
                mass[here], weighed[here] = up_to[1:], np.log(weighing[1:]) - least
            # δ is no more than all mass above: most points need no closer look. What is asked for is
            # ``delta`` less what is charged, at least half of it: a quarter is below it for certain.
            after[here] = 0.0
            if up_to[-1] > delta / 4:
                after[here] = up_to[:-1] - weighing[:-1] * np.exp(losses - least)
            done = here.stop
            last = tuple(sums[:, done - 1].tolist())
        return _SumsFromAbove(*sums[:, :done])


@dataclass(frozen=True, eq=False)
class _SumsFromAbove:
    """Sums over the points at and above each of some points, the largest first.

    Attributes:
        mass: Σ p.
        weighed: ln Σ p e^(−l).
        after: δ at the point itself, Σ p (1 − e^(ε − l)) over the points above it; 0 where all mass above is
            within the δ that is asked for.
    """

    mass: Array
    weighed: Array
    after: Array

    def epsilon(self, delta: float) -> float:
        """The least ε >= 0, in nats, with δ at most ``delta``; 0 if every ε has that.

        At the last of the points δ must exceed ``delta``, or that point must be the one next to 0.
        """
        if not len(self.after):
            return 0.0
        if not self.after[-1] > delta and self.mass[-1] - math.exp(self.weighed[-1]) <= delta:
            return 0.0
        at = int(np.flatnonzero(self.after <= delta)[-1])  # ε lies between this point and the next one
        return float(math.log(self.mass[at] - delta) - self.weighed[at])


class LossComposition:
    """One direction of a composition: δ as a function of ε and ε as one of δ, both upper bounds.

    Args:
        parts: the losses of releases, and how often there are such releases.
        interval: of the grid of all of them, in nats.
    """

    def __init__(self, parts: _Parts, interval: float) -> None:
        """Keep the parts; nothing is composed before a δ or an ε is asked for.

        Args:
            parts: pairs of the losses of one release and the number of such releases; none: nothing is
                revealed.
            interval: of the grid of all of them, in nats.
        """
        self._parts, self._interval = parts, interval
        self._at = lru_cache(maxsize=4)(self._composed)

    def delta(self, epsilon: float) -> float:
        """An upper bound on δ, in [0, 1], at ``epsilon`` >= 0."""
        if not self._parts:
            return 0.0
        found = self._at(int(np.argmin(self._log_bounds - _powers(self._interval) * epsilon)))
        return min(1.0, found.delta(epsilon) + self._infinite + found.charged(epsilon))

    def is_within(self, epsilon: float, delta: float) -> bool:
        """Whether an upper bound on δ at ``epsilon`` is at most ``delta``; quick where moments show it.

        True at ``epsilon`` = ∞.
        """
        left = delta - self._infinite
        if not self._parts or epsilon == math.inf:
            return True
        if left <= 0:
            return False
        least = float((self._log_bounds - _powers(self._interval) * epsilon).min())
        return least <= math.log(left) or self.delta(epsilon) <= delta

    def epsilon(self, delta: float) -> float:
        """The least ε >= 0 at ``delta``, rounded up; ∞ where an infinite loss is likelier than ``delta``."""
        left = delta - self._infinite
        if not self._parts or left <= 0:
            return math.inf if self._parts else 0.0
        found = self._at(int(np.argmin((self._log_bounds - math.log(left)) / _powers(self._interval))))
        return found.epsilon(left)

    @cached_property
    def _infinite(self) -> float:
        """Probability that at least one release has an infinite loss."""
        logs = (
            count * math.log1p(-part.infinite) if part.infinite < 1 else -math.inf
            for part, count in self._parts
        )
        return -math.expm1(math.fsum(logs))

    @cached_property
    def _log_bounds(self) -> Array:
        """Upper bounds of ln δ + θε at every θ: (1 − e^(−x)) e^(−θx) is at most θ^θ / (1 + θ)^(1 + θ)."""
        powers, interval = _powers(self._interval), self._interval
        largest = powers * np.log(powers) - (1 + powers) * np.log1p(powers)
        moments = (n * _log_moments_of_losses(part, interval)[0] for part, n in self._parts)
        return sum(moments, largest)

    def _composed(self, number: int) -> _Tilted:
        """Compose all parts, tilted by the candidate θ with that ``number`` among those of `_powers`."""
        from scipy import fft

        interval = self._interval
        tilt = float(_powers(interval)[number])
        parts, scale = [], 0.0
        for part, count in self._parts:
            tilted, log_moment = _tilted_losses(part, tilt, interval)
            parts.append((tilted, count))
            scale += count * log_moment
        low, high = _window_of_losses(parts, interval)
        start = math.floor(low / interval)
        size = int(fft.next_fast_len(math.ceil(high / interval) - start + 2, real=True))
        product, shift = np.ones(size // 2 + 1, dtype=np.complex128), 0
        errors = math.log2(size)
        for part, count in parts:
            folded = np.bincount(np.arange(len(part.masses)) % size, part.masses, size)
            product *= fft.rfft(folded) ** count
            shift += part.first * count
            errors += count * (1 + float(np.linalg.norm(part.masses)) * math.log2(size))
        found = np.maximum(np.roll(fft.irfft(product, size), shift - start), 0.0)
        rounding = 4 * _UNIT * errors * math.sqrt(size) * float(np.linalg.norm(found))
        losses: Array = (start + np.arange(size, dtype=np.float64)) * interval
        return _Tilted(losses, found, scale, tilt, rounding + 2 * math.exp(_LOG_OUTSIDE))


@lru_cache(maxsize=32)  # compositions of ever more rounds share their releases
def _tilted_losses(part: GridLosses, tilt: float, interval: float) -> tuple[GridLosses, float]:
    """``part`` with each probability p replaced by q = p e^(θl) / M(θ), θ = ``tilt``; and ln M(θ)."""
    points = part.first + np.arange(len(part.masses), dtype=np.float64)
    with np.errstate(divide="ignore"):
        logs = np.log(part.masses) + tilt * interval * points
    top = float(logs.max())
    weights = np.exp(logs - top)
    total = float(weights.sum())
    return GridLosses(part.first, weights / total, part.infinite), top + math.log(total)


def _stretches_of_grid(part: GridLosses, interval: float) -> tuple[Array, Array, Array]:
    """Cut the grid of ``part`` into S stretches; those without mass are left out.

    They are as long as 1 / 64 of the distance from 0, so that moments are close to their bounds however large
    the losses of one release are beside those of most.

    Args:
        part: the losses of one release.
        interval: of the grid, in nats.

    Returns:
        Logarithms of the stretches' masses, their first losses and their last losses in nats, each ``[S]``.
    """
    size = len(part.masses)
    reach = max(abs(part.first), abs(part.first + size), _EXACT + 1)
    wide = np.geomspace(_EXACT, reach, math.ceil(_EXACT * math.log(reach / _EXACT)) + 2).astype(np.int64)
    offsets = np.concatenate([-wide[::-1], np.arange(-_EXACT, _EXACT), wide]) - part.first
    starts = np.unique(np.append(0, offsets[(offsets > 0) & (offsets < size)]))
    ends = np.append(starts[1:], size) - 1
    weights: Array = np.add.reduceat(part.masses, starts)
    some = weights > 0
    least, most = (part.first + np.stack([starts[some], ends[some]]).astype(np.float64)) * interval
    return np.log(weights[some]), least, most


@lru_cache(maxsize=64)
def _log_moments_of_losses(part: GridLosses, interval: float) -> tuple[Array, Array]:
    """Upper bounds of ln Σ p e^(θl) and of ln Σ p e^(−θl), each an array over all candidates θ."""
    stretches, powers = _stretches_of_grid(part, interval), _powers(interval)
    return _log_moments(powers, *stretches, 1.0), _log_moments(powers, *stretches, -1.0)


def _log_moments(powers: Array, logs: Array, least: Array, most: Array, sign: float) -> Array:
    """Bound ln Σ p e^(± θl) from above for all θ of ``powers``, from the masses of stretches of losses.

    Args:
        powers: θ, ``[T]``.
        logs: logarithm of the mass of every stretch, ``[S]``.
        least: smallest loss of every stretch, in nats, ``[S]``.
        most: largest loss of every stretch, in nats, ``[S]``.
        sign: 1 or -1, of θl.

    Returns:
        The bounds, ``[T]``.
    """
    farthest = most if sign > 0 else least
    exponents = logs + np.outer(sign * powers, farthest)
    top = exponents.max(axis=1)
    found: Array = top + np.log(np.exp(exponents - top[:, None]).sum(axis=1))
    return found


def _window_of_losses(parts: _Parts, interval: float) -> tuple[float, float]:
    """Two losses, in nats: at most e^−46 of the composition lies below the first or above the second.

    Args:
        parts: pairs of the losses of one release, tilted, and the number of such releases.
        interval: of the grid, in nats.
    """
    low = math.fsum(count * part.first * interval for part, count in parts)
    high = math.fsum(count * (part.first + len(part.masses) - 1) * interval for part, count in parts)
    powers = _powers(interval)
    above, below = np.zeros_like(powers), np.zeros_like(powers)
    for part, count in parts:
        up, down = _log_moments_of_losses(part, interval)
        above += count * up
        below += count * down
    high = min(high, float(((above - _LOG_OUTSIDE) / powers).min()))
    low = max(low, -float(((below - _LOG_OUTSIDE) / powers).min()))
    return low, max(high, low + interval)
