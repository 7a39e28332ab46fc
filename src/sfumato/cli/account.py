"""``sfumato account``: ε of every device towards every observer, without training."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.console import console, empty_table, key_value_table, print_json, raw_to_trusted_edge
from sfumato.cli.options import Debug, Set, SpecSource
from sfumato.cli.spec_argument import locating_errors, read_spec
from sfumato.rounding import number, range_text, upper_bound

if TYPE_CHECKING:
    from rich.table import Table

    from sfumato.accounting import PrivacyReport
    from sfumato.privacy.claim import Claim
    from sfumato.privacy.guarantee import Guarantee
    from sfumato.schedule.rows.coalitions import Coalition

Title = Callable[[str], str]
"""What people call the parties with these names."""

MOST_ROWS = 24
_OBJECTS_BEFORE_COLLECTING = 20_000
MOST_UNITS, MOST_SIZES = 3, 7
CURVE_COLUMNS = 6


def account(
    spec: SpecSource,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="UNIT",
            help="Only rows about device:N, or about record:N or person:N, any one in that device. N alone: "
            "as privacy.unit says.",
        ),
    ] = None,
    observer: Annotated[
        str | None,
        typer.Option(
            metavar="OBSERVER[,OBSERVER...]", help="Only rows towards this party, coalition or kind."
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(metavar="D", help="Compute every ε at this δ; default: privacy.delta of the spec."),
    ] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Also compute ε over a range of δ.")] = False,
    changes: Set = None,
    debug: Debug = False,
) -> None:
    """Compute ε of every device, or of a record or person of it, towards every observer."""
    from sfumato.accounting import account as account_for

    loaded = read_spec(spec, changes)
    with locating_errors(spec, changes), _collecting_rarely():
        report = account_for(loaded, unit=unit, observer=observer, delta=delta, curve=curve)
    if as_json:
        print_json(report.to_dict())
    else:
        _print_report(report)


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Context in which Python's garbage collector runs rarely, and leaves objects of imports out.

    An account keeps what it computes and leaves few cycles, so that there is hardly anything to be found.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _print_report(report: PrivacyReport) -> None:
    """Print the tables of guarantees and claims, then coalitions, notes and findings.

    At most `MOST_ROWS` guarantees and as many claims are printed; a line says how many more there are.
    """
    out, titled = console(), report.plan.parties.titled
    groups = _rows_by_relation(report.guarantees)
    each = max(1, MOST_ROWS // max(1, len(groups)))
    shown = [group[:each] for group in groups]
    whom = " and of ".join(_describe_units(report.guarantees))
    out.print(f"{report.name}: ε of {whom} towards observers, δ = {number(report.delta)}")
    out.print()
    out.print(_guarantee_table(shown, titled))
    hidden = len(report.guarantees) - sum(len(group) for group in shown)
    if hidden:
        out.print(f"… {hidden:,} more rows; --json shows all of them")
    constants = _values_of_all_rows(report.guarantees)
    if constants:
        out.print(f"All rows: {constants}.")
    if any(row.stands_for > 1 for group in shown for row in group):
        out.print("pairs: the number of pairs of a unit and an observer that a row stands for")
    if any(row.epsilon_range for group in shown for row in group):
        out.print("ε of its units: the least and the largest; the unit named has the largest")
    if any(row.least_known is None for group in shown for row in group):
        out.print(
            "some rows stand for observers that see less, too: ε towards these is at most that of the row"
        )
    out.print()
    out.print(key_value_table((_name_pair(group[0], titled), group[0].why) for group in shown))
    if report.guarantees and report.guarantees[0].curve:
        out.print()
        out.print(_curve_table([group[0] for group in shown], titled))
    if report.claims:
        out.print()
        out.print(_claim_table(report.claims[:MOST_ROWS], titled))
        if len(report.claims) > MOST_ROWS:
            out.print(f"… {len(report.claims) - MOST_ROWS:,} more claims; --json shows all of them")
        out.print()
        worst = sorted(report.claims, key=lambda claim: claim.rigorous_epsilon)
        out.print(key_value_table({claim.source: claim.why for claim in worst}.items()))
    if report.coalitions:
        out.print()
        out.print(_coalition_table(report.coalitions))
        if len(report.coalitions) > MOST_SIZES:
            out.print("… and the sizes in between; --json shows them")
    if report.plan.raw_to_trusted_edge:
        out.print(raw_to_trusted_edge(report.plan.raw_to_trusted_edge, report.plan.parties.device_count))
    for note in report.notes:
        out.print(f"note: {note}")
    for finding in report.findings:
        out.print(f"finding: {finding.text}")


UNITS = {
    "device": "a device (all its data)",
    "record": "a record (any one example of a device)",
    "person": "a person (all rows of any one person of a device)",
}


def _describe_units(rows: Sequence[Guarantee]) -> list[str]:
    """Phrases on what the kinds of units (device, record, person) in ``rows`` are, each kind once."""
    kinds = {row.unit_kind for row in rows}
    return [what for kind, what in UNITS.items() if kind in kinds]


def _rows_by_relation(rows: Sequence[Guarantee]) -> list[list[Guarantee]]:
    """Group rows by kind of unit and relation of the observer; in each group the largest ε first.

    Groups of devices come first, then those with the largest ε.
    """
    groups: dict[tuple[str, str], list[Guarantee]] = {}
    for row in sorted(rows, key=lambda row: (row.unit_kind, -row.epsilon)):
        groups.setdefault((row.unit_kind, row.relation.words), []).append(row)
    return list(groups.values())


VARYING = ("neighbours", "bound", "method")


def _values_of_all_rows(rows: Sequence[Guarantee]) -> str:
    """Text "name value" of each of the properties in ``VARYING`` that all rows share, joined by commas.

    "" if they share none.
    """
    values = {name: {str(getattr(row, name)) for row in rows} for name in VARYING}
    return ", ".join(f"{name} {found.pop()}" for name, found in values.items() if len(found) == 1)


def _guarantee_table(groups: Sequence[Sequence[Guarantee]], titled: Title) -> Table:
    """The table of guarantees, ``groups`` one after the other; columns in which all rows agree are left out.

    ``titled``: the title of a party.
    """
    rows = [row for group in groups for row in group]
    varying = [name for name in VARYING if len({getattr(row, name) for row in rows}) > 1]
    related = ["relation"] if any(row.relation.words for row in rows) else []
    ranged = ["ε of its units"] if any(row.epsilon_range for row in rows) else []
    shown = empty_table(
        *related,
        "unit",
        "observer",
        "ε",
        *ranged,
        "releases",
        "pairs",
        *varying,
        right=("ε", *ranged, "releases", "pairs"),
    )
    for group in groups:
        for place, row in enumerate(group):
            shown.add_row(
                *([row.relation.words if place == 0 else ""] if related else []),
                titled(row.unit),
                titled(row.observer),
                upper_bound(row.epsilon),
                *([range_text(row.epsilon_range)] if ranged else []),
                f"{row.releases:,}",
                f"{row.stands_for:,}",
                *(str(getattr(row, name)) for name in varying),
            )
    return shown


def _curve_table(rows: Sequence[Guarantee], titled: Title) -> Table:
    """The table of ε over δ: a line for each row, a column for each δ, at most `CURVE_COLUMNS` of them.

    ``rows``: one or more whose curves have the same δ; ε is rounded up. ``titled``: how parties are called.
    Columns are evenly spaced among the δ of the curve.
    """
    every = -(-len(rows[0].curve) // CURVE_COLUMNS)
    deltas = [delta for delta, _ in rows[0].curve[::every]]
    titles = [f"δ={delta:.0e}" for delta in deltas]
    shown = empty_table("ε over δ", *titles, right=titles)
    for row in rows:
        shown.add_row(_name_pair(row, titled), *(upper_bound(epsilon) for _, epsilon in row.curve[::every]))
    return shown


def _claim_table(claims: Sequence[Claim], titled: Title) -> Table:
    """The table of published claims beside the rigorous ε; ``titled`` gives the title of a party's name."""
    shown = empty_table(
        "claim", "unit", "observer", "claimed ε", "rigorous ε", "holds", right=("claimed ε", "rigorous ε")
    )
    for claim in claims:
        shown.add_row(
            claim.source,
            titled(claim.unit),
            titled(claim.observer),
            number(claim.claimed_epsilon),
            upper_bound(claim.rigorous_epsilon),
            "yes" if claim.holds else "no",
        )
    return shown


def _coalition_table(rows: Sequence[Coalition]) -> Table:
    """A table of the largest ε by size of the coalition, from ``rows`` of an account.

    Of many sizes only the smallest, the largest and some in between have a row. Of many units the
    ``MOST_UNITS`` with the largest ε.
    """
    by_unit: dict[str, list[Coalition]] = {}
    for row in rows:
        by_unit.setdefault(row.unit, []).append(row)
    units = sorted(by_unit, key=lambda unit: -max(row.epsilon for row in by_unit[unit]))[:MOST_UNITS]
    right = ("colluding devices", "ε", "with its supernode")
    shown = empty_table("unit", *right, right=right)
    for unit in units:
        found = by_unit[unit]
        steps = min(MOST_SIZES, len(found)) - 1
        picks = sorted({round(i * (len(found) - 1) / max(1, steps)) for i in range(steps + 1)})
        for row in (found[pick] for pick in picks):
            name = unit if row is found[0] else ""
            shown.add_row(name, str(row.size), upper_bound(row.epsilon), upper_bound(row.supernode_epsilon))
    return shown


def _name_pair(row: Guarantee, titled: Title) -> str:
    """A row's pair as text, ``unit → observer``, with the titles of parties."""
    return f"{titled(row.unit)} → {titled(row.observer)}"
