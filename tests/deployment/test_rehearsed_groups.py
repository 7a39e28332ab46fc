"""Overlapping groups whose parties are real train the models that `run` trains on the same grid, to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rehearsals import GROUPS, model_bytes, on_the_grid, rehearsed, spec_of

from sfumato.run_folder.reader import GROUPS_FILE, RunFolder
from sfumato.simulation.run import run

pytestmark = pytest.mark.usefixtures("no_report")

GLOBAL = {"topology": {"kind": "groups", "structure": "global", "devices": 3}, "trust": {}}
THREE = {"kind": "groups", "structure": "list", "groups": [[0, 1, 2], [0, 1, 3], [0, 2, 3]]}
LOCAL = {"protocol": "dp-ogl-local", "training": GROUPS["training"] | {"rounds": 5}}
ADAM = {"training": GROUPS["training"] | {"server": {"optimizer": "adam", "learning_rate": 0.01}}}
QUIET = {"privacy": GROUPS["privacy"] | {"noise": "none"}}


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({}, id="ring, one master trusted"),
        pytest.param({"trust": {"trusted_aggregators": [0, 1, 2]}}, id="ring, all masters trusted"),
        pytest.param({"trust": {}, "topology": THREE}, id="a worker in three groups"),
        pytest.param(GLOBAL, id="one group"),
        pytest.param(LOCAL, id="workers train alone, a last round is left over"),
        pytest.param(ADAM, id="masters with Adam"),
        pytest.param(QUIET, id="no noise"),
    ],
)
def test_models_are_those_of_run_on_the_same_grid(changed: dict[str, Any], tmp_path: Path) -> None:
    """The models of all groups, and the mean of those of all workers, which is all that `run` writes.

    For `on_the_grid` see test_rehearsal.py. A mean of three models is of another shape where a worker takes
    it by itself: there `run` takes the mean for every worker by itself too.
    """
    spec = spec_of(GROUPS, **changed)
    with on_the_grid():
        expected = run(spec, out=tmp_path / "expected", device="cpu", progress=False)
        folder = rehearsed(spec, tmp_path)
    assert model_bytes(folder) == model_bytes(expected.folder)
    assert of_groups(folder) == of_groups(expected.folder)


def of_groups(folder: RunFolder) -> list[bytes]:
    """The bytes of the models of all groups of a run."""
    found = torch.load(folder.path / GROUPS_FILE, weights_only=True)
    assert len(found) > 0
    return [model.numpy().tobytes() for model in found]
