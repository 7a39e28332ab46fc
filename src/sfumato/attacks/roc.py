"""ROC curves of scores of members and non-members, with exact confidence bounds.

An average over all thresholds does not show whether some members are identified with almost no false alarm
(Carlini et al. 2022). So the true-positive rate at fixed low false-positive rates is reported first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from sfumato.auditing.tradeoff import largest_probability, least_probability

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LOW_RATES = (0.001, 0.01)
ERROR = 0.05


@dataclass(frozen=True)
class Estimate:
    """A measured share with a confidence interval.

    Attributes:
        value: as measured.
        low: lower end.
        high: upper end.
    """

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        """The keys ``value``, ``low`` and ``high``, as in the JSON file of an attack."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, eq=False)
class ROC:
    """Decisions "member" at every threshold, the strictest first.

    Attributes:
        true_positives: members above each threshold, ``[k]``, from 0 to ``members``.
        false_positives: non-members above it, ``[k]``, from 0 to ``non_members``.
        members: number of trials with a member.
        non_members: number of trials with a non-member.
    """

    true_positives: IntArray
    false_positives: IntArray
    members: int
    non_members: int

    @classmethod
    def of(cls, members: npt.ArrayLike, non_members: npt.ArrayLike) -> Self:
        """The ROC curve of an attack's scores, which are larger for members.

        Args:
            members: scores of members, ``[m]``.
            non_members: scores of non-members, ``[n]``.

        Raises:
            ValueError: one of them is empty, or a score is not a number.
        """
        inside, outside = (np.asarray(scores, dtype=np.float64).ravel() for scores in (members, non_members))
        scores = np.concatenate([inside, outside])
        if not (len(inside) and len(outside)) or np.isnan(scores).any():
            raise ValueError("scores: must contain members and non-members, and no NaN")
        order = np.argsort(-scores, kind="stable")
        ranked, is_member = scores[order], (order < len(inside)).astype(np.int64)
        # equal scores get equal decisions, so thresholds lie only between different scores
        ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
        true = np.concatenate([[0], np.cumsum(is_member)[ends]])
        false = np.concatenate([[0], np.cumsum(1 - is_member)[ends]])
        return cls(true, false, len(inside), len(outside))

    @property
    def tpr(self) -> FloatArray:
        """True-positive rate at every threshold, ``[k]``."""
        return self.true_positives / self.members

    @property
    def fpr(self) -> FloatArray:
        """False-positive rate at every threshold, ``[k]``."""
        return self.false_positives / self.non_members

    @property
    def auc(self) -> Estimate:
        """Area under the curve: the probability that a member scores above a non-member, ties counted half.

        By Hoeffding (1963, section 5) a two-sample U-statistic is as concentrated as a mean of ``min(members,
        non_members)`` independent values in [0, 1], so Chernoff's bound gives the 95 % interval.
        """
        value = float(np.trapezoid(self.tpr, self.fpr))
        value = min(1.0, max(0.0, value))
        room = math.log(2 / ERROR) / min(self.members, self.non_members)
        return Estimate(value, *_chernoff_interval(value, room))

    def tpr_at(self, rate: float) -> Estimate:
        """True-positive rate at the loosest threshold whose measured false-positive rate is at most ``rate``.

        Non-members choose the threshold and members are counted at it, so Clopper and Pearson's 95 % interval
        is exact. With fewer than ``1 / rate`` non-members it is the threshold without any false alarm.
        """
        at = int(np.flatnonzero(self.false_positives <= rate * self.non_members)[-1])
        hits = int(self.true_positives[at])
        low = float(least_probability(hits, self.members, error=ERROR / 2))
        high = float(largest_probability(hits, self.members, error=ERROR / 2))
        return Estimate(hits / self.members, low, high)

    def exceeds(self, *, epsilon: float, delta: float, error: float) -> bool:
        """Whether some threshold exceeds what (ε, δ) allows; wrong with probability at most ``error``.

        A threshold counts only if the lower confidence bound of its true-positive rate is above
        ``exp(epsilon) * fpr + delta`` at the upper confidence bound of its false-positive rate, or the same
        holds for the decisions "not a member".

        Thresholds are scores, so they depend on the trials. The share of all members above the j-th largest
        of m members' scores has distribution Beta(j, m - j + 1) (or is larger, with ties), whose quantile is
        Clopper and Pearson's bound; between two members' scores the bound at the higher one holds as well. So
        one bound for each trial holds at the same time, and together they use ``error``.
        """
        if math.isinf(epsilon):
            return False
        each = error / (self.members + self.non_members)
        tpr_low = least_probability(self.true_positives, self.members, error=each)
        fpr_high = largest_probability(self.false_positives, self.non_members, error=each)
        factor = math.exp(min(epsilon, 700.0))  # beyond any rate
        above = tpr_low > factor * fpr_high + delta
        below = 1 - fpr_high > factor * (1 - tpr_low) + delta
        return bool((above | below).any())

    def to_dict(self) -> dict[str, Any]:
        """The curve as JSON: corners with 95 % bands, AUC, and true-positive rates at `LOW_RATES`."""
        at = self._corners()
        low = least_probability(self.true_positives[at], self.members, error=ERROR / 2)
        high = largest_probability(self.true_positives[at], self.members, error=ERROR / 2)
        return {
            "members": self.members,
            "others": self.non_members,
            "auc": self.auc.to_dict(),
            "tpr_at": {f"{rate:g}": self.tpr_at(rate).to_dict() for rate in LOW_RATES},
            "curve": {
                "fpr": self.fpr[at].tolist(),
                "tpr": self.tpr[at].tolist(),
                "tpr_low": low.tolist(),
                "tpr_high": high.tolist(),
            },
        }

    def _corners(self) -> IntArray:
        """Ascending indices of the best point at every false-positive rate but those that others imply."""
        best = np.append(np.flatnonzero(np.diff(self.false_positives)), len(self.false_positives) - 1)
        rises = np.flatnonzero(np.diff(self.true_positives[best], prepend=-1))
        kept = np.union1d(best[rises], best[[-1]])
        return kept.astype(np.int64)


def pooled_roc(curves: Sequence[tuple[FloatArray, FloatArray]]) -> ROC:
    """One ROC curve of the trials of several targets.

    ``curves``: for each target the scores ``[members]`` and ``[non-members]``, higher for members.
    """
    return ROC.of(np.concatenate([a for a, _ in curves]), np.concatenate([b for _, b in curves]))


def _chernoff_interval(value: float, room: float) -> tuple[float, float]:
    """The interval of means in [0, 1] whose relative entropy from ``value`` is within ``room`` nats."""

    def excess(mean: float) -> float:
        return float(special.rel_entr(value, mean) + special.rel_entr(1 - value, 1 - mean)) - room

    tiny = 1e-12
    low = 0.0 if value <= tiny or excess(tiny) < 0 else optimize.brentq(excess, tiny, value)
    high = 1.0 if value >= 1 - tiny or excess(1 - tiny) < 0 else optimize.brentq(excess, value, 1 - tiny)
    return float(low), float(high)
