from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sfumato
from sfumato.accounting import account
from sfumato.engine.base import EngineSettings
from sfumato.errors import RunError
from sfumato.learning.parameters import ParameterLayout
from sfumato.run_folder.metrics_table import METRIC_COLUMNS
from sfumato.run_folder.reader import GROUPS_FILE, MODEL_FILE, PRIVACY_FILE, SPEC_FILE, read_json, read_ledger
from sfumato.schedule.group_participation import draw_assignments
from sfumato.schedule.resolve import resolve
from sfumato.schedule.resolve.groups import resolve_groups
from sfumato.simulation.pilot import pilot
from sfumato.simulation.training_loop import Session
from sfumato.spec import load_spec
from sfumato.spec.document import Spec

GROUPS = [[0, 1, 2, 3], [2, 3, 4, 5], [5, 6, 0]]
TRAINING = {
    "rounds": 5, "local_steps": 3, "batch_size": 5, "learning_rate": 0.2, "merge_every": 2,
    "participation": {"rate": 0.6},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _small(no_report: None, coarse_losses: None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def spec_of(protocol: str = "dp-ogl", **sections: Any) -> Spec:
    document: dict[str, Any] = {
        "name": "tiny",
        "protocol": protocol,
        "seed": 2,
        "data": {"source": "synthetic", "examples_per_device": 20, "partition": {"labels_per_device": 3}},
        "topology": {"kind": "groups", "structure": "list", "groups": GROUPS},
        "training": TRAINING | ({"merge_every": 1} if protocol == "ms-fedavg" else {}),
        "privacy": {"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 0.2}},
    }
    return Spec.model_validate(document | sections)


@pytest.mark.parametrize("protocol", ["dp-ogl", "dp-ogl+", "dp-ogl-local", "ms-fedavg"])
def test_a_run_of_groups(protocol: str, tmp_path: Path) -> None:
    spec = spec_of(protocol, evaluate_every=3)
    run = sfumato.run(spec, out=tmp_path, device="cpu")
    metrics = run.metrics
    epsilons = [f"epsilon:{name}" for name in run.folder.observers]
    assert epsilons
    scores = ["accuracy", "loss", "personal_accuracy"]
    assert list(metrics.columns) == ["round", *scores, *epsilons, *METRIC_COLUMNS[3:]]
    for name in [*scores, *epsilons]:
        assert metrics[name].notna().tolist() == [False, False, True, False, True]
    assert metrics["accuracy"].iloc[-1] > 0.1
    assert metrics["personal_accuracy"].iloc[-1] > metrics["accuracy"].iloc[-1]  # 3 labels of 10 each
    plan = resolve_groups(spec)
    sampled = [draw_assignments(plan, plan.interval_start(k) if plan.by_interval else k) for k in range(5)]
    expected = sum(np.isin(np.arange(7), seats.workers).astype(int) for seats in sampled)
    realised = read_ledger(tmp_path)["realised"]
    parameters = sum(p.numel() for p in torch.load(tmp_path / MODEL_FILE, weights_only=True).values())
    assert len(realised.pop("sum_steps")) == 1
    assert realised == {"participations": expected.tolist(), "rounds": 5, "parameters": parameters}
    groups = torch.load(tmp_path / GROUPS_FILE, weights_only=True)
    assert groups.shape[0] == 3
    own = torch.stack([groups[plan.groups.groups_of(worker)].mean(dim=0) for worker in range(7)])
    torch.testing.assert_close(ParameterLayout.of(run.model).read(run.model), own.mean(dim=0))
    written = read_json(tmp_path / PRIVACY_FILE)
    del written["hashes"]
    assert written == json.loads(json.dumps(account(load_spec(tmp_path / SPEC_FILE)).to_dict()))
    assert run.privacy.to_dict() == written
    observer, column = run.folder.observers[0], metrics[epsilons[0]].iloc[-1]
    units = [f"device:{unit}" for unit in range(7) if f"device:{unit}" != observer]
    assert column in [run.privacy.epsilon(unit, observer) for unit in units]


def test_models_of_groups_no_longer_finite_stop_the_run(tmp_path: Path) -> None:
    spec = spec_of("ms-fedavg", privacy={}, training=TRAINING | {"merge_every": 1})
    session = Session.prepare(resolve(spec), EngineSettings("cpu", 1, 1 << 20))
    standing = session.initial_position()
    standing.state.models[1, 0] = math.inf
    with pytest.raises(RunError, match="no longer finite"):
        session.next(standing)


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_do_not_change_scores(threads: int) -> None:
    scores = []
    for number in (1, threads):
        session = Session.prepare(resolve(spec_of()), EngineSettings("cpu", number, 1 << 20))
        scores.append(session._score(session.initial_position().state))
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("protocol", "rounds", "what"),
    [
        ("dp-ogl", 2, "messages (updates of a whole round)"),
        ("dp-ogl+", 4, "messages (updates of 2 rounds), over √2"),
        ("dp-ogl-local", 4, "messages (updates of 2 rounds), over √2"),
        ("ms-fedavg", 2, "messages (updates of a whole round)"),
    ],
)
def test_a_pilot_tells_norms_that_nothing_clipped(protocol: str, rounds: int, what: str) -> None:
    tiny = {"clip": {"kind": "update", "norm": 1e-9}, "noise": {"multiplier": 3.0}}
    found = pilot(spec_of(protocol, privacy=tiny), rounds=2, device="cpu")
    assert (found.what, found.rounds) == (what, rounds)
    assert found.messages > 5
    assert 0.01 < found.quantiles[0.5] < 10
    assert found == pilot(spec_of(protocol, privacy=tiny), rounds=2, device="cpu")


def test_a_pilot_of_a_tree_is_the_same_call() -> None:
    tree = {"topology": {"kind": "star", "devices": 4}, "training": TRAINING | {"merge_every": None}}
    found = pilot(spec_of("dp-fedavg", **tree), rounds=2, device="cpu")
    assert (found.rounds, found.what) == (2, "messages (updates of a whole round)")
