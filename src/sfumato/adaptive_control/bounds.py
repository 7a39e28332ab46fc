"""The constants of H2FDP's Proposition 4.2 and the terms of Theorem 4.3, as diagnostics of a run.

They bound nothing that a run relies on. (33) has the step size in the numerator of its first term (errata
H6); here it is the corrected one, 2 (F_0 - F*) / (gamma tau sqrt(K_g + 1)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sfumato.adaptive_control.problem import Gap


@dataclass(frozen=True)
class Constants:
    """What the bounds depend on.

    Attributes:
        smoothness: beta.
        gradient_noise: sigma.
        between: zeta, gradients of subnets against the global one.
        within: zeta_c, gradients of devices against their subnet's.
    """

    smoothness: float
    gradient_noise: float
    between: float
    within: float


@dataclass(frozen=True)
class Dispersions:
    """B1, B2 and the largest Phi_c of (32)."""

    b1: float
    b2: float
    phi: float


@dataclass(frozen=True)
class BoundTerms:
    """The three terms of (33), the first corrected (H6)."""

    start: float
    drift: float
    noise: float


def dispersions(
    constants: Constants, *, first_step: float, steps: int, trusted: int, untrusted: int, gap: Gap
) -> Dispersions:
    """B1, B2 and Phi of Proposition 4.2, subnets of equal weight.

    Args:
        constants: of the loss.
        first_step: eta_0.
        steps: tau.
        trusted: participants of each trusted edge.
        untrusted: participants of each untrusted edge.
        gap: of the noise.
    """
    growth = (1 + 2 * first_step * constants.smoothness) ** (steps - 1) + 1
    b1_square = ((2 * constants.gradient_noise + constants.within) * growth) ** 2
    edges = gap.trusted + gap.untrusted
    unit = 2 * steps * gap.clip * math.sqrt(gap.parameters * gap.local_aggregations * gap.strength) / edges
    own = {True: 1 / trusted**2, False: 1 / untrusted}
    together = math.sqrt(gap.trusted * own[True] + gap.untrusted * own[False])
    rest = 2 * b1_square + 2 * constants.gradient_noise + constants.between
    phis = {
        kind: (unit * (together + edges * math.sqrt(share)) + rest) * growth + rest
        for kind, share in own.items()
    }
    mean = (gap.trusted * phis[True] ** 2 + gap.untrusted * phis[False] ** 2) / edges
    b2_square = (1 + first_step * constants.smoothness) ** (2 * (steps - 1)) * mean
    there = [phis[kind] for kind, count in ((True, gap.trusted), (False, gap.untrusted)) if count]
    return Dispersions(math.sqrt(b1_square), math.sqrt(b2_square), max(there))


def terms(
    constants: Constants,
    found: Dispersions,
    *,
    loss: float,
    rate: float,
    steps: int,
    rounds: int,
    trusted: int,
    untrusted: int,
    gap: Gap,
) -> BoundTerms:
    """(33): F_0 - F* (``loss``, with F* >= 0 an upper bound), gamma (``rate``), tau, K_g (``rounds``)."""
    root = math.sqrt(rounds + 1)
    beta = constants.smoothness
    inner = beta * steps * (found.b1**2 + found.b2**2) + gap.clip**2 + steps * constants.gradient_noise**2
    s = (np.array(float(n)) for n in (steps, trusted, untrusted))
    return BoundTerms(2 * loss / (rate * steps * root), beta * rate / root * inner, float(gap.value(*s)))
