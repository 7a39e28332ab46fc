"""A tiny study from its file to its page, resumed, shortened, by the command, and the list of studies."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from forked_workers import ForkedExecutor
from test_study_files import tiny, written

from sfumato.cli import main
from sfumato.errors import DataError
from sfumato.pool import on_loky
from sfumato.studies import runner
from sfumato.studies.catalogue import catalogue, done_runs
from sfumato.studies.grids import StudyPlan
from sfumato.studies.load import load_study, study_names
from sfumato.studies.result import StudyResult
from sfumato.studies.runner import run_study
from sfumato.studies.verdicts import Outcome


def study() -> dict[str, Any]:
    """The tiny study with every kind of panel, accounts, and a formula of its own."""
    document = tiny()
    document["found"] = "Nothing of note."
    document["grids"]["groups"] = {"trains": False, "seeds": 1, "spec": {
        "name": "three", "protocol": "dp-ogl", "data": {"source": "synthetic", "examples_per_device": 8},
        "model": {"kind": "softmax"},
        "topology": {"kind": "groups", "structure": "list", "groups": [[0, 1], [1, 2]], "devices": 3},
        "training": {"rounds": 3, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1, "merge_every": 2},
        "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
    }, "over": [{"name": "sigma", "key": "privacy.noise.multiplier", "values": [2.0]}]}  # fmt: skip
    main = {"grid": "main", "measures": ["accuracy"]}
    groups = {"grid": "groups", "where": {}}
    document["panels"] = [
        main | {"kind": "lines", "title": "Lines", "x": "z", "lines": "trust"},
        main | {"kind": "lines", "title": "Rounds", "x": "at", "lines": "trust"}
        | {"measures": ["loss_by_round"], "where": {"z": 1.0}},
        main | {"kind": "bars", "title": "Bars", "x": "trust", "lines": "z"},
        main | {"kind": "bars", "title": "Of z = 2 alone", "x": "trust", "where": {"z": 2.0}},
        main | {"kind": "heatmap", "title": "Heat", "x": "z", "y": "trust"},
        main | {"kind": "table", "title": "Table", "measures": ["accuracy", "epsilon:cloud"]},
        groups
        | {"kind": "pairs", "title": "Pairs", "measures": ["pairs"], "series": ["rigorous", "releases"]},
        groups | {"kind": "lines", "title": "PwP", "measures": ["pwp:1"], "x": "at", "series": ["rigorous"]},
    ]  # fmt: skip
    for part in (document["values"][0], document["statements"][0]["value"]):
        part["grid"] = "main"
    document["statements"][0]["expect"] = {"at_least": -1000}  # whatever two seeds give
    document["statements"].append({
        "says": "Worker 1 is charged two releases towards worker 3.", "place": "Example 2",
        "value": {"grid": "groups", "measure": "pairs", "series": "releases", "unit": 0, "observer": 2},
        "expect": {"about": 2, "within": 0},
    })  # fmt: skip
    document["quick"] = {"set": {"training.rounds": 1}, "keep": {"z": [1.0]}}
    return document


pytestmark = pytest.mark.usefixtures("fast_workers")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("files"), study())


@pytest.fixture(scope="module")
def ran(file: Path, tmp_path_factory: pytest.TempPathFactory, no_report_in_module: None) -> StudyResult:
    name, loaded = load_study(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_loky, "ProcessPoolExecutor", ForkedExecutor)
        return run_study(StudyPlan.of(name, loaded), tmp_path_factory.mktemp("out"), workers=1)


def out_of(result: StudyResult) -> Path:
    return result.folder.parents[1]


def test_nothing_failed_and_all_was_measured(ran: StudyResult) -> None:
    assert ran.failures == ()
    table = pd.read_parquet(ran.folder / "results.parquet")
    pd.testing.assert_frame_equal(table["value"].to_frame(), ran.table["value"].to_frame())
    trained = table[table["measure"] == "accuracy"]
    assert len(trained) == 2 * 2 * 2  # z, trust, seeds
    assert set(zip(trained["z"], trained["trust"], strict=True)) == {
        (z, t) for z in (1.0, 2.0) for t in ("none", "all")
    }
    assert set(table["measure"]) == {"accuracy", "loss_by_round", "epsilon:cloud", "pairs", "pwp:1"}
    assert set(table[table["measure"] == "loss_by_round"]["z"]) == {1.0}  # asked for there only


def test_releases_of_example_2_are_counted_and_judged(ran: StudyResult) -> None:
    assert [verdict.outcome for verdict in ran.verdicts] == [Outcome.AGREES, Outcome.AGREES]
    assert ran.verdicts[1].value == 2


def test_the_page_holds_verdicts_figures_and_the_papers_value(ran: StudyResult) -> None:
    page = ran.page.read_text("utf-8")
    for title in ("Lines", "Rounds", "Bars", "Heat", "Table", "Pairs", "PwP"):
        assert f">{title}</h3>" in page
    assert '<div class="lead"><p>What a full run found: Nothing of note.</p></div>' in page
    assert page.index("Nothing of note.") < page.index("Verdicts on 2 checks") < page.index("agrees.</td>")
    assert f"<p>{ran.plan.study.intro}</p>" in page
    assert "agrees." in page
    assert "Verdicts on 2 checks of sentences of the paper: agrees 2." in page
    assert "Grid groups: 1 spec, accounted for, not trained." in page
    assert "Grid main: 4 specs, trained with 2 seeds each (z: 1 and 2; trust: none and all)." in page
    assert ">measured</th>" in page  # one of the grids trains
    assert '"the paper"' in page
    assert "sfumato study mine" in page
    assert "shortened run" not in page
    shown = page.partition('<script type="application/json"')[0]  # what follows is data and plotly
    assert re.search(r"src=\"http|href=\"http", shown) is None


def test_pairs_of_few_workers_are_a_table_and_no_heatmap(ran: StudyResult) -> None:
    page = unescape(ran.page.read_text("utf-8"))
    shown = page.partition('<script type="application/json"')[0]
    assert "-workers" not in shown  # the kind of a heatmap of workers
    table = shown.partition(">Pairs</h3>")[2].partition("</table>")[0].replace("\u00a0", " ")
    heads = re.findall(r"<th [^>]*>(.*?)</th>", table)
    assert heads == ["worker → observer", "rigorous ε", "releases"]
    releases = {row[0]: row[2] for row in re.findall(r"<td[^>]*>(.*?)</td>" * 3, table)}
    assert releases == {"0 → 1, 1 → 0, 1 → 2, 2 → 1": "3", "0 → 2, 2 → 0": "2"}


def test_what_is_there_is_kept(ran: StudyResult) -> None:
    """Run again: not one file of a run or a measure is written anew, and the table is the same."""
    kept = {path: path.stat().st_mtime_ns for path in ran.folder.rglob("seed-*/result.json")}
    kept |= {path: path.stat().st_mtime_ns for path in ran.folder.rglob("measures/*/*.parquet")}
    assert len(kept) == 8 + 1 + 2
    said: list[str] = []
    again = run_study(ran.plan, out_of(ran), workers=1, tell=said.append)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert len(said) == len(kept)
    assert all(line.endswith("was there") for line in said)
    pd.testing.assert_frame_equal(again.table, ran.table)


def test_a_lost_run_and_a_lost_measure_are_done_again(ran: StudyResult) -> None:
    lost = next(iter(ran.folder.rglob("measures/*/*.parquet")))
    lost.unlink()
    result = sorted(ran.folder.rglob("seed-1/result.json"))[0]
    result.unlink()
    said: list[str] = []
    again = run_study(ran.plan, out_of(ran), workers=1, tell=said.append)
    assert sum("was there" not in line for line in said) == 2
    pd.testing.assert_frame_equal(again.table, ran.table)
    assert lost.is_file()
    assert result.is_file()


def test_a_measure_of_another_spec_or_version_is_not_kept(
    ran: StudyResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = study()
    document["grids"]["groups"]["spec"]["training"]["rounds"] = 4
    name, loaded = load_study(written(tmp_path, document))
    from sfumato.studies.observations import formula_tasks

    plan = StudyPlan.of(name, loaded)
    other = formula_tasks(plan, "groups", plan.request("groups", tmp_path))[0]
    ours = formula_tasks(ran.plan, "groups", ran.plan.request("groups", out_of(ran)))[0]
    other.file.parent.mkdir(parents=True)
    other.file.write_bytes(ours.file.read_bytes())
    assert ours.is_done
    assert not other.is_done
    monkeypatch.setattr("sfumato.studies.observations.versions", lambda: {"sfumato": "0.0.0"})
    assert not ours.is_done  # another version may compute it otherwise


def test_the_command_runs_a_shortened_study_and_marks_it(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["study", str(file), "--quick", "--seeds", "1", "--workers", "1", "--out", str(tmp_path)]) == 0
    )
    page = tmp_path / "mine" / "digits-quick" / "index.html"
    assert capsys.readouterr().out.strip() == str(page)
    assert "A shortened run, for a look" in page.read_text("utf-8")
    assert "What a full run found: Nothing of note." in page.read_text("utf-8")
    assert "Of z = 2 alone" not in page.read_text("utf-8")  # its points are not run
    table = pd.read_parquet(page.parent / "results.parquet")
    assert table["quick"].all()
    assert set(table[table["grid"] == "main"]["z"]) == {1.0}


def test_missing_data_of_a_form_that_needs_them_are_refused_once_and_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = study()
    document["forms"] = {"paper": {"needs": "CIFAR-10.", "set": {"data.source": "cifar10"}}}
    document["grids"]["main"]["spec"]["data"] = {"source": "cifar10"}
    document["grids"]["groups"]["spec"]["data"] = {"source": "cifar10"}
    asked: list[str] = []

    def missing(source: str, request: object) -> None:
        asked.append(source)
        raise DataError("not here")

    monkeypatch.setattr(runner, "load_dataset", missing)
    with pytest.raises(DataError, match="not here"):
        run_study(StudyPlan.of(*load_study(written(tmp_path, document)), paper=True), tmp_path / "out")
    assert asked == ["cifar10"]
    assert not (tmp_path / "out").exists()


def test_the_list_names_every_study_its_cost_and_what_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in study_names())
    entries = {entry.plan.name: entry for entry in catalogue(tmp_path)}
    assert entries["h2fdp/thm43"].steps == 0
    assert entries["h2fdp/fig6"].steps == 15 * 5 * 200 * 50 * 20
    assert entries["h2fdp/fig6"].quickstarts == pytest.approx(15 * 5 * 200 * 50 * 20 / 60_000)
    assert {entry.done for entry in entries.values()} == {0}


def test_done_runs_are_those_with_results(ran: StudyResult) -> None:
    for grid, runs in {"main": 8, "groups": 1}.items():
        assert len(done_runs(ran.plan.request(grid, out_of(ran)))) == runs


def test_an_unknown_study_is_one_line_and_exit_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "h2fdp/fig66"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "did you mean 'h2fdp/fig6'?" in error
