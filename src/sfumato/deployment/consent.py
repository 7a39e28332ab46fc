"""What a device agrees to: it recomputes from the spec what each observer will learn, and compares.

Nobody's word is taken for an ε: the figures are those of `account` on the terms that the session hashes.

Both kinds of units, devices and records, are computed and recorded in every run. Every kind that the consent
or the spec names is compared: a limit of the owner binds whatever the spec says that it protects. An ε means
nothing without the relation of neighbours that it is about (the same noise has ε = 17 for data put to zero and
43 for data replaced), so the consent names one, and a spec with another one is refused.

A total is a plain sum of ε and of δ over all runs that the device agreed to, by kind of unit and of observer
(Dwork et al. 2006): it holds whatever the runs share, and if the observers of all runs are one party.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from sfumato.accounting import account
from sfumato.deployment.memory import PartyMemory
from sfumato.deployment.section_files import read_section
from sfumato.deployment.terms import DeploymentTerms
from sfumato.errors import SfumatoError
from sfumato.privacy.guarantee import Guarantee
from sfumato.rounding import number, upper_bound
from sfumato.schedule.rows.observers import parse_coalition, unit_kinds
from sfumato.spec.base import OpenUnit, Positive, Section, refuse


def _limit(value: Any) -> Any:
    """``value``, refused unless it is a word that stands for a limit or a number from 0 on."""
    if value in ("trusted", "any"):
        return value
    try:
        limit = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        limit = math.nan
    if not 0 <= limit < math.inf:
        allowed = "must be a number of 0 or more, trusted (whom the spec trusts sees raw updates), or any"
        raise refuse("", value, allowed)
    return limit


Limit: TypeAlias = Annotated[float | Literal["trusted", "any"], BeforeValidator(_limit)]
_KINDS = ("device", "record")
_NEIGHBOURS = {
    "zero-out": "whose data are there or all zero",
    "remove": "that takes part or does not",
    "replace": "whose data are these or any others",
}
Neighbours: TypeAlias = Literal["zero-out", "remove", "replace"]
Kind: TypeAlias = Literal["cloud", "public", "own-edge", "other-edge", "peer", "other-device"]


class Total(Section):
    """The most that all runs together may tell one kind of observer."""

    epsilon: Positive
    delta: OpenUnit


class Consent(Section):
    """What the owner of a device agrees to: the file ``consent.yaml``."""

    purposes: Annotated[tuple[str, ...], Field(min_length=1, description="what the data may be used for")]
    delta: OpenUnit = Field(description="every ε is taken at this δ")
    epsilon: dict[Literal["device", "record"], dict[Kind, Limit]] = Field(
        description="by kind of unit and of observer, the largest ε; an observer that is not named gets none"
    )
    neighbours: Neighbours = Field(
        description="the relation that every ε is about: zero-out, remove or replace, as privacy.neighbours"
    )
    total: Total


class ConsentRefusedError(SfumatoError):
    """A party does not agree to the terms: it sends nothing."""


@dataclass(frozen=True)
class Agreement:
    """What a device agreed to; only `agree` makes it.

    Attributes:
        terms: of the run.
        device: whose agreement it is.
        words: what it agreed to, a sentence each.
    """

    terms: DeploymentTerms
    device: int
    words: tuple[str, ...]


def read_consent(path: Path) -> Consent:
    """The consent in a file.

    Raises:
        SpecError: it cannot be read, or holds something else.
    """
    return read_section(path, Consent)


def proposed_consent(terms: DeploymentTerms, device: int) -> Consent:
    """What a device has to consent to, to take part in ten such runs: for its owner to read and to edit."""
    delta = terms.plan.spec.privacy.delta
    limits: dict[str, dict[str, float | str]] = {}
    largest = 0.0
    for row in _rows(terms, device, delta, unit_kinds(terms.plan)):
        named = limits.setdefault(row.unit_kind, {})
        if row.epsilon < math.inf:
            largest = max(largest, row.epsilon)
            earlier = named.get(row.relation.kind, 0.0)
            if not isinstance(earlier, str):
                named[row.relation.kind] = max(earlier, math.ceil(row.epsilon * 1000 + 1) / 1000)
        else:
            named[row.relation.kind] = "trusted" if _is_trusted(terms, row, device) else "any"
    total = {"epsilon": max(1.0, math.ceil(10 * largest + 1)), "delta": min(0.5, 10 * delta)}
    return Consent.model_validate(
        {
            "purposes": [terms.purpose],
            "delta": delta,
            "neighbours": terms.plan.spec.privacy.neighbours,
            "epsilon": limits,
            "total": total,
        }
    )


def agree(terms: DeploymentTerms, device: int, consent: Consent, memory: PartyMemory) -> Agreement:
    """Compare ``terms`` with what the device's owner consents to, and record what they tell of it, once.

    Args:
        terms: made by this party itself.
        device: its number.
        consent: of its owner.
        memory: its own.

    Raises:
        ConsentRefusedError: the terms go beyond it; nothing was recorded.
        SessionMemoryError: it cannot be recorded.
    """
    name = terms.name(device)
    if terms.purpose not in consent.purposes:
        listed = ", ".join(consent.purposes)
        raise ConsentRefusedError(f"{name}: consents to {listed}, and not to {terms.purpose!r}")
    relation = terms.plan.spec.privacy.neighbours
    if relation != consent.neighbours:
        other = f"its consent is about neighbours {consent.neighbours}"
        raise ConsentRefusedError(f"{name}: {other}; the spec's ε are about {relation}")
    compared = {*consent.epsilon, *unit_kinds(terms.plan)}
    worst: dict[tuple[str, str], float] = {}
    words = [
        f"{name} takes part in {terms.plan.spec.name}, for: {terms.purpose}.",
        f"Every ε below is about a unit {_NEIGHBOURS[relation]} (neighbours: {relation}).",
    ]
    for row in _rows(terms, device, consent.delta, _KINDS):
        trusts = _is_trusted(terms, row, device)
        is_raw = trusts and row.epsilon == math.inf
        if not is_raw:
            key = row.unit_kind, row.relation.kind
            worst[key] = max(worst.get(key, 0.0), row.epsilon)
        if row.unit_kind in compared:
            _require_within(consent, row, name, trusts=trusts)
            words.append(_in_words(row, is_raw=is_raw))
    if not memory.agreed(terms.session):
        named = {key: epsilon for key, epsilon in worst.items() if key[0] in compared}
        _require_within_total(consent, named, name, memory)
        memory.agree(terms.session, [(*key, epsilon, consent.delta) for key, epsilon in worst.items()])
    return Agreement(terms, device, tuple(words))


def _in_words(row: Guarantee, *, is_raw: bool) -> str:
    """What the observer of a row learns, a sentence."""
    if is_raw:
        return f"{row.relation.words}, {row.observer}: is trusted, and sees what {row.unit} sends raw."
    bound = upper_bound(row.epsilon)
    return f"{row.relation.words}: learns of {row.unit} at most ε = {bound} at δ = {number(row.delta)}."


def _rows(terms: DeploymentTerms, device: int, delta: float, kinds: Iterable[str]) -> Iterator[Guarantee]:
    """What every kind of observer learns of the units of a device of each of ``kinds``."""
    for kind in kinds:
        yield from account(terms.plan.spec, unit=f"{kind}:{device}", delta=delta).guarantees


def _is_trusted(terms: DeploymentTerms, row: Guarantee, device: int) -> bool:
    """Whether the observer of a row may see what the device sends raw."""
    return terms.plan.trusts(parse_coalition(row.observer, terms.plan.tree)[0], device)


def _require_within(consent: Consent, row: Guarantee, name: str, *, trusts: bool) -> None:
    """Refuse a row that goes beyond ``consent``."""
    allowed = consent.epsilon.get(row.unit_kind, {}).get(row.relation.kind)  # type: ignore[call-overload]
    where = f"epsilon.{row.unit_kind}.{row.relation.kind}"
    learns = (
        f"{row.observer} would learn ε = {upper_bound(row.epsilon)} at δ = {number(row.delta)} of {row.unit}"
    )
    if allowed == "any" or (allowed == "trusted" and trusts):
        return
    if allowed is None:
        raise ConsentRefusedError(f"{name}: {learns}; its consent says nothing at {where}")
    if allowed == "trusted":
        raise ConsentRefusedError(
            f"{name}: {learns}; its consent says trusted at {where}, and the spec does not"
        )
    if not row.epsilon <= allowed:
        raise ConsentRefusedError(f"{name}: {learns}; its consent allows {number(allowed)} at {where}")


def _require_within_total(
    consent: Consent, worst: dict[tuple[str, str], float], name: str, memory: PartyMemory
) -> None:
    """Refuse a run with which the sums over all runs go beyond ``consent``."""
    for (unit, observer), epsilon in worst.items():
        before, deltas = memory.spent(unit, observer)
        most = consent.total
        if consent.epsilon[unit][observer] == "any":  # type: ignore[index]
            continue
        if not (before + epsilon <= most.epsilon and deltas + consent.delta <= most.delta):
            raise ConsentRefusedError(
                f"{name}: with this run {observer} observers would learn of its {unit} in all"
                f" ε = {upper_bound(before + epsilon)} at δ = {upper_bound(deltas + consent.delta)};"
                f" its consent allows {number(most.epsilon)} at {number(most.delta)}"
            )
