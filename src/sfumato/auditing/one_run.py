"""A lower bound on ε from many canaries in one run (Steinke, Nasr and Jagielski 2023).

Each of m canaries is put in or left out by a fair coin. The auditor sees the run's output, guesses ``r`` of
the coins and abstains on the rest. If the run is (ε, δ)-DP in every canary, then the chance of ``v`` or more
right guesses is at most

    β + 2 m δ max_{1≤i≤m} (P[v > W ≥ v − i] / i),   β = P[W ≥ v],   W ~ Binomial(r, 1/(1 + e^{−ε}))

(their Theorem 5.2). The largest ε that this refutes at the stated error is the bound. The canaries are in one
run and need not be independent. The bound is far below that of as many independent trials, because each
canary adds to what hides the others.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]
_LARGEST_EPSILON = 100.0


def probability_of_guesses(*, canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Bound on the chance of ``right`` or more right guesses under (epsilon, delta)-DP.

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


def epsilon_lower(*, canaries: int, guesses: int, right: int, delta: float, error: float) -> float:
    """Largest ε that the guesses refute at ``error``; 0 where they refute none."""

    def refuted(epsilon: float) -> bool:
        chance = probability_of_guesses(
            canaries=canaries, guesses=guesses, right=right, epsilon=epsilon, delta=delta
        )
        return chance <= error

    low, high = 0.0, _LARGEST_EPSILON
    if not refuted(low):
        return 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def epsilon_from_scores(
    scores: npt.ArrayLike, put_in: npt.ArrayLike, *, delta: float, error: float, shares: int = 10
) -> float:
    """The bound from one score per canary, larger if the canary was likely in: the best of several cuts.

    The highest scores are guessed to be in and as many of the lowest to be out. ``error`` is divided by the
    number of cuts that are tried, so that the best bound may be reported.

    Args:
        scores: ``[m]``.
        put_in: bool ``[m]``.
        delta: δ.
        error: of the whole statement.
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
            epsilon_lower(
                canaries=len(values), guesses=2 * each, right=right, delta=delta, error=error / shares
            ),
        )
    return best
