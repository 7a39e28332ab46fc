"""How the releases of an exposure are charged: which draw amplifies what, and how it all composes.

One draw serves all releases of a `DrawnReleases`, so they amount to one Gaussian; draws are independent of
each other. `bound_epsilon` takes the smallest of all sound ways (docs/accounting.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sfumato.privacy.accountant import composed_epsilon, is_seen, is_within_when_told
from sfumato.privacy.guarantee import EpsilonBound
from sfumato.privacy.losses.hidden_draws import delta_of_one_release
from sfumato.privacy.public_draws import noise_outcomes, round_of_outcomes
from sfumato.privacy.release import DrawnReleases, Exposure, Release, RoundOutcomes, total_mu_squared
from sfumato.privacy.sampling import GaussianTerm, Neighbours, Sampling, squared_mu_of_term

_ROUNDING = 1e-9
_REPLACED = "whatever replaces the unit, both worlds share the draws without it"


@dataclass(frozen=True)
class Composition:
    """Terms for the accountant, and how they came about.

    Attributes:
        terms: what is composed.
        neighbours: the relation they refer to.
        how: for people.
        failure_probability: probability that nothing protects; the rest of delta is left for ``terms``.
        releases: what each of the first of ``terms`` amounts to; those that elections add have none.
        roughly: whether ε may be up to 2 % above (`compose_roughly`), or more beside a smaller bound.
    """

    terms: tuple[GaussianTerm, ...]
    neighbours: Neighbours
    how: str
    failure_probability: float = 0.0
    releases: tuple[tuple[Release, ...], ...] = ()
    roughly: bool = False

    @cached_property
    def certain_and_drawn(self) -> tuple[float, tuple[GaussianTerm, ...]]:
        """Σ count · μ² over the terms without sampling, and a tuple of the terms with sampling."""
        certain = math.fsum(
            term.count * squared_mu_of_term(term) for term in self.terms if term.sampling is None
        )
        return certain, tuple(term for term in self.terms if term.sampling is not None)


def ways_to_charge(exposure: Exposure, neighbours: Neighbours) -> tuple[Composition, ...]:
    """Every sound way to charge ``exposure`` under ``neighbours``; each gives an upper bound on ε.

    Args:
        exposure: the releases that one observer is taken to see of one unit; its elections and `alternatives`
            give further ways.
        neighbours: the neighbouring relation.

    Returns:
        One composition or more.
    """
    if exposure.outcomes is not None:
        return (_charge_round_outcomes(exposure, exposure.outcomes, neighbours),)
    found: tuple[Composition, ...] = (_charge_by_draws(exposure, neighbours),)
    if neighbours != "remove" and any(d.sampling.kind == "fixed" and d.amplifies for d in exposure.draws):
        found += (_charge_without_replacement(exposure, neighbours),)
    if exposure.election_events:
        found = tuple(_with_elections(charge, exposure) for charge in found)
    found += tuple(charge for other in exposure.alternatives for charge in ways_to_charge(other, neighbours))
    if exposure.roughly and not all(charge.roughly for charge in found):
        return tuple(replace(charge, roughly=True) for charge in found)
    return found


def _charge_by_draws(exposure: Exposure, neighbours: Neighbours) -> Composition:
    """Charge ``exposure`` in one composition, each draw by its own rule under ``neighbours``.

    A hidden Poisson draw amplifies what the unit alone moves. If the observer sees a draw, its releases are
    a mixture over whether the unit takes part. Where releases show that a removed unit is missing, the
    composition has no terms and fails with probability 1, so ε is ∞.
    """
    terms: list[GaussianTerm] = []
    failure = 0.0
    for draw in exposure.draws:
        hidden = draw.poisson_amplifies(neighbours)
        if draw.shows_a_missing_unit(neighbours):
            how = "what is seen tells whether the unit is there at all"
            return Composition((), neighbours, how, failure_probability=1.0)
        if draw.drawn_noise:
            term, without_noise = _term_with_noise_of_others(draw, neighbours, hidden=hidden)
            terms.append(term)
            failure += without_noise
        else:
            terms += _terms_of_draw(draw, neighbours, hidden=hidden)
    how = _what_amplifies(exposure, neighbours)
    released = _releases_of_terms(exposure)
    return Composition(tuple(terms), neighbours, how, failure, released, exposure.roughly)


def _releases_of_terms(exposure: Exposure) -> tuple[tuple[Release, ...], ...]:
    """List the releases that each composed term is made of, in the order of the terms.

    A term is a single release where everybody takes part and no noise of others is drawn, else all releases
    that one draw serves.
    """
    found: list[tuple[Release, ...]] = []
    for draw in exposure.draws:
        alone = draw.sampling.kind == "all" and not draw.drawn_noise
        found += [(release,) for release in draw.releases] if alone else [draw.releases]
    return tuple(found)


def _terms_of_draw(draw: DrawnReleases, neighbours: Neighbours, *, hidden: bool) -> Iterable[GaussianTerm]:
    """Turn one draw without noise of others into terms for the accountant.

    Everybody drawn: an unsampled term a release. Else one: amplified by Poisson sampling where ``hidden``,
    and the mixture over participations where the observer sees the draw.
    """
    if draw.sampling.kind == "all":
        return [GaussianTerm(_multiplier_of_release(r, neighbours), draw.count) for r in draw.releases]
    sampling = Sampling.revealed(draw.moved_rate)
    if hidden:
        sampling = Sampling.poisson(draw.sampling.rate, apart=draw.distance_from_undrawn(neighbours))
    return [GaussianTerm(_multiplier_of_draw(draw.releases, neighbours), draw.count, sampling)]


def _term_with_noise_of_others(
    draw: DrawnReleases, neighbours: Neighbours, *, hidden: bool
) -> tuple[GaussianTerm, float]:
    """Charge one draw with noise of the other drawn devices: a visible mixture over who these are.

    Args:
        draw: a draw of participants in which each adds noise.
        neighbours: the neighbouring relation.
        hidden: whether the observer does not learn who is drawn.

    Returns:
        The term, with multiplier ∞ where no outcome tells anything; and the probability that at least one of
        its rounds has no noise at all, which counts as a failure of the guarantee.
    """
    outcomes = noise_outcomes(draw, neighbours)
    rate = draw.sampling.rate if hidden else draw.moved_rate
    without_noise = rate * math.fsum(chance for chance, square in outcomes if math.isinf(square))
    largest = max((square for _, square in outcomes if math.isfinite(square)), default=0.0)
    if largest == 0:
        return GaussianTerm(math.inf, draw.count), -math.expm1(draw.count * math.log1p(-without_noise))
    scales = tuple((p, math.sqrt(square / largest)) for p, square in outcomes if math.isfinite(square))
    apart = draw.distance_from_undrawn(neighbours) if hidden else 0.0
    sampling = Sampling.poisson(rate, hidden=hidden, apart=apart, scales=scales)
    term = GaussianTerm(1 / math.sqrt(largest), draw.count, sampling)
    return term, -math.expm1(draw.count * math.log1p(-without_noise))


def _what_amplifies(exposure: Exposure, neighbours: Neighbours) -> str:
    """A phrase for people that says whether and by which sampling the charge of ``exposure`` is amplified."""
    if not any(release.depends_on_unit for release in exposure.releases) and neighbours == "remove":
        return "nothing depends on the unit"
    if all(draw.sampling.rate == 1 for draw in exposure.draws):
        return "no sampling"
    shared = f" ({_REPLACED})" if neighbours == "replace" else ""
    if exposure.groups_draw_separately:
        if any(draw.poisson_amplifies(neighbours) for draw in exposure.draws):
            return f"each group's own draw amplifies what the unit alone moves{shared}"
        return "mixtures over the participations in each group, not amplified"
    draw = exposure.draws[0]
    if len(exposure.draws) > 1:
        if any(draw.poisson_amplifies(neighbours) for draw in exposure.draws):
            return f"amplified by Poisson sampling in the rounds whose draw is hidden{shared}"
        return "mixtures over the participations in the rounds of each tree, not amplified"
    rate = f"{draw.sampling.rate:.4g}"
    noise = ", with the noise of the others who are drawn" if draw.drawn_noise else ""
    if draw.poisson_amplifies(neighbours):
        return f"amplified by Poisson sampling at rate {rate}{noise}{shared}"
    return f"mixture over Binomial({draw.count}, {rate}) participations{noise}, not amplified"


def _charge_without_replacement(exposure: Exposure, neighbours: Neighbours) -> Composition:
    """Charge ``exposure`` so that hidden draws of a fixed number of devices amplify.

    If the unit is not drawn, another device is drawn in its place. So such a round releases a mixture of two
    sums: one that holds the unit, which differs between the two worlds, and one that holds another device
    instead, which is the same in both. The other device may have a larger weight.

    Distances between these sums, for the accountant: the messages of the unit and of the other device may
    point in opposite directions, which is ``w b + w' b`` over the denominator, with weights w of the unit
    and w' of the other and a message norm b. A unit that sends zeros is ``w' b`` away. Where the denominator
    is the larger of a floor and the drawn weights, what all others contribute moves too, and the sum by at
    most ``2 max(w, w') b`` over the floor, zeros or not (docs/hdp.md).

    Args:
        exposure: the releases charged; at least one of its draws is hidden, of a fixed number, and amplifies.
        neighbours: ``zero-out`` or ``replace``.
    """
    terms: list[GaussianTerm] = []
    how = ""
    for draw in exposure.draws:
        if not (draw.amplifies and draw.sampling.kind == "fixed"):
            terms += _terms_of_draw(draw, neighbours, hidden=False)
            continue
        weight_ratio = draw.max_weight_ratio
        farthest = 2.0 * max(1.0, weight_ratio) if draw.divides_by_drawn else 1.0 + weight_ratio
        if neighbours == "replace":
            apart = (farthest / 2.0, farthest / 2.0)
        else:
            apart = (farthest, farthest if draw.divides_by_drawn else weight_ratio)
        population, sample = draw.sampling.population, draw.sampling.sample
        sampling = Sampling.without_replacement(population, sample, apart)
        terms.append(GaussianTerm(_multiplier_of_draw(draw.releases, neighbours), draw.count, sampling))
        how = f"amplified by drawing {sample} of {population} without replacement"
        if exposure.groups_draw_separately:
            how = "each group's own draw of a fixed number amplifies what the unit alone moves"
    released = _releases_of_terms(exposure)
    return Composition(tuple(terms), neighbours, how, 0.0, released, exposure.roughly)


def _charge_round_outcomes(
    exposure: Exposure, outcomes: RoundOutcomes, neighbours: Neighbours
) -> Composition:
    """Charge rounds in each of which one of several draws happens: a visible mixture over these outcomes.

    Under *remove* outcomes may tell whether the unit is there: no terms, and failure with probability 1.

    Args:
        exposure: its draws, one for each outcome of a round.
        outcomes: the probability of each, and what decides it.
        neighbours: the neighbouring relation.
    """
    if neighbours == "remove":
        return Composition((), neighbours, outcomes.what, failure_probability=1.0)
    term, without_noise = round_of_outcomes(exposure.draws, outcomes.chances, neighbours)
    hidden = any(draw.poisson_amplifies(neighbours) for draw in exposure.draws)
    how = "amplified by Poisson sampling where nobody sees the draw; " if hidden else ""
    failure = -math.expm1(term.count * math.log1p(-without_noise)) if without_noise < 1 else 1.0
    return Composition((term,), neighbours, f"{how}{outcomes.what}", failure, (exposure.releases,))


def _with_elections(charge: Composition, exposure: Exposure) -> Composition:
    """Add a term to ``charge`` for each election event: a mixture over how often it happens in all rounds.

    The privacy loss of a round is at most that of the releases that the observer sees in any case plus, if a
    member is elected, an increase in ``mu^2``. Elections are independent of each other and of who takes
    part, so the increases are mixtures over Binomial(rounds, probability), independent of the rest
    (docs/hdp.md). An event that leaves no noise adds the probability that it ever happens to the failure
    probability instead.
    """
    terms, failure, sentences = list(charge.terms), charge.failure_probability, []
    for event in exposure.election_events:
        certain = event.probability >= 1
        once = 1.0 if certain else -math.expm1(event.rounds * math.log1p(-event.probability))
        increase = max(_increase_of_mu_squared(more, less, charge.neighbours) for more, less in event.pairs)
        sentences.append(
            f"{event.what} at least once with probability {once:.4g}, in "
            f"{event.rounds * event.probability:.4g} rounds on average"
        )
        if math.isinf(increase):
            sentences[-1] += ", and nothing protects then"
            failure += once
        elif increase > 0:
            sampling = None if certain else Sampling.revealed(event.probability)
            terms.append(GaussianTerm(1 / math.sqrt(increase), event.rounds, sampling))
    how = "; ".join([charge.how, *sentences])
    return Composition(tuple(terms), charge.neighbours, how, failure, charge.releases, charge.roughly)


def _increase_of_mu_squared(
    more: Sequence[Release], less: Sequence[Release], neighbours: Neighbours
) -> float:
    """By how much a round's μ² grows if the coalition sees ``more`` releases in place of ``less``.

    At least 0; 0 where that of ``less`` is infinite already.
    """
    before = total_mu_squared(less, neighbours)
    return 0.0 if math.isinf(before) else max(0.0, total_mu_squared(more, neighbours) - before)


def bound_epsilon(
    exposure: Exposure, *, delta: float, neighbours: Neighbours, known: float = math.inf
) -> EpsilonBound:
    """The smallest ε at ``delta`` among the sound ways to charge ``exposure``, as a bound.

    Args:
        exposure: the releases that one observer is taken to see of one unit.
        delta: of the ε, in (0, 1).
        neighbours: the relation.
        known: ε of another bound of the pair; a larger result may be coarse (`smallest_epsilon`). ∞: none.
    """
    ways = ways_to_charge(exposure, neighbours)
    return smallest_epsilon(ways, exposure.release_count, delta=delta, known=known)


def smallest_epsilon(
    ways: Iterable[Composition], releases: int, *, delta: float, known: float = math.inf
) -> EpsilonBound:
    """The smallest ε at ``delta`` among several ways to charge the same pair, as a bound.

    Args:
        ways: compositions, one or more; one whose failure probability is at least ``delta`` has ε = ∞.
        releases: number of releases charged; only passed on to the result.
        delta: δ of the ε; the terms of a way have what its failure probability leaves of it.
        known: ε of another bound of the same pair; where the result is sure to be larger, every draw may be
            charged as seen, which is quick and still a bound. ∞: none is known.

    Returns:
        The bound, of the first way among equals; ``draws_told`` where ``known`` let hidden draws count as
        seen.
    """
    found, hidden_charged_as_seen = dict[int, EpsilonBound](), False
    by_visibility = [(_hides_draws(charge), number, charge) for number, charge in enumerate(ways)]
    for hides, number, charge in sorted(by_visibility, key=lambda each: not each[0]):
        delta_of_terms = delta - charge.failure_probability
        if delta_of_terms <= 0:
            epsilon, method = math.inf, "gdp"
        elif not hides and _is_surely_above(charge.terms, found.values(), delta_of_terms):
            continue  # it cannot be the smallest
        else:
            epsilon, method = composed_epsilon(
                charge.terms, charge.neighbours, delta_of_terms, known, charge.roughly
            )
        hidden_charged_as_seen |= charge.roughly and epsilon < math.inf and method == "gdp" and hides
        found[number] = EpsilonBound(epsilon, releases, method, charge.neighbours, charge.how)
    _, least = min(found.items(), key=lambda item: (item[1].epsilon, item[0]))
    told = hidden_charged_as_seen and known < least.epsilon < math.inf
    return replace(least, draws_told=True) if told else least


def _hides_draws(charge: Composition) -> bool:
    """Whether any term of ``charge`` has a draw that is not simply seen."""
    return any(term.sampling and not is_seen(term.sampling) for term in charge.terms)


def _is_surely_above(terms: tuple[GaussianTerm, ...], found: Iterable[EpsilonBound], delta: float) -> bool:
    """Whether ``terms``, whose draws are all seen, have a larger ε at ``delta`` than one of ``found``.

    That is where their δ at the other's ε is larger: no ε of their own is looked for.
    """
    least = min((bound.epsilon for bound in found), default=math.inf)
    return least < math.inf and not is_within_when_told(terms, least, delta)


def is_surely_within(
    exposures: Iterable[Exposure], epsilon: float, *, delta: float, neighbours: Neighbours
) -> bool:
    """Whether some way to charge a pair has at most ``epsilon``, even if the observer sees every draw.

    Quick: no privacy loss distribution is computed, and no ε searched for. ``False`` proves nothing.

    Args:
        exposures: one for each bound of the pair.
        epsilon: ε ≥ 0, finite.
        delta: δ in (0, 1).
        neighbours: the neighbouring relation.
    """
    for exposure in exposures:
        for way in ways_to_charge(exposure, neighbours):
            delta_of_terms = delta - way.failure_probability
            finite = delta_of_terms > 0 and all(term.multiplier > 0 for term in way.terms)
            if finite and is_within_when_told(way.terms, epsilon, delta_of_terms):
                return True
    return False


def has_larger_epsilon(exposure: Exposure, epsilon: float, *, delta: float, neighbours: Neighbours) -> bool:
    """Whether all ways to charge ``exposure`` surely have an ε above ``epsilon``; ``False`` proves nothing.

    Nothing is composed: where draws are hidden, one release of a draw is taken in place of all of them,
    since all of them together reveal no less.

    Args:
        exposure: the releases that one observer is taken to see of one unit.
        epsilon: ε ≥ 0, finite.
        delta: δ in (0, 1).
        neighbours: the neighbouring relation.
    """
    return all(_is_way_above(way, epsilon, delta) for way in ways_to_charge(exposure, neighbours))


def _is_way_above(way: Composition, epsilon: float, delta: float) -> bool:
    """Whether ε of ``way`` at ``delta`` is surely above ``epsilon``; ``False`` proves nothing."""
    delta_of_terms = delta - way.failure_probability
    if delta_of_terms <= 0:
        return True
    if not _hides_draws(way):
        return not is_within_when_told(way.terms, epsilon, delta_of_terms)
    return any(delta_of_one_release(term, epsilon) > delta_of_terms * (1 + _ROUNDING) for term in way.terms)


def _multiplier_of_release(release: Release, neighbours: Neighbours) -> float:
    """Noise std over the sensitivity of ``release``; ∞ where the unit moves nothing, 0 without noise."""
    sensitivity = release.sensitivity(neighbours)
    return math.inf if sensitivity == 0 else math.sqrt(release.variance) / sensitivity


def _multiplier_of_draw(releases: Sequence[Release], neighbours: Neighbours) -> float:
    """Multiplier of the Gaussian that ``releases`` of a draw amount to; ∞ if unmoved, 0 if one is raw."""
    mu_squared = total_mu_squared(releases, neighbours)
    return math.inf if mu_squared == 0 else 1 / math.sqrt(mu_squared)
