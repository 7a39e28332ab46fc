"""The twin without noise: the same seed, data, schedule and clip, and no noise of devices or receivers."""

from __future__ import annotations

from html import unescape
from pathlib import Path
from typing import Any

import pytest

import sfumato as sf
from sfumato.cli import main
from sfumato.errors import SpecError
from sfumato.run_folder.beside import baseline_folder
from sfumato.spec.without_noise import twin_without_noise

TRAINING = {"rounds": 2, "local_steps": 1, "batch_size": 5, "learning_rate": 0.1}
STAR: dict[str, Any] = {
    "name": "star",
    "protocol": "dp-fedavg",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {"kind": "star", "devices": 6},
    "training": TRAINING | {"participation": {"kind": "fixed", "count": 3}},
    "privacy": {"clip": {"kind": "update", "norm": 0.01}, "noise": {"multiplier": 1.0}},
}
PFELS = STAR | {
    "protocol": "pfels",
    "compression": {"kind": "rand-k", "ratio": 0.3},
    "privacy": STAR["privacy"] | {"delta": 1e-3, "noise": {"formula": "pfels", "epsilon": 1.5}},
}
AIR = STAR | {
    "protocol": "h2fdp",
    "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3},
    "training": TRAINING,
    "transport": {"devices_to_edge": "air"},
}


@pytest.mark.parametrize("document", [STAR, PFELS, AIR], ids=["star", "pfels", "air"])
def test_a_twin_has_no_noise_of_anybody(document: dict[str, Any]) -> None:
    spec = sf.load_spec(document)
    twin = twin_without_noise(spec)
    assert twin.privacy.noise.kind == "none"
    assert not twin.sends_over_the_air
    assert (twin.seed, twin.data, twin.training, twin.model, twin.compression) == (
        spec.seed, spec.data, spec.training, spec.model, spec.compression,
    )  # fmt: skip
    assert twin.privacy.clip == spec.privacy.clip


@pytest.mark.parametrize("document", [STAR, PFELS], ids=["star", "pfels"])
def test_a_run_has_its_twin_beside_it(document: dict[str, Any], tmp_path: Path) -> None:
    rounds: list[int] = []
    spec = sf.load_spec(document)
    run = sf.run(spec, out=tmp_path / "run", baseline=True, on_round=lambda done: rounds.append(done.round))
    assert rounds == [1, 2]  # of the run, not of its twin
    assert run.baseline is not None
    assert run.baseline.path == baseline_folder(tmp_path / "run")
    by_hand = sf.run(twin_without_noise(spec), out=tmp_path / "by-hand")
    assert run.baseline.metrics.drop(columns="wall_time_s").equals(
        by_hand.metrics.drop(columns="wall_time_s")
    )
    assert run.metrics["bytes_up"].equals(run.baseline.metrics["bytes_up"]) or document is PFELS
    page = unescape((tmp_path / "run" / "report.html").read_text("utf-8"))
    assert "run-without-noise, which has no noise" in page


def test_a_twin_that_is_there_is_refused_before_training(tmp_path: Path) -> None:
    spec = sf.load_spec(STAR)
    sf.run(twin_without_noise(spec), out=tmp_path / "run-without-noise")
    with pytest.raises(SpecError, match=r"holds a run already.*, and \S+/run-without-noise-2 is free"):
        sf.run(spec, out=tmp_path / "run", baseline=True)
    assert not (tmp_path / "run").exists()
    with pytest.raises(SpecError, match="holds a run of one seed; give another folder, or leave seeds out"):
        sf.run(spec, out=tmp_path / "run-without-noise", seeds=2, resume=True)


def test_where_there_is_no_twin() -> None:
    silent = sf.load_spec(STAR, ["privacy.noise=none"])
    with pytest.raises(SpecError, match="baseline: must be left out: this spec adds no noise"):
        twin_without_noise(silent)
    control = STAR | {
        "protocol": "h2fdp",
        "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3},
        "training": {"rounds": 10, "local_steps": 20, "edge_every": 5, "batch_size": 4, "learning_rate": 0.1},
        "privacy": {"clip": {"kind": "step", "norm": 1.0}, "noise": {"formula": "h2fdp", "epsilon": 1.0}},
        "control": {"smoothness": 0.1},
    }
    with pytest.raises(SpecError, match="baseline: does not go with control"):
        twin_without_noise(sf.load_spec(control))


def test_the_command_makes_twins_of_all_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("star.yaml").write_text(sf.dump_spec(sf.load_spec(STAR)), "utf-8")
    assert main(["run", "star.yaml", "--seeds", "2", "--baseline"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "ost of the noise is seen" in said or "The noise costs" in said
    assert "runs/star-without-noise has no guarantee" in said
    assert sorted(path.name for path in Path("runs/star-without-noise").iterdir()) == ["seed-0", "seed-1"]
    assert Path("runs/star/report.html").exists()
    assert main(["run", "star.yaml", "--seeds", "2", "--baseline"]) == 2
    assert main(["run", "star.yaml", "--seeds", "2", "--baseline", "--resume"]) == 0
