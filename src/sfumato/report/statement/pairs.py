"""The guarantees of a statement by how observers are placed towards units, and by named site."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sfumato.privacy.guarantee import Guarantee, json_number


@dataclass(frozen=True)
class RelatedPairs:
    """All guarantees of one kind of unit towards observers of one relation, either trusted or not.

    Attributes:
        guarantees: at least one.
        for_example: unit and observer of the largest ε, as text.
    """

    guarantees: tuple[Guarantee, ...]
    for_example: str

    @cached_property
    def worst(self) -> Guarantee:
        """The guarantee with the largest ε."""
        return max(self.guarantees, key=lambda row: row.epsilon)

    @property
    def pairs(self) -> int:
        """The number of pairs of a unit and an observer that the guarantees stand for."""
        return sum(row.stands_for for row in self.guarantees)

    @property
    def unprotected(self) -> int:
        """How many of these pairs have no guarantee (ε = ∞)."""
        return sum(row.stands_for for row in self.guarantees if row.epsilon == math.inf)

    @property
    def largest_finite(self) -> float | None:
        """The largest ε of the pairs that have a guarantee; ``None`` if none has."""
        return max((row.epsilon for row in self.guarantees if row.epsilon < math.inf), default=None)

    def to_dict(self) -> dict[str, Any]:
        """The entry of ``largest`` in the JSON of a statement, a JSON object.

        An infinite ε is "inf".
        """
        worst = self.worst
        return {
            "unit": worst.unit_kind,
            "observer_is": worst.relation.words,
            "trusted_by_the_unit": worst.trusted,
            "epsilon": json_number(worst.epsilon),
            "largest_finite_epsilon": self.largest_finite,
            "for_example": self.for_example,
            "method": worst.method,
            "pairs": self.pairs,
            "pairs_without_a_guarantee": self.unprotected,
            "why": worst.why,
        }


@dataclass(frozen=True)
class SiteEpsilons:
    """The largest ε of the units of one kind at a named site.

    Attributes:
        site: its name.
        unit: the kind.
        epsilon: by the observer in words.
    """

    site: str
    unit: str
    epsilon: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The entry of ``sites`` in the JSON of a statement, a JSON object; ∞ is "inf"."""
        epsilons = {whom: json_number(value) for whom, value in self.epsilon.items()}
        return {"site": self.site, "unit": self.unit, "epsilon": epsilons}


def observer_in_words(row: Guarantee) -> str:
    """The observer of a row in words, such as "own edge"."""
    return f"{row.relation.words}, trusted with raw updates" if row.trusted else row.relation.words
