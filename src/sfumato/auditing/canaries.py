"""One run with many canaries: a fair coin decides whether each exchangeable device sends its own direction.

It gives a rigorous but small lower bound on ε and an estimate, without replaying thousands of trainings. The
messages of other canaries hide a canary as noise does; with few canaries, or in few dimensions, both results
are weak.

*The bound* (Steinke, Nasr and Jagielski 2023). Each of m canaries is put in or left out by a fair coin. The
auditor sees the run's output, guesses ``r`` of the coins and abstains on the rest. If the run is (ε, δ)-DP in
every canary, then the chance of ``v`` or more right guesses is at most

    β + 2 m δ max_{1≤i≤m} (P[v > W ≥ v − i] / i),   β = P[W ≥ v],   W ~ Binomial(r, 1/(1 + e^{−ε}))

(their Theorem 5.2). The largest ε that this refutes at the stated error is the bound. The canaries are in one
run and need not be independent. The bound is far below that of as many independent trials, because each
canary adds to what hides the others.

*The estimate* (Andrew et al. 2023). In d dimensions a random direction has a cosine of about N(0, 1/d) with
anything that does not depend on it. Cosines of what an observer saw with the directions that were put in are
fitted by N(m, s²), and ε is that of distinguishing the two normals. It is exact for a Gaussian mechanism as d
and the number of canaries grow. At finite d, or for other mechanisms, it may be too small or too large, so it
is never compared with an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import optimize, special, stats

from sfumato.auditing.harness import AuditHarness
from sfumato.auditing.trials import RoundTests, null_update
from sfumato.privacy.guarantee import json_number
from sfumato.privacy.sampling import Neighbours
from sfumato.random import Stream, generator, seed_at

FloatArray = npt.NDArray[np.float64]
_DIMENSIONS = 4096
_FEWEST_CANARIES, _MOST_CANARIES = 20, 200
_LEAST_TO_ESTIMATE = 64
_LARGEST_BOUND, _LARGEST_ESTIMATE = 100.0, 1e4


@dataclass(frozen=True)
class OneRun:
    """The results of one run with canaries.

    Attributes:
        canaries: number of canaries.
        lower: bound on ε (Steinke, Nasr and Jagielski 2023), wrong with probability at most ``error``.
        error: error probability of ``lower``; larger than that of replayed trials, as one run shows little.
        estimate: of ε (Andrew et al. 2023), not a bound; ``None`` with too few canaries.
    """

    canaries: int
    lower: float
    error: float
    estimate: float | None

    def to_dict(self) -> dict[str, Any]:
        """The entry of ``audit --json``, a JSON object; an estimate that was not made is ``null``."""
        return {
            "canaries": self.canaries,
            "lower": self.lower,
            "error": self.error,
            "estimate": None if self.estimate is None else json_number(self.estimate),
        }


def one_run_audit(
    harness: AuditHarness,
    rounds: Sequence[RoundTests],
    neighbours: Neighbours,
    *,
    delta: float,
    error: float,
    seed: int,
) -> OneRun | None:
    """Audit by one simulation of all rounds, with a canary in each device exchangeable with the unit.

    A fair coin decides whether such a device sends its random direction, or (under zero-out) nothing, or
    (under replace) the opposite direction. Members of the coalition hold no office.

    Args:
        harness: simulates the rounds of the plan for one unit and one coalition.
        rounds: fitted tests of each round, whose statistics score the canaries.
        neighbours: the relation between neighbouring data sets.
        delta: δ of both results.
        error: probability that the lower bound is wrong.
        seed: of everything random.

    Returns:
        The result. ``None`` with too few canaries, and under remove: devices that leave a run change the
        denominators of its sums, so the canaries would not be independent.
    """
    units = harness.exchangeable_devices[:_MOST_CANARIES]
    mates = len(units)
    if mates < _FEWEST_CANARIES or neighbours == "remove":
        return None
    rng = generator(seed, Stream.AUDIT, 3)
    directions = rng.normal(size=(mates, _DIMENSIONS))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    coins = rng.random(mates) < 0.5
    signs = np.where(coins, 1.0, null_update(neighbours))
    updates = torch.from_numpy(signs[:, None] * directions * (1 - 1e-6)).float()
    seen = np.zeros_like(directions)
    for piece, learned in enumerate(rounds):
        observed = harness.simulate_canaries(piece, units, updates, seed_at(seed, Stream.AUDIT, 4, piece))
        for row, of_mate in enumerate(observed):
            for fitted, vectors in zip(learned.tests[0], of_mate, strict=True):
                seen[row] += fitted.combine(vectors, _DIMENSIONS)
    along = (seen * directions).sum(axis=1)
    lower = epsilon_from_scores(along, coins, delta=delta, error=error)
    lengths = np.linalg.norm(seen, axis=1)
    sent = coins & (lengths > 0)
    if sent.sum() < _LEAST_TO_ESTIMATE:  # too few to fit a variance
        return OneRun(mates, lower, error, None)
    cosines = along[sent] / lengths[sent]
    return OneRun(mates, lower, error, epsilon_estimate(cosines, _DIMENSIONS, delta=delta))


def probability_of_guesses(*, canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Bound on the probability of ``right`` or more right guesses under (epsilon, delta)-DP.

    Steinke, Nasr and Jagielski 2023, Theorem 5.2.

    Args:
        canaries: m, the number of canaries.
        guesses: r, the number of coins that are guessed.
        right: v, the number of right guesses.
        epsilon: ε ≥ 0.
        delta: δ in [0, 1].

    Raises:
        ValueError: not 0 ≤ right ≤ guesses ≤ canaries.
    """
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(f"right, guesses, canaries: got {right}, {guesses}, {canaries}; must not descend")
    rate = 1 / (1 + math.exp(-epsilon))
    beta = float(stats.binom.sf(right - 1, guesses, rate))
    if right == 0 or delta == 0:
        return beta
    below = stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, rate)
    worst = float((np.cumsum(below) / np.arange(1, right + 1)).max())
    return min(1.0, beta + 2 * canaries * delta * worst)


def epsilon_refuted_by_guesses(
    *, canaries: int, guesses: int, right: int, delta: float, error: float
) -> float:
    """The largest ε that the guesses refute at level ``error``, by `probability_of_guesses`; 0 if none.

    Args:
        canaries: m, the number of canaries.
        guesses: r, the number of coins that are guessed.
        right: v, the number of right guesses.
        delta: δ in [0, 1].
        error: probability that the bound is wrong.

    Raises:
        ValueError: not 0 ≤ right ≤ guesses ≤ canaries.
    """

    def refuted(epsilon: float) -> bool:
        chance = probability_of_guesses(
            canaries=canaries, guesses=guesses, right=right, epsilon=epsilon, delta=delta
        )
        return chance <= error

    low, high = 0.0, _LARGEST_BOUND
    if not refuted(low):
        return 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def epsilon_from_scores(
    scores: npt.ArrayLike, put_in: npt.ArrayLike, *, delta: float, error: float, shares: int = 10
) -> float:
    """The lower bound on ε from one score for each canary: the best over several numbers of guesses.

    The canaries with the highest scores are guessed to be in, as many with the lowest to be out. ``error`` is
    divided by the number of tries, so that the best bound may be reported.

    Args:
        scores: higher means more likely in, ``[m]``.
        put_in: whether each canary was put in, bool ``[m]``.
        delta: δ in [0, 1].
        error: probability that the bound is wrong.
        shares: how many numbers of guesses are tried, evenly spaced up to all canaries.
    """
    values, coins = np.asarray(scores, dtype=np.float64), np.asarray(put_in, dtype=np.bool_)
    order, half = np.argsort(values), len(values) // 2
    best = 0.0
    for share in range(1, shares + 1):
        each = max(1, half * share // shares)
        right = int(coins[order[-each:]].sum() + (~coins[order[:each]]).sum())
        best = max(
            best,
            epsilon_refuted_by_guesses(
                canaries=len(values), guesses=2 * each, right=right, delta=delta, error=error / shares
            ),
        )
    return best


def epsilon_estimate(cosines: npt.ArrayLike, dimension: int, *, delta: float) -> float:
    """An estimate, not a bound, of ε at ``delta``: of N(0, 1/d) against the normal that fits ``cosines``.

    Andrew et al. 2023.

    Args:
        cosines: of the observation with every canary that was put in, ``[canaries]``, two or more.
        dimension: d.
        delta: in (0, 1).

    Raises:
        ValueError: fewer than two canaries.
    """
    values = np.asarray(cosines, dtype=np.float64)
    if len(values) < 2:
        raise ValueError(f"cosines: got {len(values)}; must be two or more")
    mean = float(values.mean()) * math.sqrt(dimension)
    std = float(values.std(ddof=1)) * math.sqrt(dimension)
    return epsilon_between_normals(mean, std, delta=delta)


def epsilon_between_normals(mean: float, std: float, *, delta: float) -> float:
    """Smallest ε ≥ 0 at which N(0, 1) and N(mean, std²) are (ε, delta)-indistinguishable in both directions.

    ∞ where ``std`` is 0, or ε is above 1e4.
    """

    def excess(epsilon: float) -> float:
        there = _hockey_stick(0.0, 1.0, mean, std, epsilon)
        back = _hockey_stick(mean, std, 0.0, 1.0, epsilon)
        return max(there, back) - delta

    if std == 0:
        return math.inf
    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
        if high > _LARGEST_ESTIMATE:
            return math.inf
    return float(optimize.brentq(excess, 0.0, high, xtol=1e-9))


def _hockey_stick(mean_p: float, std_p: float, mean_q: float, std_q: float, epsilon: float) -> float:
    """The hockey-stick divergence sup_A P(A) − e^ε Q(A) of two normals, at ε = ``epsilon``.

    Means and standard deviations: ``mean_p`` and ``std_p`` of P, ``mean_q`` and ``std_q`` of Q. The set is
    where log p − log q > ε, which a quadratic bounds.
    """
    # log p − log q − ε = a x² + b x + c
    a = 0.5 / std_q**2 - 0.5 / std_p**2
    b = mean_p / std_p**2 - mean_q / std_q**2
    c = 0.5 * (mean_q / std_q) ** 2 - 0.5 * (mean_p / std_p) ** 2 + math.log(std_q / std_p) - epsilon
    if abs(a) < 1e-12 * max(1 / std_p**2, 1 / std_q**2):
        if b == 0:
            return max(0.0, 1 - math.exp(epsilon)) if c > 0 else 0.0
        pieces = [(-c / b, math.inf)] if b > 0 else [(-math.inf, -c / b)]
    else:
        square = b * b - 4 * a * c
        if square <= 0:
            pieces = [(-math.inf, math.inf)] if a > 0 else []
        else:
            low, high = sorted(((-b - math.sqrt(square)) / (2 * a), (-b + math.sqrt(square)) / (2 * a)))
            pieces = [(-math.inf, low), (high, math.inf)] if a > 0 else [(low, high)]
    total = 0.0
    for start, stop in pieces:
        total += _probability_between(start, stop, mean_p, std_p)
        log_q = math.log(max(_probability_between(start, stop, mean_q, std_q), 1e-300))
        total -= math.exp(min(epsilon + log_q, 700.0))
    return max(0.0, total)


def _probability_between(start: float, stop: float, mean: float, std: float) -> float:
    """P(start < X < stop) for a normal X of ``mean`` and ``std``, also far in the upper tail.

    There a difference of two probabilities near 1 would cancel.
    """
    low, high = (start - mean) / std, (stop - mean) / std
    if low > 0:
        low, high = -high, -low
    return float(special.ndtr(high) - special.ndtr(low))
