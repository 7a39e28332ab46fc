"""The log-likelihood ratio of a round in which hidden draws decide what the target sends.

Given the draws, the observations of a round are a Gaussian vector whose mean depends on them. So in each
world they are a mixture, and the most powerful statistic is the ratio of the two. Covariance, mean and shifts
are estimated on trials simulated for this purpose; wrong ones reduce the power of the test, never its
soundness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from sfumato.auditing.harness import TargetDraw

FloatArray = npt.NDArray[np.float64]
_NO_NOISE = 1e-9
_NO_SIGNAL = 1e-6


@dataclass(frozen=True)
class MixtureRatioTest:
    """The score of one round.

    Attributes:
        projection: of the observations to the space of all shifts, where the noise is standard, ``[r, d]``.
        undrawn: mean there if the record is in no step, ``[r]``.
        shifts: from that mean, a column for each message, in the other world and with the record.
        chances: probabilities of the messages, in the same order.
        absent: mean and covariance there if the device does not take part.
        draw: of the device.
    """

    projection: FloatArray
    undrawn: FloatArray
    shifts: tuple[FloatArray, FloatArray]
    chances: tuple[FloatArray, FloatArray]
    absent: tuple[FloatArray, FloatArray]
    draw: TargetDraw

    def scores(self, observed: FloatArray, taking_part: npt.NDArray[np.bool_]) -> FloatArray:
        """Log-likelihood ratios of trials, ``[trials]``; higher: the record is there.

        ``observed``: the observations, ``[d, trials]``. ``taking_part``: in which trials the device takes
        part, bool ``[trials]``; used where the observer sees it.
        """
        if not len(self.projection):
            return np.zeros(observed.shape[1])
        y = self.projection @ observed - self.undrawn[:, None]
        other, present = (
            _log_mixture_ratio(y, shifts, chances)
            for shifts, chances in zip(self.shifts, self.chances, strict=True)
        )
        if self.draw.rate == 1 or self.draw.visible:
            return np.where(taking_part, present - other, 0.0)
        missed = math.log1p(-self.draw.rate) + _log_normal_ratio(y, *self.absent)
        there = math.log(self.draw.rate)
        return np.asarray(np.logaddexp(missed, there + present) - np.logaddexp(missed, there + other))


def fit_mixture_test(
    undrawn: FloatArray,
    absent: FloatArray,
    shifts: tuple[FloatArray, FloatArray],
    chances: tuple[FloatArray, FloatArray],
    draw: TargetDraw,
) -> MixtureRatioTest:
    """Fit the likelihood-ratio test of a record to simulated observations.

    From ``undrawn`` and ``absent`` it estimates means and covariances; all observations of a trial are d
    numbers, and in each world a trial has one of c messages.

    Args:
        undrawn: trials in which the record is in no step, ``[d, trials]``.
        absent: trials in which the device does not take part, ``[d, trials]``.
        shifts: how far each message moves the observations from ``undrawn``, without the record (or with the
            replaced one) and with it, ``[d, c]`` each.
        chances: probabilities of these messages, ``[c]`` each.
        draw: with which probability the device takes part, and whether the observer sees it.
    """
    projection = _whitening_projection(undrawn, np.concatenate(shifts, axis=1))
    centre = (projection @ undrawn).mean(axis=1)
    away = projection @ absent - centre[:, None]
    law = away.mean(axis=1), np.atleast_2d(np.cov(away)) if len(away) else np.zeros((0, 0))
    other, present = (projection @ of_world for of_world in shifts)
    return MixtureRatioTest(projection, centre, (other, present), chances, law, draw)


def _whitening_projection(undrawn: FloatArray, shifts: FloatArray) -> FloatArray:
    """A matrix ``[r, d]`` that whitens observations and keeps the r-dimensional space of the shifts.

    ``undrawn``: observations ``[d, trials]``, whose noise is whitened; ``shifts``: ``[d, c]``.
    """
    covariance = np.atleast_2d(np.cov(undrawn))
    size = np.sqrt(np.diag(covariance)) + np.abs(shifts).max(axis=1, initial=0.0)
    size = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(covariance / np.outer(size, size))
    white = (vectors / np.sqrt(np.maximum(values, _NO_NOISE))).T / size
    basis, lengths, _ = np.linalg.svd(white @ shifts, full_matrices=False)
    told = lengths > _NO_SIGNAL * max(1.0, lengths.max(initial=0.0))
    return np.asarray(basis[:, told].T @ white)


def _log_mixture_ratio(y: FloatArray, shifts: FloatArray, chances: FloatArray) -> FloatArray:
    """ln of the density of a mixture of N(shift, 1) over that of N(0, 1) at ``y``, ``[trials]``.

    ``y``: ``[r, trials]``; ``shifts`` ``[r, c]`` and ``chances`` ``[c]`` are those of the components.
    """
    logs = y.T @ shifts + (np.log(chances) - (shifts**2).sum(axis=0) / 2)
    return np.asarray(special.logsumexp(logs, axis=1))


def _log_normal_ratio(y: FloatArray, mean: FloatArray, covariance: FloatArray) -> FloatArray:
    """ln of the density of a normal at ``y`` ``[r, trials]`` over that of the standard normal, ``[trials]``.

    ``mean`` ``[r]`` and ``covariance`` ``[r, r]`` are those of the normal.
    """
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, _NO_NOISE)
    away = vectors.T @ (y - mean[:, None])
    distance = (away**2 / values[:, None]).sum(axis=0)
    return np.asarray(((y**2).sum(axis=0) - distance - np.log(values).sum()) / 2)
