"""`audit`: empirical lower bounds on ε beside the accountant's upper bounds, for one spec."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from sfumato.accounting import pair_guarantee
from sfumato.auditing.canaries import one_run_audit
from sfumato.auditing.registry import harness_for
from sfumato.auditing.report import AuditReport, Finding, LowerBound
from sfumato.auditing.tradeoff import (
    ComposedCurves,
    GaussianMixtureCurves,
    TradeOffCurves,
    epsilon_by_counting,
    mu_by_curve,
)
from sfumato.auditing.trials import RoundTests, TrialScores, simulate_trials
from sfumato.engine.threads import intra_op_threads
from sfumato.errors import SpecError
from sfumato.families import family_of
from sfumato.privacy.charges import charges, composed
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.observers import Party
from sfumato.privacy.relation import Neighbours
from sfumato.progress import Progress, silent, track
from sfumato.schedule.base import Plan
from sfumato.schedule.observers import parse_coalition, parse_unit
from sfumato.schedule.resolve import resolve
from sfumato.schedule.tree import TreePlan
from sfumato.schedule.watch import MonitoredPair, worst_pair
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
        observers: parties, coalitions joined by commas, or kinds of observers (the worst of that kind). For
            each of them the unit with the largest finite ε is attacked. Default: the observers that a run
            follows, and the worst peer.
        trials: test trials with the target's message, and as many without; as many again are held out to
            choose the threshold.
        progress: called with the number of observers that are done.

    Raises:
        SpecError: the spec or the call is wrong.
    """
    if not _LEAST_TRIALS <= trials <= _MOST_TRIALS:
        allowed = f"must be from {_LEAST_TRIALS} to {_MOST_TRIALS:,}: all trials are kept in memory"
        raise SpecError("--trials", trials, allowed)
    plan = resolve(spec)
    if plan.spec.privacy.clips_examples:
        allowed = "must be update or step: audits attack whole devices, which have no guarantee with example"
        raise SpecError("privacy.clip.kind", "example", allowed)
    found: dict[tuple[str, str], MonitoredPair] = {}
    for pair in _pairs(plan, observers):
        found.setdefault((pair.unit, pair.observer), pair)
    findings = tuple(
        audit_pair(plan, pair.unit, pair.observer, trials=trials)
        for pair in track(list(found.values()), progress)
    )
    return AuditReport(spec.name, plan.spec.privacy.delta, trials, ERROR, findings, plan.notes)


@intra_op_threads(1)
def audit_pair(
    plan: Plan, unit: str, observer: str, *, trials: int = TRIALS, error: float = ERROR
) -> Finding:
    """Attack one unit as one observer or coalition.

    Args:
        plan: the plan that is audited.
        unit: ``device:N``.
        observer: a party, or a coalition joined by commas.
        trials: test trials with the target's message, and as many without; as many again are held out.
        error: probability that the lower bound is wrong.

    Raises:
        SpecError: there is no such party, the coalition contains the unit, or the plan cannot be audited.
    """
    began, delta = time.monotonic(), plan.spec.privacy.delta
    guarantee = pair_guarantee(plan, unit, observer, delta=delta)
    neighbours = guarantee.bounds[guarantee.bound].neighbours
    target, coalition = parse_unit(unit, plan.parties), parse_coalition(observer, plan.parties)
    harness = harness_for(plan, target, coalition)
    seed = plan.spec.seed
    scores, rounds = simulate_trials(harness, neighbours, trials=trials, seed=seed)
    curves = _known_curves(rounds, neighbours)
    further = family_of(plan.spec).audit_curves
    if curves is None and further is not None:
        curves = further(plan, target, coalition)
    one_run = one_run_audit(harness, rounds, neighbours, delta=delta, error=ONE_RUN_ERROR, seed=seed)
    return Finding(
        unit=guarantee.unit,
        observer=guarantee.observer,
        neighbours=neighbours,
        upper=guarantee.epsilon,
        method=guarantee.method,
        lower=_lower_bound(scores, curves, delta, error),
        one_run=one_run,
        seconds=time.monotonic() - began,
    )


def _pairs(plan: Plan, observers: Sequence[str]) -> list[MonitoredPair]:
    def guarantee(unit: str, observer: str) -> Guarantee:
        return pair_guarantee(plan, unit, observer, delta=plan.spec.privacy.delta)

    pairs = []
    for name in observers or (*plan.default_watch, "peer"):
        if name not in OBSERVER_KINDS:
            parse_coalition(name, plan.parties)
        try:
            worst = worst_pair(plan, name, guarantee, bounded=True)  # an infinite ε cannot be refuted
        except SpecError as error:
            raise SpecError("--observer", error.value, error.allowed) from error
        if worst is not None:
            pairs.append(worst)
        elif observers:
            raise SpecError("--observer", name, "there is no such observer in this network")
    return pairs


def _known_curves(rounds: Sequence[RoundTests], neighbours: Neighbours) -> TradeOffCurves | None:
    """The trade-off curves that the accountant may claim; ``None`` if their family is not known."""
    if any(len(found.probabilities) > 1 for found in rounds):
        return None
    observed = [[fitted for fitted in found.tests[0] if fitted.test.depends_on_target] for found in rounds]
    telling = [fitted for of_round in observed for fitted in of_round]
    draws = {fitted.draw for fitted in telling}
    if all(draw.rate == 1 for draw in draws) and neighbours != "remove":
        return GaussianMixtureCurves.gaussian()
    if len(draws) != 1:
        return None
    draw = draws.pop()
    if draw.visible:
        alone = max(len(of_round) for of_round in observed) == 1
        return (
            GaussianMixtureCurves.participations(len(rounds), draw.rate)
            if alone and neighbours != "remove"
            else None
        )
    alike = {round(math.log(fitted.test.shift), 1) for fitted in telling}
    if not draw.independent or neighbours == "replace" or len(alike) > 1:
        return None
    if not all(fitted.test.noise_is_draw_independent for fitted in telling):
        return None
    return ComposedCurves.subsampled(len(telling), draw.rate)


def claimed_curves(plan: TreePlan, unit: int, coalition: Sequence[Party]) -> TradeOffCurves | None:
    """The curve that the accountant composes, with the noise scaled; ``None`` if it claims no finite ε.

    With elections the curve is a mixture that depends on what members receive in office and out of it; with
    denominators that depend on the draw no two rounds are alike. In these cases the accountant's own curve is
    tested: the lower bound exceeds its ε only if the curve is refuted.
    """
    delta = plan.spec.privacy.delta
    found = [
        (composed(charge.terms, charge.neighbours, delta - charge.failure_probability)[0], charge)
        for exposure in plan.ledger.exposures(unit, coalition)
        for charge in charges(exposure, plan.spec.privacy.neighbours)
        if charge.failure_probability < delta
    ]
    epsilon, best = min(found, key=lambda pair: pair[0], default=(math.inf, None))
    if best is None or not 0 < epsilon < math.inf:
        return None
    return ComposedCurves(best.terms, best.neighbours, best.failure_probability)


def _lower_bound(
    scores: TrialScores, curves: TradeOffCurves | None, delta: float, error: float
) -> LowerBound:
    """The larger of the bounds by counting and by curve; each uses half of the error probability."""
    counting = epsilon_by_counting(scores.held_out, scores.test, delta=delta, error=error / 2)
    if curves is None:
        return LowerBound(counting, "counting", counting, None, None)
    mu = mu_by_curve(scores.held_out, scores.test, curves, error=error / 2)
    curve = curves.epsilon(mu, delta=delta)
    return LowerBound(max(counting, curve), "counting" if counting > curve else "curve", counting, curve, mu)
