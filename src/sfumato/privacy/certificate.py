"""Certificates: what each ε follows from, as JSON for a checker that shares no code with this package.

A certificate of a row holds, for each of its bounds, the exposed set by draws (every release with what moves
it and whose noise hides it), the terms that were composed, under which relation, the grid and direction of
rounding of the privacy losses, δ, ε and the method. Releases are kept once, in a table that rows refer to by
number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from sfumato.privacy.accountant import compose, compose_roughly
from sfumato.privacy.charges import Composition, ways_to_charge
from sfumato.privacy.declared_releases import DeclaredReleases, best_way
from sfumato.privacy.guarantee import Guarantee, json_number
from sfumato.privacy.observers import Party
from sfumato.privacy.records import RecordCharge, RecordReleases
from sfumato.privacy.release import DrawnReleases, Exposure, Release
from sfumato.privacy.sampling import Neighbours

CERTIFICATE_FORMAT = 1


@dataclass(frozen=True)
class CertifiedPair:
    """A row of the guarantees, and the pair that it is about.

    Attributes:
        device: the unit, or the device of the record.
        coalition: who observes it.
        row: the guarantee.
    """

    device: int
    coalition: tuple[Party, ...]
    row: Guarantee

    @property
    def is_record(self) -> bool:
        """Whether the unit is a record, or a person (charged as a record is), and not a device."""
        return self.row.unit_kind != "device"


def certificates_of(
    declared: DeclaredReleases, pairs: Iterable[CertifiedPair], *, neighbours: Neighbours, by_filter: bool
) -> dict[str, Any]:
    """The content of the certificate file: one certificate for each of ``pairs``, in their order.

    Args:
        declared: the releases that the guarantees were computed from.
        pairs: the guarantees, each with its unit and coalition.
        neighbours: the relation of the spec.
        by_filter: whether a privacy filter holds the budgets.

    Returns:
        A JSON object: ``format`` (a version number), ``releases`` (a table) and ``rows``, whose certificates
        refer to releases by their place in the table.
    """
    writer = _Writer(declared, neighbours, by_filter)
    rows = [writer.row(pair) for pair in pairs]
    return {"format": CERTIFICATE_FORMAT, "releases": writer.releases, "rows": rows}


class _Writer:
    def __init__(self, declared: DeclaredReleases, neighbours: Neighbours, by_filter: bool) -> None:
        """Start an empty table of releases for certificates of pairs charged by ``declared``.

        Args:
            declared: the releases that the guarantees were computed from.
            neighbours: the neighbouring relation of the spec.
            by_filter: whether a privacy filter holds the budgets.
        """
        self._declared, self._neighbours, self._by_filter = declared, neighbours, by_filter
        self.releases: list[dict[str, Any]] = []
        self._numbers: dict[tuple[Release, tuple[tuple[str, float], ...]], int] = {}

    def row(self, pair: CertifiedPair) -> dict[str, Any]:
        """Build the certificate of one guarantee as a JSON object, a part for each bound under ``bounds``.

        Releases that are not in the table yet are added to it.
        """
        exposures = self._declared.exposures(pair.device, pair.coalition)
        owned = self._declared.noise_by_owner(pair.device, pair.coalition)
        record = None
        if pair.is_record:
            record = RecordCharge.of(
                self._declared,
                pair.device,
                pair.coalition,
                neighbours=self._neighbours,
                by_filter=self._by_filter,
            )
        bounds = {}
        for exposure in exposures:
            bounds[exposure.bound_name] = self._certificate_of_bound(
                pair, exposure, record, owned[exposure.bound_name]
            )
            if exposure.exposed:
                what = "releases_per_group" if exposure.groups_draw_separately else "aggregations"
                bounds[exposure.bound_name][f"exposed_{what}"] = list(exposure.exposed)
        return {
            "unit": pair.row.unit,
            "observer": pair.row.observer,
            **({"as_seen_by": pair.row.as_seen_by} if pair.row.as_seen_by else {}),
            "relation": self._neighbours,
            "delta": pair.row.delta,
            "bounds": bounds,
        }

    def _certificate_of_bound(
        self,
        pair: CertifiedPair,
        exposure: Exposure,
        record: RecordCharge | None,
        noise: Mapping[Release, Mapping[str, float]],
    ) -> dict[str, Any]:
        """Build what one bound of a certificate follows from: exposed set, terms, grid, method and ε.

        Args:
            pair: the guarantee.
            exposure: the releases that the bound charges.
            record: how a record is charged; ``None`` where the device is the unit.
            noise: for each release, its noise variance, a coordinate, by kind of owner (such as ``devices``).

        Returns:
            The value of one key of ``bounds``, a JSON object whose keys docs/certificates.md lists. Of
            several ways to charge ``exposure``, it describes the one with the smallest ε.
        """
        stated = pair.row.bounds[exposure.bound_name]
        if record is not None and not record.counts_draws(exposure):
            record = replace(record, rate=None)  # an alternative alone would pass `counts_draws`
        alternative_number, candidate, way = self._way_of_bound(exposure, record, pair.row.delta)
        found: dict[str, Any] = {
            "epsilon": json_number(stated.epsilon),
            "releases": stated.releases,
            "method": stated.method,
            "neighbours": stated.neighbours,
            "alternative": alternative_number,
            "draws": [self._draw_as_json(drawn, noise) for drawn in candidate.draws],
            "composed_under": way.neighbours,
            "terms": [_to_json(term) for term in way.terms],
            "failure_probability": way.failure_probability,
            "losses": {
                "interval": _interval_of(way, pair.row.delta),
                "direction": "rounded up",
            },
        }
        if candidate.outcomes is not None:
            found["chances"] = list(candidate.outcomes.chances)
        if candidate.election_events:
            found["elections"] = [
                {
                    "probability": event.probability,
                    "rounds": event.rounds,
                    "what": event.what,
                    "pairs": [
                        [self._numbers_of(one, noise), self._numbers_of(other, noise)]
                        for one, other in event.pairs
                    ],
                }
                for event in candidate.election_events
            ]
        record_terms = () if record is None or record.rate is None else record.drawn_terms()
        if record is not None and record_terms and way.terms == record_terms:
            found["record"] = {
                "rate": record.rate,
                "parts": [self._record_part_as_json(part, noise) for part in record.drawn],
            }
        return found

    def _way_of_bound(
        self, exposure: Exposure, record: RecordCharge | None, delta: float
    ) -> tuple[int, Exposure, Composition]:
        """Find the way of charging ``exposure`` that has the smallest ε at ``delta``.

        Args:
            exposure: the releases that the bound charges.
            record: how a record is charged; ``None`` where the device is the unit.
            delta: δ in (0, 1).

        Returns:
            The number of the alternative (0: ``exposure`` itself, n: its n-th alternative), that alternative
            without alternatives of its own, and the composition with the smallest ε.
        """
        ways = []
        for place, candidate in enumerate((exposure, *exposure.alternatives)):
            alone = replace(candidate, alternatives=())
            found = ways_to_charge(alone, self._neighbours) if record is None else record.ways(alone)
            ways += [(place, alone, way) for way in found]
        best = best_way([way for _, _, way in ways], delta)
        return next(found for found in ways if found[2] is best)

    def _draw_as_json(
        self, drawn: DrawnReleases, noise: Mapping[Release, Mapping[str, float]]
    ) -> dict[str, Any]:
        """Write a draw of participants as a JSON object: ``sampling``, ``count``, and ``releases`` by number.

        Args:
            drawn: the draw, how often it happens, and its releases.
            noise: for each release, noise variance, a coordinate, by kind of owner.

        Returns:
            The object; ``max_weight_ratio`` and ``drawn_noise`` are in it only where they matter.
        """
        found = {"sampling": _to_json(drawn.sampling), "count": drawn.count}
        if drawn.max_weight_ratio != 1.0:
            found["max_weight_ratio"] = drawn.max_weight_ratio
        if drawn.drawn_noise:
            found["drawn_noise"] = _to_json(drawn.drawn_noise)
        return found | {"releases": self._numbers_of(drawn.releases, noise)}

    def _record_part_as_json(
        self, part: RecordReleases, noise: Mapping[Release, Mapping[str, float]]
    ) -> dict[str, Any]:
        """Write one part of what a record is charged as JSON, its releases by their numbers in the table.

        Args:
            part: releases that were trained on the same draws of the record.
            noise: for each release, noise variance by kind of owner.
        """
        return {**_to_json(part), "releases": self._numbers_of(part.releases, noise)}

    def _numbers_of(
        self, releases: Sequence[Release], noise: Mapping[Release, Mapping[str, float]]
    ) -> list[int]:
        """Look up the numbers of ``releases`` in the table, in their order; new ones are added to it.

        ``noise`` gives the noise variance of each by kind of owner; a release that is missing in it has none.
        """
        return [self._number_of(release, noise.get(release, {})) for release in releases]

    def _number_of(self, release: Release, noise: Mapping[str, float]) -> int:
        """The place, from 0, of ``release`` in the table; added at its end if it is new with this noise.

        ``noise``: variance, a coordinate, by kind of owner; owners of 0 are left out.
        """
        owners = tuple(sorted((owner, variance) for owner, variance in noise.items() if variance))
        key = release, owners
        if key not in self._numbers:
            self._numbers[key] = len(self.releases)
            self.releases.append(_to_json(release) | ({"noise": dict(owners)} if owners else {}))
        return self._numbers[key]


def _interval_of(way: Composition, delta: float) -> float | None:
    """The interval, in nats, of the grid of privacy losses on which ``way`` is composed at ``delta``.

    ``None`` where no privacy loss distribution is computed.
    """
    delta_of_terms = delta - way.failure_probability
    if way.roughly and delta_of_terms > 0:
        return compose_roughly(way.terms, neighbours=way.neighbours, delta=delta_of_terms).discretization
    return compose(way.terms, neighbours=way.neighbours).discretization


def _to_json(value: Any) -> Any:
    """``value`` as JSON: a tuple as a list, a float that is not finite as ``"inf"``, a dataclass as object.

    Of a dataclass only fields that differ from their defaults are written; other values stay as they are.
    """
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    if not hasattr(value, "__dataclass_fields__"):
        return json_number(value) if isinstance(value, float) else value
    found = {}
    for one in fields(value):
        held = getattr(value, one.name)
        if one.default is MISSING or held != one.default:
            found[one.name] = _to_json(held)
    return found
