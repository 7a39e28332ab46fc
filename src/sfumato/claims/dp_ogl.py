"""DP-OGL's claims (Theorems 1 and 2 of dp-ogl.txt), each beside the rigorous figure, with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sfumato.claims.dp_ogl_counts import (
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
    missed, extra = sum(c.missed for c in counts), sum(c.too_many for c in counts)
    said = [_explain_number(declared, counts, missed, extra)]
    if method == BY_TEXT and counted:
        said.append(_explain_divergence(declared, [c.group for c in counts if c.charged]))
    told = method == BY_TEXT and _all_take_part(declared, [c.group for c in counts if c.charged])
    if neighbours == "replace":
        said.append("its neighbours zero a worker out, the exact figure replaces it")
    elif missed > extra or (counted and (missed or not told)):
        said.append(
            _explain_verdict(
                method, counted, holds=holds, of_all_that_flows=of_all_that_flows, too_many=extra > 0
            )
        )
    return "; ".join(said) + "."


def _explain_number(declared: GroupReleases, counts: Sequence[PaperCount], missed: int, extra: int) -> str:
    """Clauses on how many releases Theorem 1 counts, and how many there are.

    ``missed`` and ``extra``: the sums over ``counts`` of those left out and of those that are too many.
    """
    equation = "(17)" if declared.kind == "dp-ogl" else "(18)"
    counted, said = sum(c.charged for c in counts), list[str]()
    if missed:
        said.append(
            f"{equation} rounds {declared.rounds}/{declared.merge_every} down and leaves out {missed} "
            "releases that the last merging epoch passes on (O1)"
        )
    if extra:
        subject = "it" if missed else equation
        said.append(f"{subject} adds {extra} of another group that only the worker itself passes on (O2)")
    if any(c.errors_cancel for c in counts):
        also = "two more" if said else "two"
        said.append(f"{also} errors of {equation} cancel (O1, O2)")
    if not said:
        return f"{equation} counts {counted} releases, rightly"
    return "; ".join([*said, f"{counted} counted, {counted + missed - extra} in truth"])


def _explain_verdict(
    method: str, counted: int, *, holds: bool, of_all_that_flows: bool, too_many: bool
) -> str:
    """A clause on why a claim is proved, or that it is not.

    ``method``, ``holds`` and ``of_all_that_flows`` as of `_explain_count`; ``counted``: the theorem's count;
    ``too_many``: whether releases that tell nothing are among them.
    """
    if not counted:
        return "ε = 0 would need that none arrives"
    if not holds:
        return f"{method} is not proved"
    if of_all_that_flows:
        charge = "charges more in all" if too_many else "charges more for each release"
        return f"{method} is proved, as it {charge} than exact composition does"
    return f"{method} is proved, as another set of releases, which suffices here, has a smaller ε"


def _all_take_part(declared: GroupReleases, groups: Sequence[int]) -> bool:
    """Whether every worker of ``groups`` takes part in every round; not if there are none."""
    return bool(groups) and min(declared.rate[g] for g in groups) == 1


def _explain_divergence(declared: GroupReleases, groups: Sequence[int]) -> str:
    """A clause on the divergence that Theorem 1's text uses for ``groups``, and where it is wrong.

    ``groups``: numbers of those whose releases are counted, at least one.
    """
    rates, sigmas = [declared.rate[g] for g in groups], [declared.noise_multiplier[g] for g in groups]
    if _all_take_part(declared, groups):
        return "2π²α/σ² is four times the Gaussian's α/2σ² at π = 1 (O3)"
    if max(rates) > 0.2 or min(sigmas) < 4:
        return "2π²α/σ² needs π ≤ 1/5, σ ≥ 4 and a bounded α, which is not so here (O3)"
    return "2π²α/σ² needs a bounded α, which nobody checks (O3)"
