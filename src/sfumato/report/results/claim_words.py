"""What pages call a published claim, its place in the paper, and whether it holds."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sfumato.claims.dp_ogl_counts import BY_RDP, BY_TEXT
from sfumato.privacy.claim import Claim

_ORIGINS = {
    "counts × RDP": " (as the paper's figures are made)",
    "2π²α/σ²": " (by the paper's text)",
}
"""By `formula_in_words`."""


_COMPOSED = re.compile(r", composed by [\w-]+")
"""What reasons say by the names that files give to methods."""


def reason_in_words(why: str) -> str:
    """The reason of a claim, with formulas as `claim_in_words` writes them; how ε is composed is left out."""
    why = _COMPOSED.sub("", why)
    return why.replace(BY_RDP, claim_in_words(BY_RDP)).replace(BY_TEXT, claim_in_words(BY_TEXT))


def claim_in_words(source: str) -> str:
    """The source of a claim, with signs such as μ and × in place of the names that files write for them."""
    written = source.replace("2 pi^2 alpha/sigma^2", "2π²α/σ²").replace("mu for", "μ for")
    return written.replace(" x ", " × ")


def formula_in_words(source: str) -> str:
    """The formula or the rounds of a claim's source; the whole source where it has none.

    ``counts × RDP`` of ``DP-OGL Thm. 1 (17), counts x RDP``.
    """
    return claim_in_words(source).rpartition(", ")[2]


def are_read_of_devices(claims: Iterable[Claim]) -> bool:
    """Whether all claims are by H2FDP, which speaks of one record, and set beside the ε of whole devices."""
    return all(one.paper == "H2FDP" and one.unit.startswith("device:") for one in claims)


def origin_in_words(formula: str) -> str:
    """Where in the paper a formula is from, in brackets after a space; "" where a theorem has one only."""
    return _ORIGINS.get(formula, "")


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
