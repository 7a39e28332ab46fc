"""What a tree's guarantees amount to after a run, when participation and channels are known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.privacy.losses import gaussian
from sfumato.privacy.observers import PairClass
from sfumato.schedule.air.realised_channels import RealisedChannels
from sfumato.schedule.faults.realised_dropouts import RealisedDropouts
from sfumato.schedule.tree import TreePlan


@dataclass(frozen=True)
class ExPost:
    """What a row amounts to once it is known who took part, for an observer that saw it.

    Attributes:
        epsilon: of that many rounds, none of them sampled; at the report's delta. A statement about the run
            that was, not a guarantee given beforehand.
        participations: the most rounds that one of the units the row stands for took part in.
    """

    epsilon: float
    participations: int


def ex_post(
    plan: TreePlan, delta: float, participations: npt.NDArray[np.int64], rounds: int, parameters: int
) -> tuple[ExPost | None, ...]:
    """For each row of an account, the ε of the first ``rounds`` rounds as they happened.

    It draws channels, dropouts and elections of these rounds again from the seed.

    Args:
        plan: of the run.
        delta: of its report.
        participations: rounds that each device took part in, ``[devices]``.
        rounds: number of rounds that were played.
        parameters: number of the model's parameters.

    Returns:
        As `epsilons_after_run`: ``None`` for a row without such an ε, empty where no row has one.
    """
    channels = RealisedChannels.of(plan, rounds, parameters)
    return epsilons_after_run(plan, delta, participations, channels, RealisedDropouts.of(plan, rounds))


def epsilons_after_run(
    plan: TreePlan,
    delta: float,
    participations: npt.NDArray[np.int64],
    channels: RealisedChannels | None,
    dropouts: RealisedDropouts | None,
) -> tuple[ExPost | None, ...]:
    """For each row of an account, the ε after a run, given its participants, channels and dropouts.

    An observer that sees the draw is charged as many unsampled rounds as a unit really took part in. Noise
    stays as it was declared: under Poisson participation nobody else's is counted on. With dropouts or
    elections it is that of who was left, and observers are charged the terms of office that were; over the
    air it is what it was in each of those rounds.

    ``None`` for a row of pairs of several kinds, or whose observer does not see the draw. Empty if nothing is
    drawn, if trees change, under adaptive control, and for the neighbouring relation ``remove``.

    Args:
        plan: of the run.
        delta: of its report.
        participations: rounds that each device took part in, ``[devices]``.
        channels: of a run over the air; else ``None``.
        dropouts: of a run with dropouts or elections; else ``None``.
    """
    if plan.eras:
        return ()  # a device's part in a round is worth what the tree of that round makes of it
    if plan.spec.control is not None:
        return ()  # what was spent was chosen on the way; the budget is the guarantee
    if plan.spec.privacy.neighbours == "remove":
        return ()  # towards whoever sees the draw there is no guarantee, whatever was drawn
    if not plan.is_sampled and channels is None and dropouts is None:
        return ()
    found: list[ExPost | None] = []
    for pair in plan.releases.pair_classes():
        if pair.kinds > 1:  # its units took part unequally often, each under noise of its own
            found.append(None)
            continue
        exposures = plan.releases.exposures(pair.unit, (pair.observer,))
        alike = plan.releases.leaves_like(plan.tree.leaf_of(pair.unit))
        times = int(participations[alike.repeat(plan.tree.devices)].max())
        if plan.is_sampled and all(exposure.draw_hidden for exposure in exposures):
            found.append(None)
        elif channels is not None:
            found.append(_amount_over_the_air(channels, pair, delta))
        elif dropouts is not None:
            mu = math.sqrt(dropouts.mu_squared(pair, times))
            found.append(ExPost(gaussian.epsilon(delta=delta, mu=mu), times))
        else:
            found.append(ExPost(_epsilon_after_rounds(plan, pair, times, delta), times))
    return tuple(found)


def _epsilon_after_rounds(plan: TreePlan, pair: PairClass, times: int, delta: float) -> float:
    """Compute ε at ``delta`` of a pair after ``times`` rounds that the unit took part in for sure.

    It is the smallest of the bounds. Noise of others that may not be there does not count.
    """
    declared = plan.releases.after(times)
    return min(
        declared.bound_epsilon(
            exposure.without_draws(), delta=delta, neighbours=plan.spec.privacy.neighbours
        ).epsilon
        for exposure in declared.exposures(pair.unit, (pair.observer,))
    )


def _amount_over_the_air(realised: RealisedChannels, pair: PairClass, delta: float) -> ExPost:
    """The ε at ``delta`` of a pair with the noise that the receivers really had against the devices' signals.

    Of the unit that it is largest for, among those that the pair stands for, with its number of rounds.
    """
    plan = realised.plan
    exposures = plan.releases.exposures(pair.unit, (pair.observer,))
    flow = next(exposure for exposure in exposures if exposure.bound_name == "flow")
    square, times = realised.largest_square(flow, pair.unit, plan.spec.privacy.neighbours)
    return ExPost(gaussian.epsilon(delta=delta, mu=math.sqrt(square)), times)


def realised_facts(plan: TreePlan, rounds: int, parameters: int) -> dict[str, object]:
    """What ``ledger.json`` keeps of the channels of the first ``rounds`` rounds; {} if not over the air.

    ``parameters``: M, number of the model's parameters.
    """
    channels = RealisedChannels.of(plan, rounds, parameters)
    return {} if channels is None else channels.to_dict()
