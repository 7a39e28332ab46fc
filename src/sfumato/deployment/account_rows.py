"""What `account` says that each observer learns of a device, on the terms of a deployment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sfumato.accounting import account
from sfumato.data.dataset_sizes import declaring
from sfumato.deployment.common_terms import CommonTerms
from sfumato.privacy.guarantee import Guarantee
from sfumato.schedule.rows.observers import parse_coalition


def computed_kinds(terms: CommonTerms) -> tuple[str, str]:
    """The two kinds of units whose ε is computed in a run: devices, and persons or else records.

    Where devices draw persons there is no ε of a record, and elsewhere none of a person.
    """
    return "device", "person" if terms.protects_persons else "record"


def account_rows(terms: CommonTerms, device: int, delta: float, kinds: Iterable[str]) -> Iterator[Guarantee]:
    """Yield the guarantees of the units of a device: what every kind of observer learns of them.

    In groups `account` may give one row for several trusted masters of the device. Each of them gets raw
    updates and has a key of its own, so each has a row here.

    Args:
        terms: of the run.
        device: its number.
        delta: δ of the ε, in (0, 1).
        kinds: of units: ``device``, ``record`` or ``person``.
    """
    trusted = _trusted_parents(terms, device)
    for kind in kinds:
        with declaring(terms.facts):
            rows = account(terms.plan.spec, unit=f"{kind}:{device}", delta=delta).guarantees
        yield from rows
        if without_row := set(trusted) - {row.observer for row in rows}:
            worst = max((row for row in rows if row.observer in trusted), key=lambda row: row.epsilon)
            yield from (replace(worst, observer=name) for name in sorted(without_row))


def _trusted_parents(terms: CommonTerms, device: int) -> list[str]:
    """Names, as in rows of `account`, of the trusted aggregators that ``device`` answers to."""
    names = map(terms.plain_name, terms.parents(device))
    parties = terms.plan.parties
    return [name for name in names if terms.plan.trusts(parse_coalition(name, parties)[0], device)]


def is_trusted(terms: CommonTerms, row: Guarantee, device: int) -> bool:
    """Whether the observer of ``row`` is trusted by the spec to see what ``device`` sends without noise."""
    return terms.plan.trusts(parse_coalition(row.observer, terms.plan.parties)[0], device)


def key_of(terms: CommonTerms, row: Guarantee) -> str:
    """The public key of the observer of a row, an aggregator or a device, in hexadecimal digits.

    Of a coalition, the key of its first party.
    """
    party = parse_coalition(row.observer, terms.plan.parties)[0]
    return terms.keys[terms.number_of(party)].hex()
