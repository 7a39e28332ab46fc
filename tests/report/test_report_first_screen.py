"""The first screen: who learns what, at what cost, is it worth it; and what was moved below it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_factory import guarantee, metrics, quickstart_privacy, quickstart_spec

import sfumato as sf
from sfumato.privacy.guarantee import Guarantee
from sfumato.report import write_report
from sfumato.report.figures import heatmap
from sfumato.report.figures.curves import score_figures
from sfumato.report.figures.epsilon_curves import epsilon_figures
from sfumato.report.results.matrix import Cell
from sfumato.report.results.series import load_series
from sfumato.report.results.summary import range_sentence, score_sentence
from sfumato.run_folder.label_counts import write_test_labels
from sfumato.run_folder.reader import adding_files

Make = Callable[..., Path]
INF = float("inf")


def page_of(*runs: Path) -> str:
    return write_report(list(runs), runs[0].parent / "report.html").read_text("utf-8")


def first_of(page: str) -> str:
    return unescape(page.split('aria-label="Headline"')[1].split("</section>")[0]).replace("\u00a0", " ")


def tiles_of(page: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", first_of(page)))


def figures_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.S)
    assert found is not None
    figures: dict[str, Any] = json.loads(found[1])
    return {name.split("-", 2)[2]: figure for name, figure in figures.items()}


def star(**more: Any) -> dict[str, Any]:
    rows = [
        guarantee("device:0", "cloud", INF, 20, "the accountant's reason", relation="cloud", **more),
        guarantee("device:0", "public", 6.5, 20, relation="public"),
    ]
    raw = {"devices": 0, "of": 20}
    return {"delta": 1e-5, "guarantees": rows, "claims": [], "notes": [], "raw_to_trusted_edge": raw}


def star_spec(**changes: Any) -> dict[str, Any]:
    return quickstart_spec(topology={"kind": "star", "devices": 20}, trust={"cloud": True}, **changes)


def test_three_answers_and_no_accountants_reason(run_folder: Make) -> None:
    page = page_of(run_folder())
    first = first_of(page)
    assert re.findall("<h3>(.*?)</h3>", first) == ["Who learns what", "At what cost", "Accuracy"]
    assert (
        "No guarantee towards an observer that is trusted with raw updates: 120 devices under edges 0, 2, 3"
        in first
    )
    assert "by design" not in first  # of the table's column why


def test_a_trusted_cloud_is_said_to_be_trusted_and_a_star_has_no_edges(run_folder: Make) -> None:
    tiles = tiles_of(page_of(run_folder("star", star_spec(), privacy=star(trusted=True))))
    assert tiles["the cloud"] == "∞ (trusted)"
    assert tiles["the public"] == "6.5"
    assert not [name for name in tiles if "edge" in name]


def test_who_is_not_trusted_and_sees_all_has_its_reason_below(run_folder: Make) -> None:
    page = page_of(run_folder("star", star_spec(), privacy=star(trusted=False)))
    assert "without any guarantee" not in first_of(page)
    assert "Without any guarantee: 20 devices towards the cloud" in first_of(page)
    assert "the accountant's reason" not in first_of(page)
    below = unescape(page.split("Why pairs have no guarantee")[1].split("</details>")[0])
    assert "No guarantee for 20 devices towards the cloud: the accountant's reason." in below


def test_epsilon_after_the_run_is_a_table_where_it_differs(run_folder: Make) -> None:
    privacy = quickstart_privacy()
    privacy["guarantees"][0]["ex_post"] = {"epsilon": 8.0, "participations": 15}
    privacy["guarantees"][2]["ex_post"] = {"epsilon": 7.25, "participations": 9}
    page = page_of(run_folder("one", quickstart_spec(), privacy=privacy))
    table = page.split("ε after the run, where it differs from the guarantee")[1].split("</details>")[0]
    assert "<td>120 devices under edges 0, 2, 3</td>" in table
    rows = re.findall("<tr><td>.*?</tr>", table)
    assert len(rows) == 1
    assert '<td class="n">6.4</td><td class="n">7.25</td><td class="n">9</td>' in rows[0]
    del privacy["guarantees"][2]["ex_post"]
    assert "ε after the run, where" not in page_of(run_folder("other", quickstart_spec(), privacy=privacy))


def test_coalitions_of_devices_are_drawn_and_listed(run_folder: Make) -> None:
    privacy = quickstart_privacy()
    common = {"in_zone": 1, "observer": "device:1"}
    privacy["coalitions"] = [
        common | {"unit": unit, "size": size, "epsilon": low, "supernode_epsilon": high}
        for unit, size, low, high in (
            ("device:0", 1, "inf", "inf"), ("device:0", 2, "inf", "inf"),
            ("device:40", 1, 2.0, 3.0), ("device:40", 2, 4.0, "inf"),
        )
    ]  # fmt: skip
    page = page_of(run_folder("one", quickstart_spec(), privacy=privacy))
    assert "at most 2 of them" in page
    endless = "whatever the number of colluders: devices alone, 120 devices under edges 0, 2, 3; with their"
    assert endless in page
    before, with_supernode = figures_of(page)["coalitions"]["data"]
    assert (before["x"], before["y"]) == ([1, 2], [2.0, 4.0])
    assert (with_supernode["x"], with_supernode["y"]) == ([0, 1], [71.3, 3.0])  # 0: the edge alone
    assert "Colluding devices" not in page_of(run_folder("other"))


def _coalitions(unit: str, *rows: tuple[int, float, float | str, int]) -> list[dict[str, Any]]:
    """Coalitions of 1, 2, … devices: members at the unit's edge, ε, ε with the supernode, members."""
    return [
        {"unit": unit, "size": size, "in_zone": here, "observer": "device:1", "epsilon": alone,
         "supernode_epsilon": beside, "supernode_in_zone": inside}
        for size, (here, alone, beside, inside) in enumerate(rows, 1)
    ]  # fmt: skip


def test_colluders_with_the_supernode_are_told_apart_by_whether_it_needs_them(run_folder: Make) -> None:
    privacy = quickstart_privacy()
    privacy["guarantees"].append(guarantee("device:0", "edge:0", INF, 120))
    privacy["coalitions"] = [
        *_coalitions("device:0", (0, 1.0, "inf", 0), (0, 1.5, "inf", 0), (0, 2.5, "inf", 0)),
        *_coalitions("device:40", (0, 1.0, 2.0, 1), (0, 1.5, 3.0, 2), (0, 2.5, 9.0, 3)),
    ]
    page = unescape(page_of(run_folder("one", quickstart_spec(), privacy=privacy)))
    first = first_of(page)
    grows = "80 devices under edges 1, 4 towards colluding devices with their edge: 2 with 1, 3 with 2 and"
    assert f"{grows} 9 with 3." in first
    who = "120 devices under edges 0, 2, 3"
    assert f"Without any guarantee: {who} towards their own edge" in first
    assert "towards their edge with 1 colluding device" not in first  # which needs none
    assert "Towards up to 3 colluding devices without their edge: at most 2.5." in first
    both, beside = figures_of(page)["coalitions"]["data"]
    assert both["name"] == "any device, devices alone"  # one line: the classes have the same curve
    assert (both["mode"], beside["y"]) == ("lines", [71.3, 2.0, 3.0, 9.0])
    privacy["coalitions"] = _coalitions("device:40", (0, 1.0, "inf", 1))
    other = unescape(page_of(run_folder("needed", quickstart_spec(), privacy=privacy)))
    assert (
        "No guarantee (∞) of 80 devices under edges 1, 4 towards their edge with 1 colluding device."
        in first_of(other)
    )
    privacy["coalitions"] = _coalitions("device:40", (0, 1.0, 2.0, 1), (0, 1.5, 9.0, 2), (0, 2.0, 9.0, 3))
    page = unescape(page_of(run_folder("other", quickstart_spec(), privacy=privacy)))
    assert "with their edge: 2 with 1 and 9 from 2 on." in first_of(page)


def test_members_at_the_edge_are_counted_for_either_coalition(run_folder: Make) -> None:
    privacy = quickstart_privacy() | {
        "coalitions": _coalitions("device:40", (0, 1.0, 2.0, 1), (7, 1.5, 3.0, 2))
    }
    table = page_of(run_folder("one", quickstart_spec(), privacy=privacy)).split("Show all coalitions")[1]
    rows = re.findall("<tr><td>80 devices.*?</tr>", table)
    cells = [re.findall('<td class="n">(.*?)</td>', row) for row in rows]
    alone = ["0", "–", "71.3", "–"]  # the edge
    assert cells == [
        alone,
        ["1", "1", "2", "1"],
        ["2", "1.5", "3", "2"],
    ]  # any choice is alike for devices alone
    elected = quickstart_spec(topology=quickstart_spec()["topology"] | {"supernodes": "elected"})
    table = page_of(run_folder("elected", elected, privacy=privacy)).split("Show all coalitions")[1]
    cells = [
        re.findall('<td class="n">(.*?)</td>', row) for row in re.findall("<tr><td>80 devices.*?</tr>", table)
    ]
    assert cells == [["1", "1", "0", "2", "1"], ["2", "1.5", "7", "3", "2"]]
    del privacy["coalitions"][0]["supernode_in_zone"]  # a file of an older version
    table = page_of(run_folder("old", quickstart_spec(), privacy=privacy)).split("Show all coalitions")[1]
    assert '<td class="n">2</td><td class="n">–</td>' in table


def test_coalitions_that_learn_the_same_are_one_sentence(run_folder: Make) -> None:
    def page(last: float | str) -> str:
        rows = [
            {"in_zone": 1, "observer": "device:1", "unit": "device:40", "size": size, "epsilon": value,
             "supernode_epsilon": "inf"}
            for size, value in ((1, 2.0), (2, 2.0), (3, last))
        ]  # fmt: skip
        privacy = quickstart_privacy() | {"coalitions": rows}
        return unescape(page_of(run_folder(f"of {last}", quickstart_spec(), privacy=privacy)))

    who = "80 devices under edges 1, 4, devices alone"
    same = f"ε is the same for every number of colluders (δ = 1e-5): {who}: 2."
    alike = page(2.0)
    assert same in alike
    assert "coalitions" not in figures_of(alike)
    for other in (3.0, "inf"):
        assert same not in page(other)
        assert "coalitions" in figures_of(page(other))


@pytest.mark.parametrize("hop", ["devices_to_edge", "edge_to_cloud"])
def test_hops_with_secure_aggregation_are_drawn(hop: str, run_folder: Make) -> None:
    def links(page: str) -> list[str]:
        drawn = next(figure for name, figure in figures_of(page).items() if name == "network")
        return [trace["name"] for trace in drawn["data"] if trace.get("mode") == "lines"]

    secure = "only the sum arrives, with noise (secure aggregation)"
    plain = links(page_of(run_folder("plain")))
    assert secure not in plain
    found = links(page_of(run_folder("secure", quickstart_spec(transport={hop: "secure-aggregation"}))))
    assert secure in found
    # edges that are trusted add the noise themselves: what arrives at them has none
    bare = "only the sum arrives, without noise, at a trusted party (secure aggregation)"
    assert (bare in found) == (hop == "devices_to_edge")


def test_without_any_finite_epsilon_no_curve_is_drawn(run_folder: Make) -> None:
    table = metrics(15, epsilons={"edge:0": INF})
    page = page_of(run_folder("one", quickstart_spec(), frame=table))
    assert "epsilon" not in figures_of(page)
    assert (
        "ε over rounds has no curve: towards edge 0 the worst device has no guarantee (∞) in any round."
        in page
    )


def test_how_many_have_a_finite_epsilon_towards_a_cloud_without_a_curve(run_folder: Make) -> None:
    """An infinite largest ε says nothing of the other devices, so these are counted."""
    privacy = star()
    privacy["guarantees"] = [
        guarantee("device:0", "cloud", INF, 30, "no noise", relation="cloud"),
        guarantee("device:30", "cloud", 2.643, 70, relation="cloud"),
    ]
    frame = metrics(15, epsilons={"cloud": INF})
    page = page_of(run_folder("one", quickstart_spec(), frame=frame, privacy=privacy))
    assert "70 of 100 devices have a finite ε towards the cloud, at most 2.643." in page


def test_several_runs_are_compared_first(run_folder: Make) -> None:
    one, two = run_folder("one"), run_folder("star", star_spec(name="star"), privacy=star(trusted=True))
    page = page_of(one, two)
    first = first_of(page)
    assert page.index('<table class="stacked">') < page.index("<figure")
    headers = re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", first)
    assert "seeds" not in headers  # one each
    assert "rounds" not in headers
    assert "δ" not in headers
    assert "observer at δ = 1e-5" in first


def test_scores_that_a_spec_asks_for_are_tiles_and_compared_with_the_run_without_noise(
    run_folder: Make,
) -> None:
    frame = metrics(4)
    frame["auc"], frame["f1"] = [0.5, 0.6, 0.7, 0.98765], [0.5, 0.6, 0.7, 0.9]
    noisy = run_folder("noisy", quickstart_spec(), frame=frame)
    quiet = quickstart_spec()
    quiet["privacy"] = quiet["privacy"] | {"noise": {"kind": "none"}}
    run_folder("quiet", quiet, frame=frame.assign(auc=0.995))
    tiles = tiles_of(page_of(noisy))
    assert (tiles["Final AUC"], tiles["Final F1"]) == ("0.9876", "0.9")
    assert "Without noise: AUC 0.995 and F1 0.9 after the last round." in first_of(page_of(noisy))


def test_what_a_row_is_stands_where_records_are_told_of(run_folder: Make) -> None:
    rows = [guarantee("record:0", "cloud", 3.0, 20, relation="cloud")]
    spec = star_spec(
        data={"source": "a.csv", "row": "a patient"},
        privacy=quickstart_spec()["privacy"] | {"unit": "record"},
        radio={"preset": "none"},
    )
    privacy = star() | {"guarantees": rows}
    page = page_of(run_folder("rows", spec, privacy=privacy))
    assert "The largest ε of a record, which is a patient (δ = 1e-5), towards" in first_of(page)
    assert "A record is one row (a patient), which its own device has." in first_of(page)
    assert "Energy and time to transmit are shown" not in page


def test_a_regression_is_judged_by_its_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3)).astype(np.float32)
    training = {"rounds": 3, "local_steps": 2, "batch_size": 4, "learning_rate": 0.1}
    spec = sf.load_spec(
        {
            "name": "line",
            "protocol": "hfl",
            "data": {"source": "python:x", "task": "regression"},
            "topology": {"edges": 2, "devices_per_edge": 2},
            "training": training,
            "metrics": ["mae"],
        }
    )
    run = sf.run(spec, data=(x, x.sum(axis=1)), out=tmp_path / "line")
    last = run.metrics["mae"].iloc[-1]
    page = page_of(run.folder.path)
    assert tiles_of(page)["Final MAE"] == f"{last:.4g}"
    assert "the model's MAE on held-out data is" in first_of(page)
    assert figures_of(page)["score"]["data"][0]["y"] == pytest.approx(run.metrics["mae"].tolist())
    assert "accuracy" not in figures_of(page)
    assert "nan" not in first_of(page)
    assert f"MAE {last:.4g}" in repr(run)


@pytest.mark.parametrize("controlled", [True, False])
def test_a_curve_of_what_control_has_spent_says_so(run_folder: Make, *, controlled: bool) -> None:
    """No other curve ends below its guarantee, so no other needs an explanation."""
    spec = quickstart_spec(**({"control": {"energy": 1.0}} if controlled else {}))
    folder = run_folder("one", spec, frame=metrics(15, epsilons={"cloud": 6.0}))
    (figure,) = epsilon_figures(load_series([folder]))
    assert ("The dotted line is the budget of adaptive control" in figure.caption) == controlled
    assert [trace["y"] for trace in figure.data if trace["line"]["dash"] == "dot"] == [
        [8.0, 8.0]
    ] * controlled
    assert "the largest ε of a device towards the observer" in figure.caption


def test_a_curve_of_epsilon_says_whom_it_leaves_out(run_folder: Make) -> None:
    """Edge 2 is trusted by its own devices: towards it the largest ε of any device is ∞."""
    captions = [
        epsilon_figures(load_series([run_folder(name, frame=metrics(15, epsilons={name: 6.0}))]))[0].caption
        for name in ("edge:1", "edge:2", "cloud")
    ]
    left_out = "Towards edge 2 it is the largest of the devices that do not trust the observer with raw"
    assert [left_out in caption for caption in captions] == [False, True, False]
    assert ["those that do have no guarantee" in caption for caption in captions] == [False, True, False]


def test_curves_that_cover_each_other_are_named(run_folder: Make) -> None:
    folders = [run_folder(name, frame=metrics(15, epsilons={"cloud": 6.0})) for name in ("a", "b")]
    folders.append(run_folder("c", frame=metrics(15, epsilons={"cloud": 2.0})))
    caption = epsilon_figures(load_series(folders))[0].caption
    assert "Equal, so that one curve covers the other: a → cloud and b → cloud." in caption
    assert "covers" not in epsilon_figures(load_series(folders[1:]))[0].caption


def test_who_adds_noise_is_told_by_level(run_folder: Make) -> None:
    page = unescape(page_of(run_folder()))
    part = page.split("Who adds noise")[1].split("</section>")[0]
    assert "Every device takes part in every round." in part
    assert "Every update is clipped to norm 1." in part
    assert '<td>edges 0, 2, 3</td><td class="n">3.21</td></tr>' in part  # at every level
    assert "one level below" not in part
    sources = [
        {"owners": ["edge:0"], "multipliers": [0.5, 0.9]},
        {"owners": ["edge:2"], "multipliers": [2, 2]},
    ]
    uneven = quickstart_spec(privacy={"delta": 1e-5, "noise": {"kind": "sources", "sources": sources}})
    part = unescape(page_of(run_folder("uneven", uneven))).split("Who adds noise")[1].split("</section>")[0]
    assert '<td>edge 0</td><td class="n">0.5</td><td class="n">0.9</td>' in part
    assert '<td>edge 2</td><td class="n">2</td><td class="n">2</td>' in part
    assert "noise multiplier, one level below" in part
    assert "one level below: the cloud does not take part" in part
    alone = [{"owners": ["edge:0"], "multipliers": [0.5, 0]}]
    zones = quickstart_spec(privacy={"delta": 1e-5, "noise": {"kind": "sources", "sources": alone}})
    zones["training"].pop("edge_every", None)  # as in HDP the cloud takes part in every aggregation
    part = unescape(page_of(run_folder("zones", zones))).split("Who adds noise")[1].split("</section>")[0]
    assert '<td>edge 0</td><td class="n">0.5</td></tr>' in part
    silent = quickstart_spec(privacy={"delta": 1e-5, "noise": {"kind": "none"}})
    assert "Who adds noise" not in page_of(run_folder("silent", silent))
    controlled = page_of(run_folder("controlled", quickstart_spec(control={"energy": 1.0})))
    assert "Adaptive control chooses before every round but the first how many" in controlled
    assert "Every device takes part in every round." not in controlled


@pytest.mark.parametrize(("correct", "may_be_chance"), [(37, False), (48, True), (49, False), (300, False)])
def test_a_lead_over_guessing_that_may_be_chance_is_called_so(
    run_folder: Make, correct: int, *, may_be_chance: bool
) -> None:
    """Of 360 test examples 37 have the most frequent label: 1.96 standard errors are 11.3 examples."""
    folder = run_folder("one", frame=metrics(4).assign(accuracy=correct / 360))
    write_test_labels(folder, {"0": 37, "1": 35, **{str(label): 36 for label in range(2, 10)}})
    said = score_sentence(load_series([folder])[0])
    assert ("and that the model is better may be chance" in said) == may_be_chance


def test_a_twin_over_plain_hops_is_not_the_same_but_for_noise(run_folder: Make) -> None:
    """Over the air the receiver's noise is on every sum: without noise, messages are sent one by one."""
    air = {"transport": {"devices_to_cloud": "air"}, "protocol": "pfels"}
    for name, hops, other in (("air", air, ", with messages that are sent one by one"), ("plain", {}, "")):
        series = load_series([run_folder(name, quickstart_spec(**hops), frame=metrics(4))])
        twin = load_series([run_folder(f"{name}-silent", quickstart_spec(protocol="hfl"), frame=metrics(4))])
        (figure, *_) = score_figures(series, twin[0])
        assert f"which is the same but for noise{other}" in figure.caption
        assert ("not over the air" in figure.caption) == bool(hops)


def test_the_factor_of_a_controlled_run_is_told(run_folder: Make) -> None:
    spec, frame = quickstart_spec(control={"energy": 1.0}), metrics(4)
    changed = page_of(run_folder("one", spec, frame=frame.assign(noise_factor=[1.0, 1.5, 2.25, 2.0])))
    assert "In this run adaptive control multiplied this noise by 1 to 2.25." in changed
    assert " · adaptive control · " in changed
    kept = page_of(run_folder("two", spec, frame=frame.assign(noise_factor=1.0)))
    assert "multiplied this noise" not in kept
    assert "adaptive control ·" not in page_of(run_folder("three"))


def test_a_twin_without_noise_is_drawn_beside_its_run(run_folder: Make) -> None:
    frame = metrics(4)
    run = run_folder("one", quickstart_spec(), frame=frame.assign(accuracy=0.8))
    assert len(figures_of(page_of(run))["accuracy"]["data"]) == 1
    silent = quickstart_spec(protocol="hfl")
    run_folder("silent", silent, frame=frame.assign(accuracy=[0.5, 0.7, 0.8, 0.9]))
    page = page_of(run)
    drawn, other = figures_of(page)["accuracy"]["data"]
    assert drawn["line"]["dash"] == "solid"
    assert (other["name"], other["line"]["dash"]) == ("without noise", "dash")
    assert other["y"] == [0.5, 0.7, 0.8, 0.9]
    assert "Dashed: the run in the folder silent" in page


def test_the_commands_that_find_out_what_privacy_costs(run_folder: Make) -> None:
    first = first_of(page_of(run_folder("my run")))
    assert "sfumato run 'my run/spec.yaml' --set privacy.noise=none --out 'my run-without-noise'" in first
    assert "sfumato report 'my run'" in first


def test_rounds_of_dp_ogl_plus_without_a_release_are_told_apart(run_folder: Make) -> None:
    """Its models have no noise in between, so the best of these is nobody's result."""
    spec = quickstart_spec(protocol="dp-ogl+")
    spec["training"] |= {"merge_every": 2}
    frame = metrics(4).assign(accuracy=[0.9, 0.4, 0.8, 0.3])
    page = page_of(run_folder("plus", spec, frame=frame))
    assert "It was best after round 2: 40.0&nbsp;%, as picked on the same test data." in page
    assert page.count("DP-OGL+ adds noise every 2 rounds") == 1  # beside the accuracy
    assert "A line joins released models; dots are models in between, without noise." in page
    dots, line, *_ = figures_of(page)["accuracy"]["data"]
    assert (dots["mode"], dots["x"], dots["y"]) == ("markers", [1, 3], [0.9, 0.8])
    assert (line["x"], line["y"]) == ([2, 4], [0.4, 0.3])
    other = page_of(run_folder("plain", frame=frame))
    assert "It was best after round 1: 90.0&nbsp;%, as picked on the same test data." in other
    assert "adds noise every" not in other
    assert figures_of(other)["accuracy"]["data"][0]["x"] == [1, 2, 3, 4]


def test_many_values_that_jump_have_a_running_mean(run_folder: Make) -> None:
    jumping = [0.8 + 0.05 * (-1) ** number for number in range(60)]
    page = page_of(run_folder("jumping", frame=metrics(60).assign(accuracy=jumping)))
    thin, bold = figures_of(page)["accuracy"]["data"]
    assert thin["y"] == jumping
    assert bold["y"][:2] == [jumping[0], pytest.approx(0.8)]
    assert bold["y"][9:] == [pytest.approx(0.8)] * 51
    assert "Thin: every value; bold: the mean of the last 10, " in page
    for smooth in (jumping[:40], [0.01 * number for number in range(60)]):
        page = page_of(run_folder(f"{len(smooth)}", frame=metrics(len(smooth)).assign(accuracy=smooth)))
        assert "bold: the mean" not in page


def test_guessing_is_drawn_where_the_accuracy_comes_near(run_folder: Make) -> None:
    low = page_of(run_folder("low", frame=metrics(3).assign(accuracy=[0.08, 0.12, 0.11])))
    _, guess = figures_of(low)["accuracy"]["data"]
    assert (guess["y"], guess["x"], guess["line"]["dash"]) == ([0.1, 0.1], [1, 3], "dot")
    assert "Dotted: guessing, 10.0 %." in low
    high = page_of(run_folder("high", frame=metrics(3).assign(accuracy=[0.4, 0.5, 0.6])))
    assert len(figures_of(high)["accuracy"]["data"]) == 1
    assert "Dotted: guessing" not in high


def test_a_better_round_than_the_last_is_named(run_folder: Make) -> None:
    falling = metrics(5).assign(accuracy=[0.5, 0.8, 0.7, 0.7, 0.6])
    assert "It was best after round 2: 80.0 %, as picked on the same test data." in first_of(
        page_of(run_folder("a", frame=falling))
    )
    rising = metrics(5).assign(accuracy=[0.5, 0.6, 0.7, 0.805, 0.8])
    assert "It was best" not in first_of(page_of(run_folder("b", frame=rising)))


def test_the_worst_site_is_named_with_the_range() -> None:
    rows = [
        Guarantee.from_dict(
            guarantee("record:0", "cloud", 4.0, 1, relation="cloud") | {"sites": ["kiel"]}, 1e-5
        ),
        Guarantee.from_dict(
            guarantee("record:1", "cloud", 3.5, 1, relation="cloud") | {"sites": ["bonn"]}, 1e-5
        ),
    ]
    assert range_sentence(rows) == ["Protected least: kiel, ε = 4; most: bonn, ε = 3.5."]
    (said,) = range_sentence(rows, " towards the cloud")
    assert said.startswith("Protected least towards the cloud: kiel")
    assert range_sentence(rows[:1]) == []


def test_no_least_epsilon_is_told_where_it_is_not_known() -> None:
    """A row of several kinds of pairs has the ε of the worst; only a range says how small others are."""
    one, several = guarantee("device:0", "device:1", 4.0), guarantee("device:2", "device:1", 9.0)
    unknown, known = several | {"kinds_of_pairs": 3}, several | {"epsilon_range": [2.0, 9.0]}
    for folded, sentence, hover in (
        (unknown, [], "worst of 2 classes of pairs; the least ε is not computed"),
        (
            known | {"kinds_of_pairs": 3}, ["ε goes from 2 to 9, depending on the device."],
            "worst of 2 classes of pairs; the least ε is 2",
        ),
        (
            several, ["ε goes from 4 to 9, depending on the device."],
            "worst of 2 classes of pairs; the least ε is 4",
        ),
    ):  # fmt: skip
        rows = [Guarantee.from_dict(row, 1e-5) for row in (folded, one)]
        assert range_sentence(rows) == sentence
        assert hover in heatmap._hover_text(Cell(tuple(rows)), "device → device", 1e-5)


def test_long_parts_are_folded_and_the_heatmap_is_a_list_on_narrow_screens(run_folder: Make) -> None:
    page = page_of(run_folder())
    for title in ("Costs and diagnostics", "What is not accounted", "Spec and versions"):
        assert f'<details class="part"><summary><h2>{title}</h2></summary>' in page
    listed = page.split('<div class="narrow">')[1].split("<figcaption>")[0]
    assert "<summary>120 devices under edges 0, 2, 3</summary>" in listed
    assert "<dt>own edge</dt><dd>∞ (trusted)</dd>" in listed


def test_places_of_papers_are_explained_on_the_page(run_folder: Make) -> None:
    page = page_of(run_folder())
    assert '(<a href="#paper-H1">H1</a>)' in page
    assert '<dt id="paper-H1">H1</dt><dd>The paper reduces the noise' in page
    targets, ids = re.findall('href="#(paper[^"]*)"', page), re.findall('id="(paper[^"]*)"', page)
    assert set(targets) == set(ids)


def test_several_runs_are_compared_in_a_table_then_in_a_picture(run_folder: Make) -> None:
    weaker = quickstart_privacy()
    for row in weaker["guarantees"]:
        row["epsilon"] = row["epsilon"] if row["epsilon"] == "inf" else 2 * row["epsilon"]
    page = page_of(run_folder("one"), run_folder("two", quickstart_spec(), privacy=weaker))
    first = first_of(page)
    assert first.index("Comparison of the runs") < first.index("Accuracy against ε towards the cloud")
    drawn = figures_of(page)["score-against-epsilon"]
    assert len(drawn["data"]) == 2
    assert page.index("Accuracy and privacy over rounds") < page.index("Who learns what about whom</h2>")
    mixed = page_of(run_folder("one"), run_folder("alike"))  # no two ε differ: nothing to draw against ε
    assert "Accuracy against ε" not in mixed
    assert mixed.index("Comparison of the runs") < mixed.index("Accuracy and privacy over rounds")
    assert mixed.count("Accuracy and privacy over rounds") == 1


def test_accuracy_stands_beside_what_the_most_frequent_class_would_give(run_folder: Make) -> None:
    folder = run_folder()
    before = first_of(page_of(folder))
    assert "guessing would give 10.0 %" in before  # by the classes of a known data set
    final = float(metrics(15)["accuracy"].iloc[-1])
    for share, warns in ((final + 0.1, True), (final - 0.1, False)):
        frequent = round(1000 * share)
        with adding_files(folder) as files:
            files["test_labels.json"] = write_test_labels(folder, {"sick": 1000 - frequent, "well": frequent})
        page = page_of(folder)
        most = max(frequent, 1000 - frequent) / 10
        assert f"guessing the most frequent class would give {most:.1f} %" in first_of(page)
        assert "accurate on held-out data (1,000 examples, one seed)" in first_of(page)
        assert ("is not above that of guessing the most frequent class" in page) == warns
