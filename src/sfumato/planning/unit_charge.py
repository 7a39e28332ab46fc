"""How the unit of a plan is charged: a device, or any one record of it.

Targets are about records where ``privacy.unit`` is ``record``, otherwise about devices (also where it is
``both``).
"""

from __future__ import annotations

from sfumato.accounting import ObservedUnit, unit_guarantee
from sfumato.planning.targets import ObservedPair
from sfumato.privacy.declared_releases import PairCharge
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.observers import ASKED_FOR
from sfumato.schedule.base import Plan


def protects_records(plan: Plan) -> bool:
    """Whether targets are about records."""
    return plan.spec.privacy.unit == "record"


def is_sampled(plan: Plan) -> bool:
    """Whether participants or records are drawn, so that ε takes long to compute."""
    return plan.is_sampled or (protects_records(plan) and plan.ledger.batches.rates is not None)


def pair_charge(plan: Plan, pair: ObservedPair) -> PairCharge:
    """How ``pair`` is charged."""
    return PairCharge.of(
        plan.ledger,
        _kind(plan),
        pair.unit,
        pair.coalition,
        neighbours=plan.spec.privacy.neighbours,
        by_filter=plan.spec.control is not None,
    )


def guarantee(plan: Plan, pair: ObservedPair) -> Guarantee:
    """The guarantee of ``pair``, as `sfumato.account` gives it."""
    observed = ObservedUnit(_kind(plan), pair.unit, pair.coalition, ASKED_FOR, pair.stands_for)
    return unit_guarantee(plan, observed, delta=plan.spec.privacy.delta)


def noise_scale(plan: Plan, pair: ObservedPair, epsilon: float) -> float:
    """Least factor on all noise at which the ε of ``pair`` is at most ``epsilon``; infinite without noise."""
    return pair_charge(plan, pair).noise_scale(epsilon, plan.spec.privacy.delta)


def _kind(plan: Plan) -> str:
    return "record" if protects_records(plan) else "device"
