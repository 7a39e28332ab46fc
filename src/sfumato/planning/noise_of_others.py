"""Plans where others who are drawn add noise: how much less noise account confirms.

The constraints of the convex problem count noise that is sure to be there. Under Poisson participation
account also counts that of the others who are drawn, so a solution has more noise than its targets need. All
of it is scaled to the least factor at which account confirms every target. So is one multiplier for all
sources, and the quieter of the two is the plan: it is never noisier than a calibration of one multiplier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sfumato.planning.allocate import Allocation
from sfumato.planning.certification import least_confirmed_factor
from sfumato.planning.noise_response import global_variance, measure_response
from sfumato.planning.problem import PlanProblem
from sfumato.planning.sources import NoiseSource, with_intensities
from sfumato.planning.targets import EpsilonTarget, pair_charge, pairs_of
from sfumato.schedule.base import Plan
from sfumato.schedule.rows.observers import main_unit

FloatArray = npt.NDArray[np.float64]
_TOLD = (
    "others who are drawn add noise: the plan is scaled to what account confirms, and prices are those of "
    "the noise that is sure"
)


def counts_noise_of_others(plan: Plan, targets: Sequence[EpsilonTarget]) -> bool:
    """Whether account counts noise of randomly drawn devices towards any observer that ``targets`` name."""
    return main_unit(plan.spec) == "device" and any(
        draw.drawn_noise
        for target in targets
        for pair in pairs_of(plan, target)
        for exposure in pair_charge(plan, pair).exposures
        for draw in exposure.draws
    )


def with_noise_of_others(
    problem: PlanProblem, made: Plan, found: Allocation, targets: Sequence[EpsilonTarget]
) -> tuple[Plan, Allocation]:
    """The quieter of two plans: ``made`` scaled down to what ``targets`` need, and one multiplier for all.

    Args:
        problem: what the plan starts from.
        made: the certified plan.
        found: its allocation.
        targets: of the plan.

    Returns:
        The plan and its allocation; ``made`` and ``found`` where no noise is there by chance.
    """
    if not found.binding_constraints or not counts_noise_of_others(made, targets):
        return made, found
    plan, sources, notes = problem.base, problem.sources, (*found.notes, _TOLD)
    intensities = _least_confirmed(plan, found.response.sources, found.intensities, targets)
    quieter = with_intensities(plan, found.response.sources, intensities)
    spent = global_variance(quieter)
    best = quieter, replace(found, intensities=intensities, variance=spent, notes=notes)
    if len(sources) > 1:
        equal = _least_confirmed(plan, sources, np.full(len(sources), float(intensities.max())), targets)
        alike = with_intensities(plan, sources, equal)
        if global_variance(alike) < spent:
            response = measure_response(plan, sources)
            variance = global_variance(alike)
            return alike, replace(found, response=response, intensities=equal, variance=variance, notes=notes)
    return best


def _least_confirmed(
    plan: Plan, sources: Sequence[NoiseSource], intensities: FloatArray, targets: Sequence[EpsilonTarget]
) -> FloatArray:
    """``intensities`` times the least factor with which account confirms every one of ``targets``.

    Args:
        plan: to scale.
        sources: of its noise.
        intensities: squared multipliers, ``[sources]``.
        targets: of the plan.
    """

    def plan_at(factor: float) -> Plan:
        return with_intensities(plan, sources, intensities * factor**2)

    return intensities * least_confirmed_factor(plan_at, targets) ** 2
