"""The log-likelihood ratio of an observer's observations in one round: target's message sent, or not.

Messages are averaged, summed and noised coordinate by coordinate, so one coordinate of all observations of a
round is a Gaussian vector x of small dimension, with covariance Σ and a mean that depends on the hypothesis.
The most powerful statistic is the likelihood ratio, and for equal covariances it is linear: w = Σ⁻¹ (mean if
sent − mean if null) (Fisher). Means and Σ are *estimated* on trials simulated for this purpose, so nothing
here relies on what the accountant assumes about the noise. A wrong weight reduces the power of the test,
never its soundness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
_NO_NOISE = 1e-9
_NO_SIGNAL = 1e-3
_LARGEST_RATIO = 1e3
_SAME_NOISE = 0.15
_CERTAIN = 1e6


@dataclass(frozen=True)
class LikelihoodRatioTest:
    """The score of one round for one draw of participants.

    Attributes:
        weights: w, ``[d]``.
        absent: mean and standard deviation of w·x if the unit does not take part.
        null: the same if it takes part and sends nothing (under replace: the opposite).
        sent: the same if it sends its message.
        rate: probability that it takes part.
        draw_visible: whether the observer sees whether it takes part.
        removed: whether the unit is removed under the null hypothesis, so that it never takes part.
    """

    weights: FloatArray
    absent: tuple[float, float]
    null: tuple[float, float]
    sent: tuple[float, float]
    rate: float
    draw_visible: bool
    removed: bool = False

    @property
    def depends_on_target(self) -> bool:
        """Whether the unit's message shifts the mean of any observation."""
        return bool(self.weights.any())

    @property
    def log_ratio_weights(self) -> FloatArray:
        """Weights ``[d]`` of observations in the log-likelihood ratio of a round with the unit."""
        if not self.depends_on_target:
            return self.weights
        return self.weights * ((self.sent[0] - self.null[0]) / self.sent[1] ** 2)

    @property
    def shift(self) -> float:
        """Distance of the hypotheses' means in a round with the unit, in standard deviations."""
        return abs(self.sent[0] - self.null[0]) / self.sent[1]

    @property
    def noise_is_draw_independent(self) -> bool:
        """Whether the noise is as large in rounds without the unit as in rounds with it, by its estimates."""
        return abs(self.absent[1] / self.null[1] - 1) < _SAME_NOISE

    def scores(self, observed: FloatArray, taking_part: npt.NDArray[np.bool_]) -> FloatArray:
        """Log-likelihood ratios of trials, ``[trials]``; higher: the unit sent its message.

        ``observed``: the observations, ``[d, trials]``. ``taking_part``: in which trials the unit takes part,
        bool ``[trials]``; used where the observer sees it.
        """
        if self.removed and self.draw_visible:  # a unit that takes part has not been removed
            missed = math.log1p(-self.rate) if self.rate < 1 else -_CERTAIN
            return np.where(taking_part, _CERTAIN, missed)
        if not self.depends_on_target:
            return np.zeros(observed.shape[1])
        y = self.weights @ observed
        if not self.removed and (self.draw_visible or self.rate == 1):
            return np.where(taking_part, _log_density(y, self.sent) - _log_density(y, self.null), 0.0)
        with np.errstate(divide="ignore"):
            absent = np.log1p(-self.rate) + _log_density(y, self.absent)
        sent = np.logaddexp(absent, math.log(self.rate) + _log_density(y, self.sent))
        if self.removed:
            return np.asarray(sent - _log_density(y, self.absent))
        return np.asarray(sent - np.logaddexp(absent, math.log(self.rate) + _log_density(y, self.null)))


def fit_test(
    absent: FloatArray,
    null: FloatArray,
    sent: FloatArray,
    *,
    rate: float,
    draw_visible: bool,
    removed: bool = False,
) -> LikelihoodRatioTest:
    """Fit the likelihood-ratio test to observations of simulated trials, ``[d, trials]`` of each kind.

    Args:
        absent: trials in which the unit does not take part.
        null: trials in which it takes part and sends nothing (under replace: the opposite), with the same
            noise as in ``sent``; if it is removed under the null hypothesis, it does not take part.
        sent: trials in which it sends its message.
        rate: probability that it takes part.
        draw_visible: whether the observer sees whether it takes part.
        removed: whether it is removed under the null hypothesis.
    """
    shift = (sent - null).mean(axis=1)
    weights = _most_powerful_weights(shift, np.atleast_2d(np.cov(null)))
    least = abs(float(weights @ shift)) / _LARGEST_RATIO  # without noise the ratio stays finite
    absent_at, out_at, sent_at = (_fitted_normal(weights @ x, least) for x in (absent, null, sent))
    return LikelihoodRatioTest(weights, absent_at, out_at, sent_at, rate, draw_visible, removed)


def _most_powerful_weights(shift: FloatArray, covariance: FloatArray) -> FloatArray:
    """Weights ``[d]`` of the most powerful linear test between two normals that differ in their means.

    If the ``shift`` ``[d]`` of the mean has components without noise, only these count. Both have the
    ``covariance`` ``[d, d]``.
    """
    size = np.sqrt(np.diag(covariance)) + np.abs(shift)
    if not np.abs(shift).max(initial=0.0) > _NO_NOISE * size.max(initial=0.0):
        return np.zeros_like(shift)
    size = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(covariance / np.outer(size, size))
    along = vectors.T @ (shift / size)
    silent = values < _NO_NOISE
    if (np.abs(along[silent]) > _NO_SIGNAL).any():
        return np.asarray(vectors[:, silent] @ along[silent] / size)
    return np.asarray(vectors[:, ~silent] @ (along[~silent] / values[~silent]) / size)


def _fitted_normal(values: FloatArray, least: float) -> tuple[float, float]:
    """The mean and the standard deviation of ``values``, the latter at least ``least``."""
    return float(values.mean()), max(float(values.std()), least)


def _log_density(y: FloatArray, normal: tuple[float, float]) -> FloatArray:
    """The logarithm of a normal density at ``y``, in its shape, up to a constant.

    ``normal``: its mean and standard deviation.
    """
    mean, std = normal
    return np.asarray(-0.5 * ((y - mean) / std) ** 2 - math.log(std))
