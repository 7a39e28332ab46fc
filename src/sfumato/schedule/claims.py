"""What papers claim about a plan, each claim beside the rigorous figure."""

from __future__ import annotations

from sfumato.privacy.claims import Claim
from sfumato.schedule.grouped import GroupedPlan
from sfumato.schedule.h2fdp_claims import h2fdp_claims
from sfumato.schedule.hdp_claims import hdp_claims
from sfumato.schedule.ogl_claims import ogl_claims
from sfumato.schedule.pfels_claims import pfels_claims
from sfumato.schedule.plan import Plan
from sfumato.schedule.tiered import TieredPlan


def claims_of(plan: Plan, delta: float) -> tuple[Claim, ...]:
    """Claims of the paper whose protocol or formula ``plan`` uses; none where there is none."""
    if isinstance(plan, GroupedPlan):
        return ogl_claims(plan, delta)
    if isinstance(plan, TieredPlan):
        if plan.air is not None:
            return pfels_claims(plan, delta)
        return hdp_claims(plan, delta) if plan.spec.protocol == "hdp" else h2fdp_claims(plan, delta)
    return ()
