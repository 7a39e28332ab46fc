"""Study files: the built-in ones, and what is wrong with a file in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from sfumato.cli import main
from sfumato.errors import DataError, SpecError
from sfumato.studies import cost
from sfumato.studies.cost import device_steps, quickstart_steps, request_steps, study_steps
from sfumato.studies.grids import StudyPlan, points_of
from sfumato.studies.load import load_study, study_names
from sfumato.studies.measures.computing import FROM_FOLDER, FROM_SPEC
from sfumato.studies.measures.registry import MEASURES, measure_named, title_of_measure
from sfumato.studies.page.document import write_study_page
from sfumato.studies.result import StudyResult
from sfumato.studies.study import COLUMNS
from sfumato.studies.verdicts import judge_statements

TRAINING = {"rounds": 2, "local_steps": 2, "edge_every": 1, "batch_size": 4, "learning_rate": 0.1}
SPEC = {
    "name": "tiny",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 8},
    "model": {"kind": "softmax"},
    "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 2},
    "training": TRAINING,
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
}


def point() -> dict[str, Any]:
    """A measure at one point."""
    return {"measure": "accuracy", "where": {"z": 1.0, "trust": "all"}}


def tiny() -> dict[str, Any]:
    """A study that everything works in."""
    return {
        "title": "Tiny", "paper": "None", "figure": "Fig. 0", "intro": "Nothing.", "seeds": 2,
        "grids": {"main": {"spec": SPEC, "over": [
            {"name": "z", "key": "privacy.noise.multiplier", "values": [1.0, 2.0]},
            {"name": "trust", "cases": {
                "none": {"trust.trusted_edges": 0.0}, "all": {"trust.trusted_edges": 1.0}}},
        ]}},
        "panels": [{"kind": "lines", "title": "A", "measures": ["accuracy"], "x": "z", "lines": "trust"}],
        "values": [point() | {"value": 50, "place": "Fig. 0"}],
        "statements": [{"says": "High.", "place": "Fig. 0", "value": point(), "expect": {"at_least": 0}}],
        "forms": {"digits": {}},
    }  # fmt: skip


def written(folder: Path, study: dict[str, Any]) -> Path:
    """The study as a file."""
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(study, sort_keys=False, allow_unicode=True))
    return path


@pytest.mark.parametrize("name", study_names())
def test_built_in_studies_and_all_their_specs_are_right(name: str, tmp_path: Path) -> None:
    """In every form: no spec of any grid is refused, and every measure that is named exists."""
    _, study = load_study(name)
    for paper in {"paper" in study.forms, False} if study.first_form != "paper" else {True}:
        for quick in (False, True):
            plan = StudyPlan.of(name, study, paper=paper, quick=quick)
            for grid in plan.study.grids:
                request = plan.request(grid, tmp_path)
                assert [failure.message for failure in request.refused] == []
                assert len(request.points) == len(points_of(plan.axes(grid)))
                assert all(title_of_measure(measure) for measure in plan.measures(grid))


def test_points_are_called_as_their_specs_are(tmp_path: Path) -> None:
    _, study = load_study(written(tmp_path, tiny()))
    plan = StudyPlan.of("mine", study)
    settings = {point.folder_name: point.settings for point in points_of(plan.axes("main"))}
    assert len(settings) == 4
    for task in plan.request("main", tmp_path / "out").tasks:
        named = settings[task.point.name]
        assert task.spec.privacy.noise.multiplier == named["z"]
        assert task.spec.trust.trusted_edges == {"none": 0.0, "all": 1.0}[named["trust"]]


def test_a_shortened_study_keeps_some_points_and_sets_what_cases_set(tmp_path: Path) -> None:
    document = tiny()
    document["quick"] = {"set": {"trust.trusted_edges": 0.5}, "keep": {"z": [2.0], "trust": ["all"]}}
    _, study = load_study(written(tmp_path, document))
    tasks = StudyPlan.of("mine", study, quick=True).request("main", tmp_path / "out").tasks
    assert {task.spec.privacy.noise.multiplier for task in tasks} == {2.0}
    assert {task.spec.trust.trusted_edges for task in tasks} == {0.5}


def test_a_study_of_accounts_with_nothing_to_leave_out_is_not_shortened(tmp_path: Path) -> None:
    _, trained = load_study(written(tmp_path, tiny()))
    _, accounted = load_study("hdp/table3")
    assert StudyPlan.of("mine", trained, quick=True).quick
    assert not StudyPlan.of("hdp/table3", accounted, quick=True).quick


Change = Callable[[dict[str, Any]], object]
WRONG: dict[str, tuple[Change, str]] = {
    "an unknown key": (lambda s: s.update(colour="red"), "colour: got 'red'; there is no such key"),
    "no panels": (lambda s: s.update(panels=[]), "panels: got []; must have at least 1 entries"),
    "an axis without values": (
        lambda s: s["grids"]["main"]["over"][0].pop("values"), "values: must have at least one entry"),
    "an axis with a key and cases": (
        lambda s: s["grids"]["main"]["over"][1].update(key="seed"), "needs either key and values, or cases"),
    "cases with other keys": (
        lambda s: s["grids"]["main"]["over"][1]["cases"]["all"].update(seed=1), "not in both: seed"),
    "two axes of a name": (
        lambda s: s["grids"]["main"]["over"][1].update(name="z"), "over[1].name: got 'z'; names two axes"),
    "an axis like a column": (
        lambda s: s["grids"]["main"]["over"][0].update(name="seed"), "is a column of every table"),
    "no such measure": (
        lambda s: s["panels"][0].update(measures=["acuracy"]), "(did you mean 'accuracy'?)"),
    "a measure without its argument": (
        lambda s: s["panels"][0].update(measures=["energy_to"]), "needs an argument: energy_to:..."),
    "a measure of runs where nothing is trained": (
        lambda s: (s["grids"]["main"].update(trains=False), s.update(values=[], statements=[])),
        "is measured of runs, and this grid has trains: false"),
    "no such axis": (lambda s: s["panels"][0].update(x="y"), "panels[0].x: got 'y'; is no axis of this grid"),
    "no such value": (
        lambda s: s["values"][0]["where"].update(z=3), "values[0].where.z: got 3; must be one of 1.0, 2.0"),
    "several points": (
        lambda s: s["statements"][0]["value"]["where"].pop("z"), "selects 2 points; give z too"),
    "no such grid": (
        lambda s: s["panels"][0].update(grid="mian"), "must be one of main (did you mean 'main'?)"),
    "nothing expected": (lambda s: s["statements"][0].pop("expect"), "expect: is required beside value"),
    "an expectation of nothing": (
        lambda s: s["statements"][0].update(expect={}),
        "needs at_least, at_most, about and within, or infinite"),
    "an expectation of ∞ and a number": (
        lambda s: s["statements"][0].update(expect={"infinite": True, "at_least": 1}),
        "expect.infinite: got True; goes with nothing else"),
    "a best point less another": (
        lambda s: s["statements"][0]["value"].update(best="highest", minus={"z": 2.0}),
        "minus: goes without best"),
    "a difference from a setting that is none": (
        lambda s: s["statements"][0]["value"].update(minus={"z": 7}), "value.minus.z: got 7; must be one of"),
    "a stated difference from a setting that is none": (
        lambda s: s["values"][0].update(minus={"z": 7}), "values[0].minus.z: got 7; must be one of"),
    "lines of differences": (
        lambda s: s["panels"][0].update(minus={"z": 1.0}), "panels[0].minus: goes with bars and dots only"),
    "a panel's difference from no axis": (
        lambda s: s["panels"][0].update(kind="dots", minus={"zz": 1.0}), "panels[0].minus.zz: is no axis"),
    "ends of an axis that descend": (
        lambda s: s["panels"][0].update(y_range=[3, 1]),
        "panels[0].y_range: got [3.0, 1.0]; must be two ascending"),
    "ends of a logarithmic axis": (
        lambda s: s["panels"][0].update(y_range=[1, 3], log=True),
        "y_range: got [1.0, 3.0]; goes without log"),
    "a title of what is not shown": (
        lambda s: s.update(titles={"energy": "J"}), "titles.energy: is a measure of no panel"),
    "ends the wrong way": (
        lambda s: s["statements"][0].update(expect={"at_least": 2, "at_most": 1}), "not be below at_least"),
    "about without within": (
        lambda s: s["statements"][0].update(expect={"about": 2}), "needs about and within together"),
    "two baselines": (
        lambda s: s["statements"][0].update(minus=point(), relative_to=point()), "goes without minus"),
    "a value that is not kept": (lambda s: s.update(quick={"keep": {"z": [3]}}), "must be some of 1.0, 2.0"),
    "a line through several points": (
        lambda s: s["panels"][0].pop("lines"), "panels[0].where: selects 2 points; give trust too"),
    "lines over nothing": (lambda s: s["panels"][0].pop("x"), "x: is required of lines"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_line_that_names_the_file_and_the_key(name: str, tmp_path: Path) -> None:
    change, said = WRONG[name]
    document = tiny()
    change(document)
    path = written(tmp_path, document)
    with pytest.raises(SpecError) as raised:
        load_study(path)
    message = str(raised.value)
    assert said in message
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


def test_a_study_that_does_not_exist_is_said_with_the_nearest_name() -> None:
    with pytest.raises(
        SpecError, match=r"h2fdp/fig66: is neither a study nor a file \(did you mean 'h2fdp/fig6'\?\)"
    ):
        load_study("h2fdp/fig66")


def test_a_form_that_a_study_lacks_is_refused(tmp_path: Path) -> None:
    _, study = load_study(written(tmp_path, tiny()))
    with pytest.raises(SpecError, match="has no such form; it has digits"):
        StudyPlan.of("mine", study, paper=True)


def in_two_forms() -> dict[str, Any]:
    """A study with a grid of one form and a grid of another."""
    document = tiny()
    main = document["grids"]["main"]
    larger = SPEC | {"data": {"source": "synthetic", "examples_per_device": 16}}
    document["grids"] = {
        "main": main | {"forms": ["digits"]},
        "own": main | {"spec": larger, "forms": ["paper"]},
    }
    document["forms"] = {"digits": {}, "paper": {"unstated": "Nothing."}}
    for key in ("panels", "values"):
        document[key] = [document[key][0] | {"grid": grid} for grid in ("main", "own")]
    said = document["statements"][0]
    document["statements"] = [said | {"value": point() | {"grid": grid}} for grid in ("main", "own")]
    return document


def test_grids_of_a_form_are_run_shown_and_judged_in_that_form_only(tmp_path: Path) -> None:
    _, study = load_study(written(tmp_path, in_two_forms()))
    for paper, grid, examples in ((False, "main", 8), (True, "own", 16)):
        plan = StudyPlan.of("mine", study, paper=paper)
        assert list(plan.study.grids) == [grid]
        assert [panel.grid for panel in plan.study.panels] == [grid]
        assert [value.grid for value in plan.study.values] == [grid]
        assert [one.terms[0].grid for one in plan.study.statements] == [grid]
        assert plan.study.unstated == ("Nothing." if paper else "")
        tasks = plan.request(grid, tmp_path / "out").tasks
        assert {task.spec.data.examples_per_device for task in tasks} == {examples}


def test_what_a_full_run_found_is_said_of_the_first_form_only(tmp_path: Path) -> None:
    document = in_two_forms() | {"found": "Half of it."}
    name, study = load_study(written(tmp_path, document))
    plans = {paper: StudyPlan.of(name, study, paper=paper) for paper in (False, True)}
    pages = {}
    for paper, plan in plans.items():
        empty = pd.DataFrame(columns=[*COLUMNS])
        verdicts = judge_statements(plan, empty)
        result = StudyResult(plan, tmp_path / plan.form, empty, verdicts, (), 0.0, 0)
        result.folder.mkdir()
        write_study_page(result)
        pages[paper] = result.page.read_text("utf-8")
    assert "What a full run of the form digits found: Half of it." in pages[False]
    assert "Half of it." not in pages[True]
    assert "What a full run" not in pages[True]


def test_a_cost_that_data_elsewhere_decide_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(*_: object) -> None:
        raise DataError("femnist: not here")

    monkeypatch.setattr(cost, "dataset_facts", absent)
    assert main(["study", "--paper"]) == 0
    listed = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[-3:] for line in listed.splitlines() if "/" in line.split(" ")[0]}
    assert rows["pfels/table2"] == ["?", "?", "0/360"]  # its steps follow from epochs
    assert rows["h2fdp/fig9"][0] not in "?–"  # its steps are stated
    assert "?: depends on the sizes of data that are not on this machine" in listed


FORMLESS: dict[str, tuple[Change, str]] = {
    "an unknown form": (
        lambda s: s["grids"]["main"].update(forms=["digits", "papr"]),
        "grids.main.forms: got 'papr'; is no form; forms: digits, paper"),
    "nothing to show": (
        lambda s: s["panels"].pop(), "forms.paper: shows nothing: no panel is of a grid of this form"),
    "grids that are never together": (
        lambda s: s["statements"][0].update(minus=point() | {"grid": "own"}),
        "statements[0]: compares grids that no form has together"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMLESS)
def test_what_no_form_has_is_refused(name: str, tmp_path: Path) -> None:
    change, said = FORMLESS[name]
    document = in_two_forms()
    change(document)
    with pytest.raises(SpecError) as raised:
        load_study(written(tmp_path, document))
    assert said in str(raised.value)


def test_a_wrong_spec_of_a_study_is_refused_with_its_key(tmp_path: Path) -> None:
    document = tiny()
    document["grids"]["main"]["spec"] = SPEC | {"protocol": "h2fpd"}
    _, study = load_study(written(tmp_path, document))
    with pytest.raises(SpecError, match="protocol: got 'h2fpd'"):
        StudyPlan.of("mine", study).request("main", tmp_path / "out")


def test_the_spec_of_a_grid_may_be_a_file_beside_the_study(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(SPEC))
    document = tiny()
    document["grids"]["main"]["spec"] = "base.yaml"
    _, study = load_study(written(tmp_path, document))
    assert StudyPlan.of("mine", study).request("main", tmp_path / "out").tasks[0].spec.name == "tiny"


@pytest.mark.parametrize(("changes", "steps"), [
    ({}, 2 * 4 * 2),
    ({"participation": {"kind": "poisson", "rate": 0.5}}, 2 * 2 * 2),
    ({"participation": {"kind": "fixed", "count": 1}}, 2 * 2 * 2),
    ({"local_steps": None, "edge_every": None, "local_epochs": 3}, 2 * 4 * 3 * 2),
    ({"local_steps": None, "edge_every": None, "local_epochs": 3, "batch_size": "all"}, 2 * 4 * 3),
])  # fmt: skip
def test_device_steps_by_hand(changes: dict[str, Any], steps: float) -> None:
    """Two rounds of four devices with two steps each, or three passes over 8 examples in batches of 4."""
    from sfumato.spec import load_spec

    training = {key: value for key, value in {**TRAINING, **changes}.items() if value is not None}
    assert device_steps(load_spec(SPEC | {"training": training})) == steps


def test_the_quickstart_has_sixty_thousand_device_steps() -> None:
    assert quickstart_steps() == 15 * 200 * 20


def test_every_measure_is_measured_in_one_way() -> None:
    for name in MEASURES:
        measure = MEASURES[name]
        assert (name in FROM_FOLDER) != (name in FROM_SPEC)
        assert (name in FROM_SPEC) == (measure.source == "formula")
    with pytest.raises(SpecError, match="takes no argument"):
        measure_named("loss:1")


@pytest.mark.parametrize("name", ["h2fdp/fig5", "h2fdp/fig7", "hdp/fig3", "dp-ogl/fig3", "pfels/table2"])
def test_the_list_costs_a_study_as_its_runs_do(name: str, tmp_path: Path) -> None:
    plan = StudyPlan.of(*load_study(name), quick=True)
    requests = [plan.request(grid, tmp_path) for grid in plan.study.grids]
    assert study_steps(plan) == sum(map(request_steps, requests)) > 0


def test_a_panel_may_show_the_best_points_and_says_which_axes_stay(tmp_path: Path) -> None:
    document = tiny()
    best = {"kind": "lines", "title": "Best", "measures": ["accuracy"], "x": "z", "best": "highest"}
    document["panels"] = [best]
    load_study(written(tmp_path, document))
    document["panels"] = [best | {"per": ["nothing"]}]
    with pytest.raises(SpecError, match="is no axis of this grid"):
        load_study(written(tmp_path, document))
    document["panels"] = [{key: value for key, value in best.items() if key != "best"} | {"per": ["trust"]}]
    with pytest.raises(SpecError, match="goes with best only"):
        load_study(written(tmp_path, document))


def test_the_three_workers_are_told_with_their_noise_and_delta() -> None:
    _, loaded = load_study("dp-ogl/examples")
    privacy = loaded.grids["examples"].spec["privacy"]
    sigma, delta, norm = privacy["noise"]["multiplier"], privacy["delta"], privacy["clip"]["norm"]
    said = f"σ = {sigma:g}, clipped to norm {norm:g}, every worker in every epoch; ε at δ = 1e-5."
    assert delta == 1e-5
    assert said in loaded.intro
    assert "participation" not in loaded.grids["examples"].spec["training"]
    rounds = [case["training.rounds"] for case in loaded.grids["examples"].over[0].cases.values()]
    assert rounds == [3, 3, 4]
    assert "Examples 1 and 2 are at the paper's t = 4, after three epochs." in loaded.unstated
    assert "Example 3 has t = 4 in the paper, too; it is computed here at t = 5" in loaded.unstated
    theorem = next(one for one in loaded.statements if one.place == "Theorem 1, (17)")
    assert theorem.expect is not None
    assert (theorem.expect.about, theorem.value.series if theorem.value else "") == (0, "releases")
    assert "Worker 1 towards worker 3 has 2 in (26), rightly" in loaded.found
    assert "0 by Theorems 1 and 2, (17) and (21)" in loaded.found
