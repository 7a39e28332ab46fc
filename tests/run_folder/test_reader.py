"""What a run folder holds, how it survives a kill, and what a reader is told when it is damaged."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from sfumato.durable_files import hash_file
from sfumato.errors import MissingExtraError, RunError, SpecError
from sfumato.run_folder.manifest import FileRecord, Manifest, read_manifest, write_manifest
from sfumato.run_folder.metrics_table import METRIC_COLUMNS, write_metrics
from sfumato.run_folder.reader import (
    MODEL_FILE,
    add_hashes,
    archive_hashes,
    load_run,
    no_run_error,
    read_ledger,
    write_ledger,
    write_privacy,
    write_spec,
)
from sfumato.schedule.resolve import resolve
from sfumato.spec import load_spec
from sfumato.spec.frozen import FrozenSpec

HASHES = {"spec": "5" * 64, "data.source": "d" * 64}
SPEC = {
    "name": "tiny", "protocol": "h2fdp", "topology": {"kind": "star", "devices": 3},
    "training": {"rounds": 2}, "hashes": HASHES,
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
    write_metrics(tmp_path, [frame()], HASHES)
    write_privacy(tmp_path, PRIVACY, HASHES)
    write_ledger(tmp_path, {"atoms": [{"variance": math.inf}]}, HASHES)
    model = io.BytesIO()
    torch.save({"weight": torch.ones(3)}, model)
    add_hashes(model, HASHES)
    (tmp_path / MODEL_FILE).write_bytes(model.getvalue())
    listed(tmp_path)
    return tmp_path


def listed(folder: Path, *, finished: bool = True, spec: str = HASHES["spec"]) -> None:
    """Write a manifest of what is there."""
    files = {path.name: FileRecord(*hash_file(path)) for path in folder.glob("[a-z]*.*")}
    files.pop("manifest.json", None)
    write_manifest(folder, Manifest(spec, finished, files))


def test_what_is_written_is_read(folder: Path) -> None:
    run = load_run(folder)
    assert (run.name, run.rounds, run.finished) == ("tiny", 2, True)
    assert run.spec_dict == SPEC
    assert yaml.safe_load(run.spec_text) == SPEC
    assert run.observers == ("cloud", "edge:3")
    pd.testing.assert_frame_equal(run.metrics, frame())
    assert run.privacy.guarantees[0].epsilon == math.inf
    assert read_ledger(folder) == {"atoms": [{"variance": "inf"}], "hashes": HASHES}
    assert torch.load(folder / MODEL_FILE, weights_only=True)["weight"].tolist() == [1, 1, 1]
    assert load_run(str(folder)).path == folder


def test_json_is_standard_and_keeps_every_digit(folder: Path) -> None:
    value = 0.1 + 0.2
    write_ledger(folder, {"v": value, "nested": [{"x": (1, -math.inf)}]}, {})
    text = (folder / "ledger.json").read_text()
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name)) == {
        "v": value,
        "nested": [{"x": [1, "-inf"]}],
        "hashes": {},
    }


def test_not_a_number_is_refused(folder: Path) -> None:
    before = (folder / "privacy.json").read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_privacy(folder, {"guarantees": [{"epsilon": math.nan}]}, HASHES)
    assert (folder / "privacy.json").read_bytes() == before


def test_a_run_is_finished_when_the_manifest_says_so(folder: Path) -> None:
    listed(folder, finished=False)
    assert not load_run(folder).finished


def test_metrics_need_every_column(folder: Path) -> None:
    with pytest.raises(RunError, match="metrics lack loss"):
        write_metrics(folder, [frame().drop(columns="loss")], HASHES)


def test_metrics_are_written_part_by_part(tmp_path: Path) -> None:
    whole = pd.concat([frame(3), frame(2)], ignore_index=True)
    write_metrics(tmp_path, [frame(3), frame(2)], HASHES)
    file = pq.ParquetFile(tmp_path / "metrics.parquet")
    assert file.num_row_groups == 2
    assert json.loads(file.schema_arrow.metadata[b"sfumato"]) == HASHES
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "metrics.parquet"), whole)


@pytest.mark.parametrize("damage", ["emptied", "cut", "flipped", "longer", "gone", "a folder"])
@pytest.mark.parametrize("file", ["spec.yaml", "metrics.parquet", "privacy.json", "ledger.json", "model.pt"])
def test_what_is_not_as_it_was_written_is_refused(file: str, damage: str, folder: Path) -> None:
    path = folder / file
    whole = path.read_bytes()
    path.unlink()
    middle = len(whole) // 2
    match damage:
        case "emptied":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(whole[:-1])
        case "flipped":
            path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :])
        case "longer":
            path.write_bytes(whole + b"\n")
        case "a folder":
            path.mkdir()
    said = {"gone": "is missing", "a folder": "cannot be read: Is a directory"}.get(damage, "has SHA-256 ")
    with pytest.raises(RunError, match=rf"{file}: {said}.*resume=True") as caught:
        load_run(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["metrics.parquet", "privacy.json", "ledger.json", "model.pt", "spec.yaml"])
def test_a_file_of_another_run_is_refused_even_if_it_is_listed(file: str, folder: Path) -> None:
    other = HASHES | {"spec": "6" * 64}
    match file:
        case "metrics.parquet":
            write_metrics(folder, [frame()], other)
        case "privacy.json":
            write_privacy(folder, PRIVACY, other)
        case "ledger.json":
            write_ledger(folder, {}, other)
        case "spec.yaml":
            write_spec(folder, yaml.safe_dump(SPEC | {"hashes": other}))
        case "model.pt":
            model = io.BytesIO()
            add_hashes(model, other)
            (folder / file).write_bytes(model.getvalue())
    listed(folder)
    with pytest.raises(
        RunError, match=rf"{file}: belongs to another run: .* is 666666666666, that of the folder's spec 5555"
    ):
        load_run(folder)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"sha256": "x"}', b"\xff", None])
def test_a_manifest_that_is_damaged_or_missing_is_said(content: bytes | None, folder: Path) -> None:
    path = folder / "manifest.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RunError, match=r"manifest\.json: is (damaged|missing).*resume=True"):
        load_run(folder)


def test_every_flipped_bit_of_a_manifest_is_noticed(folder: Path) -> None:
    whole = (folder / "manifest.json").read_bytes()
    before, harmless = read_manifest(folder), 0
    for place in range(0, len(whole), 3):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        (folder / "manifest.json").write_bytes(flipped)
        try:
            assert read_manifest(folder) == before  # a blank for another
            harmless += 1
        except RunError:
            continue
    assert harmless < len(whole) / 10


def test_an_archive_without_hashes_is_no_model_of_ours(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "model.pt")
    with pytest.raises(RunError, match=r"model\.pt: is damaged, or not a model of this version"):
        archive_hashes(tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("file", "content", "error", "message"),
    [
        ("spec.yaml", "a: [", SpecError, r"spec\.yaml, line 2, column 1: is not valid YAML"),
        ("spec.yaml", "- 1", SpecError, "must hold a mapping"),
        ("spec.yaml", "name: x", SpecError, "spec.yaml: protocol: is missing"),
        (
            "spec.yaml",
            "{name: x, protocol: hfl, topology: {}, training: {rounds: many}}",
            SpecError,
            "training.rounds: got 'many'; must be a whole number",
        ),
        ("spec.yaml", b"\xff\xfe\x00", RunError, r"spec\.yaml: must be text in UTF-8"),
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
    """Even where the manifest vouches for it: whoever wrote it, made a mistake."""
    (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
    listed(folder)
    with pytest.raises(error, match=message) as caught:
        load_run(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("observer", "kind"),
    [("cloud", "peer"), ("edge:0", "cloud"), ("public", "other-edge"), ("edge:0", "own edge")],
)
def test_a_row_whose_kind_is_not_that_of_its_observer_is_refused(folder, observer: str, kind: str) -> None:
    """Else a figure towards the cloud could stand under another name."""
    row = PRIVACY["guarantees"][0] | {"observer": observer, "observer_kind": kind}
    write_privacy(folder, PRIVACY | {"guarantees": [row]}, HASHES)
    listed(folder)
    with pytest.raises(RunError, match=r"privacy\.json: cannot be read: .*observer_kind"):
        load_run(folder)


def test_metrics_of_something_else_are_refused(folder: Path) -> None:
    pd.DataFrame({"round": [1]}).to_parquet(folder / "metrics.parquet")
    listed(folder)
    with pytest.raises(RunError, match="lacks the columns accuracy, loss"):
        load_run(folder)


def test_no_folder_and_no_run(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such run folder"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(SpecError, match=r"is not a run folder: it has no spec\.yaml"):
        load_run(tmp_path)


@pytest.mark.needs("tensorboard")
def test_tensorboard_gets_every_measured_scalar(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from sfumato.simulation.tensorboard import write_scalars

    metrics = frame(3).assign(accuracy=[0.25, np.nan, 0.75], bytes_up=[1, 2, 3])
    for _ in range(2):  # writing again replaces
        assert write_scalars(metrics, tmp_path / "events") == tmp_path / "events"
    events = EventAccumulator(str(tmp_path / "events")).Reload()
    assert set(events.Tags()["scalars"]) == {"accuracy", "bytes_up", "epsilon/cloud", "epsilon/edge:3"}
    assert [(e.step, e.value) for e in events.Scalars("accuracy")] == [(0, 0.25), (2, 0.75)]
    assert [e.value for e in events.Scalars("epsilon/cloud")] == [math.inf] * 3


def test_tensorboard_missing_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sfumato.simulation.tensorboard import write_scalars

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'sfumato\[tensorboard\]'"):
        write_scalars(frame(), tmp_path)


def test_a_spec_that_was_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    """Its hashes come first: what is left still says what it should hold."""
    spec = resolve(load_spec("quickstart", ["watch=[cloud]"])).spec
    text = FrozenSpec.of(spec, {"data.source": "d" * 64}, {"torch": "2"}).text
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    assert load_spec(path).watch == ("cloud",)
    for length in range(0, len(text) - 2, 29):
        path.write_text(text[:length])
        with pytest.raises(SpecError, match=r"spec\.yaml|spec: "):
            load_spec(path)


def test_the_run_that_was_meant_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "patients").mkdir(parents=True)
    (tmp_path / "runs" / "patients" / "spec.yaml").write_text("name: patients\n", "utf-8")
    (tmp_path / "patients.yaml").write_text("name: patients\n", "utf-8")
    said = {
        name: str(no_run_error(Path(name))) for name in ("patients.yaml", "runs", "runs/patient", "other")
    }
    assert said == {
        "patients.yaml": "patients.yaml: is a file and no run folder (did you mean 'runs/patients'?)",
        "runs": "runs: is not a run folder: it has no spec.yaml; runs in it: patients",
        "runs/patient": "runs/patient: no such run folder (did you mean 'runs/patients'?)",
        "other": "other: no such run folder",
    }
