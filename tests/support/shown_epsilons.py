"""Every ε that a person is shown of a spec and its run, against the rows of `sfumato.account`.

`differences` plays a spec and reads its figures where people do: the console, the metrics, the log of rounds,
JSON, the report, the statement, `explore`, notebooks, sweeps. What is expected is computed pair by pair, for
one unit after the other, without any class of pairs.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import sfumato as sf
from sfumato.accounting import PrivacyReport, account, unit_kinds
from sfumato.checked import _statement_of_run
from sfumato.cli import account as account_command
from sfumato.cli import run as run_command
from sfumato.explore import words
from sfumato.explore.accounted_setting import account_setting
from sfumato.explore.edited_spec import EditedSpec
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.observers import PairClass
from sfumato.report.compare import compare
from sfumato.report.results.network import read_network
from sfumato.report.results.observer_labels import Column, ObserverLabels, Row, labels_for
from sfumato.report.statement.content import Statement
from sfumato.report.statement.page import statement_page
from sfumato.rounding import upper_bound
from sfumato.schedule.rows.observers import is_of_kind, main_unit, parse_observer
from sfumato.spec.document import Spec
from sfumato.spec.privacy import OBSERVER_KINDS
from sfumato.sweeps.point_result import result_of, write_accounting

_MOST_DEVICES = 24


@dataclass
class Found:
    """What was compared: how often on each surface, and what differs."""

    compared: Counter[str] = field(default_factory=Counter)
    different: list[str] = field(default_factory=list)

    def same(self, surface: str, what: str, shown: Any, expected: Any) -> None:
        """Compare a figure, or its text, with what it has to be."""
        self.compared[surface] += 1
        if shown != expected:
            self.different.append(f"{surface}: {what}: {shown}; the account says {expected}")


@dataclass(frozen=True)
class Truth:
    """The ε of every unit by itself."""

    report: PrivacyReport
    kept: dict[tuple[str, str], float] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)

    def own(self, unit: str, observer: str) -> float:
        """ε of one unit towards one observer or coalition, asked for by name."""
        if (unit, observer) not in self.kept:
            self.kept[unit, observer] = self.report.epsilon(unit, observer)
        return self.kept[unit, observer]

    @cached_property
    def devices(self) -> Sequence[int]:
        """All devices; of many, some and those that rows are about."""
        count = self.report.plan.parties.device_count
        if count <= _MOST_DEVICES:
            return range(count)
        about = {int(row.unit.partition(":")[2]) for row in self.report.guarantees}
        return sorted(about | set(range(0, count, -(-count // _MOST_DEVICES))))

    def units(self, kind: str, observer: str) -> list[str]:
        """Every unit, of `devices`, that does not observe itself."""
        members = observer.split(",")
        return [f"{kind}:{device}" for device in self.devices if f"device:{device}" not in members]

    def rows(self, kind: str) -> list[Guarantee]:
        """The rows about one kind of unit."""
        return [row for row in self.report.guarantees if row.unit.startswith(f"{kind}:")]

    @cached_property
    def watched(self) -> Mapping[str, float]:
        """ε by column: the worst unit of every class that ``watch`` names; whom it trusts only if all do."""
        found: dict[str, float] = {}
        for observer, epsilon in self.by_name.values():
            found[observer] = max(epsilon, found.get(observer, 0.0))
        return found

    def choose_as(self, shown: Mapping[str, float]) -> None:
        """Of several pairs with the same ε, the worst one that a name stands for is the column's."""
        left = [name for name in shown if name not in self.watched]
        for observer in (name for name in self.watched if name not in shown):
            alike = [
                name for name in left if math.isclose(shown[name], self.watched[observer], rel_tol=1e-12)
            ]
            if alike:
                self.chosen[observer] = alike[0]
                left.remove(alike[0])

    @property
    def columns(self) -> Mapping[str, float]:
        """`watched`, by the columns that `choose_as` found."""
        return {self.chosen.get(name, name): epsilon for name, epsilon in self.watched.items()}

    @cached_property
    def by_name(self) -> Mapping[str, tuple[str, float]]:
        """The observer and ε of every name in ``watch``."""
        plan, kind = self.report.plan, main_unit(self.report.plan.spec)
        found = {}
        for name in plan.default_watch if plan.spec.watch is None else plan.spec.watch:
            rows: list[tuple[str, float, bool]] = []
            if name in OBSERVER_KINDS:
                for row in self.rows(kind):
                    party = parse_observer(row.observer, plan.parties)
                    pair = PairClass(int(row.unit.partition(":")[2]), party, row.relation, 1)
                    if is_of_kind(pair, name):
                        rows.append((row.observer, self.own(row.unit, row.observer), row.trusted))
            else:
                parties = [parse_observer(part, plan.parties) for part in name.split(",")]
                observer = ",".join(plan.releases.party_name(party) for party in parties)
                for unit in self.units(kind, observer):
                    device = int(unit.partition(":")[2])
                    trusted = any(plan.trusts(party, device) for party in parties)
                    rows.append((observer, self.own(unit, observer), trusted))
            left = [row for row in rows if not row[2]] or rows
            if left:
                worst = max(left, key=lambda row: row[1])
                found[name] = worst[:2]
        return found


def differences(spec: Spec, folder: Path, *, seeds: int = 1, verified: bool = True) -> Found:
    """Every figure of ``spec`` and a run of it in ``folder`` that is not what its account says.

    ``verified``: whether the statement says what a verification of the folder found, as by the command.
    """
    found = before_a_run(spec, folder)
    truth = Truth(account(spec))
    runs = [
        sf.run(spec.model_copy(update={"seed": spec.seed + n}), out=folder / "run" / f"seed-{spec.seed + n}")
        for n in range(seeds)
    ]
    truths = [
        truth,
        *(Truth(account(spec.model_copy(update={"seed": spec.seed + n}))) for n in range(1, seeds)),
    ]
    for run, one in zip(runs, truths, strict=True):
        _run(found, one, run, verified=verified)
    _console_of_run(found, truths, runs, folder / "run")
    return found


def before_a_run(spec: Spec, folder: Path) -> Found:
    """Every figure of ``spec`` that needs no training and is not what its account says."""
    found, report = Found(), account(spec)
    truth = Truth(report)
    _rows(found, truth)
    _console_of_account(found, report)
    _notebook(found, report._repr_html_(), report.guarantees)
    _sweep(found, truth, spec, folder / "point")
    _explore(found, truth, spec)
    return found


def _rows(found: Found, truth: Truth) -> None:
    """Rows have the ε of their unit; no pair is above its row; the range is that of all units."""
    for kind in unit_kinds(truth.report.plan):
        rows = truth.rows(kind)
        for row in rows:
            found.same(
                "account",
                f"{row.unit} towards {row.observer}",
                row.epsilon,
                truth.own(row.unit, row.observer),
            )
        for observer in ("cloud", "public"):
            about = [row for row in rows if row.observer == observer]
            if not about:
                continue
            own = sorted(truth.own(unit, observer) for unit in truth.units(kind, observer))
            stated = sorted(row.epsilon for row in about for _ in range(row.stands_for))
            found.same("account", f"largest towards the {observer}", stated[-1], own[-1])
            if len(truth.devices) < truth.report.plan.parties.device_count:
                continue
            found.same("account", f"pairs of {kind}s and the {observer}", len(stated), len(own))
            low = [(a, b) for a, b in zip(own, stated, strict=False) if a > b * (1 + 1e-9)]
            found.same("account", f"{kind}s above their row towards the {observer}", low, [])
            ends = [row.epsilon_range or (row.epsilon, row.epsilon) for row in about]
            found.same("account", f"least towards the {observer}", min(end for end, _ in ends), own[0])
        _named(found, truth, kind)


def _named(found: Found, truth: Truth, kind: str) -> None:
    """Named devices: every row lists those that it stands for, and each has the ε of one of its rows."""
    names = truth.report.plan.parties.device_names
    for row in truth.rows(kind) if names else ():
        for site in row.sites:
            unit = f"{kind}:{names.index(site)}"
            if row.observer in ("cloud", "public"):
                found.same(
                    "sites", f"{site} towards {row.observer}", row.epsilon, truth.own(unit, row.observer)
                )


def _console_of_account(found: Found, report: PrivacyReport) -> None:
    said = io.StringIO()
    with redirect_stdout(said), patch.dict(os.environ, COLUMNS="400"):
        account_command._print_report(report)
    lines = [line.split() for line in said.getvalue().splitlines()]
    titled = report.plan.parties.titled
    groups = account_command._rows_by_relation(report.guarantees)
    each = max(1, account_command.MOST_ROWS // max(1, len(groups)))
    for row in (row for group in groups for row in group[:each]):
        what = [titled(row.unit), *titled(row.observer).split(), upper_bound(row.epsilon)]
        there = any(_contains(line, what) for line in lines)
        found.same("console of account", " ".join(what), there, True)


def _contains(line: Sequence[str], what: Sequence[str]) -> bool:
    return any(list(line[at : at + len(what)]) == list(what) for at in range(len(line)))


def _notebook(found: Found, page: str, rows: Sequence[Guarantee]) -> None:
    cells = Counter(unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", page))
    wanted = Counter(upper_bound(row.epsilon) for row in sorted(rows, key=lambda r: -r.epsilon)[:20])
    for epsilon, count in wanted.items():
        found.same("notebook", epsilon, cells[epsilon] >= count, True)


def _sweep(found: Found, truth: Truth, spec: Spec, folder: Path) -> None:
    write_accounting(spec, folder)
    result = result_of(folder)
    assert result is not None
    stated = {name: float(value) for name, value in result["epsilon"].items()}
    found.same("sweep", "result.json", stated, {name: e for name, (_, e) in truth.by_name.items()})


def _explore(found: Found, truth: Truth, spec: Spec) -> None:
    accounted = account_setting(EditedSpec.of(spec))
    largest = words.largest_epsilon_by_kind(accounted.matrix)
    for observer in ("cloud", "public"):
        rows = [row for row in truth.report.guarantees if row.observer == observer and not row.trusted]
        if rows:
            wanted = max(
                truth.own(unit, observer)
                for kind in unit_kinds(truth.report.plan)
                for unit in truth.units(kind, observer)
                if not _trusts(truth, unit, observer)
            )
            found.same("explore", f"largest towards the {observer}", largest[observer], wanted)
    every = {upper_bound(row.epsilon) for row in truth.report.guarantees} | {"–"}
    for row in words.heatmap_as_table(accounted)[1]:
        found.same("explore", f"table of {row[0]}", [cell for cell in row[1:] if cell not in every], [])
    unit, observer = accounted.default_unit, truth.report.guarantees[0].observer
    said = words.answer_about_coalition(accounted, unit, observer)
    found.same("explore", said, words.epsilon_phrase(truth.own(unit, observer)) in said, True)


def _trusts(truth: Truth, unit: str, observer: str) -> bool:
    """Whether the unit trusts the observer, where all units of a class do or none."""
    plan = truth.report.plan
    party = parse_observer(observer, plan.parties)
    return plan.classes_share_trust and plan.trusts(party, int(unit.partition(":")[2]))


def _run(found: Found, truth: Truth, run: sf.Run, *, verified: bool) -> None:
    folder, report, spec = run.folder, truth.report, truth.report.plan.spec
    said = {(row.unit, row.observer): row.epsilon for row in folder.privacy.guarantees}
    found.same("privacy.json", "rows", said, {(r.unit, r.observer): r.epsilon for r in report.guarantees})
    _notebook(found, run._repr_html_(), report.guarantees)
    last = run.metrics.iloc[-1]
    shown = {
        name.removeprefix("epsilon:"): float(last[name]) for name in last.index if name.startswith("epsilon:")
    }
    logged = json.loads((folder.path / "rounds.jsonl").read_text().splitlines()[-1])["metrics"]
    in_log = {name.removeprefix("epsilon:"): float(e) for name, e in logged.items() if "epsilon:" in name}
    found.same("rounds.jsonl", "columns", in_log, shown)
    truth.choose_as(shown)
    if spec.control is None:
        found.same("metrics", "last round", shown, pytest.approx(dict(truth.columns), rel=1e-12))
    else:  # what was spent is not above the budget
        above = {name: e for name, e in shown.items() if e > truth.columns[name] * (1 + 1e-9)}
        found.same("metrics", "spent beyond the budget", above, {})
    for name in shown:
        column = run.metrics[f"epsilon:{name}"].dropna()
        found.same("metrics", f"{name} never falls", bool(column.is_monotonic_increasing), True)
    _report(found, truth, run)
    _statement(found, truth, run, verified=verified)
    row = compare([folder.path]).table().iloc[0]
    main = truth.rows("device") or truth.rows("record")
    for observer in ("cloud", "public"):
        rows = [one for one in main if one.observer == observer]
        if rows:
            kind = rows[0].unit.partition(":")[0]
            wanted = max(truth.own(unit, observer) for unit in truth.units(kind, observer))
            found.same("compare", observer, float(row[f"epsilon_{observer}"]), wanted)


_ASIDE = r": ∞$| of groups? \d+(?:, \d+)*(?: and \d+)?"
"""Behind names of observers: that ε is ∞, and which groups a worker is in."""


def _report(found: Found, truth: Truth, run: sf.Run) -> None:
    page = (run.folder.path / "report.html").read_text()
    headline = unescape(page.split('aria-label="Headline"')[1].split("</section>")[0]).replace("\u00a0", " ")
    tiles = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", headline))
    main = truth.rows("device") or truth.rows("record")
    found.same("report", "tiles", bool(tiles), True)
    for observer in ("cloud", "public"):
        rows = [row for row in main if row.observer == observer]
        if f"the {observer}" in tiles and rows:
            kind = rows[0].unit.partition(":")[0]
            wanted = upper_bound(max(truth.own(unit, observer) for unit in truth.units(kind, observer)))
            found.same("report", f"tile of the {observer}", tiles[f"the {observer}"].split(" ")[0], wanted)
    figures = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert figures is not None
    titled = truth.report.plan.parties.titled
    wanted = {titled(name).replace(":", " "): epsilon for name, epsilon in truth.columns.items()}
    for name, figure in json.loads(figures[1]).items():
        if not name.endswith("-epsilon") or truth.report.plan.spec.control is not None:
            continue
        for line in figure["data"]:
            names, endless = re.sub(_ASIDE, "", unescape(line["name"])), line.get("yaxis") == "y2"
            names = names.replace("worker ", "device ")
            ends = [
                wanted[observer] for observer in re.split(", | and ", names)
            ]  # one curve: they read alike
            found.same("report", f"ends of {names}", len(set(map(upper_bound, ends))), 1)
            if not endless and math.isfinite(max(ends)):
                found.same(
                    "report",
                    f"end of the curve of {names}",
                    line["y"][-1],
                    pytest.approx(max(ends), rel=1e-12),
                )
    found.same("report", "excuse", "counts all that might have been sent" in page, False)
    for row in _largest_of_cells(
        truth.report.guarantees, labels_for(read_network(run.folder.spec_dict)), first=20
    ):
        found.same("report", f"ε of {row.unit}", f">{upper_bound(row.epsilon)}<" in page, True)


def _largest_of_cells(rows: Sequence[Guarantee], labels: ObserverLabels, *, first: int) -> list[Guarantee]:
    """Of the rows that share a cell of a report, the one with the largest ε, for the ``first`` rows.

    A cell is of alike units of several ε, such as records of unequal sites, towards alike observers.
    """
    cells = [(labels.row(row.unit, row.sites), labels.column(row.unit, row.observer)) for row in rows]
    largest: dict[tuple[Row, Column], Guarantee] = {}
    for cell, row in zip(cells, rows, strict=True):
        if cell not in largest or row.epsilon > largest[cell].epsilon:
            largest[cell] = row
    return [largest[cell] for cell in dict.fromkeys(cells[:first])]


def _statement(found: Found, truth: Truth, run: sf.Run, *, verified: bool) -> None:
    folder = run.folder
    if verified:
        statement = _statement_of_run(folder.path)
        found.same("statement", "mismatches", ": 0 mismatches" in statement.run.verified, True)
    else:
        statement = Statement(folder.spec_dict, folder.privacy, "A run", {})
    document = statement.to_dict()
    for row in document["largest"]:
        kind, whom = row["unit"], row["observer_is"]
        if whom in ("cloud", "public"):
            wanted = [
                truth.own(unit, whom)
                for unit in truth.units(kind, whom)
                if _trusts(truth, unit, whom) == row["trusted_by_the_unit"]
            ]
            found.same("statement", f"{kind} towards the {whom}", float(row["epsilon"]), max(wanted))
    names = truth.report.plan.parties.site_names
    lines = {(one["site"], one["unit"]): one["epsilon"] for one in document["sites"]}
    for (site, kind), towards in lines.items():
        for whom, epsilon in towards.items():
            observer = whom.partition(",")[0]
            if observer in ("cloud", "public"):
                units = list(_at(truth, names.index(site), kind))
                wanted = max(truth.own(unit, observer) for unit in units)
                found.same("statement", f"{site} towards the {observer}", float(epsilon), wanted)
    if document["sites"]:
        missing = [
            (site, kind)
            for site in names
            for kind in unit_kinds(truth.report.plan)
            if (site, kind) not in lines
        ]
        found.same("statement", "sites without a line", missing, [])
    page = statement_page(statement)
    for row in truth.report.guarantees[:20]:
        found.same("statement", f"ε of {row.unit}", f">{upper_bound(row.epsilon)}<" in page, True)


def _at(truth: Truth, site: int, kind: str) -> Iterator[str]:
    """The units at a site: the device, or the devices under the leaf, of that number."""
    parties = truth.report.plan.parties
    if parties.device_names:
        yield f"{kind}:{site}"
        return
    tree: Any = parties
    yield from (f"{kind}:{device}" for device in tree.devices_under(site))


def _console_of_run(found: Found, truths: Sequence[Truth], runs: Sequence[sf.Run], folder: Path) -> None:
    if truths[0].report.plan.spec.control is not None:
        return
    said = io.StringIO()
    with redirect_stdout(said):
        run_command._print_summary(folder, [run.folder.path for run in runs], 1)
    text = " ".join(said.getvalue().split())
    wanted: dict[str, float] = {}
    for truth in truths:
        for name, epsilon in truth.columns.items():
            wanted[name] = max(epsilon, wanted.get(name, 0.0))
    titled, unit = truths[0].report.plan.parties.titled, truths[0].report.plan.spec.privacy.unit
    of_records = re.search(rf"ε of a {unit}: (.*?) \(δ", text)
    # `watch` may name peers where there are none
    is_told = bool(wanted) and unit in ("record", "person")
    found.same("console of run", "of a record or person", bool(of_records), is_told)
    for name, epsilon in wanted.items():
        shown = f"{titled(name)} {upper_bound(epsilon)}"
        told = f"ε {shown}, " in text or f"ε {shown} (" in text or f"ε {shown} of a device (" in text
        if of_records:
            told = shown in of_records[1].split(", ")
        found.same("console of run", shown, told, True)
