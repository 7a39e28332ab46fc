"""Certification of a plan: its spec is accounted for, and noise is raised until every target holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sfumato.errors import RunError
from sfumato.planning.allocate import Allocation, PairTarget, allocate
from sfumato.planning.sources import NoiseSource, with_intensities
from sfumato.planning.targets import EpsilonTarget, guarantee, noise_scale, pairs_of
from sfumato.privacy.guarantee import Guarantee
from sfumato.schedule.base import Plan
from sfumato.schedule.rows.observers import ObservedUnit

_ATTEMPTS = 20
_SOLVER_ERROR = 1e-4


def guarantees(plan: Plan, target: EpsilonTarget) -> Iterator[tuple[ObservedUnit, Guarantee]]:
    """Yield each pair that ``target`` is about with its guarantee under ``plan``.

    Pairs whose ε is infinite because the observer is trusted with raw updates are left out.
    """
    for pair in pairs_of(plan, target):
        row = guarantee(plan, pair)
        if math.isfinite(row.epsilon) or not has_trusted_member(plan, pair):
            yield pair, row


def has_trusted_member(plan: Plan, pair: ObservedUnit) -> bool:
    """Whether any member of the pair's coalition is trusted with the unit's raw updates in any round."""
    return any(plan.ever_trusts(party, pair.device) for party in pair.coalition)


def certified_plan(
    plan: Plan,
    sources: Sequence[NoiseSource],
    extra: Sequence[NoiseSource],
    pair_targets: Sequence[PairTarget],
    targets: Sequence[EpsilonTarget],
) -> tuple[Plan, Allocation]:
    """The plan of least noise for ``pair_targets``, certified: account confirms every one of ``targets``.

    ``pair_targets`` name one pair of each class that is equivalent in the plan to start from. A solution may
    split such a class: pairs that miss their target are then added to the problem. What remains is the
    solver's error, and all noise is scaled up to remove it.

    Args:
        plan: the plan whose noise is replaced.
        sources: that together can meet every target.
        extra: further sources that may reduce the noise.
        pair_targets: at least one.
        targets: that the result must meet.

    Raises:
        MissingExtraError: cvxpy is not installed.
        RunError: the solver finds no solution, or no plan can be certified.
    """
    pair_targets = list(pair_targets)
    found = allocate(plan, sources, extra, pair_targets)
    intensities = found.intensities
    for _ in range(_ATTEMPTS):
        made = with_intensities(plan, found.response.sources, intensities)
        factor, missed = _shortfall(made, targets)
        if factor <= 1.0:
            return made, found
        new = [pair_target for pair_target in missed if pair_target not in pair_targets]
        if factor > 1 + _SOLVER_ERROR and new:
            pair_targets += new
            found = allocate(plan, sources, extra, pair_targets)
            intensities = found.intensities
        else:
            intensities = intensities * factor**2
    raise RunError("the planned noise could not be certified; please report the spec and the targets")


def _shortfall(plan: Plan, targets: Sequence[EpsilonTarget]) -> tuple[float, list[PairTarget]]:
    """The factor (at least 1) on all noise stds that ``plan`` lacks, and the pairs that miss their target."""
    factor, missed = 1.0, []
    for target in targets:
        for pair, row in guarantees(plan, target):
            if row.epsilon <= target.epsilon:
                continue
            above = row.epsilon / target.epsilon  # ε falls at least as fast as noise grows
            needed = above if above <= 1 + _SOLVER_ERROR else noise_scale(plan, pair, target.epsilon)
            if needed <= 1:  # it is found on a finer grid than the ε of rows that are composed roughly
                needed = above
            factor = max(factor, needed)
            missed.append(PairTarget(target, pair))
    return factor, missed
