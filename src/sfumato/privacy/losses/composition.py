"""How privacy losses on a grid compose.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sfumato.privacy.losses.gaussian import Array
from sfumato.privacy.losses.grid_losses import GridLosses
from sfumato.privacy.losses.moments import Moments, moments_of

_LOG_OUTSIDE = -46.0  # logarithm of the probability of what is left out on either side of the window
_LIKELY_TILT = 17  # place among the candidates of θ = 2.5, near which most are best
_MOST_KEPT = 4  # tilts of a composition
_LARGE = 700.0  # e to this power is a float
_UNIT = float(np.finfo(np.float64).eps)
_POINTS_AT_ONCE = 1 << 11  # of a composition, from the largest loss on, as far as they are needed
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
    _known: list[_SumsFromAbove] = field(default_factory=list, init=False)

    def masses(self, some: slice) -> Array:
        """Probabilities p, at most 1, of the losses at the points ``some``, with the tilt taken back."""
        tilted, logs = self.tilted[some], self.scale - self.tilt * self.losses[some]
        if len(logs) and logs[0] > _LARGE:
            with np.errstate(divide="ignore"):
                return np.asarray(np.exp(np.minimum(np.log(tilted) + logs, 0.0)))
        return np.minimum(tilted * np.exp(logs), 1.0)

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
        least = self._least_epsilon(delta)
        if self.charged(least) > delta / 2:  # it takes at most half of δ from here on
            least = (self.scale + math.log(self.missing) - math.log(delta / 2)) / self.tilt
        return max(least, self._least_epsilon(delta - self.charged(least)))

    def _least_epsilon(self, delta: float) -> float:
        """The least ε >= 0, in nats, at which `delta` is at most ``delta``; 0 if every ε has that.

        Sums are taken from the largest loss down: block by block, and then point by point in the block in
        which δ first exceeds ``delta``, or, if none does, in the last one above 0.
        """
        above = sums = _SumsFromAbove(0.0, -math.inf)
        some = slice(0)
        for number, some in enumerate(self._blocks):
            above, sums = sums, self._sums_through(number, sums)
            if sums.delta(float(self.losses[some.start])) > delta:
                break
        if sums.delta(0.0) <= delta:
            return 0.0
        losses, masses = self.losses[some][::-1], self.masses(some)[::-1]
        least, weights = float(losses[-1]), masses * self._falling[: len(masses)][::-1]
        mass = np.add.accumulate(np.append(above.mass, masses))
        weighed = np.add.accumulate(np.append(math.exp(above.log_weighed + least), weights))
        after = mass[:-1] - weighed[:-1] * np.exp(losses - least)  # δ at every point of the block
        count = int(np.count_nonzero(after <= delta))  # ε lies below so many of them
        excess = max(mass[count] - delta, _UNIT * delta)  # sums by blocks and by points round differently
        return max(0.0, math.log(excess) + least - math.log(weighed[count]))

    def _sums_through(self, number: int, above: _SumsFromAbove) -> _SumsFromAbove:
        """The sums over the points of block ``number`` and of those ``above`` it; every result is kept."""
        if number == len(self._known):
            some = self._blocks[number]
            masses = self.masses(some)
            weighed = float(masses @ self._falling[: len(masses)])  # in units of e^(-l) of the first point
            more = math.log(weighed) - float(self.losses[some.start]) if weighed > 0 else -math.inf
            sums = _SumsFromAbove(
                above.mass + float(masses.sum()), float(np.logaddexp(above.log_weighed, more))
            )
            self._known.append(sums)
        return self._known[number]

    @cached_property
    def _blocks(self) -> list[slice]:
        """The points above 0, in blocks, the largest losses first."""
        first, stop = int(np.searchsorted(self.losses, 0.0, side="right")), len(self.losses)
        many = max(1, min(_POINTS_AT_ONCE, int(_SPAN / self._step)))
        return [slice(max(first, end - many), end) for end in range(stop, first, -many)]

    @cached_property
    def _falling(self) -> Array:
        """e^(-l) over that of the first point, at every point of a block."""
        longest = max(some.stop - some.start for some in self._blocks)
        return np.asarray(np.exp(-self._step * np.arange(longest)))

    @cached_property
    def _step(self) -> float:
        """Distance of the points; where there is one only, any."""
        count = len(self.losses) - 1
        return float(self.losses[-1] - self.losses[0]) / count if count else _SPAN


class _SumsFromAbove(NamedTuple):
    """Sums over all points from some point on up.

    Attributes:
        mass: Σ p.
        log_weighed: ln Σ p e^(−l).
    """

    mass: float
    log_weighed: float

    def delta(self, epsilon: float) -> float:
        """Σ p (1 − e^(ε − l)) over the points: δ, where ``epsilon`` is at most the least of them."""
        return self.mass - math.exp(self.log_weighed + epsilon)


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
        self._found: dict[int, _Tilted] = {}

    def delta(self, epsilon: float) -> float:
        """An upper bound on δ, in [0, 1], at ``epsilon`` >= 0."""
        if not self._parts:
            return 0.0
        found = self._at(self._best_tilt_at(epsilon))
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
        number = self._best_tilt_at(epsilon)
        least = self._log_bound(number) - float(_powers(self._interval)[number]) * epsilon
        return least <= math.log(left) or self.delta(epsilon) <= delta

    def epsilon(self, delta: float) -> float:
        """The least ε >= 0 at ``delta``, rounded up; ∞ where an infinite loss is likelier than ``delta``."""
        left = delta - self._infinite
        if not self._parts or left <= 0:
            return math.inf if self._parts else 0.0
        powers, log_delta = _powers(self._interval).tolist(), math.log(left)
        best = _place_of_least(lambda at: (self._log_bound(at) - log_delta) / powers[at], len(powers))
        return self._at(best).epsilon(left)

    def _best_tilt_at(self, epsilon: float) -> int:
        """The number of the candidate θ with the least bound of δ at ``epsilon``."""
        powers = _powers(self._interval).tolist()
        return _place_of_least(lambda at: self._log_bound(at) - powers[at] * epsilon, len(powers))

    @cached_property
    def _infinite(self) -> float:
        """Probability that at least one release has an infinite loss."""
        logs = (
            count * math.log1p(-part.infinite) if part.infinite < 1 else -math.inf
            for part, count in self._parts
        )
        return -math.expm1(math.fsum(logs))

    def _log_bound(self, number: int) -> float:
        """Upper bound of ln δ + θε at a candidate θ, as the module derives it.

        ``number``: of the candidate, in `_powers`.
        """
        power = float(_powers(self._interval)[number])
        largest = power * math.log(power) - (1 + power) * math.log1p(power)
        return sum((count * moments.log_of(power) for moments, count in self._moments), largest)

    @cached_property
    def _moments(self) -> list[tuple[Moments, int]]:
        """The moments of every part, with the number of such releases: they may be more than are kept."""
        return [(moments_of(part, self._interval), count) for part, count in self._parts]

    def _at(self, number: int) -> _Tilted:
        """The composition tilted by the candidate θ with that ``number``; the last four are kept.

        No cache of `functools` keeps them: it would refer to this object, whose large arrays would then stay
        until cycles are looked for.
        """
        if number not in self._found:
            if len(self._found) == _MOST_KEPT:
                del self._found[next(iter(self._found))]
            self._found[number] = self._composed(number)
        return self._found[number]

    def _composed(self, number: int) -> _Tilted:
        """Compose all parts, tilted by the candidate θ with that ``number`` among those of `_powers`.

        The parts' distributions are convolved by fast Fourier transforms, on a grid long enough that at most
        e^−46 of the tilted composition lies outside; that and the rounding errors are charged.
        """
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
        errors = math.log2(size)  # in units of rounding, of the last transform
        for part, count in parts:
            product *= _power(fft.rfft(_wrapped(part.masses, size)), count)
            shift += part.first * count
            errors += count * (1 + float(np.linalg.norm(part.masses)) * math.log2(size))
        found = np.maximum(np.roll(fft.irfft(product, size), shift - start), 0.0)
        rounding = 4 * _UNIT * errors * math.sqrt(size) * float(np.linalg.norm(found))
        losses: Array = (start + np.arange(size, dtype=np.float64)) * interval
        return _Tilted(losses, found, scale, tilt, rounding + 2 * math.exp(_LOG_OUTSIDE))


def _power(values: npt.NDArray[np.complex128], count: int) -> npt.NDArray[np.complex128]:
    """``values`` to the power ``count``, at least 1, by squaring, elementwise.

    Of ``count`` factors there are ``count`` - 1 products, each off by at most √5 halves of the machine
    epsilon (Brent, Percival and Zimmermann 2007).
    """
    found, square = None, values
    while True:
        if count % 2:
            found = square if found is None else found * square
        count //= 2
        if not count:
            assert found is not None
            return found
        square = square * square


def _wrapped(masses: Array, size: int) -> Array:
    """``masses`` on a circle of ``size`` points: what lies a whole circle apart is added up."""
    whole = np.append(masses, np.zeros(-len(masses) % size))
    return np.asarray(whole.reshape(-1, size).sum(axis=0))


@lru_cache(maxsize=32)  # compositions of ever more rounds share their releases
def _tilted_losses(part: GridLosses, tilt: float, interval: float) -> tuple[GridLosses, float]:
    """``part`` with each probability p replaced by q = p e^(θl) / M(θ), θ = ``tilt``; and ln M(θ).

    Args:
        part: the losses of one release.
        tilt: θ.
        interval: of the grid, in nats.
    """
    step = tilt * interval
    logs = step * np.arange(1 - len(part.masses), 1, dtype=np.float64)
    top, weights = step * (part.first + len(part.masses) - 1), part.masses
    if logs[0] > -_LARGE / 2 and weights[-1] > 0:  # no weight is too small for a float
        weights = weights * np.exp(logs)
    else:
        with np.errstate(divide="ignore"):
            logs += np.log(weights)
        more = float(logs.max())
        top, weights = top + more, np.exp(logs - more)
    total = float(weights.sum())
    return GridLosses(part.first, weights / total, part.infinite), top + math.log(total)


def _place_of_least(figure: Callable[[int], float], count: int) -> int:
    """The place, from 0, of the least of ``count`` figures that fall up to it and rise after it.

    So do ln M(θ) − θε and (ln M(θ) + c) / θ over θ, as ln M is convex: where either is at most some level is
    an interval. Few of the figures are computed: steps from the likely place double until the least is known
    to lie between two places, whose distance is then halved.
    """
    figure = cache(figure)
    low, high, place, step = 0, count - 1, min(_LIKELY_TILT, count - 1), 1
    falls, rises = False, False
    while low < high:
        place = min(max(place, low), high - 1)
        if figure(place) <= figure(place + 1):
            high, rises = place, True
            place -= step
        else:
            low, falls = place + 1, True
            place += step
        step *= 2
        if falls and rises:
            place = (low + high) // 2
    return low


def _window_of_losses(parts: _Parts, interval: float) -> tuple[float, float]:
    """Two losses, in nats: at most e^−46 of the composition lies below the first or above the second.

    Args:
        parts: pairs of the losses of one release, tilted, and the number of such releases.
        interval: of the grid, in nats.
    """
    low = math.fsum(count * part.first * interval for part, count in parts)
    high = math.fsum(count * (part.first + len(part.masses) - 1) * interval for part, count in parts)
    moments = [(moments_of(part, interval), count) for part, count in parts]
    powers: list[float] = _powers(interval).tolist()

    def farthest(sign: float) -> float:
        """The least loss, times ``sign``, beyond which at most e^−46 lies by a moment."""

        def by_moment(at: int) -> float:
            log_moment = sum(count * one.log_of(sign * powers[at]) for one, count in moments)
            return (log_moment - _LOG_OUTSIDE) / powers[at]

        return by_moment(_place_of_least(by_moment, len(powers)))

    high, low = min(high, farthest(1.0)), max(low, -farthest(-1.0))
    return low, max(high, low + interval)
