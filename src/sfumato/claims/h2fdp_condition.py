"""The condition of H2FDP's Prop. 3.1, ε < c₁qL, of which the paper leaves c₁ open (docs/errata.md, H2)."""

from __future__ import annotations

from sfumato.data.dataset_sizes import mean_examples
from sfumato.errors import SpecError
from sfumato.rounding import upper_bound
from sfumato.schedule.noise.placement import record_rate
from sfumato.schedule.tree import TreePlan


def condition_of(plan: TreePlan, claimed: float) -> str:
    """What Prop. 3.1 is stated for, as far as it can be checked: for which c1 that is met.

    Of the two noises the global one has the smaller L, the number of rounds: its condition is the stricter.
    """
    condition = "Prop. 3.1 is for ε < c₁qL only and leaves c₁ open"
    rounds = plan.spec.training.rounds
    try:
        rate = record_rate(plan.spec, mean_examples(plan.spec, plan.tree))
    except SpecError:  # noise that was sized for another partition
        return f"{condition}; q is not known before the data are divided (H2)"
    needed = claimed / (rate * rounds)
    return (
        f"{condition}: with q = {rate:.4g} and L = {rounds:,} aggregations this is met if "
        f"c₁ > {upper_bound(needed)}; ε < c₁q²L, of the proof that it rests on, if "
        f"c₁ > {upper_bound(needed / rate)} (H2)"
    )
