"""Expected energy and delay of a planned training over the spec's radio."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.families import family_of
from sfumato.radio.costs import Cost
from sfumato.schedule.base import Plan
from sfumato.schedule.model_size import parameter_count

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
        energy_is_bound: whether energy is at most that: over the air it depends on how long messages are.
    """

    energy_j: float
    delay_s: float
    bytes_up: float
    bytes_down: float
    energy_is_bound: bool = False


def training_cost(plan: Plan) -> TrainingCost:
    """The cost that a run would measure; for many rounds, estimated from some evenly spaced ones.

    Raises:
        SpecError: the size of the model is known only once it is built, or rounds are chosen in a run.
    """
    spec = plan.spec
    parameters = parameter_count(spec)
    if parameters is None:
        allowed = f"its size is known only in a run, so its cost cannot be planned: use {PLAN_NOISE}"
        raise SpecError("model.kind", spec.model.kind, allowed)
    costs = family_of(spec).round_costs(plan, parameters)
    if not len(costs.rounds):
        return TrainingCost(0.0, 0.0, 0.0, 0.0)
    places = np.unique(np.linspace(0, len(costs.rounds) - 1, _MOST_ROUNDS).round().astype(int))
    total = reduce(Cost.then, (costs.of(int(number)) for number in costs.rounds[places]), Cost())
    scale = len(costs.rounds) / len(places)
    energy, delay = (total.energy_j, total.delay_s) if spec.counts_radio else (math.nan, math.nan)
    return TrainingCost(
        energy * scale, delay * scale, total.bytes_up * scale, total.bytes_down * scale, costs.energy_is_bound
    )
