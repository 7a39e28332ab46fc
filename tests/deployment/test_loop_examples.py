"""`examples/own-loop`: every loop trains a device, and every spec says the ε of what an app does already."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from deployed_parties import NO_BATCHES, staged
from places import ROOT
from torch.nn.functional import cross_entropy

import sfumato as sf
from sfumato.deployment.local_parties import rows_of
from sfumato.deployment.loop_code import LoopCode
from sfumato.deployment.messages import RoundPosition
from sfumato.deployment.own_loop import OwnLoop
from sfumato.learning.parameters import ParameterLayout
from sfumato.rounding import upper_bound

FOLDER = ROOT / "examples" / "own-loop"
PAGE = ROOT / "docs" / "own-loop.md"


@pytest.mark.filterwarnings("ignore")  # of the packages whose apps these are
@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "flower",
        pytest.param("opacus", marks=pytest.mark.needs("opacus")),
        pytest.param("pfl", marks=pytest.mark.needs("pfl")),
    ],
)
def test_a_loop_trains_a_device(name: str, tmp_path: Path) -> None:
    """The clipped update lowers the loss on the rows of the device."""
    code = LoopCode.read(f"{name}_loop.py:train", FOLDER, "loop")
    with staged(yaml.safe_load((FOLDER / "spec.yaml").read_text()), tmp_path) as stage:
        stage.loop = OwnLoop.of(code)
        model, data = stage.inputs.model, rows_of(stage.inputs.data, stage.inputs.partition, 0)
        layout = ParameterLayout.of(model)
        features, labels = torch.from_numpy(data.train_features), torch.from_numpy(data.train_labels)
        before, start = float(cross_entropy(model(features), labels)), layout.read(model)
        sent = stage.data(0).message(RoundPosition(0, 0), start.numpy(), NO_BATCHES)
        layout.write(start + torch.from_numpy(sent), model)
        assert stage.told == []
        assert 0.1 < np.linalg.norm(sent.astype(float)) <= 1.0
        assert float(cross_entropy(model(features), labels)) < before - 0.01


@pytest.mark.parametrize(
    ("name", "unit"), [("flower-server", "device:0"), ("opacus", "record:0"), ("pfl", "device:0")]
)
def test_the_page_says_what_the_accountant_does(name: str, unit: str) -> None:
    report = sf.account(sf.load_spec(FOLDER / f"{name}.yaml"))
    rows = {row.observer: row.epsilon for row in report.guarantees if row.unit == unit}
    epsilons = [f"ε = {upper_bound(rows['public'])}"]
    if name != "opacus":
        assert rows["cloud"] == math.inf
    (line,) = [line for line in PAGE.read_text("utf-8").splitlines() if f"`{name}.yaml`" in line]
    assert all(epsilon in line for epsilon in epsilons)
