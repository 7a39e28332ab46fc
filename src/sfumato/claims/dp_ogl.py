"""DP-OGL's claims (Theorems 1 and 2 of dp-ogl.txt), each beside the rigorous figure, with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sfumato.claims.dp_ogl_counts import (
    BY_RDP,
    BY_TEXT,
    DP_OGL_PLUS,
    PaperCount,
    claims_pair,
    paper_counts,
    paper_epsilon,
    paper_sources,
)
from sfumato.claims.dp_ogl_theorem2 import Theorem2
from sfumato.privacy.claim import Claim, claim_holds
from sfumato.privacy.declared_releases import bounds_of
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.observers import PairClass
from sfumato.schedule.groups import GroupPlan


def ogl_claims(plan: GroupPlan, delta: float) -> tuple[Claim, ...]:
    """Claims of DP-OGL's Theorems 1 and 2 for every class of pairs of workers, beside the ε at ``delta``.

    In a large network they are about the pairs that rows name: the theorems say nothing of a pair that a row
    with another observer stands for, whose claim may be smaller (`sfumato.privacy.groups.folded_observers`).
    () for what the paper does not treat: dp-ogl-local, ms-fedavg, no noise, noise added by devices.
    """
    declared = plan.releases
    sources = paper_sources(declared)
    if not sources:
        return ()
    second = Theorem2.of(plan)
    found: list[Claim] = []
    for pair in declared.pair_classes():
        if pair.observer.kind == "device" and claims_pair(declared, pair.unit, pair.observer.index):
            found.extend(_claims_of_pair(plan, pair, sources, second, delta))
    return tuple(found)


def _claims_of_pair(
    plan: GroupPlan, pair: PairClass, sources: dict[str, str], second: Theorem2 | None, delta: float
) -> Iterator[Claim]:
    """The claims of both theorems for one pair of workers, beside its rigorous ε at ``delta``.

    Args:
        plan: resolved.
        pair: the pair.
        sources: Theorem 1's claims, from `paper_sources`.
        second: Theorem 2, where its conditions are met.
        delta: of every ε.
    """
    declared, unit, observer = plan.releases, pair.unit, pair.observer.index
    neighbours = plan.spec.privacy.neighbours
    exposures = declared.exposures(unit, (pair.observer,))
    bounds = bounds_of(declared, exposures, delta=delta, neighbours=neighbours)
    rigorous = min(bound.epsilon for bound in bounds.values())
    counts = paper_counts(declared, unit, observer)
    names = f"device:{unit}", f"device:{observer}"
    for source, method in sources.items():
        claimed = paper_epsilon(declared, counts, method, delta)
        flow = claim_holds(claimed, bounds["flow"].epsilon)
        why = _explain_count(
            declared, counts, method, claim_holds(claimed, rigorous), neighbours, of_all_that_flows=flow
        )
        yield Claim(source, *names, claimed, rigorous, why)
    if second is not None:
        claimed = second.epsilon(unit, observer, delta)
        why = second.why(unit, observer, claim_holds(claimed, rigorous))
        yield Claim(second.source, *names, claimed, rigorous, why)


def _explain_count(
    declared: GroupReleases,
    counts: Sequence[PaperCount],
    method: str,
    holds: bool,
    neighbours: str,
    *,
    of_all_that_flows: bool,
) -> str:
    """A sentence on what Theorem 1's count of releases and its composition get wrong for a pair.

    Args:
        declared: the releases.
        counts: what the theorem counts.
        method: how the theorem's figure composes.
        holds: whether the claim holds (`claim_holds`).
        neighbours: the relation of the spec.
        of_all_that_flows: whether the claim would hold, too, if all that the observer's view depends on were
            charged, and no smaller set of releases.
    """
    if declared.kind == "dp-ogl+" and declared.merge_every > 1:
        return DP_OGL_PLUS if not holds else "nothing of this worker's data gets that far."
    counted = sum(c.charged for c in counts)
    missed, extra = sum(c.missed for c in counts), sum(c.through_target for c in counts)
    rounds, every = declared.rounds, declared.merge_every
    said = []
    equation = "(17)" if declared.kind == "dp-ogl" else "(18)"
    if missed:
        said.append(
            f"{equation} rounds {rounds}/{every} down and leaves out {missed} releases that the last merging "
            f"epoch passes on (O1)"
        )
    if extra:
        subject = "it" if missed else equation
        said.append(f"{subject} adds {extra} that only the worker itself passes on (O2)")
    truth = counted + missed - extra
    if said:
        said.append(f"{counted} counted, {truth} in truth")
    else:
        said.append(f"{equation} counts {counted} releases, rightly")
    if method == BY_TEXT and counted:
        said.append(_explain_divergence(declared, [c.group for c in counts if c.charged]))
    if neighbours == "replace":
        said.append("its neighbours zero a worker out, the exact figure replaces it")
    elif counted < truth:
        said.append(_explain_verdict(method, counted, holds=holds, of_all_that_flows=of_all_that_flows))
    elif method == BY_RDP and holds and not said[0].endswith("(O1)") and counted:
        said.append("composing by Rényi divergences is looser than composing exactly")
    return "; ".join(said) + "."


def _explain_verdict(method: str, counted: int, *, holds: bool, of_all_that_flows: bool) -> str:
    """A clause on why a claim that counts too few releases is proved all the same, or is not.

    ``method``, ``holds`` and ``of_all_that_flows`` as of `_explain_count`; ``counted``: the theorem's count.
    """
    if not counted:
        return "ε = 0 would need that none arrives"
    if not holds:
        return f"{method} is not proved"
    if of_all_that_flows:
        return f"{method} is still proved, as it charges more for each release than exact composition does"
    return f"{method} is still proved, as another set of releases, which suffices here, has a smaller ε"


def _explain_divergence(declared: GroupReleases, groups: Sequence[int]) -> str:
    """A clause on the divergence that Theorem 1's text uses for ``groups``, and where it is wrong."""
    rates, sigmas = [declared.rate[g] for g in groups], [declared.noise_multiplier[g] for g in groups]
    if min(rates) == 1:
        return "2π²α/σ² is four times the Gaussian's α/2σ² at π = 1 (O3)"
    if max(rates) > 0.2 or min(sigmas) < 4:
        return "2π²α/σ² needs π ≤ 1/5, σ ≥ 4 and a bounded α, which is not so here (O3)"
    return "2π²α/σ² needs a bounded α, which nobody checks (O3)"
