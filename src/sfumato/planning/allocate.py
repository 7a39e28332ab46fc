"""The least noise that keeps every demand: which bound to use for each pair, which sources to use at all.

Each pair has several sound bounds, and one of them keeping the target is enough. For a fixed choice of
bounds the problem is convex. The choice descends: solve, give every pair the bound that is slackest at the
solution, solve again. The old solution keeps the new constraints, so noise never grows, and there are
finitely many choices. It starts once from each kind of bound; the best end counts. What comes out is
sound whatever the choice (every bound is), and the least noise as far as this descent finds it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.errors import RunError
from sfumato.planning.convex_program import Constraint, Optimum, minimise
from sfumato.planning.noise_response import Reaction, Response, respond
from sfumato.planning.sources import Source
from sfumato.planning.targets import Pair, Target
from sfumato.schedule.tree import TreePlan

FloatArray = npt.NDArray[np.float64]

_IDLE = 1e-6  # a source that adds no more than this share to any release it is in is left out
_WORTH = 1e-3  # noise that further sources must save, as a share, to be used


@dataclass(frozen=True)
class Demand:
    """``target`` for one of the pairs it is about."""

    target: Target
    pair: Pair


@dataclass(frozen=True, eq=False)
class Binding:
    """A demand's bound that was used, and what it costs.

    Attributes:
        demand: whose.
        reaction: the bound.
        share: relative decrease of the total noise variance for a relative increase of the largest Q.
    """

    demand: Demand
    reaction: Reaction
    share: float


@dataclass(frozen=True, eq=False)
class Allocation:
    """Noise for every source.

    Attributes:
        response: of the sources used.
        intensities: of them.
        variance: that they cause in the global model.
        bindings: one for every demand that needs noise.
    """

    response: Response
    intensities: FloatArray
    variance: float
    bindings: tuple[Binding, ...]


@dataclass(frozen=True, eq=False)
class _Choice:
    """A demand's usable bounds with the largest Q of each."""

    demand: Demand
    reactions: tuple[Reaction, ...]
    most: tuple[float, ...]

    def slackest(self, intensities: FloatArray) -> int:
        ratios = [r.square(intensities) / m for r, m in zip(self.reactions, self.most, strict=True)]
        return int(np.argmin(ratios))

    def constraint(self, number: int) -> Constraint:
        reaction = self.reactions[number]
        return Constraint(reaction.squares, reaction.slopes, reaction.fixed, self.most[number])


def raw_demands(response: Response, demands: Iterable[Demand]) -> list[Demand]:
    """Demands that no noise of the response's sources can meet."""
    return [d for d in demands if all(reaction.is_raw for reaction in response.reactions(d.pair))]


def allocate(
    plan: TreePlan, sources: Sequence[Source], further: Sequence[Source], demands: Sequence[Demand]
) -> Allocation:
    """The least noise for ``demands``, by ``sources``, and by ``further`` ones where they save any.

    Args:
        plan: whose noise is to be replaced.
        sources: that together can meet every demand, but for those that only ``further`` ones give rise to:
            trust has an observer see raw updates, and a top-up below it makes an epsilon of that.
        further: that may help.
        demands: at least one.

    Raises:
        MissingExtraError: cvxpy is not installed.
        RunError: the solver gives up.
    """
    found = _least(plan, sources, demands)
    if further:
        more = _least(plan, (*sources, *further), demands)
        if more.variance < found.variance * (1 - _WORTH):
            return more
    return found


def _least(plan: TreePlan, sources: Sequence[Source], demands: Sequence[Demand]) -> Allocation:
    """Solve, leave out idle sources, solve again: what a multiplier means depends on who noises below."""
    while True:
        response = respond(plan, sources)
        found = _descend(response, demands)
        busy = _busy(found)
        if busy.all() or not busy.any():
            return found
        sources = [source for source, used in zip(sources, busy, strict=True) if used]


def _descend(response: Response, demands: Sequence[Demand]) -> Allocation:
    choices = _choices(response, demands)
    if not choices:  # delta alone covers every demand
        return Allocation(response, np.zeros(len(response.sources)), 0.0, ())
    kinds = list(dict.fromkeys(r.bound for choice in choices for r in choice.reactions))
    best: tuple[Optimum, list[int]] | None = None
    for kind in kinds:
        chosen = [_first_of(choice, kind) for choice in choices]
        end = _descent(response.weights, choices, chosen)
        if best is None or end[0].value < best[0].value:
            best = end
        if all(len(choice.reactions) == 1 for choice in choices):
            break
    assert best is not None  # there is a choice, so there is a kind
    optimum, chosen = best
    bindings = [
        Binding(choice.demand, choice.reactions[number], float(share))
        for choice, number, share in zip(choices, chosen, optimum.shares, strict=True)
    ]
    return Allocation(response, optimum.intensities, optimum.value, tuple(bindings))


def _descent(weights: FloatArray, choices: Sequence[_Choice], chosen: list[int]) -> tuple[Optimum, list[int]]:
    best = minimise(weights, [c.constraint(n) for c, n in zip(choices, chosen, strict=True)])
    while True:
        better = [choice.slackest(best.intensities) for choice in choices]
        if better == chosen:
            return best, chosen
        try:
            found = minimise(weights, [c.constraint(n) for c, n in zip(choices, better, strict=True)])
        except RunError:  # what is there holds all the same
            return best, chosen
        if found.value >= best.value * (1 - 1e-7):
            return best, chosen
        best, chosen = found, better


def _choices(response: Response, demands: Sequence[Demand]) -> list[_Choice]:
    """Demands that need noise and that these sources can meet; of those that ask the same, the first."""
    choices: dict[object, _Choice] = {}
    for demand in demands:
        usable = [r for r in response.reactions(demand.pair) if not r.is_raw]
        most = [response.most(reaction, demand.target.epsilon) for reaction in usable]
        if not usable or math.inf in most:
            continue
        key = (
            str(demand.target),
            tuple((r.squares.tobytes(), r.slopes.tobytes(), m) for r, m in zip(usable, most, strict=True)),
        )
        choices.setdefault(key, _Choice(demand, tuple(usable), tuple(most)))
    return list(choices.values())


def _first_of(choice: _Choice, kind: str) -> int:
    return next((n for n, reaction in enumerate(choice.reactions) if reaction.bound == kind), 0)


def _busy(found: Allocation) -> npt.NDArray[np.bool_]:
    """Sources that matter to some release that is charged."""
    busy = np.zeros(len(found.intensities), dtype=np.bool_)
    for binding in found.bindings:
        parts = binding.reaction.slopes * found.intensities
        total = parts.sum(axis=1, keepdims=True) + binding.reaction.fixed[:, None]
        busy |= (parts > _IDLE * total).any(axis=0)
    return busy
