"""Expected energy and delay of a planned training over the spec's radio."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.radio.costs import Cost, TreeCosts
from sfumato.schedule.model_size import parameter_count
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tree import TreePlan

_MOST_ROUNDS = 20
PLAN_NOISE = Argument("minimize", "noise")
"""What can be planned where costs cannot."""


@dataclass(frozen=True)
class TrainingCost:
    """Costs of all rounds together.

    Attributes:
        energy_j: energy of all transmissions, J; NaN without a radio.
        delay_s: duration of all transmissions one after the other, s; computing time is not included.
        bytes_up: sent towards the cloud, over all hops.
        bytes_down: sent towards the devices, over all hops; a broadcast counts once a receiver.
    """

    energy_j: float
    delay_s: float
    bytes_up: float
    bytes_down: float


def training_cost(plan: TreePlan) -> TrainingCost:
    """The cost that a run would measure; for many rounds, estimated from some evenly spaced ones.

    Raises:
        SpecError: messages are not plain, or the size of the model is known only once it is built.
    """
    spec = plan.spec
    for hop, transport in spec.transport.items():
        if transport != "plain":
            allowed = f"its cost cannot be planned: use plain, or {PLAN_NOISE}"
            raise SpecError(f"transport.{hop}", transport, allowed)
    if spec.compression is not None:
        allowed = f"its cost cannot be planned: leave it out, or use {PLAN_NOISE}"
        raise SpecError("compression", None, allowed)
    parameters = parameter_count(spec)
    if parameters is None:
        allowed = f"its size is known only in a run, so its cost cannot be planned: use {PLAN_NOISE}"
        raise SpecError("model.kind", spec.model.kind, allowed)
    costs = TreeCosts.of(spec, plan.tree, parameters)
    rounds = spec.training.rounds
    numbers = np.unique(np.linspace(0, rounds - 1, _MOST_ROUNDS).round().astype(int)).tolist()
    total = Cost()
    for number in numbers:
        chosen, prices = draw_participants(plan, number), costs.round(number)
        leaf_of, each = plan.tree.leaves_of(chosen), list[Cost]()
        for index, aggregation in enumerate(plan.aggregations):
            both = plan.ledger.steps[index].leaf_broadcasts
            also = None if both is None else chosen[both[leaf_of]]
            each.append(prices.aggregation(aggregation.tier, chosen[plan.sends(index)[leaf_of]], also=also))
        total = reduce(Cost.then, each, total)
    scale = rounds / len(numbers)
    if not spec.counts_radio:
        return TrainingCost(math.nan, math.nan, total.bytes_up * scale, total.bytes_down * scale)
    return TrainingCost(
        total.energy_j * scale, total.delay_s * scale, total.bytes_up * scale, total.bytes_down * scale
    )
