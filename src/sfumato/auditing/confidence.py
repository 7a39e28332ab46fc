"""Exact confidence bounds of a probability from a number of hits in trials (Clopper and Pearson 1934)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special

FloatArray = npt.NDArray[np.float64]


def lower(hits: npt.ArrayLike, trials: int, *, error: float) -> FloatArray:
    """Lower bound of a probability, wrong with probability at most ``error``.

    Args:
        hits: number of trials in which the event happened.
        trials: number of independent trials.
        error: in (0, 1).
    """
    k = _checked(hits, trials, error)
    with np.errstate(invalid="ignore"):
        found = special.betaincinv(k, trials - k + 1, error)
    return np.where(k == 0, 0.0, found)


def upper(hits: npt.ArrayLike, trials: int, *, error: float) -> FloatArray:
    """Upper bound of a probability, wrong with probability at most ``error``; see `lower`."""
    return 1.0 - lower(trials - _checked(hits, trials, error), trials, error=error)


def _checked(hits: npt.ArrayLike, trials: int, error: float) -> FloatArray:
    k = np.asarray(hits, dtype=np.float64)
    if not (trials > 0 and np.all((k >= 0) & (k <= trials))):
        raise ValueError(f"hits: got {k.tolist()} of {trials} trials; must be 0 to trials, of one or more")
    if not 0 < error < 1:
        raise ValueError(f"error: got {error}; must be in (0, 1)")
    return k
