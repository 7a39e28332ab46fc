"""`plan`: from targets of ε to the spec with the least noise that meets them (docs/planning-method.md)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set

from sfumato.errors import SpecError
from sfumato.families import family_of
from sfumato.planning.allocate import Allocation, BindingConstraint
from sfumato.planning.certification import guarantees
from sfumato.planning.convex_program import solver
from sfumato.planning.cost_search import Minimize, cheapest_training
from sfumato.planning.problem import pose_problem, resolve_to_plan
from sfumato.planning.result import (
    MetTarget,
    Option,
    PlannedSource,
    PlannedSpec,
    Untargeted,
    global_noise_rms,
)
from sfumato.planning.targets import (
    TARGETS,
    EpsilonTarget,
    PlanTargets,
    guarantee,
    is_sampled,
    observed_pair,
    pair_charge,
    parse_targets,
)
from sfumato.schedule.base import Plan
from sfumato.schedule.rows.observers import ObservedUnit, is_of_kind
from sfumato.spec.document import Spec, require_spec
from sfumato.spec.privacy import OBSERVER_KINDS, NoiseBySource

_NO_SHARE = 1e-6


def plan(spec: Spec, targets: Mapping[str, float], *, minimize: Minimize = "noise") -> PlannedSpec:
    """Size every noise source so that all targets hold with the least noise in the global model.

    Args:
        spec: its noise is replaced. The parties that may add noise are those that the spec names; if it
            names none, trust decides.
        targets: ε towards observers: a kind (``cloud``, ``edge``, ``peer``, ``device``, ``public``: the
            worst of that kind), an observer (``edge:3``), or a coalition joined by commas. ``noise`` limits
            the noise in the global model (`result.global_noise_rms`). ε is that of a record where
            ``privacy.unit`` is ``record``, otherwise (also where it is ``both``) that of a device.
        minimize: what to minimise; for energy and delay, participation and the length of rounds are
            chosen too.

    Raises:
        MissingExtraError: the extra ``plan`` is not installed.
        SpecError: the spec or a target is wrong, or the targets cannot all be met.
        RunError: the solver finds no solution.
    """
    require_spec(spec)
    solver()
    if not isinstance(targets, Mapping):
        raise SpecError(TARGETS, targets, "must be a mapping of observers to ε, like {'cloud': 2}")
    requested = parse_targets(targets.items())
    if minimize == "noise":
        return _plan_noise(spec, requested, ())
    chosen, options = cheapest_training(spec, requested, minimize)
    return _plan_noise(chosen, requested, options)


def _plan_noise(spec: Spec, requested: PlanTargets, options: tuple[Option, ...]) -> PlannedSpec:
    """The planned spec of least noise, with the participation and round length of ``spec``.

    ``options``: participations and round lengths that were compared before, for the result.
    """
    problem = pose_problem(spec, requested.targets)
    family = family_of(spec).planning()
    made, found = family.plan_least_noise(problem, requested.targets)
    if global_noise_rms(made) > requested.max_noise * (1 + 1e-6):
        family.refuse_too_much_noise(problem, requested)
    others = tuple(_epsilons_without_target(made, requested.targets))
    bare = ", ".join(other.observer_kind for other in others if math.isinf(other.epsilon))
    warning = (f"there is no guarantee towards {bare}: no target names this",) if bare else ()
    return PlannedSpec(
        plan=made,
        targets=tuple(_met_target(made, target, found) for target in requested.targets),
        sources=_planned_sources(made),
        own_noise=_scaled_own_noise(spec, requested.targets),
        untargeted=others,
        options=options,
        notes=(*made.notes, *problem.notes, *found.notes, *warning),
    )


def _met_target(plan: Plan, target: EpsilonTarget, found: Allocation) -> MetTarget:
    """The pair with the largest ε that ``target`` is about, under the plan, and the price of the target."""
    rows = [row for _, row in guarantees(plan, target)]
    worst = max(rows, key=lambda row: row.epsilon)
    price = sum(
        _price(binding) for binding in found.binding_constraints if binding.pair_target.target == target
    )
    return MetTarget(target, worst.unit, worst.observer, worst.epsilon, price)


def _price(binding: BindingConstraint) -> float:
    """By how many percent the noise variance falls if the ε of the binding's target grows by 1 %."""
    if binding.elasticity < _NO_SHARE:
        return 0.0
    epsilon = binding.pair_target.target.epsilon
    return binding.elasticity * binding.bound_response.limit_growth(binding.constraint, epsilon)


def _planned_sources(plan: Plan) -> tuple[PlannedSource, ...]:
    """The owners that add noise in the plan, each with its kind of aggregation and its multiplier."""
    noise, family = plan.spec.privacy.noise, family_of(plan.spec).planning()
    assert isinstance(noise, NoiseBySource)  # a planned spec lists its sources
    return tuple(
        PlannedSource(row.owners, family.level_name(plan, level), multiplier)
        for row in noise.sources
        for level, multiplier in enumerate(row.multipliers)
        if multiplier > 0
    )


def _scaled_own_noise(spec: Spec, targets: Sequence[EpsilonTarget]) -> float:
    """Noise (RMS) of the spec's own allocation, scaled until ``targets`` hold; NaN if not computed."""
    if spec.privacy.noise.kind == "none":
        return math.nan
    try:
        own = resolve_to_plan(spec)
    except SpecError:  # its own target cannot be met
        return math.nan
    return family_of(spec).planning().own_noise(own, targets)


def _kinds_without_target(named: Set[str]) -> list[str]:
    """Kinds of observers that no target names; ``edge`` stands for its two parts unless one is named.

    An ``other-device`` is left to ``device``.
    """
    parts = {"own-edge", "other-edge"}
    told_apart = bool(parts & named) and "edge" not in named
    hidden = {"other-device"} | ({"edge"} if told_apart else parts)
    return [kind for kind in OBSERVER_KINDS if kind not in named | hidden]


def _epsilons_without_target(plan: Plan, targets: Sequence[EpsilonTarget]) -> Iterator[Untargeted]:
    """The largest ε towards every kind of observer in the network that no target names.

    If participants or records are sampled, ε takes long to compute: then only kinds without any guarantee
    are listed.
    """
    kinds = _kinds_without_target({target.observer for target in targets})
    found: defaultdict[str, list[ObservedUnit]] = defaultdict(list)
    for pair in plan.releases.pair_classes():
        for kind in kinds:
            if is_of_kind(pair, kind) and not (
                plan.classes_share_trust and plan.trusts(pair.observer, pair.unit)
            ):
                found[kind].append(observed_pair(plan, pair.unit, (pair.observer,), pair.pair_count))
    for kind, pairs in found.items():
        if not is_sampled(plan):
            yield Untargeted(kind, max(guarantee(plan, pair).epsilon for pair in pairs))
        elif any(pair_charge(plan, pair).is_unprotected for pair in pairs):
            yield Untargeted(kind, math.inf)
