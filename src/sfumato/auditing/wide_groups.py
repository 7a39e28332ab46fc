"""Plans of groups whose models have as many parameters as an audit plays trials."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from sfumato.schedule.groups import GroupPlan


def with_dimension(plan: GroupPlan, coordinates: int) -> GroupPlan:
    """``plan`` for a model of ``coordinates`` parameters, each bounded by the clip norm; same noise."""
    if plan.spec.privacy.clips_examples:
        return plan  # nothing clips whole messages
    factor = math.sqrt(coordinates)
    return replace(plan, clips=plan.clips * factor, multipliers=plan.multipliers / factor)


def with_everybody(plan: GroupPlan) -> GroupPlan:
    """``plan`` with all workers in every sum: who is drawn is decided trial by trial."""
    return replace(plan, rates=np.ones_like(plan.rates), cohort=())
