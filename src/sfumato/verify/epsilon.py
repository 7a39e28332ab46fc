"""ε of terms by the method that a row names, against the stated one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy import special

from sfumato.verify import read
from sfumato.verify.comparison import mismatch_of
from sfumato.verify.composition import epsilon_on_grid, least_epsilon_below_delta
from sfumato.verify.loss_curves import CURVES, TAIL, Event, chance_of_any, gaussian_delta
from sfumato.verify.read import Array, Json, UnknownKindError

STATED_TOO_LOW = 1e-6
"""Relative rounding that is allowed where a stated ε is below the recomputed one."""
STATED_ABOVE = {"gdp": 1e-6, "pld": 0.03}
"""How far a stated ε may be above the recomputed one: closed forms not at all, distributions by what a
coarser grid and merged multipliers cost."""
LEAST_INTERVAL = 1e-12
"""Of the grid of the privacy losses, which takes memory."""
MOST_VALUES, MOST_PRODUCTS = 1 << 17, 1 << 14
"""Of a sum of independent variables, before it is rounded up, or shared out on a grid."""
MOST_POINTS = 1 << 23
"""Of a grid that is twice as fine as the stated one."""
NEGLIGIBLE = 1e-30
"""Probability of a value that is left out."""


def epsilon_of_mixture(squares: Array, chances: Array, lost: float, delta: float) -> float:
    """ε at ``delta`` of a Gaussian release whose μ² is random and known to everybody.

    Args:
        squares: the values of μ², one or more, ``[values]``.
        chances: their probabilities ``[values]``.
        lost: probability that is charged to δ in full.
        delta: δ in (0, 1).

    Returns:
        ε ≥ 0; ∞ where ``lost`` is all of ``delta``, or a μ² is infinite.
    """
    if lost >= delta or math.isinf(float(squares.max())):
        return math.inf
    mus = np.sqrt(squares)
    top = float(mus.max())
    above = top * (top / 2 - float(special.ndtri(delta - lost))) if top > 0 else 0.0
    return least_epsilon_below_delta(
        lambda e: float(chances @ gaussian_delta(e, mus)) + lost, delta, max(above, 1e-300)
    )


def binomial_law(count: int, rate: float) -> tuple[Array, Array, float]:
    """Binomial(count, rate): values, their probabilities, and the probability of the values left out.

    Values are left out that are less likely than 1e-30 each.
    """
    times = np.arange(count + 1, dtype=np.float64)
    ways = special.gammaln(count + 1.0) - special.gammaln(times + 1) - special.gammaln(count - times + 1)
    chances = np.exp(ways + special.xlogy(times, rate) + special.xlog1py(count - times, -rate))
    kept = chances > NEGLIGIBLE
    return times[kept], chances[kept], float(chances[~kept].sum())


def sum_of_independent(
    values: Array, chances: Array, more: Array, weights: Array
) -> tuple[Array, Array, float]:
    """Distribution of the sum of two independent variables; values are rounded up to a grid if too many.

    Args:
        values: of the first variable.
        chances: their probabilities.
        more: values of the second variable.
        weights: their probabilities.

    Returns:
        Values, their probabilities, and the probability of values left out, less likely than 1e-30 each.
    """
    sums = np.add.outer(values, more).ravel()
    products = np.outer(chances, weights).ravel()
    if len(sums) > MOST_VALUES:
        step = (sums.max() - sums.min()) / MOST_VALUES
        cells = np.ceil((sums - sums.min()) / step).astype(np.int64)
        products = np.bincount(cells, products).astype(np.float64)
        sums = (sums.min() + step * np.arange(cells.max() + 1)).astype(np.float64)
    kept = products > NEGLIGIBLE
    return sums[kept], products[kept], float(products[~kept].sum())


def epsilon_of_seen_draws(terms: Sequence[Event], delta: float) -> float:
    """ε at ``delta`` of terms whose draws everybody sees, by a finite mixture of Gaussian curves.

    0 without terms; ∞ where the probability that nothing protects is ``delta`` or more.
    """
    sure = math.fsum(t.square * t.count for t in terms if t.rate == 1 and t.kind != "visible")
    squares, chances, lost = np.array([sure]), np.ones(1), 0.0
    for term in terms:
        if term.kind == "visible":
            sums, weights = law_of_summed_outcomes(term)
            squares, chances, more = sum_of_independent(squares, chances, sums, weights)
            lost += more
        elif 0 < term.rate < 1 and math.isfinite(float(squares.max())):
            if math.isinf(term.square):
                lost += chance_of_any(term.rate, term.count)
                continue
            times, weights, left_out = binomial_law(term.count, term.rate)
            squares, chances, more = sum_of_independent(squares, chances, term.square * times, weights)
            lost += left_out + more
    return epsilon_of_mixture(squares, chances, lost, delta)


def law_of_summed_outcomes(term: Event) -> tuple[Array, Array]:
    """The distribution of Σ μ² over all releases of a ``visible`` term, as if every draw were seen.

    A release has one of the outcomes that ``term.detail`` lists as (probability, factor on μ², rate): at that
    rate it uses the unit, with μ² = ``term.square`` times the factor; else its μ² is 0.

    Args:
        term: of the kind ``visible``; its ``square`` is finite.

    Returns:
        Values, ascending, and their probabilities, which add up to 1. Where there are many values, one
        between two points of a grid is divided between them so that the mean stays: what that changes is of
        the order of the grid's step squared, far below the rounding that a stated ε may have.
    """
    told: dict[float, float] = {}
    for chance, ratio, rate, *_ in term.detail:
        for square, share in ((term.square * ratio, chance * rate), (0.0, chance * (1 - rate))):
            told[square] = told.get(square, 0.0) + share
    power = np.array(sorted(told)), np.array([told[square] for square in sorted(told)])
    total = np.zeros(1), np.ones(1)
    count = term.count
    while count:
        total = _law_of_sum(total, power) if count % 2 else total
        count //= 2
        power = _law_of_sum(power, power) if count else power
    return total


def _law_of_sum(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """The distribution of the sum of two independent variables with the laws ``one`` and ``other``.

    Each is a pair of values, ascending, and their probabilities. Where there are many pairs, on an even grid:
    every value is split between its two neighbours so that its mean is kept, and negligible probabilities at
    the ends are left out.
    """
    first, last = one[0][0] + other[0][0], one[0][-1] + other[0][-1]
    if len(one[0]) * len(other[0]) <= MOST_PRODUCTS:
        values, places = np.unique(np.add.outer(one[0], other[0]).ravel(), return_inverse=True)
        chances = np.bincount(places.ravel(), np.outer(one[1], other[1]).ravel())
        return values, np.asarray(chances, dtype=np.float64)
    step = (last - first) / MOST_PRODUCTS
    parts: list[Array] = []
    for values, weights in (one, other):
        places = (values - values[0]) / step
        cells = np.floor(places).astype(np.int64)
        above = places - cells
        held = np.bincount(cells, weights * (1 - above), cells[-1] + 2)
        parts.append(np.asarray(held + np.bincount(cells + 1, weights * above, cells[-1] + 2)))
    together = np.convolve(parts[0], parts[1])
    kept = np.flatnonzero(together > NEGLIGIBLE)
    inner = slice(int(kept[0]), int(kept[-1]) + 1)
    return first + step * np.arange(len(together), dtype=np.float64)[inner], together[inner]


def recomputed_epsilon(terms: Iterable[Event], method: str, delta: float, interval: float | None) -> float:
    """ε ≥ 0 at ``delta`` of all ``terms`` composed.

    Args:
        terms: what is composed; equal terms are merged.
        method: ``gdp`` for the closed form and mixtures of Gaussians, else losses on a grid.
        delta: δ in (0, 1).
        interval: step of the grid of losses, in nats; ``None`` for 1e-4.

    Raises:
        UnknownKindError: a term is of a kind without a curve.
    """
    charged = merge_equal_terms(terms)
    require_known_kinds(charged)
    return _epsilon_of_merged_terms(tuple(charged), method, delta, interval)


def require_known_kinds(events: Iterable[Event]) -> None:
    """Raise `UnknownKindError` if an event is of a kind that this checker has no privacy curve for."""
    for event in events:
        if event.kind not in CURVES:
            raise UnknownKindError(f"event: this checker has no rule for the kind {event.kind!r}")


@lru_cache(maxsize=4096)
def _epsilon_of_merged_terms(
    terms: tuple[Event, ...], method: str, delta: float, interval: float | None
) -> float:
    """Compute ε ≥ 0 at ``delta`` of the composition of ``terms``; the last 4096 results are kept.

    Args:
        terms: each listed once, with its count, and of a known kind; none gives 0.
        method: ``gdp`` for the closed form and mixtures of Gaussians, else losses on a grid.
        delta: δ in (0, 1).
        interval: step of the stated grid of losses in nats; ``None`` for 1e-4. It is halved where memory
            allows.

    Returns:
        ε, the larger one of both directions; ∞ if a release without noise uses the unit for certain, or, on a
        grid, ever.
    """
    if any(math.isinf(t.square) and t.rate == 1 for t in terms):
        return math.inf
    if method == "gdp":
        noised = [_with_least_noise(t) for t in terms]
        if any(math.isinf(t.square) for t in noised if t.kind == "visible"):
            return math.inf  # of what is left, only outcomes with noise have a distribution of μ²
        return epsilon_of_seen_draws(noised, delta)
    if any(math.isinf(t.square) for t in terms):
        return math.inf
    grid = interval or 1e-4
    certain = math.fsum(t.square * t.count for t in terms if t.kind == "unsampled")
    others = [t for t in terms if t.kind != "unsampled"]
    pieces = [*others, Event(certain, 1)] if certain > 0 else others
    points = sum((_loss_range(t) / grid) * min(t.count * t.rate + 1, 64) for t in pieces)
    fine = grid / 2 if points < MOST_POINTS else grid
    directions = (True,) if all(_is_symmetric(term) for term in pieces) else (True, False)
    return max((epsilon_on_grid(pieces, delta, fine, way) for way in directions if pieces), default=0.0)


def _is_symmetric(term: Event) -> bool:
    """Whether the privacy losses of a term have the same distribution in both directions."""
    if term.kind in ("fixed", "replaced"):
        return bool(term.detail[0] == term.detail[1])
    return term.kind in ("unsampled", "revealed") or (term.kind == "batches" and bool(term.detail[0]))


def _with_least_noise(term: Event) -> Event:
    """A ``visible`` term as one that has its least noise in every round, which is an upper bound.

    Any other term, and one whose every draw is seen, as it is.
    """
    inner = {rate for _, ratio, rate, *_ in term.detail if ratio > 0} if term.kind == "visible" else set()
    if term.kind != "visible" or term.rate == 1 or (1.0 in inner and len(inner) > 1):
        return term
    largest = max(ratio for _, ratio, *_ in term.detail)
    return Event(term.square * largest, term.count, "revealed", term.rate)


def _loss_range(term: Event) -> float:
    """A bound on the absolute privacy loss of one release, exceeded with probability below 1e-20."""
    return float(term.square + 2 * TAIL * term.mu)


def merge_equal_terms(terms: Iterable[Event]) -> list[Event]:
    """A sorted list of ``terms`` in which equal ones are one `Event` with the sum of their counts.

    Terms with count, rate or μ² of 0 are left out; a draw at rate 1 becomes a release without a draw.
    """
    counts: Counter[Event] = Counter()
    for term in terms:
        if term.count > 0 and term.square > 0 and term.rate > 0:
            plain = term if term.rate < 1 or term.kind == "visible" else Event(term.square, 1)
            counts[replace(plain, count=1)] += term.count
    return sorted(replace(term, count=count) for term, count in counts.items())


def epsilon_problems(cert: Json, terms: tuple[Event, ...], failure: float, delta: float) -> Iterator[str]:
    """Yield a line where a certificate's ε is below the recomputed one, or above it by more than rounding.

    Args:
        cert: the certificate of one bound.
        terms: the terms that are composed.
        failure: probability that nothing protects, taken off ``delta``.
        delta: δ of the row.

    Raises:
        UnknownKindError: this checker has no rule for the method or for the kind of a term.
    """
    stated, method = read.figure(cert["epsilon"]), str(cert["method"])
    if method not in STATED_ABOVE:
        raise UnknownKindError(f"method: this checker has no rule for the kind {method!r}")
    interval = None if cert["losses"]["interval"] is None else read.figure(cert["losses"]["interval"])
    if interval is not None and not LEAST_INTERVAL <= interval <= 1:
        yield f"losses: interval: {interval} is no grid; must be from {LEAST_INTERVAL} to 1"
        return
    yield from mismatch_of("losses: direction", cert["losses"]["direction"], "rounded up")
    above = STATED_ABOVE["pld" if any(term.kind == "visible" for term in terms) else method]
    found = math.inf
    if failure < delta:
        found = recomputed_epsilon(terms, method, delta - failure, interval)
    if stated == found:
        return
    if not stated >= found * (1 - STATED_TOO_LOW) - 1e-12:
        yield f"ε: stated {stated:.9g}; recomputed {found:.9g}, which is more"
    elif math.isinf(stated) and any(math.isinf(term.square) for term in terms):
        return  # that releases without noise are rare enough for δ need not be claimed
    elif math.isinf(stated) or stated > found * (1 + above) + 1e-9:
        yield f"ε: stated {stated:.9g}; recomputed {found:.9g}, which is less than rounding explains"
