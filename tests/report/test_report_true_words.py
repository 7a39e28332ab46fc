"""What a page states is true of its run, and what matters most comes first."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from report_factory import claim, guarantee, metrics, quickstart_privacy, quickstart_spec

from sfumato.accounting import account
from sfumato.privacy.claim import Claim
from sfumato.report import compare
from sfumato.report.drawings.topology_figure import topology_figure
from sfumato.report.figures.claims import claims_figure
from sfumato.report.figures.control import control_figures, kept_choices
from sfumato.report.figures.costs import cost_figures, even_costs_table
from sfumato.report.figures.curves import score_figures
from sfumato.report.figures.epsilon_curves import epsilon_figures
from sfumato.report.figures.figure import EPSILON_ENDS, epsilon_shade
from sfumato.report.page.comparison import best_runs, comparison
from sfumato.report.page.differences import differences_table
from sfumato.report.page.html import PlacedFigures
from sfumato.report.page.sections import page_of
from sfumato.report.results.network import read_network
from sfumato.report.results.observer_labels import labels_for
from sfumato.report.results.series import load_series
from sfumato.report.results.summary import summarise
from sfumato.report.results.watched_epsilons import budgets, epsilon_lines
from sfumato.spec.load import load_spec

HDP = Path(__file__).parents[2] / "examples" / "hdp"
Make = Callable[..., Path]
INF = float("inf")


def shown(*folders: Path) -> str:
    return unescape(page_of(load_series(list(folders)), folders[0].parent)).replace("\u00a0", " ")


def first_of(page: str) -> str:
    return page.split('aria-label="Headline"')[1].split("</section>")[0]


def rows_of(*rows: tuple[str, str, float, int], **more: Any) -> dict[str, Any]:
    placed = {"cloud": "cloud", "public": "public", "edge": "own edge", "device": "peer"}
    found = [
        guarantee(unit, observer, epsilon, count, relation=placed[observer.partition(":")[0]])
        for unit, observer, epsilon, count in rows
    ]
    return {"spec": "x", "delta": 1e-5, "guarantees": found, "claims": []} | more


def clipped(kind: str) -> dict[str, Any]:
    privacy = quickstart_spec()["privacy"] | {"clip": {"kind": kind, "norm": 1.0}}
    return quickstart_spec(privacy=privacy)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("update", "clipped messages"),
        ("step", "clipped local steps"),
        ("example", "clipped gradients of examples"),
    ],
)
def test_what_is_clipped_is_named(kind: str, name: str, run_folder: Make) -> None:
    (one,) = load_series([run_folder("one", clipped(kind))])
    (figure,) = [figure for figure in cost_figures([one]) if figure.kind == "clip"]
    assert figure.title.lower() == name
    (even,) = load_series([run_folder("even", clipped(kind), frame=metrics(4).assign(clip_fraction=1.0))])
    assert f"<td>{name}</td>" in even_costs_table(even)


def controlled(run_folder: Make, spent: float = 6.0, **columns: Any) -> Path:
    rows = rows_of(
        ("device:0", "cloud", 8.0, 200), ("device:0", "edge:1", 8.0, 80), ("device:0", "public", 3.0, 200)
    )
    frame = metrics(4, epsilons={"cloud": spent, "edge:1": spent}).assign(**columns)
    return run_folder("c", quickstart_spec(control={"energy": 1.0}), frame=frame, privacy=rows)


def test_the_guarantee_of_a_controlled_run_is_its_budget(run_folder: Make) -> None:
    (one,) = load_series([controlled(run_folder)])
    assert epsilon_lines(one) == ["ε cloud 8, ε edge:1 8 (δ = 1e-5): the budget; the rounds spent 6 of it"]
    (figure,) = epsilon_figures([one])
    assert figure.title == "ε over rounds, towards cloud and edge 1"
    level = next(trace for trace in figure.data if trace["line"]["dash"] == "dot")
    assert level["y"] == [8.0, 8.0]
    assert "ε, cloud" in comparison([one], [summarise(one)], [])
    assert "8 (budget)" in comparison([one], [summarise(one)], [])


def test_no_budget_towards_an_edge_is_stated_too_small(run_folder: Make) -> None:
    """The row of edge 1 is about edge 4, too; that which names edge 4 is about devices elsewhere."""
    found = [
        guarantee("device:0", "edge:0", INF, 120, relation="own edge", trusted=True),
        guarantee("device:40", "edge:1", 45.4, 80, relation="own edge"),
        guarantee("device:0", "edge:4", 11.0, 480, relation="edge elsewhere"),
    ]
    frame = metrics(4, epsilons={"edge:4": 40.0, "edge:0": INF})
    spec = quickstart_spec(control={"energy": 1.0})
    (one,) = load_series([run_folder("c", spec, frame=frame, privacy=rows_of() | {"guarantees": found})])
    assert {name: budget.given for name, budget in budgets(one).items()} == {"edge:4": 45.4, "edge:0": INF}


def test_no_observer_without_a_budget_is_in_a_line_of_budgets(run_folder: Make) -> None:
    rows = rows_of(("device:0", "cloud", 8.0, 200))
    frame = metrics(4, epsilons={"cloud": 6.0, "edge:1": 7.0})
    (one,) = load_series(
        [run_folder("c", quickstart_spec(control={"energy": 1.0}), frame=frame, privacy=rows)]
    )
    assert epsilon_lines(one) == ["ε cloud 8 (δ = 1e-5): the budget; the rounds spent 6 of it"]


def test_the_lines_of_other_runs(run_folder: Make) -> None:
    (one,) = load_series([run_folder("a")])
    assert epsilon_lines(one) == ["ε cloud 8, ε edge:0 ∞, ε edge:1 71.3 (δ = 1e-5)"]
    spec = clipped("example")
    rows = rows_of(("record:0", "cloud", 4.0, 5), ("record:0", "public", 0.9, 5))
    frame = metrics(4, epsilons={"cloud": 4.0, "public": 0.9})
    (of_records,) = load_series([run_folder("b", spec, frame=frame, privacy=rows)])
    said = "ε of a record: cloud 4, public 0.9 (δ = 1e-5); a device as a whole: ∞"
    assert epsilon_lines(of_records) == [said]
    assert epsilon_lines(load_series([run_folder("c", frame=metrics(4))])[0]) == []


def test_a_choice_that_never_changed_is_not_said_to_be_chosen_in_round_1(run_folder: Make) -> None:
    (one,) = load_series([controlled(run_folder, participants_untrusted=5, noise_factor=1.0)])
    said = kept_choices([one])
    assert (
        "Devices of an edge that take part: 5 in every round; in round 1 as many as may take part, later as "
        "adaptive control chose."
    ) in said
    noise = "Noise, as a multiple of the spec's noise: 1 in every round, as adaptive control chose."
    assert noise in said  # round 1 too


@pytest.mark.parametrize(
    ("later", "end"),
    [
        (
            4,
            " It is the fewest that a round may have: 3 edge aggregations and the global one, a step each.",
        ),
        (40, " It is the most that a round may have (control.max_steps)."),
        (9, ""),
    ],
)
def test_a_choice_that_changed_after_round_1_only_has_no_figure(
    run_folder: Make, later: int, end: str
) -> None:
    """What round 1 has is drawn by lot: a flat line after it would show nothing."""
    frame = metrics(4).assign(interval=[13, later, later, later])
    training = {"rounds": 4, "local_steps": 20, "edge_every": 5}
    spec = quickstart_spec(control={"energy": 1.0, "max_steps": 40}, training=training)
    (one,) = load_series([run_folder("c", spec, frame=frame)])
    assert control_figures([one]) == []
    assert kept_choices([one]) == [
        f"Local steps a round: 13 in round 1, then {later} in every round; in round 1 drawn by lot, later as "
        f"adaptive control chose.{end}"
    ]


def test_captions_of_control_say_least_and_most(run_folder: Make) -> None:
    columns = {"participants_trusted": [5, 4, 4, 5], "participants_untrusted": 5}
    (one,) = load_series([controlled(run_folder, **columns)])
    (figure,) = control_figures([one])
    assert figure.caption.endswith(
        "before every later round: trusted edges 5 in round 1, then 4 to 5; other edges 5 in round 1, then 5."
    )
    assert figure.caption.startswith("In round 1 as many as may take part; chosen by adaptive control ")


def test_runs_on_different_data_are_neither_ranked_nor_drawn_together(run_folder: Make) -> None:
    folders = [
        run_folder(name, quickstart_spec(name=name, data={"source": data}), frame=metrics(4, seed=place))
        for place, (name, data) in enumerate((("a", "digits"), ("b", "digits"), ("c", "mnist")))
    ]
    series = load_series(folders)
    assert not any("accuracy" in said for said in best_runs(series, list(map(summarise, series))))
    assert [figure.title for figure in score_figures(series)] == ["Accuracy on digits", "Accuracy on mnist"]
    (said,) = compare(folders).notices
    assert said.startswith("The runs learn from different data: digits in a and b; mnist in c.")
    assert best_runs(series[:2], list(map(summarise, series[:2])))[0].startswith("Highest accuracy")
    assert [figure.title for figure in score_figures(series[:2])] == ["Accuracy"]


def noisy(name: str, noise: dict[str, Any]) -> dict[str, Any]:
    return quickstart_spec(name=name, privacy={"delta": 1e-5, "noise": noise})


def test_a_claimed_target_is_called_so_and_noise_is_given_as_used(run_folder: Make) -> None:
    sources = [{"owners": ["edge:0", "edge:2"], "multipliers": [3.2, 3.2]}]
    target = {"kind": "target", "epsilon": 8.0, "for": "cloud"}
    formula = {"kind": "formula", "epsilon": 1.0}
    series = load_series([
        run_folder("a", noisy("a", {"kind": "sources", "sources": sources, "calibrated_from": target})),
        run_folder("b", noisy("b", {"kind": "sources", "sources": sources, "calibrated_from": formula})),
        run_folder("c", noisy("c", {"kind": "multiplier", "multiplier": 1.9, "at": "step"})),
    ])  # fmt: skip
    table = re.sub(r' data-title="[^"]*"', "", unescape(differences_table(series)))
    assert "<td>Target ε</td><td>8</td><td>1 (claimed by a formula)</td><td>not set</td>" in table
    used = "<td>edges 0, 2: 3.2</td>"
    assert f"<td>Noise multipliers</td>{used}{used}<td>every device, at every local step: 1.9</td>" in table
    assert "How noise is stated" not in table
    silent = run_folder("d", quickstart_spec(name="d", protocol="hfl", privacy=None))
    series = (series[0], *load_series([silent]))
    assert "<td>8</td><td>not set</td>" in re.sub(r' data-title="[^"]*"', "", differences_table(series))
    assert "<td>cloud</td><td>not set</td><td>not set</td>" in table  # other keys of noise stay


def test_equal_guarantees_are_told_once(run_folder: Make) -> None:
    spec = clipped("example") | {"topology": {"kind": "star", "devices": 5}, "trust": {}}
    rows = [("record:0", observer, 1.76, 5) for observer in ("cloud", "public", "device:1")]
    first = first_of(shown(run_folder("a", spec, privacy=rows_of(*rows))))
    assert "Towards anybody but its own device no record exceeds ε = 1.76 at δ = 1e-5." in first
    rows[1] = ("record:0", "public", 0.9, 5)
    first = first_of(shown(run_folder("b", spec, privacy=rows_of(*rows))))
    assert "Towards the cloud no record exceeds ε = 1.76 at δ = 1e-5." in first


def test_classes_of_devices_that_differ_are_named(run_folder: Make) -> None:
    rows = rows_of(("device:0", "cloud", 45.4, 120), ("device:40", "cloud", 15.2, 80))
    said = (
        "Towards the cloud at δ = 1e-5: ε = 45.4 for 120 devices under edges 0, 2, 3 (edge trusted, noise "
        "added by edge) and ε = 15.2 for 80 devices under edges 1, 4 (edge untrusted, noise added by device)."
    )
    assert said in first_of(shown(run_folder(privacy=rows)))


def test_noise_that_the_cloud_knows_is_not_named_as_protection_from_it(run_folder: Make) -> None:
    report = account(load_spec(HDP / "c7.yaml", ["training.rounds=2"]))
    spec = report.plan.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    first = first_of(shown(run_folder("c7", spec, privacy=report.to_dict())))
    assert (
        "for 40 devices under edges 1, 3, 6, 9 (noise added by device; the cloud's own does not count) and"
        in first
    )
    assert (
        "for 30 devices under edges 2, 5, 7 (noise added by edge; the cloud's own does not count)." in first
    )
    drawn = topology_figure(read_network(spec))
    assert drawn is not None
    assert "without noise (orange): the cloud. Not trusted" in drawn.caption
    assert "sums of messages without noise (orange): edges 0, 2, 4, 5, 7, 8." in drawn.caption


def test_who_has_no_guarantee_is_told_first(run_folder: Make) -> None:
    rows = rows_of(("device:0", "cloud", 8.0, 120), ("device:40", "cloud", INF, 80))
    first = first_of(shown(run_folder(privacy=rows)))
    none = "Without any guarantee: 80 devices under edges 1, 4 towards the cloud."
    assert 0 < first.index(none) < first.index("Towards the cloud no device that has a guarantee")


def test_a_column_that_is_left_out_is_not_said_to_be_infinite_for_all(run_folder: Make) -> None:
    moves = {"trace": [[2, 0, 1], [3, 1, 2]]}
    spec = quickstart_spec(
        topology={"kind": "tree", "edges": 3, "devices_per_edge": 3, "moves": moves},
        training={"rounds": 4, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1},
        trust={"trusted_edges": [0]},
    )  # fmt: skip
    found = [guarantee(f"device:{n}", "cloud", 1.0 + n, relation="cloud") for n in (0, 1, 2, 6)]
    found += [guarantee(f"device:{n}", "edge:0", INF, relation="own edge", trusted=True) for n in (0, 1, 2)]
    found += [guarantee("device:6", "edge:2", 3.0, relation="own edge")]
    page = shown(run_folder("m", spec, privacy=rows_of() | {"guarantees": found}))
    assert "∞ for every class" not in page


def test_the_device_with_the_largest_epsilon_is_named_where_its_class_has_several(run_folder: Make) -> None:
    moves = {"trace": [[2, 0, 1], [3, 0, 2], [2, 6, 0], [3, 7, 0]]}
    spec = quickstart_spec(
        topology={"kind": "tree", "edges": 3, "devices_per_edge": 3, "moves": moves},
        training={"rounds": 4, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1},
        trust={"trusted_edges": [0]},
    )  # fmt: skip
    values = {0: 2.0, 1: 9.0, 2: 4.0, 3: 1.0, 6: 2.5, 7: 3.0}
    rows = rows_of(*((f"device:{device}", "cloud", value, 1) for device, value in values.items()))
    first = first_of(shown(run_folder("m", spec, privacy=rows)))
    assert "Towards the cloud at δ = 1e-5 ε is from 1 to 9; the largest is that of device 1." in first


def test_a_single_point_is_a_sentence_not_a_plot(run_folder: Make) -> None:
    frame = metrics(5, every=5)
    page = shown(run_folder("one", frame=frame))
    assert "The model was evaluated once, after round 5; a smaller evaluate_every" in page
    assert "-accuracy" not in page.split('id="figures">')[1].split("</script>")[0]


def test_the_line_below_the_title_says_who_there_is_and_what_is_protected(run_folder: Make) -> None:
    star = {"topology": {"kind": "star", "devices": 5}, "trust": {}}
    rows = rows_of(("record:0", "cloud", 1.76, 5))
    page = shown(run_folder("a", clipped("example") | star, privacy=rows))
    assert " · 5 devices · ε of one record · seed 0" in page
    assert " · 5 edges, 200 devices · ε of one device · seed 0" in shown(run_folder("b"))


def test_several_runs_are_compared_in_a_table_before_any_plot(run_folder: Make) -> None:
    folders = [run_folder(name, quickstart_spec(name=name, seed=seed)) for seed, name in enumerate("ab")]
    page = shown(*folders)
    assert page.index("<table") < page.index("<figure")
    assert page.count("Lighter is more private.") == 1
    for title in ("Who learns what about whom", "The network", "Published claims"):
        assert re.search(f"<summary><h2>{title}</h2></summary>", page)


def test_the_legend_of_a_drawing_does_not_scroll_with_it() -> None:
    figure = topology_figure(read_network(quickstart_spec()))
    assert figure is not None
    figures = PlacedFigures()
    html = figures.place(figure)
    key = html.split('<ul class="key">')[1].split("</ul>")[0]
    assert re.findall(r"</svg>(.*?)</li>", key) == [trace["name"] for trace in figure.data]
    assert html.index('class="wide"') < html.index('class="key"')
    assert [one.layout["showlegend"] for one in figures.placed.values()] == [False]


def test_equal_colours_mean_equal_epsilons() -> None:
    assert [epsilon_shade(value) for value in (0.0, 0.1, 1.0, 10.0, 100.0, 5000.0)] == [-1, -1, 0, 1, 2, 2]
    assert EPSILON_ENDS == (-1, 2)


def test_claims_are_drawn_with_one_row_for_every_pair() -> None:
    claims = [
        Claim.from_dict(claim(claimed, 9.0, why="", observer=observer) | {"source": source})
        for claimed, observer in ((1.0, "cloud"), (2.0, "public"))
        for source in ("X, one", "X, two")
    ]
    figure = claims_figure(claims, labels_for(read_network(quickstart_spec())))
    assert figure is not None
    assert [trace["name"] for trace in figure.data] == ["claimed: X, one", "claimed: X, two", "rigorous"]
    assert figure.layout["yaxis"]["ticktext"] == [
        f"120 devices under edges 0,<br>2, 3 → {whom}" for whom in ("cloud", "public")
    ]
    assert [trace["y"] for trace in figure.data] == [[0, 1]] * 3
    assert figure.data[-1]["x"] == [9.0, 9.0]


def test_the_verdict_on_a_claim_is_on_the_first_screen(run_folder: Make) -> None:
    privacy = quickstart_privacy()
    privacy["claims"] = [claim(1.5, 63.0, why="the proof holds for ε below 0.064 only (P1)")]
    assert "The proof holds for ε below 0.064 only" in re.sub(
        "<[^>]*>", "", first_of(shown(run_folder(privacy=privacy)))
    )
