"""The least factor on all noise at which a target holds, where epsilon need not fall at every larger factor.

If the charged releases and the way to charge them are fixed, epsilon falls as all noise grows. But what is
charged may be chosen anew for every noise (exposed sets of groups), and under hidden draws another choice may
be the cheapest there. So every factor is judged by what an account of it reports, and only one that was
judged to be enough is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

TOLERANCE = 3e-4  # a factor under hidden draws is a root found to 1e-4
_GUIDED_TRIALS = 8  # after so many the factors do not lead to the target, and the interval is halved


class Verdict(NamedTuple):
    """How a trial stands to its target.

    Attributes:
        epsilon: of the pair that is worst in the trial.
        target: of that pair.
        factor: the least factor on the trial's noise at which that pair would meet its target, as it is
            charged now.
    """

    epsilon: float
    target: float
    factor: Callable[[], float]


def least_noise(judge: Callable[[float], Verdict], first: float) -> float:
    """The least multiplier that ``judge`` finds to be enough, from a ``first`` trial on.

    Each trial asks by which factor the noise of the worst pair has to change, and takes that if it lies
    between what is known to be too little and what is known to be enough.
    """
    too_little, enough, trial = 0.0, math.inf, first
    for number in count():
        verdict = judge(trial)
        if verdict.epsilon <= verdict.target:
            enough = trial
        else:
            too_little = trial
        close = verdict.target * (1 - TOLERANCE) <= verdict.epsilon <= verdict.target
        if close or enough <= too_little * (1 + TOLERANCE):
            return enough
        trial = max(trial * verdict.factor(), too_little * (1 + TOLERANCE))
        if number >= _GUIDED_TRIALS or trial >= enough:
            trial = _between(too_little, enough)
    raise AssertionError("unreachable: the loop has no end of its own")


def _between(too_little: float, enough: float) -> float:
    """A multiplier between two, of which one may not be known yet (0 or infinite)."""
    if math.isinf(enough):
        return 2.0 * too_little
    return math.sqrt(too_little * enough) or enough / 2.0
