"""The findings of an audit: empirical lower bounds beside the accountant's upper bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sfumato.auditing.canaries import OneRun
from sfumato.privacy.guarantee import json_number
from sfumato.privacy.sampling import Neighbours
from sfumato.rounding import lower_bound, number, upper_bound

_ROUNDING = 1e-9


@dataclass(frozen=True)
class LowerBound:
    """A lower bound on one pair's ε, wrong with at most the report's error.

    Attributes:
        epsilon: the larger of the two ways to bound it.
        how: ``counting`` (any mechanism) or ``curve`` (a trade-off curve of a known family).
        counting: the bound by counting.
        curve: the bound by the trade-off curve; ``None`` if no family is known.
        mu: GDP parameter behind ``curve``: of one round if participants are drawn, otherwise of all rounds.
    """

    epsilon: float
    how: Literal["counting", "curve"]
    counting: float
    curve: float | None
    mu: float | None


@dataclass(frozen=True)
class AuditedPair:
    """One pair: the accountant's upper bound on ε and the attack's lower bound.

    Attributes:
        unit: e.g. ``device:0``.
        observer: a party, or a coalition joined by commas.
        neighbours: the relation of both bounds.
        upper: the accountant's ε; infinite without a guarantee.
        method: of the accountant.
        lower: the attack's lower bound.
        one_run: the results of a single run, if there are enough exchangeable devices.
        seconds: duration of the attack.
    """

    unit: str
    observer: str
    neighbours: Neighbours
    upper: float
    method: str
    lower: LowerBound
    one_run: OneRun | None
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether the lower bound on ε is at most the guaranteed ε, up to rounding."""
        return self.lower.epsilon <= self.upper * (1 + _ROUNDING)

    def to_dict(self) -> dict[str, Any]:
        """The entry of the pair in ``audit --json``, a JSON object."""
        return {
            "unit": self.unit,
            "observer": self.observer,
            "neighbours": self.neighbours,
            "lower": self.lower.epsilon,
            "upper": json_number(self.upper),
            "holds": self.holds,
            "how": self.lower.how,
            "lower_by_counting": self.lower.counting,
            "lower_by_curve": self.lower.curve,
            "mu_lower": self.lower.mu,
            "method": self.method,
            "one_run": None if self.one_run is None else self.one_run.to_dict(),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class AuditReport:
    """All findings of one spec.

    Attributes:
        name: of the spec.
        delta: δ of every ε.
        trials: test trials with the target's message, and as many without; as many again were held out.
        error: probability that one lower bound is wrong.
        findings: one for each pair.
        notes: messages for the user.
    """

    name: str
    delta: float
    trials: int
    error: float
    findings: tuple[AuditedPair, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        pairs = f"{len(self.findings):,} {'pair' if len(self.findings) == 1 else 'pairs'}"
        largest = max((found.lower.epsilon for found in self.findings), default=0.0)
        said = "all hold" if self.holds else "a guarantee is refuted"
        return f"<AuditReport {self.name}: {pairs}, {said}, ε at least {lower_bound(largest, 4)}>"

    def _repr_html_(self) -> str:
        """The bounds as an HTML table, for notebooks."""
        from sfumato.notebook import block

        titles = ("unit", "observer", "ε is at least", f"ε is at most (δ = {number(self.delta)})", "holds")
        rows = [
            (
                *(found.unit, found.observer, lower_bound(found.lower.epsilon, 4)),
                *(upper_bound(found.upper), "yes" if found.holds else "no"),
            )
            for found in self.findings
        ]
        return block(repr(self)[1:-1], titles, rows, self.notes)

    @property
    def holds(self) -> bool:
        """Whether every pair's lower bound is at most its guaranteed ε."""
        return all(finding.holds for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The content of ``audit --json`` and ``--out``, a JSON object."""
        return {
            "spec": self.name,
            "delta": self.delta,
            "trials": self.trials,
            "error": self.error,
            "holds": self.holds,
            "findings": [finding.to_dict() for finding in self.findings],
            "notes": list(self.notes),
        }
