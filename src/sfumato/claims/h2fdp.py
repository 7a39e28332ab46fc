"""H2FDP's claim (Prop. 3.1), where its formula sized the noise, beside the rigorous figure."""

from __future__ import annotations

from sfumato.privacy.charges import bound_epsilon
from sfumato.privacy.claim import Claim
from sfumato.privacy.guarantee import EpsilonBound, smallest
from sfumato.privacy.observers import PairClass, Party
from sfumato.schedule.tree import TreePlan
from sfumato.spec.privacy import NoiseByFormula

_H2FDP = "H2FDP Prop. 3.1"


def h2fdp_claims(plan: TreePlan, delta: float) -> tuple[Claim, ...]:
    """One claim for each class of pairs; none where no formula sized the noise.

    H2FDP claims (epsilon, delta) towards every semi-honest party: untrusted edges, the cloud, devices and
    whoever sees the global model. A trusted edge is promised nothing, so nothing is claimed there.
    """
    formula = plan.spec.privacy.requested_noise
    if not isinstance(formula, NoiseByFormula):
        return ()
    found = []
    for pair in plan.ledger.pair_classes():
        if _is_semi_honest(plan, pair):
            found.append(_claim(plan, pair, formula.epsilon, delta))
    return tuple(found)


def _is_semi_honest(plan: TreePlan, pair: PairClass) -> bool:
    """Parties the paper's threat model names, met by the unit itself: its edge, peers, cloud, public."""
    if pair.observer.kind == "node":
        path = plan.tree.paths[plan.tree.leaf_of(pair.unit)]
        own = path[pair.observer.tier] == pair.observer.index
        return bool(own) and not plan.tree.tiers[pair.observer.tier].trusted[pair.observer.index]
    return pair.observer.kind == "public" or pair.relation == "peer"


def _claim(plan: TreePlan, pair: PairClass, claimed: float, delta: float) -> Claim:
    exposures = plan.ledger.exposures(pair.unit, (pair.observer,))
    bounds: dict[str, EpsilonBound] = {
        e.bound_name: bound_epsilon(e, delta=delta, neighbours=plan.spec.privacy.neighbours)
        for e in exposures
    }
    best = bounds[smallest(bounds)]
    if best.epsilon <= claimed * (1 + 1e-9):
        why = "the noise that this observer cannot take off is more than the formula asked for."
    else:
        why = (
            "Prop. 3.1 shrinks the noise by the record sampling rate q, but a device takes part whatever the "
            "records drawn, so at device level q amplifies nothing (H1)"
        )
        if pair.observer != Party("public") and len(plan.aggregations) > 1:
            why += (
                "; edge and global releases each spend the whole (epsilon, delta), and this observer is "
                "charged both (H3)"
            )
        why += "."
    return Claim(
        _H2FDP, f"device:{pair.unit}", plan.ledger.party_name(pair.observer), claimed, best.epsilon, why
    )
