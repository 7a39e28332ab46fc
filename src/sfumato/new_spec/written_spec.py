"""The checked spec, what a user should hear about it, and who will learn what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from sfumato.accounting import PrivacyReport, account
from sfumato.arguments import Argument
from sfumato.data.csv_files import SIGNS_IN_WORDS
from sfumato.data.dataset_sizes import request_of
from sfumato.data.datasets import load_dataset
from sfumato.errors import SpecError
from sfumato.new_spec.decisions import Decisions, is_regression
from sfumato.new_spec.spec_text import devices_can_be_named, site_names, spec_text, units_at_sites
from sfumato.new_spec.table import OwnTable
from sfumato.rounding import certainty, number, upper_bound
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec

_FEW_ROWS, _MANY_CLASSES, _FEW_SITES = 30, 20, 100
_WHO = {"cloud": "the server (cloud)", "peer": "another site", "public": "everybody else (public)"}


def write_checked_spec(path: Path, decisions: Decisions, table: OwnTable) -> PrivacyReport:
    """Check the spec, account for it and write it; returns the account. A file that exists is left as it is.

    Raises:
        SpecError: the spec is refused, or the file is there or cannot be written.
        DataError: a row lacks a label, a site or a feature.
    """
    if path.exists():
        raise SpecError(str(path), None, "exists already; give another name")
    text = spec_text(path.stem, decisions, table)
    spec = load_spec(yaml.safe_load(text))
    report = account(spec)
    _read_every_row(spec)
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise SpecError(str(path), None, f"cannot be written: {error.strerror}") from None
    return report


def _read_every_row(spec: Spec) -> None:
    """Read the data as a run does, so that a value that is missing is said now."""
    load_dataset(spec.data.source, request_of(spec.data, 1, seed=spec.seed))


def table_summary(path: Path, decisions: Decisions, table: OwnTable) -> Iterator[str]:
    """Yield what was written, in lines: sites, features, labels, and which columns are left out if any are.

    ``path``: of the spec.
    """
    names, counts = site_names(decisions, table), units_at_sites(decisions, table)
    what = decisions.units
    if decisions.site is None:
        sites = f"{decisions.sites} sites, among whom {counts['']:,} {what} are dealt evenly"
    else:
        listed = ", ".join(f"{name} {counts[name]:,}" for name in names[:10])
        sites = f"{len(names)} sites ({what}: {listed}{', ...' if len(names) > 10 else ''})"
    features = decisions.features(table)
    labels = table.labels(decisions.label)
    predicted = "a number" if is_regression(decisions.label, table) else f"one of {', '.join(labels[:10])}"
    yield f"{path}: {sites}; {len(features)} features; {decisions.label} is predicted: {predicted}"
    left = [f"{decisions.person} (whose row it is)"] if decisions.person is not None else []
    left += [f"{name} (identifier)" for name in decisions.ids]
    others = {decisions.label, decisions.site, decisions.person, *decisions.ids, *features}
    left += [f"{name} (no numbers)" for name in table.names if name not in others]
    if left:
        yield f"left out: {', '.join(left)}"


def hints(decisions: Decisions, table: OwnTable) -> Iterator[str]:
    """What a user may not have meant, a line each; nothing where all is as usual."""
    if table.csv is not None and table.csv.separator != ",":
        sign = SIGNS_IN_WORDS[table.csv.separator]
        comma = ", numbers have decimal commas" if table.csv.decimal == "," else ""
        yield f"columns are parted by {sign}{comma}: data.separator says so"
    if decisions.label in table.numeric and not is_regression(decisions.label, table):
        values = table.labels(decisions.label)
        if float(values[0]) > 0:
            yield f"labels begin at {values[0]}: classes are counted from 0, and the first has no rows"
        if len(values) > _MANY_CLASSES:
            yield f"{decisions.label} has {len(values)} values: for a quantity write data.task: regression"
    names = site_names(decisions, table)
    if names and not devices_can_be_named(names):
        yield f"results call sites by numbers: {names[0]} is device:0; names like site-1 would be kept"
    if decisions.site is not None:
        what = decisions.units
        for name, found in units_at_sites(decisions, table).items():
            if found < _FEW_ROWS:
                yield f"{name} has {found} {what}: noise hides most of what so few {what} say"
                break
    count = len(names) or decisions.sites
    if decisions.protect == "device" and count < _FEW_SITES:
        yield (
            f"all rows of one of {count} sites are protected together: the noise is as "
            "large as what a site says, and hardly anything is learned; to protect one row: "
            f"{Argument('protect', 'record')}"
        )
    if decisions.protect == "record":
        repeated = next((name for name in decisions.ids if table.repeats(name)), None)
        if repeated is not None:
            yield (
                f"several rows have the same {repeated}, and ε is about one row; if they are of one person, "
                f"protect all of them: {Argument('person', repeated)}"
            )
        elif decisions.several:
            yield (
                "ε is about one row: of a person with several rows more is learned; name the column that "
                f"says whose row it is ({Argument('person')}), or merge them to one row each"
            )


def who_learns_what(report: PrivacyReport, decisions: Decisions) -> Iterator[str]:
    """Lines on who learns what: the largest ε towards every kind of observer, largest first, and how sure
    each gets.
    """
    of_whom = {
        "record": f"one row ({decisions.row})",
        "person": f"one person (all rows with one {decisions.person})",
        "device": "all rows of a site together",
    }[decisions.protect]
    yield f"who will learn what about {of_whom}, at δ = {number(report.delta)}:"
    largest: dict[str, float] = {}
    for row in report.guarantees:
        largest[row.relation.kind] = max(largest.get(row.relation.kind, 0.0), row.epsilon)
    for kind, epsilon in sorted(largest.items(), key=lambda one: -one[1]):
        sure = f"whoever guesses with even odds becomes at most {certainty(epsilon)} sure"
        yield f"  {_WHO.get(kind, kind):24} ε ≤ {upper_bound(epsilon):6} {sure}"
    yield f"  {'the site itself':24} everything: it holds the rows"


def spec_path(name: str | None, table: OwnTable) -> Path:
    """The file to write, in the working directory: ``NAME.yaml``, by default called as the table is.

    Raises:
        SpecError: the name is empty or has a folder.
    """
    stem = table.path.stem.strip().replace(" ", "-") if name is None else name.removesuffix(".yaml")
    if not stem or "/" in stem:
        raise SpecError(Argument("name"), name, "must be the name of a spec, without a folder")
    return Path(f"{stem}.yaml")
