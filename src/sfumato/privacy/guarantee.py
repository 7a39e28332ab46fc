"""A guarantee says everything that a guarantee must say: unit, observer, relation, bound, method, delta.

`Guarantee.to_dict` is a row of ``privacy.json``, and `Guarantee.from_dict` reads one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.privacy.observers import Relation
from sfumato.privacy.sampling import Neighbours


@dataclass(frozen=True)
class EpsilonBound:
    """One upper bound on what a pair reveals.

    Attributes:
        epsilon: the bound.
        releases: number of releases that it charges.
        method: how they were composed: gdp or pld.
        neighbours: the neighbouring relation.
        how: which draw amplifies what, for people; empty where it was read from a folder.
        exposed: which releases it charges, where these were searched for (`Exposure.exposed`).
        gap: how far they may be from the cheapest ones (`Exposure.gap`).
        draws_told: whether hidden draws are charged as if they were seen, as another bound of the pair is
            surely smaller. Composed as hidden, they might give less.
    """

    epsilon: float
    releases: int
    method: str
    neighbours: Neighbours
    how: str = ""
    exposed: tuple[int, ...] = ()
    gap: float | None = None
    draws_told: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The bound as an entry of ``bounds`` in a row of ``privacy.json``; an ε of ∞ becomes ``"inf"``."""
        entry: dict[str, Any] = {"epsilon": json_number(self.epsilon), "releases": self.releases}
        if self.gap is not None:
            entry |= {"exposed": list(self.exposed), "certified": self.gap == 1, "gap": json_number(self.gap)}
        if self.draws_told:
            entry["draws_told"] = True
        return entry


@dataclass(frozen=True)
class Guarantee:
    """What one observer learns at most about one unit, over the whole training.

    Attributes:
        unit: e.g. ``device:1``.
        observer: a party, or a coalition joined by commas.
        stands_for: equivalent ordered pairs that this row represents.
        delta: the probability of failure.
        bound: name of the smallest of ``bounds``.
        bounds: every bound computed.
        relation: how observer and unit are placed.
        why: one sentence.
        curve: pairs of delta and epsilon, where asked for.
        trusted: whether every unit that the row stands for is known to trust the observer, or one of the
            coalition, with its raw updates.
        as_seen_by: a coalition that contains the observer, where the bounds are those towards it; what it
            learns at most, the observer learns at most. Empty: the observer itself.
        least_epsilon: the smallest ε of a unit that the row stands for; that of ``unit`` is the largest. NaN
            where it is not known.
        sites: names of the sites that these units are at, where a user named any.
        kinds: of how many kinds the pairs are that the row stands for; of several, it is about the worst.
    """

    unit: str
    observer: str
    stands_for: int
    delta: float
    bound: str
    bounds: Mapping[str, EpsilonBound]
    relation: Relation
    why: str
    curve: Sequence[tuple[float, float]] = ()
    trusted: bool = False
    as_seen_by: str = ""
    least_epsilon: float = math.nan
    sites: tuple[str, ...] = ()
    kinds: int = 1

    @property
    def unit_kind(self) -> str:
        """``device``, ``record`` or ``person``: what the unit is (any one record or person of a device)."""
        return self.unit.partition(":")[0]

    @property
    def is_raw(self) -> bool:
        """Whether ε is infinite because the observer is trusted with raw updates."""
        return self.trusted and self.epsilon == math.inf

    @property
    def epsilon_range(self) -> tuple[float, float] | None:
        """The smallest and largest ε of the units that the row stands for.

        ``None`` if these are equal, or if the row stands for pairs in groups whose own ε is not computed.
        """
        return (self.least_epsilon, self.epsilon) if self.least_epsilon < self.epsilon else None

    @property
    def least_known(self) -> float | None:
        """The smallest ε of the units that the row stands for; ``None`` where it is not known.

        It is not known for a row of several kinds of pairs, of which only the worst were charged.
        """
        if not math.isnan(self.least_epsilon):
            return self.least_epsilon
        return self.epsilon if self.kinds == 1 else None

    @property
    def epsilon(self) -> float:
        """The smallest ε of all bounds; ∞ where nothing protects."""
        return self.bounds[self.bound].epsilon

    @property
    def releases(self) -> int:
        """Number of releases that the bound with the smallest ε charges, repeated ones counted."""
        return self.bounds[self.bound].releases

    @property
    def method(self) -> str:
        """How the bound with the smallest ε was composed: ``gdp`` or ``pld``."""
        return self.bounds[self.bound].method

    @property
    def neighbours(self) -> str:
        """Neighbouring relation under which the bound with the smallest ε was computed."""
        return self.bounds[self.bound].neighbours

    def to_dict(self) -> dict[str, Any]:
        """The guarantee as a row of ``privacy.json`` and of ``account --json``; ∞ becomes ``"inf"``."""
        row: dict[str, Any] = {
            "unit": self.unit,
            "observer": self.observer,
            "relation": self.relation.words,
            "observer_kind": self.relation.kind,
            "stands_for": self.stands_for,
            "neighbours": self.neighbours,
            "epsilon": json_number(self.epsilon),
            "releases": self.releases,
            "bound": self.bound,
            "method": self.method,
            "bounds": {name: bound.to_dict() for name, bound in self.bounds.items()},
            "trusted": self.trusted,
            "why": self.why,
        }
        if self.epsilon_range is not None or (self.kinds > 1 and self.least_known is not None):
            row["epsilon_range"] = [json_number(self.least_epsilon), json_number(self.epsilon)]
        if self.kinds > 1:
            row["kinds_of_pairs"] = self.kinds
        if self.sites:
            row["sites"] = list(self.sites)
        if self.as_seen_by:
            row["as_seen_by"] = self.as_seen_by
        if self.curve:
            row["curve"] = [{"delta": d, "epsilon": json_number(e)} for d, e in self.curve]
        return row

    @classmethod
    def from_dict(cls, row: Mapping[str, Any], delta: float) -> Guarantee:
        """Read the guarantee from a row of ``privacy.json``, at the δ of its file; its curve is left out.

        Earlier versions left out some keys. A row states method and neighbours of its smallest bound only, so
        all of its bounds have these.

        Args:
            row: one entry of ``guarantees``, decoded from JSON.
            delta: δ of the file, in (0, 1).

        Raises:
            KeyError: ``unit``, ``observer``, ``epsilon`` or ``stands_for`` is missing, or a key of a bound.
            TypeError: a value that must be a number is neither a number nor a string.
            ValueError: it is a string that is no number, or ``observer_kind`` is unknown or not the
            observer's.
        """
        name, epsilon = str(row.get("bound", "flow")), float(row["epsilon"])
        neighbours: Neighbours = row.get("neighbours", "–")
        method = str(row.get("method", "–"))
        stated = row.get("bounds", {}) | {name: {"epsilon": epsilon, "releases": row.get("releases", 0)}}
        bounds = {
            bound: EpsilonBound(
                float(one["epsilon"]),
                int(one["releases"]),
                method,
                neighbours,
                draws_told=bool(one.get("draws_told", False)),
            )
            for bound, one in stated.items()
        }
        words, observer = str(row.get("relation", "")), str(row["observer"])
        kind = row.get("observer_kind")
        return cls(
            unit=str(row["unit"]),
            observer=observer,
            stands_for=int(row["stands_for"]),
            delta=delta,
            bound=name,
            bounds=bounds,
            relation=Relation.of_words(words) if kind is None else Relation.read(kind, words, observer),
            why=str(row.get("why", "")),
            trusted=bool(row.get("trusted", False)),
            as_seen_by=str(row.get("as_seen_by", "")),
            least_epsilon=float(row.get("epsilon_range", [math.nan])[0]),
            sites=tuple(map(str, row.get("sites", ()))),
            kinds=int(row.get("kinds_of_pairs", 1)),
        )


def json_number(value: float) -> float | str:
    """``value`` as JSON can hold it: itself if it is finite, else (also for NaN) the text ``"inf"``."""
    return value if math.isfinite(value) else "inf"


def smallest(bounds: Mapping[str, EpsilonBound]) -> str:
    """The name of the bound with the smallest ε; ``flow`` if its ε equals that to a relative 1e-9.

    ``bounds``: by name, one or more.
    """
    best = min(bounds.values(), key=lambda bound: bound.epsilon).epsilon
    if "flow" in bounds and (bounds["flow"].epsilon == best or bounds["flow"].epsilon <= best * (1 + 1e-9)):
        return "flow"
    return min(bounds, key=lambda name: bounds[name].epsilon)
