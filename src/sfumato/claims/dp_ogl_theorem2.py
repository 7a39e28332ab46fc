"""Theorem 2 of dp-ogl.txt, (21) and (22): for strings of groups, convex losses and π = 1.

It multiplies Theorem 1's terms by degradation factors μ, one for every step in a group without the target.
What the text leaves open is read so that the paper's own Example 2, (26), comes out: the sum runs over
τ = ρ..⌊T/S⌋ (a term more than (17)), and a factor belongs to the epoch in which the step is taken. The
log-Sobolev constants need the smoothness of the loss, which nobody knows for a data set. They are computed
for smoothness 0, which makes μ least and the claim as strong as it can be. μ is above 0.99 all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from sfumato.claims.dp_ogl_counts import DP_OGL_PLUS, PaperCount, hops_of, paper_counts
from sfumato.claims.opacus_rdp import ORDERS, epsilon_of
from sfumato.network.groups import FloatArray
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.vector_clocks import UNREACHED
from sfumato.schedule.groups import GroupPlan

_LARGEST = 1e200  # of a log-Sobolev constant's inverse: μ is 1 long before


@dataclass(frozen=True)
class Theorem2:
    """Theorem 2 for a plan that meets its conditions.

    Attributes:
        releases: the declared releases of the plan.
        source: the name of its claims.
    """

    releases: GroupReleases
    source: str
    _inverse: dict[int, list[FloatArray]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, plan: GroupPlan) -> Theorem2 | None:
        """The theorem for ``plan``; ``None`` unless groups form a string, all take part, loss is convex.

        A convex loss is that of the model ``softmax``; groups that change over time meet no condition either.
        """
        declared = plan.releases
        convex = plan.spec.model is not None and plan.spec.model.kind == "softmax"
        if plan.eras or not convex or any(rate < 1 for rate in declared.rate) or not _is_string(declared):
            return None
        return cls(
            declared, f"DP-OGL Thm. 2 {'(21)' if declared.kind == 'dp-ogl' else '(22)'}, mu for smoothness 0"
        )

    def epsilon(self, unit: int, observer: int, delta: float) -> float:
        """The ε at ``delta`` that the theorem claims for the devices ``unit`` and ``observer``.

        By Opacus's conversion of the summed Rényi divergences; 0 if no release is counted.
        """
        declared, orders = self.releases, np.array(ORDERS)
        spent = np.zeros_like(orders)
        for count in paper_counts(declared, unit, observer):
            single = orders / (2 * declared.noise_multiplier[count.group] ** 2)
            if count.common:
                spent += count.charged * single
            else:
                spent += single * self._sum_of_products(unit, observer, count)
        return epsilon_of(spent, delta) if spent.any() else 0.0

    def why(self, unit: int, observer: int, holds: bool) -> str:
        """A sentence on why the claim for ``unit`` towards ``observer`` is right (if ``holds``) or wrong.

        The two are numbers of devices. It names errors by their labels in docs/errata.md.
        """
        if self.releases.kind == "dp-ogl+" and self.releases.merge_every > 1:
            return DP_OGL_PLUS if not holds else "nothing of this worker's data gets that far."
        far = [c for c in paper_counts(self.releases, unit, observer) if not c.common]
        extra = sum(c.through_target for c in far)
        said = []
        if any(self._counted_releases(c) for c in far):
            factor = self._least_factor(unit, observer)
            if factor < 1:
                said.append(
                    f"degradation factors are all above {np.floor(1000 * factor) / 1000:.3f}, so nothing is "
                    "gained by them, and (46) and (67) have slips (O6)"
                )
            if extra:
                said.append(
                    f"{extra} of the releases counted reach the observer only through device:{unit} (O2)"
                )
        if not said:
            said.append("counts what the observer sees, rightly")
        if holds:
            said.append("composing by Rényi divergences is looser than exactly")
        return "; ".join(said) + "."

    def _counted_releases(self, count: PaperCount) -> int:
        """The number of releases that the theorem counts in the group of ``count``.

        0 if no path of groups leads from it to the observer.
        """
        if count.hops is None:
            return 0
        a_step = self.releases.merge_every if self.releases.kind == "dp-ogl" else 1
        return a_step * max(0, self.releases.rounds // self.releases.merge_every - count.hops + 1)

    def _sum_of_products(self, unit: int, observer: int, count: PaperCount) -> FloatArray:
        """The sum over τ of (21)'s or (22)'s products of degradation factors of a pair, ``[orders]``.

        At all `ORDERS`; 0 where no path of groups leads to the observer. ``unit`` and ``observer``: numbers
        of workers; ``count``: of the group of the unit in which the releases are.
        """
        total = np.zeros(len(ORDERS))
        if count.hops is None:
            return total
        last = self.releases.rounds // self.releases.merge_every
        a_step = self.releases.merge_every if self.releases.kind == "dp-ogl" else 1
        for tau in range(count.hops, last + 1):
            product = np.ones(len(ORDERS))
            for group, step in self._steps_without_target(unit, observer, count, tau):
                product *= self._degradation_factor(group, step)
            total += a_step * product
        return total

    def _steps_without_target(
        self, unit: int, observer: int, count: PaperCount, tau: int
    ) -> Iterator[tuple[int, int]]:
        """Pairs (group, step from 1) on the way of information to the observer, in groups without the target.

        Nothing where no step is taken in such a group. The group of ``count`` is connected with the
        observer's.

        Args:
            unit: the target.
            observer: the device.
            count: of the target's group in which the information begins.
            tau: τ, the interval of the theorem's sum.
        """
        kinds, hops = self.releases.kinds, hops_of(self.releases)
        mine, theirs = kinds.groups[kinds.of[unit]][0], kinds.groups[kinds.of[observer]][0]
        assert count.hops is not None
        path, here = [count.group], count.group
        end = min(theirs, key=lambda group: int(hops[count.group, group]))
        while here != end:
            here = next(int(g) for g in np.flatnonzero(hops[here] == 1) if hops[g, end] < hops[here, end])
            path.append(here)
        path.reverse()  # the observer's group first
        every = self.releases.merge_every
        if self.releases.kind == "dp-ogl":
            for time in range(every * (tau - count.hops) + 1, every * tau + 1):
                group = path[tau - time // every]
                if group not in mine:
                    yield group, time + 1
        else:
            for step in range(tau - count.hops + 1, tau + 1):
                if path[tau - step] not in mine:
                    yield path[tau - step], step + 1

    def _degradation_factor(self, group: int, step: int) -> FloatArray:
        """μ of (21) and (22): by how much a step of ``group`` weakens what is passed on, ``[orders]``.

        At all `ORDERS`, between 0 and 1; ``step``: from 1.
        """
        orders = np.array(ORDERS)
        inverse = self._inverse_constants(step)[group]
        return np.asarray(orders / (orders + 1 / inverse))

    def _least_factor(self, unit: int, observer: int) -> float:
        """The smallest degradation factor used for a pair, at order 1, where all of them are least.

        1 if none is used. ``unit`` and ``observer``: numbers of workers.
        """
        least = 1.0
        for count in paper_counts(self.releases, unit, observer):
            if count.hops and self._counted_releases(count):
                for group, step in self._steps_without_target(unit, observer, count, count.hops):
                    least = min(least, float(1 / (1 + 1 / self._inverse_constants(step)[group])))
        return least

    def _inverse_constants(self, step: int) -> FloatArray:
        """Inverse log-Sobolev constants 1 / (h̄ c²σ²) of every group at ``step``, ``[M]``.

        By (46), its two cases as (58) has them, and (67). ``step``: from 1. Values are between 1e-300 and
        1e200.
        """
        rows = self._inverse.setdefault(0, [])
        state = self._inverse.setdefault(1, [np.zeros(self.releases.group_count)])
        declared = self.releases
        incidence = declared.kinds.incidence[0].astype(np.float64)
        members = incidence * declared.kinds.size[:, None]
        sizes = members.sum(axis=0)
        noise = (np.array(declared.clip) * np.array(declared.noise_multiplier)) ** 2
        if declared.in_intervals:
            noise = noise * declared.merge_every
        while len(rows) < step:
            start = state[-1]
            merged = np.minimum(incidence @ start, _LARGEST)  # Σ 1/b over a worker's groups, a kind
            per_worker = np.where(incidence > 0, merged[:, None], 0.0)
            if not declared.in_intervals and len(rows) % declared.merge_every:
                per_worker = incidence * start
            summed = 4 * (members * per_worker).sum(axis=0)  # (1 + (1 + ηβ)^L)² = 4 for smoothness 0
            inside = start
            for _ in range(declared.merge_every - 1 if declared.in_intervals else 0):
                inside = np.minimum(inside + sizes**2 * 4 * sizes * inside, _LARGEST)
                summed = np.minimum(summed + 4 * sizes * inside, _LARGEST)
            rows.append(np.minimum((start + sizes**2 * summed) / noise, _LARGEST))
            state.append(np.minimum(start + sizes**2 * (noise + summed), _LARGEST))
        return np.maximum(rows[step - 1], 1e-300)


def _is_string(declared: GroupReleases) -> bool:
    """Definition 7: whether nobody is in more than two groups, and the group graph is one path."""
    hops = hops_of(declared)
    if any(len(rows[0]) > 2 for rows in declared.kinds.groups) or (hops == UNREACHED).any():
        return False
    degrees = (hops == 1).sum(axis=1)
    return len(hops) == 1 or (int((degrees == 1).sum()) == 2 and int(degrees.max()) <= 2)
