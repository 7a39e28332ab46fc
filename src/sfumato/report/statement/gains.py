"""What an (ε, δ) of one unit implies: with δ counted, for two contents of a unit, and for several units.

*δ counted.* Let L = ln(P(o)/Q(o)) be how far an output o, drawn in one world, speaks for that world against
the other. By definition δ ≥ P(S) − e^ε Q(S) for every set S; for S = {L > ε} the right side is
E[max(0, 1 − e^(ε − L))] (Canonne, Kamath and Steinke 2020). Where L > ε + ln 2 the maximum is
above 1/2, so by Markov's inequality P(L > ε + ln 2) ≤ 2δ. In the other world the same outputs are rarer
still: Q(L > ε + ln 2) ≤ P(L > ε + ln 2) / 2e^ε. So, whichever world it is, the odds of one against the other
rise by more than a factor of 2e^ε with a probability of at most 2δ.

*Several units.* If k units change one after the other, k bounds P(S) ≤ e^ε Q(S) + δ follow each other:
together kε, at δ (1 + e^ε + … + e^((k − 1)ε)) (Dwork and Roth 2014, after Theorem 2.2). Two contents of one
unit are such a chain of two, over the world in which it contributes zero or is not there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

TWICE = math.log(2.0)
"""How far above ε the privacy loss is with a probability of at most 2δ."""
_LARGEST = 700.0  # exponent of a float


class PrivacyBound(NamedTuple):
    """An ε and its δ; ε is ∞ where δ would be 1 or more, as such a bound says nothing."""

    epsilon: float
    delta: float


def bound_of_several(epsilon: float, delta: float, count: int) -> PrivacyBound:
    """The bound for a group of ``count`` units, at least 1, each with ``epsilon`` at ``delta``.

    It is ``count`` times ``epsilon``, at the δ derived in this file; ∞ where that δ would be 1 or more.
    """
    if (count - 1) * epsilon > _LARGEST:
        return PrivacyBound(math.inf, 1.0)
    total = delta * math.fsum(math.exp(step * epsilon) for step in range(count))
    return PrivacyBound(count * epsilon, total) if total < 1 else PrivacyBound(math.inf, 1.0)


def between_contents(epsilon: float, delta: float, relation: str) -> PrivacyBound:
    """The bound between any two contents of one unit; ∞ where its δ would be 1 or more.

    It is the bound given for ``replace``, else that for a chain of two such steps (derived in this file).
    ``relation``: the neighbours that ``epsilon`` at ``delta`` is for: ``zero-out``, ``remove`` or
    ``replace``.
    """
    return PrivacyBound(epsilon, delta) if relation == "replace" else bound_of_several(epsilon, delta, 2)


def chance_of_more(delta: float) -> float:
    """An upper bound, 2δ for ``delta`` = δ, on the probability that odds rise by more than twice e^ε.

    The odds are those of an observer on one world against the other (derived in this file); at most 1.
    """
    return min(1.0, 2.0 * delta)
