"""DP-OGL's claims (Theorems 1 and 2 of dp-ogl.txt) for every class of pairs of workers.

Theorem 1 counts releases, (17) for DP-OGL and (18) for DP-OGL+ (workers without a common group only):

    (17)  T  of every common group,  S · max(0, ⌊T/S⌋ − ρ)  of every other group of the target
    (18)                                 max(0, ⌊T/S⌋ − ρ)

with T = t − 1 epochs of training and ρ the hops from that group to the observer's nearest, the target itself
being a link. Its text charges 2π²α/σ² a release, its figures the Rényi divergence of the sampled Gaussian
(Opacus): two claims.

Theorem 2, (21) and (22), holds for strings, convex losses and π = 1. It multiplies the terms by degradation
factors μ, one for every step in a group without the target. What the text leaves open is read so that the
paper's own Example 2, (26), comes out: the sum runs over τ = ρ..⌊T/S⌋ (a term more than (17)), and a factor
belongs to the epoch in which the step is taken. The log-Sobolev constants need the smoothness of the loss,
which nobody knows for a data set; they are computed for smoothness 0, which makes μ least and the claim as
strong as it can be. μ is above 0.99 all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from sfumato.network.groups import FloatArray, IntArray
from sfumato.privacy.claim import Claim
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.vector_clocks import UNREACHED, GroupStructure, MembershipClasses, distances
from sfumato.privacy.observers import PairClass
from sfumato.schedule.groups import GroupPlan

BY_RDP = "counts x RDP"
BY_TEXT = "2 pi^2 alpha/sigma^2"
DP_OGL_PLUS = (
    "DP-OGL+ as published gives a large ε because inside an interval everybody in a group trains from "
    "un-noised models, so one worker's data move every other worker's clipped sum (sensitivity "
    "√S c (1 + 2(|W| − 1)), not √S c: errata O4) and its own groups see it bare; "
    "use dp-ogl-local, which releases as often with the same noise and is sound."
)
# Opacus' default orders, those above 63 added for small epsilons.
_ORDERS = (
    *(1 + x / 10 for x in range(1, 100)), *map(float, range(12, 64)), 80.0, 128.0, 256.0, 512.0, 1024.0,
)  # fmt: skip
_LARGEST = 1e200  # of a log-Sobolev constant's inverse: μ is 1 long before


@dataclass(frozen=True)
class PaperCount:
    """What Theorem 1 counts of one group, and where it goes wrong.

    Attributes:
        group: of the target.
        common: whether the observer is in it.
        hops: ρ from it to the observer's nearest group, the target being a link; ``None``: not connected.
        counted: releases by (17) or (18).
        missed: releases left out because T/S is rounded down (errata O1).
        through_target: releases that only the target itself could pass on (errata O2).
    """

    group: int
    common: bool
    hops: int | None
    counted: int
    missed: int
    through_target: int


def paper_counts(ledger: GroupReleases, unit: int, observer: int) -> tuple[PaperCount, ...]:
    """Theorem 1's counts for ``unit`` towards ``observer``, one entry a group of the unit; static groups."""
    kinds = ledger.kinds
    mine, theirs = kinds.groups[kinds.of[unit]][0], kinds.groups[kinds.of[observer]][0]
    full = _hops(ledger)
    exact = _hops_without(ledger, int(kinds.of[unit]))
    rounds, every = ledger.rounds, ledger.merge_every
    a_step = every if ledger.kind == "dp-ogl" else 1
    found: list[PaperCount] = []
    for group in mine:
        if group in theirs:
            found.append(PaperCount(group, True, 0, rounds if ledger.kind == "dp-ogl" else 0, 0, 0))
            continue
        near, near_exact = (int(h[group, list(theirs)].min(initial=UNREACHED)) for h in (full, exact))
        down, up = rounds // every, -(-rounds // every)
        counted = a_step * max(0, down - near)
        mended = a_step * max(0, up - near)
        truth = a_step * max(0, up - near_exact)
        hops = None if near == UNREACHED else near
        found.append(PaperCount(group, False, hops, counted, mended - counted, mended - truth))
    return tuple(found)


def paper_epsilon(ledger: GroupReleases, counts: Sequence[PaperCount], method: str, delta: float) -> float:
    """Epsilon that Theorem 1 claims: ``method`` is ``BY_RDP`` (as its figures) or ``BY_TEXT``."""
    found: dict[tuple[float, float], int] = {}
    for count in counts:
        key = ledger.noise_multiplier[count.group], ledger.rate[count.group]
        found[key] = found.get(key, 0) + count.counted
    terms = tuple(sorted((sigma, rate, n) for (sigma, rate), n in found.items() if n))
    return _composed(terms, method, delta)


def paper_sources(ledger: GroupReleases) -> dict[str, str]:
    """Theorem 1's claims for the ledger's protocol: name of the claim, and its method; maybe none."""
    equation = {"dp-ogl": "(17)", "dp-ogl+": "(18)"}.get(ledger.kind)
    judged = equation and ledger.noise_owner == "master" and len(ledger.eras) == 1
    if not judged or not all(m > 0 for m in ledger.noise_multiplier):
        return {}
    return {f"DP-OGL Thm. 1 {equation}, {method}": method for method in (BY_RDP, BY_TEXT)}


def claims_pair(ledger: GroupReleases, unit: int, observer: int) -> bool:
    """Whether the paper claims anything for the pair: DP-OGL+ only for workers without a common group."""
    kinds = ledger.kinds
    mine, theirs = kinds.groups[kinds.of[unit]][0], kinds.groups[kinds.of[observer]][0]
    return ledger.kind == "dp-ogl" or not set(mine) & set(theirs)


def ogl_claims(plan: GroupPlan, delta: float) -> tuple[Claim, ...]:
    """Claims of Theorems 1 and 2 for every class of pairs of workers.

    None for protocols or settings that the paper does not speak of: dp-ogl-local, ms-fedavg, no noise, noise
    added by devices.
    """
    ledger = plan.ledger
    sources = paper_sources(ledger)
    if not sources:
        return ()
    second = Theorem2.of(plan)
    found: list[Claim] = []
    for pair in ledger.pair_classes():
        if pair.observer.kind == "device" and claims_pair(ledger, pair.unit, pair.observer.index):
            found.extend(_of_pair(plan, pair, sources, second, delta))
    return tuple(found)


def _of_pair(
    plan: GroupPlan, pair: PairClass, sources: dict[str, str], second: Theorem2 | None, delta: float
) -> Iterator[Claim]:
    ledger, unit, observer = plan.ledger, pair.unit, pair.observer.index
    neighbours = plan.spec.privacy.neighbours
    exposures = ledger.exposures(unit, (pair.observer,))
    rigorous = min(ledger.bound_epsilon(e, delta=delta, neighbours=neighbours).epsilon for e in exposures)
    counts = paper_counts(ledger, unit, observer)
    names = f"device:{unit}", f"device:{observer}"
    for source, method in sources.items():
        claimed = paper_epsilon(ledger, counts, method, delta)
        why = _why(ledger, counts, unit, method, claimed >= rigorous, neighbours)
        yield Claim(source, *names, claimed, rigorous, why)
    if second is not None:
        claimed = second.epsilon(unit, observer, delta)
        yield Claim(second.source, *names, claimed, rigorous, second.why(unit, observer, claimed >= rigorous))


def _why(
    ledger: GroupReleases,
    counts: Sequence[PaperCount],
    unit: int,
    method: str,
    holds: bool,
    neighbours: str,
) -> str:
    """One sentence: what the count gets wrong, what the composition gets wrong."""
    if ledger.kind == "dp-ogl+" and ledger.merge_every > 1:
        return DP_OGL_PLUS if not holds else "nothing of this worker's data gets that far."
    counted = sum(c.counted for c in counts)
    missed, extra = sum(c.missed for c in counts), sum(c.through_target for c in counts)
    rounds, every = ledger.rounds, ledger.merge_every
    said = []
    equation = "(17)" if ledger.kind == "dp-ogl" else "(18)"
    if missed:
        said.append(
            f"{equation} rounds {rounds}/{every} down and leaves out {missed} releases that the last merging "
            f"epoch passes on (O1)"
        )
    if extra:
        subject = "it" if missed else equation
        said.append(f"{subject} adds {extra} that only device:{unit} itself passes on (O2)")
    truth = counted + missed - extra
    if said:
        said.append(f"{counted} counted, {truth} in truth")
    else:
        said.append(f"{equation} counts {counted} releases, rightly")
    if method == BY_TEXT and counted:
        said.append(_on_the_text(ledger, [c.group for c in counts if c.counted]))
    if neighbours == "replace":
        said.append("its neighbours zero a worker out, the exact figure replaces it")
    elif counted < truth and holds:
        said.append("a looser composition, or a cheaper set of releases, makes up for it")
    elif method == BY_RDP and holds and not said[0].endswith("(O1)") and counted:
        said.append("composing by Rényi divergences is looser than exactly; |N_m| must be public (O7)")
    return "; ".join(said) + "."


def _on_the_text(ledger: GroupReleases, groups: Sequence[int]) -> str:
    rates, sigmas = [ledger.rate[g] for g in groups], [ledger.noise_multiplier[g] for g in groups]
    if min(rates) == 1:
        return "2π²α/σ² is four times the Gaussian's α/2σ² at π = 1 (O3)"
    if max(rates) > 0.2 or min(sigmas) < 4:
        return "2π²α/σ² needs π ≤ 1/5, σ ≥ 4 and a bounded α, which is not so here (O3)"
    return "2π²α/σ² needs a bounded α, which nobody checks (O3)"


def _hops(ledger: GroupReleases) -> IntArray:
    return _cached_hops(ledger.eras[0].groups, ledger.device_count, None)


def _hops_without(ledger: GroupReleases, kind: int) -> IntArray:
    """The unit is no link only if it is the last of its kind; else the groups stay as near as they were."""
    alone = int(ledger.kinds.size[kind]) == 1
    return _cached_hops(ledger.eras[0].groups, ledger.device_count, kind if alone else None)


@cache
def _cached_hops(groups: tuple[tuple[int, ...], ...], devices: int, without: int | None) -> IntArray:
    kinds = MembershipClasses.among(devices, (GroupStructure(1, groups),))
    return distances(kinds.links(0, kinds.size if without is None else kinds.without(without)))


@cache
def _composed(terms: tuple[tuple[float, float, int], ...], method: str, delta: float) -> float:
    if not terms:
        return 0.0
    orders = np.array(_ORDERS)
    if method == BY_TEXT:
        spent = sum(count * 2 * rate**2 / sigma**2 for sigma, rate, count in terms) * orders
    else:
        spent = np.sum([count * _one(sigma, rate) for sigma, rate, count in terms], axis=0)
    return _converted(spent, delta)


@cache
def _one(sigma: float, rate: float) -> FloatArray:
    """Rényi divergences of one release at all orders."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(list(_ORDERS))
    event = GaussianDpEvent(sigma)
    log = logging.getLogger("absl")
    before, log.disabled = log.disabled, True  # it would warn of every order that it leaves out
    try:
        accountant.compose(event if rate == 1 else PoissonSampledDpEvent(rate, event))
    finally:
        log.disabled = before
    return np.asarray(accountant.rdp, dtype=np.float64)


def _converted(rdp: FloatArray, delta: float) -> float:
    from dp_accounting.rdp import compute_epsilon

    kept = np.isfinite(rdp)
    return float(compute_epsilon(np.array(_ORDERS)[kept], rdp[kept], delta)[0])


@dataclass(frozen=True)
class Theorem2:
    """Theorem 2 for a plan that meets its conditions."""

    ledger: GroupReleases
    source: str
    _inverse: dict[int, list[FloatArray]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, plan: GroupPlan) -> Theorem2 | None:
        """``None`` unless groups are a string, everybody takes part and the loss is convex."""
        ledger = plan.ledger
        convex = plan.spec.model is not None and plan.spec.model.kind == "softmax"
        if not convex or any(rate < 1 for rate in ledger.rate) or not _is_string(ledger):
            return None
        return cls(
            ledger, f"DP-OGL Thm. 2 {'(21)' if ledger.kind == 'dp-ogl' else '(22)'}, mu for smoothness 0"
        )

    def epsilon(self, unit: int, observer: int, delta: float) -> float:
        """Epsilon claimed for one pair."""
        ledger, orders = self.ledger, np.array(_ORDERS)
        spent = np.zeros_like(orders)
        for count in paper_counts(ledger, unit, observer):
            single = orders / (2 * ledger.noise_multiplier[count.group] ** 2)
            if count.common:
                spent += count.counted * single
            else:
                spent += single * self._terms(unit, observer, count)
        return _converted(spent, delta) if spent.any() else 0.0

    def why(self, unit: int, observer: int, holds: bool) -> str:
        """One sentence."""
        if self.ledger.kind == "dp-ogl+" and self.ledger.merge_every > 1:
            return DP_OGL_PLUS if not holds else "nothing of this worker's data gets that far."
        far = [c for c in paper_counts(self.ledger, unit, observer) if not c.common]
        extra = sum(c.through_target for c in far)
        said = []
        if any(self._count(c) for c in far):
            factor = self._least(unit, observer)
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

    def _count(self, count: PaperCount) -> int:
        if count.hops is None:
            return 0
        a_step = self.ledger.merge_every if self.ledger.kind == "dp-ogl" else 1
        return a_step * max(0, self.ledger.rounds // self.ledger.merge_every - count.hops + 1)

    def _terms(self, unit: int, observer: int, count: PaperCount) -> FloatArray:
        """Sum over τ of (21)'s or (22)'s products of factors, at all orders."""
        total = np.zeros(len(_ORDERS))
        if count.hops is None:
            return total
        last = self.ledger.rounds // self.ledger.merge_every
        a_step = self.ledger.merge_every if self.ledger.kind == "dp-ogl" else 1
        for tau in range(count.hops, last + 1):
            product = np.ones(len(_ORDERS))
            for group, step in self._steps(unit, observer, count, tau):
                product *= self._mu(group, step)
            total += a_step * product
        return total

    def _steps(self, unit: int, observer: int, count: PaperCount, tau: int) -> Iterator[tuple[int, int]]:
        """Groups without the target that the information passes, and the step (from 1) it is passed in."""
        kinds, hops = self.ledger.kinds, _hops(self.ledger)
        mine, theirs = kinds.groups[kinds.of[unit]][0], kinds.groups[kinds.of[observer]][0]
        assert count.hops is not None
        path, here = [count.group], count.group
        end = min(theirs, key=lambda group: int(hops[count.group, group]))
        while here != end:
            here = next(int(g) for g in np.flatnonzero(hops[here] == 1) if hops[g, end] < hops[here, end])
            path.append(here)
        path.reverse()  # the observer's group first
        every = self.ledger.merge_every
        if self.ledger.kind == "dp-ogl":
            for time in range(every * (tau - count.hops) + 1, every * tau + 1):
                group = path[tau - time // every]
                if group not in mine:
                    yield group, time + 1
        else:
            for step in range(tau - count.hops + 1, tau + 1):
                if path[tau - step] not in mine:
                    yield path[tau - step], step + 1

    def _mu(self, group: int, step: int) -> FloatArray:
        orders = np.array(_ORDERS)
        inverse = self._inverses(step)[group]
        return np.asarray(orders / (orders + 1 / inverse))

    def _least(self, unit: int, observer: int) -> float:
        """The smallest factor used, at order 1 where all of them are least."""
        least = 1.0
        for count in paper_counts(self.ledger, unit, observer):
            if count.hops and self._count(count):
                for group, step in self._steps(unit, observer, count, count.hops):
                    least = min(least, float(1 / (1 + 1 / self._inverses(step)[group])))
        return least

    def _inverses(self, step: int) -> FloatArray:
        """1 / (h̄ c²σ²) of every group at ``step``, by (46), its two cases as (58) has them, and (67)."""
        rows = self._inverse.setdefault(0, [])
        state = self._inverse.setdefault(1, [np.zeros(self.ledger.group_count)])
        ledger = self.ledger
        incidence = ledger.kinds.incidence[0].astype(np.float64)
        members = incidence * ledger.kinds.size[:, None]
        sizes = members.sum(axis=0)
        noise = (np.array(ledger.clip) * np.array(ledger.noise_multiplier)) ** 2
        if ledger.in_intervals:
            noise = noise * ledger.merge_every
        while len(rows) < step:
            start = state[-1]
            merged = np.minimum(incidence @ start, _LARGEST)  # Σ 1/b over a worker's groups, a kind
            per_worker = np.where(incidence > 0, merged[:, None], 0.0)
            if not ledger.in_intervals and len(rows) % ledger.merge_every:
                per_worker = incidence * start
            summed = 4 * (members * per_worker).sum(axis=0)  # (1 + (1 + ηβ)^L)² = 4 for smoothness 0
            inside = start
            for _ in range(ledger.merge_every - 1 if ledger.in_intervals else 0):
                inside = np.minimum(inside + sizes**2 * 4 * sizes * inside, _LARGEST)
                summed = np.minimum(summed + 4 * sizes * inside, _LARGEST)
            rows.append(np.minimum((start + sizes**2 * summed) / noise, _LARGEST))
            state.append(np.minimum(start + sizes**2 * (noise + summed), _LARGEST))
        return np.maximum(rows[step - 1], 1e-300)


def _is_string(ledger: GroupReleases) -> bool:
    """Definition 7: nobody in more than two groups, and the group graph is one path."""
    hops = _hops(ledger)
    if any(len(rows[0]) > 2 for rows in ledger.kinds.groups) or (hops == UNREACHED).any():
        return False
    degrees = (hops == 1).sum(axis=1)
    return len(hops) == 1 or (int((degrees == 1).sum()) == 2 and int(degrees.max()) <= 2)


__all__ = [
    "BY_RDP",
    "BY_TEXT",
    "DP_OGL_PLUS",
    "PaperCount",
    "Theorem2",
    "claims_pair",
    "ogl_claims",
    "paper_counts",
    "paper_epsilon",
    "paper_sources",
]
