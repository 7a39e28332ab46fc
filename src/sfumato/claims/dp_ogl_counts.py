"""Theorem 1 of dp-ogl.txt: how many releases it counts, and what it makes of them.

(17) is for DP-OGL, (18) for DP-OGL+ (workers without a common group only):

    (17)  T  of every common group,  S · max(0, ⌊T/S⌋ − ρ)  of every other group of the target
    (18)                                 max(0, ⌊T/S⌋ − ρ)

with T = t − 1 epochs of training and ρ the hops from that group to the observer's nearest, the target itself
being a link. Its text charges 2π²α/σ² a release, its figures the Rényi divergence of the sampled Gaussian
(Opacus): two claims, both converted to ε as Opacus does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from sfumato.claims.opacus_rdp import ORDERS, divergence_of_best_order, divergences, epsilon_of
from sfumato.network.groups import FloatArray, IntArray
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.vector_clocks import UNREACHED, GroupStructure, WorkerKinds, hops_between_groups

BY_RDP = "counts x RDP"
BY_TEXT = "2 pi^2 alpha/sigma^2"
DP_OGL_PLUS_VERDICT = (
    "DP-OGL+ as published gives no privacy towards workers of the same group, whom its threat model 2 "
    "takes for not curious, and the paper's proof of its claims towards all others is wrong: use "
    "dp-ogl-local, which releases as often with the same noise and is sound"
)
DP_OGL_PLUS_REASON = (
    "inside an interval the workers of a group train from models without noise, so the data of one change "
    "what all others send, which the paper does not count (O4)"
)
DP_OGL_PLUS = f"{DP_OGL_PLUS_VERDICT}; {DP_OGL_PLUS_REASON}."


@dataclass(frozen=True)
class PaperCount:
    """What Theorem 1 counts of one group, and where it goes wrong.

    Attributes:
        group: of the target.
        common: whether the observer is in it.
        hops: ρ from it to the observer's nearest group, the target being a link; ``None``: not connected.
        charged: releases by (17) or (18).
        arriving: releases that reach the observer in truth.
        through_target: further releases, which only the target itself could pass on (errata O2).
    """

    group: int
    common: bool
    hops: int | None
    charged: int
    arriving: int
    through_target: int

    # charged and arriving are both counts of a group's first releases, so the larger holds the smaller

    @property
    def missed(self) -> int:
        """Number of releases that arrive and are not charged, as T/S is rounded down (errata O1); else 0."""
        return max(0, self.arriving - self.charged)

    @property
    def too_many(self) -> int:
        """Number of releases that are charged and do not arrive, as only the target could pass them on.

        0 if there are none (errata O2).
        """
        return max(0, self.charged - self.arriving)

    @property
    def errors_cancel(self) -> bool:
        """Whether both errors (errata O1, O2) are made and are equally large, so that the count is right."""
        return self.through_target > 0 and self.charged == self.arriving


def paper_counts(declared: GroupReleases, unit: int, observer: int) -> tuple[PaperCount, ...]:
    """How many releases Theorem 1 charges for ``unit`` towards ``observer``, by group of the unit.

    Both are numbers of workers, from 0. One count a group of the unit, in the groups' order. The groups must
    not change over time: only those of the first era are read.
    """
    kinds = declared.kinds
    mine, theirs = kinds.groups[kinds.of[unit]][0], kinds.groups[kinds.of[observer]][0]
    full = hops_of(declared)
    exact = hops_without(declared, int(kinds.of[unit]))
    rounds, every = declared.rounds, declared.merge_every
    a_step = every if declared.kind == "dp-ogl" else 1
    found: list[PaperCount] = []
    for group in mine:
        if group in theirs:
            charged = rounds if declared.kind == "dp-ogl" else 0
            found.append(PaperCount(group, True, 0, charged, charged, 0))
            continue
        near, near_exact = (int(h[group, list(theirs)].min(initial=UNREACHED)) for h in (full, exact))
        down, up = rounds // every, -(-rounds // every)
        counted = a_step * max(0, down - near)
        mended = a_step * max(0, up - near)
        truth = a_step * max(0, up - near_exact)
        hops = None if near == UNREACHED else near
        found.append(PaperCount(group, False, hops, counted, truth, mended - truth))
    return tuple(found)


def paper_epsilon(declared: GroupReleases, counts: Sequence[PaperCount], method: str, delta: float) -> float:
    """The ε at ``delta`` that follows from Theorem 1's ``counts``, by Opacus's conversion.

    0 if nothing is counted.

    Args:
        declared: the releases, with the noise multiplier and rate of every group.
        counts: from `paper_counts`.
        method: ``BY_RDP`` (as the paper's figures are made) or ``BY_TEXT``.
        delta: in (0, 1).
    """
    return _composed_epsilon(_terms(declared, counts), method, delta)


def paper_divergence(declared: GroupReleases, counts: Sequence[PaperCount], delta: float) -> float:
    """The Rényi divergence, not converted to ε, of Theorem 1's counts at the best order for ``delta``.

    In nats; 0 if nothing is counted. The paper does not say whether its figures show ε before or after the
    conversion.
    """
    return _composed_divergence(_terms(declared, counts), delta)


def _terms(declared: GroupReleases, counts: Sequence[PaperCount]) -> tuple[tuple[float, float, int], ...]:
    """Every (noise multiplier, sampling rate, number of counted releases), ascending.

    Groups with the same noise and rate are added up; terms of 0 releases are left out.
    """
    found: dict[tuple[float, float], int] = {}
    for count in counts:
        key = declared.noise_multiplier[count.group], declared.rate[count.group]
        found[key] = found.get(key, 0) + count.charged
    return tuple(sorted((sigma, rate, n) for (sigma, rate), n in found.items() if n))


def paper_sources(declared: GroupReleases) -> dict[str, str]:
    """Theorem 1's claims for the protocol: the method of each, by the claim's name; empty if there are none.

    Names are such as ``DP-OGL Thm. 1 (17), counts x RDP``, methods ``BY_RDP`` and ``BY_TEXT``. There are
    claims where masters add noise in every group, groups do not change, and workers are drawn independently
    of each other.
    """
    equation = {"dp-ogl": "(17)", "dp-ogl+": "(18)"}.get(declared.kind)
    judged = equation and declared.noised_by_masters and len(declared.eras) == 1
    if not judged or declared.cohort or not all(m > 0 for m in declared.noise_multiplier):
        return {}
    return {f"DP-OGL Thm. 1 {equation}, {method}": method for method in (BY_RDP, BY_TEXT)}


def claims_pair(declared: GroupReleases, unit: int, observer: int) -> bool:
    """Whether the paper claims an ε of ``unit`` towards ``observer``, numbers of workers.

    In DP-OGL+ it does so only for workers without a common group.
    """
    kinds = declared.kinds
    mine, theirs = kinds.groups[kinds.of[unit]][0], kinds.groups[kinds.of[observer]][0]
    return declared.kind == "dp-ogl" or not set(mine) & set(theirs)


def hops_of(declared: GroupReleases) -> IntArray:
    """Hops between every two of M groups, ``[M, M]``; a hop needs a worker in both; else `UNREACHED`.

    0 from a group to itself. Groups are those of the first era.
    """
    return _hops_between_groups(declared.eras[0].groups, declared.device_count, None)


def hops_without(declared: GroupReleases, kind: int) -> IntArray:
    """Hops between every two of M groups, ``[M, M]``, with one worker of ``kind`` left out as a link.

    ``kind``: number of the kind of workers, those in the same groups. It makes a difference only if that
    worker is the only one of its kind. Otherwise as `hops_of`.
    """
    alone = int(declared.kinds.size[kind]) == 1
    return _hops_between_groups(declared.eras[0].groups, declared.device_count, kind if alone else None)


@cache
def _hops_between_groups(groups: tuple[tuple[int, ...], ...], devices: int, without: int | None) -> IntArray:
    """Hops between every two groups ``[M, M]``, with one worker of the kind ``without`` being no link.

    ``devices``: number of workers. ``None``: nobody is left out. `UNREACHED` where there is no path.
    """
    kinds = WorkerKinds.among(devices, (GroupStructure(1, groups),))
    return hops_between_groups(kinds.links(0, kinds.size if without is None else kinds.without(without)))


@cache
def _composed_epsilon(terms: tuple[tuple[float, float, int], ...], method: str, delta: float) -> float:
    """ε at ``delta`` of terms (σ, sampling rate, number), by the paper's text or its Rényi accountant.

    ``method``: ``BY_TEXT`` or ``BY_RDP``. 0 of no terms.
    """
    if not terms:
        return 0.0
    if method == BY_TEXT:
        spent = sum(count * 2 * rate**2 / sigma**2 for sigma, rate, count in terms) * np.array(ORDERS)
    else:
        spent = _spent(terms)
    return epsilon_of(spent, delta)


@cache
def _composed_divergence(terms: tuple[tuple[float, float, int], ...], delta: float) -> float:
    """The Rényi divergence of terms (σ, sampling rate, number) at the best order for ``delta``.

    0 if there are no terms.
    """
    return divergence_of_best_order(_spent(terms), delta) if terms else 0.0


def _spent(terms: tuple[tuple[float, float, int], ...]) -> FloatArray:
    """The sum of the terms' Rényi divergences at all `ORDERS`, ``[orders]``; at least one term."""
    return np.asarray(np.sum([n * divergences(sigma, rate) for sigma, rate, n in terms], axis=0))
