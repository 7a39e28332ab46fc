"""Where a front bends: by hand."""

import math

import pytest

from sfumato.report.pareto.knee import knee_sentences
from sfumato.report.pareto.points import ParetoPage, SweptPoint
from sfumato.report.results.series import Mean

PLANE = ("epsilon:cloud", "accuracy")


def swept(*points: tuple[float, float], score: str = "accuracy") -> ParetoPage:
    made = []
    for k, (cost, reached) in enumerate(points):
        means = {name: Mean(cost, math.nan) for name in ("epsilon:cloud", "energy_j")}
        made.append(SweptPoint((f"{k}",), 1, {**means, score: Mean(reached, math.nan)}))
    return ParetoPage("t", (), ("x",), tuple(made), ())


def test_the_point_after_which_a_factor_of_epsilon_buys_little() -> None:
    found = knee_sentences(swept((1, 0.6), (2, 0.8), (4, 0.9), (16, 0.92), (8, 0.5)), [PLANE])
    assert found == [
        "At ε = 16 towards the cloud accuracy is 92.0 %; at 4, 90.0 % (2.0 points less); at 1, 60.0 % "
        "(32.0 points less)."
    ]


def test_a_second_cost_that_bends_at_the_same_point_is_not_told_again() -> None:
    found = knee_sentences(swept((1, 0.6), (4, 0.9), (16, 0.92)), [PLANE, ("energy_j", "accuracy")])
    assert len(found) == 1


@pytest.mark.parametrize(
    "points",
    [
        [(1, 0.6), (4, 0.9)],
        [(1, 0.5), (2, 0.6), (4, 0.7), (8, 0.8)],
        [(1, 0.5), (2, 0.51), (4, 0.9)],
        [(1, 0.9), (2, 0.8), (4, 0.7)],
        [(1, 0.6), (2, math.nan), (math.inf, 0.9), (0.0, 0.1)],
    ],
    ids=["two points", "a straight line", "it bends the other way", "one point is best", "not measured"],
)
def test_without_a_bend_nothing_is_said(points: list[tuple[float, float]]) -> None:
    assert knee_sentences(swept(*points), [PLANE]) == []


def test_of_a_loss_less_is_better() -> None:
    page = swept((1, 9.0), (2, 4.0), (4, 3.5), score="rmse")
    (said,) = knee_sentences(page, [("epsilon:cloud", "rmse")])
    assert said.startswith("At ε = 4 towards the cloud RMSE is 3.5; at 2, 4; at 1, 9.")


def test_points_of_the_same_epsilon_to_a_reader_have_one_score() -> None:
    """Calibrated to the same target, 1.9996 and 1.9999 are both written 2: the better of them counts."""
    page = swept((1.9996, 0.722), (1.9999, 0.756), (4, 0.78), (16, 0.79))
    assert knee_sentences(page, [PLANE]) == [
        "At ε = 16 towards the cloud accuracy is 79.0 %; at 4, 78.0 % (1.0 points less); at 2, 75.6 % "
        "(3.4 points less)."
    ]


def test_of_several_keys_the_best_of_each_cost_is_told_with_its_interval() -> None:
    made = [
        SweptPoint(
            (share, f"{cost}"),
            3,
            {"epsilon:cloud": Mean(cost, math.nan), "accuracy": Mean(reached - less, 0.01)},
        )
        for cost, reached in ((1.0, 0.6), (2.0, 0.8), (4.0, 0.9), (16.0, 0.92))
        for share, less in (("none", 0.0), ("all", 0.1))
    ]
    assert knee_sentences(ParetoPage("t", (), ("share", "x"), tuple(made), ()), [PLANE]) == [
        "At ε = 16 towards the cloud accuracy is at best 92.0 % ± 1.0 points; at 4, 90.0 % ± 1.0 points (2.0 "
        "points less); at 1, 60.0 % ± 1.0 points (32.0 points less)."
    ]
