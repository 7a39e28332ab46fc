"""Fronts: what is on them, how infinities are drawn, that the page is whole and nothing in it is markup."""

from __future__ import annotations

import math
from dataclasses import replace
from html import unescape
from itertools import product
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_report_browser import Drawn, chromium
from test_report_page import Elements, figures_of, markup_of

from sfumato.report.pareto.headline import headline
from sfumato.report.pareto.page import write_pareto_page
from sfumato.report.pareto.points import ParetoPage, SweptPoint, pareto_front, planes
from sfumato.report.results.series import Mean

INF, NAN = math.inf, math.nan
ATTACK = "<img src=x onerror=alert(1)>"


def point(*labels: str, seeds: int = 3, **objectives: float | tuple[float, float]) -> SweptPoint:
    named = {name.replace("__", ":"): value for name, value in objectives.items()}
    means = {n: Mean(*v) if isinstance(v, tuple) else Mean(v, NAN) for n, v in named.items()}
    return SweptPoint(labels, seeds, means)


def swept(*points: SweptPoint, keys: tuple[str, ...] = ("share", "noise"), **more: Any) -> ParetoPage:
    return ParetoPage(
        title="a sweep", facts=["protocol h2fdp"], keys=keys, points=points, failures=(), **more
    )


GRID = swept(
    point("0", "1", accuracy=(0.4, 0.05), epsilon__cloud=15.0, energy_j=(520.0, 9.0), delay_s=NAN),
    point("0", "none", accuracy=(0.8, 0.01), epsilon__cloud=INF, energy_j=(520.0, 9.0), delay_s=NAN),
    point("1", "1", accuracy=(0.6, 0.02), epsilon__cloud=45.0, energy_j=(300.0, 2.0), delay_s=NAN),
    point("1", "none", accuracy=(0.79, 0.02), epsilon__cloud=INF, energy_j=(310.0, 2.0), delay_s=NAN),
)


def dots(figure: dict[str, Any]) -> dict[str, tuple[float, float, str]]:
    """Place and symbol of every point, by the first lines of its hover."""
    return {
        hover.split("<br>accuracy")[0].replace("<br>", ", "): (x, y, symbol)
        for trace in figure["data"]
        if "hovertext" in trace
        for hover, x, y, symbol in zip(
            trace["hovertext"], trace["x"], trace["y"], trace["marker"]["symbol"], strict=True
        )
    }


class TestWords:
    def test_the_best_below_the_reference_is_named(self) -> None:
        points = [
            point("1", accuracy=0.5, epsilon__cloud=4.0),
            point("2", accuracy=0.7, epsilon__cloud=9.0),
            point("3", accuracy=0.9, epsilon__cloud=11.0),
        ]
        said = headline(swept(*points, keys=("noise",)))
        assert "Best point with ε towards the cloud of at most 10: noise = 2, with accuracy 70.0 %" in said
        assert "means: an observer that starts at 50 : 50" in said
        assert "can become at most 99.99 % sure at ε = 9 and 98.3 % sure at ε = 4, leaving δ" in said
        assert "One seed each" not in said
        alone = headline(swept(point("1", seeds=1, accuracy=0.5, epsilon__cloud=4.0), keys=("noise",)))
        assert "One seed each: a small difference between points may be chance." in alone
        counted = swept(point("1", seeds=1, accuracy=0.5, epsilon__cloud=4.0), keys=("noise",), tested=360)
        assert "One seed each and 360 test examples: a small difference" in headline(counted)
        assert "of at most 10" not in headline(swept(*points[:2], keys=("noise",)))  # all are below
        assert "of at most 10" not in headline(swept(points[2], points[2], keys=("noise",)))  # none is

    @pytest.mark.parametrize(
        ("unit", "whose"),
        [("record", "a record's"), ("person", "a person's"), ("", "one protected unit's")],
    )
    def test_what_an_epsilon_means_is_said_of_its_unit(self, unit: str, whose: str) -> None:
        said = unescape(headline(swept(point("1", accuracy=0.5, epsilon__cloud=4.0), keys=("e",), unit=unit)))
        assert f"50 : 50 on whether {whose} data were used" in said
        assert ("Somebody with several records is protected less." in said) == (unit == "record")

    def test_a_sweep_without_a_point_without_noise_says_how_to_see_its_cost(self) -> None:
        noised = [point(str(value), accuracy=0.5, epsilon__cloud=value) for value in (2.0, 4.0)]
        said = headline(swept(*noised, keys=("noise",)))
        assert (
            "What the noise costs in all is not known: no point is without it, and no run beside the sweep "
            "has the same settings without it."
        ) in said
        assert "<pre" not in said
        assert "<pre" in headline(swept(*noised, keys=("noise",), silent_command="sfumato run s.yaml"))
        silent = point("none", accuracy=0.9, epsilon__cloud=INF)
        assert "is not known" not in headline(swept(*noised, silent, keys=("noise",)))
        untrained = point("2", epsilon__cloud=2.0)
        assert "is not known" not in headline(swept(untrained, keys=("noise",)))

    def test_an_epsilon_that_repeats_another_is_said_and_not_drawn(self) -> None:
        points = [
            point(str(value), accuracy=value / 9, epsilon__cloud=value, epsilon__edge=value * (1 + 1e-9))
            for value in (1.0, 2.0)
        ]
        page = swept(*points, keys=("noise",))
        assert planes(page) == [("epsilon:cloud", "accuracy")]
        assert "ε towards an edge equals ε towards the cloud at every point." in headline(page)
        different = swept(
            *points, point("9", accuracy=0.9, epsilon__cloud=9.0, epsilon__edge=8.0), keys=("k",)
        )
        assert len(planes(different)) == 2
        assert "equals" not in headline(different)

    def test_different_trust_is_said(self) -> None:
        less, more = (replace(GRID.points[0], raw_to_trusted_edge=f"{n} of 9") for n in (0, 3))
        assert "trusted edge (0 of 9 and 3 of 9)" in headline(swept(less, more))
        assert "trusted edge" not in headline(swept(less, less))

    def test_epsilon_towards_edges_of_different_trust_is_in_no_figure_and_in_no_front(
        self, tmp_path: Path
    ) -> None:
        points = [
            replace(
                point(str(raw), accuracy=accuracy, epsilon__cloud=cloud, epsilon__edge=edge),
                raw_to_trusted_edge=f"{raw} of 9",
            )
            for raw, accuracy, cloud, edge in ((0, 0.7, 8.0, 18.0), (3, 0.6, 8.0, 2.0), (9, 0.5, 2.0, 1.0))
        ]
        page = swept(*points, keys=("k",))
        assert planes(page) == [("epsilon:cloud", "accuracy")]
        written = write_pareto_page(page, tmp_path / "report.html").read_text(encoding="utf-8")
        assert "ε towards an edge is in no figure: points differ in whom devices trust" in written
        assert "On the front: no other point is as good in accuracy and ε towards the cloud, and" in written
        assert markup_of(written).count(">yes</td>") == 2  # the second is beaten by the first

    def test_intervals_that_all_overlap_settle_no_order(self) -> None:
        first, other, apart = (
            point(str(n), accuracy=(a, 0.1), seeds=2) for n, a in enumerate((0.4, 0.5, 0.9))
        )
        said = headline(swept(first, other, keys=("k",)))
        assert "overlap in accuracy: with 2 seeds each, every order among them may be chance." in said
        assert "every order" not in headline(swept(first, other, apart, keys=("k",)))

    def test_a_key_whose_effect_is_within_the_intervals_is_told(self) -> None:
        """At each target ε the shares overlap; the targets do not."""
        grid = [
            point(share, target, accuracy=(a, 0.02), epsilon__cloud=float(target))
            for target, reached in (("2", 0.76), ("8", 0.91))
            for share, a in (("none", reached), ("all", reached + 0.01))
        ]
        said = headline(swept(*grid, keys=("trusted edges", "target ε")))
        assert (
            "Points that differ only in trusted edges have overlapping intervals of accuracy: no effect of "
            "trusted edges on it is seen." in said
        )
        assert "no effect of target" not in said
        apart = [replace(grid[0], objectives=grid[0].objectives | {"accuracy": Mean(0.6, 0.02)}), *grid[1:]]
        assert "no effect" not in headline(swept(*apart, keys=("trusted edges", "target ε")))

    def test_an_epsilon_that_is_the_swept_target_has_no_lowest(self) -> None:
        points = [
            point(share, target, accuracy=0.5, epsilon__cloud=float(target) - 1e-9, epsilon__edge=3.0)
            for target in ("2", "8.0")
            for share in ("none", "all")
        ]
        said = headline(swept(*points, keys=("trusted edges", "target ε")))
        assert "Lowest ε towards the cloud" not in said
        assert "Lowest ε towards the cloud" in headline(swept(*points, keys=("trusted edges", "k")))

    def test_devices_that_trust_their_edge_are_told_beside_every_epsilon_of_edges(
        self, tmp_path: Path
    ) -> None:
        points = [
            replace(point(str(e), accuracy=a, epsilon__edge=e), raw_to_trusted_edge="120 of 200")
            for e, a in ((18.0, 0.7), (99.0, 0.9))
        ]
        page = swept(*points, keys=("k",))
        assert "It is ∞ for 120 of 200 devices towards their own edge, which they trust." in headline(page)
        trust = "(∞ for 120 of 200 devices towards their own edge, which they trust)"
        assert f"Lowest ε towards an edge: 18 at k = 18.0 {trust}." in headline(page)
        written = write_pareto_page(page, tmp_path / "report.html").read_text(encoding="utf-8")
        (figure,) = figures_of(written).values()
        assert figure["layout"]["xaxis"]["title"]["text"].startswith(
            "ε towards an edge that the device does not trust"
        )
        assert "The ∞ towards a trusted own edge is not drawn." in written
        assert "Pareto" not in markup_of(written)  # both points are on the front: nothing to explain
        mixed = [points[0], replace(points[1], raw_to_trusted_edge="0 of 200")]
        said = "trusted edge (120 of 200 and 0 of 200), towards which their ε is ∞."
        assert said in headline(swept(*mixed, keys=("k",)))
        none = [replace(one, raw_to_trusted_edge="0 of 200") for one in points]
        assert "they trust" not in headline(swept(*none, keys=("k",)))

    def test_guessing_and_a_run_without_noise_give_the_scale(self, tmp_path: Path) -> None:
        points = [point(str(e), accuracy=e / 10, epsilon__cloud=e) for e in (2.0, 8.0)]
        page = swept(*points, keys=("k",), guess=0.103, silent=0.9, silent_name="the run in the folder quiet")
        said = headline(page)
        assert "Highest accuracy: 80.0 % at k = 8.0; guessing would give 10.3 %." in said
        assert (
            "Without noise accuracy is 90.0 % (the run in the folder quiet): the noise costs 10.0 points at "
            "k = 8.0 and 70.0 points at k = 2.0."
        ) in said
        over = swept(*points, keys=("k",), silent=0.8, silent_name="quiet")
        assert "the noise costs 60.0 points at k = 2.0; no cost of the noise is seen at k = 8.0." in (
            headline(over)
        )
        assert "is not known" not in said
        written = write_pareto_page(page, tmp_path / "report.html").read_text(encoding="utf-8")
        (figure,) = figures_of(written).values()
        assert [shape["y0"] for shape in figure["layout"]["shapes"]] == [0.9]
        assert figure["layout"]["yaxis"]["range"][1] > 0.9
        assert "Dotted: without noise, 90.0 %." in written

    def test_no_score_is_set_against_epsilon_towards_edges_of_different_trust(self) -> None:
        """Where an own edge is trusted the ε is towards another edge: not the price of the score."""
        points = [
            replace(point(str(e), accuracy=a, epsilon__edge=e), raw_to_trusted_edge=raw)
            for e, a, raw in ((2.0, 0.5, "0 of 9"), (6.0, 0.8, "9 of 9"), (99.0, 0.9, "0 of 9"))
        ]
        mixed = headline(swept(*points, keys=("k",)))
        assert "towards an edge accuracy is" not in mixed
        assert "Best point with ε towards an edge" not in mixed
        alike = headline(swept(*(replace(one, raw_to_trusted_edge="0 of 9") for one in points), keys=("k",)))
        assert "towards an edge accuracy is" in alike
        assert "Best point with ε towards an edge of at most 10: k = 6.0" in alike
        assert "Where the intervals in the table overlap, an order may be chance." in alike


class TestFront:
    def test_of_a_grid(self) -> None:
        assert pareto_front(GRID.points, ("accuracy", "epsilon:cloud")) == (True, True, True, False)
        assert pareto_front(GRID.points, ("accuracy", "energy_j")) == (False, True, True, True)
        assert pareto_front(GRID.points, ("accuracy", "delay_s")) == (False,) * 4

    def test_equal_points_do_not_beat_each_other(self) -> None:
        twins = [point("a", accuracy=0.5, energy_j=1.0), point("b", accuracy=0.5, energy_j=1.0 + 1e-9)]
        assert pareto_front(twins, ("accuracy", "energy_j")) == (True, True)

    values = st.one_of(st.integers(0, 4).map(float), st.sampled_from([INF, NAN]))

    @given(st.lists(st.tuples(st.integers(0, 4).map(float), values, values), max_size=12))
    def test_is_what_its_definition_says(self, rows: list[tuple[float, float, float]]) -> None:
        names = ("accuracy", "epsilon:cloud", "energy_j")
        points = [SweptPoint((), 1, {n: Mean(v, NAN) for n, v in zip(names, r, strict=True)}) for r in rows]
        for mine, is_on in zip(rows, pareto_front(points, names), strict=True):
            beaten = any(
                other[0] >= mine[0]
                and other[1] <= mine[1]
                and other[2] <= mine[2]
                and (other[0] > mine[0] or other[1] < mine[1] or other[2] < mine[2])
                for other in rows
            )
            assert is_on == (not beaten and not any(map(math.isnan, mine)))


class TestPage:
    def test_draws_accuracy_against_what_was_measured(self, tmp_path: Path) -> None:
        page = write_pareto_page(GRID, tmp_path / "report.html").read_text(encoding="utf-8")
        figures = list(figures_of(page).values())
        assert [figure["layout"]["xaxis"]["title"]["text"] for figure in figures] == [
            "ε towards the cloud, logarithmic", "energy, J",
        ]  # fmt: skip
        for figure in figures:
            go.Figure(figure)
        markup = markup_of(page)
        assert "Highest accuracy: 80.0 % ± 1.0 points at share = 0, noise = none." in markup
        assert "Lowest ε towards the cloud: 15 at share = 0, noise = 1." in markup
        assert "Lowest energy: 300 J ± 2 J at share = 1, noise = 1." in markup
        assert markup.count(">∞</td>") == 2
        assert "on the front" not in markup  # of all objectives together every point is
        assert markup.count("The Pareto front: the points that no other point beats") == 1

    def test_its_heading_names_costs_only_where_they_are_drawn(self, tmp_path: Path) -> None:
        low, high = (point(str(n), accuracy=n / 9, epsilon__cloud=float(n)) for n in (1, 2))
        page = write_pareto_page(swept(low, high, keys=("noise",)), tmp_path / "a.html").read_text("utf-8")
        assert ("<h2>Accuracy against ε</h2>" in page, "ε and costs" in page) == (True, False)
        assert "∞: no guarantee" not in page
        low, high = (point(str(n), accuracy=n / 9, epsilon__cloud=float(n), energy_j=n * n) for n in (1, 2))
        page = write_pareto_page(swept(low, high, keys=("noise",)), tmp_path / "b.html").read_text("utf-8")
        assert "<h2>Accuracy against ε and costs</h2>" in page
        low, high = (point(str(n), epsilon__cloud=1 / n, energy_j=n * n) for n in (1, 2))
        page = write_pareto_page(swept(low, high, keys=("noise",)), tmp_path / "c.html").read_text("utf-8")
        assert ("<h2>ε and costs of the points</h2>" in page, "Accuracy against" in page) == (True, False)

    def test_infinities_stand_in_a_strip_of_their_own(self, tmp_path: Path) -> None:
        page = write_pareto_page(GRID, tmp_path / "report.html").read_text(encoding="utf-8")
        figure = next(iter(figures_of(page).values()))
        axis = figure["layout"]["xaxis"]
        places = dots(figure)
        (wall,) = figure["layout"]["shapes"]
        assert axis["ticktext"][-1] == "∞"
        for name, (x, _, symbol) in places.items():
            infinite = "noise = none" in name
            assert (x == axis["tickvals"][-1]) == infinite
            assert (x > wall["x0"]) == infinite
            assert symbol.endswith("-open") == (name == "share = 1, noise = none")
        stairs = figure["data"][0]
        assert (stairs["x"], stairs["y"]) == ([15.0, 45.0], [0.4, 0.6])

    @pytest.mark.parametrize("low", [1.0, 0.01])
    def test_axes_hold_all_points_and_intervals(self, low: float, tmp_path: Path) -> None:
        points = [
            point(str(i), accuracy=(0.97, 0.2), energy_j=(energy, 0.1 * energy), epsilon__cloud=energy)
            for i, energy in enumerate((low, 3.0, 5.0))
        ]
        page = write_pareto_page(swept(*points, keys=("k",)), tmp_path / "report.html").read_text(
            encoding="utf-8"
        )
        for figure in figures_of(page).values():
            axis = figure["layout"]["xaxis"]
            start, end = (10**v if axis.get("type") == "log" else v for v in axis["range"])
            spread = figure["data"][1]["error_x"].get("array", [0.0] * 3)
            xs = [x for trace in figure["data"] if "hovertext" in trace for x in trace["x"]]
            scale = xs[0] / low
            assert start <= 0.9 * low * scale <= end
            assert start <= 5.5 * scale <= end or not spread[0]
            assert figure["layout"]["yaxis"]["range"][1] == 1.0

    def test_without_accuracy_the_epsilons_are_set_against_each_other(self, tmp_path: Path) -> None:
        points = [point(a, epsilon__cloud=float(a), epsilon__edge=9.0 / float(a)) for a in ("1", "2", "3")]
        page = write_pareto_page(swept(*points, keys=("k",)), tmp_path / "report.html").read_text(
            encoding="utf-8"
        )
        (figure,) = figures_of(page).values()
        assert figure["layout"]["xaxis"]["title"]["text"] == "ε towards the cloud, logarithmic"
        assert figure["layout"]["yaxis"]["title"]["text"] == "ε towards an edge, logarithmic"

    def test_with_nothing_to_set_against_each_other_it_says_so(self, tmp_path: Path) -> None:
        page = write_pareto_page(swept(), tmp_path / "report.html").read_text(encoding="utf-8")
        assert "A front needs two of accuracy, ε, energy and delay" in markup_of(page)
        assert figures_of(page) == {}

    def test_what_a_user_wrote_is_text(self, tmp_path: Path) -> None:
        points = [point(ATTACK, accuracy=0.5, energy_j=1.0), point("b", accuracy=0.6, energy_j=2.0)]
        page = ParetoPage(ATTACK, [ATTACK], (ATTACK,), tuple(points), ((ATTACK, ATTACK),))
        written = write_pareto_page(page, tmp_path / "report.html").read_text(encoding="utf-8")
        assert ATTACK not in written
        assert "img" not in Elements(written).tags
        hovers = [
            hover for f in figures_of(written).values() for t in f["data"] for hover in t.get("hovertext", ())
        ]
        assert not any("<img" in hover for hover in hovers)

    @pytest.mark.needs("chromium")
    def test_a_browser_draws_it(self, tmp_path: Path) -> None:
        sizes = product(("0", "1", "2"), ("1", "none"))
        points = [
            point(
                a, b, accuracy=(0.5, 0.1), epsilon__cloud=INF if b == "none" else 1.0 + float(a), energy_j=0.1
            )
            for a, b in sizes
        ]
        page = write_pareto_page(swept(*points), tmp_path / "report.html")
        drawn = Drawn(chromium(tmp_path, "--dump-dom", page.as_uri()).decode())
        assert drawn.root.get("data-errors") is None
        assert drawn.root.get("data-drawn") == "1"  # the energy is the same everywhere
        words = " ".join(word for said in drawn.words.values() for word in said)
        assert "∞" in words
        assert "share = 2" in words
