"""Upper bounds of the moments of losses on a grid, from stretches of the grid."""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from sfumato.privacy.losses.gaussian import Array
from sfumato.privacy.losses.grid_losses import GridLosses

_EXACT = 64  # points of a grid on either side of 0 that are stretches of their own in bounds of moments
_FARTHEST = 1e12  # intervals from 0; no grid reaches so far


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
    starts = starts_of_stretches(part.first, size)
    ends = np.append(starts[1:], size) - 1
    weights: Array = np.add.reduceat(part.masses, starts)
    some = weights > 0
    least, most = (part.first + np.stack([starts[some], ends[some]]).astype(np.float64)) * interval
    return np.log(weights[some]), least, most


@lru_cache(maxsize=16)  # tilted losses are on the grid of those that are not
def starts_of_stretches(first: int, size: int) -> npt.NDArray[np.int64]:
    """Places in an array of grid points where the stretches begin, int64 ``[S]``; the first place is 0.

    Args:
        first: grid number of the first point, in intervals from 0.
        size: number of points.
    """
    ends = _ends_of_stretches()
    some = ends[np.searchsorted(ends, first, side="right") : np.searchsorted(ends, first + size)]
    return np.append(0, some - first)


@cache
def _ends_of_stretches() -> npt.NDArray[np.int64]:
    """The points of a grid at which stretches begin, in intervals from 0, ascending and symmetric about 0."""
    count = math.ceil(math.log(_FARTHEST / _EXACT) / math.log1p(1 / _EXACT))
    wide = np.unique((_EXACT * (1 + 1 / _EXACT) ** np.arange(count + 1)).astype(np.int64))
    return np.concatenate([-wide[::-1], np.arange(1 - _EXACT, _EXACT), wide])


class Moments:
    """Upper bounds of the moments of the losses of one release, each computed when it is asked for."""

    def __init__(self, part: GridLosses, interval: float) -> None:
        """Cut ``part``, on a grid of ``interval`` nats, into stretches."""
        self._stretches = _stretches_of_grid(part, interval)
        self._known = dict[float, float]()

    def log_of(self, power: float) -> float:
        """An upper bound on ln Σ p e^(power · l), over losses l in nats with masses p.

        The mass of a stretch counts at the end where the term is largest.
        """
        if power not in self._known:
            logs, least, most = self._stretches
            exponents = logs + power * (most if power > 0 else least)
            top = exponents.max()
            self._known[power] = float(top + np.log(np.exp(exponents - top).sum()))
        return self._known[power]


@lru_cache(maxsize=64)
def moments_of(part: GridLosses, interval: float) -> Moments:
    """Upper bounds of the exponential moments ln E e^(power · loss) of ``part``, for any real ``power``.

    Args:
        part: masses of losses on the grid, of which point number i is a loss of i times ``interval``.
        interval: width of the grid, in nats.

    Returns:
        The same object for the same arguments, as long as it is among the last that were asked for.
    """
    return Moments(part, interval)
