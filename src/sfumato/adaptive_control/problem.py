"""Problem P of H2FDP (h2fdp.txt, section 5.2): interval and participation of the next round.

Minimise over tau and (s_T, s_U), one number of participants for trusted and one for untrusted edges,

    alpha1 (T - t_k)/tau (E_Glob + K_l sum_c E_c,Loc) + alpha2 (T - t_k)/tau (D_Glob + K_l sum_c D_c,Loc)
        + alpha3 nu(tau, s)/phi

    nu = 4 tau (K_l^3 + 1) M q^2 G^2 ln(1/delta) / (N^2 epsilon^2)
        * sum_c (p_c c2^2/s_c^2 + (1 - p_c) c2^2/s_c),

term (b) of (33) with v2 = c2 (errata H2). The grid is small, so it is evaluated whole: the minimum is
exact, where the paper searches line by line.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Costs:
    """What one aggregation costs, for every participation: ``[S_T, S_U]``, an entry for each choice of both.

    Attributes:
        energy_global: of the global step, joule: edges to cloud and the devices' uplinks of that step.
        energy_local: of one local aggregation in every subnet, joule: the sum over subnets.
        delay_global: of the global step, seconds: from devices to the cloud and back.
        delay_local: of one local aggregation, seconds: the sum over subnets.
    """

    energy_global: FloatArray
    energy_local: FloatArray
    delay_global: FloatArray
    delay_local: FloatArray


@dataclass(frozen=True)
class Gap:
    """What term (b) of (33) depends on besides tau and s.

    Attributes:
        parameters: M.
        clip: G.
        strength: c2^2 q^2 ln(1/delta) / epsilon^2 of (15), the noise that one aggregation needs.
        trusted: number of trusted edges.
        untrusted: number of untrusted edges.
        local_aggregations: K_l.
    """

    parameters: int
    clip: float
    strength: float
    trusted: int
    untrusted: int
    local_aggregations: int

    def value(self, steps: FloatArray, s_trusted: FloatArray, s_untrusted: FloatArray) -> FloatArray:
        """Term (b) of (33) for ``steps`` (tau), broadcast against the numbers of participants.

        ``s_trusted`` and ``s_untrusted``: participants of each trusted and each untrusted edge.
        """
        return self.of_shares(steps, self.trusted / s_trusted**2 + self.untrusted / s_untrusted)

    def of_shares(self, steps: FloatArray | np.float64, shares: FloatArray) -> FloatArray:
        """Term (b) of (33) for ``steps`` (tau) and ``shares``, broadcast against each other.

        ``shares``: the sum over edges of 1/s² (trusted) or 1/s (untrusted) for s participants.
        """
        edges = self.trusted + self.untrusted
        scale = 4 * (self.local_aggregations**3 + 1) * self.parameters * self.clip**2 * self.strength
        value: FloatArray = scale * steps * (shares / edges**2)
        return value


@dataclass(frozen=True)
class Weights:
    """alpha1 (per joule), alpha2 (per second) and alpha3 of P, and phi that scales the gap."""

    energy: float
    delay: float
    gap: float
    scale: float


@dataclass(frozen=True)
class RoundChoice:
    """The minimum of P.

    Attributes:
        steps: tau.
        trusted: participants of each trusted edge.
        untrusted: participants of each untrusted edge.
        energy: alpha1's term.
        delay: alpha2's term.
        gap: alpha3's term.
    """

    steps: int
    trusted: int
    untrusted: int
    energy: float
    delay: float
    gap: float

    @property
    def objective(self) -> float:
        """The minimum of H²FDP's problem P: ``energy`` + ``delay`` + ``gap``, each weighted, without unit."""
        return self.energy + self.delay + self.gap


def minimise(
    *,
    remaining: int,
    steps: IntArray,
    s_trusted: IntArray,
    s_untrusted: IntArray,
    costs: Costs,
    gap: Gap,
    weights: Weights,
) -> RoundChoice:
    """The exact minimum of P over the grid; of several, that of the fewest steps and participants.

    Args:
        remaining: T - t_k, local steps left.
        steps: candidates for tau, ascending, ``[n]``.
        s_trusted: candidates for s_T, ascending, ``[S_T]``; any single number where no edge is trusted.
        s_untrusted: candidates for s_U, ascending, ``[S_U]``.
        costs: for every participation.
        gap: of the bound on the optimality gap.
        weights: of the three terms.

    Raises:
        ValueError: no candidate, or tables that do not fit the candidates.
    """
    shape = (len(s_trusted), len(s_untrusted))
    if min(len(steps), *shape) == 0:
        raise ValueError("steps, s_trusted, s_untrusted: need at least one candidate each")
    tables = (costs.energy_global, costs.energy_local, costs.delay_global, costs.delay_local)
    if any(table.shape != shape for table in tables):
        raise ValueError(f"costs: tables must have shape {shape}")
    tau = steps.astype(np.float64)[:, None, None]
    rounds = remaining / tau
    energy = weights.energy * rounds * (costs.energy_global + gap.local_aggregations * costs.energy_local)
    delay = weights.delay * rounds * (costs.delay_global + gap.local_aggregations * costs.delay_local)
    first = s_trusted.astype(np.float64)[:, None]
    second = s_untrusted.astype(np.float64)[None, :]
    bound = weights.gap / weights.scale * gap.value(tau, first, second)
    best = np.unravel_index(int(np.argmin(energy + delay + bound)), energy.shape)
    a, b, c = (int(i) for i in best)
    return RoundChoice(
        steps=int(steps[a]),
        trusted=int(s_trusted[b]),
        untrusted=int(s_untrusted[c]),
        energy=float(energy[a, b, c]),
        delay=float(delay[a, b, c]),
        gap=float(bound[a, b, c]),
    )
