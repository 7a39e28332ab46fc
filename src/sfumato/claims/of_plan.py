"""What papers claim about a plan, each claim beside the rigorous figure."""

from __future__ import annotations

from dataclasses import replace

from sfumato.claims.h2fdp import h2fdp_claims
from sfumato.claims.hdp import hdp_claims
from sfumato.claims.pfels import pfels_claims
from sfumato.families import family_of
from sfumato.privacy.claim import Claim
from sfumato.schedule.base import Plan
from sfumato.schedule.tree import TreePlan


def claims_of(plan: Plan, delta: float) -> tuple[Claim, ...]:
    """Claims of the paper whose protocol or formula ``plan`` uses; none where there is none.

    No paper here clips the gradients of examples.
    """
    if plan.spec.privacy.clips_examples:
        return ()
    claims: tuple[Claim, ...] = family_of(plan.spec).claims(plan, delta)
    return tuple(replace(claim, why=plan.parties.titled(claim.why)) for claim in claims)


def tree_claims(plan: TreePlan, delta: float) -> tuple[Claim, ...]:
    """Claims of PFELS over the air, else of HDP or H2FDP, as the protocol's name says."""
    if plan.eras:
        return ()  # no paper here has devices that move, or trust that changes
    if plan.air is not None:
        return pfels_claims(plan, delta)
    return hdp_claims(plan, delta) if plan.spec.protocol == "hdp" else h2fdp_claims(plan, delta)
