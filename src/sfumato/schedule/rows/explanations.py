"""One sentence on why a guarantee is what it is."""

from __future__ import annotations

import math

from sfumato.privacy.charges import Composition
from sfumato.privacy.guarantee import EpsilonBound
from sfumato.privacy.observers import Party
from sfumato.privacy.release import Exposure, Release
from sfumato.rounding import upper_bound
from sfumato.schedule.base import Plan
from sfumato.schedule.rows.composed_terms import composed_terms
from sfumato.schedule.rows.watch import watched_coalitions


def is_covered_by_filter(plan: Plan, coalition: tuple[Party, ...]) -> bool:
    """Whether what is reported towards ``coalition`` holds for whatever control chooses on the way.

    A privacy filter holds epsilon towards every single observer, and towards the coalitions that ``watch``
    names (`schedule.adaptive`).
    """
    if plan.spec.control is None or len(coalition) == 1:
        return True
    return frozenset(coalition) in map(frozenset, watched_coalitions(plan.spec, plan.parties))


def explain(
    plan: Plan,
    device: int,
    coalition: tuple[Party, ...],
    exposure: Exposure,
    bound: EpsilonBound,
    way: Composition,
    *,
    of_record: bool,
) -> str:
    """Who meets what, behind how much noise, and how it was composed.

    Args:
        plan: that the pair is of.
        device: the unit, or the device of the record.
        coalition: the observers.
        exposure: of the device, that gives the smallest bound.
        bound: the smallest.
        way: of charging ``exposure``, that gives it.
        of_record: whether the unit is a record.
    """
    if not any(release.depends_on_unit and count for release, count in exposure.counted_releases):
        return "nothing that depends on this device reaches the observer."
    raw = next((r for r, count in exposure.counted_releases if r.is_unprotected and count), None)
    if raw is not None and math.isinf(bound.epsilon):
        return _unprotected(plan, device, coalition, raw, of_record=of_record)
    if not is_covered_by_filter(plan, coalition):
        return (
            "settings are chosen on the way; a privacy filter holds epsilon towards single observers and the "
            "coalitions that watch names."
        )
    charged = composed_terms(way, in_groups=exposure.groups_draw_separately)
    others = any(release.propagated_sensitivity for release in exposure.releases)
    if others and exposure.bound_name != "flow" and not exposure.groups_draw_separately:
        charged += "; devices that started from hidden averages count as replaced"
    if way.failure_probability > 0:
        charged += f"; nothing protects with probability {upper_bound(way.failure_probability)}, "
        charged += "which is not below δ" if math.isinf(bound.epsilon) else "which is taken off δ"
    how = bound.how
    if plan.spec.control is not None:
        how = "a budget that a privacy filter holds, whatever control chooses"
    chosen = "" if exposure.gap is None else f"; {_distance(exposure.gap)}"
    return f"charged {charged}; {how}; {bound.neighbours}, composed by {bound.method}{chosen}."


def _distance(gap: float) -> str:
    """How far a set of releases may be from the cheapest one."""
    if gap == 1:
        return "certified: no exposed set has a smaller divergence"
    if math.isinf(gap):
        return "not certified: how small another set's divergence may be is not known"
    return f"not certified: another set's divergence may be up to {upper_bound(gap)} times smaller"


def _unprotected(
    plan: Plan, device: int, coalition: tuple[Party, ...], raw: Release, *, of_record: bool
) -> str:
    if plan.spec.privacy.noise.kind == "none":
        return "nothing adds noise, so nothing protects."
    law = plan.ledger.noise_law
    counts = not law.why_not_composed or (of_record and law.composed_for_records)
    trusted = next((party for party in coalition if plan.trusts(party, device)), None)
    if counts and trusted is not None:
        name = plan.ledger.party_name(trusted)
        return f"{name} is trusted with raw updates of device:{device}, before any noise is added."
    if law.why_not_composed and counts and plan.ledger.batches.rounded:
        return (
            "messages of clipped examples are rounded before they are noised, on a grid that depends on all "
            "of a message, so nothing bounds how far one example moves them."
        )
    if law.why_not_composed:
        return f"{law.name} noise is charged as none: {law.why_not_composed}."
    observer = ",".join(plan.ledger.party_name(party) for party in coalition)
    return f"{raw.vector} has no noise that {observer} does not know: nobody else adds any before it arrives."
