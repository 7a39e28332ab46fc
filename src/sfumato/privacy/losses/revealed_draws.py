"""Composition when every draw is told: a finite mixture of Gaussian curves over the outcomes of the draws.

Telling the observer every draw can only help it, so this bounds every composition, and is exact where no draw
is hidden.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TypeAlias

import numpy as np

from sfumato.privacy.losses import gaussian
from sfumato.privacy.losses.gaussian import Array
from sfumato.privacy.sampling import (
    GaussianTerm,
    Method,
    is_visible_mixture,
    outcomes_told,
    squared_mu_of_term,
)

_MOST_ATOMS = 1 << 14
_ATOMS_ON_GRID = 1 << 12
_ROUGH_CELLS = 1 << 8
_NEGLIGIBLE = 1e-30
_TOLERANCE = 1e-12  # of ε, relative
_MANY_ATOMS = 512  # with more, ε is first found of fewer
_NEAR = 1e-8  # relative tolerance of that
_MOST_TANGENTS = 30  # steps, before the interval is halved


@dataclass(frozen=True, eq=False)
class RevealedDraws:
    """Mixture of Gaussian curves over what the draws turn out to be: δ(ε) = Σ_j p_j δ(ε; √squares_j) + lost.

    Attributes:
        squares: possible values of μ², ascending, of shape (atoms,).
        probabilities: of those values, of shape (atoms,); they and ``lost`` add up to 1.
        lost: probability of draws beyond the values kept (below 1e-20), charged as no protection.
    """

    squares: Array
    probabilities: Array
    lost: float
    method: Method = "gdp"

    @classmethod
    def of(cls, terms: Sequence[GaussianTerm], *, roughly: bool = False) -> RevealedDraws:
        """The mixture over all outcomes of the draws of ``terms``, for an observer that sees every draw.

        Without terms its only μ² is 0; with a term without noise, whatever its rate, it is ∞.

        Args:
            terms: what is composed.
            roughly: round values of μ² up to a grid of 256 cells at every sum of many: quick, and as δ grows
                with μ² no δ is too small.
        """
        add = partial(_sum_on_grid, cells=_ROUGH_CELLS) if roughly else _sum
        several = [term for term in terms if _has_outcomes(term)]
        terms = [term for term in terms if not _has_outcomes(term)]
        certain = math.fsum(term.count * squared_mu_of_term(term) for term in terms if term.rate == 1)
        if any(squared_mu_of_term(term) == math.inf for term in terms):
            certain = math.inf
        squares, probabilities, lost = np.array([certain]), np.ones(1), 0.0
        counts: defaultdict[tuple[float, float], int] = defaultdict(int)
        for term in terms:
            if term.rate < 1 and certain < math.inf:
                counts[squared_mu_of_term(term), term.rate] += term.count
        for (square, rate), count in sorted(counts.items()):
            times, weights, beyond = _binomial(count, rate)
            squares, probabilities, above = add(squares, probabilities, square * times, weights)
            lost += beyond + above
        for term in several if certain < math.inf else ():
            values, weights, beyond = _repeated(outcomes_told(term), term.count)
            squares, probabilities, above = _sum_on_grid(squares, probabilities, values, weights)
            lost += beyond + above
        some = probabilities > 0  # of a grid that values were rounded up to, many points may have nothing
        return cls(squares[some], probabilities[some], lost)

    def delta(self, epsilon: float) -> float:
        """The least δ in [0, 1] at ``epsilon``, with the probability that was left out counted as δ."""
        curves = gaussian.delta(epsilon=epsilon, mu=self._mus)
        return min(1.0, float(self.probabilities @ curves) + self.lost)

    @cached_property
    def _mus(self) -> Array:
        """The μ of each of ``squares``."""
        return np.sqrt(self.squares)

    def is_within(self, epsilon: float, delta: float) -> bool:
        """Whether δ at ``epsilon`` is at most ``delta``."""
        return self.delta(epsilon) <= delta

    def epsilon(self, delta: float) -> float:
        """The least ε ≥ 0 at ``delta``; ∞ where the probability that was left out is all of ``delta``.

        It is ∞, too, where one of `squares` is, however improbable that value is.
        """
        if self.lost >= delta or self.squares[-1] == math.inf:
            return math.inf
        if len(self.squares) == 1:
            return gaussian.epsilon(delta=delta - self.lost, mu=math.sqrt(self.squares[0]))
        return self._root(delta, _TOLERANCE)

    @cached_property
    def _with_fewer_atoms(self) -> RevealedDraws:
        """A mixture of about `_MANY_ATOMS` values, each the mean of neighbouring values of this one.

        Its ε is near that of this mixture, but no bound: it shows where to look for it.
        """
        starts = np.arange(0, len(self.squares), -(-len(self.squares) // _MANY_ATOMS))
        weights = np.add.reduceat(self.probabilities, starts)
        means = np.add.reduceat(self.probabilities * self.squares, starts) / weights
        return RevealedDraws(means, weights, self.lost)

    def _start(self, delta: float) -> float:
        """An ε near the least one with at most ``delta``: that of fewer atoms, or of the mean μ².

        For one μ it is the least ε with δ ≤ Φ(μ/2 − ε/μ).
        """
        from scipy import special

        if len(self.squares) > _MANY_ATOMS:
            return self._with_fewer_atoms._root(delta, _NEAR)
        mu = math.sqrt(self.probabilities @ self.squares / self.probabilities.sum())
        return max(0.0, mu * (mu / 2 - float(special.ndtri(delta))))

    def _root(self, delta: float, tolerance: float) -> float:
        """The least ε ≥ 0 with at most ``delta``; never too small.

        Newton's iteration on ln δ, which ends at an ε that was evaluated and has at most ``delta``. Where a
        tangent leads out of the interval that is known to hold the root, it is halved. ε = 0 is evaluated
        only if no larger ε has shown that its δ is above ``delta``.

        Args:
            delta: δ in (0, 1), above what is ``lost``.
            tolerance: relative distance from the root.
        """
        low, high, place, steps, is_positive = 0.0, math.inf, self._start(delta), 0, False
        while True:
            excess, fall = self._excess_and_fall(place, delta)
            low, high = (place, high) if excess > 0 else (low, place)
            is_positive |= excess > 0
            move = excess / fall if fall > 0 else math.nan
            ends = high < math.inf and (high - low <= tolerance * high or 0 <= -move <= tolerance * high)
            place += move + tolerance * place / 2  # rather too large: the next one may be the last
            if not is_positive and (ends or not place > 0 or steps > _MOST_TANGENTS):
                if self.is_within(0.0, delta):
                    return 0.0
                is_positive = True
            if ends:
                return high
            if not low < place < high or steps > _MOST_TANGENTS:
                place = (low + high) / 2 if high < math.inf else 2 * low + 1
            steps += 1

    def _excess_and_fall(self, epsilon: float, delta: float) -> tuple[float, float]:
        """ln of δ at ``epsilon`` over ``delta``, above 0 where ε is too small, and how fast it falls with ε.

        Both are finite where that δ is 0 in floating point.
        """
        mus, weights = self._that_tell
        deltas, falls = gaussian.delta_and_fall(epsilon=epsilon, mu=mus)
        found = max(min(1.0, float(weights @ deltas) + self.lost), sys.float_info.min)
        return math.log(found) - math.log(delta), float(weights @ falls) / found

    @cached_property
    def _that_tell(self) -> tuple[Array, Array]:
        """The μ above 0 of `squares`, and their probabilities, each ``[atoms that tell anything]``."""
        some = self.squares > 0
        return self._mus[some], self.probabilities[some]


def _has_outcomes(term: GaussianTerm) -> bool:
    """Whether what is told of a release has several outcomes of μ², besides being drawn or not."""
    return is_visible_mixture(term) or (term.sampling is not None and bool(term.sampling.seen_scales))


_Sums: TypeAlias = tuple[Array, Array, float]
"""Values, their probabilities, and the probability of values that are left out."""


def _repeated(outcomes: Sequence[tuple[float, float]], count: int) -> _Sums:
    """Compute the distribution of the sum of ``count`` independent variables of one law.

    Args:
        outcomes: pairs (probability, value); what the probabilities lack to 1 is the value 0.
        count: number of variables.

    Returns:
        Values ascending, their probabilities, and the probability of larger values that are left out.
    """
    told = math.fsum(chance for chance, _ in outcomes)
    chances, values = np.array([*outcomes, (max(0.0, 1.0 - told), 0.0)]).T
    values, inverse = np.unique(values, return_inverse=True)
    power: _Sums = values, np.bincount(inverse.ravel(), chances).astype(np.float64), 0.0
    total: _Sums = np.zeros(1), np.ones(1), 0.0
    while count:
        if count % 2:
            total = _sum_of_both(total, power)
        count //= 2
        if count:
            power = _sum_of_both(power, power)
    return total


def _sum_of_both(one: _Sums, other: _Sums) -> _Sums:
    """The distribution of the sum of two independent variables, in the form that both have."""
    values, weights, beyond = _sum_on_grid(one[0], one[1], other[0], other[1])
    return values, weights, one[2] + other[2] + beyond


def _sum_on_grid(
    values: Array, weights: Array, shifts: Array, chances: Array, cells: int = _ATOMS_ON_GRID
) -> tuple[Array, Array, float]:
    """Convolve two distributions, with both variables rounded up to one grid if sums are too many.

    Args:
        values: of the first variable, ascending.
        weights: their probabilities.
        shifts: values of the second variable, ascending.
        chances: their probabilities.
        cells: of the grid; so many sums are kept as they are.

    Returns:
        Values, probabilities, and the probability of values beyond those kept.
    """
    if len(values) * len(shifts) <= cells:
        return _sum(values, weights, shifts, chances)
    step = (values[-1] - values[0] + shifts[-1] - shifts[0]) / cells
    parts: list[Array] = []
    for places, masses in ((values, weights), (shifts, chances)):
        steps = np.ceil((places - places[0]) / step).astype(np.int64)
        parts.append(np.bincount(steps, masses).astype(np.float64))
    together = np.convolve(parts[0], parts[1])
    return _without_negligible_ends(values[0] + shifts[0] + step * np.arange(len(together)), together)


@lru_cache(maxsize=1024)
def _binomial(count: int, rate: float) -> tuple[Array, Array, float]:
    """Binomial(count, rate): values, their probabilities, and the probability of larger values left out."""
    values, weights, beyond = _without_negligible_ends(
        np.arange(count + 1, dtype=np.float64), binomial_weights(count, rate)
    )
    values = values.copy()  # what is kept are these few, not all that they are a view of
    for shared in (values, weights):
        shared.setflags(write=False)
    return values, weights, beyond


def binomial_weights(count: int, rate: float) -> Array:
    """Probabilities of 0, 1, …, ``count`` under Binomial(count, rate), 0 < rate < 1; shape (count + 1,)."""
    from scipy import special

    times = np.arange(count + 1, dtype=np.float64)
    log_ways = special.gammaln(count + 1.0) - special.gammaln(times + 1) - special.gammaln(count - times + 1)
    logs: Array = log_ways + times * math.log(rate) + (count - times) * math.log1p(-rate)
    return np.exp(logs)


def _sum(values: Array, weights: Array, shifts: Array, chances: Array) -> tuple[Array, Array, float]:
    """Distribution of the sum of two independent variables, its values rounded up to a grid where too many.

    Args:
        values: of the first variable, ascending.
        weights: their probabilities.
        shifts: values of the second variable, ascending.
        chances: their probabilities.

    Returns:
        Values, probabilities, and the probability of values beyond those kept.
    """
    if len(values) * len(shifts) <= _MOST_ATOMS:
        sums = np.add.outer(values, shifts).ravel()
        order = np.argsort(sums, kind="stable")
        return _without_negligible_ends(sums[order], np.outer(weights, chances).ravel()[order])
    lowest = values[0] + shifts[0]
    step = (values[-1] + shifts[-1] - lowest) / _MOST_ATOMS
    probabilities = np.zeros(_MOST_ATOMS + 1)
    for shift, chance in zip(shifts, chances, strict=True):
        cells = np.minimum(np.ceil((values + shift - lowest) / step), _MOST_ATOMS).astype(np.int64)
        probabilities += chance * np.bincount(cells, weights, _MOST_ATOMS + 1)
    return _without_negligible_ends(lowest + step * np.arange(_MOST_ATOMS + 1), probabilities)


def _without_negligible_ends(values: Array, probabilities: Array) -> tuple[Array, Array, float]:
    """Leave out the values at either end that are less likely than 1e-30 each.

    The probability below the first value kept goes to that value.

    Returns:
        The values kept, their probabilities, and the probability above the last value kept.
    """
    kept = np.flatnonzero(probabilities > _NEGLIGIBLE)
    first, last = int(kept[0]), int(kept[-1])
    inner = probabilities[first : last + 1].copy()
    inner[0] += probabilities[:first].sum()
    return values[first : last + 1], inner, float(probabilities[last + 1 :].sum())
