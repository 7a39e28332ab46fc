"""PFELS's claim (Theorem 3) beside the rigorous figures of one round, of which it speaks, and of all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sfumato.privacy.accountant import compose
from sfumato.privacy.charges import bound_epsilon, ways_to_charge
from sfumato.privacy.claim import Claim, ClaimedDraw
from sfumato.privacy.guarantee import EpsilonBound, smallest
from sfumato.privacy.noise_scale import noise_scale_for
from sfumato.privacy.observers import PairClass
from sfumato.privacy.release import Exposure, Release, total_mu_squared
from sfumato.privacy.sampling import GaussianTerm, Sampling
from sfumato.rounding import upper_bound
from sfumato.schedule.air.power_control import AirPlan
from sfumato.schedule.tree import TreePlan

_THEOREM = "PFELS Thm. 3"
_ONE_ROUND = "one round"


def pfels_claims(plan: TreePlan, air: AirPlan, claimed: float, delta: float) -> tuple[Claim, ...]:
    """PFELS's two claims that ε is ``claimed``, for one round and for all, beside our ε at ``delta``.

    They are made for each class of pairs whose observer receives the superposed sum or knows the global
    model.

    Args:
        plan: resolved.
        air: how its devices send over the air.
        claimed: the ε by which the paper's formula set the signal.
        delta: of our ε.
    """
    pairs = [pair for pair in plan.releases.pair_classes() if _paper_speaks_of(plan, pair)]
    return tuple(claim for pair in pairs for claim in _claims_of_pair(plan, air, pair, claimed, delta))


def _paper_speaks_of(plan: TreePlan, pair: PairClass) -> bool:
    """Whether the theorem is about this observer: the public, or an untrusted receiver above the unit."""
    if pair.observer.kind == "node":
        path = plan.tree.paths[plan.tree.leaf_of(pair.unit)]
        own = path[pair.observer.tier] == pair.observer.index
        return bool(own) and not plan.tree.tiers[pair.observer.tier].trusted[pair.observer.index]
    return pair.observer.kind == "public"


def _claims_of_pair(
    plan: TreePlan, air: AirPlan, pair: PairClass, claimed: float, delta: float
) -> Iterator[Claim]:
    """The claims for one round and for all, for one pair, beside the rigorous ε.

    ``claimed``: the paper's ε; ``delta``: of ours.
    """
    neighbours, rounds = plan.spec.privacy.neighbours, plan.spec.training.rounds
    unit, observer = f"device:{pair.unit}", plan.releases.party_name(pair.observer)
    one = plan.releases.after(1).exposures(pair.unit, (pair.observer,))
    hidden = all(exposure.draw_hidden for exposure in one)
    # nothing amplifies for who sees the draw: its one round is one that the unit takes part in
    if not hidden:
        one = tuple(exposure.without_draws() for exposure in one)
    all_rounds = plan.releases.exposures(pair.unit, (pair.observer,))
    draw = _draw_of(plan, all_rounds[0], hidden=hidden)
    for exposures, what in ((one, _ONE_ROUND), (all_rounds, f"all {rounds:,} rounds")):
        bounds: dict[str, EpsilonBound] = {
            e.bound_name: bound_epsilon(e, delta=delta, neighbours=neighbours) for e in exposures
        }
        name = smallest(bounds)
        best, exposure = bounds[name], next(e for e in exposures if e.bound_name == name)
        surrogate, aside = _surrogate(plan, exposure, delta)
        factor = noise_scale_for(exposures, epsilon=claimed, delta=delta, neighbours=neighbours)
        why = (
            f"{_explain_claim(plan, air, what, claimed, draw)}; "
            f"the strongest signal that {_describe_limit(plan, air, pair.unit)} is observed at noise "
            f"multiplier {_describe_multipliers(exposure.releases)}, "
            f"{best.how}, composed by {best.method}{_describe_grid(exposure, best)}; "
            f"{aside}{_describe_needed_noise(exposure, claimed, factor)}."
        )
        one_round = what == _ONE_ROUND
        yield Claim(
            f"{_THEOREM}, {what}",
            unit,
            observer,
            claimed,
            best.epsilon,
            why,
            best.method,
            surrogate,
            one_round=one_round,
            draw=draw,
        )


def _draw_of(plan: TreePlan, exposure: Exposure, *, hidden: bool) -> ClaimedDraw:
    """How the draw of participants enters the ε of one round of an ``exposure`` of all rounds.

    ``none``: all take part; ``seen``: the observer sees it; ``replaced``: their number is fixed and no
    reception reveals it, so that another device stands in for the unit; ``unseen``: it is hidden otherwise.
    ``hidden``: whether the observer does not see it.
    """
    if all(drawn.sampling.kind == "all" for drawn in exposure.draws):
        return "none"
    if not hidden:
        return "seen"
    replaced = exposure.draws[0].sampling.kind == "fixed" and not plan.releases.steps[-1].reveals_draw
    return "replaced" if replaced else "unseen"


def _describe_limit(plan: TreePlan, air: AirPlan, unit: int) -> str:
    """A clause on what limits the strongest signal of a unit's leaf: the rule for β, a fixed β, or power."""
    leaf = plan.tree.leaf_of(unit)
    if air.envelope[leaf] < air.max_alignment[leaf]:
        return "the power limit allows on any channel"
    return "the fixed β allows" if air.has_fixed_beta else "the paper's privacy rule allows (β = ε/C2)"


def _describe_multipliers(releases: Sequence[Release]) -> str:
    """The range of noise multipliers of ``releases`` as text, over what the unit's own message moves.

    ``0.5 to 2``; one number where they are written alike, and ∞ where no release depends on the unit.
    """
    found = [r.mu_squared("zero-out") ** -0.5 for r in releases if r.depends_on_unit]
    if not found:
        return "∞"
    low, high = f"{min(found):.4g}", f"{max(found):.4g}"
    return low if low == high else f"{low} to {high}"


def _explain_claim(plan: TreePlan, air: AirPlan, what: str, claimed: float, draw: ClaimedDraw) -> str:
    """Clauses on what is wrong with the claim, by the errata's numbers (docs/errata.md).

    ``what``: ``one round`` or the words for all rounds; ``draw``: from `_draw_of`.
    """
    domain = 2 * float((air.participants / plan.tree.devices).min())
    parts = []
    if claimed >= domain:
        parts.append(f"the proof holds for ε below 2r/N = {domain:.4g} only (P1)")
    if what != _ONE_ROUND:
        parts.append("the theorem speaks of one round and says nothing of their composition (P2)")
    if draw == "seen":
        parts.append(
            "this observer sees who is drawn, so drawing amplifies nothing: one round is one that the device "
            "takes part in (P3)"
        )
    elif draw == "unseen" and plan.releases.steps[-1].reveals_draw:
        parts.append(
            "the strength of the received sum depends on who is drawn and can be heard, so drawing amplifies "
            "nothing"
        )
    elif draw == "replaced":
        parts.append("a device drawn in the unit's place is up to twice the sensitivity away (P4)")
    return "; ".join(parts) or "the rounds are composed as they are"


def _surrogate(plan: TreePlan, exposure: Exposure, delta: float) -> tuple[float | None, str]:
    """For a fixed number drawn unseen: ε at ``delta`` as if drawn by Poisson, and a clause on it.

    This ε is no guarantee. ``None`` and an empty text where all take part, participants are drawn by Poisson,
    the observer sees the draw, or neighbours are ``replace``. ``exposure``: of one draw.
    """
    (drawn,) = exposure.draws
    fixed = drawn.sampling.kind == "fixed"
    if not fixed or not drawn.amplifies or plan.spec.privacy.neighbours == "replace":
        return None, ""
    square = total_mu_squared(drawn.releases, "zero-out")
    multiplier = square**-0.5 if square > 0 else math.inf
    term = GaussianTerm(multiplier, drawn.count, Sampling.poisson(drawn.sampling.rate))
    curve = compose([term], neighbours="zero-out")
    epsilon = curve.epsilon(delta)
    grid = f" on a grid of {curve.discretization:.2g}" if curve.discretization else ""
    figure = f"{upper_bound(epsilon)} (pld{grid})"
    aside = f"as if drawn by Poisson, a surrogate and no guarantee, it would be {figure}; "
    return epsilon, aside


def _describe_grid(exposure: Exposure, best: EpsilonBound) -> str:
    """A phrase, after a space, on the grid of privacy losses behind ``best``; "" if it was not on a grid.

    ``best``: a bound of ``exposure``.
    """
    for charge in ways_to_charge(exposure, best.neighbours):
        curve = compose(charge.terms, neighbours=charge.neighbours)
        if best.method == "pld" and charge.how == best.how and curve.discretization:
            return f" on a grid of {curve.discretization:.2g} nats, rounded up"
    return ""


def _describe_needed_noise(exposure: Exposure, claimed: float, factor: float) -> str:
    """A clause on the noise multiplier that would make the claim true, ``factor`` times the present one.

    ``factor``: 0 if no noise is needed, ∞ if none suffices.
    """
    if math.isinf(factor):
        return f"no noise floor holds here, so nothing makes ε = {claimed:g} true"
    if factor == 0:
        return f"ε = {claimed:g} needs no noise"
    met = max(exposure.releases, key=lambda release: release.sensitivity("zero-out"))
    needed = factor * met.mu_squared("zero-out") ** -0.5
    lower = f"an SNR {20 * math.log10(factor):.1f} dB lower at the receiver"
    return f"ε = {claimed:g} would need noise multiplier {needed:.4g}: {lower}"
