"""Runs in which devices move: who receives what, and a run that moves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sfumato.run_folder.reader import MODEL_FILE, load_run
from sfumato.run_folder.view_files import round_file, slug
from sfumato.schedule.resolve import resolve
from sfumato.simulation import run as simulate
from sfumato.spec.document import Spec
from sfumato.verify.checker import check_run

pytestmark = pytest.mark.usefixtures("no_report")


def spec_of(**topology: Any) -> Spec:
    return Spec.model_validate(
        {
            "name": "moving",
            "protocol": "h2fdp",
            "data": {"source": "synthetic", "examples_per_device": 20},
            "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 2, **topology},
            "trust": {"trusted_edges": [0]},
            "training": {
                "rounds": 4, "local_steps": 2, "edge_every": 1, "batch_size": 5, "learning_rate": 0.2,
            },
            "privacy": {"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 0.5}},
            "watch": (),
        }
    )  # fmt: skip


TRACE = [[2, 0, 1], [3, 5, 0], [4, 0, 2]]


def rows_of(folder: Path, observer: str, number: int) -> Any:
    return np.load(folder / round_file(slug(observer), number))


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("moved") / "run"
    simulate.run(spec_of(moves={"trace": TRACE}), out=out, device="cpu", record_views=["edge:1", "device:0"])
    return out


def test_an_edge_receives_the_messages_of_whoever_is_under_it(moved: Path) -> None:
    for number, under in enumerate([[2, 3], [0, 2, 3], [0, 2, 3], [2, 3]]):
        rows = rows_of(moved, "edge:1", number)
        sent = rows["party"][(rows["kind"] == "sent") & (rows["tier"] == 2) & (rows["step"] == 0)]
        assert sent.tolist() == under


def test_a_device_receives_the_average_of_its_edge(moved: Path) -> None:
    for number, edge in enumerate([0, 1, 1, 2]):
        rows = rows_of(moved, "device:0", number)
        heard = rows["party"][(rows["kind"] == "broadcast") & (rows["tier"] == 1)]
        assert heard.tolist() == [edge]


def test_an_edges_average_is_that_of_its_devices(moved: Path) -> None:
    """Edge 1 is not trusted and adds nothing: it broadcasts its model and the mean of what it received."""
    for number in range(1, 4):
        rows = rows_of(moved, "edge:1", number)
        before = rows_of(moved, "edge:1", number - 1)
        model = before["vector"][(before["kind"] == "broadcast") & (before["tier"] == 0)][-1]
        first = rows["step"] == 0
        sent = rows["vector"][first & (rows["kind"] == "sent") & (rows["tier"] == 2)]
        heard = rows["vector"][first & (rows["kind"] == "broadcast") & (rows["tier"] == 1)][0]
        np.testing.assert_allclose(heard, model + sent.mean(axis=0), atol=1e-5)


def test_the_folder_is_verified(moved: Path) -> None:
    outcome = check_run(moved)
    assert outcome.problems == []
    assert outcome.finite > 0


@pytest.mark.parametrize("moves", [{"trace": []}, {"trace": [[3, 1, 0]]}], ids=["none", "where they are"])
def test_moves_that_move_nobody_train_the_same_model(moves: dict[str, Any], tmp_path: Path) -> None:
    simulate.run(spec_of(), out=tmp_path / "still", device="cpu")
    simulate.run(spec_of(moves=moves), out=tmp_path / "moves", device="cpu")
    models = [torch.load(tmp_path / name / MODEL_FILE, weights_only=True) for name in ("still", "moves")]
    for name, values in models[0].items():
        assert torch.equal(values, models[1][name])
    one, other = (load_run(tmp_path / n).metrics.drop(columns="wall_time_s") for n in ("still", "moves"))
    assert one.equals(other)
    assert check_run(tmp_path / "moves").problems == []


def test_moves_change_the_model(moved: Path, tmp_path: Path) -> None:
    simulate.run(spec_of(), out=tmp_path / "still", device="cpu")
    one, other = (torch.load(path / MODEL_FILE, weights_only=True) for path in (moved, tmp_path / "still"))
    assert any(not torch.equal(values, other[name]) for name, values in one.items())


def test_noise_is_added_where_trust_of_the_round_says(tmp_path: Path) -> None:
    """Without clipping to speak of and with all noise at one place, what devices send shows who adds it."""
    spec = spec_of(moves={"trace": TRACE})
    trust = spec.trust.model_validate({"from": {0: [1], 3: []}})
    spec = spec.model_copy(update={"trust": trust})
    plan = resolve(spec)
    adds = [[float(p.device_stds_of(0, np.array([d]))[0]) > 0 for d in range(6)] for p in plan.structures]
    nodes = [[float(std) > 0 for std in p.releases.steps[0].node_std[1]] for p in plan.structures]
    assert adds == [
        [True, True, False, False, True, True],  # edge 1 is trusted, and adds the noise of devices 2 and 3
        [False, True, False, False, True, True],  # and that of device 0, which came to it
        [True] * 6,
        [True] * 6,
    ]
    assert nodes == [[False, True, False], [False, True, False], [False] * 3, [False] * 3]
