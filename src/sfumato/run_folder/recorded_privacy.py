"""``privacy.json`` as a run folder keeps it: guarantees, claims, findings, and ε after the run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfumato.errors import RunError
from sfumato.privacy.claim import Claim
from sfumato.privacy.guarantee import Guarantee

_GUARANTEE_KEYS = ("unit", "observer", "stands_for", "epsilon")
_CLAIM_KEYS = ("source", "unit", "observer", "claimed_epsilon", "rigorous_epsilon", "holds")


@dataclass(frozen=True)
class RawDevices:
    """How many devices send raw updates to an edge that they trust, ``of`` how many."""

    devices: int
    of: int

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self.devices > 0

    def __str__(self) -> str:
        """``25 of 50``."""
        return f"{self.devices:,} of {self.of:,}"


@dataclass(frozen=True)
class AfterRun:
    """What a guarantee amounts to once it is known who took part.

    Attributes:
        epsilon: of the run that was; no guarantee given beforehand.
        participations: the most rounds that one of the units took part in.
    """

    epsilon: float
    participations: int


@dataclass(frozen=True)
class WorstCoalition:
    """The devices of one number that learn most about a unit.

    Attributes:
        unit: e.g. ``device:0``.
        size: number of devices.
        in_zone: how many of them are under the unit's edge.
        epsilon: before training.
        supernode_epsilon: with the unit's supernode, in every round. The devices may be others.
        supernode_in_zone: how many of these others are under the unit's edge; ``None``: the file, of an older
            version, does not say.
    """

    unit: str
    size: int
    in_zone: int
    epsilon: float
    supernode_epsilon: float
    supernode_in_zone: int | None

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> WorstCoalition:
        """Read ``row``, one entry of ``coalitions`` in privacy.json."""
        figures = float(row["epsilon"]), float(row["supernode_epsilon"])
        beside = row.get("supernode_in_zone")
        in_zone = None if beside is None else int(beside)
        return cls(str(row["unit"]), int(row["size"]), int(row["in_zone"]), *figures, in_zone)


@dataclass(frozen=True)
class RecordedPrivacy:
    """The content of ``privacy.json``, and of what ``account --json`` prints.

    Attributes:
        delta: of every ε; NaN where it is not stated.
        guarantees: one for each class of pairs.
        claims: of papers.
        notes: what the account had to say.
        findings: facts worth a warning, before the run.
        kinds_of_findings: of each, which programs know it by (`sfumato.findings.found.Finding`).
        raw_to_trusted_edge: ``None`` where the file does not say.
        coalitions: of devices, the worst of each size.
        after_run: of the guarantees that amount to something else after the run, by their place.
    """

    delta: float
    guarantees: tuple[Guarantee, ...]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    kinds_of_findings: tuple[str, ...] = ()
    raw_to_trusted_edge: RawDevices | None = None
    coalitions: tuple[WorstCoalition, ...] = ()
    after_run: Mapping[int, AfterRun] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], path: Path = Path("privacy.json")) -> RecordedPrivacy:
        """Read ``document``, the content of a privacy.json that was parsed as JSON.

        Raises:
            RunError: a key is missing or of another type; the message names ``path``.
        """
        stated = document.get("delta")
        delta = float(stated) if isinstance(stated, int | float) else math.nan
        raw = document.get("raw_to_trusted_edge")
        rows = _rows(document, "guarantees", _GUARANTEE_KEYS, ("epsilon",), path)
        findings = document.get("findings", ())
        claims = _rows(document, "claims", _CLAIM_KEYS, ("claimed_epsilon", "rigorous_epsilon"), path)
        try:
            return cls(
                delta=delta,
                guarantees=tuple(Guarantee.from_dict(row, delta) for row in rows),
                claims=tuple(map(Claim.from_dict, claims)),
                notes=tuple(map(str, document.get("notes", ()))),
                findings=tuple(str(finding["text"]) for finding in findings),
                kinds_of_findings=tuple(str(finding.get("kind", "")) for finding in findings),
                raw_to_trusted_edge=RawDevices(int(raw["devices"]), int(raw["of"])) if raw else None,
                coalitions=tuple(map(WorstCoalition.from_dict, document.get("coalitions", ()))),
                after_run={
                    place: AfterRun(float(row["ex_post"]["epsilon"]), int(row["ex_post"]["participations"]))
                    for place, row in enumerate(rows)
                    if "ex_post" in row
                },
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"{path}: cannot be read: {error!r}") from None


def _rows(
    document: Mapping[str, Any], section: str, keys: Sequence[str], epsilons: Sequence[str], path: Path
) -> list[Mapping[str, Any]]:
    """The entries of one section of a privacy.json, after a check of their keys and numbers.

    Args:
        document: its content.
        section: key of the list.
        keys: that every entry must have.
        epsilons: those of them that must be numbers or ``"inf"``.
        path: for errors.

    Raises:
        RunError: there is no such list, or an entry does not fit.
    """
    rows = document.get(section)
    if not isinstance(rows, list):
        raise RunError(f"{path}: {section} must be a list")
    for place, row in enumerate(rows):
        missing = [key for key in keys if not isinstance(row, Mapping) or key not in row]
        if missing:
            raise RunError(f"{path}: {section}[{place}] lacks {', '.join(missing)}")
        for key in epsilons:
            try:
                float(row[key])
            except (TypeError, ValueError):
                raise RunError(f'{path}: {section}[{place}].{key} must be a number or "inf"') from None
    return rows
