"""Whose epsilon is followed while a run goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sfumato.errors import SpecError
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.observers import Party
from sfumato.schedule.base import Parties, Plan
from sfumato.schedule.rows.observers import is_of_kind, main_unit, parse_coalition, parse_protected
from sfumato.spec.document import Spec
from sfumato.spec.privacy import OBSERVER_KINDS

# A privacy loss distribution takes up to a second: sampled runs follow epsilon at this many rounds.
_MOST_SAMPLED_POINTS = 20


@dataclass(frozen=True)
class MonitoredPair:
    """A pair to follow: the worst unit for one observer."""

    observer: str
    unit: str


def watched_pairs(plan: Plan, pair: Callable[[str, str], Guarantee]) -> tuple[MonitoredPair, ...]:
    """The pairs whose ε a run follows: those of ``watch``, or the plan's default; each observer once.

    A kind of observer (``edge``, ``peer`` ...) stands for the worst of them; parties that are trusted with
    raw updates are passed over as long as others are left.

    Args:
        plan: of the run.
        pair: gives the guarantee of a unit towards an observer, by name.

    Raises:
        SpecError: an observer in ``watch`` does not exist.
    """
    wanted = plan.default_watch if plan.spec.watch is None else plan.spec.watch
    found: dict[str, MonitoredPair] = {}
    for name in wanted:
        worst = worst_pair(plan, name, pair)
        if worst is None:
            continue
        before = found.setdefault(worst.observer, worst)  # by another name
        if pair(worst.unit, worst.observer).epsilon > pair(before.unit, before.observer).epsilon:
            found[worst.observer] = worst
    return tuple(found.values())


def worst_pair(
    plan: Plan,
    name: str,
    pair: Callable[[str, str], Guarantee],
    *,
    bounded: bool = False,
    kind: str | None = None,
) -> MonitoredPair | None:
    """The pair with the largest ε that an entry of ``watch`` means; ``None`` for a kind that nobody is of.

    Args:
        plan: of the run.
        name: a kind of observer, or observers by name.
        pair: gives the guarantee of a unit towards an observer, by name.
        bounded: take the worst of those with a finite ε, where there are any.
        kind: of unit, ``device`` or ``record``; ``None``: what the spec asks for, with ``both`` devices.

    Raises:
        SpecError: there is no observer of that name, or nobody is left to protect.
    """
    kind = kind or main_unit(plan.spec)
    if name not in OBSERVER_KINDS:
        coalition = parse_coalition(name, plan.parties, place="watch")
        members = {party.index for party in coalition if party.kind == "device"}
        rows = [pair(f"{kind}:{units.unit}", name) for units in plan.releases.units_outside(members)]
        if not rows:
            raise SpecError("watch", name, "must leave somebody to protect")
    else:
        rows = [
            pair(f"{kind}:{p.unit}", plan.releases.party_name(p.observer))
            for p in plan.releases.pair_classes()
            if is_of_kind(p, name)
        ]
    if not rows:
        return None
    tells_all = name not in OBSERVER_KINDS or plan.classes_share_trust
    left = [row for row in rows if not (tells_all and _is_trusting(plan, row))]
    if bounded:
        left = [row for row in rows if np.isfinite(row.epsilon)]
    worst = max(left or rows, key=lambda row: row.epsilon)
    return MonitoredPair(worst.observer, worst.unit)


def _is_trusting(plan: Plan, row: Guarantee) -> bool:
    """Whether the unit trusts a member of the coalition with its raw updates, as ``trust`` says."""
    _, unit = parse_protected(row.unit, plan.parties, own=plan.spec.privacy.unit)
    coalition = parse_coalition(row.observer, plan.parties, place="watch")
    return any(plan.trusts(party, unit) for party in coalition)


def check_watch(plan: Plan) -> None:
    """Refuse names in ``watch`` that are no observers.

    Raises:
        SpecError: an observer in ``watch`` does not exist.
    """
    _parties_in_watch(plan.spec, plan.parties)


def watched_coalitions(spec: Spec, parties: Parties) -> tuple[tuple[Party, ...], ...]:
    """The coalitions of two or more parties that ``watch`` names, each once."""
    several = {frozenset(named): named for named in _parties_in_watch(spec, parties) if len(set(named)) > 1}
    return tuple(several.values())


def _parties_in_watch(spec: Spec, parties: Parties) -> list[tuple[Party, ...]]:
    """The parties and coalitions that ``watch`` names; entries that are a kind of observer are skipped.

    Raises:
        SpecError: there is no such party.
    """
    names = [name for name in spec.watch or () if name not in OBSERVER_KINDS]
    return [parse_coalition(name, parties, place="watch") for name in names]


def rounds_to_account(plan: Plan) -> frozenset[int]:
    """The rounds (from 1) after which ε is computed: those evaluated, or few of them if it is slow."""
    rounds = plan.spec.training.rounds
    if plan.spec.control is not None:  # as many as there are local steps or epochs, at most
        rounds *= plan.spec.training.local_steps or plan.spec.training.local_epochs or 1
    every = plan.spec.evaluate_every
    evaluated = [k for k in range(1, rounds + 1) if k % every == 0 or k == rounds]
    records = plan.spec.privacy.unit_within_device and plan.releases.batches.rates is not None
    if (plan.is_sampled or records) and len(evaluated) > _MOST_SAMPLED_POINTS:
        picks = np.linspace(0, len(evaluated) - 1, _MOST_SAMPLED_POINTS).round().astype(int)
        evaluated = [evaluated[i] for i in picks]
    return frozenset(evaluated)
