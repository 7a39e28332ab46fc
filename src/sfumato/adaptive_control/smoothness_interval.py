"""How smooth the loss is, from the models of successive rounds: an estimate and its interval.

A round moves the model by s = -L g (L: step size times local steps) along its mean gradient g, noise
included. From one round to the next the gradient turns by y = H s plus noise, H the Hessian on the way. Over
a window of rounds the matrices A = S'Y and C = S'S give for every combination d of the moves the quotient
d'Ad / d'Cd = d'S'HSd / |Sd|^2 of sums over the rounds. Its largest value is a lower bound of the largest
eigenvalue of H, the smoothness, and close to it when the moves have a part along that eigenvector (Rayleigh
and Ritz).

*Noise.* The noise n_j of g_j is in y_j, in y_(j-1) and in the move s_j = -L_j g_j. So E A has n_j's energy in
two places, L_j |n_j|^2 at (j, j) and -L_j |n_j|^2 at (j, j-1), and both are subtracted: M times the known
variance a coordinate, and what is left over of A's asymmetry, which measures the energy of noise that is not
known (mini-batches, cohorts), because S'HS is symmetric. What remains is of mean 0. For noise of known
variances it is a Gaussian matrix: in an orthonormal basis of q moves its largest eigenvalue is about sqrt(2
q) times the standard deviation of an entry. Half again as much, and two standard deviations more, are taken
off. For unknown noise twice what A is still asymmetric, and as much as was subtracted, are taken off.

*Interval.* From the largest such lower limit over q up to infinity: moves that were not made say nothing
about the slope along them, so nothing that was released can show that the loss is smoother. Where the limit
is below half the estimate, or a curvature of 1/L or more (a round's gradient is a mean over a path of length
L, and no more can be seen in it), the window carries no information.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

WINDOW = 12  # rounds that are looked at together
_FEWEST = 3  # rounds that can say anything: their asymmetry tells noise from curvature
_FLAT = 1e-9  # of the largest eigenvalue of C: directions below are rounding


@dataclass(frozen=True)
class SmoothnessInterval:
    """An estimate of the smoothness beta, and its lower limit; the upper limit is infinite.

    Attributes:
        estimate: ``None`` where the rounds carry no information.
        low: the lower limit; 0 without an estimate.
    """

    estimate: float | None = None
    low: float = 0.0

    def or_prior(self, prior: float) -> float:
        """The value of beta to use: ``prior``, unless it lies below the interval; then the estimate.

        ``prior`` too where there is no estimate.
        """
        return prior if self.estimate is None or self.low <= prior else self.estimate


@dataclass(frozen=True)
class Moves:
    """Products of the moves of successive rounds: all that the estimate needs of the models.

    Attributes:
        products: s_i's with each other, of all rounds, the last included ``[n + 1, n + 1]``.
        lengths: L of every round ``[n + 1]``.
        variances: of a coordinate of the known noise in every round's gradient ``[n + 1]``.
        coordinates: M.
    """

    products: FloatArray
    lengths: FloatArray
    variances: FloatArray
    coordinates: int

    def interval(self) -> SmoothnessInterval:
        """The estimate of the smoothness with its lower limit; none where the rounds carry no information."""
        if len(self.lengths) <= _FEWEST or not np.all(np.diag(self.products) > 0):
            return SmoothnessInterval()
        best = max(self._limits(), default=(0.0, 0.0))
        low, estimate = best
        if low <= 0 or low < estimate / 2 or low * float(self.lengths.max()) >= 1:
            return SmoothnessInterval()
        return SmoothnessInterval(estimate, low)

    def _limits(self) -> list[tuple[float, float]]:
        """Pairs (lower limit, estimate) of the smoothness in the space of the q longest moves, for all q."""
        count = len(self.lengths) - 1
        turns = np.zeros((count + 1, count))  # Y = G turns, G = -S / L
        turns[np.arange(count) + 1, np.arange(count)] = 1
        turns[np.arange(count), np.arange(count)] = -1
        along = self.products[:count] @ (-turns / self.lengths[:, None])
        along = along - self._energies(self.coordinates * self.variances)
        unknown = self._energies(np.full(count + 1, self._unknown(along)))
        along = along - unknown
        unit = 1 / np.sqrt(np.diag(self.products)[:count])
        sizes, vectors = np.linalg.eigh(self.products[:count, :count] * unit[:, None] * unit)
        found = []
        for q in range(2, count + 1):
            if sizes[-q] <= _FLAT * sizes[-1]:
                break
            basis = unit[:, None] * vectors[:, -q:] / np.sqrt(sizes[-q:])
            inside, guess = basis.T @ along @ basis, basis.T @ unknown @ basis
            estimate = float(np.linalg.eigvalsh((inside + inside.T) / 2)[-1])
            spread = turns @ basis
            entry = math.sqrt(np.linalg.eigvalsh(spread.T @ (self.variances[:, None] * spread))[-1].clip(0))
            asymmetry = np.linalg.norm((inside - inside.T) / 2, 2)
            taken_off = np.linalg.norm((guess + guess.T) / 2, 2)
            margin = max(1.5 * entry * (math.sqrt(2 * q) + 2), float(2 * asymmetry + taken_off))
            found.append((estimate - margin, estimate))
        return found

    def _energies(self, of_rounds: FloatArray) -> FloatArray:
        """The expected share of noise in A, ``[n, n]``, if the noise of each round has these energies."""
        each = self.lengths * of_rounds
        added: FloatArray = np.diag(each[:-1]) - np.diag(each[1:-1], -1)
        return added

    def _unknown(self, along: FloatArray) -> float:
        """Energy a round of noise of unknown variance, from the asymmetry of A, ``along``; at least 0."""
        next_to = float(np.sum(np.diag(along, 1) - np.diag(along, -1)))
        return max(0.0, next_to / float(self.lengths[1:-1].sum()))
