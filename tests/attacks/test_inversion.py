"""Reconstruction end to end: exact where nothing hides an image, no better than a guess where noise does."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from places import ROOT
from view_worlds import WORLDS, spec_of, zones

import sfumato as sf
from sfumato.attacks import inversion_problem
from sfumato.attacks.image_metrics import compare_with_baseline, ssim
from sfumato.attacks.inversion import attack_by_inversion
from sfumato.cli import main
from sfumato.cli.attack_table import print_attack
from sfumato.errors import SpecError
from sfumato.simulation import run as simulate

EXAMPLES = ROOT / "examples" / "attacks"
ONE_IMAGE = {"rounds": 1, "local_steps": 1, "batch_size": 1, "learning_rate": 1.0}
SECURE = {"devices_to_edge": "secure-aggregation"}


pytestmark = pytest.mark.usefixtures("no_report")


@pytest.fixture
def few_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sixth of the iterations of gradient matching; test_gradient_matching checks that it converges."""
    monkeypatch.setattr(inversion_problem, "_LBFGS_ITERATIONS", 25)
    monkeypatch.setattr(inversion_problem.InversionProblem, "iterations", 100)


def played(folder: Path, *observers: str, noise: Any = "none", **sections: Any) -> Path:
    defaults = {"training": ONE_IMAGE, "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 4}}
    spec = zones(privacy={"clip": {"kind": "update", "norm": 1.0}, "noise": noise}, **(defaults | sections))
    simulate.run(spec, out=folder, device="cpu", record_views=observers)
    return folder


@pytest.mark.usefixtures("few_iterations")
def test_an_edge_reads_what_nothing_hides(tmp_path: Path) -> None:
    run = played(tmp_path, "edge:0")
    told: list[tuple[int, int]] = []
    found = attack_by_inversion(run, "edge:0", lambda done, total: told.append((done, total)))
    assert told == [(done, 4) for done in range(5)]
    assert len(found["images"]) == 4
    assert all(image["scores"]["ssim"] > 0.9 for image in found["images"])
    best = found["results"][0]
    assert best["attack"] == "best explanation"
    assert best["label_accuracy"] == 1.0
    assert {row["attack"] for row in found["results"][1:]} == {"closed form", "cosine", "DLG", "iDLG"}
    assert found["guess"]["ssim"] < 0.8
    assert found["beside_guess"]["p_better"] == pytest.approx(1 / 16)
    written = json.loads((run / "attacks" / "inversion-edge-0.json").read_text(encoding="utf-8"))
    assert written == found
    with np.load(run / "attacks" / "inversion-edge-0.npz") as pictures:
        assert set(pictures) == {"originals", "reconstructions", "guesses"}
        shown = {name: torch.from_numpy(pictures[name]) for name in pictures}
    assert all(part.shape == (4, 1, 8, 8) and part.min() >= 0 and part.max() <= 1 for part in shown.values())
    scores = ssim(shown["reconstructions"], shown["originals"])
    np.testing.assert_allclose(scores, [image["scores"]["ssim"] for image in found["images"]], atol=1e-4)
    again = sf.attack(run, observer="edge:0", kind="inversion")
    assert [image["scores"] for image in again["images"]] == [image["scores"] for image in found["images"]]


@pytest.mark.usefixtures("few_iterations")
def test_noise_leaves_no_more_than_a_guess(tmp_path: Path) -> None:
    """Multiplier 0.6 on every message: better than the class mean would be p < 1e-3."""
    run = played(
        tmp_path,
        "edge:0",
        noise={"multiplier": 0.6, "placement": {"device": 1.0}},
        topology={"kind": "tree", "edges": 2, "devices_per_edge": 8},
    )
    found = sf.attack(run, observer="edge:0", kind="inversion")
    assert len(found["images"]) == 8
    beside = found["beside_guess"]
    assert beside["attack"] < beside["guess"]
    assert beside["p_better"] > 1e-3


@pytest.mark.usefixtures("few_iterations")
def test_a_sum_of_the_softmax_model_leaks_in_closed_form(tmp_path: Path) -> None:
    """The warning: secure aggregation alone does not hide images of classes that occur once."""
    run = played(tmp_path, "edge:0", transport=SECURE)
    found = sf.attack(run, observer="edge:0", kind="inversion")
    by_attack = {row["attack"]: row for row in found["results"]}
    assert found["targets"] == ["sum received by edge:0, round 1"]
    assert by_attack["closed form"]["scores"]["ssim"] > found["guess"]["ssim"] + 0.2
    assert by_attack["closed form"]["label_accuracy"] == 1.0


def test_a_client_attacks_the_others_and_not_itself(tmp_path: Path) -> None:
    run = played(tmp_path, "device:0", topology={"kind": "tree", "edges": 1, "devices_per_edge": 2})
    found = sf.attack(run, observer="device:0", kind="inversion")
    assert len(found["images"]) == 1
    assert found["images"][0]["scores"]["ssim"] > 0.9


@pytest.mark.usefixtures("few_iterations")
def test_more_images_than_are_solved_for_are_scored_by_the_closest(tmp_path: Path) -> None:
    run = played(
        tmp_path, "edge:0", topology={"kind": "tree", "edges": 1, "devices_per_edge": 80}, transport=SECURE
    )
    found = sf.attack(run, observer="edge:0", kind="inversion")
    assert len(found["images"]) == 64
    assert any("64 are reconstructed" in note for note in found["notes"])


def test_what_cannot_be_attacked_is_said(tmp_path: Path) -> None:
    run = played(tmp_path / "seed-3", "edge:0")
    with pytest.raises(SpecError, match=r"no spec\.yaml.*attack one seed of it: .*seed-3"):
        sf.attack(tmp_path, observer="edge:0", kind="inversion")
    with pytest.raises(SpecError, match="recorded: edge:0"):
        sf.attack(run, observer="cloud", kind="inversion")
    with pytest.raises(SpecError, match="inversion, membership, property"):
        sf.attack(run, observer="edge:0", kind="guess")  # type: ignore[arg-type]
    simulate.run(WORLDS["groups"], out=tmp_path / "groups", device="cpu", record_views=("master:0",))
    with pytest.raises(SpecError, match=r"dp-ogl.*tree or a star"):
        sf.attack(tmp_path / "groups", observer="master:0", kind="inversion")
    for number, more in enumerate(({"optimizer": "adam"}, {"weight_decay": 0.1})):
        run = played(tmp_path / f"other-{number}", "edge:0", training=ONE_IMAGE | more)
        with pytest.raises(SpecError, match="plays plain local steps"):
            sf.attack(run, observer="edge:0", kind="inversion")
    synthetic = {"source": "synthetic", "examples_per_device": 6}
    flat = spec_of(data=synthetic)
    simulate.run(flat, out=tmp_path / "flat", device="cpu", record_views=("edge:0",))
    with pytest.raises(SpecError, match="needs images"):
        sf.attack(tmp_path / "flat", observer="edge:0", kind="inversion")


@pytest.mark.usefixtures("few_iterations")
def test_the_command_prints_a_table_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run = played(tmp_path, "edge:0", topology={"kind": "tree", "edges": 2, "devices_per_edge": 2})
    call = ["attack", str(run), "--observer", "edge:0", "--kind"]
    assert main([*call, "inversion"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.replace(str(run), "").splitlines())) <= 80
    for words in ("best explanation", "baseline: class mean", "SSIM", "PSNR dB", "labels", "sfumato report"):
        assert words in printed
    assert main([*call, "inversion", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "inversion"
    found["results"][0]["scores"]["psnr"] = "inf"
    print_attack(found, str)
    assert "∞" in capsys.readouterr().out
    assert main(["attack", str(run), "--observer", "edge:1", "--kind", "inversion"]) == 2
    assert "run it with --record-views edge:1" in " ".join(capsys.readouterr().err.split())
    assert main([*call, "guess"]) == 2


@pytest.fixture
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / "reconstruction.py"))


@pytest.mark.slow
@pytest.mark.needs("fashion-mnist")
class TestFashion:
    """On Fashion-MNIST, with the settings of examples/attacks/reconstruction.py."""

    def found(self, example: dict[str, Any], name: str, folder: Path) -> dict[str, Any]:
        found: dict[str, Any] = example["inverted"](folder, name, 0)
        return found

    def test_an_edge_without_noise_sees_the_image(self, example: dict[str, Any], tmp_path: Path) -> None:
        found = self.found(example, "each message, one image", tmp_path)
        assert found["results"][0]["scores"]["ssim"] > 0.9

    def test_behind_a_sum_of_ten_there_is_little_more_than_a_guess(
        self, example: dict[str, Any], tmp_path: Path
    ) -> None:
        found = self.found(example, "sum of 10, 5 steps of 5 images", tmp_path)
        assert found["results"][0]["scores"]["ssim"] <= found["guess"]["ssim"] + 0.05

    def test_the_softmax_model_is_the_warning(self, example: dict[str, Any], tmp_path: Path) -> None:
        found = self.found(example, "sum of 10, one image each, softmax model", tmp_path)
        assert found["results"][0]["scores"]["ssim"] > found["guess"]["ssim"] + 0.05

    def test_behind_noise_there_is_no_more_than_a_guess(
        self, example: dict[str, Any], tmp_path: Path
    ) -> None:
        found = self.found(example, "each message, one image, multiplier 0.6", tmp_path)
        scores, guesses = (
            np.array([image[who]["ssim"] for image in found["images"]]) for who in ("scores", "guess")
        )
        assert compare_with_baseline(scores, guesses).p_better > 1e-3
        assert scores.mean() < guesses.mean() + 0.05
