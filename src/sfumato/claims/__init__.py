"""What papers claim about a plan, each claim beside the rigorous figure (docs/errata.md).

``accounting`` and ``report`` import from here; here ``schedule`` and what is below it are imported.
`claims_of` imports the file of one paper only.

    h2fdp            Proposition 3.1, and for which constant its condition is met
    hdp              Table I and the lemma of Sec. IV-C
    dp_ogl           Theorems 1 and 2, for every class of pairs
    dp_ogl_counts    Theorem 1: what it counts, and what it makes of it
    dp_ogl_theorem2  Theorem 2: strings of groups
    papers           the papers, and what they say at the places that sentences name
    opacus_rdp       the orders, divergences and conversion of Opacus, which the paper's figures use
    pfels            Theorem 3
    pfels_bound      the convergence bound (23), and the ratio it advises
"""

from __future__ import annotations

from dataclasses import replace

from sfumato.families import family_of
from sfumato.privacy.claim import Claim
from sfumato.privacy.declared_releases import PairCharge
from sfumato.privacy.guarantee import EpsilonBound, smallest
from sfumato.privacy.observers import PairClass
from sfumato.schedule.base import Plan
from sfumato.schedule.tree import TreePlan
from sfumato.spec.privacy import NoiseByFormula

_BY_H2FDP = ("h2fdp", "hfl-dp", "pedpfl", "dp-fedavg")
"""Protocols that Prop. 3.1 is claimed for: H2FDP's own, and what its paper compares it with."""


def claims_of(plan: Plan, delta: float) -> tuple[Claim, ...]:
    """The claims of the paper behind the plan's protocol or noise formula, beside our ε at ``delta``.

    The plan is resolved. Empty where there is no such paper, or where the gradients of examples are clipped:
    no paper here does that. The reasons (`Claim.why`) name parties by their titles in the spec.
    """
    if plan.spec.privacy.clips_examples:
        return ()
    found = family_of(plan.spec).claims(plan, delta)
    return tuple(replace(claim, why=plan.parties.titled(claim.why)) for claim in found)


def tree_claims(plan: TreePlan, delta: float) -> tuple[Claim, ...]:
    """What the paper behind a tree plan claims about its ε, beside the ε that we prove at ``delta``.

    Noise by formula (``privacy.noise.kind: formula``) has PFELS's claims if devices send over the air, else
    H2FDP's for ``h2fdp``, ``hfl-dp``, ``pedpfl`` and ``dp-fedavg``. Other noise has HDP's claims with
    protocol ``hdp`` and no air. Every other plan has none, nor has one where devices move or trust changes.
    """
    spec, formula = plan.spec, plan.spec.privacy.requested_noise
    if plan.eras:
        return ()  # no paper here has devices that move, or trust that changes
    if isinstance(formula, NoiseByFormula):
        if plan.air is not None:
            from sfumato.claims.pfels import pfels_claims

            return pfels_claims(plan, plan.air, formula.epsilon, delta)
        if spec.protocol in _BY_H2FDP:
            from sfumato.claims.h2fdp import h2fdp_claims

            return h2fdp_claims(plan, formula.epsilon, delta)
    elif spec.protocol == "hdp" and plan.air is None:
        from sfumato.claims.hdp import hdp_claims

        return hdp_claims(plan, delta)
    return ()


def claimed_units(plan: TreePlan) -> tuple[str, ...]:
    """The kinds of units with claims: ``device``, ``record`` or ``person``, or both of the first two.

    By ``privacy.unit`` of the plan.
    """
    unit = plan.spec.privacy.unit
    return ("device", "record") if unit == "both" else (unit,)


def rigorous_bound(plan: TreePlan, pair: PairClass, unit: str, delta: float) -> EpsilonBound:
    """The smallest bound on ε that Sfumato proves for a class of pairs, beside which a claim stands.

    Args:
        plan: resolved.
        pair: the class.
        unit: the kind of unit, ``device``, ``record`` or ``person``; a record or person is charged as one of
            the device that draws its own most often.
        delta: of the bound, in (0, 1).

    Returns:
        The bound with the smallest ε of the flow, cut and min-cost bounds; its ε is ∞ where noise protects
        nothing.
    """
    spec = plan.spec
    charge = PairCharge.of(
        plan.releases,
        unit,
        pair.unit,
        (pair.observer,),
        neighbours=spec.privacy.neighbours,
        by_filter=spec.control is not None,
    )
    bounds = charge.bounds(delta)
    return bounds[smallest(bounds)]
