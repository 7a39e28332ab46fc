"""docs/ shows what the kept results of the studies say: nothing edited by hand, nothing out of date."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pyarrow.parquet as pq
import pytest
from places import ROOT

from sfumato.studies.grids import StudyPlan
from sfumato.studies.load import load_study, study_names

DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "<!-- study: " in page.read_text("utf-8"))
NAME = "hdp/table4"
"""A study of accounts, for results that are made up here."""


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("study_results", DOCS / "study_results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its data classes look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with pages and results in a folder of their own."""
    module = loaded()
    for name, folder in (("DOCS", ""), ("KEPT", "results"), ("PICTURES", "images")):
        monkeypatch.setattr(module, name, tmp_path / folder)
    return module


def made_up(tool: ModuleType, out: Path, *, without: int = 0) -> str:
    """Keep a result in which every ε towards the cloud is 7; ``without``: so many points are missing."""
    plan = StudyPlan.of(*load_study(NAME))
    points = [(grid, point) for grid in plan.study.grids for point in tool.points_of(plan.axes(grid))]
    rows = [
        {"grid": grid, "point": point.folder_name, "seed": 0, "measure": "epsilon:cloud", "series": "",
         "at": float("nan"), "unit": -1, "observer": -1, "value": 7.0}
        for grid, point in points[without:]
    ]  # fmt: skip
    plan.folder(out).mkdir(parents=True)
    pd.DataFrame(rows).to_parquet(plan.folder(out) / tool.TABLE_FILE)
    said: str = tool.keep(NAME, out)
    return said


def page_with(folder: Path, parts: str, body: str) -> Path:
    page = folder / "page.md"
    page.write_text(
        f"# Page\n<!-- study: {NAME}{parts} -->\n{body}\n<!-- end of study -->\nAfter.\n", "utf-8"
    )
    return page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_what_the_kept_results_say(page: Path) -> None:
    assert loaded().page_text(page)[0] == page.read_text("utf-8"), "run make studies-docs"


def test_every_marker_is_closed_and_every_study_stands_on_a_page() -> None:
    tool, found = loaded(), []
    for page in PAGES:
        text = page.read_text("utf-8")
        blocks = [block["name"].strip() for block in tool.BLOCK.finditer(text)]
        assert text.count("<!-- study: ") == text.count("<!-- end of study -->") == len(blocks)
        found += blocks
    assert sorted(found) == sorted(study_names())


def test_pictures_are_those_of_the_kept_results() -> None:
    tool = loaded()
    drawn = [tool.picture_file(*pair) for page in PAGES for pair in tool.page_text(page)[1]]
    assert sorted(tool.PICTURES.glob("*.png")) == sorted(drawn)


def test_kept_results_are_small() -> None:
    assert sum(file.stat().st_size for file in (DOCS / "results").rglob("*.parquet")) < 3e6


def test_a_block_is_written_from_the_result_and_an_edit_is_seen(tool: ModuleType, tmp_path: Path) -> None:
    assert made_up(tool, tmp_path / "out").startswith(f"{NAME}: kept")
    page = page_with(tmp_path, " | All levels", "anything")
    text, drawn = tool.page_text(page)
    assert "`sfumato study hdp/table4` (form paper, 1 seed; accounts and formulas, no training):" in text
    assert text.count("| 7 |") == 9
    assert text.endswith("<!-- end of study -->\nAfter.\n")
    assert drawn == []
    page.write_text(text.replace("| 7 |", "| 6 |", 1), "utf-8")
    assert tool.page_text(page)[0] == text


def test_a_result_with_missing_points_is_not_kept(tool: ModuleType, tmp_path: Path) -> None:
    assert made_up(tool, tmp_path / "out", without=2) == f"{NAME}: 2 points and seeds have no value; not kept"
    assert tool.kept_result(NAME) is None


def test_a_block_without_a_result_must_say_so(tool: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must begin with"):
        tool.page_text(page_with(tmp_path, "", "| 7 |"))
    page = page_with(tmp_path, "", f"{tool.NOT_YET}: none.*")
    assert tool.page_text(page)[0] == page.read_text("utf-8")


def test_a_result_of_other_grids_is_refused(tool: ModuleType, tmp_path: Path) -> None:
    made_up(tool, tmp_path / "out")
    file = tool.KEPT / f"{NAME}.parquet"
    table = pq.read_table(file)
    said = json.loads(table.schema.metadata[b"sfumato study"]) | {"fingerprint": "0"}
    pq.write_table(table.replace_schema_metadata({b"sfumato study": json.dumps(said)}), file)
    with pytest.raises(ValueError, match="has other grids now"):
        tool.page_text(page_with(tmp_path, " | All levels", ""))


def test_a_panel_of_one_series_is_a_table_of_it() -> None:
    text = (DOCS / "hdp.md").read_text("utf-8")
    table = text.partition("| clients of a zone that elect |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[2:]]
    assert [clients.strip() for clients, _ in rows] == ["10", "20", "30", "50"]
    assert all(seconds.strip()[0].isdigit() for _, seconds in rows)
