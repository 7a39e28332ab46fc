"""`audit`: empirical lower bounds on ε beside the accountant's upper bounds, for one spec."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from sfumato.accounting import pair_guarantee, unit_kinds
from sfumato.arguments import Argument
from sfumato.auditing.canaries import OneRun, one_run_audit
from sfumato.auditing.report import AuditedPair, AuditReport, LowerBound
from sfumato.auditing.tradeoff import (
    ComposedCurves,
    GaussianMixtureCurves,
    TradeOffCurves,
    TrialScores,
    epsilon_by_counting,
    mu_by_curve,
)
from sfumato.auditing.trials import RoundTests, simulate_trials
from sfumato.engine.tiles import intra_op_threads
from sfumato.errors import SpecError
from sfumato.families import family_of
from sfumato.privacy.accountant import composed_epsilon
from sfumato.privacy.charges import Composition, ways_to_charge
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.observers import Party
from sfumato.privacy.records import RecordCharge
from sfumato.privacy.sampling import Neighbours
from sfumato.progress import track
from sfumato.progress_bars import progress_bars
from sfumato.schedule.adaptive_clip import require_fixed_clip
from sfumato.schedule.base import Plan
from sfumato.schedule.control.adaptive import RoundSettings
from sfumato.schedule.control.realised_rounds import with_realised_rounds
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.resolve import resolve
from sfumato.schedule.rows.observers import parse_coalition, parse_protected
from sfumato.schedule.rows.watch import MonitoredPair, worst_pair
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec
from sfumato.spec.privacy import OBSERVER_KINDS

TRIALS = 20_000
ERROR = 1e-6
ONE_RUN_ERROR = 0.05
_LEAST_TRIALS, _MOST_TRIALS = 100, 10_000_000


def audit(
    spec: Spec,
    *,
    observers: Sequence[str] = (),
    trials: int = TRIALS,
    progress: bool = True,
    settings: Sequence[RoundSettings] = (),
) -> AuditReport:
    """Attack every release of ``spec`` with a worst-case target, without training (docs/audit.md).

    Args:
        spec: as loaded; it is resolved here.
        observers: parties, coalitions joined by commas, or kinds of observers (the worst of that kind). For
            each of them the unit with the largest finite ε is attacked. Default: the observers that a run
            follows, and the worst peer.
        trials: test trials with the target's message, and as many without; as many again are held out to
            choose the threshold.
        progress: whether a bar is drawn, on a terminal and in a notebook.
        settings: with control, those of every round of a finished run. These rounds are attacked as they
            were played, against the budget; without them a spec with control is refused.

    Raises:
        SpecError: the spec or the call is wrong.
    """
    if not _LEAST_TRIALS <= trials <= _MOST_TRIALS:
        allowed = f"must be from {_LEAST_TRIALS} to {_MOST_TRIALS:,}: all trials are kept in memory"
        raise SpecError(Argument("trials"), trials, allowed)
    plan = resolve(spec)
    if settings:
        # the checks of a spec allow control on trees only
        plan = with_realised_rounds(cast("TreePlan", plan), settings)
    found: dict[tuple[str, str], MonitoredPair] = {}
    for pair in _pairs_to_attack(plan, observers):
        pair = _with_most_participations(cast("TreePlan", plan), pair) if settings else pair
        found.setdefault((pair.unit, pair.observer), pair)
    with progress_bars(wanted=progress) as bars:
        findings = tuple(
            audit_pair(plan, pair.unit, pair.observer, trials=trials)
            for pair in track(list(found.values()), bars.counter(spec.name))
        )
    return AuditReport(spec.name, plan.spec.privacy.delta, trials, ERROR, findings, plan.notes)


@intra_op_threads(1)
def audit_pair(
    plan: Plan, unit: str, observer: str, *, trials: int = TRIALS, error: float = ERROR
) -> AuditedPair:
    """The lower bound on ε of one unit towards one observer or coalition, beside the guaranteed ε.

    Args:
        plan: the plan that is audited.
        unit: ``device:N``; ``record:N`` or ``person:N``, any one of these of device N.
        observer: a party, or a coalition joined by commas.
        trials: test trials with the target's message, and as many without; as many again are held out.
        error: probability that the lower bound is wrong.

    Raises:
        SpecError: there is no such party, the coalition contains the unit, or the plan cannot be audited.
    """
    began, delta = time.monotonic(), plan.spec.privacy.delta
    guarantee = pair_guarantee(plan, unit, observer, delta=delta)
    require_fixed_clip(plan.spec, "an audit plays rounds of one clip norm; ε is the same without it")
    kind, target = parse_protected(unit, plan.parties, own=plan.spec.privacy.unit)
    coalition = parse_coalition(observer, plan.parties)
    attack = _attack_on_device if kind == "device" else _attack_on_part
    lower, one_run = attack(plan, target, coalition, guarantee, trials, error)
    return AuditedPair(
        unit=guarantee.unit,
        observer=guarantee.observer,
        neighbours=guarantee.bounds[guarantee.bound].neighbours,
        upper=guarantee.epsilon,
        method=guarantee.method,
        lower=lower,
        one_run=one_run,
        seconds=time.monotonic() - began,
    )


def _attack_on_device(
    plan: Plan, device: int, coalition: tuple[Party, ...], guarantee: Guarantee, trials: int, error: float
) -> tuple[LowerBound, OneRun | None]:
    """The lower bound on ε of a device, from trials with and without its message, and the one-run audit.

    Args:
        guarantee: the unit's row, which says under which relation it holds.
        trials: in each world; as many again are held out.
        error: probability that the bound is wrong.
        plan: that is audited.
        device: number of the unit.
        coalition: the observers.

    Raises:
        SpecError: examples are clipped, so that devices have no guarantee.
    """
    if plan.spec.privacy.clips_examples:
        allowed = "must be update or step to audit a whole device, which has no guarantee with example"
        raise SpecError("privacy.clip.kind", "example", allowed)
    neighbours = guarantee.bounds[guarantee.bound].neighbours
    return _attack_on_messages(plan, ("device", device), coalition, neighbours, trials, error)


def _attack_on_part(
    plan: Plan, device: int, coalition: tuple[Party, ...], guarantee: Guarantee, trials: int, error: float
) -> tuple[LowerBound, OneRun | None]:
    """The lower bound on ε of one record or person of ``device``, and the one-run audit if there is one.

    Where mini-batches are Poisson it has draws of its own. ``coalition``, ``trials`` and ``error``: as of
    `_attack_on_device`.
    """
    bound, protected = guarantee.bounds[guarantee.bound], (guarantee.unit_kind, device)
    hidden = guarantee.bound != "flow"  # the observer does not receive all that the device trains from
    scores = family_of(plan.spec).audit_record(plan, device, coalition, bound.neighbours, hidden, trials)
    if scores is None:
        return _attack_on_messages(plan, protected, coalition, "replace", trials, error)
    charged = parse_coalition(guarantee.as_seen_by or guarantee.observer, plan.parties)
    curves = _claimed_curves(plan, protected, charged)
    return _lower_bound(scores, curves, plan.spec.privacy.delta, error), None


def _attack_on_messages(
    plan: Plan,
    protected: tuple[str, int],
    coalition: tuple[Party, ...],
    neighbours: Neighbours,
    trials: int,
    error: float,
) -> tuple[LowerBound, OneRun | None]:
    """The lower bound on ε of a unit whose every message differs between the two worlds, and a one-run audit.

    The bound is wrong with probability at most ``error``. ``protected`` is the kind of unit and its device.
    ``trials``: in each world; as many again are held out. There is no one-run audit (``None``) where the
    coalition scores what others pass on.
    """
    delta, seed = plan.spec.privacy.delta, plan.spec.seed
    harness = family_of(plan.spec).audit(plan, protected[1], coalition)
    passed_on = harness.scores_through_others(neighbours, trials=trials, seed=seed)
    if passed_on is not None:
        return _lower_bound(passed_on, _claimed_curves(plan, protected, coalition), delta, error), None
    scores, rounds = simulate_trials(harness, neighbours, trials=trials, seed=seed)
    curves = _curves_of_known_family(rounds, neighbours, alike=plan.rounds_are_alike)
    curves = curves or _claimed_curves(plan, protected, coalition)
    one_run = one_run_audit(harness, rounds, neighbours, delta=delta, error=ONE_RUN_ERROR, seed=seed)
    return _lower_bound(scores, curves, delta, error), one_run


def _pairs_to_attack(plan: Plan, observers: Sequence[str]) -> list[MonitoredPair]:
    """For every kind of unit and every observer, the pair with the largest finite ε; infinite if none is.

    Where examples are clipped no device is attacked: devices have no guarantee.

    Raises:
        SpecError: an observer that does not exist, or who leaves nobody to protect.
    """

    def guarantee(unit: str, observer: str) -> Guarantee:
        return pair_guarantee(plan, unit, observer, delta=plan.spec.privacy.delta)

    kinds = unit_kinds(plan)
    if plan.spec.privacy.clips_examples and "record" in kinds:
        kinds = ("record",)
    pairs = []
    for name in observers or (*plan.default_watch, "peer"):
        if name not in OBSERVER_KINDS:
            parse_coalition(name, plan.parties, place=Argument("observers"))
        try:  # an infinite ε cannot be refuted
            worst = [worst_pair(plan, name, guarantee, bounded=True, kind=kind) for kind in kinds]
        except SpecError as error:
            raise SpecError(Argument("observers"), error.value, error.allowed) from error
        if observers and None in worst:
            raise SpecError(Argument("observers"), name, "there is no such observer in this network")
        pairs += [pair for pair in worst if pair is not None]
    return pairs


def _with_most_participations(plan: TreePlan, pair: MonitoredPair) -> MonitoredPair:
    """``pair`` with the device of the same leaf that took part in most rounds: it spent most of the budget.

    All devices of a leaf but members of the coalition stand alike to it.
    """
    kind, device = parse_protected(pair.unit, plan.parties, own=plan.spec.privacy.unit)
    members = {p.index for p in parse_coalition(pair.observer, plan.parties) if p.kind == "device"}
    rounds = np.zeros(plan.tree.device_count, dtype=np.int64)
    for played in plan.structures:
        rounds[draw_participants(played, 0)] += 1
    alike = [int(d) for d in plan.tree.devices_under(plan.tree.leaf_of(device)) if int(d) not in members]
    return replace(pair, unit=f"{kind}:{max(alike, key=lambda d: rounds[d])}")


def _curves_of_known_family(
    rounds: Sequence[RoundTests], neighbours: Neighbours, *, alike: bool
) -> TradeOffCurves | None:
    """The trade-off curves that the accountant may claim; ``None`` if their family is not known.

    Args:
        rounds: the fitted tests of each round.
        neighbours: the relation.
        alike: whether all rounds have the same releases; families of sampled rounds are of such.
    """
    if any(len(found.probabilities) > 1 for found in rounds):
        return None
    observed = [[fitted for fitted in found.tests[0] if fitted.test.depends_on_target] for found in rounds]
    telling = [fitted for of_round in observed for fitted in of_round]
    draws = {fitted.draw for fitted in telling}
    if all(draw.rate == 1 for draw in draws) and neighbours != "remove":
        return GaussianMixtureCurves.gaussian()
    if len(draws) != 1 or not alike:
        return None
    draw = draws.pop()
    if draw.visible:
        alone = max(len(of_round) for of_round in observed) == 1
        return (
            GaussianMixtureCurves.participations(len(rounds), draw.rate)
            if alone and neighbours != "remove"
            else None
        )
    shifts = {round(math.log(fitted.test.shift), 1) for fitted in telling}
    if not draw.independent or neighbours == "replace" or len(shifts) > 1:
        return None
    if not all(fitted.test.noise_is_draw_independent for fitted in telling):
        return None
    return ComposedCurves.subsampled(len(telling), draw.rate)


def _claimed_curves(
    plan: Plan, protected: tuple[str, int], coalition: Sequence[Party]
) -> ComposedCurves | None:
    """The trade-off curves of the composition from which the accountant has its least ε for the pair.

    One curve for every μ by which all noise is divided; the accountant claims that of μ = 1. With elections
    the curve is a mixture that depends on what members receive in office and out of it; with denominators
    that depend on the draw no two rounds are alike; a record may be drawn at any local step. In these cases
    the accountant's own curve is tested: the lower bound exceeds its ε only if the curve is refuted.

    Args:
        plan: that is audited.
        protected: the kind of unit, and the number of the device.
        coalition: the colluding observers.

    Returns:
        ``None`` where that ε is 0 or ∞, or no composition keeps δ.
    """
    delta = plan.spec.privacy.delta
    found = [
        (composed_epsilon(charge.terms, charge.neighbours, delta - charge.failure_probability)[0], charge)
        for charge in _compositions(plan, *protected, coalition)
        if charge.failure_probability < delta
    ]
    epsilon, best = min(found, key=lambda pair: pair[0], default=(math.inf, None))
    if best is None or not 0 < epsilon < math.inf:
        return None
    return ComposedCurves(best.terms, best.neighbours, best.failure_probability)


def _compositions(plan: Plan, kind: str, device: int, coalition: Sequence[Party]) -> Iterable[Composition]:
    """Every sound way in which the accountant composes the releases of the pair, once for each.

    Args:
        plan: that is audited.
        kind: ``device`` or ``record``.
        device: number of the device, or of the one that holds the record.
        coalition: the colluding observers.
    """
    declared, neighbours = plan.releases, plan.spec.privacy.neighbours
    exposures = declared.exposures(device, coalition)
    if kind == "device":
        return (way for exposure in exposures for way in ways_to_charge(exposure, neighbours))
    charge = RecordCharge.of(declared, device, coalition, neighbours=neighbours)
    return (way for exposure in exposures for way in charge.ways(exposure))


def _lower_bound(
    scores: TrialScores, curves: TradeOffCurves | None, delta: float, error: float
) -> LowerBound:
    """The larger of the lower bounds on ε by counting and by curve, with both bounds.

    Args:
        scores: of the simulated trials.
        curves: trade-off curves that the accountant claims; ``None`` for counting only.
        delta: at which ε is bounded.
        error: probability that the result exceeds the true ε; each of the two bounds uses half of it.
    """
    counting = epsilon_by_counting(scores.held_out, scores.test, delta=delta, error=error / 2)
    if curves is None:
        return LowerBound(counting, "counting", counting, None, None)
    mu = mu_by_curve(scores.held_out, scores.test, curves, error=error / 2)
    curve = curves.epsilon(mu, delta=delta)
    return LowerBound(max(counting, curve), "counting" if counting > curve else "curve", counting, curve, mu)
