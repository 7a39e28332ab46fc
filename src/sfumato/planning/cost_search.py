"""The participation and round length of least energy or delay, among those whose noise is allowed.

A ``noise`` target sets the noise that is allowed. Without one it is the noise that the spec's own
participation and round length need for the same targets, relative to the largest distance that the global
model can move. It is relative because longer rounds, with whole updates clipped, have less noise only in
proportion to a smaller movement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.families import require_tree
from sfumato.planning.allocate import allocate
from sfumato.planning.candidates import Candidate, candidates_of
from sfumato.planning.conflict import refuse_noise
from sfumato.planning.costs import PLAN_NOISE, TrainingCost, training_cost
from sfumato.planning.problem import PlanProblem, pose_problem, resolve_to_plan
from sfumato.planning.result import Option
from sfumato.planning.sources import unit_noise, with_noise
from sfumato.planning.targets import PlanTargets
from sfumato.schedule.local_steps import momentum_gain
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec

Minimize = Literal["noise", "energy", "delay"]
_SLACK = 0.01  # of the noise: a change as small as that of a decaying step size is not refused


@dataclass(frozen=True, eq=False)
class _EvaluatedCandidate:
    candidate: Candidate
    problem: PlanProblem
    option: Option


def cheapest_training(
    spec: Spec, requested: PlanTargets, minimize: Literal["energy", "delay"]
) -> tuple[Spec, tuple[Option, ...]]:
    """``spec`` with the participation and round length of least cost, and all options that were compared.

    Raises:
        SpecError: the spec or a target is wrong, costs are not known, or every option has too much noise.
    """
    require_tree(spec, f"runs on groups, whose {minimize} is not planned; use {PLAN_NOISE}")
    if spec.control is not None:
        allowed = "must be noise with control, which chooses participation and the length of rounds itself"
        raise SpecError(Argument("minimize"), minimize, allowed)
    own = cast("TreePlan", resolve_to_plan(with_noise(spec, unit_noise(spec.privacy.noise))))
    if not spec.counts_radio:
        raise SpecError("radio", "none", f"has no {minimize} to minimise: give a radio, or use {PLAN_NOISE}")
    if own.air is not None and minimize == "energy":
        others = f"{Argument('minimize', 'delay')} or {PLAN_NOISE}"
        allowed = f"over the air energy depends on the messages: use {others}"
        raise SpecError(Argument("minimize"), minimize, allowed)
    own.require_one_tree(f"energy and delay are compared for one tree; use {PLAN_NOISE}")
    evaluated = [_evaluate(candidate, requested) for candidate in candidates_of(spec, own)]
    here = next(w for w in evaluated if w.candidate.spec.training == own.spec.training)
    share = here.option.relative_noise * (1 + _SLACK)
    given = math.isfinite(requested.max_noise)

    def is_allowed(option: Option) -> bool:
        return option.noise <= requested.max_noise if given else option.relative_noise <= share

    kept = [w for w in evaluated if is_allowed(w.option)]
    if not kept:
        problem = min(evaluated, key=lambda w: w.option.noise).problem
        refuse_noise(problem.base, problem.sources, problem.extra, problem.pair_targets, requested)
    best = min(kept, key=lambda w: (_cost(w.option.cost, minimize), w.option.noise))
    options = tuple(replace(w.option, allowed=w in kept, chosen=w is best) for w in evaluated)
    return best.candidate.spec, options


def _evaluate(candidate: Candidate, requested: PlanTargets) -> _EvaluatedCandidate:
    problem = pose_problem(candidate.spec, requested.targets)
    base = cast("TreePlan", problem.base)
    cost = training_cost(base)
    noise = math.sqrt(allocate(problem.base, problem.sources, problem.extra, problem.pair_targets).variance)
    option = Option(
        candidate.participation,
        candidate.local_steps,
        noise,
        noise / _max_displacement(base),
        cost,
        False,
        False,
    )
    return _EvaluatedCandidate(candidate, problem, option)


def _cost(cost: TrainingCost, minimize: Literal["energy", "delay"]) -> float:
    return cost.energy_j if minimize == "energy" else cost.delay_s


def _max_displacement(plan: TreePlan) -> float:
    """The largest distance that the global model can move: clip norms (times step sizes), summed."""
    training, clip = plan.spec.training, plan.spec.privacy.clip
    by_steps = clip is not None and clip.kind != "update"
    held = np.stack([a.steps_of(plan.tree.leaf_count) for a in plan.aggregations], axis=1)
    moves = [
        sum(momentum_gain(steps, training.momentum) if by_steps else 1.0 for steps in own[own > 0].tolist())
        for own in held
    ]
    return max(moves) * sum(plan.message_scale(number) for number in range(training.rounds))
