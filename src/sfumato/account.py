"""Who learns what about whom, without training: from a spec to guarantees and claims."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sfumato.errors import SpecError
from sfumato.privacy.claims import Claim
from sfumato.privacy.guarantee import Bound, Guarantee, judge, smallest
from sfumato.privacy.tiered import Party, TieredLedger
from sfumato.schedule.claims import claims_of
from sfumato.schedule.explain import explain
from sfumato.schedule.observers import parse_coalition, parse_unit
from sfumato.schedule.resolve import resolve
from sfumato.schedule.tiered import TieredPlan
from sfumato.spec.document import Spec

if TYPE_CHECKING:
    import pandas as pd

CURVE_DELTAS = tuple(10.0**-exponent for exponent in range(2, 13))


@dataclass(frozen=True)
class PrivacyReport:
    """Guarantees of a spec or a run, and the claims of papers beside them.

    Attributes:
        name: of the spec.
        delta: failure probability all epsilons are stated at.
        guarantees: one a class of equivalent pairs, or the one asked for.
        claims: what a paper says, where the spec uses its formula.
        notes: what the user should hear.
    """

    name: str
    delta: float
    guarantees: tuple[Guarantee, ...]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]
    plan: TieredPlan

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``account --json`` and of ``privacy.json``."""
        return {
            "spec": self.name,
            "delta": self.delta,
            "guarantees": [row.to_dict() for row in self.guarantees],
            "claims": [claim.to_dict() for claim in self.claims],
            "notes": list(self.notes),
        }

    def table(self) -> pd.DataFrame:
        """The guarantees as a table, one row each; epsilon is ``inf`` where nothing protects."""
        import pandas as pd

        rows = [row.to_dict() | {"epsilon": row.epsilon} for row in self.guarantees]
        return pd.DataFrame([{k: v for k, v in row.items() if k not in ("bounds", "curve")} for row in rows])

    def epsilon(self, unit: int | str, observer: str) -> float:
        """Epsilon of one unit (``0`` or ``"device:0"``) towards an observer or coalition.

        Raises:
            SpecError: no such unit or observer, or a coalition that contains the unit.
        """
        name = f"device:{unit}" if isinstance(unit, int) else unit
        return pair_guarantee(self.plan, name, observer, delta=self.delta).epsilon


def account(
    spec: Spec,
    *,
    unit: str | None = None,
    observer: str | None = None,
    delta: float | None = None,
    curve: bool = False,
) -> PrivacyReport:
    """Account for ``spec`` before training.

    Args:
        spec: as loaded; it is resolved here.
        unit: ``device:N``; with ``observer``, exactly that pair. Alone: all observers of that device.
        observer: a party, or a coalition joined by commas. Alone: every class of units towards it.
        delta: overrides ``privacy.delta``.
        curve: adds epsilon over delta to each row.

    Raises:
        SpecError: the spec or the call is wrong.
    """
    plan = resolve(spec)
    chosen = spec.privacy.delta if delta is None else delta
    if not 0 < chosen < 1:
        raise SpecError("--delta", chosen, "must be between 0 and 1, exclusive")
    if unit is not None and observer is not None:
        rows = [pair_guarantee(plan, unit, observer, delta=chosen, curve=curve)]
    elif unit is not None or observer is not None:
        rows = list(_some(plan, unit, observer, chosen, curve))
    else:
        rows = list(_all(plan, chosen, curve))
    return PrivacyReport(spec.name, chosen, tuple(rows), claims_of(plan, chosen), plan.notes, plan)


def pair_guarantee(
    plan: TieredPlan, unit: str, observer: str, *, delta: float, curve: bool = False
) -> Guarantee:
    """The guarantee of one unit towards one observer or coalition.

    Raises:
        SpecError: no such party, or a coalition that contains the unit.
    """
    device = parse_unit(unit, plan.tree)
    coalition = parse_coalition(observer, plan.tree)
    if Party("device", 0, device) in coalition:
        raise SpecError(
            "--observer", observer, f"must not contain the unit, device:{device}: it knows its own data"
        )
    return _guarantee(plan, device, coalition, stands_for=1, relation="asked for", delta=delta, curve=curve)


def epsilon_after(plan: TieredPlan, device: int, coalition: tuple[Party, ...], rounds: int) -> float:
    """Epsilon of one pair after the first ``rounds`` rounds."""
    shorter = replace(plan, ledger=plan.ledger.after(rounds))
    delta = plan.spec.privacy.delta
    return _guarantee(shorter, device, coalition, stands_for=1, relation="", delta=delta, curve=False).epsilon


def _all(plan: TieredPlan, delta: float, curve: bool) -> Iterable[Guarantee]:
    for pair in plan.ledger.pair_classes():
        yield _guarantee(
            plan,
            pair.unit,
            (pair.observer,),
            stands_for=pair.stands_for,
            relation=pair.relation,
            delta=delta,
            curve=curve,
        )


def _some(
    plan: TieredPlan, unit: str | None, observer: str | None, delta: float, curve: bool
) -> Iterable[Guarantee]:
    """One side asked for: the other runs over its classes (not merged, so that nothing is lost)."""
    ledger = plan.ledger
    if unit is not None:
        device = parse_unit(unit, plan.tree)
        for pair in ledger.pair_classes(device):
            yield _guarantee(
                plan,
                device,
                (pair.observer,),
                stands_for=pair.stands_for,
                relation=pair.relation,
                delta=delta,
                curve=curve,
            )
        return
    coalition = parse_coalition(observer or "", plan.tree)
    members = {p.index for p in coalition if p.kind == "device"}
    for leaf in range(plan.tree.leaf_count):
        first, last = int(plan.tree.first_device[leaf]), int(plan.tree.first_device[leaf + 1])
        outside = [
            device for device in range(first, min(last, first + len(members) + 1)) if device not in members
        ]
        if outside:
            inside = sum(first <= member < last for member in members)
            yield _guarantee(
                plan,
                outside[0],
                coalition,
                stands_for=last - first - inside,
                relation="",
                delta=delta,
                curve=curve,
            )


def _guarantee(
    plan: TieredPlan,
    device: int,
    coalition: tuple[Party, ...],
    *,
    stands_for: int,
    relation: str,
    delta: float,
    curve: bool,
) -> Guarantee:
    neighbours = plan.spec.privacy.neighbours
    ledger: TieredLedger = plan.ledger
    exposures = ledger.exposures(device, coalition)
    bounds: dict[str, Bound] = {e.bound: judge(e, delta=delta, neighbours=neighbours) for e in exposures}
    bound = smallest(bounds)
    best = next(e for e in exposures if e.bound == bound)
    points: tuple[tuple[float, float], ...] = ()
    if curve:
        points = tuple(
            (d, min(judge(e, delta=d, neighbours=neighbours).epsilon for e in exposures))
            for d in CURVE_DELTAS
        )
    return Guarantee(
        unit=f"device:{device}",
        observer=",".join(ledger.party_name(party) for party in coalition),
        stands_for=stands_for,
        delta=delta,
        bound=bound,
        bounds=bounds,
        relation=relation,
        why=explain(plan, device, coalition, best, bounds[bound]),
        curve=points,
    )


__all__ = ["PrivacyReport", "account", "epsilon_after", "pair_guarantee"]
