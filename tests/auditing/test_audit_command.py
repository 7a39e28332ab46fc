import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import sfumato
from sfumato.cli import main
from sfumato.errors import SpecError
from sfumato.mechanisms.gaussian import add_gaussian_

QUICK = ["quickstart", "--trials", "1000", "--set", "training.rounds=3"]


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_prints_every_default_observer_in_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *QUICK]) == 0
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines()), out
    assert [word in out for word in ("cloud", "edge:", "device:", "holds", "1e-06")] == [True] * 5
    assert "FAILS" not in out


def test_json_is_printed_and_written_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "audit.json"
    arguments = ["audit", *QUICK, "--observer", "cloud", "--observer", "public,device:1", "--json"]
    assert main([*arguments, "--out", str(file)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads(file.read_text(encoding="utf-8")) == printed
    assert printed["holds"] is True
    assert [row["observer"] for row in printed["findings"]] == ["cloud", "public,device:1"]
    row = printed["findings"][0]
    assert 0 < row["lower"] <= row["upper"]
    assert row["lower"] == max(row["lower_by_counting"], row["lower_by_curve"])
    assert row["one_run"]["canaries"] == 40


def test_a_refuted_guarantee_ends_with_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def silenced(rows: torch.Tensor, stds: np.ndarray, key_of: Callable[[int], bytes]) -> None:
        add_gaussian_(rows, stds / 3, key_of)

    monkeypatch.setattr("sfumato.mechanisms.gaussian.add_gaussian_", silenced)
    arguments = ["audit", "quickstart", "--trials", "2000", "--set", "privacy.noise.for=edge"]
    assert main([*arguments, "--set", "trust={}", "--observer", "edge", "--observer", "public"]) == 1
    out = capsys.readouterr().out
    assert "FAILS" in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--observer", "edge:9"], "--observer"),
        (["--observer", "nobody"], "--observer"),
        (["--trials", "5"], "--trials"),
        (["--set", "training.rounds=0"], "training.rounds"),
    ],
)
def test_a_wrong_call_ends_with_status_2(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "quickstart", *arguments]) == 2
    captured = capsys.readouterr()
    assert named in captured.err
    assert "Traceback" not in captured.err


def test_a_coalition_of_everybody_leaves_nobody_to_attack() -> None:
    spec = sfumato.load_spec("quickstart", ["topology.edges=1", "topology.devices_per_edge=2"])
    with pytest.raises(SpecError, match="observer"):
        sfumato.audit(spec, observers=["device:0,device:1"])


def test_what_follows_the_training_is_refused() -> None:
    control = (
        "control={energy: 1.0e-3, delay: 1.0e-3, gap: 1.0, gap_scale: 1.0e+3, max_steps: 40, smoothness: 0.1}"
    )
    with pytest.raises(SpecError, match="control"):
        sfumato.audit(sfumato.load_spec("h2fdp-fmnist", [control]))


def test_messages_over_the_air_need_a_model_of_known_size() -> None:
    spec = sfumato.load_spec("dp-fedavg", ["transport.devices_to_cloud=air", "radio.preset=pfels"])
    assert sfumato.audit(spec, observers=["cloud"], trials=100, progress=False).holds


@pytest.mark.parametrize("inside", ["audit.json", "attacks/mine.json", "attacks/audit.json"])
def test_a_file_that_no_report_finds_is_refused_before_the_audit(
    inside: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("spec.yaml", "manifest.json"):
        (run / name).write_text("{}")
    assert main(["audit", *QUICK, "--out", str(run / inside)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("sfumato: --out: got ")
    assert f"is in a run folder, where no report finds it: sfumato audit {run} keeps" in said
    assert not (run / inside).exists()


def test_a_spec_beside_the_file_makes_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("{}")
    assert main(["audit", *QUICK, "--observer", "cloud", "--out", str(tmp_path / "audit.json")]) == 0
