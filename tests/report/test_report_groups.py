"""Reports of overlapping groups: worker by worker, PwP over epochs, how releases spread, what is claimed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_factory import metrics
from test_report_browser import draw

from sfumato.accounting import account
from sfumato.findings.large_epsilons import WHAT_LARGE_MEANS
from sfumato.report import formatting as text
from sfumato.report import write_report
from sfumato.report.drawings.group_graph import group_graph_figure, spread_html
from sfumato.report.figures.figure import NO_GUARANTEE, Figure, epsilon_bar
from sfumato.report.figures.per_worker_privacy import per_worker_privacy_figure
from sfumato.report.figures.worker_heatmap import pairs_of_cells, worker_heatmap_figure, workers_html
from sfumato.report.page.party_words import with_words_for_parties
from sfumato.report.page.who_adds_noise import sentence_of_participation, training_of
from sfumato.report.results.cost_of_privacy import costs_of_noise
from sfumato.report.results.dp_ogl_plus import lead_of_run
from sfumato.report.results.grouped_run import GroupedRun, grouped_run
from sfumato.report.results.network import read_network
from sfumato.report.results.series import load_series
from sfumato.run_folder.label_counts import write_test_labels
from sfumato.run_folder.reader import load_run
from sfumato.spec.load import load_spec

Make = Callable[..., Path]
SPEC: dict[str, Any] = {
    "name": "ogl", "protocol": "dp-ogl", "data": {"source": "digits"}, "model": {"kind": "softmax"},
    "topology": {"kind": "groups", "structure": "list", "groups": [[0, 1], [1, 2]]},
    "training": {"rounds": 3, "local_steps": 1, "batch_size": 16, "learning_rate": 0.1, "merge_every": 2},
    "privacy": {"delta": 1e-5, "clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
}  # fmt: skip
RING = ["topology={kind: groups, structure: ring, groups: 4, devices: 16}", "training.rounds=12"]


@pytest.fixture
def grouped(run_folder: Make) -> Callable[..., Path]:
    """A run folder as a run leaves it: the resolved spec, and what ``account`` says of it."""

    def make(*overrides: str, name: str = "ogl", gain: float = 0.0) -> Path:
        report = account(load_spec(SPEC, overrides))
        frame = metrics(report.plan.spec.training.rounds, radio=False)
        frame["accuracy"] += gain
        frame["personal_accuracy"] = frame["accuracy"] + 0.02
        spec = report.plan.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        return run_folder(name, spec, frame=frame, privacy=report.to_dict())

    return make


def _page_of(folder: Path) -> str:
    return write_report([folder], folder.parent / "report.html").read_text("utf-8")


def _heatmap(run: GroupedRun) -> Figure:
    return worker_heatmap_figure(run, pairs_of_cells(run))


def loaded(folder: Path) -> GroupedRun:
    run = grouped_run(load_run(folder))
    assert run is not None
    return run


def test_example_2_worker_by_worker(grouped: Make) -> None:
    figure = _heatmap(loaded(grouped()))
    exact = np.array(figure.data[0]["z"], dtype=float)
    assert exact.shape == (3, 3)
    assert np.isnan(np.diag(exact)).all()
    assert 10 ** exact[0, 1] == pytest.approx(3.709, abs=1e-3)  # three releases at σ = 2
    assert 10 ** exact[0, 2] == pytest.approx(2.943, abs=1e-3)  # two
    assert exact[1, 0] == exact[0, 1]
    assert figure.data[0]["x"][1] == "device:1 (in groups 0 and 1)"
    charged = "1 group away · 2 releases · charged: all that the observer's view is made from"
    assert figure.data[0]["customdata"][0][2].startswith(charged)
    labels = [button["label"] for button in figure.layout["updatemenus"][0]["buttons"]]
    assert labels[0] == "rigorous"
    assert "counts × RDP" in labels
    claimed = figure.data[1]
    assert claimed["z"][0][2] == pytest.approx(figure.layout["coloraxis"]["cmin"], abs=1e-4)
    assert claimed["text"][0][2] == "0"
    assert claimed["customdata"][0][2].endswith("the claim is not proved")


def test_it_agrees_with_privacy_json(grouped: Make) -> None:
    folder = grouped(*RING)
    run = loaded(folder)
    rows = json.loads((folder / "privacy.json").read_text())["guarantees"]
    checked = 0
    for row in rows:
        if row["observer"].startswith("device:"):
            unit, observer = (int(row[key].split(":")[1]) for key in ("unit", "observer"))
            assert run.pair(unit, observer).epsilon == float(row["epsilon"])
            checked += 1
    assert checked >= 4


def test_many_workers_are_drawn_by_their_groups(grouped: Make) -> None:
    run = loaded(grouped(RING[0].replace("16", "200"), "training.rounds=4"))
    assert not run.draws_every_worker
    assert len(run.drawn_workers) == 8  # 4 groups and 4 workers shared
    figure = _heatmap(run)
    diagonal = [figure.data[0]["z"][i][i] for i in range(8)]
    assert sum(value is None for value in diagonal) == 4  # a shared worker is alone
    assert any("48 like it" in name for name in figure.data[0]["x"])


def test_pwp_grows_and_spreads(grouped: Make) -> None:
    figure = per_worker_privacy_figure(loaded(grouped(*RING)))
    assert figure is not None
    worst = {t["name"]: t for t in figure.data}
    one, two = (
        worst["all other workers observe, worst worker"]["y"],
        worst["workers of other groups observe, worst worker"]["y"],
    )
    assert worst["all other workers observe, worst worker"]["x"] == list(range(1, 13))
    assert all(a <= b for a, b in pairwise(one))
    assert all(b <= a for a, b in zip(one, two, strict=True))
    assert two[:2] == [0, 0]  # nothing has been merged yet
    assert "least ε" in figure.table


def test_dp_ogl_plus_has_no_pwp_within_groups(grouped: Make) -> None:
    folder = grouped("protocol=dp-ogl+", *RING)
    figure = per_worker_privacy_figure(loaded(folder))
    assert figure is not None
    assert "All other workers observe: ∞ for 16 workers." in figure.caption
    heatmap = _heatmap(loaded(folder))
    assert any(trace.get("colorscale", [[0, ""]])[0][1] == NO_GUARANTEE for trace in heatmap.data)
    page = write_report([folder], folder / "report.html").read_text()
    advice = "use dp-ogl-local, which releases as often with the same noise and is sound"
    before_all_claims = page[: page.index("Show all claims")]
    assert before_all_claims.count(advice) == 1  # the verdict
    assert page.index(advice) < page.index("Who learns what")


@pytest.mark.parametrize(
    ("every", "source", "expected"), [(2, 0, [0, 3, 5, 3]), (3, 1, [4, 0, 4, 7]), (1, 0, [0, 2, 3, 2])]
)
def test_rounds_of_arrival_on_a_ring(grouped: Make, every: int, source: int, expected: list[int]) -> None:
    figure = group_graph_figure(loaded(grouped(*RING, f"training.merge_every={every}")))
    (button,) = [
        b for b in figure.layout["updatemenus"][0]["buttons"] if b["label"].endswith(f"group {source}")
    ]
    hovers = sorted(button["args"][0]["hovertext"][0])
    found = [int(m[1]) if (m := re.search(r"in round (\d+)$", h)) else 0 for h in hovers]
    assert found == expected  # 0: the source
    assert hovers[source].endswith("is the one that releases")


def test_groups_that_the_network_shows_are_not_drawn_twice(grouped: Make) -> None:
    placed: list[Figure] = []

    def place(figure: Figure) -> str:
        placed.append(figure)
        return "<figure>"

    few = spread_html(loaded(grouped(*RING)), place)
    assert placed == []
    assert "group 2</td>" in few  # a table of the rounds in place of the graph
    first_row = few[few.index("<tbody>") :].partition("</tr>")[0]
    assert re.findall(r">([^<>]+)</td>", first_row) == ["group 0", "–", "3", "5", "3"]
    assert "A path that passes through the worker that ε is about does not count." in few
    assert "16 workers in 4 groups of 5, 4 pairs of groups with workers in common." in few
    many = RING[0].replace("groups: 4", "groups: 25").replace("devices: 16", "devices: 100")
    assert spread_html(loaded(grouped(many, *RING[1:])), place) == "<figure>"
    assert [figure.kind for figure in placed] == ["spread"]


def test_groups_apart_never_hear_of_each_other(grouped: Make) -> None:
    run = loaded(grouped("topology={kind: groups, structure: clusters, groups: 2, devices: 8}"))
    assert "nothing travels" in group_graph_figure(run).caption
    assert _heatmap(run).data[0]["customdata"][0][7] == "not connected"
    assert _heatmap(run).data[0]["text"][0][7] == "0"


def test_what_does_not_resolve_is_left_out(run_folder: Make) -> None:
    assert grouped_run(load_run(run_folder())) is None  # a tree
    folder = run_folder("ogl", SPEC | {"protocol": "dp-ogl-of-tomorrow"})
    assert grouped_run(load_run(folder)) is None
    assert "Leakage through overlapping groups" not in write_report([folder], folder / "r.html").read_text()


@pytest.mark.needs("chromium")
def test_they_are_drawn(grouped: Make, tmp_path: Path) -> None:
    drawn = draw([grouped(*RING)], tmp_path)
    kinds = [name.split("-", 2)[2] for name in drawn.figures]
    assert kinds[:7] == ["heatmap", "accuracy", "personal", "workers", "pwp", "network", "claims"]
    at = dict(zip(kinds, drawn.figures, strict=True))
    assert {"rigorous", "2π²α/σ²"} <= set(drawn.words[at["workers"]])
    assert "workers of other groups observe, worst worker" in drawn.words[at["pwp"]]


def test_a_matrix_of_one_colour_is_a_table(grouped: Make) -> None:
    """Where every finite ε is at the end of the scale, a heatmap shows nothing."""
    assert workers_html(loaded(grouped()), lambda figure: "drawn") == "drawn"
    loud = loaded(grouped("privacy.noise.multiplier=0.05", name="loud"))
    shown = workers_html(loud, lambda figure: "drawn")
    assert "<h3>ε between workers, by their groups</h3>" in shown
    assert "Every finite ε is between " in shown
    assert text.epsilon(loud.pair(0, 1).epsilon) in shown


def test_the_verdict_on_dp_ogl_plus_has_the_epsilon_of_the_sound_protocol(grouped: Make) -> None:
    run = load_run(grouped("protocol=dp-ogl+", "training.rounds=4"))
    (said,) = lead_of_run(run)
    sound = account(load_spec(SPEC, ["protocol=dp-ogl-local", "training.rounds=4"])).guarantees
    worst = max(row.epsilon for row in sound if row.relation.kind in ("peer", "other-device"))
    assert f"is sound, with ε of at most {text.epsilon(worst)} (δ = 1e-5) towards every other worker" in said
    assert said.endswith("(O4).")
    assert lead_of_run(load_run(grouped(name="plain"))) == []


def test_workers_are_numbered_as_in_drawings() -> None:
    shown = with_words_for_parties(
        ["<p>device:0 towards device:12, a device</p><pre>device:0</pre>"], "worker"
    )
    assert shown == ["<p>worker 0 towards worker 12, a worker</p><pre>device:0</pre>"]
    assert with_words_for_parties(["<p>device:0, a device</p>"], "site") == ["<p>device 0, a site</p>"]


def test_the_models_of_all_workers_are_scored_and_not_one(grouped: Callable[..., Path]) -> None:
    folder = grouped()
    write_report([folder], folder / "report.html")
    page = (folder / "report.html").read_text().replace("&#x27;", "'").replace("&nbsp;", " ")
    assert "the workers' models are" in page
    assert "accurate on the whole test set, in the mean (" in page
    assert "on data distributed like their own" in page
    assert "noise in the global model" not in page


def test_dp_ogl_plus_says_what_goes_back_without_noise() -> None:
    report = account(load_spec(SPEC, ["protocol=dp-ogl+", "training.rounds=4"]))
    reasons = {row.why for row in report.guarantees if math.isinf(row.epsilon) and not row.trusted}
    assert reasons
    assert all("between releases the models of group" in why for why in reasons)


def test_workers_of_an_interval_are_drawn_once_in_it(grouped: Callable[..., Path]) -> None:
    said = {}
    for protocol in ("dp-ogl", "dp-ogl+", "dp-ogl-local"):
        run = load_run(
            grouped(
                f"protocol={protocol}",
                "training.rounds=4",
                "training.participation={kind: poisson, rate: 0.5}",
                name=protocol,
            )
        )
        said[protocol] = sentence_of_participation(training_of(run.spec_dict, read_network(run.spec_dict)))
    assert "in a round with probability 0.5" in said["dp-ogl"]
    assert all("in an interval of 2 rounds with" in said[one] for one in ("dp-ogl+", "dp-ogl-local"))


def test_the_colours_between_workers_are_those_of_exact_epsilons(grouped: Make) -> None:
    """Claims above them have the colour of the end, as where all were on the scale exact ones were alike."""
    run = loaded(grouped(*RING))
    figure = _heatmap(run)
    exact = [cell for row in figure.data[0]["z"] for cell in row if cell is not None and cell > -8]
    ends = figure.layout["coloraxis"]["cmin"], figure.layout["coloraxis"]["cmax"]
    assert ends[1] == pytest.approx(max(exact), abs=1e-4)
    assert ends[0] == pytest.approx(min(exact), abs=1e-4)
    largest = max(
        max(pair.claimed.values()) for row in pairs_of_cells(run) for pair in row if pair and pair.claimed
    )
    assert math.log10(largest) > ends[1]


def test_an_epsilon_of_zero_is_lighter_than_every_other(grouped: Make) -> None:
    """Of a short run, workers two groups away learn nothing."""
    figure = _heatmap(loaded(grouped(*RING, "training.rounds=2", name="short")))
    shades = {
        cell for row in figure.data[0]["z"] for cell in row if cell is not None and not math.isnan(cell)
    }
    least, others = min(shades), sorted(shades)[1:]
    low, high = (figure.layout["coloraxis"][end] for end in ("cmin", "cmax"))
    assert least <= low
    assert others[0] - low >= min(0.3, high - low) * 0.99
    assert "ε = 0 has the lightest colour" in figure.caption


def test_the_lower_end_of_colours_that_begin_at_zero_is_called_zero() -> None:
    assert [epsilon_bar((0.4, 1.0), from_zero=so)["ticktext"] for so in (True, False)] == [
        ["0", "5.01", "10"],
        ["2.51", "5.01", "10"],
    ]


def test_noise_of_dp_ogl_plus_is_told_by_the_norm_of_a_message(grouped: Make) -> None:
    """By the sensitivity of a group's sum its multiplier is smaller (errata O4)."""
    said = _page_of(grouped("protocol=dp-ogl+", "training.rounds=4", name="plus"))
    assert "its standard deviation over the norm to which a message is clipped. The sensitivity" in said
    assert "over the sensitivity of what it is added to" not in said
    assert "over the sensitivity of what it is added to" in _page_of(grouped())


def test_what_a_large_epsilon_means_is_told_once(grouped: Make) -> None:
    run = grouped("privacy.noise.multiplier=0.3")
    page = _page_of(run)
    assert "ε is above 10 for" in page
    assert page.count("observer that starts at 50 : 50") == 1
    assert "with even odds" not in page
    assert WHAT_LARGE_MEANS in " ".join(load_run(run).privacy.findings)


def test_a_worker_that_stands_for_its_class_is_told_as_an_example(grouped: Make) -> None:
    assert "(such as worker" in _page_of(grouped(*RING))


def test_a_table_with_ranges_of_claims_names_where_each_pair_is(grouped: Make) -> None:
    said = "; ranges are over classes of pairs, which are listed one by one below Published claims"
    assert said in _page_of(grouped(*RING))
    assert said not in _page_of(grouped("topology.groups=[[0, 1], [0, 1]]", "model.kind=mlp"))


def test_why_a_message_of_another_worker_counts_twice(grouped: Make) -> None:
    """Of noise multiplier 2 one is left, as the message changes from one clipped vector to another."""
    run = load_run(grouped(RING[0], "training.rounds=21", "training.merge_every=10"))
    whys = " ".join(row.why for row in run.privacy.guarantees)
    moved = "moved by 1 worker that passes on what it learnt (by up to twice the largest norm of a message)"
    assert f"{moved}, at multiplier 1 " in whys


def test_the_cost_of_noise_of_workers_models_is_that_of_their_mean(grouped: Make) -> None:
    """No model missed so many test examples: accuracy is the mean over the workers' models."""
    folders = [grouped(name="ring"), grouped("privacy.noise=none", name="silent", gain=0.05)]
    for folder in folders:
        write_test_labels(folder, {"0": 180, "1": 180})
    (cost,) = costs_of_noise(load_series(folders))
    assert cost.sentence.startswith(
        "The noise costs 5.0 points of accuracy in the mean over the workers' models: ring ends at "
    )
