"""Runs in Python: several seeds, stopping, a folder that is read again, predictions, plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import torch

import sfumato as sf
from sfumato.errors import RunError, SpecError
from sfumato.run_folder.label_counts import read_test_labels

pytestmark = pytest.mark.usefixtures("no_report")

SPEC: dict[str, Any] = {
    "name": "small",
    "protocol": "dp-fedavg",
    "data": {"source": "rows.csv", "label_column": "ill", "scale": {"age": [0, 100]}},
    "topology": {"kind": "star", "devices": 3},
    "training": {"rounds": 4, "local_steps": 2, "batch_size": 8, "learning_rate": 1.0},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 0.5}},
    "watch": ["cloud"],
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    age = np.arange(20, 80)
    pd.DataFrame({"age": age, "bmi": age / 50, "ill": (age > 50).astype(int)}).to_csv("rows.csv", index=False)


def test_a_folder_gives_what_the_run_gave() -> None:
    run = sf.run(sf.load_spec(SPEC), out="run")
    again = sf.load_run("run")
    assert repr(again) == repr(run)
    assert again.finished
    assert again.metrics.equals(run.metrics)
    assert again.privacy.table().equals(run.privacy.table())
    for name, value in run.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])
    frame = pd.read_csv("rows.csv")
    scaled = frame[["age", "bmi"]].to_numpy() / [100, 1]
    assert np.array_equal(again.predict(frame), run.predict(scaled))
    assert set(again.predict(frame).tolist()) <= {0, 1}
    with pytest.raises(SpecError, match="features: has no column 'age', a feature of the run"):
        again.predict(frame.drop(columns="age"))
    for wrong in ("patients.csv", [["old"]]):
        with pytest.raises(SpecError, match=r"must be a data frame, as pandas\.read_csv\(FILE\) gives it"):
            again.predict(wrong)
    with pytest.raises(SpecError, match=r"one example is a row: \[example\]"):
        again.predict([40.0, 1.0])


def test_labels_of_text_are_predicted_as_text() -> None:
    frame = pd.read_csv("rows.csv")
    numbers = sf.run(sf.load_spec(SPEC), out="numbers").predict(frame)
    frame.assign(ill=frame["ill"].map({0: "benign", 1: "malignant"})).to_csv("rows.csv", index=False)
    text = sf.run(sf.load_spec(SPEC), out="text")
    expected = np.array(["benign", "malignant"])[numbers]
    assert text.predict(frame).tolist() == expected.tolist()


def test_a_run_folder_counts_labels_of_test_examples_alone() -> None:
    """Those of training rows are private: no file of the folder has their numbers."""
    ages = np.arange(20, 80)
    frame = pd.DataFrame({"age": ages, "bmi": ages / 50, "ill": "no", "held": ages % 10 == 0})
    frame.loc[ages > 41, "ill"] = "yes"  # 22 no and 38 yes; held out 3 no and 3 yes
    frame.to_csv("rows.csv", index=False)
    data = SPEC["data"] | {"test_column": "held"}
    run = sf.run(sf.load_spec(SPEC | {"data": data}), out="counted")
    assert read_test_labels(run.path) == {"no": 3, "yes": 3}
    assert "test_labels.json" in run.folder.manifest.files
    (run.path / "test_labels.json").write_text('{"labels": {"no": 1, "yes": 5}}')
    with pytest.raises(RunError, match=r"test_labels\.json: has SHA-256"):
        sf.load_run("counted")
    assert sf.run(sf.load_spec(SPEC | {"data": data}), out="counted", resume=True).finished
    assert read_test_labels(run.path) == {"no": 3, "yes": 3}


def test_where_numbers_are_predicted_no_labels_are_counted() -> None:
    data = SPEC["data"] | {"label_column": "bmi", "feature_columns": ["age"], "task": "regression"}
    data["scale"] = {"age": [0, 100]}
    assert read_test_labels(sf.run(sf.load_spec(SPEC | {"data": data}), out="numbers").path) is None


def test_a_callback_that_returns_true_stops_a_run_that_can_go_on() -> None:
    spec = sf.load_spec(SPEC)
    whole = sf.run(spec, out="whole", on_round=lambda done: None)
    run = sf.run(spec, out="run", on_round=lambda done: done.round == 2)
    assert len(run.metrics) == 2
    assert not run.finished
    assert ": 2 of 4 rounds" in repr(run)
    assert run.privacy.epsilon(0, "cloud") == whole.privacy.epsilon(0, "cloud")  # of all rounds: a bound
    assert run.predict(np.zeros((2, 2))).shape == (2,)
    resumed = sf.run(spec, out="run", resume=True)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])


def test_the_model_of_a_stopped_run_is_that_of_its_last_round() -> None:
    two = sf.run(sf.load_spec(SPEC, ["training.rounds=2"]), out="two")
    stopped = sf.run(sf.load_spec(SPEC), out="run", on_round=lambda done: done.round == 2)
    for name, value in two.model.state_dict().items():
        assert torch.equal(value, stopped.model.state_dict()[name])


def test_other_answers_of_a_callback_stop_nothing() -> None:
    assert len(sf.run(sf.load_spec(SPEC), out="run", on_round=lambda done: done.round).metrics) == 4


def test_several_seeds() -> None:
    runs = sf.run(sf.load_spec(SPEC), out="runs", seeds=2)
    assert [run.path.name for run in runs] == ["seed-0", "seed-1"]
    alone = sf.run(sf.load_spec(SPEC, ["seed=1"]), out="alone")
    assert runs[1].metrics.drop(columns="wall_time_s").equals(alone.metrics.drop(columns="wall_time_s"))
    finals = [float(run.metrics["accuracy"].iloc[-1]) for run in runs]
    assert runs.final("accuracy").value == pytest.approx(np.mean(finals))
    assert runs.metrics["seed"].tolist() == [0] * 4 + [1] * 4
    assert "2 seeds, accuracy " in repr(runs)
    assert "± " in repr(runs)
    assert "<td>1</td>" in runs._repr_html_()
    assert runs.report() == Path("runs/report.html")
    assert isinstance(runs.plot(), go.Figure)
    assert len(sf.compare(["runs", "alone"]).table()) == 2


def test_plots_are_plotly_figures_of_the_run_and_its_account() -> None:
    run = sf.run(sf.load_spec(SPEC), out="run", baseline=True)
    figure = run.plot()
    assert isinstance(figure, go.Figure)
    lines = {trace.name for trace in figure.data if trace.name}
    assert any("run-without-noise" in name for name in lines)
    assert any("cloud" in name for name in lines)
    shown = run.privacy.plot()
    assert isinstance(shown, go.Figure)
    assert shown.data[0].x[0] == max(row.epsilon for row in run.privacy.guarantees)


def test_a_device_that_torch_does_not_know_is_refused() -> None:
    with pytest.raises(SpecError, match="device: got 'gpu'; must be auto, cpu or cuda"):
        sf.run(sf.load_spec(SPEC), out="run", device="gpu")
    assert not Path("run").exists()
