"""Privacy loss distributions of one release, by the draw that decides whether and how far it moves.

docs/accounting.md ("Sampling", "One record as the unit") derives the three.

*Two worlds that share a part.* With probability 1 - p both worlds release B (the unit is not drawn); else
the one releases A and the other A'. A is at most ``s`` from A' and at most ``t`` from B, in units of the
noise; "at most s from" means that no test tells the two apart better than N(0, 1) from N(s, 1). For α >= 1
the hockey-stick divergence of one world from the other is at most

    pΦ(z) - αpΦ(z-s) - (α-1)(1-p)Φ(z-t),    z where pA = αpA' + (α-1)(1-p)B,

that of A = N(0, 1), A' = N(s, 1) and B = N(t, 1) on one line. Only pairs are compared, so A, A' and B may be
adaptive compositions. Where α < 1, D_α(P || Q) is 1 - α + α D_{1/α}(Q || P), and the bound for the other
direction is used. *A fixed number drawn* (`losses_of_fixed_draw`) is such a pair: B is the release with the
device whose place the unit takes.

*Batches that the sender draws* (`losses_of_batches`). With probability 1 - p the record is not drawn and the
message is the shared part, N(0, 1); with probability ``c_j`` it is moved by at most ``s_j`` (c_1 + ... = p).
Either one world is the shared part (a record zeroed out): the pair is N(0, 1) against the mixture of N(s_j,
1), in one dimension. Or both worlds leave it (a record replaced, or a device that may not take part at all),
by ``s_j`` from each other and ``t_j`` from the shared part: each share ``c_j / p`` of it goes with one move,
and the profile is at most the sum of the profiles of the moves. dp_accounting has a mixture of Gaussians
too, which searches for every point of the grid alone and takes half a minute where this takes half a second.

*A public scale of the noise* (`losses_of_public_scales`), drawn anew each time, such as who else was drawn
and added noise. Given its outcome j (probability ``p_j``) the two worlds are a pair of μ_j, and as the
observer sees the outcome, the divergence of the release is exactly Σ p_j D_j. The pair of an outcome is

    N(0, 1) against N(μ, 1), of which the observer sees whether it uses the unit (probability q): q D_μ;
    N(0, 1) against (1-q) N(0, 1) + q N(μ, 1), where it does not see it;
    two worlds that share a part, where it does not see it and the unit is replaced.

Some outcomes may be of the one kind and some of the other (``seen_scales``): then the sum is over both.

For the second and α >= 1: D_α(mixture || N(0, 1)) = q D_{α'} of the Gaussian, α' = 1 + (α-1)/q; and
D_α(N(0, 1) || mixture) = (1 - α(1-q)) D_{α''} of the Gaussian, α'' = αq/(1 - α(1-q)), nothing from α =
1/(1-q) on (`gaussian.delta` gives D, for α' and α'' are at least 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sfumato.privacy.losses import gaussian
from sfumato.privacy.losses.gaussian import Array
from sfumato.privacy.losses.grid_losses import GridLosses, PairLosses, losses_from_profiles
from sfumato.privacy.sampling import Sampling

TAIL = 9.5  # standard deviations beyond which losses count as infinite or least: probability 1e-21
_NEWTON_STEPS, _SETTLED = 12, 1e-7
_BISECTIONS = 64
_LARGEST_POWER, _LEAST_NORMAL = 700.0, -37.0  # e to the one, and Φ of the other, are normal floats


@dataclass(frozen=True)
class DrawnShift:
    """One way of being drawn: its probability, how far A is from A' (``between``), and how far from B."""

    chance: float
    between: float
    from_shared: float


@lru_cache(maxsize=64)
def losses_of_fixed_draw(square: float, sampling: Sampling, interval: float) -> PairLosses:
    """The privacy losses, in both directions, of one release under a hidden draw of a fixed number.

    Args:
        square: μ², the squared ratio of the unit's sensitivity to the noise std.
        sampling: of kind ``fixed``, hidden.
        interval: of the grid, in nats.
    """
    move = math.sqrt(square)
    one, other = ([DrawnShift(sampling.rate, move, move * away)] for away in sampling.apart)
    if one == other:
        alike = losses_against(one, other, interval)
        return alike, alike
    right, mirrored = _profile(one, interval), _profile(other, interval)
    return losses_from_profiles(right, mirrored, interval), losses_from_profiles(mirrored, right, interval)


def losses_against(one: Sequence[DrawnShift], other: Sequence[DrawnShift], interval: float) -> GridLosses:
    """The losses of a first world against a second, when both may release the same shared part B.

    With some probability both worlds release B, else the first releases A and the second A'.

    Args:
        one: for each way of being drawn, how far A is from A' and from B in the first world, in noise stds.
        other: the same for A' in the second world.
        interval: of the grid, in nats.
    """
    right = _profile(one, interval)
    return losses_from_profiles(right, right if one == other else _profile(other, interval), interval)


def _profile(moves: Sequence[DrawnShift], interval: float) -> Array:
    """Compute the hockey-stick profile of two worlds that share a part, at ε = 0, ``interval``, ….

    It is at most pΦ(z), where z, the point at which A weighs as much as A' and B together, is at most s/2 -
    ε/s. So nothing is left of it from the loss on that A has against A' for noise of 9.5 stds.

    Args:
        moves: the ways of being drawn, one or more, with distances in noise stds.
        interval: of the grid, in nats.

    Returns:
        The profile ``[points]``, two or more, up to the first at or above the largest loss.
    """
    rate = min(1.0, math.fsum(move.chance for move in moves))
    farthest = max(move.between for move in moves)
    most = max(largest_loss(rate, move.between, move.from_shared) for move in moves)
    most = min(most, farthest * (farthest / 2 + TAIL))
    points = max(1, math.ceil(most / interval)) + 1
    levels: Array = np.arange(points, dtype=np.float64) * interval
    parts = [move.chance / rate * profile_of_shift(levels, rate, move) for move in moves]
    return np.asarray(np.sum(parts, axis=0))


def largest_loss(rate: float, between: float, from_shared: float) -> float:
    """Upper bound on the loss, in nats, of two worlds that share a part, for noise below 9.5 stds.

    The ratio of their densities is at most that of the first world to all of the shared part in the second.

    Args:
        rate: p, with which the worlds leave the shared part.
        between: s, distance of the worlds in units of the noise.
        from_shared: t, distance from the shared part.
    """
    whole = _largest_of_draw(rate, max(between, from_shared))
    if rate == 1 or from_shared >= between:
        return whole
    return min(whole, _largest_of_draw(rate, from_shared) - math.log1p(-rate))


def _largest_of_draw(rate: float, move: float) -> float:
    """Bound the loss, in nats, of a unit drawn with probability ``rate``, for noise below 9.5 stds.

    ln(1 - p + p e^x) for the largest loss x of a Gaussian that moves by ``move`` standard deviations.
    """
    largest = move * move / 2 + TAIL * move
    if largest < 1:
        return math.log1p(rate * math.expm1(largest))
    return float(np.logaddexp(math.log1p(-rate) if rate < 1 else -math.inf, math.log(rate) + largest))


def profile_of_shift(levels: Array, rate: float, move: DrawnShift) -> Array:
    """Hockey-stick divergence of two worlds that share a part, at each ε ≥ 0 of ``levels``, in its shape.

    pΦ(z) - αpΦ(z-s) - (α-1)(1-p)Φ(z-t) at α = e^ε, with p = ``rate`` > 0 and the distances s and t of
    ``move`` (see the module).
    """
    from scipy import special

    s, t = move.between, move.from_shared
    of_shared = (1 - rate) * -np.expm1(-levels)  # weight of B over α; that of A' is p
    z = _place_where_even(levels, of_shared / rate, move)
    if s == t:
        taken = (rate + of_shared) * _exp_times_normal(levels, z - s)
    else:
        taken = rate * _exp_times_normal(levels, z - s)
        if rate < 1:  # else B has no weight, and e^ε Φ(z - t) may be no float
            taken += of_shared * _exp_times_normal(levels, z - t)
    return np.asarray(np.maximum(rate * special.ndtr(z) - taken, 0.0), dtype=np.float64)


def _exp_times_normal(levels: Array, places: Array) -> Array:
    """e^ε Φ(z) for each ε of ``levels`` and z of ``places``, as accurate where either is no float."""
    from scipy import special

    if levels.max() < _LARGEST_POWER and places.min() > _LEAST_NORMAL:
        return np.asarray(np.exp(levels) * special.ndtr(places))
    return np.asarray(np.exp(levels + special.log_ndtr(places)))


def _place_where_even(levels: Array, of_shared: Array, move: DrawnShift) -> Array:
    """The z at which A' and B together weigh as much as A, at each ε of ``levels``, in its shape.

    With u the weight of B over that of A' it is where e^ε (e^(sz - s²/2) + u e^(tz - t²/2)) = 1. That is
    of the first degree in e^(sz) where t = s, and of the second where t = 2s: devices of equal weights have
    no other distances unless they are replaced.

    Args:
        levels: ε, at least 0, ``[points]``.
        of_shared: u at each, ``[points]``.
        move: how far A is from A' (s) and from B (t), in noise stds.
    """
    s, t = move.between, move.from_shared
    if t == s:
        return np.asarray(s / 2 - (levels + np.log(1 + of_shared)) / s)
    if t == 2 * s:
        root = np.sqrt(1 + 4 * of_shared * np.exp(-levels - s * s))
        return np.asarray(s / 2 - (levels + np.log((1 + root) / 2)) / s)
    with np.errstate(divide="ignore"):
        log_shared = levels + np.log(of_shared)
    return _settled(np.minimum(s / 2 - levels / s, t / 2 - log_shared / t), levels, log_shared, move)


def _settled(start: Array, log_other: Array, log_shared: Array, move: DrawnShift) -> Array:
    """Run Newton's iteration for the z at which A' and B together weigh as much as A, elementwise.

    It is convex in z, and ``start`` is above its root. A point is done after a step that is less than
    `_SETTLED` of it: the next step would be of the second order of that. The divergence is the largest over
    all z, so what z is still off by changes it by the second order of that: by nothing that a float shows.

    Args:
        start: points at or above the roots, ``[points]``.
        log_other: logarithm of the weight of A' over that of A at each, ``[points]``.
        log_shared: logarithm of the weight of B over that of A at each, ``[points]``.
        move: how far A is from A' and from B, in noise stds.

    Returns:
        z of every point, ``[points]``.
    """
    s, t, found = move.between, move.from_shared, start.copy()
    places, z = np.arange(len(start)), start
    log_other, log_shared = log_other - s * s / 2, log_shared - t * t / 2
    for _ in range(_NEWTON_STEPS):
        one, two = np.exp(log_other + s * z), np.exp(log_shared + t * z)  # weights over that of A, at most 1
        both = one + two  # at least 1, as no step leads below the root
        after = z - np.log(both) * both / (s * one + t * two)
        found[places] = after
        moving = np.abs(after - z) > _SETTLED * (1 + np.abs(z))
        if not moving.any():
            break
        places, z = places[moving], after[moving]
        log_other, log_shared = log_other[moving], log_shared[moving]
    return found


@lru_cache(maxsize=64)
def losses_of_batches(square: float, sampling: Sampling, interval: float) -> PairLosses:
    """The privacy losses, in both directions, of one release whose sender draws batches of records.

    Args:
        square: μ², squared ratio of the whole sensitivity to the noise std.
        sampling: of kind ``batches``.
        interval: of the grid, in nats.
    """
    listed = np.array([move for move in sampling.moves if move[0] > 0])
    chances, between, from_shared = listed[:, 0], *(math.sqrt(square) * listed[:, 1:].T)
    if sampling.shares_a_part:
        both = [DrawnShift(*move) for move in zip(chances, between, from_shared, strict=True)]
        alike = losses_against(both, both, interval)
        return alike, alike
    mixture = _Mixture(chances, between)
    forward, backward = mixture.forward(interval), mixture.backward(interval)
    return losses_from_profiles(forward, backward, interval), losses_from_profiles(
        backward, forward, interval
    )


class _Mixture:
    """N(0, 1), and the mixture of N(s_j, 1) with probabilities c_j and of N(0, 1) with the rest."""

    def __init__(self, chances: Array, moves: Array) -> None:
        """Keep ``moves``, in noise stds, and the probability ``chances`` of each; both ``[J]``."""
        self._rest = max(0.0, 1.0 - float(chances.sum()))
        self._chances, self._moves = chances, moves

    def forward(self, interval: float) -> Array:
        """The profile of the mixture against N(0, 1) at ε = 0, ``interval`` (nats), …: ``[points]``."""
        (most,) = self._loss(np.array([TAIL + float(self._moves.max())]))
        epsilons = _grid_up_to(most, interval)
        places = self._places(epsilons)
        return self._weight_beyond(-places, -1.0) - _times_exp(_normal_below(-places), epsilons)

    def backward(self, interval: float) -> Array:
        """The profile of N(0, 1) against the mixture at ε = 0, ``interval`` (nats), …: ``[points]``."""
        (least,) = self._loss(np.array([-TAIL]))
        epsilons = _grid_up_to(-least, interval)
        places = self._places(-epsilons)
        return _normal_below(places) - _times_exp(self._weight_beyond(places, 1.0), epsilons)

    def _loss(self, places: Array) -> Array:
        """ln of the mixture's density over that of N(0, 1), at every one of ``places``; it increases."""
        total = np.full_like(places, math.log(self._rest) if self._rest > 0 else -math.inf)
        for chance, move in zip(self._chances, self._moves, strict=True):
            total = np.logaddexp(total, math.log(chance) + move * places - move * move / 2)
        return total

    def _places(self, losses: Array) -> Array:
        """The points where the loss (`_loss`) is each of ``losses``, by bisection; same shape.

        -∞ where the loss is above that everywhere.
        """
        low = np.full_like(losses, -2 * TAIL)
        high = np.full_like(losses, 2 * TAIL + float(self._moves.max()))
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            below = self._loss(middle) < losses
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        if self._rest > 0:
            low = np.where(losses <= math.log(self._rest), -math.inf, low)
        return low

    def _weight_beyond(self, places: Array, sign: float) -> Array:
        """Probability that the mixture lies below each of ``places``; with ``sign`` -1, its mirror image."""
        total = self._rest * _normal_below(places)
        for chance, move in zip(self._chances, self._moves, strict=True):
            total = total + chance * _normal_below(places - sign * move)
        return total


def _normal_below(places: Array) -> Array:
    """Probability that N(0, 1) lies below each of ``places``."""
    from scipy import special

    return np.asarray(special.ndtr(places), dtype=np.float64)


def _times_exp(weights: Array, epsilons: Array) -> Array:
    """``weights * exp(epsilons)`` where the product is at most about 1, however large the second is."""
    logs = np.log(weights, out=np.full_like(weights, -np.inf), where=weights > 0)
    return np.asarray(np.exp(epsilons + logs), dtype=np.float64)


def _grid_up_to(most: float, interval: float) -> Array:
    """Points 0, ``interval``, … of a grid, two or more, up to the first one that is at least ``most``."""
    return np.arange(max(1, math.ceil(most / interval)) + 1, dtype=np.float64) * interval


@lru_cache(maxsize=64)
def losses_of_public_scales(square: float, sampling: Sampling, interval: float) -> PairLosses:
    """The privacy losses, in both directions, of one release whose noise has a public random scale.

    Args:
        square: μ², squared ratio of sensitivity to noise std, in the outcome with least noise.
        sampling: with ``scales``.
        interval: of the grid, in nats.
    """
    longest = math.sqrt(square) * max(share for _, share in (*sampling.scales, *sampling.seen_scales))
    rate = sampling.rate if sampling.hidden and not sampling.seen_scales else 1.0
    away = max(sampling.apart)
    points = max(2, math.ceil(largest_loss(rate, longest, longest * away) / interval)) + 1
    levels: Array = np.arange(points, dtype=np.float64) * interval
    forward: Array = np.zeros(points)
    backward: Array = np.zeros(points)
    for chance, share in sampling.scales:
        if share == 0:
            continue  # tells nothing
        mu = math.sqrt(square) * share
        reached = levels[: np.searchsorted(levels, largest_loss(rate, mu, mu * away)) + 1]
        forward[: len(reached)] += chance * _forward(reached, mu, sampling)
        if sampling.hidden and not sampling.shares_a_part:
            backward[: len(reached)] += chance * _backward(reached, mu, sampling.rate)
    for chance, share in sampling.seen_scales:
        mu = math.sqrt(square) * share
        reached = levels[: np.searchsorted(levels, largest_loss(1.0, mu, mu)) + 1]
        delta_when_seen = chance * gaussian.delta(epsilon=reached, mu=np.array(mu))
        forward[: len(reached)] += delta_when_seen
        backward[: len(reached)] += delta_when_seen
    if not sampling.hidden or sampling.shares_a_part:
        alike = losses_from_profiles(forward, forward, interval)
        return alike, alike
    return losses_from_profiles(forward, backward, interval), losses_from_profiles(
        backward, forward, interval
    )


def _forward(levels: Array, mu: float, sampling: Sampling) -> Array:
    """Compute the profile of the world with the unit against the other, for one outcome of the noise's scale.

    Args:
        levels: ε, at least 0, ``[points]``.
        mu: sensitivity over noise std in that outcome.
        sampling: how the unit is drawn, and whether the observer sees it.
    """
    if not sampling.hidden:
        return sampling.rate * gaussian.delta(epsilon=levels, mu=np.array(mu))
    if sampling.shares_a_part:
        return profile_of_shift(levels, sampling.rate, DrawnShift(sampling.rate, mu, mu * sampling.apart[0]))
    present = (-np.expm1(-levels) + sampling.rate * np.exp(-levels)) / sampling.rate
    inner = np.maximum(levels + np.log(present), 0.0)
    return sampling.rate * gaussian.delta(epsilon=inner, mu=np.array(mu))


def _backward(levels: Array, mu: float, rate: float) -> Array:
    """The profile of the world without the unit against the other, under a hidden draw: δ at each ε.

    Args:
        levels: ε, at least 0, ``[points]``.
        mu: sensitivity over noise std in one outcome of the noise's scale.
        rate: probability that the unit is drawn.
    """
    log_absent = math.log1p(-rate) if rate < 1 else -math.inf
    weight = np.abs(np.expm1(np.minimum(levels + log_absent, 0.0)))
    with np.errstate(divide="ignore"):
        inner = np.maximum(levels + np.log(rate / weight), 0.0)
    return weight * gaussian.delta(epsilon=inner, mu=np.array(mu))
