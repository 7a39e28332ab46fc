"""The constants of H2FDP's Proposition 4.2 and the terms of Theorem 4.3, printed and corrected: diagnostics.

No run relies on them. With step sizes eta_k = gamma / sqrt(k + 1), gamma <= 1 / (max(tau, K_g) beta),
inequality (56) of the proof holds for every round, the dispersions written as they are:

    |grad F_k|^2 <= 2 (F_k - F_(k+1)) / (eta_k tau) + beta^2 mean(Z_1 + Z_2) + eta_k beta (G^2 + tau sigma^2)
                    + (b).

*Start.* Its mean over k has sum_k sqrt(k+1) (F_k - F_(k+1)) / gamma, which is not (F_0 - F*) gamma / sqrt(K_g
+ 1) as (57) says (errata H6). Summed by parts, with d_k = F_k - F* between 0 and F_max, it is d_0 +
sum_(k>=1) (sqrt(k+1) - sqrt(k)) d_k - sqrt(K_g) d_(K_g) <= sqrt(K_g) F_max. So the start term is 2 F_max /
(gamma tau sqrt(K_g)); noise may raise F above F_0, so F_max is the largest gap, not the first.

*Drift.* The mean step is (gamma / K_g) sum_k 1 / sqrt(k+1), about 2 gamma / sqrt(K_g), and not gamma /
sqrt(K_g + 1). (68) and (76) replace (eta tau)^2 by eta tau, which needs eta tau <= 1, and so beta >= 1.
Without that step Z_i <= (eta_k tau)^2 B_i^2, and the mean of beta^2 (Z_1 + Z_2) is at most (beta gamma tau)^2
(B_1^2 + B_2^2) H / K_g with H = sum_k 1 / (k+1), whatever beta is.

*Dispersions.* (67) drops the factor (1 + eta beta)^(tau-1) that its own line before has: B_1 gets it again,
and so does Phi_c, which contains B_1. By (15) with Lemma 3.2 (Delta = 2 eta tau G / s, L = K_l K_g) a local
aggregation's noise has the deviation 2 eta tau G q c2 sqrt(K_l K_g ln(1/delta)) / (epsilon s): eta to the
power one. The last term of (73) has eta^2, one eta too many, and (74) spends it on K_g (eta K_g beta <= 1).
With one eta, dividing by eta, which Phi_c is a multiple of, leaves sqrt(K_g): it is put back (errata H10). In
the descent the same noise enters squared: there one of two eta does pay for K_g, so (b) of (33) stands.

*Noise.* (b) bounds the square of the sum of a round's K_l local noises by K_l times the sum of their squares
(Cauchy-Schwarz). Each has a variance that (15) makes proportional to K_l, so that is K_l K_l K_l. The noises
are drawn independently and have mean zero, so the expected square of their sum is the sum of the expected
squares: K_l K_l, which is `BoundInputs.noise_of_independent_sums` (errata H11). With K_l = 3: 10 for 28.

Phi_c's 2 B_1^2 stands for 2 beta max Z_1 of (31); by Z_1 <= (eta tau)^2 B_1^2 and eta tau beta <= 1 it
is at most 2 B_1^2 eta tau, so 2 B_1^2 max(1, eta_0 tau).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.adaptive_control.problem import Gap


@dataclass(frozen=True)
class Constants:
    """Constants of the loss and of the data that H2FDP's bounds depend on.

    Attributes:
        smoothness: beta.
        gradient_noise: sigma.
        between: zeta, gradients of subnets against the global one.
        within: zeta_c, gradients of devices against their subnet's.
        gradient: G.
    """

    smoothness: float
    gradient_noise: float
    between: float
    within: float
    gradient: float


@dataclass(frozen=True)
class Dispersions:
    """B1, B2 and the largest Phi_c of (32)."""

    b1: float
    b2: float
    phi: float


@dataclass(frozen=True)
class BoundTerms:
    """The three terms of (33): start is (a_1), drift (a_2) and noise (b)."""

    start: float
    drift: float
    noise: float


@dataclass(frozen=True)
class BoundInputs:
    """What Proposition 4.2 and Theorem 4.3 are about.

    Attributes:
        constants: of the loss.
        first_step: eta_0, which is gamma.
        steps: tau.
        rounds: K_g.
        trusted: participants of trusted edges: one number for all, or one for each.
        untrusted: participants of untrusted edges, likewise.
        gap: of the noise.
    """

    constants: Constants
    first_step: float
    steps: int
    rounds: int
    trusted: int | tuple[int, ...]
    untrusted: int | tuple[int, ...]
    gap: Gap

    @cached_property
    def _alike(self) -> tuple[tuple[int, int], ...]:
        """Edges with equal shares of the noise: pairs of their number and the share's denominator (s², s)."""
        found: list[tuple[int, int]] = []
        both = ((self.trusted, self.gap.trusted, 2), (self.untrusted, self.gap.untrusted, 1))
        for several, count, power in both:
            counts = {several: count} if isinstance(several, int) else Counter(several)
            found += [(edges, participants**power) for participants, edges in counts.items()]
        return tuple(found)

    @property
    def _growth(self) -> float:
        """The factor (1 + eta_0 beta)^(tau - 1) by which a round's steps may spread."""
        return float((1 + self.first_step * self.constants.smoothness) ** (self.steps - 1))

    def printed_dispersions(self) -> Dispersions:
        """B1, B2 and the largest Phi_c as printed in (32) of H2FDP, for edges of equal weight."""
        return self._dispersions(b1_factor=1.0, noise_factor=1.0, length=1.0)

    def corrected_dispersions(self) -> Dispersions:
        """B1, B2 and the largest Phi_c with the factors that the proof drops (see this file's docstring)."""
        length = max(1.0, self.first_step * self.steps)
        return self._dispersions(self._growth, math.sqrt(self.rounds), length)

    def _dispersions(self, b1_factor: float, noise_factor: float, length: float) -> Dispersions:
        """B1, B2 and the largest Phi_c with factors on the printed ones.

        Args:
            b1_factor: on B1.
            noise_factor: on the noise in Phi_c.
            length: on 2 B1^2 in Phi_c.
        """
        constants, gap = self.constants, self.gap
        growth = (1 + 2 * self.first_step * constants.smoothness) ** (self.steps - 1) + 1
        b1_square = ((2 * constants.gradient_noise + constants.within) * growth * b1_factor) ** 2
        edges = gap.trusted + gap.untrusted
        deviation = math.sqrt(gap.parameters * gap.local_aggregations * gap.strength)
        unit = 2 * self.steps * gap.clip * deviation / edges * noise_factor
        own = [(count, 1 / over) for count, over in self._alike]
        together = math.sqrt(sum(count * share for count, share in own))
        rest = 2 * b1_square * length + 2 * constants.gradient_noise + constants.between
        phis = [
            (count, (unit * (together + edges * math.sqrt(share)) + rest) * growth + rest)
            for count, share in own
        ]
        mean = sum(count * phi**2 for count, phi in phis) / edges
        largest = max(phi for count, phi in phis if count)
        return Dispersions(math.sqrt(b1_square), self._growth * math.sqrt(mean), largest)

    def printed_terms(self, first_gap: float) -> BoundTerms:
        """The three terms of (33) as printed in H2FDP: (a_1), (a_2) and (b), in this order.

        ``first_gap``: F_0 - F*, in the unit of the loss.
        """
        found, loss, root = self.printed_dispersions(), self.constants, math.sqrt(self.rounds + 1)
        inner = loss.smoothness * self.steps * (found.b1**2 + found.b2**2) + self._step_square
        start = 2 * self.first_step * first_gap / (self.steps * root)
        return BoundTerms(start, loss.smoothness * self.first_step / root * inner, self._noise)

    def corrected_terms(self, largest_gap: float) -> BoundTerms:
        """The three terms of (33), corrected as this file's docstring derives.

        ``largest_gap``: the largest F_k - F* of the run.
        """
        found, beta = self.corrected_dispersions(), self.constants.smoothness
        harmonic = float(np.mean(1 / np.arange(1, self.rounds + 1)))
        apart = (beta * self.first_step * self.steps) ** 2 * harmonic
        drift = apart * (found.b1**2 + found.b2**2) + beta * self._mean_step * self._step_square
        return BoundTerms(self._start(largest_gap), drift, self._noise)

    def mended_terms(self, largest_gap: float) -> BoundTerms:
        """The three terms of (33) with all errors mended, but eta tau where (68) and (76) put it.

        It is larger than `corrected_terms`, which keep the (eta tau)^2 that stands before that step. For eta
        tau <= 1, which the theorem's step size has where beta >= 1.

        ``largest_gap``: the largest F_k - F* of the run.
        """
        found, loss = self.corrected_dispersions(), self.constants
        inner = loss.smoothness * self.steps * (found.b1**2 + found.b2**2) + self._step_square
        drift = loss.smoothness * self._mean_step * inner
        return BoundTerms(self._start(largest_gap), drift, self._noise)

    @property
    def noise_of_independent_sums(self) -> float:
        """Term (b) of (33), made smaller: it has the expected square of a sum of independent noises."""
        local = self.gap.local_aggregations
        return self._noise * (local**2 + 1) / (local**3 + 1)

    def _start(self, largest_gap: float) -> float:
        """The start term, corrected; ``largest_gap``: the largest F_k - F* of the run."""
        return 2 * largest_gap / (self.first_step * self.steps * math.sqrt(self.rounds))

    @property
    def _mean_step(self) -> float:
        """The mean of the step sizes of all rounds."""
        return self.first_step * float(np.mean(1 / np.sqrt(np.arange(1, self.rounds + 1))))

    @property
    def _step_square(self) -> float:
        """G^2 + tau sigma^2 of the drift term."""
        return self.constants.gradient**2 + self.steps * self.constants.gradient_noise**2

    @property
    def _noise(self) -> float:
        """Term (b) of (33), the noise, at these participants."""
        shares = np.array(sum(count / over for count, over in self._alike))
        return float(self.gap.of_shares(np.float64(self.steps), shares))
