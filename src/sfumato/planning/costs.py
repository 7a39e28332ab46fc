"""What a planned training costs over the spec's radio, before any round is played: energy, delay and bytes.

Who takes part, who drops out and how strong channels are follow from the seed, so rounds cost what they will
cost in a run. Only the energy of superposed transmissions depends on the messages; it is bounded
(`RoundCosts.energy_is_bound`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.families import family_of
from sfumato.radio.channels import FloatArray, IntArray
from sfumato.radio.costs import Analog, Attempts, Cost, TreeCosts
from sfumato.radio.group_costs import GroupCosts
from sfumato.schedule.air.power_control import AirPlan
from sfumato.schedule.air.realised_channels import sending_of
from sfumato.schedule.base import Plan
from sfumato.schedule.faults.dropouts import turnout_of
from sfumato.schedule.group_participation import draw_assignments, group_turnout
from sfumato.schedule.groups import GroupPlan
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
        energy_is_bound: whether energy is at most that: over the air it depends on how long messages are.
    """

    energy_j: float
    delay_s: float
    bytes_up: float
    bytes_down: float
    energy_is_bound: bool = False


def training_cost(plan: Plan) -> TrainingCost:
    """The total cost of all rounds, as a run of ``plan`` would measure it.

    Of more than 20 rounds, 20 evenly spaced ones are computed and scaled up.

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


@dataclass(frozen=True)
class RoundCosts:
    """Costs by round.

    Attributes:
        of: a function of the number of a round, from 0: what that round costs.
        rounds: in which anything is sent, ascending.
        energy_is_bound: whether energy is at most what is stated: over the air it depends on how long
            messages are.
    """

    of: Callable[[int], Cost]
    rounds: IntArray
    energy_is_bound: bool = False


def tree_round_costs(plan: TreePlan, parameters: int) -> RoundCosts:
    """The costs of each round of a tree whose model has ``parameters`` parameters.

    Raises:
        SpecError: rounds are chosen while the training runs.
    """
    spec = plan.spec
    if spec.control is not None:
        raise SpecError("control", None, "chooses participation and the length of rounds in a run")
    of_one = None if plan.eras else TreeCosts.of(spec, plan.tree, parameters)

    def hop(era: TreePlan, number: int, index: int, devices: IntArray) -> Attempts | Analog:
        if era.air is not None:
            return _loudest(era, era.air, number, index, devices, parameters)
        return turnout_of(era, number, index, devices).attempts(era.tree.leaves_of(devices))

    def cost(number: int) -> Cost:
        era = plan.at(number)
        prices = (of_one or TreeCosts.of(spec, era.tree, parameters)).round(number)
        chosen = draw_participants(era, number)
        leaf_of, each = era.tree.leaves_of(chosen), list[Cost]()
        for index, aggregation in enumerate(era.aggregations):
            devices = chosen[era.sends(index)[leaf_of]]
            both = era.releases.steps[index].leaf_broadcasts
            also = None if both is None else chosen[both[leaf_of]]
            sent = hop(era, number, index, devices)
            each.append(prices.aggregation(aggregation.tier, devices, sent, also))
        return reduce(Cost.then, each, Cost())

    return RoundCosts(cost, np.arange(spec.training.rounds), plan.air is not None)


def _loudest(
    plan: TreePlan, air: AirPlan, number: int, index: int, devices: IntArray, parameters: int
) -> Analog:
    """The costs of a transmission over the air in which all messages are as long as their bounds.

    Args:
        plan: of the round.
        air: its uplink.
        number: of the round.
        index: of the aggregation.
        devices: numbers of those who take part, ascending, ``[P]``.
        parameters: of the model.
    """
    sending, sent = sending_of(plan, air, number, index, devices, parameters), air.coordinates(parameters)
    leaves = plan.tree.leaves_of(devices)
    bounds = plan.releases.steps[index].message_norm[leaves]
    noise = sent * (sending.amplitude * plan.device_stds_of(index, devices) / bounds) ** 2 * sending.sends
    most = np.minimum(sending.amplitude**2 + noise, np.maximum(sending.limit, noise))
    energy: FloatArray = np.bincount(leaves, most, plan.tree.leaf_count).astype(np.float64)
    return air.traffic(sending, energy, sent)


def group_round_costs(plan: GroupPlan, parameters: int) -> RoundCosts:
    """The costs of each round of groups whose models have ``parameters`` parameters each.

    ``plan``: of the groups, resolved.
    """
    eras = plan.by_era
    costs = [GroupCosts.of(plan.spec, era.groups, parameters) for era in eras]

    def cost(number: int) -> Cost:
        era = plan.era_of(number)
        played = eras[era]
        seats = draw_assignments(played, played.interval_start(number) if played.by_interval else number)
        links, turnout = played.groups.positions(seats.groups, seats.workers), group_turnout(played, number)
        return costs[era].round(number, links, None if turnout is None else ~turnout.sent)

    return RoundCosts(cost, np.flatnonzero([plan.sends_in(number) for number in range(plan.rounds)]))
