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
from sfumato.planning.certification import guarantees
from sfumato.planning.noise_response import global_variance, measure_response
from sfumato.planning.sources import NoiseSource, with_intensities
from sfumato.planning.targets import EpsilonTarget, noise_scale, pair_charge, pairs_of
from sfumato.schedule.base import Plan
from sfumato.schedule.noise.least_noise import Verdict, least_noise, verdict_on_worst
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
    plan: Plan,
    made: Plan,
    found: Allocation,
    sources: Sequence[NoiseSource],
    targets: Sequence[EpsilonTarget],
) -> tuple[Plan, Allocation]:
    """The quieter of two plans: ``made`` scaled down to what ``targets`` need, and one multiplier for all.

    Args:
        plan: with the noise that is replaced.
        made: the certified plan.
        found: its allocation.
        sources: that can meet every target.
        targets: of the plan.

    Returns:
        The plan and its allocation; ``made`` and ``found`` where no noise is there by chance.
    """
    if not found.binding_constraints or not counts_noise_of_others(made, targets):
        return made, found
    notes = (*found.notes, _TOLD)
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
    """``intensities`` times the least factor with which account confirms every one of ``targets``."""

    def verdict_at(factor: FloatArray) -> Verdict:
        trial = with_intensities(plan, sources, intensities * float(factor[0]) ** 2)
        rows = [(row, pair, target) for target in targets for pair, row in guarantees(trial, target)]
        row, pair, target = max(rows, key=lambda found: found[0].epsilon / found[2].epsilon)
        return verdict_on_worst(row.epsilon, target.epsilon, lambda: noise_scale(trial, pair, target.epsilon))

    return intensities * float(least_noise(verdict_at, np.ones(1))[0]) ** 2
