"""Lines through bounds that are known after some rounds only."""

from __future__ import annotations

from sfumato.report.figures.figure import BoundingLine


def test_a_round_without_a_bound_has_that_of_the_next_with_one() -> None:
    line = BoundingLine.of([5, 6, 10], [1.0, 2.0, 3.0])
    assert line.rounds == [1, 5, 6, 10]
    assert line.values == [1.0, 1.0, 2.0, 3.0]
    assert line.opacity == [0, 1, 1, 1]
    assert line.shape == "vh"  # Plotly: at a round first up to the next value, then across to the next round


def test_no_point_is_added_where_every_round_has_a_bound() -> None:
    assert BoundingLine.of([1, 2, 3], [1.0, 2.0, 3.0]) == ([1, 2, 3], [1.0, 2.0, 3.0], [1, 1, 1], "linear")
