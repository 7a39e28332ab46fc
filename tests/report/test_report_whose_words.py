"""Whose guarantee a sentence is about, whose noise it counts on, and what it leaves to the reader."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_factory import claim, guarantee, metrics, quickstart_privacy, quickstart_spec

from sfumato.errors import RunError
from sfumato.report.drawings.topology_figure import topology_figure
from sfumato.report.figures.control import looked_at
from sfumato.report.page.not_accounted import not_accounted, seed_sentence
from sfumato.report.page.sections import page_of
from sfumato.report.results.network import read_network
from sfumato.report.results.series import Series, load_series
from sfumato.run_folder.label_counts import read_test_persons, write_test_labels
from sfumato.run_folder.reader import adding_files

Make = Callable[..., Path]
INF = float("inf")
DEPLOYED = {"realised": {"deployed": {"draws": ["a chip"], "on": "machines of their own"}}}
SILENT = {"delta": 1e-5, "noise": {"kind": "none"}}


def shown(*folders: Path) -> str:
    page = unescape(page_of(load_series(list(folders)), folders[0].parent)).replace("\u00a0", " ")
    return re.sub("</?a[^>]*>", "", page)


def first_of(page: str) -> str:
    return page.split('aria-label="Headline"')[1].split("</section>")[0]


def series_of(folder: Path, ledger: dict[str, Any] | None = None) -> Series:
    (one,) = load_series([folder])
    if ledger is not None:
        one.first.__dict__["ledger"] = ledger  # as if it were read
    return one


def noise(*sources: str, **more: Any) -> dict[str, Any]:
    listed = [{"owners": [owner], "multipliers": [1.0, 1.0]} for owner in sources]
    return {"privacy": {"delta": 1e-5, "noise": {"kind": "sources", "sources": listed}}, **more}


def over_air(**more: Any) -> dict[str, Any]:
    star = {"kind": "star", "devices": 20}
    hops = {"devices_to_cloud": "air"}
    privacy = {"delta": 1e-3, "noise": {"kind": "formula", "formula": "pfels", "epsilon": 1.5}}
    return quickstart_spec(protocol="pfels", topology=star, trust={}, transport=hops, privacy=privacy, **more)


def test_uses_of_subcarriers_and_both_ways_of_traffic_are_told(run_folder: Make) -> None:
    frame = metrics(5).assign(channel_uses=1000)
    page = first_of(shown(run_folder("air", over_air(), frame=frame)))
    assert "<dt>Uses of subcarriers (up)</dt><dd>5,000</dd>" in page
    assert "<dt>Traffic up</dt>" in page
    assert "subcarriers" not in first_of(shown(run_folder()))


def test_a_claim_about_some_devices_names_them(run_folder: Make) -> None:
    privacy = quickstart_privacy()
    of_all, of_some = "HDP Table I, C7: ε/√44", "HDP Sec. V, rule of Case 3, C7: ε/√10"
    privacy["claims"] = [
        claim(9.0, 2.0, why="", unit=unit, observer="public") | {"source": of_all}
        for unit in ("device:0", "device:40")
    ] + [claim(3.0, 2.5, why="", unit="device:40", observer="edge:1") | {"source": of_some}]
    page = shown(run_folder(privacy=privacy))
    who = "80 devices under edges 1, 4"
    said = f"Case 3 would claim ε = 3 for {who}, and nothing for the others; it holds. Provable: 2.5"
    assert said in first_of(page)
    assert "HDP Table I would claim ε = 9; it holds. Provable: 2 towards the public." in first_of(page)
    assert f"{of_all}: it holds. {of_some}, of {who} alone: it holds." in page  # the caption
    of_edge = claim(9.0, 2.5, why="", unit="device:40", observer="edge:1") | {"source": of_all}
    privacy["claims"] = [privacy["claims"][0], of_edge]
    said = (
        "Provable: 2.5 towards their own edge. Read towards the public, too, of whom it says nothing, it "
        "holds (2)."
    )
    assert said in first_of(shown(run_folder("one", privacy=privacy)))


@pytest.mark.parametrize(
    ("sources", "trusted", "said"),
    [
        (["cloud"], [], "the cloud and edges 0, 1"),
        (["cloud", "edge:0/devices:0", "edge:1/devices:0"], [], "edges 0, 1"),  # an average has some's noise
        (["edge:0", "edge:1"], [], "edges 0, 1"),
        (["edge:0", "edge:1"], [0, 1], ""),
        (["cloud"], [0, 1], "the cloud"),
        (["edge:0", "edge:1/devices"], [0], ""),
    ],
)
def test_raw_updates_to_whom_nobody_trusts_are_told_with_the_drawing(
    sources: list[str], trusted: list[int], said: str
) -> None:
    tree = {"kind": "tree", "edges": 2, "devices_per_edge": 3}
    spec = quickstart_spec(topology=tree, trust={"trusted_edges": trusted}, **noise(*sources))
    figure = topology_figure(read_network(spec))
    assert figure is not None
    orange = f"Not trusted, and yet sent messages without noise (orange): {said}."
    assert (orange in figure.caption) == bool(said)
    assert ("Not trusted" in figure.caption) == bool(said)
    links = {trace["name"] for trace in figure.data}
    assert ("messages without noise go up" in links) == bool(said)
    assert ("messages without noise go up to who is trusted" in links) == bool(trusted)
    star = quickstart_spec(topology={"kind": "star", "devices": 3}, trust={}, **noise("cloud"))
    drawn = topology_figure(read_network(star))
    assert drawn is not None
    assert drawn.caption.count("Not trusted, and yet sent messages without noise (orange): the cloud.") == 1


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        (["edge:0", "edge:1/devices"], "1 edge and the devices under 1 other edge."),
        (["edge:0", "edge:0/devices"], "1 edge and the devices under 1 edge."),
        (["edge:1/devices"], "the devices under 1 edge."),
    ],
)
def test_devices_are_under_other_edges_only_if_these_are_others(sources: list[str], said: str) -> None:
    tree = {"kind": "tree", "edges": 2, "devices_per_edge": 3}
    figure = topology_figure(read_network(quickstart_spec(topology=tree, trust={}, **noise(*sources))))
    assert figure is not None
    assert figure.caption.endswith(f"Noise is added by {said}")


def test_only_a_simulation_with_noise_says_that_it_follows_from_its_seed(run_folder: Make) -> None:
    said = "The noise of this simulation follows from its seed"
    folder = run_folder()
    assert said in first_of(shown(folder))
    assert seed_sentence([series_of(folder, DEPLOYED)]) == []
    assert said not in first_of(shown(run_folder("silent", quickstart_spec(privacy=SILENT))))
    assert said in first_of(shown(run_folder("air", over_air())))


def test_what_is_not_accounted_follows_from_whose_noise_it_is(run_folder: Make) -> None:
    folder, on_air = run_folder(), run_folder("air", over_air())
    plain, deployed, air = (
        " ".join(not_accounted([one]))
        for one in (series_of(folder), series_of(folder, DEPLOYED), series_of(on_air))
    )
    silent = " ".join(not_accounted([series_of(run_folder("s", quickstart_spec(privacy=SILENT)))]))
    secret, hears = "draws noise from a secret source", "Whoever hears better than the receiver"
    assert [secret in said for said in (plain, deployed, air, silent)] == [True, False, False, False]
    assert [hears in said for said in (plain, deployed, air, silent)] == [False, False, True, False]
    assert ["follows from its seed" in said for said in (plain, deployed, air)] == [True, False, True]
    assert "the noise is the receiver's own, and nobody draws it" in air
    assert "floating-point" not in deployed  # whose noise is discrete and exact


def test_what_real_parties_play_no_simulator_measures(run_folder: Make) -> None:
    """Beside a simulated run the captions name both."""
    frame = metrics(5).assign(noise_std=[0.1, 0.2, 0.3, 0.4, 0.5])
    simulated, folder = (
        run_folder("a", frame=frame),
        run_folder("b", frame=frame.assign(clip_fraction=np.nan)),
    )

    def told(*series: Series) -> str:
        return unescape(page_of(series, folder.parent)).replace("\u00a0", " ")

    one = told(series_of(folder, DEPLOYED))
    assert "simulator" not in one
    assert "time of the simulation" not in one
    assert "measured by whoever wrote the run folder, not accounted for" in one
    assert "It is what was declared, with what the grid adds." in one
    assert "Noise is what was declared" in one
    assert "time of the rounds" in one
    assert "Losses and accuracies are measured exactly, and not accounted for; noise levels are those" in one
    both = told(*load_series([simulated]), series_of(folder, DEPLOYED))
    assert "measured by the simulator, or of a deployed run by whoever wrote the run folder" in both
    assert "Measured by the simulator only. Of a deployed run it is what was declared" in both
    assert "it depends on the machines that played them" in both
    alone = told(*load_series([simulated]))
    assert "measured by the simulator only, not accounted for" in alone
    assert "what was declared" not in alone


def test_that_nothing_was_learned_is_told_first_and_once(run_folder: Make) -> None:
    folder = run_folder(frame=metrics(4).assign(accuracy=0.1))
    with adding_files(folder) as files:
        files["test_labels.json"] = write_test_labels(folder, {"0": 100, "1": 900})
    first = first_of(shown(folder))
    said = "The accuracy, 10.0 %, is not above that of guessing the most frequent class"
    assert 0 < first.index(said) < first.index("Who learns what")
    assert first.count(said) == 1


def test_a_finding_says_what_protects_pairs_without_a_guarantee(run_folder: Make) -> None:
    rows = [
        guarantee("device:0", "cloud", INF, 120, relation="cloud"),
        guarantee("device:0", "edge:0", INF, 30, relation="own edge", trusted=True),
        guarantee("device:40", "cloud", 3.0, 80, relation="cloud"),
    ]
    said = (
        "Where there is no guarantee (∞), let a party add noise (privacy.noise) before the message reaches "
    )
    said += "the observer, or, where devices trust the cloud (trust.cloud), write so in the spec."
    assert said in first_of(shown(run_folder(privacy={"delta": 1e-5, "guarantees": rows, "claims": []})))
    other = {"delta": 1e-5, "guarantees": rows[1:], "claims": []}
    assert "does not trust" not in first_of(shown(run_folder("other", privacy=other)))


@pytest.mark.parametrize("estimates", ["released", {"multiplier": 2.0, "bound": 1.0}])
def test_a_controlled_run_says_what_its_choices_are_made_by(run_folder: Make, estimates: Any) -> None:
    control = {"energy": 1.0, "estimates": estimates}
    rows = [guarantee("device:0", "cloud", 8.0, 200), guarantee("device:0", "public", 3.0, 200)]
    privacy = {"delta": 1e-5, "guarantees": rows, "claims": []}
    frame = metrics(4, epsilons={"cloud": 6.0})
    folder = run_folder("c", quickstart_spec(control=control), frame=frame, privacy=privacy)
    page, first = shown(folder), first_of(shown(folder))
    kept = "Every ε here is a budget, kept whatever adaptive control chooses."
    assert f"{kept} Towards the cloud the rounds spent 6 of 8." in first
    plan = "in the spec's plan, from which the budget of adaptive control is computed."
    assert plan in page
    assert ("So every ε holds though the choices are known" in page) == (estimates == "released")
    assert ("which each measures and sends with noise (control.estimates)" in page) == (
        estimates != "released"
    )
    assert "sfumato run c/spec.yaml --set control=null --baseline --out c-without-control" in first
    bare = {key: value for key, value in quickstart_spec(control=control).items() if key != "radio"}
    without = first_of(shown(run_folder("r", bare, frame=frame, privacy=privacy)))  # energy is to be compared
    assert "--set control=null --set 'radio={preset: h2fdp}' --baseline --out r-without-control" in without
    assert "--set privacy.noise=none" not in first  # a twin would have another schedule
    silent = run_folder("s", quickstart_spec(control=control, privacy=SILENT), frame=frame, privacy=privacy)
    assert looked_at(series_of(silent)) == ["Adaptive control chooses by global models that have no noise."]
    assert "Every ε here is a budget" not in shown(silent)
    assert plan not in shown(run_folder("without", quickstart_spec(), frame=frame, privacy=privacy))
    assert looked_at(series_of(run_folder("none"))) == []


@pytest.mark.parametrize(
    ("part", "said"),
    [("all", "at each of its 40 local steps."), ("fixed", "every device, at every local step.")],
)
def test_noise_at_steps_is_counted_where_all_take_part(run_folder: Make, part: str, said: str) -> None:
    spec = quickstart_spec(
        topology={"kind": "star", "devices": 5},
        trust={},
        privacy={
            "delta": 1e-5,
            "clip": {"kind": "example", "norm": 1.0},
            "noise": {"kind": "multiplier", "multiplier": 1.9, "at": "step"},
        },
    )
    spec["training"] = {"rounds": 10, "local_steps": 4, "participation": {"kind": part, "count": 2}}
    equal = [guarantee("record:0", whom, 1.76, 5) for whom in ("cloud", "public", "device:1")]
    privacy = {"delta": 1e-5, "guarantees": equal, "claims": []}
    first = first_of(shown(run_folder("a", spec, privacy=privacy)))
    assert said in first
    assert "in all" not in first
    same = "No less is proven towards any of them, as noise is in every gradient"
    assert same in first
    unequal = privacy | {"guarantees": [*equal[:2], guarantee("record:0", "device:1", 1.0, 5)]}
    assert same not in first_of(shown(run_folder("b", spec, privacy=unequal)))


def test_an_error_of_a_paper_that_the_claims_explain_is_no_note_as_well(run_folder: Make) -> None:
    note, other = "the claim of the paper is void (P1)", "the average is smaller"
    privacy = quickstart_privacy() | {"notes": [note, other]}
    assert "The claim of the paper is void" in shown(run_folder("a", privacy=privacy))
    privacy["claims"] = [claim(1.5, 63.0, why="the proof holds for ε below 0.064 only (P1)")]
    page = shown(run_folder("b", privacy=privacy))
    assert "The claim of the paper is void" not in page
    assert "The average is smaller." in page


@pytest.mark.parametrize(("persons", "said"), [(16, "16 other persons"), (None, "other persons")])
def test_rows_of_persons_are_tested_on_and_no_examples(
    run_folder: Make, persons: int | None, said: str
) -> None:
    rows = [guarantee("person:0", whom, 2.0, 5) for whom in ("cloud", "public")]
    folder = run_folder(privacy={"delta": 1e-5, "guarantees": rows, "claims": []})
    with adding_files(folder) as files:
        files["test_labels.json"] = write_test_labels(folder, {"0": 20, "1": 35}, persons)
    assert f"accurate on held-out data (55 rows of {said}, one seed)" in first_of(shown(folder))
    assert read_test_persons(folder) == persons


@pytest.mark.parametrize("persons", ["16", 0, -1, 1.5, True])
def test_a_number_of_persons_that_is_none_is_an_error(tmp_path: Path, persons: object) -> None:
    (tmp_path / "test_labels.json").write_text(json.dumps({"labels": {"0": 3}, "persons": persons}))
    with pytest.raises(RunError, match="must hold how many persons the test examples are of"):
        read_test_persons(tmp_path)


@pytest.mark.parametrize("last", ["seen", "unseen"])
def test_equal_epsilons_of_whoever_sees_the_draws_say_so(run_folder: Make, last: str) -> None:
    drawn = "each moved with probability 0.032"
    rows = [
        guarantee("device:0", whom, 90.9, 20, f"charged 5, {drawn}, {how}; composed by gdp", relation=whom)
        for whom, how in (("cloud", "seen"), ("public", last))
    ]
    folder = run_folder(privacy={"delta": 1e-3, "guarantees": rows, "claims": []})
    assert ("each is charged as if it saw who is drawn" in first_of(shown(folder))) == (last == "seen")
