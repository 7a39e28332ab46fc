"""How the releases of one exposed set depend on the sources, where sets are chosen by the noise (groups).

The set of an exposure is held, and the declaration is evaluated for it with every source at intensity 1, and
once more for each source at intensity 2. Groups draw their participants by themselves, so ε is that of
several components: the releases that nobody is drawn for are one, and every draw of its own kind is another
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, cast

import numpy as np

from sfumato.planning.composed_response import ComposedResponse, linear_variances, record_response
from sfumato.planning.noise_response import PlanResponse
from sfumato.planning.targets import pair_charge
from sfumato.privacy.charges import ways_to_charge
from sfumato.privacy.observers import Party
from sfumato.privacy.release import DrawnReleases, Exposure
from sfumato.privacy.sampling import GaussianTerm, Neighbours
from sfumato.schedule.base import Plan
from sfumato.schedule.rows.observers import ObservedUnit


class SetChoosingReleases(Protocol):
    """Declared releases whose exposed set depends on the noise, but can be given from elsewhere."""

    def exposure_like(self, exposure: Exposure, unit: int, coalition: Sequence[Party]) -> Exposure:
        """The exposure with the same exposed releases as ``exposure``, and the noise declared here.

        ``unit``: number of the device; ``coalition``: who observes it.
        """


def responses_of(
    response: PlanResponse, pair: ObservedUnit, exposure: Exposure
) -> Iterator[ComposedResponse]:
    """Yield how the ε of ``pair`` depends on the sources, for each sound way to charge ``exposure``.

    Args:
        response: of the plan to its sources.
        pair: a unit and who observes it.
        exposure: the releases that are charged, whatever the intensities.
    """
    base, *probes = (_declared(plan) for plan in (response.base, *response.probes))
    held = base.exposure_like(exposure, pair.device, pair.coalition)
    probed = [declared.exposure_like(exposure, pair.device, pair.coalition) for declared in probes]
    delta = response.base.spec.privacy.delta
    record = pair_charge(response.base, pair).record
    neighbours: Neighbours = "replace" if record is not None else response.base.spec.privacy.neighbours
    if record is not None and record.counts_draws(held):
        of_probes = [charge.record for charge in (pair_charge(plan, pair) for plan in response.probes)]
        yield record_response(record, [one for one in of_probes if one is not None], delta)
    for way in (held, *held.alternatives):
        alike = [_same_releases(way, other) for other in probed]
        numbers = range(len(ways_to_charge(replace(way, alternatives=()), neighbours)))
        if all(found is not None for found in alike):
            for number in numbers:
                built = _response_of_composition(
                    way, [one for one in alike if one is not None], neighbours, number, delta
                )
                if built is not None:
                    yield built


def _declared(plan: Plan) -> SetChoosingReleases:
    """The plan's declared releases, as those that choose exposed sets."""
    return cast("SetChoosingReleases", plan.releases)


def _same_releases(way: Exposure, other: Exposure) -> Exposure | None:
    """``other`` or that of its alternatives that has the same releases as ``way`` but for their variances.

    ``None`` where none has.
    """
    wanted = _without_variances(way.draws)
    return next(
        (one for one in (other, *other.alternatives) if _without_variances(one.draws) == wanted), None
    )


def _without_variances(draws: Iterable[DrawnReleases]) -> list[DrawnReleases]:
    """The draws with the variance of every release set to 0."""
    return [
        replace(drawn, releases=tuple(replace(release, variance=0.0) for release in drawn.releases))
        for drawn in draws
    ]


def _response_of_composition(
    way: Exposure, probed: Sequence[Exposure], neighbours: Neighbours, number: int, delta: float
) -> ComposedResponse | None:
    """How ε of the ``number``-th way to compose ``way`` depends on the sources.

    Args:
        way: the exposure with every source at intensity 1.
        probed: for each source, the exposure with that source at intensity 2.
        neighbours: the relation.
        number: of the way, as `ways_to_charge` lists them.
        delta: of the targets.

    Returns:
        ``None`` where the releases tell whether the unit takes part, or do not depend on it.
    """
    squares, variances, raised, component = list[float](), list[float](), list[list[float]](), list[int]()
    terms: list[GaussianTerm] = []
    numbers: dict[object, int] = {}
    for place, drawn in enumerate(way.draws):
        if not any(release.sensitivity(neighbours) > 0 for release in drawn.releases):
            continue
        alone = [_terms_of_draw(one, one.draws[place], neighbours, number) for one in (way, *probed)]
        if any(one is None for one in alone):
            return None
        first, *others = (one for one in alone if one is not None)
        sampling = first[0].sampling if first else None
        if sampling is None:  # μ² of releases that everybody is in adds up
            key: object = None
        else:
            ratios = (round(one[0].multiplier / first[0].multiplier, 9) for one in others)
            key = (sampling, first[0].multiplier, *ratios)
        known = key in numbers
        here = numbers.setdefault(key, len(terms))
        if sampling is not None and known:  # the same releases, drawn anew
            terms[here] = replace(terms[here], count=terms[here].count + drawn.count)
            continue
        if not known:
            terms.append(GaussianTerm(1.0, 1 if sampling is None else drawn.count, sampling))
        times = drawn.count if sampling is None else 1
        for index, release in enumerate(drawn.releases):
            if release.sensitivity(neighbours) > 0:
                squares.append(times * release.sensitivity(neighbours) ** 2)
                variances.append(release.variance)
                raised.append([one.draws[place].releases[index].variance for one in probed])
                component.append(here)
    if not terms:
        return None
    slopes, fixed = linear_variances(
        np.array(variances), np.array(raised).reshape(len(variances), len(probed))
    )
    places = np.array(component, dtype=np.int64)
    return ComposedResponse(
        way.bound_name, np.array(squares), slopes, fixed, places, tuple(terms), neighbours, delta
    )


def _terms_of_draw(
    way: Exposure, drawn: DrawnReleases, neighbours: Neighbours, number: int
) -> tuple[GaussianTerm, ...] | None:
    """The terms of ``drawn`` under the ``number``-th way to compose ``way``; ``None`` if it may fail."""
    ways = ways_to_charge(replace(way, draws=(drawn,), alternatives=()), neighbours)
    chosen = ways[min(number, len(ways) - 1)]
    return None if chosen.failure_probability > 0 else chosen.terms
