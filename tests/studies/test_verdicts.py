"""Verdicts: every branch of the rule, on tables made by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_study_files import tiny, written

from sfumato.studies.grids import StudyPlan, points_of
from sfumato.studies.load import load_study
from sfumato.studies.page.agreement import expected_text, measured_text
from sfumato.studies.verdicts import Outcome, StatementVerdict, judge_statements

LOW, HIGH = {"z": 1.0, "trust": "all"}, {"z": 2.0, "trust": "all"}


def judged(
    folder: Path,
    statement: dict[str, Any],
    values: dict[float, list[float]],
    *,
    measure: str = "accuracy",
    seeds: int | None = None,
    quick: bool = False,
) -> StatementVerdict:
    """The verdict where the points with trust in all edges have these values, by z, one a seed."""
    document = tiny()
    document["statements"] = [{"says": "So.", "place": "Fig. 0"} | statement]
    _, study = load_study(written(folder, document))
    count = seeds or max(map(len, values.values()))
    plan = StudyPlan.of("mine", study, seeds=count, quick=quick)
    names = {
        point.settings["z"]: point.folder_name
        for point in points_of(plan.axes("main"))
        if point.matches({"trust": "all"})
    }
    rows = [
        {"grid": "main", "point": names[z], "seed": seed, "measure": measure, "series": "", "at": math.nan,
         "unit": -1, "observer": -1, "value": value}
        for z, found in values.items()
        for seed, value in enumerate(found)
    ]  # fmt: skip
    return judge_statements(plan, pd.DataFrame(rows))[0]


def term(where: dict[str, Any], measure: str = "accuracy") -> dict[str, Any]:
    return {"measure": measure, "where": where}


CASES = [
    ({"at_least": 10}, [12.0, 12.1, 11.9], "agrees."),
    ({"at_least": 10}, [8.0, 8.1, 7.9], "differs because of this."),
    ({"at_least": 10}, [8.0, 12.1, 10.9], "not settled by 3 seeds."),
    ({"at_most": 10}, [8.0, 8.1, 7.9], "agrees."),
    ({"at_most": 10}, [12.0, 12.1, 11.9], "differs because of this."),
    ({"at_least": 7, "at_most": 9}, [8.0, 8.1, 7.9], "agrees."),
    ({"about": 8, "within": 0.5}, [8.0, 8.1, 7.9], "agrees."),
    ({"about": 8, "within": 0.1}, [8.0, 8.1, 7.9], "not settled by 3 seeds."),  # its interval is ± .25
    ({"about": 9, "within": 0.5}, [8.0, 8.1, 7.9], "differs because of this."),
    ({"at_least": 0}, [5.0], "not settled by 1 seed."),
]  # fmt: skip


@pytest.mark.parametrize(("expect", "values", "said"), CASES)
def test_an_interval_within_agrees_outside_differs_and_across_is_not_settled(
    expect: dict[str, float], values: list[float], said: str, tmp_path: Path
) -> None:
    found = judged(tmp_path, {"value": term(LOW), "expect": expect, "because": "of this."}, {1.0: values})
    assert found.words == said
    assert found.value == pytest.approx(sum(values) / len(values))


def test_a_difference_without_a_reason_is_said_to_have_none(tmp_path: Path) -> None:
    found = judged(tmp_path, {"value": term(LOW), "expect": {"at_least": 9}}, {1.0: [1.0, 1.1]})
    assert found.words == "differs; the reason is not known."


def test_differences_are_of_one_seed_each(tmp_path: Path) -> None:
    """Seeds differ by 20 points, and their differences by .2: the pairs decide."""
    statement = {"value": term(HIGH), "minus": term(LOW), "expect": {"at_least": 0}}
    found = judged(tmp_path, statement, {1.0: [40.0, 50.0, 60.0], 2.0: [43.0, 53.1, 62.9]})
    assert found.outcome is Outcome.AGREES
    assert found.value == pytest.approx(3.0)
    assert found.unit == "points"


def test_relative_changes_are_percent(tmp_path: Path) -> None:
    statement = {"value": term(HIGH), "relative_to": term(LOW), "expect": {"about": -50, "within": 1}}
    found = judged(tmp_path, statement, {1.0: [40.0, 80.0], 2.0: [20.0, 40.0]})
    assert (found.outcome, found.value, found.unit) == (Outcome.AGREES, pytest.approx(-50.0), "%")


@pytest.mark.parametrize(("values", "outcome"), [
    ([math.inf], Outcome.DIFFERS), ([0.5], Outcome.AGREES), ([2.0], Outcome.DIFFERS),
    ([0.5, 2.0], Outcome.NOT_SETTLED),
])  # fmt: skip
def test_an_epsilon_needs_no_interval_and_the_range_of_seeds_counts(
    values: list[float], outcome: Outcome, tmp_path: Path
) -> None:
    statement = {"value": term(LOW, "epsilon:cloud"), "expect": {"at_most": 1}, "because": "of this"}
    found = judged(tmp_path, statement, {1.0: values}, measure="epsilon:cloud")
    assert found.outcome is outcome
    assert found.is_epsilon


def test_a_seed_without_a_value_leaves_the_statement_open(tmp_path: Path) -> None:
    """Two of three runs have reached an accuracy: what these cost is not what all would."""
    statement = {"value": term(LOW), "expect": {"at_least": 0}}
    for values in ([5.0, math.nan, 5.1], [5.0, 5.1]):
        found = judged(tmp_path, statement, {1.0: values}, seeds=3)
        assert found.outcome is Outcome.NOT_JUDGED
        assert found.words == "not judged: not every seed has a value."
        assert measured_text(found) == "–"  # the mean of two seeds is not that of three
        assert expected_text(found) == "at least 0 %"


def test_a_shortened_study_decides_nothing(tmp_path: Path) -> None:
    found = judged(tmp_path, {"value": term(LOW), "expect": {"at_least": 0}}, {1.0: [5.0, 5.1]}, quick=True)
    assert found.outcome is Outcome.NOT_JUDGED
    assert found.words == "a shortened run decides nothing."


@pytest.mark.parametrize(("direction", "second", "outcome"), [
    ("rises", [2.0, 2.1, 1.9], Outcome.AGREES), ("falls", [2.0, 2.1, 1.9], Outcome.DIFFERS),
    ("rises", [0.0, 0.1, -0.1], Outcome.DIFFERS), ("falls", [0.0, 0.1, -0.1], Outcome.AGREES),
    ("rises", [0.0, 2.1, 1.9], Outcome.NOT_SETTLED), ("rises", [2.0, 2.1], Outcome.NOT_JUDGED),
    ("rises", [1.0, 1.1, 0.9], Outcome.DIFFERS), ("falls", [1.0, 1.1, 0.9], Outcome.DIFFERS),
])  # fmt: skip
def test_a_direction_holds_at_every_step(
    direction: str, second: list[float], outcome: Outcome, tmp_path: Path
) -> None:
    statement = {direction: {"measure": "accuracy", "along": "z", "where": {"trust": "all"}}}
    found = judged(tmp_path, statement, {1.0: [1.0, 1.1, 0.9], 2.0: second})
    assert found.outcome is outcome


@pytest.mark.parametrize(("direction", "first", "second", "outcome"), [
    ("falls", [46.33], [46.33], Outcome.DIFFERS), ("rises", [46.33], [46.33], Outcome.DIFFERS),
    ("falls", [46.33, 46.33], [46.33, 40.0], Outcome.NOT_SETTLED),
    ("falls", [46.33], [46.32], Outcome.AGREES), ("falls", [math.inf], [math.inf], Outcome.DIFFERS),
    ("falls", [math.inf], [8.0], Outcome.AGREES),
])  # fmt: skip
def test_an_epsilon_that_stays_the_same_neither_falls_nor_rises(
    direction: str, first: list[float], second: list[float], outcome: Outcome, tmp_path: Path
) -> None:
    along = {"measure": "epsilon:cloud", "along": "z", "where": {"trust": "all"}}
    values = {1.0: first, 2.0: second}
    found = judged(tmp_path, {direction: along}, values, measure="epsilon:cloud")
    assert found.outcome is outcome


def test_a_direction_shows_the_values_along_its_axis(tmp_path: Path) -> None:
    along = {"measure": "epsilon:cloud", "along": "z", "where": {"trust": "all"}}
    found = judged(tmp_path, {"falls": along}, {1.0: [46.3211], 2.0: [0.30001]}, measure="epsilon:cloud")
    assert measured_text(found) == "46.33, 0.3001"  # rounded up
    along["measure"] = "accuracy"
    found = judged(tmp_path, {"falls": along}, {1.0: [90.0, 91.0], 2.0: [80.0, 81.0]})
    assert measured_text(found) == "90.5, 80.5 %"


def best(which: str) -> dict[str, Any]:
    return {"measure": "accuracy", "where": {"trust": "all"}, "best": which}


@pytest.mark.parametrize(
    ("which", "value", "said"),
    [("highest", 20.0, "agrees. The best: z = 2."), ("lowest", 10.0, "agrees. The best: z = 1.")],
)
def test_the_best_of_several_points_is_compared_and_named(
    which: str, value: float, said: str, tmp_path: Path
) -> None:
    values = {1.0: [9.0, 10.0, 11.0], 2.0: [19.0, 20.0, 21.0]}
    found = judged(tmp_path, {"value": best(which), "expect": {"at_least": 5}}, values)
    assert (found.words, found.value) == (said, pytest.approx(value))


def test_the_best_of_listed_settings_is_named(tmp_path: Path) -> None:
    term = {"measure": "accuracy", "where": {"trust": "all", "z": [1.0, 2.0]}, "best": "highest"}
    values = {1.0: [9.0, 10.0, 11.0], 2.0: [19.0, 20.0, 21.0]}
    found = judged(tmp_path, {"value": term, "expect": {"at_least": 5}}, values)
    assert found.words == "agrees. The best: z = 2."


def test_a_point_that_never_reached_the_level_is_not_the_best(tmp_path: Path) -> None:
    values = {1.0: [9.0, 10.0, 11.0], 2.0: [1.0, math.nan, 1.0]}
    found = judged(tmp_path, {"value": best("lowest"), "expect": {"at_least": 5}}, values)
    assert found.words == "agrees. The best: z = 1."


def test_of_two_bests_it_is_said_whose_each_is(tmp_path: Path) -> None:
    document = tiny()
    document["grids"]["main"]["over"][0] |= {"title": "z, noise multiplier"}
    terms = [
        {"measure": "accuracy", "where": {"trust": trust}, "best": "highest"} for trust in ("all", "none")
    ]
    said = {"says": "So.", "place": "Fig. 0", "expect": {"at_least": 0}}
    document["statements"] = [
        said | {"value": terms[0], "minus": terms[1]},
        said | {"value": terms[0], "relative_to": {"measure": "accuracy", "where": LOW}},
        said | {"value": terms[0], "minus": terms[0]},
        said | {"value": terms[0], "minus": {"measure": "accuracy", "best": "highest"}},
    ]
    plan = StudyPlan.of(*load_study(written(tmp_path, document)), seeds=1)
    sign = {"all": 1, "none": -1}
    rows = [
        {"grid": "main", "point": point.folder_name, "seed": 0, "measure": "accuracy", "series": "",
         "at": math.nan, "unit": -1, "observer": -1,
         "value": point.settings["z"] * sign[point.settings["trust"]]}
        for point in points_of(plan.axes("main"))
    ]  # fmt: skip
    words = [one.words.partition("The best: ")[2] for one in judge_statements(plan, pd.DataFrame(rows))]
    assert words == [
        "all with z = 2; none with z = 1.",
        "z = 2.",
        "the first with z = 2; the second with z = 2.",
        "all with z = 2; the other with z = 2, all.",
    ]


def test_the_best_after_a_round_is_named_and_not_the_best_at_the_end(tmp_path: Path) -> None:
    document = tiny()
    measured = {"measure": "accuracy_by_round", "where": {"trust": "all"}, "at": 4.0, "best": "highest"}
    document["statements"] = [
        {"says": "So.", "place": "Fig. 0", "value": measured, "expect": {"at_least": 15}}
    ]
    plan = StudyPlan.of(*load_study(written(tmp_path, document)), seeds=1)
    values = {(1.0, 4.0): 20.0, (2.0, 4.0): 10.0, (1.0, 8.0): 30.0, (2.0, 8.0): 40.0}  # by z and round
    rows = [
        {"grid": "main", "point": point.folder_name, "seed": 0, "measure": "accuracy_by_round", "series": "",
         "at": at, "unit": -1, "observer": -1, "value": values[point.settings["z"], at]}
        for point in points_of(plan.axes("main")) if point.settings["trust"] == "all"
        for at in (4.0, 8.0)
    ]  # fmt: skip
    found = judge_statements(plan, pd.DataFrame(rows))[0]
    assert (found.value, found.words.partition("The best: ")[2]) == (20.0, "z = 1.")


def test_nothing_is_the_best_where_a_run_is_missing(tmp_path: Path) -> None:
    values = {1.0: [9.0, 10.0, 11.0], 2.0: [1.0, 1.0]}
    found = judged(tmp_path, {"value": best("highest"), "expect": {"at_least": 5}}, values, seeds=3)
    assert found.outcome is Outcome.NOT_JUDGED


def test_computed_values_that_differ_by_seed_have_an_interval_and_epsilons_their_range(
    tmp_path: Path,
) -> None:
    """Energies of drawn channels: of 10 and 12 the interval of the mean reaches far below 9."""
    expect = {"expect": {"at_least": 9}}
    energy = "energy_at_clip:10,2"
    drawn = judged(tmp_path, {"value": term(HIGH, energy)} | expect, {2.0: [10.0, 12.0]}, measure=energy)
    assert drawn.outcome is Outcome.NOT_SETTLED
    assert (drawn.low, drawn.high) == pytest.approx((11 - 12.7062, 11 + 12.7062), rel=1e-4)
    epsilon = "epsilon:cloud"
    found = judged(tmp_path, {"value": term(HIGH, epsilon)} | expect, {2.0: [10.0, 12.0]}, measure=epsilon)
    assert (found.outcome, found.low, found.high) == (Outcome.AGREES, 10.0, 12.0)


def test_a_difference_of_nothing_but_rounding_is_zero(tmp_path: Path) -> None:
    statement = {"value": term(HIGH), "minus": term(LOW), "expect": {"about": 0, "within": 0.1}}
    found = judged(tmp_path, statement, {1.0: [0.3, 0.3], 2.0: [0.1 + 0.2, 0.1 + 0.2]})
    assert found.value != 0
    assert measured_text(found) == "0 (0.3 against 0.3)"
    found = judged(tmp_path, statement, {1.0: [0.3, 0.3], 2.0: [0.30001, 0.30001]})
    assert measured_text(found).startswith("1e−5")


def test_two_differences_are_compared_seed_by_seed(tmp_path: Path) -> None:
    """What z = 2 loses against z = 1, less what z = 1 loses against itself, which is nothing."""
    loss = {**term(HIGH), "minus": {"z": 1.0}}
    none = {**term(LOW), "minus": {"z": 1.0}}
    values = {1.0: [90.0, 80.0, 70.0], 2.0: [85.0, 75.1, 64.9]}
    found = judged(tmp_path, {"value": loss, "minus": none, "expect": {"at_most": -4}}, values)
    assert found.outcome is Outcome.AGREES
    assert found.value == pytest.approx(-5.0)
    assert found.low == pytest.approx(
        -5.0 - 4.303 * 0.1 / 3**0.5, abs=1e-3
    )  # not of the spread of accuracies
    assert measured_text(found) == "−5.00 ± 0.25 points"


def test_the_two_compared_values_stand_behind_their_difference(tmp_path: Path) -> None:
    statement = {"value": term(HIGH), "minus": term(LOW), "expect": {"at_least": 0}}
    found = judged(tmp_path, statement, {1.0: [90.0, 80.0], 2.0: [85.0, 75.2]})
    assert measured_text(found) == "−4.9 ± 1.3 points (80.1 against 85)"
    change = {"value": term(HIGH, "epsilon:cloud"), "relative_to": term(LOW, "epsilon:cloud")}
    both = {1.0: [2.00001], 2.0: [3.0]}
    found = judged(tmp_path, change | {"expect": {"at_least": 0}}, both, measure="epsilon:cloud")
    assert measured_text(found) == "50 % (3 against 2.001)"  # ε are rounded up


@pytest.mark.parametrize(("value", "outcome"), [(math.inf, Outcome.AGREES), (1e300, Outcome.DIFFERS)])
def test_no_guarantee_can_be_what_is_expected(value: float, outcome: Outcome, tmp_path: Path) -> None:
    statement = {"value": term(LOW, "epsilon:cloud"), "expect": {"infinite": True}}
    found = judged(tmp_path, statement, {1.0: [value]}, measure="epsilon:cloud")
    assert found.outcome is outcome
    assert expected_text(found) == "∞ (no guarantee)"
