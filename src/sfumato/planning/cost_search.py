"""The participation and round length of least energy or delay, among those whose noise is allowed.

A ``noise`` target sets the noise that is allowed. Without one it is the noise that the spec's own
participation and round length need for the same targets, relative to the largest distance that the global
model can move. It is relative because longer rounds, with whole updates clipped, have less noise only in
proportion to a smaller movement.

Compared is a small grid around the spec's own values, all with the same number of local steps in total.
Rounds are halved or doubled in length; the number of aggregations in each round stays (the operator sets it,
h2fdp.txt, section 5). The number of participants ranges from a quarter of the spec's to twice that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, cast

import numpy as np

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.families import require_tree
from sfumato.planning.allocate import allocate
from sfumato.planning.conflict import refuse_too_much_noise
from sfumato.planning.costs import PLAN_NOISE, TrainingCost, training_cost
from sfumato.planning.problem import PlanProblem, pose_problem, resolve_to_plan
from sfumato.planning.result import Option
from sfumato.planning.sources import noise_of_unit_multipliers, with_noise
from sfumato.planning.targets import PlanTargets
from sfumato.schedule.local_steps import momentum_gain, per_edge
from sfumato.schedule.tree import TreePlan
from sfumato.spec.base import numbers_in
from sfumato.spec.document import Spec
from sfumato.spec.training import Everyone, FixedParticipation, Participation, PoissonParticipation, Training

Minimize = Literal["noise", "energy", "delay"]
_SLACK = 0.01  # of the noise: a change as small as that of a decaying step size is not refused
ROUND_LENGTHS = (Fraction(1, 2), Fraction(1), Fraction(2))
COHORT_SHARES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(1), Fraction(3, 2), Fraction(2))
_PERIODS = ("local_steps", "edge_every", "aggregate_every")


@dataclass(frozen=True)
class SpecCandidate:
    """One point of the grid.

    Attributes:
        spec: with this participation and these round lengths.
        participation: as text.
        local_steps: in a round; 0 if the work is counted in epochs.
    """

    spec: Spec
    participation: str
    local_steps: int


@dataclass(frozen=True, eq=False)
class _EvaluatedCandidate:
    """A candidate with the problem that its plan solves, its least noise and its cost; see `Option`."""

    candidate: SpecCandidate
    problem: PlanProblem
    noise: float
    relative_noise: float
    cost: TrainingCost

    def option(self, *, allowed: bool, chosen: bool) -> Option:
        """Its row in the list of what was compared."""
        one = self.candidate
        return Option(
            one.participation, one.local_steps, self.noise, self.relative_noise, self.cost, allowed, chosen
        )


def cheapest_training(
    spec: Spec, requested: PlanTargets, minimize: Literal["energy", "delay"]
) -> tuple[Spec, tuple[Option, ...]]:
    """``spec`` with the participation and round length of least cost, and all options that were compared.

    Args:
        spec: as written.
        requested: the targets of ε, and perhaps a limit of noise.
        minimize: the cost of the whole training that is minimised, in J or in s.

    Raises:
        SpecError: the spec or a target is wrong, costs are not known, or every option has too much noise.
    """
    require_tree(spec, f"runs on groups, whose {minimize} is not planned; use {PLAN_NOISE}")
    if spec.control is not None:
        allowed = "must be noise with control, which chooses participation and the length of rounds itself"
        raise SpecError(Argument("minimize"), minimize, allowed)
    own = cast("TreePlan", resolve_to_plan(with_noise(spec, noise_of_unit_multipliers(spec.privacy.noise))))
    if not spec.counts_radio:
        raise SpecError("radio", "none", f"has no {minimize} to minimise: give a radio, or use {PLAN_NOISE}")
    if own.air is not None and minimize == "energy":
        others = f"{Argument('minimize', 'delay')} or {PLAN_NOISE}"
        allowed = f"over the air energy depends on the messages: use {others}"
        raise SpecError(Argument("minimize"), minimize, allowed)
    own.require_one_tree(f"energy and delay are compared for one tree; use {PLAN_NOISE}")
    evaluated = [_evaluate(candidate, requested) for candidate in candidates_of(spec, own)]
    if math.isfinite(requested.max_noise):
        kept = [one for one in evaluated if one.noise <= requested.max_noise]
    else:
        here = next(one for one in evaluated if one.candidate.spec.training == own.spec.training)
        kept = [one for one in evaluated if one.relative_noise <= here.relative_noise * (1 + _SLACK)]
    if not kept:
        refuse_too_much_noise(min(evaluated, key=lambda one: one.noise).problem, requested)
    best = min(kept, key=lambda one: (_minimised_cost(one.cost, minimize), one.noise))
    options = tuple(one.option(allowed=one in kept, chosen=one is best) for one in evaluated)
    return best.candidate.spec, options


def _evaluate(candidate: SpecCandidate, requested: PlanTargets) -> _EvaluatedCandidate:
    """The candidate with its least noise for ``requested``, also relative to the model's moves; its cost."""
    problem = pose_problem(candidate.spec, requested.targets)
    base = cast("TreePlan", problem.base)
    cost = training_cost(base)
    noise = math.sqrt(allocate(problem).variance)
    return _EvaluatedCandidate(candidate, problem, noise, noise / _max_displacement(base), cost)


def _minimised_cost(cost: TrainingCost, minimize: Literal["energy", "delay"]) -> float:
    """The energy in joules or the delay in seconds of ``cost``, whichever is minimised."""
    return cost.energy_j if minimize == "energy" else cost.delay_s


def _max_displacement(plan: TreePlan) -> float:
    """The largest l2 distance that the global model can move in the training, noise aside."""
    training, clip = plan.spec.training, plan.spec.privacy.clip
    by_steps = clip is not None and clip.kind != "update"
    held = np.stack([a.steps_of(plan.tree.leaf_count) for a in plan.aggregations], axis=1)
    moves = [
        sum(momentum_gain(steps, training.momentum) if by_steps else 1.0 for steps in own[own > 0].tolist())
        for own in held
    ]
    return max(moves) * sum(plan.message_scale(number) for number in range(training.rounds))


def candidates_of(spec: Spec, own: TreePlan) -> Iterator[SpecCandidate]:
    """The grid of participations and round lengths to compare, the spec's own point included.

    Args:
        spec: as written.
        own: the spec resolved.
    """
    for training in _round_lengths(own.spec.training):
        for participation in _participations(own):
            update = {"training": training.model_copy(update={"participation": participation})}
            steps = training.local_steps or 0
            yield SpecCandidate(spec.model_copy(update=update), _describe_participation(participation), steps)


def _round_lengths(training: Training) -> Iterator[Training]:
    """The training section with each round length to try, and as many local steps in all.

    As it is where epochs are counted.
    """
    if training.local_steps is None:
        yield training  # an epoch is as long as the data; its length cannot be chosen
        return
    for factor in ROUND_LENGTHS:
        update: dict[str, Any] = {"rounds": training.rounds / factor}
        for key in _PERIODS:
            stated = getattr(training, key)
            if isinstance(stated, tuple):  # one for each level, or for each edge
                update[key] = tuple(period * factor for period in stated)
            elif stated is not None:
                update[key] = stated * factor
        numbers = [n for value in update.values() for n in (value if isinstance(value, tuple) else [value])]
        if all(number >= 1 and Fraction(number).denominator == 1 for number in numbers):
            whole = {k: tuple(map(int, v)) if isinstance(v, tuple) else int(v) for k, v in update.items()}
            yield training.model_copy(update=whole)


def _participations(own: TreePlan) -> Iterator[Participation]:
    """The participations to try: a quarter to twice as many devices, of the kind that the spec has."""
    stated, sizes = own.spec.training.participation, own.tree.devices.tolist()
    if isinstance(stated, PoissonParticipation):
        for share in COHORT_SHARES:
            if stated.rate * share <= 1:
                yield PoissonParticipation(rate=float(stated.rate * share))
        return
    if isinstance(stated, FixedParticipation) and not isinstance(stated.count, int):
        here = per_edge(stated.count, own.tree.leaf_count)
        each = [tuple(max(1, round(count * share)) for count in here) for share in COHORT_SHARES]
        for counts in sorted(set(each)):
            if all(count <= size for count, size in zip(counts, sizes, strict=True)):
                yield FixedParticipation(count=counts if len(set(counts)) > 1 else counts[0])
        return
    most = min(sizes)
    one = stated.count if isinstance(stated, FixedParticipation) else most
    assert isinstance(one, int)  # other counts were scaled edge by edge
    for count in sorted({max(1, round(one * share)) for share in COHORT_SHARES}):
        if count < most or (count == most and isinstance(stated, FixedParticipation)):
            yield FixedParticipation(count=count)
    if not isinstance(stated, FixedParticipation):
        yield Everyone()


def _describe_participation(participation: Participation) -> str:
    """The participation as text for the table of options."""
    match participation:
        case FixedParticipation():
            return ", ".join(map(str, numbers_in(participation.count)))
        case PoissonParticipation():
            return f"{participation.rate:g} (rate)"
        case _:
            return "all"
