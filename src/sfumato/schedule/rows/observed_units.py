"""A unit and who observes it: one pair, or the worst of a class of pairs."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.privacy.declared_releases import DeclaredReleases
from sfumato.privacy.observers import PairClass, Party, Relation
from sfumato.privacy.pair_charge import PairCharge
from sfumato.schedule.base import Plan
from sfumato.spec.document import Spec


@dataclass(frozen=True)
class ObservedUnit:
    """A unit and a coalition.

    Attributes:
        kind: ``device``, or ``record`` for any one record of the device.
        device: its number.
        coalition: who observes it.
        relation: how observer and unit are placed.
        stands_for: equivalent ordered pairs that it represents; no unit of them has a larger ε.
        least: of these units, the device whose records are drawn least often, where not all are drawn alike.
        sites: numbers of the sites that these units are at, where a user named any.
    """

    kind: str
    device: int
    coalition: tuple[Party, ...]
    relation: Relation
    stands_for: int
    least: int | None = None
    sites: tuple[int, ...] = ()

    @classmethod
    def of_class(cls, kind: str, pair: PairClass) -> ObservedUnit:
        """The worst pair of a class, for all of it."""
        observers = (pair.observer,)
        return cls(kind, pair.unit, observers, pair.relation, pair.pair_count, pair.least, pair.sites)

    def charge(self, plan: Plan, ledger: DeclaredReleases, *, drawn_like: int | None = None) -> PairCharge:
        """How it is charged in ``ledger``; a record as often drawn as one of the device ``drawn_like``."""
        return PairCharge.of(
            ledger,
            self.kind,
            self.device,
            self.coalition,
            neighbours=plan.spec.privacy.neighbours,
            drawn_like=drawn_like,
            by_filter=plan.spec.control is not None,
        )


def main_unit(spec: Spec) -> str:
    """The kind of unit that is followed over rounds: a record where no device is a unit, else a device."""
    return "record" if spec.privacy.unit == "record" else "device"


def unit_kinds(plan: Plan) -> tuple[str, ...]:
    """Kinds of units that the spec asks guarantees for."""
    unit = plan.spec.privacy.unit
    return ("device", "record") if unit == "both" else (unit,)
