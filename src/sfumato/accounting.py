"""Who learns what about whom, without training: from a spec to guarantees and claims."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sfumato.arguments import Argument
from sfumato.claims import claims_of
from sfumato.data.given import given, with_given
from sfumato.errors import SpecError
from sfumato.families import family_of
from sfumato.privacy.claim import Claim
from sfumato.privacy.guarantee import Guarantee, json_number, smallest
from sfumato.privacy.observers import ASKED_FOR, TOWARDS_ASKED_FOR, PairClass, Party
from sfumato.rounding import number as rounded
from sfumato.rounding import range_text, upper_bound
from sfumato.schedule.base import Plan
from sfumato.schedule.resolve import resolve
from sfumato.schedule.rows.explanations import explain, is_covered_by_filter
from sfumato.schedule.rows.observers import (
    ObservedUnit,
    is_of_kind,
    parse_coalition,
    parse_protected,
    unit_kinds,
)
from sfumato.spec.document import Spec
from sfumato.spec.limits import LEAST_DELTA, LEAST_SHARE
from sfumato.spec.other_words import refusing_keys
from sfumato.spec.privacy import OBSERVER_KINDS

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from sfumato.findings.found import Finding
    from sfumato.privacy.declared_releases import DeclaredReleases
    from sfumato.schedule.rows.coalitions import Coalition
    from sfumato.schedule.rows.ex_post import ExPost

_ROUNDING = 1e-9
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
        plan: what was judged.
        coalitions: of HDP's clients, the worst of each tolerated size for a unit of each class.
        ex_post: of a finished run whose devices were drawn, for each guarantee; ``None`` for an observer that
            does not see the draw.
    """

    name: str
    delta: float
    guarantees: tuple[Guarantee, ...]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]
    plan: Plan
    coalitions: tuple[Coalition, ...] = ()
    ex_post: tuple[ExPost | None, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Warnings about the spec and the guarantees (`Finding`), one sentence each."""
        from sfumato.findings.found import findings_before

        return findings_before(self.plan, self.delta, self.guarantees)

    def __repr__(self) -> str:
        largest = max((row.epsilon for row in self.guarantees), default=math.nan)
        rows = f"{len(self.guarantees):,} {'row' if len(self.guarantees) == 1 else 'rows'}"
        return (
            f"<PrivacyReport {self.name}: {rows}, ε up to {upper_bound(largest)}, δ = {rounded(self.delta)}>"
        )

    def _repr_html_(self) -> str:
        """The guarantees as an HTML table, for notebooks."""
        from sfumato.notebook import block

        name = self.plan.parties.titled
        ranged = ["ε of its units"] if any(row.epsilon_range for row in self.guarantees) else []
        epsilon = f"ε (δ = {rounded(self.delta)})"
        titles = ("relation", "unit", "observer", epsilon, *ranged, "pairs", "why")
        rows = [
            (
                *(r.relation.words, name(r.unit), name(r.observer), upper_bound(r.epsilon)),
                *(range_text(r.epsilon_range) for _ in ranged),
                *(f"{r.stands_for:,}", r.why),
            )
            for r in sorted(self.guarantees, key=lambda row: -row.epsilon)
        ]
        notes = [*self.notes, *(finding.text for finding in self.findings)]
        return block(self.name, titles, rows, notes)

    def to_dict(self) -> dict[str, Any]:
        """The report as a JSON object: what ``account --json`` prints and ``privacy.json`` holds."""
        rows = [row.to_dict() for row in self.guarantees]
        for row, after in zip(rows, self.ex_post, strict=False):
            if after is not None:
                spent = json_number(after.epsilon)
                row["ex_post"] = {"epsilon": spent, "participations": after.participations}
        raw, devices = self.plan.raw_to_trusted_edge, self.plan.parties.device_count
        document = {
            "spec": self.name,
            "delta": self.delta,
            "guarantees": rows,
            "claims": [claim.to_dict() for claim in self.claims],
            "notes": list(self.notes),
            "raw_to_trusted_edge": {"devices": raw, "of": devices},
            "findings": [finding.to_dict() for finding in self.findings],
        }
        if self.coalitions:
            document["coalitions"] = [coalition.to_dict() for coalition in self.coalitions]
        return document

    def certificates(self) -> dict[str, Any]:
        """What the ε of every row is computed from, as JSON for ``ledger.json`` (docs/certificates.md)."""
        from sfumato.privacy.certificate import CertifiedPair, certificates_of

        pairs = (
            CertifiedPair(
                int(row.unit.partition(":")[2]),
                parse_coalition(row.as_seen_by or row.observer, self.plan.parties),
                row,
            )
            for row in self.guarantees
        )
        spec = self.plan.spec
        return certificates_of(
            self.plan.releases,
            pairs,
            neighbours=spec.privacy.neighbours,
            by_filter=spec.control is not None,
        )

    def table(self) -> pd.DataFrame:
        """The guarantees as a table, one row each; ``epsilon`` is ``inf`` where nothing protects."""
        import pandas as pd

        rows = [row.to_dict() | {"epsilon": row.epsilon} for row in self.guarantees]
        return pd.DataFrame([{k: v for k, v in row.items() if k not in ("bounds", "curve")} for row in rows])

    def plot(self) -> go.Figure:
        """A Plotly bar chart of the ε of every row, the largest on top."""
        from sfumato.epsilon_bars import epsilon_bars

        named = self.plan.parties.titled
        bars = [(f"{named(row.unit)} → {named(row.observer)}", row.epsilon) for row in self.guarantees]
        return epsilon_bars(bars, f"{self.name}: ε at δ = {rounded(self.delta)}")

    def epsilon(self, unit: int | str, observer: str) -> float:
        """The ε of ``unit`` towards ``observer``, over the whole training; ∞ without a guarantee.

        Args:
            unit: ``"device:0"``, ``"record:0"`` or ``"person:0"``, by number of the device; a number
                alone is a unit of the kind that ``privacy.unit`` says.
            observer: a party such as ``"edge:1"``, or a coalition, parties joined by commas.

        Raises:
            SpecError: there is no such unit or observer, the coalition contains the unit, or a number alone
                where ``privacy.unit`` is ``both`` (devices and records).
        """
        name = str(unit) if isinstance(unit, int) else unit
        return pair_guarantee(self.plan, name, observer, delta=self.delta).epsilon


@refusing_keys
def account(
    spec: Spec,
    *,
    data: Any = None,
    graph: Any = None,
    unit: int | str | None = None,
    observer: str | None = None,
    delta: float | None = None,
    curve: bool = False,
) -> PrivacyReport:
    """Compute the guarantees of ``spec``, and what papers claim for it, without training.

    Args:
        spec: as loaded; it is resolved here.
        data: given instead of ``data.source``: see `sfumato.data.given.given_rows`.
        graph: a NetworkX graph instead of ``topology``: see `sfumato.network.given_graph`.
        unit: ``"device:0"``, ``"record:0"`` or ``"person:0"``; a number alone is a unit of the kind that
            ``privacy.unit`` says. With ``observer``, that pair; without, the unit towards every observer.
        observer: a party by name (``"cloud"``, ``"edge:2"``), or a coalition joined by commas. Without
            ``unit``: every class of units towards it. A kind of observers (``own-edge``, say): every class
            of pairs whose observer is of that kind.
        delta: the δ of every ε, from 1e-30 to 1 - 1e-9; by default ``privacy.delta``.
        curve: adds ε at other values of δ to each row.

    Returns:
        The report; without ``unit`` and ``observer`` it has a row for every class of equivalent pairs.

    Raises:
        SpecError: the spec or an argument is wrong, or neither of them gives δ.
    """
    unit = str(unit) if isinstance(unit, int) else unit
    if graph is not None:
        from sfumato.network.given_graph import with_graph  # NetworkX takes long to import

        spec = with_graph(spec, graph)
    if data is None:
        plan = resolve(spec)
    else:
        with given(data):
            plan = resolve(with_given(spec, data))
    chosen = spec.privacy.delta if delta is None else delta
    if not isinstance(chosen, int | float) or not LEAST_DELTA <= chosen <= 1 - LEAST_SHARE:
        raise SpecError(Argument("delta"), chosen, f"must be from {LEAST_DELTA:g} to {1 - LEAST_SHARE:.10g}")
    if observer in OBSERVER_KINDS and observer not in ("cloud", "public"):  # these are parties
        rows = list(_guarantees_of_kind(plan, unit, observer, chosen, curve))
    elif unit is not None and observer is not None:
        rows = [pair_guarantee(plan, unit, observer, delta=chosen, curve=curve)]
    elif unit is not None or observer is not None:
        rows = list(_guarantees_of_one_side(plan, unit, observer, chosen, curve))
    else:
        rows = list(_guarantees_of_all_pairs(plan, chosen, curve))
    worst = () if unit is not None or observer is not None else family_of(plan.spec).coalitions(plan, chosen)
    return PrivacyReport(spec.name, chosen, tuple(rows), claims_of(plan, chosen), plan.notes, plan, worst)


def pair_guarantee(plan: Plan, unit: str, observer: str, *, delta: float, curve: bool = False) -> Guarantee:
    """The guarantee of ``unit`` (``device:0``) towards ``observer``, a party or coalition, both by name.

    ``delta``: of its ε; ``curve``: also compute ε at other values of δ.

    Raises:
        SpecError: no such party, or a coalition that contains the unit.
    """
    kind, device = parse_protected(unit, plan.parties, own=plan.spec.privacy.unit)
    coalition = parse_coalition(observer, plan.parties)
    if Party("device", 0, device) in coalition:
        what = "the unit" if kind == "device" else "the unit's device"
        allowed = f"must not contain {what}, device:{device}: it knows its own data"
        raise SpecError(Argument("observer"), observer, allowed)
    asked = ObservedUnit(kind, device, coalition, ASKED_FOR, 1)
    return unit_guarantee(plan, asked, delta=delta, curve=curve)


def _guarantees_of_all_pairs(plan: Plan, delta: float, curve: bool) -> Iterable[Guarantee]:
    """The guarantee of every class of pairs, for each kind of unit that the spec asks for.

    ``delta``: of every ε; ``curve``: whether ε at other values of δ is added.
    """
    for kind in unit_kinds(plan):
        yield from (_guarantee_of_class(plan, kind, pair, delta, curve) for pair in _pair_classes(plan, kind))


def _pair_classes(plan: Plan, kind: str, unit: int | None = None) -> Iterator[PairClass]:
    """Classes of pairs, one row each, for units of ``kind``; named sites with another ε are told apart."""
    return plan.releases.pair_classes(unit, apart=_tells_sites_apart(plan, kind))


def _tells_sites_apart(plan: Plan, kind: str) -> bool:
    """Whether units of ``kind`` at named sites may differ in ε: control charges a record as its device."""
    return kind != "device" and plan.spec.control is None


def _guarantees_of_one_side(
    plan: Plan, unit: str | None, observer: str | None, delta: float, curve: bool
) -> Iterable[Guarantee]:
    """The guarantees of ``unit`` towards every observer, or of every class of units towards ``observer``.

    ``delta``: of every ε; ``curve``: whether ε at other values of δ is added.
    """
    if unit is not None:
        kind, device = parse_protected(unit, plan.parties, own=plan.spec.privacy.unit)
        for pair in _pair_classes(plan, kind, device):
            yield _guarantee_of_class(plan, kind, pair, delta, curve)
        return
    coalition = parse_coalition(observer or "", plan.parties)
    members = {party.index for party in coalition if party.kind == "device"}
    for kind in unit_kinds(plan):
        for units in plan.releases.units_outside(members, apart=_tells_sites_apart(plan, kind)):
            asked = units.unit, coalition, TOWARDS_ASKED_FOR, units.count, units.least, units.sites
            yield unit_guarantee(plan, ObservedUnit(kind, *asked), delta=delta, curve=curve)


def _guarantees_of_kind(
    plan: Plan, unit: str | None, observer: str, delta: float, curve: bool
) -> Iterable[Guarantee]:
    """The guarantees towards observers of the kind ``observer``, trusted ones only if there are no others.

    ``unit``: only of this one; ``delta`` and ``curve``: as of `account`.

    Raises:
        SpecError: nobody in the topology is of that kind, or there is no such unit.
    """
    if unit is None:
        asked = [(kind, pair) for kind in unit_kinds(plan) for pair in _pair_classes(plan, kind)]
    else:
        name, device = parse_protected(unit, plan.parties, own=plan.spec.privacy.unit)
        asked = [(name, pair) for pair in _pair_classes(plan, name, device)]
    pairs = [(kind, pair) for kind, pair in asked if is_of_kind(pair, observer)]
    if not pairs:
        raise SpecError(Argument("observer"), observer, "stands for nobody in this topology")
    # where trust differs within a class, its representative does not tell whom the others trust
    tells = plan.classes_share_trust
    untrusted = [(k, pair) for k, pair in pairs if not (tells and plan.trusts(pair.observer, pair.unit))]
    for kind, pair in untrusted or pairs:
        yield _guarantee_of_class(plan, kind, pair, delta, curve)


def _guarantee_of_class(plan: Plan, kind: str, pair: PairClass, delta: float, curve: bool) -> Guarantee:
    """The guarantee of the worst pair of a class, for a unit of ``kind``.

    ``delta`` and ``curve``: as of `account`.
    """
    return unit_guarantee(plan, ObservedUnit.of_class(kind, pair), delta=delta, curve=curve)


def unit_guarantee(plan: Plan, observed: ObservedUnit, *, delta: float, curve: bool = False) -> Guarantee:
    """The guarantee of ``observed`` at ``delta``; with ``curve`` it also has ε at `CURVE_DELTAS`."""
    declared = plan.releases
    charged, bounds = observed.charge(plan, declared).least(delta)
    coalition = charged.coalition
    if not is_covered_by_filter(plan, coalition):
        bounds = {name: replace(bound, epsilon=math.inf) for name, bound in bounds.items()}
    bound = smallest(bounds)
    best = next(e for e in charged.exposures if e.bound_name == bound)
    points: tuple[tuple[float, float], ...] = ()
    if curve and is_covered_by_filter(plan, coalition):
        curves = ((d, charged.bounds(d)) for d in CURVE_DELTAS)
        points = tuple((d, min(bound.epsilon for bound in found.values())) for d, found in curves)
    of_record = observed.kind != "device"
    way = charged.best_way(best, delta)
    why = explain(plan, observed.device, coalition, best, bounds[bound], way, of_record=of_record)
    least = bounds[bound].epsilon
    if observed.mildest is not None:
        mildest = ObservedUnit.of_class(observed.kind, observed.mildest)
        mild = mildest.charge(plan, declared, drawn_like=mildest.least).epsilon(delta)
        least = mild if mild < least * (1 - _ROUNDING) else least
    elif observed.kinds > 1:
        least = math.nan  # of pairs whose own ε is not computed
    elif of_record and observed.least is not None and 0 < least < math.inf:
        least = observed.charge(plan, declared, drawn_like=observed.least).epsilon(delta)
    larger = _join_names(declared, coalition) if coalition != observed.coalition else ""
    if larger:
        why = f"no more than {larger} learn together; towards these: {why}"
    return Guarantee(
        unit=f"{observed.kind}:{observed.device}",
        observer=_join_names(declared, observed.coalition),
        stands_for=observed.stands_for,
        delta=delta,
        bound=bound,
        bounds=bounds,
        relation=observed.relation,
        why=plan.parties.titled(why),
        curve=points,
        trusted=any(plan.trusts(party, observed.device) for party in observed.coalition)
        and (observed.relation == ASKED_FOR or plan.classes_share_trust),
        as_seen_by=larger,
        least_epsilon=least,
        sites=tuple(plan.parties.site_names[site] for site in observed.sites),
        kinds=observed.kinds,
    )


def _join_names(declared: DeclaredReleases, coalition: tuple[Party, ...]) -> str:
    """The members of a coalition by name, joined by commas."""
    return ",".join(declared.party_name(party) for party in coalition)


__all__ = [
    "ObservedUnit", "PrivacyReport", "account", "pair_guarantee",
    "unit_guarantee", "unit_kinds",
]  # fmt: skip
