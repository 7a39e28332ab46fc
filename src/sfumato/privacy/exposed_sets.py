"""By what exposed sets are compared, in trees and in groups, and how far one may be from the cheapest.

The cost of a set is the Rényi divergence of order 2 of all that it charges. It adds up, sampling included;
where nothing is sampled it is μ², so that a set of least cost has the least ε.
"""

from __future__ import annotations

import math

from sfumato.privacy.neighbours import Neighbours
from sfumato.privacy.release import DrawnReleases, total_mu_squared
from sfumato.privacy.split_sums import renyi_2, renyi_2_of_fixed_draw

_ROUNDING = 1e-6


def divergence(drawn: DrawnReleases, neighbours: Neighbours = "zero-out") -> float:
    """Rényi divergence of order 2 of all releases that a kind of draw serves.

    Args:
        drawn: the releases.
        neighbours: the relation. Draws that are hidden are priced as under zero-out.
    """
    square = total_mu_squared(drawn.releases, neighbours)
    if drawn.sampling.kind == "all":
        return drawn.count * square
    if drawn.amplifies and drawn.sampling.kind == "fixed":
        return drawn.count * renyi_2_of_fixed_draw(square, drawn.sampling.sample / drawn.sampling.population)
    return drawn.count * renyi_2(square, drawn.sampling.rate**2 if drawn.amplifies else drawn.moved_rate)


def gap(cost: float, least: float) -> float:
    """How many times what the cheapest set costs a set of ``cost`` costs at most; 1 if none is cheaper.

    Args:
        cost: of the set.
        least: what every set costs at least.
    """
    if cost <= least * (1 + _ROUNDING):
        return 1.0
    return cost / least if least > 0 else math.inf
