"""The trade-off curve that the accountant claims for one pair, to be tested as it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from sfumato.auditing.tradeoff import ComposedCurves
from sfumato.privacy.charges import Composition, composed_epsilon, ways_to_charge
from sfumato.privacy.observers import Party
from sfumato.privacy.records import RecordCharge
from sfumato.schedule.base import Plan


def claimed_curves(
    plan: Plan, protected: tuple[str, int], coalition: Sequence[Party]
) -> ComposedCurves | None:
    """The curve that the accountant composes, with the noise scaled; ``None`` if it claims no finite ε.

    With elections the curve is a mixture that depends on what members receive in office and out of it; with
    denominators that depend on the draw no two rounds are alike; a record may be drawn at any local step. In
    these cases the accountant's own curve is tested: the lower bound exceeds its ε only if the curve is
    refuted.

    Args:
        plan: that is audited.
        protected: ``device`` or ``record``, and the number of the device.
        coalition: the colluding observers.
    """
    delta = plan.spec.privacy.delta
    found = [
        (composed_epsilon(charge.terms, charge.neighbours, delta - charge.failure_probability)[0], charge)
        for charge in _ways(plan, *protected, coalition)
        if charge.failure_probability < delta
    ]
    epsilon, best = min(found, key=lambda pair: pair[0], default=(math.inf, None))
    if best is None or not 0 < epsilon < math.inf:
        return None
    return ComposedCurves(best.terms, best.neighbours, best.failure_probability)


def _ways(plan: Plan, kind: str, device: int, coalition: Sequence[Party]) -> Iterable[Composition]:
    """Every way in which the accountant charges the pair."""
    ledger, neighbours = plan.ledger, plan.spec.privacy.neighbours
    exposures = ledger.exposures(device, coalition)
    if kind == "device":
        return (way for exposure in exposures for way in ways_to_charge(exposure, neighbours))
    charge = RecordCharge.of(ledger, device, coalition, neighbours=neighbours)
    return (way for exposure in exposures for way in charge.ways(exposure))
