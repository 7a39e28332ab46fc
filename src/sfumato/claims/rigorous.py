"""The rigorous figure beside a claim, for a device and for one record of it."""

from __future__ import annotations

from sfumato.privacy.charges import bound_epsilon
from sfumato.privacy.guarantee import EpsilonBound, smallest
from sfumato.privacy.observers import PairClass
from sfumato.privacy.records import RecordCharge
from sfumato.schedule.tree import TreePlan


def claimed_units(plan: TreePlan) -> tuple[str, ...]:
    """Kinds of units that claims are shown for, as ``privacy.unit`` says."""
    unit = plan.spec.privacy.unit
    return ("device", "record") if unit == "both" else (unit,)


def rigorous_bound(plan: TreePlan, pair: PairClass, unit: str, delta: float) -> EpsilonBound:
    """The smallest bound of a class of pairs; of records, for the devices that draw theirs most often."""
    observer, neighbours = (pair.observer,), plan.spec.privacy.neighbours
    exposures = plan.ledger.exposures(pair.unit, observer)
    bounds: dict[str, EpsilonBound] = {}
    if unit == "record":
        charge = RecordCharge.of(
            plan.ledger,
            pair.unit,
            observer,
            neighbours=neighbours,
            by_filter=plan.spec.control is not None,
        )
        bounds.update((e.bound_name, charge.bound_epsilon(e, delta=delta)) for e in exposures)
    else:
        bounds.update((e.bound_name, bound_epsilon(e, delta=delta, neighbours=neighbours)) for e in exposures)
    return bounds[smallest(bounds)]
