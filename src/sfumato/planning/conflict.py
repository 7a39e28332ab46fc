"""The error for targets that need more noise than is allowed: which ones conflict, and by how much.

More noise meets any target of ε, so two such targets never conflict with each other. A target conflicts with
a limit on the noise in the global model, alone or together with a target that needs other sources. (What no
noise can meet is refused before, by `sfumato.planning.problem`.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NoReturn

from sfumato.errors import SpecError
from sfumato.planning.allocate import allocate
from sfumato.planning.problem import PlanProblem
from sfumato.planning.targets import NOISE_TARGET, TARGETS, EpsilonTarget, PairTarget, PlanTargets
from sfumato.rounding import upper_bound

_PRECISION = 1e-3


def refuse_too_much_noise(problem: PlanProblem, requested: PlanTargets) -> NoReturn:
    """Raise the SpecError on the targets that together need more noise than ``requested.max_noise``.

    It names the target that alone needs too much, else two that do together, and the least ε that the limit
    allows one of them. Else it says that all together do, and names the two that need most.

    Args:
        problem: what the plan starts from.
        requested: the targets, and the limit of noise in the global model.
    """

    def least(targets: Sequence[EpsilonTarget]) -> float:
        """The noise that ``targets`` need, root mean square per coordinate."""
        stated = {target.observer: target for target in targets}
        kept = tuple(
            PairTarget(stated[one.target.observer], one.pair)
            for one in problem.pair_targets
            if one.target.observer in stated
        )
        return math.sqrt(allocate(replace(problem, pair_targets=kept)).variance)

    limit = f"{NOISE_TARGET}={requested.max_noise:g}"
    alone = {target: least([target]) for target in requested.targets}
    worst = max(alone, key=lambda target: alone[target])
    if alone[worst] > requested.max_noise:
        epsilon = _least_epsilon(worst, (), requested.max_noise, least)
        raise SpecError(
            TARGETS.at(str(worst)),
            None,
            f"conflicts with {limit}: it needs a noise of {alone[worst]:.4g}; "
            f"{limit} allows ε = {upper_bound(epsilon)}",
        )
    pairs = {pair: least(pair) for pair in combinations(requested.targets, 2)}
    one, two = max(pairs, key=lambda pair: pairs[pair])
    if pairs[one, two] > requested.max_noise:
        epsilon = _least_epsilon(two, (one,), requested.max_noise, least)
        raise SpecError(
            TARGETS.at(str(one)),
            None,
            f"conflicts with {two} below {limit}: together they need a noise of {pairs[one, two]:.4g}; "
            f"with {one} kept, {two.observer} can have ε = {upper_bound(epsilon)}",
        )
    everything = least(requested.targets)
    raise SpecError(
        TARGETS,
        None,
        f"all targets together need a noise of {everything:.4g}, above {limit}; the closest two, {one} and "
        f"{two}, need {pairs[one, two]:.4g}",
    )


def _least_epsilon(
    target: EpsilonTarget,
    held: tuple[EpsilonTarget, ...],
    most_noise: float,
    least: Callable[[Sequence[EpsilonTarget]], float],
) -> float:
    """The least ε towards the observer of ``target`` at which it and ``held`` need at most ``most_noise``.

    ``least``: gives the noise, root mean square, that some targets need.
    """
    from scipy.optimize import brentq

    def excess(log_epsilon: float) -> float:
        needed = least([*held, EpsilonTarget(target.observer, math.exp(log_epsilon))])
        return math.log(max(needed, 1e-9 * most_noise) / most_noise)

    low = high = math.log(target.epsilon)
    while excess(high) > 0:
        low, high = high, high + 1
    return math.exp(brentq(excess, low, high, xtol=_PRECISION))
