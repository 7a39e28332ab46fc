"""Metrics sent to W&B and MLflow: only where asked for, what is sent, and what a failure says.

The packages are stood in for by modules with the calls that are used; two tests use the packages themselves.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sfumato as sf
from sfumato.cli import main
from sfumato.errors import MissingExtraError, RunError, SpecError
from sfumato.simulation.tracking import scalars_of, settings_of

pytestmark = pytest.mark.usefixtures("no_report")

SPEC = {
    "name": "small",
    "seed": 987654321,
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 8},
    "model": {"kind": "softmax"},
    "topology": {"sites": [{"name": "ulm", "devices": 2}, {"name": "kiel", "trusted": True, "devices": 2}]},
    "training": {"rounds": 3, "local_steps": 2, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
}
WANDB = """
CALLS = []
FAILS = None


class Settings:
    def __init__(self, **given):
        CALLS.append(("settings", given))


class Run:
    def log(self, scalars, step):
        if step == FAILS:
            raise ConnectionError("the server is gone")
        CALLS.append(("log", step, scalars))

    def finish(self, exit_code):
        CALLS.append(("finish", exit_code))


def init(**given):
    if FAILS == 0:
        raise RuntimeError("no API key\\nlog in first")
    CALLS.append(("init", given))
    return Run()
"""
WRITTEN_CALLS = """
import os


class Calls:
    def append(self, call):
        with open(os.environ["CALLS"], "a") as file:
            print(call, file=file)


CALLS = Calls()
"""
MLFLOW = """
from types import SimpleNamespace

CALLS = []


class MlflowClient:
    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        CALLS.append(("experiment", name))
        return "7"

    def create_run(self, experiment, run_name):
        CALLS.append(("run", experiment, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id="r"))

    def log_batch(self, run, metrics=(), params=()):
        CALLS.append(("batch", run, list(metrics), list(params)))

    def set_terminated(self, run, status):
        CALLS.append(("end", run, status))
"""
ENTITIES = """
from collections import namedtuple

Metric = namedtuple("Metric", "key value timestamp step")
Param = namedtuple("Param", "key value")
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """Puts a package of the given name and files where it is imported first; returns it."""
    loaded = {name: sys.modules.pop(name) for name in list(sys.modules) if is_tracker(name)}

    def put(name: str, **files: str) -> ModuleType:
        package = tmp_path / "library" / name
        package.mkdir(parents=True)
        for file, text in files.items():
            (package / f"{file}.py").write_text(text, encoding="utf-8")
        monkeypatch.syspath_prepend(str(package.parent))
        return import_module(name)

    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    yield put
    for name in filter(is_tracker, list(sys.modules)):
        del sys.modules[name]
    sys.modules.update(loaded)


def is_tracker(module: str) -> bool:
    return module.partition(".")[0] in ("wandb", "mlflow")


@pytest.fixture
def wandb(library: Callable[..., ModuleType]) -> Any:
    return library("wandb", __init__=WANDB)


def logged(package: Any) -> list[int]:
    return [call[1] for call in package.CALLS if call[0] == "log"]


def spec(**sections: Any) -> sf.Spec:
    return sf.load_spec(SPEC | sections)


def test_an_installed_library_alone_gets_nothing(wandb: Any, tmp_path: Path) -> None:
    sf.run(spec(), out=tmp_path / "run")
    assert wandb.CALLS == []


def test_wandb_gets_every_round_and_nothing_of_the_machine(wandb: Any, tmp_path: Path) -> None:
    run = sf.run(spec(), out=tmp_path / "run", track="wandb")
    (_, given), (_, begun), *rows, last = wandb.CALLS
    assert given["console"] == "off"
    assert given["save_code"] is given["x_save_requirements"] is False
    assert all(given[name] for name in given if "disable" in name)
    assert (begun["project"], begun["name"]) == ("sfumato", "small")
    assert logged(wandb) == [1, 2, 3]
    assert rows[-1][2] == scalars_of({str(k): float(v) for k, v in run.metrics.iloc[-1].items()})
    assert last == ("finish", 0)


def test_neither_seed_nor_data_nor_names_are_sent() -> None:
    sent = settings_of(spec())
    assert sent["training.rounds"] == "3"
    assert sent["privacy.noise.multiplier"] == "2.0"
    assert not [text for text in (*sent, *sent.values()) if "987654321" in text or "ulm" in text]
    assert {key.partition(".")[0] for key in sent} <= {
        "protocol", "training", "privacy", "transport", "compression", "faults", "air", "control"
    }  # fmt: skip


def test_a_scalar_is_what_was_measured() -> None:
    row = {"round": 2.0, "accuracy": math.nan, "loss": 0.5, "epsilon:edge:0": math.inf}
    assert scalars_of(row) == {"loss": 0.5, "epsilon/edge:0": math.inf}


def test_a_resumed_run_is_sent_whole(wandb: Any, tmp_path: Path) -> None:
    def stop(done: Any) -> None:
        if done.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sf.run(spec(), out=tmp_path / "run", track=["wandb"], on_round=stop)
    assert logged(wandb) == [1, 2]
    assert wandb.CALLS[-1] == ("finish", 1)
    del wandb.CALLS[:]
    sf.run(spec(), out=tmp_path / "run", track=["wandb"], resume=True)
    assert logged(wandb) == [1, 2, 3]
    assert wandb.CALLS[-1] == ("finish", 0)


def test_a_tracker_that_cannot_be_started_is_said_before_training(wandb: Any, tmp_path: Path) -> None:
    wandb.FAILS = 0
    rounds: list[Any] = []
    with pytest.raises(RunError, match=r"^track='wandb': no API key$"):
        sf.run(spec(), out=tmp_path / "run", track="wandb", on_round=rounds.append)
    assert rounds == []


def test_a_tracker_that_fails_stops_the_run_which_can_be_resumed(wandb: Any, tmp_path: Path) -> None:
    wandb.FAILS = 2
    with pytest.raises(RunError, match=r"^track='wandb': the server is gone$"):
        sf.run(spec(), out=tmp_path / "run", track="wandb")
    resumed = sf.run(spec(), out=tmp_path / "run", resume=True)
    plain = sf.run(spec(), out=tmp_path / "plain")
    assert resumed.metrics["accuracy"].tolist() == plain.metrics["accuracy"].tolist()


def test_mlflow_gets_a_batch_a_round_with_names_that_it_allows(
    library: Callable[..., ModuleType], tmp_path: Path
) -> None:
    mlflow: Any = library("mlflow", __init__=MLFLOW, entities=ENTITIES)
    sf.run(spec(watch=["edge:0,device:3"]), out=tmp_path / "run", track=("mlflow",))
    experiment, run, settings, *rounds, end = mlflow.CALLS
    assert (experiment, run) == (("experiment", "sfumato"), ("run", "7", "small"))
    assert ("training.rounds", "3") in settings[3]
    assert [batch[2][0].step for batch in rounds] == [1, 2, 3]
    assert "epsilon/edge_0_device_3" in {metric.key for metric in rounds[-1][2]}
    assert end == ("end", "r", "FINISHED")


def test_what_is_not_installed_is_said_with_the_command_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wandb").mkdir()  # what the library leaves is not the library
    monkeypatch.syspath_prepend(str(tmp_path))
    installed = [path for path in sys.path if (Path(path) / "wandb" / "__init__.py").is_file()]
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in installed])
    with pytest.raises(MissingExtraError, match=r"^track='wandb': .*pip install 'sfumato\[wandb\]'$"):
        sf.run(spec(), out="run", track="wandb")
    assert main(["run", "quickstart", "--track", "wandb", "--out", "run"]) == 2
    assert capsys.readouterr().err.startswith("sfumato: --track wandb: needs the extra 'wandb'")
    assert not Path("run").exists()


def test_other_trackers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^track: got 'comet'; must be wandb or mlflow$"):
        sf.run(spec(), out=tmp_path / "run", track="comet")


@pytest.mark.usefixtures("fast_workers")
def test_a_sweep_sends_every_point_and_seed(
    library: Callable[..., ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    monkeypatch.setenv("CALLS", str(calls))
    writing = WANDB.replace("CALLS = []", WRITTEN_CALLS)
    library("wandb", __init__=writing)
    kept: dict[str, Any] = {"seeds": 2, "out": tmp_path / "sweep", "workers": 1, "progress": False}
    over = {"training.learning_rate": [0.1, 0.2]}
    sf.sweep(spec(), over, track="wandb", **kept)
    lines = calls.read_text().splitlines()
    assert len([line for line in lines if line.startswith("('init'")]) == 4
    assert len([line for line in lines if line.startswith("('log'")]) == 4 * 3
    sf.sweep(spec(), over, track="wandb", **kept)
    assert calls.read_text().splitlines() == lines  # what is done is not sent again
    with pytest.raises(SpecError, match=r"^track: got 'wandb'; goes with training"):
        sf.sweep(spec(), over, track="wandb", account_only=True, out=tmp_path / "accounts")


@pytest.mark.needs("wandb")
def test_the_real_wandb_keeps_an_offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    sf.run(spec(), out="run", track="wandb")
    (kept,) = Path("wandb").glob("offline-run-*/run-*.wandb")
    content = kept.read_bytes()
    assert b"epsilon/cloud" in content
    assert b"987654321" not in content
    assert b"ulm" not in content


@pytest.mark.needs("mlflow")
def test_the_real_mlflow_keeps_a_run_in_a_local_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = sf.run(spec(watch=["edge:0,device:3"]), out="run", track="mlflow")
    client = mlflow.MlflowClient()
    (kept,) = client.search_runs([client.get_experiment_by_name("sfumato").experiment_id])
    assert kept.info.status == "FINISHED"
    assert kept.data.params["training.rounds"] == "3"
    history = client.get_metric_history(kept.info.run_id, "accuracy")
    assert [point.value for point in history] == run.metrics["accuracy"].tolist()
    assert "epsilon/edge_0_device_3" in kept.data.metrics
