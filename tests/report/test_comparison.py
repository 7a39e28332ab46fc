"""Several runs side by side: which is best, where the specs differ, and what is told once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from report_factory import claim, guarantee, metrics, quickstart_privacy, quickstart_spec

from sfumato.cli import main
from sfumato.report.figures.score_against_epsilon import score_against_epsilon_figures
from sfumato.report.page.comparison import best_runs, comparison, largest_epsilons_in_words
from sfumato.report.page.differences import differences_in_words, differences_table
from sfumato.report.page.sections import write_page
from sfumato.report.results.chance import by_chance
from sfumato.report.results.comparability import stated_radio
from sfumato.report.results.cost_of_privacy import costs_of_noise, several_costs_in_words
from sfumato.report.results.score_by_epsilon import score_by_epsilon
from sfumato.report.results.series import Series, load_series
from sfumato.report.results.summary import summarise
from sfumato.run_folder.label_counts import write_test_labels
from sfumato.spec.diff import differing_values

Make = Callable[..., Path]


def run_of(run_folder: Make, name: str, accuracy: float, cloud: float, **spec: Any) -> Path:
    frame = metrics(4)
    frame["accuracy"] = accuracy
    privacy = quickstart_privacy() | {
        "guarantees": [
            guarantee("device:0", "cloud", cloud, 200) | {"relation": "cloud", "trusted": False},
            guarantee("device:0", "public", 3.0, 200) | {"relation": "public", "trusted": False},
        ]
    }
    return run_folder(name, quickstart_spec(name=name, **spec), frame=frame, privacy=privacy)


def said_of(folders: list[Path]) -> list[str]:
    series = load_series(folders)
    return best_runs(series, [summarise(one) for one in series])


def table_of(series: tuple[Series, ...]) -> str:
    """The tables as HTML, without the titles that cells have for narrow screens."""
    figures = comparison(series, [summarise(one) for one in series], costs_of_noise(series))
    shown = unescape(figures + differences_table(series))
    return re.sub(' data-title="[^"]*"', "", shown)


def test_the_best_runs_are_named(run_folder: Make) -> None:
    folders = [
        run_of(run_folder, "loud", 0.5, 2.0),
        run_of(run_folder, "quiet", 0.9, 8.0),
        run_of(run_folder, "other", 0.6, 2.0),
    ]
    said = said_of(folders)
    assert said[0] == (
        "Highest accuracy: quiet, 90.0 %, with ε of at most 8. Worse: loud (50.0 %, 40.0 points less) and "
        "other (60.0 %, 30.0 points less). Guessing would give 10.0 %."
    )
    assert said[1] == "Smallest ε towards the cloud: loud and other, 2; largest: quiet, 8."
    assert not any("public" in line for line in said)  # it is the same in all of them
    assert "one seed" in said[-1]


def test_runs_with_the_same_figures_are_named_together(run_folder: Make) -> None:
    """By 360 test examples 92.5 % is no better than 92.2 %, and 8 is written for both ε."""
    folders = [
        run_of(run_folder, "a", 0.922, 7.999999990332727),
        run_of(run_folder, "b", 0.925, 7.999999990332724),
        run_of(run_folder, "c", 0.797, 2.0),
    ]
    for folder in folders:
        write_test_labels(folder, dict.fromkeys(range(10), 36))
    said = said_of(folders)
    assert said[0] == (
        "Highest accuracy: b, 92.5 %, with ε of at most 8. Not worse by more than chance may make it: a "
        "(92.2 %). Worse: c (79.7 %, 12.8 points less). Guessing would give 10.0 %."
    )
    assert said[1] == "Smallest ε towards the cloud: c, 2; largest: a and b, 8."


def test_runs_that_differ_in_more_than_noise_say_that_what_noise_costs_is_not_known(
    run_folder: Make, tmp_path: Path
) -> None:
    series = load_series(
        [
            run_of(run_folder, "a", 0.5, 2.0, model={"kind": "softmax"}),
            run_of(run_folder, "b", 0.6, 3.0, model={"kind": "mlp"}),
        ]
    )
    page = unescape(write_page(series, tmp_path / "several.html").read_text("utf-8"))
    assert "What the noise costs in all is not known: no run without it is among these" in page
    assert "trains a without noise; then write this page anew:" in page


def test_runs_without_such_an_observer_are_not_counted(run_folder: Make) -> None:
    folders = [run_of(run_folder, "a", 0.5, 2.0), run_of(run_folder, "b", 0.5, 3.0)]
    silent = run_folder(
        "silent", quickstart_spec(name="silent"), privacy=quickstart_privacy() | {"guarantees": []}
    )
    for order in ([*folders, silent], [silent, *folders]):
        assert "Smallest ε towards the cloud: a, 2; largest: b, 3." in said_of(order)


def test_nothing_is_said_where_runs_are_alike_or_have_no_guarantee(run_folder: Make) -> None:
    alike = [run_of(run_folder, name, 0.5, 2.0) for name in ("a", "b")]
    assert said_of(alike) == []
    endless = [run_of(run_folder, name, 0.5, float("inf")) for name in ("c", "d")]
    assert said_of(endless) == []


def test_where_the_specs_differ(run_folder: Make) -> None:
    one = run_of(run_folder, "one", 0.5, 2.0, metrics=["mae"], training={"rounds": 15, "batch_size": 8})
    other = run_of(run_folder, "other", 0.5, 2.0, metrics=[], training={"rounds": 15, "batch_size": 16})
    shown = table_of(load_series([one, other]))
    assert "<td>Batch size</td><td>8</td><td>16</td>" in shown
    assert "<td>Metrics</td><td>mae</td><td>none</td>" in shown
    assert "<td>Rounds</td>" not in shown
    assert "<td>Name</td>" not in shown
    assert "What differs between the runs" not in table_of(load_series([one, one]))


def test_all_settings_that_differ_are_in_the_page_those_with_words_first(run_folder: Make) -> None:
    many = {f"key_{number}": number for number in range(15)}
    one = run_of(run_folder, "one", 0.5, 2.0, training={"rounds": 15} | many, trust={"trusted_edges": 0.4})
    other = run_of(run_folder, "other", 0.5, 2.0, training={"rounds": 15}, trust={"trusted_edges": 0.0})
    shown = table_of(load_series([one, other]))
    assert "<summary>Show 4 more settings in which they differ</summary>" in shown
    assert all(f"Key {number}</td>" in shown for number in range(15))
    assert shown.index("Trusted edges</td>") < shown.index("Key 0</td>")
    cells = re.sub("<[^>]*>", "|", shown.split("Trusted edges</td>")[1].split("</tr>")[0])
    assert [cell for cell in cells.split("|") if cell] == ["40 % (rounded to whole edges)", "none"]


def test_keys_that_differ_keep_their_order_and_missing_ones_are_none() -> None:
    documents = [{"b": {"x": 1, "y": [1]}, "a": 2}, {"b": {"x": 3, "y": [1]}, "a": 2, "c": 4}]
    assert differing_values(documents) == {"b.x": (1, 3), "c": (None, 4)}
    assert list(differing_values([{"b": 1, "a": 1}, {"b": 2, "a": 2}])) == ["b", "a"]


def test_versions_of_runs_are_told_once(run_folder: Make, tmp_path: Path) -> None:
    folders = [run_of(run_folder, name, 0.5, 2.0) for name in ("a", "b")]
    assert write_page(load_series(folders), tmp_path / "x.html").read_text().count("<td>2.13.0</td>") == 1
    older = run_of(run_folder, "older", 0.5, 2.0, versions={"torch": "2.12.0"})
    page = write_page(load_series([*folders, older]), tmp_path / "y.html").read_text()
    assert '<th scope="col">a and b</th><th scope="col">older</th>' in page
    assert "<td>torch</td><td>2.13.0</td><td>2.12.0</td>" in page


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"radio": "none"}, None),
        ({"radio": {"preset": "none", "bits_per_parameter": 32}, "control": {"energy": 1.0}}, None),
        ({"radio": {"preset": "h2fdp"}}, "link budget"),
        ({"radio": {"preset": "pfels"}}, "gains"),
        ({"control": {"energy": 1.0}}, "link budget"),
        ({"protocol": "pfels"}, "gains"),
        ({"transport": {"devices_to_edge": "air"}}, "link budget"),
    ],
)
def test_who_asks_for_energy(changes: dict[str, Any], expected: str | None) -> None:
    spec = {key: value for key, value in quickstart_spec().items() if key != "radio"} | changes
    assert stated_radio(spec) == expected


def test_energy_is_in_the_table_only_where_a_spec_asks_for_it(
    run_folder: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = {key: value for key, value in quickstart_spec().items() if key != "radio"}
    unasked = [run_folder(name, silent | {"name": name}) for name in ("a", "b")]
    asked = run_folder("asked", quickstart_spec(name="asked"))
    assert "energy" not in table_of(load_series(unasked))
    assert ">energy<" in table_of(load_series([*unasked, asked]))

    def printed(*folders: Path) -> str:
        assert main(["compare", *map(str, folders)]) == 0
        return capsys.readouterr().out

    assert "energy" not in printed(*unasked)
    assert "energy J" in re.sub(r"\s+", " ", printed(*unasked, asked))


def test_noise_and_long_values_are_written_out_and_shortened(run_folder: Make) -> None:
    def noise(multiplier: float, owners: list[str]) -> dict[str, Any]:
        return {
            "delta": 1e-5,
            "clip": {"kind": "update", "norm": 1.0},
            "noise": {"kind": "sources", "sources": [{"owners": owners, "multipliers": [multiplier] * 2}]},
        }

    one = run_of(run_folder, "one", 0.5, 2.0, privacy=noise(2.0, ["edge:0"]))
    many = noise(3.5, [f"edge:{2 * i}/devices" for i in range(20)])
    other = run_of(run_folder, "other", 0.5, 2.0, privacy=many)
    shown = table_of(load_series([one, other]))
    assert "<td>Noise multipliers</td><td>edge 0: 2</td><td>every device under edges 0, 2, 4" in shown
    assert " more: 3.5</td>" in shown


def rounds_of(run_folder: Make, name: str, rounds: int, played: int, **spec: Any) -> Path:
    training = {"rounds": rounds, "local_steps": 2}
    return run_folder(name, quickstart_spec(name=name, training=training, **spec), frame=metrics(played))


def test_rounds_that_differ_are_told_and_whether_control_made_others(run_folder: Make) -> None:
    as_set = [rounds_of(run_folder, "a", 4, 4), rounds_of(run_folder, "b", 15, 15)]
    shown = table_of(load_series(as_set))
    assert "<td>rounds</td><td>4</td><td>15</td>" in shown
    assert "Rounds set" not in shown
    assert "What differs between the runs" not in shown  # one sentence has it
    assert differences_in_words(load_series(as_set)) == (
        "The runs differ in one setting, rounds: 4 in a and 15 in b."
    )
    stepping = quickstart_spec(name="s", training={"rounds": 15, "local_steps": 3})
    three = load_series([*as_set, run_folder("s", stepping, frame=metrics(15))])
    assert differences_in_words(three).startswith("The runs differ in 2 settings: rounds and local steps")
    assert "<td>Rounds</td><td>4</td><td>15</td><td>15</td>" in table_of(three)
    controlled = [as_set[0], rounds_of(run_folder, "c", 2, 4, control={"energy": 1.0})]
    shown = table_of(load_series(controlled))
    assert "<td>Rounds set in the spec</td><td>4</td><td>2</td>" in shown
    assert "<td>rounds</td><td>4</td><td>4 (as many as adaptive control chose)</td>" in shown


def test_every_multiplier_is_told_and_what_control_made_of_it(run_folder: Make) -> None:
    def folder(name: str, multipliers: list[float], **columns: Any) -> Path:
        sources = [{"owners": ["edge:0"], "multipliers": multipliers}]
        noise = {"delta": 1e-5, "noise": {"kind": "sources", "sources": sources}}
        spec = quickstart_spec(name=name, privacy=noise)
        return run_folder(name, spec, frame=metrics(4).assign(**columns))

    series = load_series([
        folder("a", [2.0, 2.0]),
        folder("b", [0.5, 0.9], noise_factor=[1.0, 0.97, 2.3, 1.5]),
    ])  # fmt: skip
    assert (
        "<td>Noise multipliers</td><td>edge 0: 2</td><td>edge 0: 0.5 (global aggregation), 0.9 (one level "
        "below); each times 0.97 to 2.3, as adaptive control chose</td>"
    ) in table_of(series)


def epsilons_apart(run_folder: Make, points: dict[float, float], **spec: Any) -> tuple[Series, ...]:
    """Runs that differ in ε towards the cloud alone: ε to accuracy."""
    folders = [run_of(run_folder, f"e{value:g}", reached, value, **spec) for value, reached in points.items()]
    for folder in folders:
        write_test_labels(folder, {"0": 180, "1": 180})
    return load_series(folders)


def test_what_more_epsilon_brings_is_said_in_points_of_each_step(run_folder: Make) -> None:
    series = epsilons_apart(run_folder, {8.0: 0.922, 2.0: 0.797, 32.0: 0.939})
    summaries = [summarise(one) for one in series]
    assert score_by_epsilon(series, summaries) == [
        "What more ε towards the cloud brings in accuracy: from ε = 2 to 8 +12.5 points; from ε = 8 to 32 "
        "+1.7 points (may be chance: 360 test examples). Guessing would give 50.0 %.",
        "The smallest ε whose accuracy is not worse than the best (93.9 %, e32) by more than chance may make "
        "it: 8 (92.2 %, e8).",
        "An observer that starts at 50 : 50 on whether a device's data were used can become at most 88.1 % "
        "sure at ε = 2 and 99.97 % sure at ε = 8, leaving δ aside, and almost certain at ε = 32.",
    ]
    assert score_by_epsilon(series[:1], summaries[:1]) == []
    apart = epsilons_apart(run_folder, {2.5: 0.7, 8.5: 0.9})
    assert "With every smaller ε accuracy is worse than 90.0 % by more than chance may make it." in (
        score_by_epsilon(apart, [summarise(one) for one in apart])
    )


def test_costs_of_several_runs_are_told_at_once_and_stand_in_the_table(run_folder: Make) -> None:
    """335 − 287 of 360 are 13.3 points, though 93.1 % − 79.7 % would be 13.4."""
    none = {"privacy": quickstart_spec()["privacy"] | {"noise": {"kind": "none"}}}
    series = (
        *epsilons_apart(run_folder, {2.0: 287 / 360, 8.0: 332 / 360, 32.0: 338 / 360}),
        *epsilons_apart(run_folder, {math.inf: 335 / 360}, **none),
    )
    costs = costs_of_noise(series)
    assert several_costs_in_words(costs) == [
        "What the noise costs in accuracy: 13.3 points in e2, 0.8 points in e8 (may be chance) and none seen "
        "in e32 (may be chance), compared with einf (93.1 %), which has no noise. All these runs clip, so "
        "what clipping costs is not in these figures."
    ]
    assert several_costs_in_words(costs[1:2]) == [
        "The noise costs 0.8 points of accuracy (3 of 360 test examples): e8 ends at 92.22 %, and einf, "
        "which has no noise, at 93.06 % (one seed each, 360 test examples: may be chance). Both runs "
        "clip, so what clipping costs is not in this figure."
    ]
    cells = ["what the noise costs of it", "13.3 points", "0.8 points", "none seen", "–"]
    assert "".join(f"<td>{cell}</td>" for cell in cells) in table_of(series)
    (figure, *_) = score_against_epsilon_figures(series, [summarise(one) for one in series], costs)
    dotted = figure.data[-1]
    assert (dotted["name"], dotted["x"], dotted["y"]) == ("without noise", [2.0, 32.0], [335 / 360] * 2)
    assert "Dotted: without noise, 93.1 %." in figure.caption


def test_what_changes_between_runs_is_said_first(run_folder: Make, tmp_path: Path) -> None:
    """One setting with its values, which then need no table; several by their names."""
    one = [
        run_of(run_folder, name, 0.5, 2.0, training={"rounds": 4, "learning_rate": rate})
        for name, rate in (("slow", 0.1), ("fast", 0.5))
    ]
    series = load_series(one)
    said = "The runs differ in one setting, learning rate: 0.1 in slow and 0.5 in fast."
    assert differences_in_words(series) == said
    assert differences_table(series) == ""
    page = unescape(write_page(series, tmp_path / "two.html").read_text())
    assert page.index(said) < page.index("Comparison of the runs")
    assert differences_in_words(series[:1] * 2) == ""
    other = {"rounds": 4, "learning_rate": 0.5, "batch_size": 3}
    both = load_series([one[0], run_of(run_folder, "other", 0.5, 2.0, training=other)])
    assert differences_in_words(both) == "The runs differ in 2 settings: learning rate and batch size."
    assert ">Learning rate</td>" in differences_table(both)


def test_steps_of_epsilon_are_not_told_of_runs_that_train_differently(run_folder: Make) -> None:
    series = (
        *epsilons_apart(run_folder, {2.0: 0.5}),
        *epsilons_apart(run_folder, {8.0: 0.6}, training={"rounds": 4, "learning_rate": 9.0}),
    )
    assert score_by_epsilon(series, [summarise(one) for one in series]) == []


def test_infinite_epsilons_are_counted_in_table_and_words(run_folder: Make) -> None:
    rows = [
        guarantee("device:0", "cloud", 8.0, 200) | {"relation": "cloud", "trusted": False},
        guarantee("device:0", "edge:0", float("inf"), 120) | {"relation": "own edge", "trusted": True},
        guarantee("device:40", "edge:1", 99.62, 50) | {"relation": "own edge", "trusted": False},
        guarantee("device:90", "edge:2", float("inf"), 30) | {"relation": "own edge", "trusted": False},
    ]
    privacy = quickstart_privacy() | {"guarantees": rows, "claims": []}
    series = load_series([run_folder(name, quickstart_spec(name=name), privacy=privacy) for name in "ab"])
    cell = "99.62; ∞ for 120 of 200 devices (trusted); ∞ for 30 of 200 devices"
    assert f"<td>ε, own edge</td><td>{cell}</td><td>{cell}</td>" in table_of(series)
    assert largest_epsilons_in_words(series)[0] == (
        "The largest finite ε of one device is 99.62 in a and 99.62 in b, towards its own edge, where that "
        "is not trusted. No guarantee (∞) towards its own edge for 120 of 200 devices (trusted) and for 30 "
        "of 200 devices."
    )
    assert largest_epsilons_in_words([*series, *series, *series]) == []


def test_a_small_difference_of_accuracy_may_be_chance(run_folder: Make) -> None:
    """4 of 360 test examples are no difference; 100 of 360 are one."""
    assert by_chance([0.925, 0.936], 360) > 0.011
    assert by_chance([0.925, 0.65], 360) < 0.275

    def said(accuracy: float) -> str:
        none = {"privacy": quickstart_spec()["privacy"] | {"noise": {"kind": "none"}}}
        folders = [run_of(run_folder, f"loud{accuracy}", accuracy, 8.0)]
        folders.append(run_of(run_folder, f"quiet{accuracy}", 0.936, float("inf"), **none))
        for folder in folders:
            write_test_labels(folder, {"0": 180, "1": 180})
        return costs_of_noise(load_series(folders))[0].sentence

    assert "(one seed each, 360 test examples: may be chance)." in said(0.925)
    assert "(one seed each)." in said(0.65)


def test_what_decides_how_runs_are_read_is_in_the_open(run_folder: Make) -> None:
    """That a device of a run of records is protected less, that a claim fails, and that all ε of control are
    budgets.
    """
    records = quickstart_spec(name="r", privacy=quickstart_spec()["privacy"] | {"unit": "record"})
    control = quickstart_spec(name="c", control={"energy": 1.0, "delay": 1.0})
    rows = [guarantee("device:0", whom, 8.0, 200) | {"relation": whom} for whom in ("cloud", "public")]
    of_records = quickstart_privacy() | {
        "guarantees": [row | {"unit": "record:0"} for row in rows],
        "claims": [],
    }
    claimed = quickstart_privacy() | {"guarantees": rows, "claims": [claim(1.0, 8.0, why="")]}
    series = load_series(
        [run_folder("r", records, privacy=of_records), run_folder("c", control, privacy=claimed)]
    )
    first, second = largest_epsilons_in_words(series)
    assert "Somebody with several records is protected less, and a device as a whole" in first
    assert "claim" not in first
    assert "c: the largest finite ε of one device is 8, a budget, towards" in second
    assert second.endswith("ε = 1, does not hold for this run.")
    table = table_of(series)
    assert "<td>ε, public</td><td>8</td><td>8 (budget)</td>" in table
    assert "Who is protected" not in table  # the unit is a row of figures
