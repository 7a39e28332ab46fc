"""Writes results of the studies into the pages of docs: tables, verdicts and pictures, between markers.

    make studies-docs OUT=runs/studies    keeps what is complete there in docs/results, then writes the pages
    make studies-docs                     writes the pages from what is kept

A marker names a study and what of it stands there: titles of its panels, ``verdicts``, or ``found``.

    <!-- study: h2fdp/fig6 | Accuracy by the share of trusted edges | verdicts -->
    ...
    <!-- end of study -->

What stands between belongs to this script as soon as the study has a result. Until then it must begin with
`NOT_YET`. ``tests/test_study_results.py`` refuses a page that is not what this script writes. Pictures are
taken with Chromium (Debian: apt-get install chromium), those of panels whose results are new.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sfumato.rounding import number
from sfumato.studies.cost import quickstart_steps, request_steps
from sfumato.studies.grids import TABLE_FILE, StudyPlan, points_of, setting_text
from sfumato.studies.load import load_study, study_names
from sfumato.studies.page.agreement import expected_text, measured_text
from sfumato.studies.page.panel_data import PanelData
from sfumato.studies.result import StudyResult
from sfumato.studies.study import MEASUREMENT_COLUMNS, Panel
from sfumato.studies.verdicts import judge_statements

DOCS = Path(__file__).parent
KEPT = DOCS / "results"
PICTURES = DOCS / "images" / "studies"
NOT_YET = "*Not yet from a full run of the study"
BLOCK = re.compile(
    r"<!-- study: (?P<name>[^|\n]+?)(?P<parts>( \| [^|\n]+)*) -->\n(?P<body>.*?)<!-- end of study -->", re.S
)
FOUND = "found"
"""The part of a block that is what a full run found, in the words of the study's file."""
_SAID = b"sfumato study"
_DRAWN = ("lines", "bars", "dots")


@dataclass(frozen=True)
class Kept:
    """The result of a study that is kept in the repository.

    Attributes:
        result: with its table and verdicts.
        runs: number of points and seeds that are trained.
        digest: of what is kept.
    """

    result: StudyResult
    runs: int
    digest: str


def fingerprint(plan: StudyPlan) -> str:
    """Of everything that decides what is run: grids of the form, its changes and seeds."""
    grids = {name: grid.model_dump(mode="json", exclude={"forms"}) for name, grid in plan.study.grids.items()}
    seeds = {name: plan.seeds_of(name) for name in grids}
    form = plan.study.forms[plan.form].changes
    said = json.dumps([grids, form, seeds], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def missing_points(plan: StudyPlan, table: pd.DataFrame) -> int:
    """How many points and seeds of a study have no measurement in its table."""
    found = table.groupby(["grid", "point"])["seed"].nunique()
    missing = 0
    for name in plan.study.grids:
        for point in points_of(plan.axes(name)):
            if any(plan.is_asked(name, measure, point) for measure in plan.measures(name)):
                missing += plan.seeds_of(name) - int(found.get((name, point.folder_name), 0))
    return missing


def keep(name: str, out: Path) -> str:
    """Keep the table of a study in ``out``, if it is complete; returns what was done as a line."""
    plan = StudyPlan.of(*load_study(name))
    file = plan.folder(out) / TABLE_FILE
    if not file.is_file():
        return f"{name}: no result in {out}"
    table = pd.read_parquet(file)
    if missing := missing_points(plan, table):
        return f"{name}: {missing} points and seeds have no value; not kept"
    requests = {name: plan.request(name, out) for name in plan.study.grids}
    trained = [request for name, request in requests.items() if plan.study.grids[name].trains]
    steps, runs = sum(map(request_steps, trained)), sum(len(request.tasks) for request in trained)
    said = {"fingerprint": fingerprint(plan), "seeds": plan.seeds, "steps": steps, "runs": runs}
    # ε of single pairs of workers are most of the rows; their means, least and largest stay
    rows = table[table["unit"] < 0] if name == "dp-ogl/fig4" else table
    columns = ["grid", "point", "seed", "measure", *MEASUREMENT_COLUMNS]
    kept = pa.Table.from_pandas(rows[columns], preserve_index=False)
    target = KEPT / f"{name}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(kept.replace_schema_metadata({_SAID: json.dumps(said)}), target, compression="zstd")
    return f"{name}: kept, {target.stat().st_size:,} bytes"


def kept_result(name: str) -> Kept | None:
    """The kept result of a study; ``None`` if there is none.

    Raises:
        ValueError: the study has changed since.
    """
    file = KEPT / f"{name}.parquet"
    if not file.is_file():
        return None
    read = pq.read_table(file)
    said: dict[str, Any] = json.loads((read.schema.metadata or {})[_SAID])
    plan = StudyPlan.of(*load_study(name), seeds=said["seeds"])
    if said["fingerprint"] != fingerprint(plan):
        raise ValueError(f"{file}: the study {name} has other grids now; run it again and keep the result")
    table = read.to_pandas()
    digest = hashlib.sha256(table.to_csv(index=False, float_format="%.12g").encode()).hexdigest()[:12]
    verdicts = judge_statements(plan, table)
    return Kept(StudyResult(plan, KEPT, table, verdicts, (), 0.0, said["steps"]), said["runs"], digest)


def block_text(kept: Kept, parts: list[str], page: Path) -> str:
    """What stands between the markers: the command and its cost, then every part."""
    result, plan = kept.result, kept.result.plan
    seeds = "1 seed" if plan.seeds == 1 else f"{plan.seeds} seeds"
    cost = "accounts and formulas, no training"
    if result.steps:
        multiple = number(result.steps / quickstart_steps(), 2)
        cost = f"{kept.runs:,} runs, {multiple} times the quickstart's device steps"
    lines = [f"`sfumato study {plan.name}` (form {plan.form}, {seeds}; {cost}):"]
    for part in parts:
        if part == FOUND:
            lines.append(plan.study.found.strip())
            continue
        if part == "verdicts":
            lines.append(_verdicts(kept))
            continue
        panel = _panel(kept, part)
        lines.append(f"*{panel.title}*")
        if panel.kind in _DRAWN:
            lines.append(_picture(kept, panel, page))
        if panel.x != "at":
            lines.append(_table(PanelData.of(plan, panel, result.table)))
    return "\n\n".join(lines) + "\n"


def _panel(kept: Kept, title: str) -> Panel:
    found = [panel for panel in kept.result.plan.study.panels if panel.title == title]
    if not found:
        raise ValueError(f"{kept.result.plan.name}: has no panel with the title {title!r}")
    return found[0]


def _verdicts(kept: Kept) -> str:
    rows = [
        [one.statement.says, one.statement.place, expected_text(one), measured_text(one), one.words]
        for one in kept.result.verdicts
    ]
    return _markdown(["sentence", "place", "expected", "measured", "verdict"], rows, numeric=())


def _picture(kept: Kept, panel: Panel, page: Path) -> str:
    up = "../" * (len(page.relative_to(DOCS).parts) - 1)
    return f"![{panel.title}]({up}{picture_file(kept, panel).relative_to(DOCS).as_posix()})"


def picture_file(kept: Kept, panel: Panel) -> Path:
    """The picture of a panel; its name ends with the digest of the results, so an old one is not shown."""
    number_of_panel = kept.result.plan.study.panels.index(panel) + 1
    return PICTURES / f"{kept.result.plan.name.replace('/', '-')}-{number_of_panel}-{kept.digest}.png"


def _table(data: PanelData) -> str:
    """A panel as a table: bars and lines by the axes x and lines, others with a row for every point."""
    panel = data.panel
    if panel.kind in (*_DRAWN, "heatmap") and not data.measure_of_x:
        return _crossed(data, panel.x, panel.lines or panel.y)
    axes = [axis for axis in data.axes if len(axis.settings) > 1]
    measures = [data.measure_of_x, *panel.measures] if data.measure_of_x else panel.measures
    columns = [(measure, series) for measure in measures for series in data.series(measure)]
    headers = [axis.words for axis in axes]
    headers += [", ".join(filter(None, (data.title_of(measure), series))) for measure, series in columns]
    rows = [
        [setting_text(point.settings[axis.name]) for axis in axes]
        + [data.figure_of(measure, data.mean_at(point, measure, series)) for measure, series in columns]
        for point in data.points
    ]
    return _markdown(headers, rows, numeric=range(len(axes), len(headers)))


def _crossed(data: PanelData, down: str, across: str) -> str:
    """The measure of a panel (of several series the one that it shows), by one axis down and one across."""
    measure, series = data.panel.measures[0], data.panel.series[0] if len(data.panel.series) == 1 else ""
    over, lines = data.axis(down), data.axis(across) if across else None
    assert over is not None
    named = (
        [(setting, setting_text(setting)) for setting in lines.settings] if lines else [(None, data.title)]
    )
    rows = []
    for setting in over.settings:
        row = [setting_text(setting)]
        for other, _ in named:
            wanted = {down: setting} | ({across: other} if lines else {})
            points = [point for point in data.points if point.matches(wanted)]
            found = data.mean_at(points[0], measure, series) if points else None
            row.append(data.figure_of(measure, found))
        rows.append(row)
    headers = [over.words, *(f"{lines.words}: {words}" if lines else words for _, words in named)]
    return _markdown(headers, rows, numeric=range(1, len(headers)))


def _markdown(headers: list[str], rows: list[list[str]], numeric: Any) -> str:
    def line(cells: list[str]) -> str:
        return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"

    rule = ["---:" if i in numeric else "---" for i in range(len(headers))]
    return "\n".join([line(headers), line(rule), *map(line, rows)])


def page_text(page: Path) -> tuple[str, list[tuple[Kept, Panel]]]:
    """A page as it must be, and the panels of which it shows pictures.

    Raises:
        ValueError: a marker names what is not there, or a block without a result does not say so.
    """
    drawn: list[tuple[Kept, Panel]] = []

    def written(found: re.Match[str]) -> str:
        name = found["name"].strip()
        parts = [part.strip() for part in found["parts"].split(" | ") if part.strip()]
        if name not in study_names():
            raise ValueError(f"{page.name}: there is no study {name!r}")
        kept = kept_result(name)
        if kept is None:
            if not found["body"].lstrip().startswith(NOT_YET):
                raise ValueError(f"{page.name}: what stands under {name} must begin with {NOT_YET!r}")
            return found[0]
        drawn.extend(
            (kept, panel)
            for part in parts
            if part not in ("verdicts", FOUND) and (panel := _panel(kept, part)).kind in _DRAWN
        )
        head = found[0].partition("\n")[0]
        return f"{head}\n\n{block_text(kept, parts, page)}\n<!-- end of study -->"

    return BLOCK.sub(written, page.read_text("utf-8")), drawn


def main(out: str | None) -> int:
    """Keep what is complete in ``out``, then write all pages; returns the exit status."""
    pages = sorted(DOCS.rglob("*.md"))
    shown = {block["name"].strip() for page in pages for block in BLOCK.finditer(page.read_text("utf-8"))}
    for name in sorted(shown) if out else ():
        print(keep(name, Path(out or "")))
    wanted: dict[Path, tuple[Kept, Panel]] = {}
    for page in pages:
        text, drawn = page_text(page)
        wanted |= {picture_file(kept, panel): (kept, panel) for kept, panel in drawn}
        if text != page.read_text("utf-8"):
            page.write_text(text, "utf-8")
            print(f"{page.relative_to(DOCS)}: written")
    for old in set(PICTURES.glob("*.png")) - set(wanted):
        old.unlink()
    from study_pictures import take_pictures

    return take_pictures({file: pair for file, pair in wanted.items() if not file.is_file()})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if sys.argv[1:] else None))
