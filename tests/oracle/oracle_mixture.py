"""Epsilon of an experiment whose outcome is partly seen, partly hidden, and otherwise one number.

One experiment has, in either world, a finite list of parts: what the observer sees of the draw (``seen``, any
hashable), the probability, and the law of the number it is left with, a Gaussian of given mean and standard
deviation (0: it is the mean). What is not in ``seen`` stays hidden: parts with the same ``seen`` are mixed.

The number is cut into cells. Which cell it fell into is post-processing, so the privacy loss distribution of
the cells is that of a weaker observer. Repeated experiments compose by convolution of losses that are rounded
down. Every error is therefore on the side of less leakage: what comes out is a lower bound of the true
epsilon, close to it because cells are narrow (1/25 of the smallest standard deviation near them).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import brentq
from scipy.signal import lfilter
from scipy.special import log_ndtr

_REACH, _CELLS, _MOST_EDGES, _LAWS = 9.0, 451, 6000, 80
_GRID, _FINE_GRID, _FEW, _FFT_ERROR = 2**16, 2**18, 12, 1e-11


@dataclass(frozen=True)
class Part:
    """One way an experiment may go in one world.

    Attributes:
        seen: what the observer sees of the draw.
        probability: of this way.
        mean: of the number it is left with.
        std: of the same.
    """

    seen: Hashable
    probability: float
    mean: float
    std: float


@dataclass(frozen=True)
class Experiment:
    """The same experiment in both worlds, made ``times`` times, independently."""

    with_unit: tuple[Part, ...]
    without_unit: tuple[Part, ...]
    times: int = 1


def experiments_epsilon(experiments: Sequence[Experiment], delta: float) -> float:
    """Epsilon at ``delta`` of all these independent experiments together, the worse of both directions."""
    cut = [(_cells(one), one.times) for one in experiments]
    swapped = [((q, p), times) for (p, q), times in cut]
    return max(_epsilon(cut, delta), _epsilon(swapped, delta))


Masses = npt.NDArray[np.float64]
Logs = npt.NDArray[np.float64]
Cells = tuple[Logs, Logs]


def _epsilon(cut: list[tuple[Cells, int]], delta: float) -> float:
    """Epsilon at ``delta`` of the first world over the second."""
    losses = [(_losses(p, q), times) for (p, q), times in cut]
    certain = 1 - math.prod((1 - one.never) ** times for one, times in losses)
    if certain > delta:
        return math.inf
    if len(losses) == 1 and losses[0][1] == 1:
        return _single(losses[0][0], delta - certain)
    return _on_grid(losses, delta - certain + _FFT_ERROR)


def _single(one: _Losses, delta: float) -> float:
    """Where the masses of larger losses, less exp(epsilon) times the other world's, sum to ``delta``."""

    def above(epsilon: float) -> float:
        over = one.values > epsilon
        return float(one.masses[over] @ -np.expm1(epsilon - one.values[over])) - delta

    if above(0.0) <= 0:
        return 0.0
    return float(brentq(above, 0.0, float(one.values[-1]), xtol=1e-11, maxiter=1000))


def _on_grid(losses: list[tuple[_Losses, int]], delta: float) -> float:
    """The same of a sum of independent losses, whose masses lie on a grid of equal steps.

    With A the mass above a grid point and B the other world's, relative to it, delta(eps) = A - exp(eps -
    value) B from there to the next.
    """
    values, masses = _convolved(losses)
    if len(values) < 2:
        return max(0.0, float(values[0])) if masses[0] > delta else 0.0
    shrink = math.exp(values[0] - values[1])
    above = np.concatenate([np.cumsum(masses[:0:-1])[::-1], [0.0]])
    other = np.concatenate([lfilter([shrink], [1.0, -shrink], masses[:0:-1])[::-1], [0.0]])
    reached = np.flatnonzero(above - other > delta)
    if not len(reached):
        return max(0.0, float(values[0])) if above[0] > delta else 0.0
    last = reached[-1]
    return max(0.0, float(values[last] + math.log((above[last] - delta) / other[last])))


@dataclass(frozen=True)
class _Losses:
    """Privacy losses of one experiment's cells; ``never``: mass of cells that the other world never gives."""

    values: Masses
    masses: Masses
    never: float


def _losses(p: Logs, q: Logs) -> _Losses:
    there, both = np.isfinite(p), np.isfinite(p) & np.isfinite(q)
    values, masses = p[both] - q[both], np.exp(p[both])
    order = np.argsort(values)
    return _Losses(values[order], masses[order], float(np.exp(p[there & ~both]).sum()))


def _convolved(losses: list[tuple[_Losses, int]]) -> tuple[Masses, Masses]:
    """The sum of independent losses, each rounded down to a grid.

    The grid is cyclic and holds all but 1e-12 of the mass (Chernoff's bound), which `_FFT_ERROR` allows for.
    """
    low, high = -_reach(losses, -1.0), _reach(losses, 1.0)
    count = sum(times for _, times in losses)
    width = max((high - low) / (_GRID if count <= _FEW else _FINE_GRID), 1e-9)
    first = math.floor(low / width) - count  # as far as rounding may lower the sum
    length = next_fast_len(math.ceil(high / width) - first + 1, real=True)
    product = np.ones(length // 2 + 1, dtype=np.complex128)
    start = 0
    for one, times in losses:
        steps = np.floor(one.values / width).astype(np.int64)
        product *= rfft(np.bincount((steps - steps[0]) % length, one.masses, length), length) ** times
        start += int(steps[0]) * times
    masses = np.roll(np.maximum(irfft(product, length), 0.0), start - first)
    return (first + np.arange(length)) * width, masses


def _reach(losses: list[tuple[_Losses, int]], sign: float) -> float:
    """What ``sign`` times the sum of all losses exceeds with probability at most 5e-13."""
    bounds = []
    largest = max(float(np.abs(one.values).max()) for one, _ in losses)
    for rate in np.geomspace(1e-3, 1e3, 61) / max(largest, 1e-9):
        moments = sum(times * _log_moment(one, sign * rate) for one, times in losses)
        bounds.append((moments - math.log(5e-13)) / rate)
    whole = sum(times * float((sign * one.values).max()) for one, times in losses)
    return min(*bounds, whole)


def _log_moment(one: _Losses, rate: float) -> float:
    """Logarithm of the mean of exp(rate times loss)."""
    some = one.masses > 0
    exponents = rate * one.values[some] + np.log(one.masses[some])
    largest = float(exponents.max())
    return largest + math.log(float(np.exp(exponents - largest).sum()))


def _cells(experiment: Experiment) -> Cells:
    """Log-probability of every cell in either world, in the same order."""
    groups: dict[Hashable, tuple[list[Part], list[Part]]] = defaultdict(lambda: ([], []))
    for world, parts in enumerate((experiment.with_unit, experiment.without_unit)):
        for part in parts:
            groups[part.seen][world].append(part)
    tables = [_group_cells(*worlds) for worlds in groups.values()]
    return np.concatenate([p for p, _ in tables]), np.concatenate([q for _, q in tables])


def _group_cells(with_unit: list[Part], without_unit: list[Part]) -> Cells:
    everything = with_unit + without_unit
    scale = max((abs(part.mean) + part.std for part in everything), default=0.0) or 1.0
    atoms = sorted({round(part.mean / scale, 9) for part in everything if part.std == 0})
    edges = _edges([part for part in everything if part.std > 0])

    def logs(parts: list[Part]) -> Logs:
        on_atoms = np.full(len(atoms), -np.inf)
        between = np.full(len(edges) + 1, -np.inf)
        for part in parts:
            if part.std == 0:
                place = atoms.index(round(part.mean / scale, 9))
                on_atoms[place] = np.logaddexp(on_atoms[place], math.log(part.probability))
            else:
                inside = _log_normal_mass((edges - part.mean) / part.std)
                between = np.logaddexp(between, math.log(part.probability) + inside)
        return np.concatenate([on_atoms, between if len(edges) else between[:0]])

    return logs(with_unit), logs(without_unit)


def _log_normal_mass(z: Masses) -> Logs:
    """Logarithm of a standard normal's mass in each cell that the points ``z`` cut the line into."""
    low, high = np.concatenate([[-np.inf], z]), np.concatenate([z, [np.inf]])
    right = low > 0  # by upper tails right of the mean, by lower tails left of it: exact far out in both
    larger = np.where(right, log_ndtr(-low), log_ndtr(high))
    smaller = np.where(right, log_ndtr(-high), log_ndtr(low))
    some = np.isfinite(smaller)
    share = np.ones_like(larger)
    share[some] = -np.expm1(np.minimum(smaller, larger)[some] - larger[some])
    inside: Logs = np.full_like(larger, -np.inf)
    some = share > 0
    inside[some] = larger[some] + np.log(share[some])
    return inside


def _edges(parts: list[Part]) -> Masses:
    """Where to cut: finely around the likeliest laws. Wherever it is, the bound holds."""
    likely: dict[tuple[float, float], float] = defaultdict(float)
    for part in parts:
        likely[part.mean, part.std] += part.probability
    laws = sorted(likely, key=lambda law: -likely[law])[:_LAWS]
    if not laws:
        return np.zeros(0)
    cells = (_MOST_EDGES if len(likely) < 300 else _MOST_EDGES // 3) // len(laws)
    z = np.linspace(-_REACH, _REACH, max(41, min(_CELLS, cells)))
    edges = np.unique(np.concatenate([mean + std * z for mean, std in laws]))
    apart = np.diff(edges, prepend=-np.inf) > 1e-6 * min(std for _, std in laws)
    return edges[apart]  # of a cell narrower than that rounding leaves nothing
