"""Whose epsilon is followed while a run goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from sfumato.errors import SpecError
from sfumato.privacy.declared_releases import DeclaredReleases, PairCharge
from sfumato.privacy.dominance import approximate_size, are_ways_at_most, chains, monotone_figures
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.observers import ASKED_FOR, Party
from sfumato.schedule.base import Parties, Plan
from sfumato.schedule.rows.observers import (
    ObservedUnit,
    is_of_kind,
    main_unit,
    parse_coalition,
    parse_protected,
)
from sfumato.spec.document import Spec
from sfumato.spec.privacy import OBSERVER_KINDS

# A privacy loss distribution takes up to a second: sampled runs follow epsilon at this many rounds.
_MOST_SAMPLED_POINTS = 20


@dataclass(frozen=True)
class MonitoredPair:
    """The unit with the largest ε towards one observer, after the whole run."""

    observer: str
    unit: str


@dataclass(frozen=True)
class WatchedObserver:
    """An observer towards whom ε is followed.

    Attributes:
        observer: a party, or several joined by commas.
        devices: the units, or the devices that hold them: one of every class that may have the largest ε
            after some number of rounds.
    """

    observer: str
    devices: tuple[int, ...]


def watched_observers(plan: Plan, pair: Callable[[str, str], Guarantee]) -> tuple[WatchedObserver, ...]:
    """The observers towards whom a run follows ε: those of ``watch``, or the plan's default; each once.

    A kind of observer (``edge``, ``peer`` ...) stands for the worst of them after the whole run, and for the
    units that are placed so towards it. Units that trust it with raw updates are passed over as long as
    others are left.

    Args:
        plan: of the run.
        pair: gives the guarantee of a unit towards an observer, by name.

    Raises:
        SpecError: an observer in ``watch`` does not exist.
    """
    wanted = plan.default_watch if plan.spec.watch is None else plan.spec.watch
    found: dict[str, tuple[int, ...]] = {}
    for name in wanted:
        worst = worst_pair(plan, name, pair)
        if worst is not None:
            before = found.get(worst.observer, ())  # by another name
            found[worst.observer] = tuple(dict.fromkeys((*before, *_devices_to_follow(plan, name, worst))))
    return tuple(WatchedObserver(*one) for one in found.items())


def _devices_to_follow(plan: Plan, name: str, worst: MonitoredPair) -> tuple[int, ...]:
    """The devices whose ε towards the observer of ``worst`` is followed.

    One of each class of devices that the entry ``name`` of ``watch`` means, but for those that trust the
    observer, and those that surely never have the largest ε. If nothing is drawn, a charge is one Gaussian;
    where that grows in proportion to the rounds, the device of ``worst`` is the worst after each of them.
    """
    _, first = parse_protected(worst.unit, plan.parties, own=plan.spec.privacy.unit)
    if plan.grows_in_proportion and not _is_drawn(plan):
        return (first,)
    coalition = parse_coalition(worst.observer, plan.parties, place="watch")
    members = {party.index for party in coalition if party.kind == "device"}
    tells_all = name not in OBSERVER_KINDS or plan.classes_share_trust
    left = [
        units.unit
        for units in plan.releases.units_outside(members)
        if _is_meant(plan, name, coalition, units.unit)
        and not (tells_all and any(plan.trusts(party, units.unit) for party in coalition))
    ]
    found = dict.fromkeys((first, *left))
    if plan.grows_in_proportion:
        return tuple(charge.device for charge in largest_charges(plan, plan.releases, found, coalition))
    return tuple(found)


def largest_charges(
    plan: Plan, declared: DeclaredReleases, devices: Iterable[int], coalition: tuple[Party, ...]
) -> list[PairCharge]:
    """What is charged to several units, without those whose charge is surely at most that of another one.

    Args:
        plan: of the run.
        declared: its releases, or those of its first rounds.
        devices: one or more units; or for each a device, of which a record or person is the unit
            (`main_unit`).
        coalition: the observers, who pool what they know.
    """
    kind = main_unit(plan.spec)
    charges = [
        ObservedUnit(kind, device, coalition, ASKED_FOR, 1).charge(plan, declared) for device in devices
    ]
    if len(charges) == 1:
        return charges
    ways = [charge.all_ways for charge in charges]
    worst_first = chains(
        [*map(approximate_size, ways)],
        [*map(monotone_figures, ways)],
        lambda one, other: are_ways_at_most(ways[one], ways[other]),
    )
    return [charges[chain[0]] for chain in worst_first]


def _is_meant(plan: Plan, name: str, coalition: tuple[Party, ...], device: int) -> bool:
    """Whether ``coalition`` is placed towards ``device`` as the entry ``name`` of ``watch`` says.

    True for all but the kinds that say so: ``own-edge`` and ``peer``, ``other-edge`` and ``other-device``.
    """
    if name in ("own-edge", "peer"):
        return plan.is_near(coalition[0], device)
    return name not in ("other-edge", "other-device") or not plan.is_near(coalition[0], device)


def worst_pair(
    plan: Plan,
    name: str,
    pair: Callable[[str, str], Guarantee],
    *,
    bounded: bool = False,
    kind: str | None = None,
) -> MonitoredPair | None:
    """The pair with the largest ε towards an observer that ``name``, an entry of ``watch``, stands for.

    ``None`` where ``name`` is a kind of observer, and there is none of that kind.

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
    if _is_drawn(plan) and len(evaluated) > _MOST_SAMPLED_POINTS:
        picks = np.linspace(0, len(evaluated) - 1, _MOST_SAMPLED_POINTS).round().astype(int)
        evaluated = [evaluated[i] for i in picks]
    return frozenset(evaluated)


def _is_drawn(plan: Plan) -> bool:
    """Whether participants of rounds are drawn, or the records of batches where these are protected."""
    records = plan.spec.privacy.unit_within_device and plan.releases.batches.rates is not None
    return plan.is_sampled or records
