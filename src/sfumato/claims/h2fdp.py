"""H2FDP's claim (Prop. 3.1), where its formula sized the noise, beside the rigorous figure.

The paper leaves c₁ of its condition, ε < c₁qL, open (docs/errata.md, H2).
"""

from __future__ import annotations

from sfumato.claims import claimed_units, rigorous_bound
from sfumato.data.dataset_sizes import mean_examples
from sfumato.errors import SpecError
from sfumato.privacy.claim import Claim, claim_holds
from sfumato.privacy.guarantee import EpsilonBound
from sfumato.privacy.observers import PairClass, Party
from sfumato.rounding import upper_bound
from sfumato.schedule.noise.placement import record_rate
from sfumato.schedule.tree import TreePlan

_H2FDP = "H2FDP Prop. 3.1"


def h2fdp_claims(plan: TreePlan, claimed: float, delta: float) -> tuple[Claim, ...]:
    """H2FDP's claim that ε is ``claimed``, for each unit and class of pairs, beside our ε at ``delta``.

    The paper has edges under a cloud: () for deeper trees.

    H2FDP claims (epsilon, delta) towards every semi-honest party: untrusted edges, the cloud, devices and
    whoever sees the global model. A trusted edge is promised nothing, so nothing is claimed there. Its
    Definition 2.1 speaks of one element, which is a record here.
    """
    if plan.tree.depth > 2:
        return ()
    condition = _condition(plan, claimed)
    asked = [(pair, unit) for pair in plan.releases.pair_classes() for unit in claimed_units(plan)]
    semi_honest = [(pair, unit) for pair, unit in asked if _is_semi_honest(plan, pair)]
    return tuple(_claim(plan, *one, claimed, delta, condition) for one in semi_honest)


def _is_semi_honest(plan: TreePlan, pair: PairClass) -> bool:
    """Whether the threat model names the observer: the unit's untrusted edge, peers, cloud, public."""
    if pair.observer.kind == "node":
        path = plan.tree.paths[plan.tree.leaf_of(pair.unit)]
        own = path[pair.observer.tier] == pair.observer.index
        return bool(own) and not plan.tree.tiers[pair.observer.tier].trusted[pair.observer.index]
    return pair.relation.kind in ("public", "peer")


def _claim(plan: TreePlan, pair: PairClass, unit: str, claimed: float, delta: float, condition: str) -> Claim:
    """The claim for a pair beside its rigorous ε, with a sentence on why they differ.

    ``unit``: its kind; ``delta``: of both ε; ``claimed``: the paper's ε; ``condition``: from `_condition`.
    """
    best = rigorous_bound(plan, pair, unit, delta)
    why = _why_of_record(plan, best) if unit != "device" else _why_of_device(plan, pair)
    if claim_holds(claimed, best.epsilon):
        why = "the noise that stays in what this observer sees suffices for the claimed ε."
    observer, why = plan.releases.party_name(pair.observer), f"{why.removesuffix('.')}; {condition}."
    return Claim(_H2FDP, f"{unit}:{pair.unit}", observer, claimed, best.epsilon, why)


def _condition(plan: TreePlan, claimed: float) -> str:
    """A sentence on whether the condition of Prop. 3.1 is met, as far as it can be checked.

    Of the two noises the global one has the smaller L, the number of rounds: its condition is the stricter.
    ``claimed``: the ε of the paper.
    """
    condition = "Prop. 3.1 is for ε < c₁qL only and leaves c₁ open"
    rounds = plan.spec.training.rounds
    try:
        rate = record_rate(plan.spec, mean_examples(plan.spec, plan.tree))
    except SpecError:  # noise that was sized for another partition
        return f"{condition}; q is not known before the data are divided (H2)"
    needed = claimed / (rate * rounds)
    planned = "planned " if plan.spec.control is not None else ""  # control makes another number of them
    return (
        f"{condition}: with q = {rate:.4g} and L = {rounds:,} {planned}global aggregations this is met if "
        f"c₁ > {upper_bound(needed)}; the proof that it rests on needs ε < c₁q²L, which is met if "
        f"c₁ > {upper_bound(needed / rate)} (H2)"
    )


def _why_of_device(plan: TreePlan, pair: PairClass) -> str:
    """A sentence on what Prop. 3.1 gets wrong for a whole device."""
    why = (
        "Prop. 3.1 makes the noise smaller because records are drawn at random; a device takes part in every "
        "round whatever is drawn, so that hides nothing of it (H1)"
    )
    if pair.observer != Party("public") and len(plan.releases.steps_of(plan.tree.leaf_of(pair.unit))) > 1:
        why += (
            "; edge and global releases each spend the whole (ε, δ), and this observer is charged both (H3)"
        )
    return why + "."


def _why_of_record(plan: TreePlan, best: EpsilonBound) -> str:
    """A sentence on what Prop. 3.1 leaves out for a record; ``best``: the rigorous bound of the pair."""
    if plan.releases.batches.rates is None:
        return f"nothing amplifies for one record: {plan.releases.batches.why_not_drawn} (H1)."
    return (
        "Prop. 3.1 takes the rate q of one local step; a message holds several, and once the record is drawn "
        f"all that follows may move by twice its clip (H1): {best.how}."
    )
