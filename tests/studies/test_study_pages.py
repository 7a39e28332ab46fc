"""Pages of studies from tables made by hand: verdicts, captions, numbers, colours, and what is not drawn."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_study_files import SPEC, tiny, written

from sfumato.privacy.claim import Claim
from sfumato.studies.grids import StudyPlan, points_of
from sfumato.studies.load import load_study
from sfumato.studies.measures.accounts import claim_and_rigorous, claimed_epsilon
from sfumato.studies.measures.base import PointFolder
from sfumato.studies.measures.registry import title_of_measure
from sfumato.studies.page.agreement import agreement_figures, verdict_tables
from sfumato.studies.page.curves import grouped_figure, line_figure
from sfumato.studies.page.document import write_study_page
from sfumato.studies.page.matrices import axis_heatmap, worker_heatmaps
from sfumato.studies.page.numbers import with_half_width
from sfumato.studies.page.panel_data import PanelData
from sfumato.studies.page.tables import measure_table
from sfumato.studies.result import StudyResult
from sfumato.studies.study import OWN_QUESTION
from sfumato.studies.verdicts import Outcome, StatementVerdict, judge_statements

Values = Mapping[tuple[str, str], list[float]]
"""(case of trust, measure): one value a seed, of every point with that case."""


def planned(folder: Path, **keys: Any) -> StudyPlan:
    return StudyPlan.of(*load_study(written(folder, tiny() | keys)))


def table_of(plan: StudyPlan, values: Values, *, at: float = math.nan) -> pd.DataFrame:
    return pd.DataFrame([
        {"grid": grid, "point": point.folder_name, "seed": seed, "measure": measure, "series": "", "at": at,
         "unit": -1, "observer": -1, "value": value}
        for grid in plan.study.grids
        for point in points_of(plan.axes(grid))
        for (trust, measure), found in values.items()
        if point.settings["trust"] == trust
        for seed, value in enumerate(found)
    ])  # fmt: skip


def shown(plan: StudyPlan, values: Values, number: int = 0, *, at: float = math.nan) -> PanelData:
    return PanelData.of(plan, plan.study.panels[number], table_of(plan, values, at=at))


ACCURACIES: Values = {("all", "accuracy"): [80.0, 81.0], ("none", "accuracy"): [60.0, 62.0]}
BARS = {"kind": "bars", "title": "A", "measures": ["accuracy"], "x": "trust", "where": {"z": 1.0}}


def gain(place: str, least: float) -> dict[str, Any]:
    terms = [{"measure": "accuracy", "where": {"z": 1.0, "trust": trust}} for trust in ("all", "none")]
    return {
        "says": f"It gains {least} points.", "place": place,
        "value": terms[0], "minus": terms[1], "expect": {"at_least": least},
    }  # fmt: skip


def with_questions(folder: Path) -> StudyResult:
    """Two sentences of the paper, which agree, and two questions, of which one does not."""
    statements = [gain(place, least) for place in ("Fig. 0", OWN_QUESTION) for least in (0, 1)]
    statements[3]["expect"] = {"at_least": 90}
    plan = planned(folder, statements=statements)
    table = table_of(plan, ACCURACIES)
    folder = folder / "page"
    folder.mkdir()
    return StudyResult(plan, folder, table, judge_statements(plan, table), (), 0.0, 1.0)


def test_questions_of_the_study_are_not_counted_as_sentences_of_the_paper(tmp_path: Path) -> None:
    result = with_questions(tmp_path)
    write_study_page(result)
    page = result.page.read_text("utf-8")
    counted = (
        "2 checks of sentences of the paper: agrees 2. On 2 questions of this study: agrees 1, differs 1."
    )
    assert f"<p>Verdicts on {counted}</p>" in page
    paper, questions = verdict_tables(result.verdicts, trained=True)
    assert "What this study checks of the paper" in paper
    assert "differs" not in paper
    assert "Questions of this study, which are no sentences of the paper" in questions
    assert "the paper says" not in questions


def test_dots_stand_over_diamonds_which_are_not_called_the_papers(tmp_path: Path) -> None:
    paper, questions = agreement_figures(with_questions(tmp_path).verdicts)
    assert [trace["name"] for trace in paper.data] == ["expected", "here: agrees"]  # drawn in this order
    assert [trace["name"] for trace in questions.data] == ["expected", "here: agrees", "here: differs"]
    assert paper.title == "The paper's sentences and what was measured, in percentage points"
    assert questions.title == "Questions of this study and what was measured, in percentage points"
    assert paper.caption == (
        "Dots: means and 95 % intervals. Blue: values that would agree with the paper. Diamonds: the value "
        "that the sentence names, or the end of the blue range."
    )
    assert "the paper" not in questions.caption


@pytest.mark.parametrize(("value", "half", "text"), [
    (5_939_000.0, 606_908.0, "5.94e6 ± 0.61e6"), (4.599e7, 3e6, "4.60e7 ± 0.30e7"),
    (1.527e6, 2e-10, "1.527e6"), (594_123.0, 60_691.0, "594,123 ± 60,691"), (80.5, 1.234, "80.5 ± 1.2"),
    (0.0, 0.3, "0.00 ± 0.30"), (80.5, math.nan, "80.5"), (80.5, 0.0, "80.5"), (-3.0, 0.5, "-3.00 ± 0.50"),
    (-0.0202, 2.51, "0.0 ± 2.5"), (0.5556, 1.49, "0.6 ± 1.5"), (46.1, 14.7, "46 ± 15"),
    (0.012, 1e-6, "0.012 ± 1e-6"),
])  # fmt: skip
def test_a_value_ends_with_the_decimal_and_the_power_of_ten_of_its_interval(
    value: float, half: float, text: str
) -> None:
    assert with_half_width(value, half) == text


def test_a_caption_speaks_of_epsilon_where_there_is_one(tmp_path: Path) -> None:
    tables = [
        {"kind": "table", "title": "A", "measures": measures}
        for measures in (["accuracy"], ["accuracy", "epsilon:own-edge"])
    ]
    plan = planned(tmp_path, panels=tables)
    values = {**ACCURACIES, ("all", "epsilon:own-edge"): [2.0, 2.0], ("none", "epsilon:own-edge"): [3.0, 3.0]}
    without, with_epsilon = (measure_table(shown(plan, values, number)) for number in (0, 1))
    assert "of ε the largest" not in without
    assert "of ε the largest" in with_epsilon
    assert ">rigorous ε towards the own edge</th>" in with_epsilon


def test_a_heatmap_of_epsilon_shows_no_means(tmp_path: Path) -> None:
    heat = {"kind": "heatmap", "title": "A", "x": "z", "y": "trust"}
    plan = planned(tmp_path, panels=[heat | {"measures": [one]} for one in ("accuracy", "epsilon:cloud")])
    values = {**ACCURACIES, ("all", "epsilon:cloud"): [2.0, 2.1], ("none", "epsilon:cloud"): [3.0, 3.0]}
    assert axis_heatmap(shown(plan, values)).caption == "Mean of 2 seeds ± half of its 95 % interval."
    epsilon = axis_heatmap(shown(plan, values, 1))
    assert epsilon.caption == "The largest ε over the seeds."
    assert epsilon.data[0]["text"] == [["3", "3"], ["2.1", "2.1"]]


@pytest.mark.parametrize(("measure", "title"), [
    ("epsilon:cloud", "rigorous ε towards the cloud"), ("epsilon:device", "rigorous ε towards a device"),
    ("claimed:Table I@cloud", "claimed ε towards the cloud (Table I)"),
    ("rigorous:one round@public", "rigorous ε towards the public (one round)"), ("energy", "energy, J"),
])  # fmt: skip
def test_heads_of_columns_say_whose_epsilon_it_is(measure: str, title: str) -> None:
    assert title_of_measure(measure) == title


def test_a_mean_of_those_seeds_that_reached_an_accuracy_is_none_of_all(tmp_path: Path) -> None:
    measure = "energy_to:0.75"
    panels = [BARS | {"measures": [measure]}, {"kind": "table", "title": "B", "measures": [measure]}]
    plan = planned(tmp_path, panels=panels, values=[], statements=[])
    values = {("all", measure): [45.0, math.nan], ("none", measure): [50.0, 52.0]}
    figure = grouped_figure(shown(plan, values))
    assert [trace["x"] for trace in figure.data] == [["none"]]
    assert figure.layout["xaxis"]["categoryarray"] == ["none", "all"]  # it keeps its place
    assert figure.layout["xaxis"]["range"] == [-0.5, 1.5]
    assert "Not every seed has a value, so not drawn: all." in figure.caption
    assert "45" not in measure_table(shown(plan, values, 1))


def test_what_never_reaches_an_accuracy_is_named_once(tmp_path: Path) -> None:
    measure = "energy_to:0.75"
    panels = [BARS | {"measures": [measure], "x": "z", "lines": "trust", "where": {}}]
    plan = planned(tmp_path, panels=panels, values=[], statements=[])
    values = {("all", measure): [45.0, math.nan], ("none", measure): [50.0, 52.0]}
    caption = grouped_figure(shown(plan, values)).caption
    assert caption.endswith("so not drawn: all.")  # at both z
    table = table_of(plan, values)
    first = plan.study.panels[0]
    best = next(p.folder_name for p in points_of(plan.axes("main")) if p.matches({"z": 1.0, "trust": "all"}))
    table.loc[table["point"] == best, "value"] = 45.0
    assert grouped_figure(PanelData.of(plan, first, table)).caption.endswith("so not drawn: all, 2.")


@pytest.mark.parametrize(("kind", "marks"), [("lines", "Bars"), ("bars", "Whiskers")])
def test_captions_name_the_marks_that_are_drawn(kind: str, marks: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, panels=[BARS | {"kind": kind, "x": "z", "where": {"trust": "all"}}])
    data = shown(plan, ACCURACIES)
    figure = line_figure(data) if kind == "lines" else grouped_figure(data)
    assert f"Mean of 2 seeds. {marks}: 95 % intervals." in figure.caption


def test_a_setting_has_one_colour_in_all_panels_of_a_page(tmp_path: Path) -> None:
    document = tiny()
    other = json.loads(json.dumps(document["grids"]["main"]))
    many = {f"c{i}": {"trust.trusted_edges": i / 10} for i in range(6)}
    other["over"][1]["cases"] = {
        "most": {"trust.trusted_edges": 0.95},
        **many,
        "all": {"trust.trusted_edges": 1.0},
    }
    lines = {"kind": "lines", "title": "A", "measures": ["accuracy"], "x": "z", "lines": "trust"}
    panels = [
        lines | {"grid": "main"},
        lines | {"grid": "main", "where": {"trust": ["all"]}},
        lines | {"grid": "other", "where": {"trust": ["most", "all"]}},
        lines | {"grid": "other", "where": {"trust": [*many, "all"]}},
    ]
    grids = {"main": document["grids"]["main"], "other": other}
    plan = planned(tmp_path, grids=grids, panels=panels, values=[], statements=[])
    values = {**ACCURACIES, **{(case, "accuracy"): [70.0, 71.0] for case in ("most", *many)}}
    colours = [
        {trace["name"]: trace["line"]["color"] for trace in line_figure(shown(plan, values, number)).data}
        for number in range(4)
    ]
    assert len({of_panel["all"] for of_panel in colours}) == 1
    assert all(len(set(of_panel.values())) == len(of_panel) for of_panel in colours)


def test_settings_of_equal_or_alike_colours_are_told_apart_by_their_dashes(tmp_path: Path) -> None:
    grid = tiny()["grids"]["main"]
    grid["over"][1]["cases"] = {f"c{i}": {"trust.trusted_edges": i / 10} for i in range(9)}
    panel = {"kind": "lines", "title": "A", "measures": ["accuracy"], "x": "z", "lines": "trust"}
    plan = planned(tmp_path, grids={"main": grid}, panels=[panel], values=[], statements=[])
    drawn = line_figure(shown(plan, {(f"c{i}", "accuracy"): [80.0, 81.0] for i in range(9)})).data
    assert len({(trace["line"]["color"], trace["line"]["dash"]) for trace in drawn}) == 9
    blue, light_blue = drawn[0]["line"], drawn[5]["line"]
    assert (blue["color"], light_blue["color"]) == ("#0072B2", "#3D97CF")
    assert blue["dash"] != light_blue["dash"]


def test_a_logarithmic_axis_contains_the_papers_value_which_alone_is_a_diamond(tmp_path: Path) -> None:
    stated = {"value": 4000, "place": "Fig. 0", "measure": "accuracy", "where": {"trust": "all"}}
    plan = planned(tmp_path, panels=[BARS | {"log": True}], values=[stated], statements=[])
    figure = grouped_figure(shown(plan, ACCURACIES))
    assert figure.layout["yaxis"]["range"][1] > math.log10(4000)
    assert figure.caption.endswith("Diamonds: values that the paper states.")
    elsewhere = planned(
        tmp_path, panels=[BARS | {"lines": "z"}], values=[stated | {"series": "none of it"}], statements=[]
    )
    figure = grouped_figure(shown(elsewhere, ACCURACIES))
    assert len(figure.data) == 1
    assert "Diamonds" not in figure.caption


@pytest.mark.parametrize("name", ["round", "epoch"])
def test_a_round_has_the_name_that_the_paper_gives_it(name: str, tmp_path: Path) -> None:
    panel: dict[str, Any] = {
        "kind": "lines",
        "title": "A",
        "measures": ["loss_by_round"],
        "x": "at",
        "lines": "trust",
    }
    panel["where"] = {"z": 1.0}
    plan = planned(tmp_path, panels=[panel], **({} if name == "round" else {"round_name": name}))
    figure = line_figure(shown(plan, {("all", "loss_by_round"): [1.0, 2.0]}, at=3.0))
    assert figure.layout["xaxis"]["title"]["text"] == name
    assert f">{name}</th>" in figure.table


def test_a_page_says_of_which_form_it_is(tmp_path: Path) -> None:
    plan = planned(tmp_path, forms={"digits": {}, "paper": {"needs": "Fetch it."}})
    for form, said in {
        "digits": "This page is of the form digits, which runs on any machine. With --paper the study "
        "runs in its form paper. Fetch it.",
        "paper": "This page is of the form paper. Without --paper",
    }.items():
        one = StudyPlan(plan.name, plan.study.in_form(form), form, quick=False, seeds=2)
        folder = tmp_path / form
        folder.mkdir()
        result = StudyResult(one, folder, table_of(one, ACCURACIES), (), (), 0.0, 60_000.0)
        write_study_page(result)
        page = unescape(result.page.read_text("utf-8"))
        assert said in page
        assert "60,000 device steps: 1 times those of the quickstart (sfumato run quickstart)." in page


def test_claims_towards_single_devices_are_found_by_their_kind(tmp_path: Path) -> None:
    claims = [
        Claim("counts × RDP", "device:0", observer, claimed, math.inf, "So.").to_dict()
        for observer, claimed in (("device:1", 35.8), ("device:12", 61.6), ("cloud", 90.0))
    ]
    (tmp_path / "privacy.json").write_text(json.dumps({"claims": claims}))
    found = {
        observer: [one.value for one in claimed_epsilon(PointFolder(tmp_path), f"counts × RDP@{observer}")]
        for observer in ("device", "device:1", "cloud", "dev")
    }
    assert found == {"device": [61.6], "device:1": [35.8], "cloud": [90.0], "dev": []}


ABOVE_NONE = BARS | {"kind": "dots", "minus": {"trust": "none"}}


def test_a_panel_of_differences_subtracts_a_setting_seed_by_seed(tmp_path: Path) -> None:
    stated = {"value": 19, "place": "Fig. 0", "measure": "accuracy", "where": {"trust": "all"}}
    plan = planned(
        tmp_path, panels=[ABOVE_NONE], values=[stated, stated | {"value": 18, "minus": {"trust": "none"}}]
    )
    values: Values = {**ACCURACIES, ("none", "accuracy"): [60.0, 63.0]}
    figure = grouped_figure(shown(plan, values))
    assert figure.layout["yaxis"]["title"]["text"] == "test accuracy less that of none, points"  # in one line
    assert figure.data[0]["x"] == ["all"]  # not the setting itself
    assert figure.data[0]["y"] == [19.0]
    assert figure.data[0]["error_y"]["array"][0] == pytest.approx(
        12.7062, rel=1e-4
    )  # of 20 and 18, t = 12.71
    assert figure.data[0]["mode"] == "markers"
    low, high = figure.layout["yaxis"]["range"]
    assert low < 19 - 12.7062
    assert 19 + 12.7062 < high < 40
    assert figure.data[1]["y"] == [18]  # the value of the accuracy itself is none of this panel


@pytest.mark.parametrize("log", [False, True])
def test_an_infinite_value_is_a_sign_above_the_others(log: bool, tmp_path: Path) -> None:
    plan = planned(tmp_path, panels=[BARS | {"kind": "dots", "log": log}], values=[], statements=[])
    values: Values = {("all", "accuracy"): [80.0, 81.0], ("none", "accuracy"): [math.inf, math.inf]}
    figure = grouped_figure(shown(plan, values))
    dots, sign = figure.data
    assert (sign["text"], sign["x"]) == (["∞"], ["none"])
    top = math.log10(sign["y"][0]) if log else sign["y"][0]
    assert sign["y"][0] > dots["y"][0] + dots["error_y"]["array"][0] * (not log)
    assert top < figure.layout["yaxis"]["range"][1]
    assert figure.caption.endswith("∞: no guarantee.")


def test_a_table_has_no_column_of_one_setting(tmp_path: Path) -> None:
    panel = {"kind": "table", "title": "A", "measures": ["accuracy"], "where": {"trust": "all"}}
    table = measure_table(shown(planned(tmp_path, panels=[panel], values=[], statements=[]), ACCURACIES))
    assert "z" in table
    assert ">trust<" not in table


def test_a_difference_without_its_other_term_is_not_drawn(tmp_path: Path) -> None:
    plan = planned(tmp_path, panels=[ABOVE_NONE], values=[], statements=[])
    figure = grouped_figure(shown(plan, {("all", "accuracy"): [80.0, 81.0]}))
    assert not figure.data


def test_titles_and_ends_of_a_study_stand_on_axes_and_in_heads(tmp_path: Path) -> None:
    table = {"kind": "table", "title": "B", "measures": ["accuracy"]}
    titles = {"accuracy": "accuracy on all digits, %"}
    plan = planned(tmp_path, panels=[BARS | {"y_range": [0, 90]}, table], titles=titles)
    axis = grouped_figure(shown(plan, ACCURACIES)).layout["yaxis"]
    assert axis["title"]["text"] == "accuracy on all digits, %"
    assert axis["range"] == [0, 90]
    assert ">accuracy on all digits, %</th>" in measure_table(shown(plan, ACCURACIES, 1))


def test_what_follows_from_a_spec_has_no_seed(tmp_path: Path) -> None:
    panels = [{"kind": "table", "title": "A", "measures": [one]} for one in ("epsilon:cloud", "accuracy")]
    plan = planned(tmp_path, panels=panels, values=[], statements=[])
    values = {(trust, one): [2.0] for trust in ("all", "none") for one in ("epsilon:cloud", "accuracy")}
    computed, one_seed = (measure_table(shown(plan, values, number)) for number in (0, 1))
    assert "<caption>Computed without training; ε are rounded up</caption>" in computed
    assert "<caption>One seed</caption>" in one_seed


def test_a_long_table_is_folded(tmp_path: Path) -> None:
    axes = [{"name": "z", "key": "privacy.noise.multiplier", "values": [1.0 + i for i in range(25)]}]
    grid = {"main": {"spec": SPEC, "over": axes}}
    for count, is_folded in ((24, False), (25, True)):
        panel = {"kind": "table", "title": "A", "measures": ["accuracy"]}
        panel |= {"where": {"z": [1.0 + i for i in range(count)]}}
        plan = planned(tmp_path, grids=grid, panels=[panel], values=[], statements=[])
        rows = [
            {"grid": "main", "point": point.folder_name, "seed": 0, "measure": "accuracy", "series": "",
             "at": math.nan, "unit": -1, "observer": -1, "value": 50.0}
            for point in points_of(plan.axes("main"))
        ]  # fmt: skip
        shown_table = measure_table(PanelData.of(plan, plan.study.panels[0], pd.DataFrame(rows)))
        assert ("<details><summary>Show all 25 rows</summary>" in shown_table) is is_folded


def test_a_row_far_beyond_the_others_does_not_set_the_scale(tmp_path: Path) -> None:
    """Of -40, -36 and 85,000 % the last one is a triangle at the end of the scale, with its value."""
    plan = planned(tmp_path)
    statement = plan.study.statements[0]
    values = (-40.0, -36.0, 85_000.0)
    verdicts = [
        StatementVerdict(statement, Outcome.AGREES, "agrees.", one, one, one, unit="%", is_change=True)
        for one in values
    ]
    figure = agreement_figures(verdicts)[0]
    low, high = figure.layout["xaxis"]["range"]
    assert -50 < low < -40
    assert 0 < high < 10
    assert [trace["x"] for trace in figure.data if trace.get("name") == "here: agrees"] == [[-40.0, -36.0]]
    triangle = figure.data[-1]
    assert triangle["x"] == [high]
    assert triangle["text"] == ["85,000 %"]
    assert figure.caption.startswith("Dots: computed. ")
    assert figure.caption.endswith(" Triangles: beyond the scale, with their value.")
    two = agreement_figures(verdicts[1:])[0]
    assert two.layout["xaxis"]["range"][1] > 85_000  # of two rows both stay


def test_several_rows_far_beyond_the_others_do_not_set_the_scale(tmp_path: Path) -> None:
    statement = planned(tmp_path).study.statements[0]
    verdicts = [
        StatementVerdict(statement, Outcome.AGREES, "agrees.", one, one, one, unit="%", is_change=True)
        for one in (87_000.0, -40.0, -36.0, -30.0, -38.0, 85_000.0)
    ]
    figure = agreement_figures(verdicts)[0]
    assert figure.layout["xaxis"]["range"][1] < 10
    assert [trace["text"] for trace in figure.data[-2:]] == [["87,000 %"], ["85,000 %"]]


def test_heatmaps_of_workers_have_linear_colours_unless_epsilon_spans_decades(tmp_path: Path) -> None:
    panel = {"kind": "pairs", "title": "A", "measures": ["pairs"], "where": {"z": 1.0, "trust": "all"}}
    plan = planned(tmp_path, panels=[panel], values=[], statements=[])
    point = next(p for p in points_of(plan.axes("main")) if p.matches({"z": 1.0, "trust": "all"}))
    for values, ends in (
        ((17.0, 62.0), (17.0, 62.0)),
        ((0.0, 62.0), (0.0, 62.0)),
        ((0.2, 62.0), (-1.0, 2.0)),
    ):
        pairs = [(unit, observer) for unit in range(5) for observer in range(5) if unit != observer]
        rows = [
            {"grid": "main", "point": point.folder_name, "seed": 0, "measure": "pairs", "series": "rigorous",
             "at": math.nan, "unit": unit, "observer": observer, "value": values[unit % 2]}
            for unit, observer in pairs
        ]  # fmt: skip
        trace = worker_heatmaps(PanelData.of(plan, plan.study.panels[0], pd.DataFrame(rows)))[0].data[0]
        assert (trace["zmin"], trace["zmax"]) == ends
        assert trace["z"][1][0] == pytest.approx(62.0 if ends[0] >= 0 else math.log10(62.0), abs=1e-4)


def test_a_claim_stands_beside_the_rigorous_figure_of_each_observer(tmp_path: Path) -> None:
    claims = [
        Claim("HDP Table I, C2", unit, observer, 8.9, rigorous, "So.").to_dict()
        for unit, observer, rigorous in (
            ("device:0", "cloud", 24.9), ("device:9", "cloud", 30.0), ("device:0", "public", 5.9))
    ]  # fmt: skip
    (tmp_path / "privacy.json").write_text(json.dumps({"claims": claims}))
    found = claim_and_rigorous(PointFolder(tmp_path), "Table I@cloud,public,peer")
    assert {one.series: one.value for one in found} == {
        "claimed": 8.9, "rigorous, towards the cloud": 30.0, "rigorous, towards the public": 5.9
    }  # fmt: skip


def test_matrices_of_about_one_size_have_the_same_colours_on_a_page(tmp_path: Path) -> None:
    """ε up to 62 and up to 34 share a scale; those of thousands, and counts, have their own."""
    where = {"z": [1.0, 2.0], "trust": ["all", "none"]}
    cases = list(itertools.product(where["z"], where["trust"]))
    panels = [
        {"kind": "pairs", "title": f"{z} {trust}", "measures": ["pairs"], "where": {"z": z, "trust": trust}}
        for z, trust in cases
    ]
    plan = planned(tmp_path, panels=panels, values=[], statements=[])
    values = {(1.0, "all"): (17.0, 62.0), (1.0, "none"): (20.0, 34.0), (2.0, "all"): (6000.0, 12000.0)}
    values[2.0, "none"] = (3.0, 5.0)
    pairs = [(unit, observer) for unit in range(5) for observer in range(5) if unit != observer]
    rows = [
        {"grid": "main", "point": point.folder_name, "seed": 0, "measure": "pairs", "series": series,
         "at": math.nan, "unit": unit, "observer": observer, "value": found[unit % 2]}
        for point in points_of(plan.axes("main"))
        for found in (values[point.settings["z"], point.settings["trust"]],)
        for series in ("rigorous", "releases")
        for unit, observer in pairs
    ]  # fmt: skip
    every = [PanelData.of(plan, panel, pd.DataFrame(rows)) for panel in plan.study.panels]
    traces = [figure.data[0] for data in every for figure in worker_heatmaps(data, every)]
    ends = [(trace["zmin"], trace["zmax"]) for trace in traces]
    assert ends[0::2] == [(17.0, 62.0), (17.0, 62.0), (6000.0, 12000.0), (3.0, 5.0)]
    assert ends[1::2] == [(0.0, most) for _, most in (values[case] for case in cases)]


def test_an_equal_caption_is_as_above(tmp_path: Path) -> None:
    plan = planned(tmp_path, panels=[BARS, BARS | {"title": "B"}], values=[], statements=[])
    write_study_page(StudyResult(plan, tmp_path, table_of(plan, ACCURACIES), (), (), 0.0, 0.0))
    page = (tmp_path / "index.html").read_text("utf-8")
    assert page.count("<figcaption>Mean of 2 seeds. Whiskers: 95 % intervals.</figcaption>") == 1
    assert page.count("<figcaption>As above.</figcaption>") == 1
