"""The checked spec, what was written in it, and who will learn what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from sfumato.accounting import PrivacyReport, account
from sfumato.arguments import Argument
from sfumato.data.dataset_sizes import request_of
from sfumato.data.datasets import load_dataset
from sfumato.errors import SpecError
from sfumato.new_spec.decisions import Decisions, is_regression
from sfumato.new_spec.spec_text import site_names, spec_text, units_at_sites
from sfumato.new_spec.table import OwnTable
from sfumato.rounding import certainty, number, upper_bound
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec

_WHO = {"cloud": "the server (cloud)", "peer": "another site", "public": "everybody else (public)"}


def write_checked_spec(path: Path, decisions: Decisions, table: OwnTable) -> PrivacyReport:
    """Write the new spec after it was checked and accounted for; returns the account.

    A file that exists is not replaced.

    Raises:
        SpecError: the spec is refused, or the file exists or cannot be written.
        DataError: a row lacks a label, a site or a feature.
    """
    refuse_existing(path)
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


def refuse_existing(path: Path) -> None:
    """Raise a `SpecError` if there is a file at ``path`` already, where the new spec would be."""
    if path.exists():
        raise SpecError(
            str(path),
            None,
            "exists already: change it by hand, or delete it, or give another name first: sfumato init NAME",
        )


def _read_every_row(spec: Spec) -> None:
    """Read the data as a run does, so that a value that is missing is said now."""
    load_dataset(spec.data.source, request_of(spec.data, 1, seed=spec.seed))


def table_summary(path: Path, decisions: Decisions, table: OwnTable) -> Iterator[str]:
    """Yield lines on what was written to ``path``: sites, features, labels, and columns left out."""
    names, counts = site_names(decisions, table), units_at_sites(decisions, table)
    what = decisions.counted_noun
    if decisions.site is None:
        sites = f"{decisions.sites} sites, among whom {counts['']:,} {what} are dealt evenly"
    else:
        listed = ", ".join(f"{name} {counts[name]:,}" for name in names[:10])
        sites = f"{len(names)} sites ({what}: {listed}{', ...' if len(names) > 10 else ''})"
    features = decisions.features(table)
    labels = table.labels(decisions.label)
    more = f", ... ({len(labels)} values)" if len(labels) > 10 else ""
    classes = f"one of {', '.join(labels[:10])}{more}"
    predicted = "a number" if is_regression(decisions.label, table) else classes
    yield f"{path}: {sites}; {len(features)} features; {decisions.label} is predicted: {predicted}"
    left = [f"{decisions.person} (whose row it is)"] if decisions.person is not None else []
    left += [f"{name} (identifier)" for name in decisions.ids if name.strip()]
    others = {decisions.label, decisions.site, decisions.person, *decisions.ids, *features}
    left += [f"{name} (no numbers)" for name in table.names if name.strip() and name not in others]
    left += ["a column without a heading" for name in table.names if not name.strip()]
    if left:
        yield f"left out: {', '.join(left)}"


def who_learns_what(report: PrivacyReport, decisions: Decisions) -> Iterator[str]:
    """Yield lines on who learns what: the largest ε towards every kind of observer, largest first.

    Each also says how sure such an observer can become.
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
    """The path of the spec to write in the working directory: ``NAME.yaml``, by default the table's name.

    Whether it exists is not checked.

    Raises:
        SpecError: the name is empty or has a folder.
    """
    stem = table.path.stem.strip().replace(" ", "-") if name is None else name.removesuffix(".yaml")
    if not stem or "/" in stem:
        raise SpecError(Argument("name"), name, "must be the name of a spec, without a folder")
    return Path(f"{stem}.yaml")
