"""Hockey-stick curves of one release, with the unit against without it, under every kind of draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import special

from sfumato.verify.read import Array

TAIL = 9.5  # standard deviations: beyond is a probability of 1e-21


def chance_of_any(chance: float, times: int) -> float:
    """1 − (1 − ``chance``)^``times``: the probability of at least one of independent equal events.

    0 where ``times`` is 0; a ``chance`` of 1 or more goes with 1 or more times.
    """
    return 1.0 if chance >= 1 and times else -math.expm1(times * math.log1p(-chance))


def gaussian_delta(epsilon: Array | float, mu: Array | float) -> Array:
    """δ(ε) = Φ(a) − e^ε Φ(a − μ) with a = μ/2 − ε/μ, of N(μ, 1) against N(0, 1), for ``epsilon`` and ``mu``.

    Elementwise with broadcasting, at any real ε and μ from 0 to ∞, without cancellation; in [0, 1].
    """
    e, m = np.broadcast_arrays(np.asarray(epsilon, dtype=np.float64), np.asarray(mu, dtype=np.float64))
    with np.errstate(all="ignore"):
        nothing = np.maximum(-np.expm1(np.minimum(e, 0.0)), 0.0)  # μ = 0
        a = m / 2 - e / m
        large = special.ndtr(a) - np.exp(e + special.log_ndtr(a - m))
        low = np.minimum(a, 0.0)
        mills = special.erfcx(-low / math.sqrt(2)) - special.erfcx((m - low) / math.sqrt(2))
        small = np.exp(-0.5 * low * low) * mills / 2
        found = np.where(m == 0, nothing, np.where(np.isinf(m), 1.0, np.where(a > 0, large, small)))
    return np.clip(found, 0.0, 1.0)


@dataclass(frozen=True, order=True)
class Event:
    """``count`` independent releases of μ² = ``square`` where the unit is used, under one draw.

    Attributes:
        square: μ²; ∞ without noise.
        count: of releases.
        kind: of the draw, one of `CURVES`.
        rate: probability that the draw uses the unit.
        detail: what else the curve of the kind needs; that function says what.
    """

    square: float
    count: int
    kind: str = "unsampled"
    rate: float = 1.0
    detail: tuple[Any, ...] = ()

    @property
    def mu(self) -> float:
        """μ = sensitivity / noise std of one release that uses the unit: the root of ``square``."""
        return math.sqrt(self.square)


Profile: TypeAlias = Callable[[Array], Array]


class LossCurve(NamedTuple):
    """The hockey-stick curve of one release in one direction, and the range of its privacy losses.

    Attributes:
        curve: δ as a function of an array of ε, which may be negative.
        least: a privacy loss, in nats, below which there is next to nothing.
        most: one above which there is next to nothing.
    """

    curve: Profile
    least: float
    most: float


def _log_ratio(x: float, moves: Sequence[tuple[float, float]], rest: float) -> float:
    """Privacy loss at ``x`` of a mixture of Gaussians with standard deviation 1 against N(0, 1).

    Args:
        moves: (probability, μ) of each component.
        rest: probability of N(0, 1) in the mixture.
    """
    parts = [math.log(c) + mu * x - mu * mu / 2 for c, mu in moves if c > 0]
    return float(special.logsumexp([*parts, math.log(rest)] if rest > 0 else parts))


def gaussian_curve(term: Event, forward: bool) -> LossCurve:
    """The privacy curve of N(μ, 1) against N(0, 1); both directions (``forward``) are equal."""
    mu, half = term.mu, term.square / 2
    return LossCurve(lambda e: gaussian_delta(e, mu), half - TAIL * mu, half + TAIL * mu)


def seen_draw_curve(term: Event, forward: bool) -> LossCurve:
    """The privacy curve of a release that uses the unit with probability q, where everybody sees if it does.

    ``forward`` does not matter: both directions are equal.
    """
    one, q = gaussian_curve(term, forward), term.rate
    curve: Profile = lambda e: q * one.curve(e) + (1 - q) * np.maximum(-np.expm1(np.minimum(e, 0.0)), 0.0)  # noqa: E731
    return LossCurve(curve, min(0.0, one.least), max(0.0, one.most))


def poisson_curve(term: Event, forward: bool) -> LossCurve:
    """The privacy curve of a release under a Poisson draw at rate q that nobody sees.

    ``forward``: of (1 − q) N(0, 1) + q N(μ, 1) against N(0, 1), else of the second against the first. With
    e^η = (e^ε − 1 + q)/q the first is q δ(η; μ) where e^ε > 1 − q, and 1 − e^ε below. With e^η = (e^−ε − 1 +
    q)/q the second is (1 − (1 − q) e^ε) δ(−η; μ) where e^−ε > 1 − q, and 0 above.
    """
    q, mu = term.rate, term.mu
    moves = [(q, mu)]

    def with_unit(e: Array) -> Array:
        with np.errstate(all="ignore"):
            inner = _epsilon_before_sampling(e, q)
            return np.where(e > math.log1p(-q), q * gaussian_delta(np.nan_to_num(inner), mu), -np.expm1(e))

    def without(e: Array) -> Array:
        with np.errstate(all="ignore"):
            inner = -np.nan_to_num(_epsilon_before_sampling(-e, q))
            found = -np.expm1(e + math.log1p(-q)) * gaussian_delta(inner, mu)
            return np.where(e < -math.log1p(-q), found, 0.0)

    if forward:
        return LossCurve(with_unit, _log_ratio(-TAIL, moves, 1 - q), _log_ratio(mu + TAIL, moves, 1 - q))
    return LossCurve(without, -_log_ratio(TAIL, moves, 1 - q), -_log_ratio(-TAIL, moves, 1 - q))


def _epsilon_before_sampling(e: Array, q: float) -> Array:
    """The η with e^η = (e^ε − 1 + q)/q, accurate also where ε is small beside q."""
    near = np.log1p(np.expm1(np.minimum(e, 1.0)) / q)
    return np.asarray(np.where(e < 1, near, e + np.log1p((q - 1) * np.exp(-e)) - math.log(q)))


def _delta_with_shared_part(e: Array, p: float, s: float, t: float) -> Array:
    """The curve at ε ≥ 0 of pA + (1 − p)B against pA' + (1 − p)B, with A at most s from A' and t from B.

    Split A into cA + (1 − c)A: the divergence is at most the sum of those of cpA against e^ε pA' and of
    (1 − c)pA against (e^ε − 1)(1 − p)B, which compare pairs only. With all three Gaussians on one line, and
    the c at which both change sign in the same place z, that is
    p Φ(z) − e^ε p Φ(z − s) − (e^ε − 1)(1 − p) Φ(z − t).
    """
    if s == t:  # then it is p δ(η; s) with e^η = (e^ε − 1 + p) / p, which does not cancel
        with np.errstate(all="ignore"):
            return np.asarray(p * gaussian_delta(np.nan_to_num(_epsilon_before_sampling(e, p)), s))
    with np.errstate(all="ignore"):
        # ln(e^ε − 1), also where e^ε is above the largest number
        shared = e + np.log(-np.expm1(-e)) + math.log1p(-p) if p < 1 else np.full_like(e, -np.inf)
        z = np.minimum(s / 2 - e / s, (math.log(p) - shared) / t + t / 2)
        for _ in range(8):  # Newton from above: the difference is convex and increasing in z
            one, two = e + math.log(p) + s * z - s * s / 2, shared + t * z - t * t / 2
            both = np.logaddexp(one, two)
            z = z - (both - math.log(p)) / (s * np.exp(one - both) + t * np.exp(two - both))
        taken = np.exp(e + math.log(p) + special.log_ndtr(z - s)) + np.exp(shared + special.log_ndtr(z - t))
    return np.asarray(np.maximum(p * special.ndtr(z) - taken, 0.0))


def shared_part_curve(ways: Sequence[tuple[float, float, float, float]], forward: bool) -> LossCurve:
    """The privacy curve of two mixtures of Gaussians that share a part.

    One is Σ pᵢ Aᵢ + (1 − p) B, the other Σ pᵢ A'ᵢ + (1 − p) B, with p = Σ pᵢ. All Gaussians have the same
    noise; only distances of their means are known. The curve is Σ (pᵢ/p) times that of pAᵢ + (1 − p)B against
    pA'ᵢ + (1 − p)B, an upper bound. Below ε = 0 it is that of the other direction, mirrored.

    Args:
        ways: for each i, pᵢ and the distances of Aᵢ and A'ᵢ, of Aᵢ and B, and of A'ᵢ and B, in noise stds.
        forward: whether the curve is of the first mixture against the second; else of the second against the
            first.
    """
    p = min(1.0, math.fsum(c for c, *_ in ways))

    def above(e: Array, place: int) -> Array:
        return np.asarray(sum(way[0] / p * _delta_with_shared_part(e, p, way[1], way[place]) for way in ways))

    def curve(e: Array) -> Array:
        (there, back), low = (2, 3) if forward else (3, 2), np.minimum(e, 0.0)
        mirrored = -np.expm1(low) + np.exp(low) * above(-low, back)
        return np.where(e >= 0, above(np.maximum(e, 0.0), there), mirrored)

    top = max(max(way[1:]) for way in ways)
    most = _log_ratio(top + TAIL, [(p, top)], 1 - p)
    return LossCurve(curve, -most, most)


def fixed_size_curve(term: Event, forward: bool) -> LossCurve:
    """The privacy curve of an unseen draw of a fixed number, which holds the unit with probability γ.

    It is there in place of another device.

    Given all the others, A and A' are what is sent with the unit on the two neighbouring data sets, and B
    what is sent with that other device; or B is without the unit, where each is drawn by itself and the unit
    is replaced. ``term.detail``: distances of A and of A' from B, over that of A from A'. ``forward``: of the
    data set with A against that with A', else the reverse.
    """
    one, other = term.detail
    return shared_part_curve([(term.rate, term.mu, term.mu * one, term.mu * other)], forward)


def batch_draw_curve(term: Event, forward: bool) -> LossCurve:
    """The privacy curve of a record that its device draws into mini-batches, unseen.

    Args:
        term: its ``detail`` is whether the mixtures of both neighbouring data sets share a part, then for
            each local step that may be the first with the record (probability, distance of the releases on
            the two data sets, distance of either from the shared part), distances as shares of ``term.mu``.
            What the probabilities lack to 1 is the shared part. Without one the third number is not used:
            the other data set always gives N(0, 1).
        forward: with the record against without it, else the reverse. With a shared part both are equal.
    """
    shares, *ways = term.detail
    if shares:
        moved = [(c, s * term.mu, t * term.mu, t * term.mu) for c, s, t in ways if c > 0]
        return shared_part_curve(moved, forward)
    moves = [(c, s * term.mu) for c, s, _ in ways if c > 0]
    rest = max(0.0, 1.0 - math.fsum(c for c, _ in moves))
    top = max(mu for _, mu in moves)
    places = np.linspace(-2 * TAIL, 2 * TAIL + top, 1 << 14)

    def loss(x: Array) -> Array:
        total = np.full_like(x, math.log(rest) if rest > 0 else -math.inf)
        for c, mu in moves:
            total = np.logaddexp(total, math.log(c) + mu * x - mu * mu / 2)
        return total

    def slope(x: Array, at: Array) -> Array:
        return np.asarray(sum(mu * np.exp(math.log(c) + mu * x - mu * mu / 2 - at) for c, mu in moves))

    def place(wanted: Array) -> Array:
        x = np.interp(wanted, loss(places), places)
        for _ in range(4):  # Newton from below or above: the loss is convex and increasing
            at = loss(x)
            with np.errstate(all="ignore"):
                step = np.nan_to_num((wanted - at) / slope(x, at))
            x = np.clip(x + np.clip(step, -1.0, 1.0), places[0], places[-1])
        return np.where(wanted <= (math.log(rest) if rest > 0 else -math.inf), -math.inf, x)

    def mass(x: Array) -> Array:
        return np.asarray(rest * special.ndtr(-x) + sum(c * special.ndtr(mu - x) for c, mu in moves))

    def with_record(e: Array) -> Array:
        x = place(e)
        return np.asarray(mass(x) - np.exp(e + special.log_ndtr(-x)))

    def without(e: Array) -> Array:
        x = place(-e)
        below = rest * special.ndtr(x) + sum(c * special.ndtr(x - mu) for c, mu in moves)
        with np.errstate(all="ignore"):
            return np.asarray(special.ndtr(x) - np.where(below > 0, np.exp(e + np.log(below)), 0.0))

    if forward:
        return LossCurve(with_record, _log_ratio(-TAIL, moves, rest), _log_ratio(top + TAIL, moves, rest))
    return LossCurve(without, -_log_ratio(TAIL, moves, rest), -_log_ratio(-TAIL, moves, rest))


def visible_mixture_curve(term: Event, forward: bool) -> LossCurve:
    """The privacy curve of a release whose noise is random, where everybody sees which noise it has.

    ``term.detail`` lists the ways: probability, factor on μ², rate of a draw inside it, and, if the unit is
    replaced there, the two ratios of `fixed_size_curve`. ``forward``: of the first data set against the
    second, else the reverse.
    """
    ways = []
    for chance, ratio, rate, *ratios in term.detail:
        kind = "unsampled" if rate == 1 else "replaced" if ratios else "poisson"
        inner = Event(term.square * ratio, 1, kind, rate, tuple(ratios))
        ways.append((chance, CURVES[kind](inner, forward)))

    def curve(e: Array) -> Array:
        total = np.zeros_like(e)
        for chance, one in ways:
            first = min(one.least, 0.0)
            at_first, at_last = one.curve(np.array([first, one.most]))
            # The curve of the other direction at -ε is (D(ε) - 1 + e^ε) / e^ε; both curves only fall. It is
            # at most 1, which is enough where e^ε is below the smallest number.
            smallest = math.exp(first)
            mirrored = max(0.0, at_first + math.expm1(first)) / smallest if smallest > 0 else 1.0
            low = np.minimum(e, 0.0)
            part = np.where(e > one.most, at_last, np.exp(low) * mirrored - np.expm1(low))
            reached = np.flatnonzero((e >= first) & (e <= one.most))
            part[reached] = one.curve(e[reached])
            total += chance * part
        return total

    return LossCurve(curve, min(one.least for _, one in ways), max(one.most for _, one in ways))


CURVES: dict[str, Callable[[Event, bool], LossCurve]] = {
    "unsampled": gaussian_curve,
    "revealed": seen_draw_curve,
    "poisson": poisson_curve,
    "fixed": fixed_size_curve,
    "replaced": fixed_size_curve,
    "batches": batch_draw_curve,
    "visible": visible_mixture_curve,
}
"""Every kind of event that this checker can compose; any other is an error."""
