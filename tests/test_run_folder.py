"""What a run folder holds, how it survives a kill, and what a reader is told when it is damaged."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from sfumato.errors import MissingExtraError, RunError, SpecError
from sfumato.run_folder import (
    METRIC_COLUMNS,
    MODEL_FILE,
    as_epsilon,
    load_run,
    read_ledger,
    replacing,
    write_ledger,
    write_metrics,
    write_privacy,
    write_spec,
)

SPEC = {
    "name": "tiny", "protocol": "h2fdp", "topology": {"kind": "star", "devices": 3},
    "training": {"rounds": 2},
}  # fmt: skip
PRIVACY = {
    "spec": "tiny", "delta": 1e-5, "claims": [],
    "guarantees": [{"unit": "device:0", "observer": "cloud", "stands_for": 3, "epsilon": math.inf}],
}  # fmt: skip


def frame(rounds: int = 2) -> pd.DataFrame:
    values = {name: np.full(rounds, np.nan) for name in METRIC_COLUMNS}
    return pd.DataFrame(values | {"round": np.arange(rounds), "epsilon:cloud": np.inf, "epsilon:edge:3": 1.5})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_spec(tmp_path, yaml.safe_dump(SPEC))
    write_metrics(tmp_path, frame())
    write_privacy(tmp_path, PRIVACY)
    write_ledger(tmp_path, {"atoms": [{"variance": math.inf}]})
    (tmp_path / MODEL_FILE).write_bytes(b"weights")
    return tmp_path


def test_what_is_written_is_read(folder: Path) -> None:
    run = load_run(folder)
    assert (run.name, run.rounds, run.finished) == ("tiny", 2, True)
    assert run.spec_dict == SPEC
    assert yaml.safe_load(run.spec_text) == SPEC
    assert run.observers == ("cloud", "edge:3")
    pd.testing.assert_frame_equal(run.metrics, frame())
    assert run.privacy["guarantees"][0]["epsilon"] == "inf"
    assert as_epsilon(run.privacy["guarantees"][0]["epsilon"]) == math.inf
    assert read_ledger(folder) == {"atoms": [{"variance": "inf"}]}
    assert load_run(str(folder)).path == folder


def test_json_is_standard_and_keeps_every_digit(folder: Path) -> None:
    value = 0.1 + 0.2
    write_ledger(folder, {"v": value, "nested": [{"x": (1, -math.inf)}]})
    text = (folder / "ledger.json").read_text()
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name)) == {
        "v": value,
        "nested": [{"x": [1, "-inf"]}],
    }


def test_not_a_number_is_refused(folder: Path) -> None:
    before = (folder / "privacy.json").read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_privacy(folder, {"guarantees": [{"epsilon": math.nan}]})
    assert (folder / "privacy.json").read_bytes() == before


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_run_with_rounds_to_go_is_not_finished(folder: Path, rounds: int) -> None:
    write_metrics(folder, frame(rounds))
    assert not load_run(folder).finished


def test_a_run_without_its_model_is_not_finished(folder: Path) -> None:
    (folder / MODEL_FILE).unlink()
    assert not load_run(folder).finished


def test_replacing_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    with replacing(path) as temporary:
        temporary.write_text("old")
        assert not path.exists()

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]


def test_a_killed_writer_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    script = f"""
import os
from pathlib import Path
from sfumato.run_folder import replacing
with replacing(Path({str(path)!r})) as temporary:
    temporary.write_text("half of the n")
    os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert path.read_text() == "old"


def test_metrics_need_every_column(folder: Path) -> None:
    with pytest.raises(RunError, match="metrics lack loss"):
        write_metrics(folder, frame().drop(columns="loss"))


@pytest.mark.parametrize(
    ("file", "content", "error", "message"),
    [
        ("spec.yaml", "a: [", SpecError, "spec.yaml: is not YAML"),
        ("spec.yaml", "- 1", SpecError, "must hold a mapping"),
        ("spec.yaml", "name: x", SpecError, "spec.yaml: protocol: is missing"),
        (
            "spec.yaml",
            "{name: x, protocol: hfl, topology: {}, training: {rounds: many}}",
            SpecError,
            "training.rounds: got 'many'; must be a whole number",
        ),
        ("spec.yaml", b"\xff\xfe\x00", RunError, "spec.yaml: cannot be read"),
        ("metrics.parquet", "no parquet", RunError, "metrics.parquet: cannot be read"),
        ("privacy.json", "{", RunError, "privacy.json: is not JSON"),
        ("privacy.json", "[]", RunError, "must hold a JSON object"),
        ("privacy.json", "{}", RunError, "guarantees must be a list"),
        (
            "privacy.json",
            '{"guarantees": [{"unit": "a"}], "claims": []}',
            RunError,
            "lacks observer, stands_for",
        ),
        ("privacy.json", '{"guarantees": [3], "claims": []}', RunError, r"guarantees\[0\] lacks unit"),
        ("privacy.json", '{"guarantees": [], "claims": [{}]}', RunError, r"claims\[0\] lacks source"),
        (
            "privacy.json",
            '{"guarantees": [{"unit": "a", "observer": "b", "stands_for": 1, "epsilon": "x"}], "claims": []}',
            RunError,
            r'guarantees\[0\].epsilon must be a number or "inf"',
        ),
    ],
)
def test_a_damaged_file_is_named(
    folder: Path, file: str, content: str | bytes, error: type[Exception], message: str
) -> None:
    (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(error, match=message) as caught:
        load_run(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["metrics.parquet", "privacy.json"])
def test_a_file_not_yet_written_is_named(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(RunError, match=f"{file}: missing"):
        load_run(folder)


def test_metrics_of_something_else_are_refused(folder: Path) -> None:
    pd.DataFrame({"round": [1]}).to_parquet(folder / "metrics.parquet")
    with pytest.raises(RunError, match="lacks the columns accuracy, loss"):
        load_run(folder)


def test_no_folder_and_no_run(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such run folder"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(SpecError, match=r"is not a run folder: it has no spec\.yaml"):
        load_run(tmp_path)


def test_tensorboard_gets_every_measured_scalar(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from sfumato.tensorboard import write_scalars

    metrics = frame(3).assign(accuracy=[0.25, np.nan, 0.75], bytes_up=[1, 2, 3])
    for _ in range(2):  # writing again replaces
        assert write_scalars(metrics, tmp_path / "events") == tmp_path / "events"
    events = EventAccumulator(str(tmp_path / "events")).Reload()
    assert set(events.Tags()["scalars"]) == {"accuracy", "bytes_up", "epsilon/cloud", "epsilon/edge:3"}
    assert [(e.step, e.value) for e in events.Scalars("accuracy")] == [(0, 0.25), (2, 0.75)]
    assert [e.value for e in events.Scalars("epsilon/cloud")] == [math.inf] * 3


def test_tensorboard_missing_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sfumato.tensorboard import write_scalars

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'sfumato\[tensorboard\]'"):
        write_scalars(frame(), tmp_path)
