"""What pages call a published claim, its place in the paper, and whether it holds."""

from __future__ import annotations

from collections.abc import Iterable

from sfumato.privacy.claim import Claim


def claim_in_words(source: str) -> str:
    """The source of a claim, with signs such as ε in place of the names that files write for them."""
    written = source.replace("2 pi^2 alpha/sigma^2", "2π²α/σ²").replace("mu for", "μ for")
    return written.replace(" x ", " × ")


def formula_in_words(source: str) -> str:
    """The formula or the rounds of a claim's source, which follow the place of the paper."""
    return claim_in_words(source).rpartition(", ")[2]


def by_source(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """The claims of each place of a paper, in their order; the place is without formula and rounds."""
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.source.rpartition(", ")[0] or claim.source, []).append(claim)
    return found


def held_in_words(claim: Claim) -> tuple[str, str]:
    """Two phrases for ``claim``: what is said of a claim that holds, and of one that does not.

    The rigorous ε over groups is the least of several upper bounds, so that a smaller claim is not refuted.
    """
    return ("is proved", "is not proved") if claim.paper == "DP-OGL" else ("holds", "does not hold")


def title_of_reasons(claim: Claim) -> str:
    """The title of the reasons of a claim and of those beside it; see `held_in_words`."""
    return "Why they are proved or not" if claim.paper == "DP-OGL" else "Why they hold or do not"
