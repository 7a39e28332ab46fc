"""The run without noise that accuracy is compared with has none: not even a receiver's."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from air_specs import FADING
from report_factory import metrics, quickstart_spec

from sfumato import run
from sfumato.report.page.comparison import comparison
from sfumato.report.results.cost_of_privacy import (
    cost_of_privacy_or_commands,
    costs_by_runs_beside,
    costs_of_noise,
    twins_beside,
)
from sfumato.report.results.series import Series, load_series
from sfumato.report.results.summary import summarise
from sfumato.spec.load import load_spec

DEVICES = {"local_steps": 1, "batch_size": 5, "learning_rate": 0.1, "rounds": 1}
STAR = {
    "name": "air",
    "protocol": "pfels",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "model": {"kind": "softmax"},
    "topology": {"kind": "star", "devices": 6},
    "training": DEVICES | {"participation": {"kind": "fixed", "count": 3}},
    "compression": {"kind": "rand-k", "ratio": 0.3},
    "privacy": {
        "delta": 1e-3,
        "clip": {"kind": "update", "norm": 1.0},
        "noise": {"formula": "pfels", "epsilon": 1.5},
    },
}
TREE = STAR | {
    "protocol": "h2fdp",
    "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3},
    "training": DEVICES,
    "transport": {"devices_to_edge": "air"},
    "privacy": STAR["privacy"] | {"noise": {"multiplier": 1.0}},
}


def twin_of(one: Series) -> Series | None:
    return next(iter(twins_beside([one])), None)


@pytest.mark.parametrize(
    "spec",
    [
        STAR,
        STAR | {"protocol": "wfl-p", "radio": FADING, "air": {"min_gain": 0.001}},
        STAR | {"privacy": STAR["privacy"] | {"noise": "none"}},
        TREE,
    ],
    ids=["pfels", "wfl-p", "silent", "tree"],
)
def test_the_suggested_run_over_the_air_has_no_noise(spec: dict[str, Any], tmp_path: Path) -> None:
    run(load_spec(spec), out=tmp_path / "air")
    (one,) = load_series([tmp_path / "air"])
    said, commands = cost_of_privacy_or_commands(one, twin_of(one))
    assert "the receiver's noise stays" in said[0]
    words = shlex.split(commands.splitlines()[0])
    settings = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
    quiet = load_spec(tmp_path / words[2], settings)
    assert not quiet.sends_over_the_air
    run(quiet, out=tmp_path / words[words.index("--out") + 1])
    said, commands = cost_of_privacy_or_commands(one, twin_of(one))
    assert commands == ""
    assert "oise, the receiver's included," in said[0]


@pytest.mark.parametrize("on_air", [{"protocol": "wfl-p"}, {"transport": {"devices_to_cloud": "air"}}])
def test_a_receiver_s_noise_is_noise(run_folder: Any, on_air: dict[str, Any]) -> None:
    """Over the air no other run counts as one without noise, whatever its devices add."""
    none = {"privacy": quickstart_spec()["privacy"] | {"noise": {"kind": "none"}}}
    folders = [
        run_folder("pfels", quickstart_spec(**on_air), frame=metrics(4)),
        run_folder("wfl-p", quickstart_spec(**on_air, **none), frame=metrics(4)),
    ]
    series = load_series(folders)
    assert costs_of_noise(series) == []
    protocol = "dp-fedavg" if "protocol" in on_air else "hfl"
    (plain,) = load_series(
        [run_folder("plain", quickstart_spec(protocol=protocol, **none), frame=metrics(4))]
    )
    assert len(costs_of_noise([*series, plain])) == 2


def test_a_run_that_compresses_is_not_compared_with_one_that_does_not(run_folder: Any) -> None:
    folders = [
        run_folder("a", quickstart_spec(compression={"kind": "rand-k", "ratio": 0.1}), frame=metrics(4)),
        run_folder("b", quickstart_spec(protocol="hfl"), frame=metrics(4)),
    ]
    assert costs_of_noise(load_series(folders)) == []


def test_the_twin_that_was_trained_for_a_run_comes_before_a_newer_one(run_folder: Any) -> None:
    for name, protocol in (("one", "h2fdp"), ("one-without-noise", "hfl"), ("other-without-noise", "hfl")):
        folder = run_folder(name, quickstart_spec(name=name, protocol=protocol), frame=metrics(4))
        os.utime(folder, (1e9, 1e9 if name == "one-without-noise" else 2e9))
    (one,) = load_series([folder.parent / "one"])
    twin = twin_of(one)
    assert twin is not None
    assert twin.folder.name == "one-without-noise"


def test_each_run_is_compared_with_its_own_twin_beside_it(run_folder: Any) -> None:
    """Though another run has its twin among the runs of the page; where there is none, the table says so."""

    def made(name: str, rounds: int, **more: Any) -> Path:
        spec = quickstart_spec(name=name, training={"rounds": rounds, "local_steps": 2}, **more)
        return Path(run_folder(name, spec, frame=metrics(rounds)))

    series = load_series([
        made("long", 8),
        made("short", 4),
        made("silent", 4, protocol="hfl"),
    ])  # fmt: skip
    (cost,) = costs_by_runs_beside(series)
    assert cost.one.name == "short"
    shown = comparison(series, [summarise(one) for one in series], [cost])
    row = shown.split("what the noise costs of it</td>")[1].split("</tr>")[0]
    assert ">not known: no comparable run without noise here</td>" in row
    made("long-without-noise", 8, protocol="hfl")
    costs = costs_by_runs_beside(series)
    assert [one.one.name for one in costs] == ["long", "short"]
    assert costs[0].other.folder.name == "long-without-noise"
    assert costs[1].other.name == "silent"


MOVES = {"kind": "tree", "edges": 2, "devices_per_edge": 3, "moves": {"rate": 0.5}}


@pytest.mark.parametrize(
    "difference",
    [
        {"topology": MOVES},
        {"seed": 1},
        {"privacy": STAR["privacy"] | {"noise": "none", "clip": {"kind": "update", "norm": 2.0}}},
        {"privacy": {"noise": "none"}},
        {"training": DEVICES | {"learning_rate": 0.2}},
        {"transport": {"devices_to_edge": "secure-aggregation"}},
        {"faults": {"dropout_rate": 0.1}},
    ],
    ids=["moves", "seed", "clip", "no clip", "training", "secure aggregation", "faults"],
)
def test_only_a_twin_is_compared_with(difference: dict[str, Any], tmp_path: Path) -> None:
    """A folder beside a run is its twin where the spec is the same but for noise."""
    spec = TREE | {"transport": {}}
    silent = spec | {"privacy": STAR["privacy"] | {"noise": "none"}}
    run(load_spec(spec), out=tmp_path / "run")
    run(load_spec(silent | difference), out=tmp_path / "run-without-noise")
    (one,) = load_series([tmp_path / "run"])
    said, commands = cost_of_privacy_or_commands(one, twin_of(one))
    assert "is not known" in said[0]
    assert commands
    run(load_spec(silent), out=tmp_path / "twin")
    said, commands = cost_of_privacy_or_commands(one, twin_of(one))
    assert "the run in the folder twin" in said[0]
    assert commands == ""


def test_a_moving_run_is_not_compared_with_a_static_one(tmp_path: Path) -> None:
    spec = TREE | {"transport": {}, "topology": MOVES}
    silent = spec | {"privacy": STAR["privacy"] | {"noise": "none"}, "topology": TREE["topology"]}
    run(load_spec(spec), out=tmp_path / "run")
    run(load_spec(silent), out=tmp_path / "run-without-noise")
    (one,) = load_series([tmp_path / "run"])
    assert "is not known" in cost_of_privacy_or_commands(one, twin_of(one))[0][0]
