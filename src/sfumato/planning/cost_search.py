"""The participation and the periods that cost least, of those whose noise is allowed.

Allowed is what a ``noise`` target says; without one, no more noise than the spec's own participation and
periods need for the same targets, as a share of the farthest that the global model can move. The share, as
longer rounds under a clip of whole updates have less noise only because they move less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from sfumato.planning.allocate import allocate
from sfumato.planning.candidates import Choice, choices
from sfumato.planning.conflict import refuse_noise
from sfumato.planning.costs import TrainingCost, training_cost
from sfumato.planning.problem import Start, prepare, resolved
from sfumato.planning.result import Option
from sfumato.planning.sources import unit_noise, with_noise
from sfumato.planning.targets import Wanted
from sfumato.schedule.tree import TreePlan
from sfumato.schedule.tree_facts import momentum_gain
from sfumato.spec.document import Spec

Minimize = Literal["noise", "energy", "delay"]
_SLACK = 0.01  # in the noise: what halving a decaying step size moves it by is no reason to refuse


@dataclass(frozen=True, eq=False)
class _Weighed:
    choice: Choice
    start: Start
    option: Option


def cheapest(
    spec: Spec, wanted: Wanted, minimize: Literal["energy", "delay"]
) -> tuple[Spec, tuple[Option, ...]]:
    """``spec`` with the participation and the periods that cost least, and all that was weighed.

    Raises:
        SpecError: the spec or a target is wrong, costs are not known, or every choice has too much noise.
    """
    own = resolved(with_noise(spec, unit_noise(spec.privacy.noise)))
    weighed = [_weighed(choice, wanted) for choice in choices(spec, own)]
    here = next(w for w in weighed if w.choice.spec.training == own.spec.training)
    share = here.option.relative_noise * (1 + _SLACK)
    given = math.isfinite(wanted.most_noise)

    def is_allowed(option: Option) -> bool:
        return option.noise <= wanted.most_noise if given else option.relative_noise <= share

    allowed = [w for w in weighed if is_allowed(w.option)]
    if not allowed:
        start = min(weighed, key=lambda w: w.option.noise).start
        refuse_noise(start.base, start.sources, start.further, start.demands, wanted)
    best = min(allowed, key=lambda w: (_cost(w.option.cost, minimize), w.option.noise))
    options = tuple(replace(w.option, allowed=w in allowed, chosen=w is best) for w in weighed)
    return best.choice.spec, options


def _weighed(choice: Choice, wanted: Wanted) -> _Weighed:
    start = prepare(choice.spec, wanted.targets)
    cost = training_cost(start.base)
    noise = math.sqrt(allocate(start.base, start.sources, start.further, start.demands).variance)
    option = Option(choice.participants, choice.steps, noise, noise / _reach(start.base), cost, False, False)
    return _Weighed(choice, start, option)


def _cost(cost: TrainingCost, minimize: Literal["energy", "delay"]) -> float:
    return cost.energy_j if minimize == "energy" else cost.delay_s


def _reach(plan: TreePlan) -> float:
    """The farthest that the global model can move in the training: clip norms (times step sizes) added up."""
    training, clip = plan.spec.training, plan.spec.privacy.clip
    moves = [
        momentum_gain(a.local_steps, training.momentum) if clip is not None and clip.kind == "step" else 1.0
        for a in plan.aggregations
    ]
    return sum(moves) * sum(plan.message_scale(number) for number in range(training.rounds))
