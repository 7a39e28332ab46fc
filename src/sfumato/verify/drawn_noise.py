"""Mixtures over who else adds noise: a stated one must have no less of μ² than the draws give."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from sfumato.verify import read
from sfumato.verify.comparison import ROUNDING, nearly_equal
from sfumato.verify.draws import (
    Draw,
    distance_ratios_of_replaced,
    is_amplified,
    same_terms,
    squared_mu_of_multiplier,
    stated_distance_ratios,
    stated_sensitivity,
    stated_term,
    terms_of_draw,
)
from sfumato.verify.epsilon import NEGLIGIBLE, binomial_law
from sfumato.verify.loss_curves import chance_of_any
from sfumato.verify.read import Array, Json

OF_A_CHANCE, LEAST_CHANCE = 1e-8, 1e-12
"""Relative and absolute rounding of the chances of a draw."""


def noise_of_drawn_others(draw: Draw) -> list[tuple[Array, Array, Array]]:
    """Distributions of the noise variance that other devices add if they are drawn, at most two.

    Devices that add noise to the draw's releases in the same proportions form one entry. Only the two entries
    with the most noise count; leaving others out can only raise μ².

    Returns:
        For each entry: the proportions ``[releases]``, the largest 1; the possible variances, ascending; and
        their probabilities.
    """
    sides: dict[tuple[float, ...], list[tuple[float, int]]] = {}
    for count, variances in draw.drawn_noise:
        most = max(variances)
        if count > 0 and most > 0:
            sides.setdefault(tuple(v / most for v in variances), []).append((most, count))
    order = sorted(sides.items(), key=lambda side: -sum(most * count for most, count in side[1]))
    return [(np.array(shares), *_law_of_drawn_variance(parts, draw.rate)) for shares, parts in order[:2]]


def _law_of_drawn_variance(parts: Sequence[tuple[float, int]], rate: float) -> tuple[Array, Array]:
    """Possible sums of the variances of drawn devices, ascending, and their probabilities.

    Variances that differ are rounded down to a common step, so that noise is never counted too high.

    Args:
        parts: (variance that one device adds, number of such devices), one or more.
        rate: probability with which each device is drawn, independently.
    """
    largest, total = max(v for v, _ in parts), sum(count for _, count in parts)
    shares = 1 if all(v == largest for v, _ in parts) else max(32, (1 << 14) // total)
    counts: Counter[int] = Counter()
    for variance, count in parts:
        counts[math.floor(variance / largest * shares * (1 + 1e-12))] += count
    start, chances = 0, np.ones(1)
    for units, count in sorted(counts.items()):
        if units > 0:
            times, weights, _ = binomial_law(count, rate)
            spread = np.zeros(units * (len(times) - 1) + 1)
            spread[::units] = weights / weights.sum()
            chances, start = np.convolve(chances, spread), start + units * int(times[0])
            kept = np.flatnonzero(chances > NEGLIGIBLE)
            chances, start = chances[kept[0] : kept[-1] + 1], start + int(kept[0])
    return largest / shares * (start + np.arange(len(chances), dtype=np.float64)), chances


def chances_of_larger_mu(draw: Draw, relation: str, levels: Array) -> tuple[Array, float]:
    """Probability that μ² of one round is above each of ``levels``, over the draw of other devices.

    Args:
        draw: the releases of a round, and the noise of others who may be drawn.
        relation: ``zero-out``, ``remove`` or ``replace``.
        levels: ascending values of μ².

    Returns:
        For every level the probability that μ² is above it but finite, ``[levels]``, and the probability that
        μ² is infinite, because there is no noise at all.
    """
    moves = np.array([stated_sensitivity(r, relation) for r in draw.releases])
    sure = np.array([read.figure(r["variance"]) for r in draw.releases])
    nothing = np.zeros(len(moves)), np.zeros(1), np.ones(1)
    sides = sorted([*noise_of_drawn_others(draw), nothing, nothing][:2], key=lambda side: len(side[1]))
    (one, amounts, chances), (other, more, weights) = sides
    edges = np.append(levels, np.finfo(np.float64).max)
    found = np.zeros(len(edges) + 1)
    for amount, chance in zip(amounts, chances, strict=True):
        variances = (sure + amount * one + more[:, None] * other)[:, moves > 0]
        with np.errstate(divide="ignore"):
            squares = (moves[moves > 0] ** 2 / variances).sum(axis=1)
        found += chance * np.bincount(np.searchsorted(edges, squares), weights, len(found))
    return np.cumsum(found[-2:0:-1])[::-1], float(found[-1])


def _levels_stated_too_rarely(
    stated: Sequence[tuple[float, float]], levels: Array, least: Array
) -> Iterator[tuple[float, float, float]]:
    """Yield (level, stated probability, least probability) for levels of μ² exceeded too seldom.

    Args:
        stated: (probability, μ²) of the stated mixture.
        levels: values of μ².
        least: the least probability with which each must be exceeded.
    """
    for level, chance in zip(levels.tolist(), least.tolist(), strict=True):
        mine = math.fsum(p for p, square in stated if square > level)
        if mine < chance * (1 - OF_A_CHANCE) - LEAST_CHANCE:
            yield level, mine, chance


def _probability_problems(probabilities: Iterable[float]) -> Iterator[str]:
    """Mismatches in the probabilities of a stated mixture: negative ones, or a sum above 1."""
    listed = list(probabilities)
    if min(listed, default=0.0) < 0 or math.fsum(listed) > 1 + ROUNDING:
        yield "terms: scales: the probabilities are below 0 or add up to more than 1"


def mixture_problems(
    draws: Sequence[Draw], relation: str, widened: float, terms: Sequence[Json], failure: float
) -> Iterator[str]:
    """Yield a line where a certificate's mixtures count more noise of drawn others than the draws give.

    Every draw has terms of its own, in order: one mixture where others add noise if they are drawn, else the
    terms that follow from its releases.

    Args:
        draws: the certificate's draws.
        relation: ``zero-out``, ``remove`` or ``replace``.
        widened: the factor by which every μ² exceeds that of the releases.
        terms: the certificate's terms.
        failure: the stated probability that a round has no noise.
    """
    left, least = list(terms), 0.0
    for draw in draws:
        if draw.drawn_noise:
            least += yield from _mixture_problems_of_draw(draw, relation, widened, left[:1])
            del left[:1]
            continue
        derived = terms_of_draw(draw, relation, is_amplified(draw, relation))
        mine = [stated_term(term) for term in left[: len(derived)]]
        del left[: len(derived)]
        if not same_terms(mine, [replace(one, square=widened * one.square) for one in derived]):
            yield f"terms: those of the draw of {draw.count} rounds do not follow from its releases"
    if left:
        yield f"terms: {len(terms)} are stated; the draws have {len(terms) - len(left)}"
    times = sum(draw.count for draw in draws)
    if not least * (1 - OF_A_CHANCE) - LEAST_CHANCE <= failure <= least + (least + times) * OF_A_CHANCE:
        yield f"failure_probability: stated {failure:.9g}; rounds without any noise give {least:.9g}"


def _mixture_problems_of_draw(
    draw: Draw, relation: str, widened: float, terms: Sequence[Json]
) -> Generator[str, None, float]:
    """Yield a line where the mixture of one draw counts too much noise.

    The stated μ² must be above every level at least as often as it is by the draws. The generator's return
    value is the probability that any of the draw's rounds has no noise.

    Args:
        draw: of the certificate.
        relation: ``zero-out``, ``remove`` or ``replace``.
        widened: the factor by which every μ² exceeds that of the releases.
        terms: the certificate's term for this draw, if there is one.
    """
    hidden = is_amplified(draw, relation)
    rate = draw.rate if hidden else draw.moved_rate
    term: Json = terms[0] if len(terms) == 1 else {"multiplier": "inf"}
    square = squared_mu_of_multiplier(term["multiplier"])
    sampling: Json = term.get("sampling") or {"kind": "poisson", "rate": rate, "hidden": hidden}
    how = (
        sampling["kind"],
        read.flag(sampling.get("hidden", True)),
        read.count(term.get("count", 1)),
        len(terms),
    )
    if how != ("poisson", hidden, draw.count, 1) or not nearly_equal(
        read.figure(sampling.get("rate", 1.0)), rate
    ):
        seen = "unseen" if hidden else "seen"
        yield f"terms: must be one mixture, {draw.count} times, over draws at rate {rate:.9g} that are {seen}"
    if term.get("sampling"):
        yield from distance_ratio_problems(sampling, [draw] if hidden else [], relation)
    scales = sampling.get("scales", [(1.0, 1.0)] if square else [])
    stated = [(read.figure(p), square * read.figure(share) ** 2) for p, share in scales]
    yield from _probability_problems(p for p, _ in stated)
    levels = np.unique([0.0, *(mu for _, mu in stated if math.isfinite(mu))])
    least, bare = chances_of_larger_mu(draw, relation, levels * (1 + ROUNDING) / widened)
    for level, mine, chance in _levels_stated_too_rarely(stated, levels, least):
        above = f"terms: scales: μ² is above {level:.9g} with probability {mine:.9g}"
        yield f"{above}; by who else may be drawn with {chance:.9g}"
        break
    return chance_of_any(rate * bare, draw.count)


def distance_ratio_problems(sampling: Json, hidden: Sequence[Draw], relation: str) -> Iterator[str]:
    """Yield a line where the ratios stated as ``apart`` are too small, or not as many as the draws need.

    A ratio is how far the release of one of two neighbouring data sets is from that without the unit, over
    how far they are from each other. Only ``replace`` needs ratios, one for each of the two.

    Args:
        sampling: the draw of a stated term.
        hidden: the draws that the term stands for, if nobody sees them; else none.
        relation: ``zero-out``, ``remove`` or ``replace``.
    """
    wanted, stated = distance_ratios_of_replaced(hidden, relation), stated_distance_ratios(sampling)
    least = max(wanted, default=0.0) * (1 - ROUNDING)
    if len(stated) != len(wanted) or min(stated, default=0.0) < least:
        yield f"terms: apart: stated {stated}; by the releases {wanted}"


def outcome_problems(
    draws: Sequence[Draw], chances: Sequence[float], relation: str, terms: Sequence[Json], failure: float
) -> Iterator[str]:
    """Yield a line where the stated mixture over an election's outcomes charges less than ``draws`` do.

    Outcomes in which the draw is hidden are compared among each other, and so are those in which it is seen:
    for every level, the stated probability that μ² is above it must be at least the one by the draws.

    Args:
        draws: the draw of each outcome.
        chances: the probability of each outcome.
        relation: ``zero-out``, ``remove`` or ``replace``.
        terms: the certificate's terms; must be one mixture.
        failure: the stated probability of a round without noise.
    """
    term: Json = terms[0] if len(terms) == 1 else {"multiplier": 0.0}
    square = squared_mu_of_multiplier(term["multiplier"])
    if len(terms) != 1 or read.count(term.get("count", 1)) != draws[0].count or not math.isfinite(square):
        yield f"terms: must be one mixture over the outcomes of a round, {draws[0].count} times"
        return
    sampling: Json = term.get("sampling") or {"rate": 1.0, "hidden": False}
    unseen, rate = read.flag(sampling.get("hidden", True)), read.figure(sampling.get("rate", 1.0))
    scales, seen_scales = (
        [(read.figure(p), square * read.figure(share) ** 2) for p, share in sampling.get(key, ())]
        for key in ("scales", "seen_scales")
    )
    seen = [] if unseen else [(p * rate, mu) for p, mu in scales]
    listed = {True: scales if unseen else [], False: seen + seen_scales}
    if unseen and not nearly_equal(rate, draws[0].rate):
        yield f"terms: rate: stated {rate:.9g}; the facts give {draws[0].rate:.9g}"
    yield from distance_ratio_problems(sampling, draws if unseen else [], relation)
    yield from _probability_problems(p for stated in listed.values() for p, _ in stated)
    bare = 0.0
    for hidden, stated in listed.items():
        levels = np.unique([0.0, *(mu for _, mu in stated)])
        least = np.zeros(len(levels))
        for draw, chance in zip(draws, chances, strict=True):
            if is_amplified(draw, relation) == hidden:
                used = 1.0 if hidden else draw.moved_rate
                above, nothing = chances_of_larger_mu(draw, relation, levels * (1 + ROUNDING))
                least += chance * used * above
                bare += chance * (draw.rate if hidden else used) * nothing
        for level, mine, chance in _levels_stated_too_rarely(stated, levels, least):
            how = f"in draws that are {'unseen' if hidden else 'seen'}, with probability {mine:.9g}"
            yield f"terms: scales: μ² is above {level:.9g}, {how}; by the outcomes with {chance:.9g}"
    least_failure = chance_of_any(bare, draws[0].count)
    if failure < least_failure * (1 - OF_A_CHANCE) - LEAST_CHANCE:
        yield f"failure_probability: stated {failure:.9g}; by the outcomes it is {least_failure:.9g}"
