"""What a planned training is expected to cost on the spec's radio."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from sfumato.errors import SpecError
from sfumato.radio.costs import Cost, TreeCosts
from sfumato.schedule.model_size import parameter_count
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tree import TreePlan

_MOST_ROUNDS = 20


@dataclass(frozen=True)
class TrainingCost:
    """Of all rounds together.

    Attributes:
        energy_j: of all transmissions, J.
        delay_s: of all transmissions one after the other, s; computing takes none.
    """

    energy_j: float
    delay_s: float


def training_cost(plan: TreePlan) -> TrainingCost:
    """The cost that ``run`` would meter; of many rounds, from some evenly spaced ones.

    Raises:
        SpecError: messages that are not plain, or a model whose size only building it can tell.
    """
    spec = plan.spec
    for hop, transport in spec.transport.items():
        if transport != "plain":
            raise SpecError(f"transport.{hop}", transport, "has no planned cost: plan for noise, or plain")
    if spec.compression is not None:
        raise SpecError("compression", None, "has no planned cost: plan for noise, or leave compression out")
    parameters = parameter_count(spec)
    if parameters is None:
        raise SpecError("model.kind", spec.model.kind, "has a size that only a run can tell: plan for noise")
    costs = TreeCosts.of(spec, plan.tree, parameters)
    rounds = spec.training.rounds
    numbers = np.unique(np.linspace(0, rounds - 1, _MOST_ROUNDS).round().astype(int)).tolist()
    total = Cost()
    for number in numbers:
        chosen, prices = draw_participants(plan, number), costs.round(number)
        each = [prices.aggregation(aggregation.tier, chosen) for aggregation in plan.aggregations]
        total = reduce(Cost.then, each, total)
    scale = rounds / len(numbers)
    return TrainingCost(total.energy_j * scale, total.delay_s * scale)
