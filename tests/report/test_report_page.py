"""The page without a browser: what is in it, that figures are valid, that nothing a user wrote is markup."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from report_cases import MARKUP, every_case, malicious_sites, one_round
from report_factory import metrics, quickstart_privacy, quickstart_spec

from sfumato.errors import RunError
from sfumato.report import formatting as text
from sfumato.report import write_report

Make = Callable[..., Path]


class Elements(HTMLParser):
    """Every element of a page, and what each attribute says; texts of scripts apart."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]


def page_of(folders: list[Path], tmp_path: Path) -> str:
    return write_report(folders, tmp_path / "report.html").read_text(encoding="utf-8")


def figures_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert found
    figures: dict[str, Any] = json.loads(found.group(1))
    return figures


def markup_of(page: str) -> str:
    """The page without scripts and styles, whitespace settled."""
    return " ".join(re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL).split())


@every_case
def test_figures_are_valid_plotly(
    case: Callable[[], dict[str, Any]], run_folder: Make, tmp_path: Path
) -> None:
    for figure in figures_of(page_of([run_folder(**case())], tmp_path)).values():
        go.Figure(figure)


@every_case
def test_the_page_loads_nothing_and_runs_only_its_own(
    case: Callable[[], dict[str, Any]], run_folder: Make, tmp_path: Path
) -> None:
    elements = Elements(page_of([run_folder(**case())], tmp_path))
    assert not [
        a for a in elements.attributes if a[1] in ("src", "href", "srcset", "data") or a[1].startswith("on")
    ]
    assert not {"img", "link", "iframe", "object", "base", "a", "b"} & set(elements.tags)
    assert elements.tags.count("script") == 3
    policy = next(value for tag, _, value in elements.attributes if tag == "meta" and "default-src" in value)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy.split("script-src")[1]


def test_what_a_user_wrote_is_text(run_folder: Make, tmp_path: Path) -> None:
    page = page_of([run_folder(**malicious_sites(tmp_path))], tmp_path)
    assert MARKUP not in page
    drawn = [f for name, f in figures_of(page).items() if "network" in name]
    hovers = [hover for trace in drawn[0]["data"] for hover in trace.get("hovertext", ())]
    assert any(text.plotly_label(MARKUP) in hover for hover in hovers)
    assert not any("<img" in hover for hover in hovers)


def test_the_page_says_what_matters(run_folder: Make, tmp_path: Path) -> None:
    page = markup_of(page_of([run_folder()], tmp_path))
    for words in (
        "Towards the cloud no device exceeds ε&nbsp;=&nbsp;8 at δ&nbsp;=&nbsp;1e-5.",
        "120 devices under edges 0, 2, 3 towards their own edge",
        "it holds towards the public, not towards the cloud or towards their own edge",
        "towards the cloud: Record-level amplification is applied to a device-level sensitivity",
        "depends on the machine",
        "All noise of a simulation follows from its seed",
        "steps_per_round: 20",
        "<td>2.13.0</td>",
        "trusted with raw updates: 3 of 5 edges. Noise is added by 3 edges and the devices under 2 other",
    ):
        assert words in page
    assert "is not finished" not in page


def test_an_unfinished_run_says_so(run_folder: Make, tmp_path: Path) -> None:
    page = markup_of(page_of([run_folder(frame=metrics(7), finished=False)], tmp_path))
    assert "quickstart is not finished: 7 of 15 rounds are done." in page


def test_an_unfinished_run_under_control_does_not_know_its_rounds(run_folder: Make, tmp_path: Path) -> None:
    spec = quickstart_spec(control={"energy": 1.0, "delay": 1.0})
    page = markup_of(page_of([run_folder("c", spec, frame=metrics(40), finished=False)], tmp_path))
    assert "quickstart is not finished: 40 rounds are done." in page


def test_nothing_measured_is_not_drawn(run_folder: Make, tmp_path: Path) -> None:
    names = " ".join(figures_of(page_of([run_folder(**one_round())], tmp_path)))
    assert "energy" not in names
    assert "delay" not in names
    assert "clip" not in names  # a single round is no curve
    assert "accuracy" not in names
    assert "epsilon" not in names
    assert "heatmap" not in names  # all cells are equal
    assert "network" in names


def test_epsilon_axis_is_logarithmic_only_where_ranges_demand_it(run_folder: Make, tmp_path: Path) -> None:
    def axis(epsilons: dict[str, float]) -> dict[str, Any]:
        folder = run_folder(frame=metrics(9, epsilons=epsilons))
        figures = figures_of(page_of([folder], tmp_path))
        return next(f["layout"]["yaxis"] for name, f in figures.items() if "epsilon" in name)

    assert "type" not in axis({"cloud": 8.0})
    assert axis({"cloud": 8.0, "edge:1": 90.0})["type"] == "log"


def test_infinite_epsilon_has_a_strip_of_its_own(run_folder: Make, tmp_path: Path) -> None:
    folder = run_folder(frame=metrics(5, epsilons={"cloud": 2.0, "edge:0": math.inf}))
    figures = figures_of(page_of([folder], tmp_path))
    figure = next(f for name, f in figures.items() if "epsilon" in name)
    assert [(t["name"], t.get("yaxis", "y")) for t in figure["data"]] == [("cloud", "y"), ("edge 0: ∞", "y2")]
    assert figure["layout"]["yaxis2"]["ticktext"] == ["∞"]


def test_the_heatmap_names_its_pairs(run_folder: Make, tmp_path: Path) -> None:
    figures = figures_of(page_of([run_folder()], tmp_path))
    light, dark, infinite = next(f["data"] for name, f in figures.items() if "heatmap" in name)
    assert light["text"][1] == ["", "3.6", "", "", "3.9", ""]
    assert dark["text"][1] == ["8", "", "8", "71.3", "", "6.4"]
    assert infinite["text"][0][3] == "∞"
    assert light["z"][0][3] is None
    hover = dark["hovertext"][1][3]
    for words in ("unit device:40, observer edge:1", "ε = 71.3",
                  "releases 30 · charged: all that the observer's view is made from",
                  "composed: on a grid, rounded up",
                  "stands for 80 pairs", "δ 1e-05", "noise is all that"):  # fmt: skip
        assert words in hover
    assert "worst of 2 classes of pairs; the least ε is 6.3" in dark["hovertext"][1][5]


def test_trust_is_grey_and_what_nothing_protects_is_red(run_folder: Make, tmp_path: Path) -> None:
    from report_factory import guarantee

    rows = [
        guarantee("device:0", "edge:0", math.inf, trusted=True),
        guarantee("device:40", "edge:1", math.inf, trusted=False),
        guarantee("device:40", "cloud", 2.0),
    ]
    page = page_of(
        [run_folder(privacy={"delta": 1e-5, "guarantees": rows, "claims": [], "notes": []})], tmp_path
    )
    _, without = next(f["data"] for name, f in figures_of(page).items() if "heatmap" in name)
    assert sorted(value for row in without["z"] for value in row if value is not None) == [0, 1]
    assert "∞ on red: no guarantee; on grey: the observer is trusted with raw updates." in page


def test_large_networks_are_drawn_in_part(run_folder: Make, tmp_path: Path) -> None:
    from report_cases import deep, ring, thousand_edges

    for number, case in enumerate((thousand_edges, deep, ring)):
        figures = figures_of(page_of([run_folder(str(number), **case())], tmp_path))
        network = next(f for name, f in figures.items() if "network" in name)
        marks = sum(len(t["x"]) for t in network["data"] if "markers" in t["mode"])
        assert 10 < marks < 400
    figures = figures_of(page_of([run_folder("0", **thousand_edges())], tmp_path))
    network = next(f for name, f in figures.items() if "network" in name)
    words = [a["text"] for a in network["layout"]["annotations"]]
    assert "… and 980 more edges" in words
    assert words.count("+988") == 20
    looks = {t["name"]: len(t["x"]) for t in network["data"] if "markers" in t["mode"]}
    assert looks["trusted with raw updates"] == looks["aggregator that adds noise"] == 10
    hovers = [h for t in network["data"] for h in t.get("hovertext", ())]
    assert any("noise multiplier 1.5 at the global step<br>noise multiplier 0.8 at edge aggregations" in h
               for h in hovers)  # fmt: skip


def test_several_runs_share_one_page(run_folder: Make, tmp_path: Path) -> None:
    quiet = quickstart_spec(name="no-noise", privacy={"delta": 1e-5, "noise": {"kind": "none"}})
    for k in range(3):
        run_folder(f"many/seed-{k}", quickstart_spec(name="many", seed=k), frame=metrics(15, seed=k))
    page = page_of([run_folder("a"), run_folder("b", quiet), tmp_path / "many"], tmp_path)
    figures = figures_of(page)
    accuracy = next(f for name, f in figures.items() if "accuracy" in name)
    assert [t.get("name") for t in accuracy["data"]] == ["quickstart", "no-noise", None, None, "many"]
    assert sum("heatmap" in name for name in figures) == 3
    assert sum("network" in name for name in figures) == 2  # quickstart and many share theirs
    assert "quickstart, no-noise and many" in page
    assert "Comparison of the runs" in page
    scales = {
        (f["data"][0]["zmin"], f["data"][0]["zmax"]) for name, f in figures.items() if "heatmap" in name
    }
    assert len(scales) == 1
    assert "are those of the first seed; ε towards the cloud" in markup_of(page)
    epsilon = next(f for name, f in figures.items() if "epsilon" in name)
    entries = sum("name" in trace for trace in epsilon["data"])
    assert entries > 3  # more than the plain height has room for
    assert epsilon["layout"]["height"] == 380 + 20 * (entries - 2)


def test_the_worst_seed_is_named_in_the_headline(run_folder: Make, tmp_path: Path) -> None:
    for seed, epsilon in ((0, 2.0), (1, 7.5)):
        privacy = quickstart_privacy()
        for row in privacy["guarantees"]:
            if row["observer"] == "cloud":
                row["epsilon"] = epsilon
        run_folder(f"many/seed-{seed}", quickstart_spec(name="many", seed=seed), privacy=privacy)
    assert "Towards the cloud no device exceeds ε&nbsp;=&nbsp;7.5 " in page_of([tmp_path / "many"], tmp_path)


def test_the_page_is_the_same_each_time_and_replaces_the_old(run_folder: Make, tmp_path: Path) -> None:
    folder = run_folder()
    (tmp_path / "report.html").write_text("old")
    assert page_of([folder], tmp_path) == page_of([folder], tmp_path)


def test_every_figure_has_words_for_those_who_do_not_see_it(run_folder: Make, tmp_path: Path) -> None:
    elements = Elements(page_of([run_folder()], tmp_path))
    labels = [value for tag, name, value in elements.attributes if (tag, name) == ("div", "aria-label")]
    assert elements.tags.count("figure") == elements.tags.count("figcaption") == 10
    assert any("120 devices under edges 0, 2, 3 towards own edge: no guarantee." in label for label in labels)
    said = "H2FDP Prop. 3.1, 120 devices under edges 0, 2, 3 → cloud: claimed 1, rigorous 8."
    assert any(said in label for label in labels)


@pytest.mark.parametrize(
    "damage", ["spec.yaml", "privacy.json", "metrics.parquet", "model.pt", "manifest.json"]
)
def test_a_damaged_run_writes_no_page(damage: str, run_folder: Make, tmp_path: Path) -> None:
    folder = run_folder()
    (folder / damage).write_text("{")
    with pytest.raises(RunError, match=damage):
        write_report([folder], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_reports_need_no_torch() -> None:
    script = "import sys, sfumato.report, sfumato.run_folder.reader; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"), (math.nan, "–"), (8.0, "8"), (71.26, "71.26"), (0.0123, "0.0123"), (0.0004, "4e-4"),
        (1494.8, "1,495"), (2.5e7, "2.5e7"), (math.inf, "∞"),
    ],
)  # fmt: skip
def test_numbers(value: float, shown: str) -> None:
    assert text.epsilon(value) == shown


def test_lists_and_quantities() -> None:
    assert text.join_names([]) == ""
    assert text.join_names(["a"]) == "a"
    assert text.join_names(["a", "b", "c"]) == "a, b and c"
    assert text.join_names(list("abcdef")) == "a, b, c and 3 more"
    assert text.quantity(11_700_000, text.BYTES) == "11.7 MB"
    assert text.quantity(0.0, text.JOULES) == "0 µJ"
