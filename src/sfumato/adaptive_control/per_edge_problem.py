"""Problem P of H2FDP (h2fdp.txt, section 5.2) before its reduction: participants of every edge on its own.

For a given tau all terms are sums over edges, but one: the global step waits for the slowest edge. With x =
(T - t_k) / tau the objective is

    x (alpha1 E_wires + alpha2 D_wires) + alpha2 x max_c D_c(s_c) + sum_c h_c(s_c),

    h_c(s) = alpha1 x (1 + K_l) E_c(s) + alpha2 x K_l D_c(s) + alpha3/phi (edge c's part of term (b) of (33)).

If nobody may be slower than d, every edge takes its smallest h_c(s) among the s with D_c(s) <= d, whatever
the others take. The d of the minimum is one of the D_c(s). So the minimum over all tau, all these d, and the
best of every edge under d is the minimum of P: exact, in O(tau_max N s_max) after one sort, where the whole
grid has tau_max s_max^N points. Here and in `problem` all edges have the same K_l, which is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sfumato.adaptive_control.problem import Gap, Weights

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class EdgeCosts:
    """What one aggregation costs in every edge, for 1, 2, ... participants; infinite for more than there are.

    Attributes:
        energy: of the devices' uplinks, joule ``[edges, most]``.
        delay: of the devices' uplinks, seconds ``[edges, most]``.
        energy_above: of the global step besides the devices' uplinks, joule.
        delay_above: of the global step besides the slowest edge's uplinks, seconds.
    """

    energy: FloatArray
    delay: FloatArray
    energy_above: float
    delay_above: float


@dataclass(frozen=True)
class EdgeChoice:
    """The minimum of P.

    Attributes:
        steps: tau.
        participants: of every edge.
        objective: what is minimised.
    """

    steps: int
    participants: tuple[int, ...]
    objective: float


@dataclass(frozen=True, eq=False)
class EdgeProblem:
    """Problem P with participants of every edge on its own.

    Attributes:
        remaining: T - t_k, local steps left.
        costs: of every edge.
        trusted: which edges are trusted ``[edges]``.
        gap: of the bound on the optimality gap.
        weights: of the three terms.
    """

    remaining: int
    costs: EdgeCosts
    trusted: BoolArray
    gap: Gap
    weights: Weights

    def minimise(self, steps: IntArray) -> EdgeChoice:
        """The exact minimum of P over ``steps``, the candidates for tau, and the participants of every edge.

        ``steps``: local steps a round, ``[candidates]``; of equal optima the first counts.

        Raises:
            ValueError: no candidate.
        """
        if not len(steps):
            raise ValueError("steps: need at least one candidate")
        found = [self._at(int(tau)) for tau in steps]
        return min(found, key=lambda choice: choice.objective)

    def value(self, tau: int, participants: IntArray) -> float:
        """The objective of P for interval ``tau`` and ``participants`` of every edge, ``[edges]``."""
        edges = np.arange(len(participants))
        slowest = float(self.costs.delay[edges, participants - 1].max())
        return self._above(tau, slowest) + float(self._own(tau)[edges, participants - 1].sum())

    def _above(self, tau: int, slowest: float) -> float:
        """The part of the objective of P that no edge decides by itself, for tau ``tau``.

        It counts the links above the edges, and the time until the slowest edge has its messages, ``slowest``
        seconds.
        """
        weights, costs = self.weights, self.costs
        each = weights.energy * costs.energy_above + weights.delay * (costs.delay_above + slowest)
        return self.remaining / tau * each

    def _own(self, tau: int) -> FloatArray:
        """Every edge's own part of the objective for tau ``tau``, h_c(s) for s = 1, 2, …, ``[edges, most]``.

        Infinite for more participants than an edge has devices.
        """
        weights, gap, rounds = self.weights, self.gap, self.remaining / tau
        count = np.arange(1, self.costs.energy.shape[1] + 1, dtype=np.float64)
        share = np.where(self.trusted[:, None], 1 / count**2, 1 / count)
        there = np.isfinite(self.costs.delay)
        energy = weights.energy * (1 + gap.local_aggregations) * np.where(there, self.costs.energy, 0.0)
        delay = weights.delay * gap.local_aggregations * np.where(there, self.costs.delay, 0.0)
        bound = weights.gap / weights.scale * gap.of_shares(np.float64(tau), share)
        found: FloatArray = np.where(there, rounds * (energy + delay) + bound, np.inf)
        return found

    def _at(self, tau: int) -> EdgeChoice:
        """The minimum of P for this ``tau``, as the limit d grows over all delays that there are."""
        own, (order, places, limits, first) = self._own(tau), self._ascending
        best = np.minimum.accumulate(np.take_along_axis(own, order, axis=1), axis=1)
        falls = np.diff(best, axis=1, prepend=0.0)  # what the sum changes by when d reaches a delay
        sums = np.cumsum(falls.ravel()[places])[first:]
        at = int(np.argmin(sums + self.weights.delay * self.remaining / tau * limits[first:]))
        within = np.where(self.costs.delay <= limits[first + at], own, np.inf)
        participants = within.argmin(axis=1) + 1
        return EdgeChoice(tau, tuple(participants.tolist()), self.value(tau, participants))

    @cached_property
    def _ascending(self) -> tuple[IntArray, IntArray, FloatArray, int]:
        """The delays of all edges in ascending order, as four values.

        They are: for every edge, the order of its numbers of participants by delay; the places of all finite
        delays among these, ascending; the delays themselves; and the place of the first under which every
        edge has a choice.
        """
        delay = self.costs.delay
        order = np.argsort(delay, axis=1, kind="stable")
        ascending = np.take_along_axis(delay, order, axis=1)
        places = np.argsort(ascending, axis=None, kind="stable")
        limits = ascending.ravel()[places]
        places, limits = places[np.isfinite(limits)], limits[np.isfinite(limits)]
        return order, places, limits, int(np.flatnonzero(places % delay.shape[1] == 0)[-1])
