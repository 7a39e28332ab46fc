"""The facts of every kind of protocol, and a bound of a row that is checked against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from sfumato.verify.draws import Draw
from sfumato.verify.group_exposures import CheckedGroups
from sfumato.verify.moving_exposures import CheckedMovingTree
from sfumato.verify.parties import Party
from sfumato.verify.read import Json
from sfumato.verify.tree_exposures import CheckedTree

Facts: TypeAlias = CheckedTree | CheckedMovingTree | CheckedGroups
FACTS: dict[str, type[CheckedTree] | type[CheckedMovingTree] | type[CheckedGroups]] = {
    "tree": CheckedTree,
    "moving": CheckedMovingTree,
    **dict.fromkeys(("dp-ogl", "dp-ogl+", "dp-ogl-local", "ms-fedavg"), CheckedGroups),
}
"""Every kind of protocol whose facts this checker can read; any other is an error."""


class CertifiedBound(NamedTuple):
    """A bound of a row as its certificate states it, and what it is checked against.

    Attributes:
        name: ``flow``, ``cut`` or ``min-cost``.
        cert: what the certificate states of this bound.
        draws: read from it.
        table: all releases of ``ledger.json``, which certificates name by index.
        spec: contents of spec.yaml.
        facts: of ``ledger.json``.
        unit: index of the device.
        coalition: who observes it.
        is_record: whether the unit is a record or a person.
    """

    name: str
    cert: Json
    draws: Sequence[Draw]
    table: Sequence[Json]
    spec: Json
    facts: Facts
    unit: int
    coalition: Sequence[Party]
    is_record: bool

    def exposure_problems(self) -> list[str]:
        """One line for each mismatch between what this bound charges and what the facts say is exposed."""
        return [*self.facts.exposure_problems(self.name, self.cert, self.draws, self.unit, self.coalition)]
