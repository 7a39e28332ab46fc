"""What pages call a published claim, its place in the paper, and whether it holds."""

from __future__ import annotations

from collections.abc import Iterable

from sfumato.privacy.claim import Claim


def claim_in_words(source: str) -> str:
    """The source of a claim, with signs such as ε in place of the names that files write for them."""
    written = source.replace("2 pi^2 alpha/sigma^2", "2π²α/σ²").replace("mu for", "μ for")
    return written.replace(" x ", " × ")


def source_without_formula(source: str) -> str:
    """The place of a paper in the source of a claim, without the formula or the rounds that follow it."""
    return source.rpartition(", ")[0] or source


def by_source(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """The claims of each place of a paper (`source_without_formula`), in their order."""
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(source_without_formula(claim.source), []).append(claim)
    return found


def held_in_words(claim: Claim) -> tuple[str, str]:
    """What is said of a claim that holds, and of one that does not.

    The rigorous ε over groups is the least of several upper bounds, so that a smaller claim is not refuted.
    """
    if claim.source.startswith("DP-OGL"):
        return "is proved", "is not proved"
    return "holds", "does not hold"
