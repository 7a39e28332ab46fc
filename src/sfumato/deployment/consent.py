"""What a device agrees to: it recomputes from the spec what each observer will learn, and compares.

Nobody's word is taken for an ε: the figures are those of `account` on the terms that the session hashes.

Two kinds of units, devices and records, are computed and recorded in every run; devices and persons where
persons are the unit. Every kind that the consent or the spec names is compared: a limit of the owner binds
whatever the spec says that it protects, and one whose ε is not known in a run refuses that run. An ε means
nothing without the relation of neighbours that it is about (the same noise has ε = 17 where a device may have
sent zeros, and 43 where it may have had other data), so the consent names one, and a spec with another one is
refused.

A total is a plain sum over all runs of δ and of the largest ε towards any kind of observer, by kind of unit
(Dwork et al. 2006): it holds whatever the runs share, and if one party is the cloud of one run and an edge of
another. The ledger that it is taken from is the data owner's, outside all run folders (`ledger`). It is
compared when the terms are agreed to; a run is booked, after another look, before its first answer.

Whom the spec trusts is a name. Raw messages go only to the party whose public key the consent pins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import BeforeValidator, Field

from sfumato.deployment.account_rows import account_rows, computed_kinds, is_trusted, key_of
from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.duties import duties, taking_part
from sfumato.deployment.ledger import OwnersLedger, RunCost
from sfumato.deployment.owners_notes import OwnersNotes
from sfumato.deployment.section_files import read_section
from sfumato.deployment.terms import KEY_DIGITS
from sfumato.errors import SfumatoError
from sfumato.privacy.guarantee import Guarantee
from sfumato.rounding import number, upper_bound
from sfumato.schedule.rows.observers import unit_kinds
from sfumato.spec.base import OpenUnit, Positive, Section, refused_error


def _limit(value: Any) -> Any:
    """The limit ``value`` of a consent: a word, a float, or ``("trusted", number)``; else SpecError."""
    if value in ("trusted", "any"):
        return value
    is_both = isinstance(value, list | tuple) and len(value) == 2 and value[0] == "trusted"
    try:
        figure = value[1] if is_both else value
        limit = math.nan if isinstance(figure, bool) else float(figure)
    except (TypeError, ValueError):
        limit = math.nan
    if not 0 <= limit < math.inf:
        words = "trusted (whom the spec trusts sees raw updates), [trusted, NUMBER], or any"
        raise refused_error("", value, f"must be a number of 0 or more, {words}")
    return ("trusted", limit) if is_both else limit


Limit: TypeAlias = Annotated[
    float | Literal["trusted", "any"] | tuple[Literal["trusted"], float], BeforeValidator(_limit)
]
"""What an observer may learn. A pair: whom the spec trusts sees raw updates, and the number is for others."""
_MADE = "keys that whoever deployed made"
_PERSON = (
    "A person is whoever has one value of persons in the file of rows; of somebody who has two, or is at"
    " other devices too, more may be learnt."
)
_NEIGHBOURS = {
    "zero-out": "that contributes what it has, or zeros",
    "remove": "that takes part or does not",
    "replace": "whose data are these or any others",
}
Neighbours: TypeAlias = Literal["zero-out", "remove", "replace"]
Kind: TypeAlias = Literal["cloud", "public", "own-edge", "other-edge", "peer", "other-device"]


class Total(Section):
    """The largest ε and δ, summed over all runs, towards any observer."""

    epsilon: Positive
    delta: OpenUnit


class Consent(Section):
    """What the owner of a device agrees to: the file ``consent.yaml``."""

    purposes: Annotated[tuple[str, ...], Field(min_length=1, description="what the data may be used for")]
    delta: OpenUnit = Field(description="every ε is taken at this δ")
    epsilon: dict[Literal["device", "record", "person"], dict[Kind, Limit]] = Field(
        description="by kind of unit and of observer, the largest ε; an observer that is not named gets none"
    )
    neighbours: Neighbours = Field(
        description="the relation that every ε is about: zero-out, remove or replace, as privacy.neighbours"
    )
    trusted: dict[str, str] = Field(
        default_factory=dict,
        description="public keys, in hexadecimal digits, of those who may see raw updates, by name: edge:0",
    )
    ledger: str = Field(description="path of the owner's ledger, outside run folders, which total is about")
    total: Total
    data: str = Field(
        default="data.npz", description="the file of the device's rows; a path that begins in its folder"
    )
    loop: str | None = Field(
        default=None,
        description="the owner's own training loop, FILE.py:function, a path that begins in its folder; null:"
        " Sfumato's engine trains",
    )


class ConsentRefusedError(SfumatoError):
    """A party does not agree to the terms; it sends nothing."""


@dataclass(frozen=True)
class Agreement:
    """A device's agreement to the terms of a run; only `agree` makes it.

    Attributes:
        terms: of the run.
        device: its number.
        words: what it agreed to, a sentence each.
        consent: of its owner.
        ledger: path of the owner's ledger.
        cost: ε and δ of this run.
    """

    terms: CommonTerms
    device: int
    words: tuple[str, ...]
    consent: Consent
    ledger: Path
    cost: RunCost

    def book(self) -> None:
        """Enter the run into the owner's ledger, once; to be called before the first answer is recorded.

        Raises:
            ConsentRefusedError: with other runs entered meanwhile, this one would exceed the total.
            SessionMemoryError: the ledger cannot be written.
        """
        with closing(OwnersLedger(self.ledger)) as ledger, ledger.booking():
            if not ledger.holds(self.cost):
                self.require_within_total(ledger)
                ledger.book(self.cost)

    @property
    def notes(self) -> OwnersNotes:
        """What notes the answers of this device in its owner's ledger, before they are sent."""
        return OwnersNotes(self.ledger, self.terms.session, self.device)

    def require_within_total(self, ledger: OwnersLedger) -> None:
        """Check that the sums of ε and δ over all runs, with this one, stay within the consent; see `book`.

        Raises:
            ConsentRefusedError: they do not, or the ledger has runs under another neighbouring relation.
        """
        name, most, cost = self.terms.name(self.device), self.consent.total, self.cost
        others = ledger.neighbours() - {cost.neighbours}
        if others:
            raise ConsentRefusedError(
                f"{name}: {ledger.path}: holds runs with neighbours {', '.join(sorted(others))}; they cannot"
                f" be added to ε of neighbours {cost.neighbours}"
            )
        for unit in _compared(self.consent, self.terms):
            limits = self.consent.epsilon.get(unit, {})  # type: ignore[call-overload]
            free = [observer for observer, limit in limits.items() if limit == "any"]
            own = [e for (kind, observer), e in cost.epsilon.items() if kind == unit and observer not in free]
            if not own:
                continue
            if ledger.lacks(unit):
                raise ConsentRefusedError(
                    f"{name}: {ledger.path}: holds runs in which the ε of a {unit} was not computed, so there"
                    " is no total of it; name another ledger only if these data were in none of them"
                )
            before, deltas = ledger.spent(unit, free)
            epsilon, delta = before + max(own), deltas + cost.delta
            if not (epsilon <= most.epsilon and delta <= most.delta):
                raise ConsentRefusedError(
                    f"{name}: with this run observers would learn of its {unit} in all"
                    f" ε = {upper_bound(epsilon)} at δ = {upper_bound(delta)}; its consent allows"
                    f" {number(most.epsilon)} at {number(most.delta)} ({ledger.path})"
                )


def read_consent(path: Path) -> Consent:
    """Read a consent from a file.

    Raises:
        SpecError: it cannot be read, or is no valid consent.
    """
    return read_section(path, Consent)


def proposed_consent(terms: CommonTerms, device: int, ledger: Path) -> Consent:
    """The least consent with which ``device`` can take part in ten such runs, for its owner to edit.

    An observer that would see raw updates without being trusted is left out, so the device refuses until its
    owner writes `any` for it.

    Args:
        terms: of the run.
        device: its number.
        ledger: path of the owner's ledger, which the consent names.
    """
    delta = terms.plan.spec.privacy.delta
    figures: dict[str, dict[str, float]] = {kind: {} for kind in unit_kinds(terms.plan)}
    raw: set[tuple[str, str]] = set()
    trusted: dict[str, str] = {}
    left_out: set[tuple[str, str]] = set()
    largest = 0.0
    for row in account_rows(terms, device, delta, unit_kinds(terms.plan)):
        by_kind, kind = figures[row.unit_kind], row.relation.kind
        if row.epsilon < math.inf:
            largest = max(largest, row.epsilon)
            by_kind[kind] = max(by_kind.get(kind, 0.0), math.ceil(row.epsilon * 1000 + 1) / 1000)
        elif is_trusted(terms, row, device):
            raw.add((row.unit_kind, kind))
            trusted[terms.plan.parties.titled(row.observer)] = key_of(terms, row)
        else:
            left_out.add((row.unit_kind, kind))
    limits: dict[str, dict[str, Any]] = {unit: dict(by_kind) for unit, by_kind in figures.items()}
    for unit, observer in raw:
        figure = figures[unit].get(observer)
        limits[unit][observer] = "trusted" if figure is None else ("trusted", figure)
    for unit, observer in left_out:
        limits[unit].pop(observer, None)
    total = {"epsilon": max(1.0, math.ceil(10 * largest + 1)), "delta": min(0.5, 10 * delta)}
    return Consent.model_validate(
        {
            "purposes": [terms.purpose],
            "delta": delta,
            "neighbours": terms.plan.spec.privacy.neighbours,
            "epsilon": limits,
            "trusted": trusted,
            "ledger": str(ledger),
            "total": total,
        }
    )


def differences(consent: Consent, proposed: Consent) -> Iterator[str]:
    """Yield a sentence, in printable ASCII, for each key at which a consent differs from a proposed one."""
    found, expected = (_flat(one.model_dump(mode="json")) for one in (consent, proposed))
    for key in sorted(found.keys() | expected.keys()):
        ours, theirs = found.get(key, "nothing"), expected.get(key, "nothing")
        if ours != theirs:
            yield f"its consent says {ours} at {key}; proposed would be {theirs}."


def _flat(value: Any, place: str = "") -> dict[str, str]:
    """The values of nested sections as printed, by dotted key; ``place``: what the keys begin with."""
    if not isinstance(value, dict):
        return {place: ascii(value)}
    dotted = f"{place}." if place else ""
    pieces = (_flat(inner, f"{dotted}{ascii(key)[1:-1]}") for key, inner in value.items())
    return {key: text for piece in pieces for key, text in piece.items()}


def agree(terms: CommonTerms, device: int, consent: Consent, ledger: Path) -> Agreement:
    """Compare ``terms`` with the owner's consent; returns the agreement. The ledger is read, not changed.

    Args:
        terms: computed by this party itself.
        device: its number.
        consent: of its owner.
        ledger: path of the owner's ledger, which has the sums over all runs.

    Raises:
        ConsentRefusedError: the terms exceed the consent.
        SessionMemoryError: there is no ledger.
    """
    name = terms.name(device)
    if terms.purpose not in consent.purposes:
        listed = ", ".join(consent.purposes)
        raise ConsentRefusedError(f"{name}: consents to {listed}, and not to {terms.purpose!r}")
    relation = terms.plan.spec.privacy.neighbours
    if relation != consent.neighbours:
        other = f"its consent is about neighbours {consent.neighbours}"
        raise ConsentRefusedError(f"{name}: {other}; the spec's ε are about {relation}")
    compared = _compared(consent, terms)
    for unit in sorted(set(consent.epsilon) - set(compared)):
        unknown = f"a run whose unit is {terms.plan.spec.privacy.unit} has no ε of a {unit}"
        raise ConsentRefusedError(f"{name}: its consent says epsilon.{unit}, and {unknown}")
    worst: dict[tuple[str, str], float] = {}
    largest: dict[tuple[str, str], Guarantee] = {}
    words = [
        taking_part(terms, device),
        f"Every ε below is about a unit {_NEIGHBOURS[relation]} (neighbours: {relation}).",
        f"They rely on noise that is added by: {', '.join(_noise_of(terms, device)) or 'nobody'}.",
    ]
    for row in account_rows(terms, device, consent.delta, computed_kinds(terms)):
        trusts = is_trusted(terms, row, device)
        is_raw = trusts and row.epsilon == math.inf
        if not is_raw:
            key = row.unit_kind, row.relation.kind
            worst[key] = max(worst.get(key, 0.0), row.epsilon)
        if row.unit_kind in compared:
            _require_within(terms, consent, row, name, trusts=key_of(terms, row) if trusts else None)
            if is_raw:
                words.append(_raw_in_words(terms, row, device))
            elif row.epsilon >= largest.get((row.unit, row.relation.words), row).epsilon:
                largest[row.unit, row.relation.words] = row
    if terms.protects_persons:
        words.append(_PERSON)
    words += [*map(_in_words, largest.values()), *duties(terms, device)]
    cost = RunCost(terms.session, device, relation, consent.delta, worst)
    agreement = Agreement(terms, device, tuple(words), consent, ledger, cost)
    with closing(OwnersLedger(ledger)) as opened:
        if not opened.holds(cost):
            agreement.require_within_total(opened)
    return agreement


def _compared(consent: Consent, terms: CommonTerms) -> list[str]:
    """The kinds of units whose ε is compared: of consent or spec, if the run computes it."""
    named = {*consent.epsilon, *unit_kinds(terms.plan)}
    return [kind for kind in computed_kinds(terms) if kind in named]


def _noise_of(terms: CommonTerms, device: int) -> Iterator[str]:
    """Yield sentences on who adds noise to what ``device`` sends in this run, aggregators with their keys."""
    noisy, made = terms.noisy(), set(terms.made_keys or ())
    if noisy[device]:
        yield f"{terms.name(device)} itself"
    if others := set(np.flatnonzero(noisy[: terms.device_count]).tolist()) - {device}:
        known = len(others & made)
        whose = f" ({known:,} of {len(others):,} with {_MADE})" if known else ""
        yield f"other devices{' when they are drawn' if terms.plan.is_sampled else ''}{whose}"
    for node in range(terms.device_count, len(terms.keys)):
        if noisy[node]:
            whose = f", one of the {_MADE}" if node in made else ""
            yield f"{terms.name(node)} (key {terms.keys[node].hex()[:KEY_DIGITS]}…{whose})"


def _in_words(row: Guarantee) -> str:
    """What the observer of a row learns, a sentence."""
    bound = upper_bound(row.epsilon)
    return f"{row.relation.words}: learns of {row.unit} at most ε = {bound} at δ = {number(row.delta)}."


def _raw_in_words(terms: CommonTerms, row: Guarantee, device: int) -> str:
    """A sentence on what the trusted observer of ``row`` sees of what ``device`` sends."""
    is_masked = any(map(terms.is_masked, terms.parents(device)))
    sees = f"the sum of what {row.unit} and others send" if is_masked else f"what {row.unit} sends"
    key = key_of(terms, row)[:KEY_DIGITS]
    observer = terms.plan.parties.titled(row.observer)
    return f"{row.relation.words}, {observer} (key {key}…): is trusted, and sees {sees} raw."


def _require_within(
    terms: CommonTerms, consent: Consent, row: Guarantee, name: str, *, trusts: str | None
) -> None:
    """Refuse a row of the account that exceeds ``consent``; ``name``: of the device, for the message.

    ``trusts``: the observer's public key in hexadecimal digits, if the spec trusts it; else ``None``.

    Raises:
        ConsentRefusedError: it exceeds it, or ``consent`` says nothing of such a row.
    """
    allowed = consent.epsilon.get(row.unit_kind, {}).get(row.relation.kind)  # type: ignore[call-overload]
    if isinstance(allowed, tuple):
        allowed = "trusted" if trusts is not None else allowed[1]
    where = f"epsilon.{row.unit_kind}.{row.relation.kind}"
    observer = terms.plan.parties.titled(row.observer)
    learns = f"{observer} would learn ε = {upper_bound(row.epsilon)} at δ = {number(row.delta)} of {row.unit}"
    if allowed == "any":
        return
    if allowed is None:
        raise ConsentRefusedError(f"{name}: {learns}; its consent says nothing at {where}")
    if allowed == "trusted":
        if trusts is None:
            says = f"its consent says trusted at {where}, and the spec does not"
            raise ConsentRefusedError(f"{name}: {learns}; {says}")
        if consent.trusted.get(observer) != trusts:
            pins = f"its consent does not pin this key at trusted.{observer}"
            raise ConsentRefusedError(f"{name}: {learns} with the key {trusts[:KEY_DIGITS]}…; {pins}")
        return
    if not row.epsilon <= allowed:
        raise ConsentRefusedError(f"{name}: {learns}; its consent allows {number(allowed)} at {where}")
