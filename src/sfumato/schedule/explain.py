"""One sentence on why a guarantee is what it is."""

from __future__ import annotations

import math

from sfumato.privacy.guarantee import Bound
from sfumato.privacy.release import Exposure, Release
from sfumato.privacy.tiered import Party
from sfumato.schedule.tiered import TieredPlan


def explain(
    plan: TieredPlan, device: int, coalition: tuple[Party, ...], exposure: Exposure, bound: Bound
) -> str:
    """Who meets what, behind how much noise, and how it was composed."""
    ledger = plan.ledger
    observer = ",".join(ledger.party_name(party) for party in coalition)
    raw = next((r for r in exposure.releases if r.variance == 0 and r.own > 0), None)
    if raw is not None:
        return _unprotected(plan, device, observer, coalition, raw)
    views: dict[str, list[Release]] = {}
    for release in exposure.releases:
        views.setdefault(release.view, []).append(release)
    parts = []
    for view, releases in views.items():
        multipliers = [math.sqrt(r.variance) / (r.own + r.others) for r in releases]
        low, high = min(multipliers), max(multipliers)
        noise = f"{low:.4g}" if high <= low * (1 + 1e-9) else f"{low:.4g} to {high:.4g}"
        parts.append(f"{sum(r.count for r in releases)} of {view} at multiplier {noise}")
    sentence = f"charged {' and '.join(parts)}; {bound.how}; {bound.neighbours}, composed by {bound.method}"
    if exposure.bound == "cut" and any(r.others for r in exposure.releases):
        sentence += "; devices that started from hidden averages are charged as replaced"
    return sentence + "."


def _unprotected(
    plan: TieredPlan, device: int, observer: str, coalition: tuple[Party, ...], raw: Release
) -> str:
    if plan.spec.privacy.noise.kind == "none":
        return "nothing adds noise, so nothing protects."
    path = plan.tree.paths[plan.tree.leaf_of(device)]
    for party in coalition:
        if party.kind == "node" and path[party.tier] == party.index and plan.tree.tiers[party.tier].trusted[party.index]:
            name = plan.ledger.party_name(party)
            return f"{name} is trusted with raw updates of device:{device} and sees them before any noise is added."
    return f"all the noise in {raw.view} belongs to {observer}, or none is added before it arrives there."
