"""Empirical lower bounds on ε beside the accountant's upper ones, for one spec."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from sfumato.accounting import pair_guarantee
from sfumato.auditing.crowd import one_crowded_run
from sfumato.auditing.replay import Hearing, Trials, learned_hearings, replayed
from sfumato.auditing.report import AuditReport, Finding, LowerBound
from sfumato.auditing.stage import Stage
from sfumato.auditing.stages import stage_of
from sfumato.auditing.tradeoff import Curves, Family, HiddenFamily, by_counting, by_curve
from sfumato.engine.threads import intra_op_threads
from sfumato.errors import SpecError
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.relation import Neighbours
from sfumato.progress import Progress, counted, silent
from sfumato.schedule.observers import parse_coalition, parse_unit
from sfumato.schedule.plan import Plan
from sfumato.schedule.resolve import resolve
from sfumato.schedule.watch import Watched, worst_pair
from sfumato.spec.document import Spec
from sfumato.spec.privacy import OBSERVER_KINDS

TRIALS = 20_000
ERROR = 1e-6
ONE_RUN_ERROR = 0.05
_LEAST_TRIALS, _MOST_TRIALS = 100, 10_000_000


def audit(
    spec: Spec, *, observers: Sequence[str] = (), trials: int = TRIALS, progress: Progress = silent
) -> AuditReport:
    """Attack every release of ``spec`` with a worst-case target, without training (docs/audit.md).

    Args:
        spec: as loaded; it is resolved here.
        observers: parties, coalitions joined by commas, or kinds of observers (the worst of them); for each
            the unit about which the accountant promises least is attacked. Default: those that a run follows,
            and the worst peer.
        trials: judged in each world; as many are held out to choose the test by.
        progress: told how many observers are done.

    Raises:
        SpecError: the spec or the call is wrong.
    """
    if not _LEAST_TRIALS <= trials <= _MOST_TRIALS:
        raise SpecError("--trials", trials, f"must be from {_LEAST_TRIALS} to {_MOST_TRIALS:,}: all are kept")
    plan = resolve(spec)
    found: dict[tuple[str, str], Watched] = {}
    for pair in _pairs(plan, observers):
        found.setdefault((pair.unit, pair.observer), pair)
    findings = tuple(
        audit_pair(plan, pair.unit, pair.observer, trials=trials)
        for pair in counted(list(found.values()), progress)
    )
    return AuditReport(spec.name, plan.spec.privacy.delta, trials, ERROR, findings, plan.notes)


@intra_op_threads(1)
def audit_pair(plan: Plan, unit: str, observer: str, *, trials: int = TRIALS) -> Finding:
    """Attack one unit as one observer or coalition.

    Raises:
        SpecError: no such party, or a coalition that contains the unit.
    """
    began, delta = time.monotonic(), plan.spec.privacy.delta
    guarantee = pair_guarantee(plan, unit, observer, delta=delta)
    neighbours = guarantee.bounds[guarantee.bound].neighbours
    stage = stage_of(plan, parse_unit(unit, plan.parties), parse_coalition(observer, plan.parties))
    seed = plan.spec.seed
    hearings = learned_hearings(stage, neighbours, seed=seed)
    scores = replayed(stage, hearings, neighbours, trials=trials, seed=seed)
    crowd = one_crowded_run(stage, hearings, neighbours, delta=delta, error=ONE_RUN_ERROR, seed=seed)
    return Finding(
        unit=guarantee.unit,
        observer=guarantee.observer,
        neighbours=neighbours,
        upper=guarantee.epsilon,
        method=guarantee.method,
        lower=_shown(scores, _curves(stage, hearings, neighbours), delta),
        one_run=crowd,
        seconds=time.monotonic() - began,
    )


def _pairs(plan: Plan, observers: Sequence[str]) -> list[Watched]:
    def guarantee(unit: str, observer: str) -> Guarantee:
        return pair_guarantee(plan, unit, observer, delta=plan.spec.privacy.delta)

    pairs = []
    for name in observers or (*plan.default_watch, "peer"):
        if name not in OBSERVER_KINDS:
            parse_coalition(name, plan.parties)
        try:
            worst = worst_pair(plan, name, guarantee, bounded=True)  # no bound, nothing to refute
        except SpecError as error:
            raise SpecError("--observer", error.value, error.allowed) from error
        if worst is not None:
            pairs.append(worst)
        elif observers:
            raise SpecError("--observer", name, "there is no such observer here")
    return pairs


def _curves(stage: Stage, hearings: Sequence[Hearing], neighbours: Neighbours) -> Curves | None:
    """The curves that the accountant may claim, where what the draws do to them is plain to see."""
    telling = [hearing for hearing in hearings if hearing.test.tells]
    draws = {hearing.draw for hearing in telling}
    if all(draw.rate == 1 for draw in draws):
        return Family.gaussian()
    if len(draws) > 1:
        return None
    draw = draws.pop()
    if draw.seen:
        return Family.participations(stage.rounds, draw.rate) if len(telling) == 1 else None
    alike = {round(math.log(hearing.test.shift), 1) for hearing in telling}
    if not draw.independent or neighbours == "replace" or len(alike) > 1:
        return None
    if not all(hearing.test.is_standing for hearing in telling):
        return None
    return HiddenFamily(stage.rounds * len(telling), draw.rate)


def _shown(scores: Trials, curves: Curves | None, delta: float) -> LowerBound:
    """The better of two bounds; each takes half of the error."""
    counting = by_counting(scores.held_out, scores.judged, delta=delta, error=ERROR / 2)
    if curves is None:
        return LowerBound(counting, "counting", counting, None, None)
    mu = by_curve(scores.held_out, scores.judged, curves, error=ERROR / 2)
    curve = curves.epsilon(mu, delta=delta)
    return LowerBound(max(counting, curve), "counting" if counting > curve else "curve", counting, curve, mu)
