"""Draws and releases as a certificate states them, and the terms that they amount to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.verify import read
from sfumato.verify.comparison import ROUNDING, nearly_equal
from sfumato.verify.loss_curves import Event, chance_of_any
from sfumato.verify.read import Json, UnknownKindError


@dataclass(frozen=True)
class Draw:
    """The releases that one draw of participants serves.

    Attributes:
        sampling: how participants are drawn, as a certificate states it.
        count: how often there is such a draw.
        releases: of one draw, as in the certificate's table.
        max_weight_ratio: weight of the heaviest device over the unit's, for draws of a fixed number.
        drawn_noise: others whose noise is there if they are drawn: how many, and the variance that each adds
            to each release.
    """

    sampling: Json
    count: int
    releases: tuple[Json, ...]
    max_weight_ratio: float
    drawn_noise: tuple[tuple[int, tuple[float, ...]], ...] = ()

    @property
    def kind(self) -> str:
        """``all`` (every device takes part), ``poisson`` or ``fixed`` (a number without replacement)."""
        return str(self.sampling.get("kind", "all"))

    @property
    def rate(self) -> float:
        """Probability that one draw of participants contains the unit."""
        return read.figure(self.sampling.get("rate", 1.0))

    @property
    def divides_by_drawn(self) -> bool:
        """Whether any release is a sum divided by a number that depends on who is drawn."""
        return any(r.get("divides_by_drawn", False) for r in self.releases)

    @property
    def moved_by_unit(self) -> bool:
        """Whether the unit's own message changes any release (its own sensitivity is above 0)."""
        return any(read.figure(r["own_sensitivity"]) > 0 for r in self.releases)

    @property
    def amplifies(self) -> bool:
        """Whether subsampling may lower ε: the draw is unseen, and only the unit's message depends on it."""
        hidden = self.kind != "all" and read.flag(self.sampling.get("hidden", True))
        return hidden and all(
            r["noise_is_draw_independent"]
            and not read.count(r.get("linking", 0))
            and (read.figure(r["propagated_sensitivity"]) == 0 or r.get("amplifies_propagated", False))
            for r in self.releases
        )

    @property
    def moved_rate(self) -> float:
        """Probability that at least one device is drawn whose message changes a release.

        Such devices are the unit and those that pass its data on (``linking``).
        """
        movers = max((read.count(r.get("linking", 0)) for r in self.releases), default=0) + self.moved_by_unit
        if self.kind == "fixed" and movers > 1:
            left, sample = read.count(self.sampling["population"]), read.count(self.sampling["sample"])
            shares = [max(0, left - sample - taken) / (left - taken) for taken in range(min(movers, left))]
            return 1.0 - math.prod(shares)
        return self.rate if movers <= 1 else chance_of_any(self.rate, movers)

    def squared_mu(self, relation: str) -> float:
        """μ² = Σ (sensitivity / noise std)² over the releases of one draw; ∞ if one has no noise.

        ``relation``: ``zero-out``, ``remove`` or ``replace``.
        """
        return math.fsum(squared_mu_of_release(r, relation) for r in self.releases)


def read_draw(draw: Json, table: Sequence[Json]) -> Draw:
    """Read a `Draw` from its JSON.

    Args:
        draw: an entry of ``draws`` of a certificate.
        table: all releases, which the draw names by index.

    Raises:
        ValueError: ``drawn_noise`` does not give one variance for each release.
    """
    releases = tuple(table[read.count(i)] for i in draw["releases"])
    beside = [
        (read.count(d["count"]), tuple(map(read.figure, d["variances"]))) for d in draw.get("drawn_noise", ())
    ]
    if any(len(variances) != len(releases) for _, variances in beside):
        raise ValueError("drawn_noise: it does not have one variance a release")
    ratio = read.figure(draw.get("max_weight_ratio", 1.0))
    return Draw(draw["sampling"], read.count(draw["count"]), releases, ratio, tuple(beside))


def sensitivity(own: float, others: float, relation: str, divides_by_drawn: bool) -> float:
    """Largest l2 distance between a release on one data set and on a neighbouring one.

    Args:
        own: bound of the unit's contribution; it counts twice under ``replace``, and under ``remove`` where
            the denominator changes with it.
        others: how far other devices, who started from what the unit changed, move the release.
        relation: between the data sets: ``zero-out``, ``remove`` or ``replace``.
        divides_by_drawn: whether the sum is divided by the weight of who is drawn.
    """
    twice = relation == "replace" or (relation == "remove" and divides_by_drawn)
    return own * (2 if twice else 1) + others


def stated_sensitivity(release: Json, relation: str) -> float:
    """`sensitivity` of a release under ``relation``, from the figures that the certificate states."""
    own, others = read.figure(release["own_sensitivity"]), read.figure(release["propagated_sensitivity"])
    return sensitivity(own, others, relation, release.get("divides_by_drawn", False))


def squared_ratio(moves: float, variance: float) -> float:
    """μ² = ``moves``² / ``variance`` of a Gaussian release of sensitivity ``moves``.

    0 if ``moves`` is 0, whatever the variance; else ∞ if the variance is 0.
    """
    if moves == 0:
        return 0.0
    return moves**2 / variance if variance > 0 else math.inf


def squared_mu_of_release(release: Json, relation: str) -> float:
    """μ² = (sensitivity / noise std)² of a release under ``relation``, by the certificate's figures.

    ∞ without noise; 0 where the unit moves nothing.
    """
    return squared_ratio(stated_sensitivity(release, relation), read.figure(release["variance"]))


def is_amplified(draw: Draw, relation: str) -> bool:
    """Whether drawing at random lowers ε of ``draw`` under ``relation``: an unseen Poisson draw."""
    return draw.amplifies and draw.kind == "poisson" and (relation != "zero-out" or not draw.divides_by_drawn)


def distance_ratios_of_replaced(draws: Sequence[Draw], relation: str) -> tuple[float, ...]:
    """How far releases of a replaced unit's two data sets are from those without the unit, as ratios.

    A ratio is over how far the releases of the two data sets are from each other. Both have the same largest
    one.

    Args:
        draws: whose releases are looked at.
        relation: ``zero-out``, ``remove`` or ``replace``.

    Returns:
        The largest ratio over all releases, twice. () under another relation than ``replace``, which compares
        with the data set without the unit, and if no release is moved.
    """
    if relation != "replace":
        return ()
    moving = [r for draw in draws for r in draw.releases if stated_sensitivity(r, relation) > 0]
    ratios = [stated_sensitivity(r, "remove") / stated_sensitivity(r, relation) for r in moving]
    return (max(ratios),) * 2 if max(ratios, default=0.0) else ()


def terms_of_draws(draws: Sequence[Draw], relation: str) -> tuple[list[Event], float]:
    """The terms to compose for ``draws`` under ``relation``, and the probability that nothing protects.

    The latter is 1, with no terms, where under ``remove`` the observer sees whether the unit takes part; else
    0.
    """
    if relation == "remove" and any(d.moved_by_unit and not is_amplified(d, relation) for d in draws):
        return [], 1.0
    return [term for d in draws for term in terms_of_draw(d, relation, is_amplified(d, relation))], 0.0


def terms_of_draw(draw: Draw, relation: str, hidden: bool) -> list[Event]:
    """The `Event` terms of one draw: one a release if every device takes part, else one for all releases.



    Args:
        draw: of the certificate.
        relation: ``zero-out``, ``remove`` or ``replace``.
        hidden: whether the observer does not see who is drawn, so that the term is amplified.

    Raises:
        UnknownKindError: the draw is neither ``all``, ``poisson`` nor ``fixed``.
    """
    if draw.kind == "all":
        return [Event(squared_mu_of_release(r, relation), draw.count) for r in draw.releases]
    if draw.kind not in ("poisson", "fixed"):
        raise UnknownKindError(f"draw: this checker has no rule for the kind {draw.kind!r}")
    square = draw.squared_mu(relation)
    if not hidden:
        return [Event(square, draw.count, "revealed", draw.moved_rate)]
    ratios = distance_ratios_of_replaced([draw], relation)
    return [Event(square, draw.count, "replaced" if ratios else "poisson", draw.rate, ratios)]


def terms_without_replacement(draws: Sequence[Draw], relation: str) -> list[Event]:
    """The `Event` terms of draws of a fixed number, where the unit takes the place of another device.

    The other device may have a larger weight. The two messages are as far apart as the sum of both bounds, or
    as the other's bound alone where the unit sends zeros. Where denominators depend on who is drawn, what all
    others contribute moves too. Draws that do not amplify are charged as if they were seen. ``relation``:
    ``zero-out``, ``remove`` or ``replace``.
    """
    terms: list[Event] = []
    for draw in draws:
        if not (draw.amplifies and draw.kind == "fixed"):
            terms += terms_of_draw(draw, relation, False)
            continue
        heaviest, moves = draw.max_weight_ratio, draw.divides_by_drawn
        farthest = 2 * max(1.0, heaviest) if moves else 1 + heaviest
        ratios = (farthest, farthest if moves else heaviest)
        if relation == "replace":
            ratios = (farthest / 2, farthest / 2)
        rate = read.figure(draw.sampling["sample"]) / max(read.figure(draw.sampling["population"]), 1)
        terms.append(Event(draw.squared_mu(relation), draw.count, "fixed", min(1.0, rate), ratios))
    return terms


def term_of_record(part: Json, releases: Sequence[Json], rate: float, relation: str) -> Event:
    """The `Event` of one part of a record's charge: releases that share the same draws of the record.

    Args:
        part: the part of the certificate: how often, share of the bound that moves by local step, and the
            probability that the device takes part.
        releases: the releases of the part.
        rate: probability that the record is in the batch of a local step.
        relation: ``zero-out`` or ``replace``.
    """
    square = math.fsum(squared_mu_of_release(r, "replace") for r in releases)
    count = read.count(part["count"])
    moves = read.figures(part.get("moves", ())).tolist()
    if not moves:
        return Event(square * read.figure(part.get("largest_move", 1.0)) ** 2, count)
    replaced = read.figures(part.get("replaced_moves", ())).tolist()
    participation = read.figure(part.get("participation", 1.0))
    between = replaced or moves if relation == "replace" else moves
    shared = [max(m, 0.5) if participation < 1 else m for m in moves]
    largest = max(*between, *shared)
    ways: dict[tuple[float, float], float] = {}
    for step, (one, other) in enumerate(zip(between, shared, strict=True)):
        key = one / largest, other / largest
        ways[key] = ways.get(key, 0.0) + participation * rate * (1 - rate) ** step
    leaves = participation < 1 or relation == "replace"
    listed = tuple((chance, *shares) for shares, chance in sorted(ways.items(), reverse=True))
    total = min(1.0, math.fsum(chance for chance, *_ in listed))
    return Event(square * largest**2, count, "batches", total, (leaves, *listed))


def squared_mu_of_multiplier(stated: Any) -> float:
    """μ² = 1 / multiplier² of a stated noise multiplier; ∞ of 0, and 0 of "inf"."""
    multiplier = read.figure(stated)
    return math.inf if multiplier == 0 else 0.0 if math.isinf(multiplier) else multiplier**-2


def stated_term(term: Json) -> Event:
    """The `Event` that a term of a certificate's JSON stands for.

    Raises:
        UnknownKindError: noise that depends on the draw is stated for another draw than Poisson.
    """
    square, count = squared_mu_of_multiplier(term["multiplier"]), read.count(term.get("count", 1))
    sampling = {"kind": "all"} if term.get("sampling") is None else term["sampling"]
    kind, rate = str(sampling.get("kind", "all")), read.figure(sampling.get("rate", 1.0))
    if kind == "all":
        return Event(square, count)
    if sampling.get("scales") or sampling.get("seen_scales"):
        return _visible_mixture(square, count, sampling)
    if kind == "poisson" and not read.flag(sampling.get("hidden", True)):
        return Event(square, count, "revealed", rate)
    if ratios := stated_distance_ratios(sampling):
        return Event(square, count, "replaced", rate, ratios)
    if kind == "fixed":
        ratios = tuple(map(read.figure, sampling.get("apart", (1.0, 1.0))))
        rate = read.figure(sampling["sample"]) / read.figure(sampling["population"])
        return Event(square, count, kind, rate, ratios)
    if kind == "batches":
        ways = tuple(tuple(map(read.figure, way)) for way in sampling["moves"])
        return Event(square, count, kind, rate, (read.flag(sampling.get("shares_a_part", False)), *ways))
    return Event(square, count, kind, rate)


def _visible_mixture(square: float, count: int, sampling: Json) -> Event:
    """The event of a draw whose noise depends on who else is drawn, from the shares stated in ``sampling``.

    What the probabilities lack to 1, the rounds without noise, tells nothing here: it is charged as failure.
    ``square``: μ² with the least noise; ``count``: of releases.

    Raises:
        UnknownKindError: the draw is not a Poisson one.
    """
    if sampling["kind"] != "poisson":
        raise UnknownKindError(f"draw: this checker has no rule for scales of the kind {sampling['kind']!r}")
    rate, ratios = read.figure(sampling.get("rate", 1.0)), stated_distance_ratios(sampling)
    used, inner = (1.0, rate) if read.flag(sampling.get("hidden", True)) else (rate, 1.0)
    scales, seen = (
        [(read.figure(p), read.figure(share) ** 2) for p, share in sampling.get(key, ())]
        for key in ("scales", "seen_scales")
    )
    ways = [(used * p, share, inner, *ratios) for p, share in scales] + [(p, share, 1.0) for p, share in seen]
    rest = max(0.0, 1.0 - math.fsum(p for p, *_ in ways))
    return Event(square, count, "visible", rate, (*ways, (rest, 0.0, 1.0)))


def stated_distance_ratios(sampling: Json) -> tuple[float, ...]:
    """The two ratios of distances that a Poisson draw states as ``apart``; () where it states none.

    They are needed where both neighbouring data sets share the part of the mixture without the unit.
    """
    if sampling.get("kind") != "poisson" or not read.flag(sampling.get("shares_a_part", False)):
        return ()
    one, other = map(read.figure, sampling.get("apart", (1.0, 1.0)))
    return one, other


def same_terms(stated: Sequence[Event], derived: Sequence[Event]) -> bool:
    """Whether ``stated`` terms equal ``derived`` ones, in order; figures up to the rounding of JSON."""
    return len(stated) == len(derived) and all(
        (a.count, a.kind, len(a.detail)) == (b.count, b.kind, len(b.detail))
        and nearly_equal(a.square, b.square)
        and nearly_equal(a.rate, b.rate)
        and all(np.allclose(x, y, rtol=ROUNDING, atol=1e-12) for x, y in zip(a.detail, b.detail, strict=True))
        for a, b in zip(stated, derived, strict=True)
    )
