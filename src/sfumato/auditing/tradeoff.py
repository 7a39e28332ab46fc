"""Lower bounds on ε from an attack's scores under two hypotheses, each wrong with a stated probability.

Under one hypothesis the unit sends its message, under the other (null) nothing or the opposite. An observer
computes a score that tends to be larger under the first. The threshold is chosen on *held-out* trials and
tested on others, so only one threshold is tested, and Clopper-Pearson bounds of its two error rates apply.

*Counting.* If all observations are (ε, δ)-indistinguishable, then TPR ≤ e^ε FPR + δ, so

    ε ≥ log((TPR_low − δ) / FPR_high)

for any mechanism. With n trials FPR_high is about log(1/error)/n at best: at δ = 1e-5 this reaches a third of
ε = 8 with ten thousand trials.

*Curve.* Accountants claim more than one (ε, δ): a whole trade-off curve. Without sampling of participants it
is that of N(0, 1) against N(μ, 1), whose best test has TPR = Φ(Φ⁻¹(FPR) + μ) (Dong, Roth and Su 2022), so

    μ ≥ Φ⁻¹(TPR_low) − Φ⁻¹(FPR_high),

and ε at δ follows from μ in closed form. For an observer that sees the draw the curve is the mixture of the
Gaussian ones with √n μ over the number n of participations; for others it is that of Poisson-sampled
Gaussians. Such a bound means: *if* the curve belongs to that family, its μ is at least this large. It refutes
an accountant that claims a smaller μ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from sfumato.privacy.accountant import PrivacyCurve, compose
from sfumato.privacy.losses import gaussian
from sfumato.privacy.sampling import GaussianTerm, Neighbours, Sampling

FloatArray = npt.NDArray[np.float64]
_CANDIDATES = 400
_LARGEST_MU = 1e3


@dataclass(frozen=True)
class Scores:
    """An observer's scores, one for each trial; trials under one hypothesis are independent.

    Attributes:
        null: of trials under the null hypothesis, ``[n]``.
        sent: of trials in which the unit sent its message, ``[n]``.
    """

    null: FloatArray
    sent: FloatArray

    def counts_above(self, thresholds: npt.ArrayLike) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Numbers of trials that score above each threshold: (without the message, with it).

        ``thresholds``: ``[t]``; both counts are ``[t]``.
        """
        found = [
            len(values) - np.searchsorted(np.sort(values), thresholds, side="right")
            for values in (self.null, self.sent)
        ]
        return found[0], found[1]

    @property
    def swapped(self) -> Scores:
        """The same trials with the hypotheses exchanged and scores negated: higher still means "sent"."""
        return Scores(-self.sent, -self.null)


@dataclass(frozen=True)
class TrialScores:
    """Scores of an observer: held-out trials that choose the threshold, and trials that test it."""

    held_out: Scores
    test: Scores


class TradeOffCurves(Protocol):
    """A family of trade-off curves, one for every μ; a smaller μ has a higher curve."""

    def estimated_mu(self, hit_rates: FloatArray, false_rates: FloatArray) -> FloatArray:
        """A quick estimate ``[t]`` of `mu_lower`, used to choose a threshold.

        ``hit_rates``, ``false_rates``: true- and false-positive rates ``[t]``.
        """

    def mu_lower(self, hit_rates: FloatArray, false_rates: FloatArray) -> FloatArray:
        """Largest μ ``[t]`` whose trade-off curve rules a test's rates out; 0 if every curve allows them.

        ``hit_rates``, ``false_rates``: true- and false-positive rates ``[t]``.
        """

    def epsilon(self, mu: float, *, delta: float) -> float:
        """ε at ``delta`` of the trade-off curve with parameter ``mu``."""


@dataclass(frozen=True)
class GaussianMixtureCurves:
    """Trade-off curves of N(0, 1) against N(√n μ, 1), n a visible random number: a mixture for every μ.

    Attributes:
        times: values of n, ``[k]``; just 1 for the plain Gaussian curves.
        probabilities: their probabilities, ``[k]``.
    """

    times: FloatArray
    probabilities: FloatArray

    @classmethod
    def gaussian(cls) -> GaussianMixtureCurves:
        """The trade-off curves of one Gaussian release that always uses the unit."""
        return cls(np.ones(1), np.ones(1))

    @classmethod
    def participations(cls, rounds: int, rate: float) -> GaussianMixtureCurves:
        """The trade-off curves towards an observer that sees in which of ``rounds`` the unit takes part.

        ``rate``: probability that the unit takes part in a round. Numbers of rounds with very small
        probability are counted as no participation, which only lowers the bound.
        """
        times = np.arange(rounds + 1)
        chances = stats.binom.pmf(times, rounds, rate)
        likely = (chances > 1e-12) | (times == 0)
        kept = np.where(times == 0, chances + chances[~likely].sum(), chances)
        return cls(times[likely].astype(np.float64), kept[likely])

    def hit_rates(self, false_rates: FloatArray, mu: FloatArray) -> FloatArray:
        """Largest true-positive rate ``[t]`` of a test at a false-positive rate, on the curve of a μ.

        Args:
            false_rates: false-positive rates that a test may have at most, ``[t]``.
            mu: the μ of the curve to read each at, ``[t]``.
        """
        if self._is_single_gaussian:
            return np.asarray(special.ndtr(special.ndtri(false_rates) + mu * math.sqrt(self.times[0])))
        low, high = np.full_like(mu, -_LARGEST_MU), np.full_like(mu, _LARGEST_MU)
        for _ in range(60):  # bisection for the log-likelihood ratio above which the test rejects
            middle = (low + high) / 2
            too_often = self._exceedance_probabilities(middle, mu)[0] > false_rates
            low, high = np.where(too_often, middle, low), np.where(too_often, high, middle)
        false, hits = self._exceedance_probabilities(high, mu)
        spare = np.exp(np.minimum(high, 700.0)) * np.maximum(0.0, false_rates - false)
        return np.asarray(np.minimum(1.0, hits + spare))

    @property
    def _is_single_gaussian(self) -> bool:
        """Whether there is one Gaussian and no mixture."""
        return len(self.times) == 1

    def _exceedance_probabilities(
        self, log_ratio: FloatArray, mu: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Chances, in the two worlds, that the likelihood ratio exceeds ``exp(log_ratio)``, ``[t]``.

        Of the test between both hypotheses on the curve of each ``mu`` ``[t]``: false-positive rate, hit
        rate.
        """
        shift, ratio = mu[:, None] * np.sqrt(self.times), log_ratio[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            false = np.where(shift > 0, special.ndtr(-ratio / shift - shift / 2), ratio < 0)
            hits = np.where(shift > 0, special.ndtr(shift / 2 - ratio / shift), ratio < 0)
        return false @ self.probabilities, hits @ self.probabilities

    def estimated_mu(self, hit_rates: FloatArray, false_rates: FloatArray) -> FloatArray:
        """`mu_lower` of ``hit_rates`` and ``false_rates`` itself, ``[t]``, since it is quick here."""
        return self.mu_lower(hit_rates, false_rates)

    def epsilon(self, mu: float, *, delta: float) -> float:
        """ε at ``delta`` of the trade-off curve with parameter ``mu``."""
        shifts = mu * np.sqrt(self.times)
        high = gaussian.epsilon(delta=delta, mu=float(shifts.max()))
        if self._is_single_gaussian:
            return high
        low = 0.0
        for _ in range(60):
            middle = (low + high) / 2
            if float(self.probabilities @ gaussian.delta(epsilon=middle, mu=shifts)) > delta:
                low = middle
            else:
                high = middle
        return high

    def mu_lower(self, hit_rates: FloatArray, false_rates: FloatArray) -> FloatArray:
        """Largest μ ``[t]`` whose trade-off curve rules a test's rates out; 0 if every curve allows them.

        ``hit_rates``, ``false_rates``: true- and false-positive rates ``[t]``.
        """
        if self._is_single_gaussian:
            gap = special.ndtri(hit_rates) - special.ndtri(false_rates)
            return np.asarray(np.maximum(gap / math.sqrt(self.times[0]), 0.0))
        low, high = np.zeros_like(hit_rates), np.full_like(hit_rates, _LARGEST_MU)
        for _ in range(40):
            middle = np.sqrt(np.maximum(low, 1e-6) * high)
            refuted = self.hit_rates(false_rates, middle) < hit_rates
            low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
        return np.where(hit_rates > false_rates, low, 0.0)


@dataclass(frozen=True)
class ComposedCurves:
    """Trade-off curves of the terms that the accountant composes, with the noise divided by μ.

    Their ε and δ are computed as the accountant does, rounded up on its grid. So a refuted claim is certainly
    refuted, and ε can be compared with the accountant's own for that μ.

    Attributes:
        terms: at μ = 1.
        neighbours: their neighbouring relation.
        failure_probability: probability that there is no protection, for any μ.
    """

    terms: tuple[GaussianTerm, ...]
    neighbours: Neighbours = "zero-out"
    failure_probability: float = 0.0

    @classmethod
    def subsampled(cls, rounds: int, rate: float) -> ComposedCurves:
        """The curves of ``rounds`` Gaussian releases, each on an unseen Poisson draw at ``rate``."""
        return cls((GaussianTerm(1.0, rounds, Sampling.poisson(rate)),))

    def estimated_mu(self, hit_rates: FloatArray, false_rates: FloatArray) -> FloatArray:
        """A quick estimate ``[t]`` of `mu_lower`, as if all terms together were one Gaussian release."""
        return GaussianMixtureCurves.gaussian().mu_lower(hit_rates, false_rates)

    def mu_lower(self, hit_rates: FloatArray, false_rates: FloatArray) -> FloatArray:
        """Largest μ ``[t]`` whose trade-off curve rules a test's rates out; 0 if every curve allows them.

        ``hit_rates``, ``false_rates``: true- and false-positive rates ``[t]``. By bisection; the accountant
        composes the terms at every step.
        """
        return np.array([self._mu_lower(h, f) for h, f in zip(hit_rates, false_rates, strict=True)])

    def epsilon(self, mu: float, *, delta: float) -> float:
        """ε at ``delta``, above `failure_probability`, of the trade-off curve of ``mu``; 0 for 0."""
        return self._curve_at(mu).epsilon(delta - self.failure_probability) if mu > 0 else 0.0

    def _curve_at(self, mu: float) -> PrivacyCurve:
        """The privacy curve of the terms with all noise divided by ``mu``."""
        scaled = (replace(term, multiplier=term.multiplier / mu) for term in self.terms)
        return compose(scaled, neighbours=self.neighbours)

    def _mu_lower(self, hit_rate: float, false_rate: float) -> float:
        """The largest ``mu``, by bisection, that these rates refute: a lower bound.

        ``hit_rate`` and ``false_rate``: of true and of false positives.
        """
        whole = math.sqrt(sum(term.count / term.multiplier**2 for term in self.terms))
        hits, false = (
            max(0.0, hit_rate - self.failure_probability),
            min(1.0, false_rate + self.failure_probability),
        )
        # the start is refuted even if the unit takes part in every round; ``most`` limits the search
        gap = self.estimated_mu(np.array([hits]), np.array([false]))
        low = float(gap[0]) / whole
        high = low * math.sqrt(2)
        most = 4 * low / min(term.rate for term in self.terms)
        # upwards: composing takes longer for a larger μ
        while 0 < high < most and self._refuted(high, hit_rate, false_rate):
            low, high = high, high * math.sqrt(2)
        for _ in range(3 if low > 0 else 0):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self._refuted(middle, hit_rate, false_rate) else (low, middle)
        return low

    def _refuted(self, mu: float, hit_rate: float, false_rate: float) -> bool:
        """Whether the rates of a test are impossible on the curve of ``mu``, at some ε.

        That is where ``hit_rate`` > e^ε ``false_rate`` + δ(ε), or the same of the opposite guess.
        """
        profile = self._curve_at(mu)
        for epsilon in np.linspace(0, profile.epsilon(1e-5), 20):
            delta, factor = profile.delta(float(epsilon)) + self.failure_probability, math.exp(epsilon)
            if hit_rate > factor * false_rate + delta or 1 - false_rate > factor * (1 - hit_rate) + delta:
                return True
        return False


_BoundOfRates = Callable[[Scores, FloatArray], FloatArray]


def epsilon_by_counting(held_out: Scores, test: Scores, *, delta: float, error: float) -> float:
    """Lower bound on ε at ``delta`` from counted hits and false alarms, valid for any mechanism.

    Args:
        held_out: trials on which direction and threshold are chosen.
        test: other trials, on which these are tested.
        delta: δ.
        error: probability that the bound is wrong.
    """

    def bounds(scores: Scores, thresholds: FloatArray) -> FloatArray:
        hits, false = _rate_bounds(scores, thresholds, error)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(hits > delta, np.log((hits - delta) / false), -np.inf)

    scores, threshold = _with_best_threshold(held_out, test, bounds)
    return max(0.0, float(bounds(scores, threshold)[0]))


def mu_by_curve(held_out: Scores, test: Scores, curves: TradeOffCurves, *, error: float) -> float:
    """Lower bound on μ if the mechanism's trade-off curve is one of ``curves``; 0 if every curve fits.

    Args:
        held_out: trials on which direction and threshold are chosen.
        test: other trials, on which these are tested.
        curves: trade-off curves, one for each μ.
        error: probability that the bound is wrong.
    """

    def estimated_mu(scores: Scores, thresholds: FloatArray) -> FloatArray:
        return curves.estimated_mu(*_rate_bounds(scores, thresholds, error))

    scores, threshold = _with_best_threshold(held_out, test, estimated_mu)
    return float(curves.mu_lower(*_rate_bounds(scores, threshold, error))[0])


def _with_best_threshold(
    held_out: Scores, test: Scores, bound_of: _BoundOfRates
) -> tuple[Scores, FloatArray]:
    """Choose direction and threshold on held-out trials.

    Returns the test trials, swapped if that direction is better, and the threshold ``[1]``. ``bound_of``:
    the bound that counts above thresholds give.
    """
    best = (-math.inf, test, 0.0)
    for mine, theirs in ((held_out, test), (held_out.swapped, test.swapped)):
        thresholds = _candidate_thresholds(mine)
        values = bound_of(mine, thresholds)
        place = int(np.nanargmax(values))
        best = max(best, (float(values[place]), theirs, float(thresholds[place])), key=lambda found: found[0])
    return best[1], np.array([best[2]])


def _candidate_thresholds(scores: Scores) -> FloatArray:
    """Thresholds to try, ascending: ``scores`` at evenly spaced ranks, and the largest null ones.

    The ranks are among the scores of both hypotheses.
    """
    both = np.sort(np.concatenate([scores.null, scores.sent]))
    places = np.unique(np.linspace(0, len(both) - 1, min(_CANDIDATES, len(both))).round().astype(int))
    # every one of the highest scores, where there are few false alarms
    return np.unique(np.concatenate([both[places], np.sort(scores.null)[-20:]]))


def _rate_bounds(scores: Scores, thresholds: npt.ArrayLike, error: float) -> tuple[FloatArray, FloatArray]:
    """Lower bounds of the true-positive, upper bounds of the false-positive rate at ``thresholds`` ``[n]``.

    Each ``[n]``. At a threshold both hold together with probability at least 1 - ``error``.
    """
    false, hits = scores.counts_above(thresholds)
    return (
        least_probability(hits, len(scores.sent), error=error / 2),
        largest_probability(false, len(scores.null), error=error / 2),
    )


def least_probability(hits: npt.ArrayLike, trials: int, *, error: float) -> FloatArray:
    """Lower bound on a probability, wrong with probability at most ``error`` (Clopper and Pearson 1934).

    Args:
        hits: number of trials in which the event happened, a number or an array.
        trials: number of independent trials.
        error: in (0, 1).

    Returns:
        The bound, of the shape of ``hits``.
    """
    k = _checked_counts(hits, trials, error)
    with np.errstate(invalid="ignore"):
        found = special.betaincinv(k, trials - k + 1, error)
    return np.where(k == 0, 0.0, found)


def largest_probability(hits: npt.ArrayLike, trials: int, *, error: float) -> FloatArray:
    """Upper bound on a probability, wrong with probability at most ``error`` (Clopper and Pearson 1934).

    Args:
        hits: number of trials in which the event happened, a number or an array.
        trials: number of independent trials.
        error: in (0, 1).

    Returns:
        The bound, of the shape of ``hits``.
    """
    return 1.0 - least_probability(trials - _checked_counts(hits, trials, error), trials, error=error)


def _checked_counts(hits: npt.ArrayLike, trials: int, error: float) -> FloatArray:
    """``hits`` as an array; ValueError unless all are 0 to ``trials`` and ``error`` is between 0 and 1."""
    k = np.asarray(hits, dtype=np.float64)
    if not (trials > 0 and np.all((k >= 0) & (k <= trials))):
        raise ValueError(f"hits: got {k.tolist()} of {trials} trials; must be 0 to trials, of one or more")
    if not 0 < error < 1:
        raise ValueError(f"error: got {error}; must be in (0, 1)")
    return k
