"""Training loss, worst decile and spread: computed on what devices hold, and only if asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.data.partition import Partition
from sfumato.engine.base import EngineSettings
from sfumato.errors import SpecError
from sfumato.learning.losses import loss_of
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.protocols.over_devices import TrainingExamples, accuracies_over_devices, train_loss
from sfumato.schedule.resolve import resolve
from sfumato.simulation.training_loop import Session
from sfumato.spec.load import load_spec

ALL = ["train_loss", "accuracy_worst_decile", "accuracy_spread"]
TREE: dict[str, Any] = {
    "name": "measured",
    "protocol": "hfl",
    "data": {"source": "digits", "partition": {"labels_per_device": 2}},
    "topology": {"edges": 2, "devices_per_edge": 6},
    "training": {"rounds": 2, "local_steps": 3, "batch_size": 8, "learning_rate": 0.1},
}
GROUPS = TREE | {
    "protocol": "dp-ogl",
    "topology": {"kind": "groups", "structure": "ring", "groups": 3, "devices": 6},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 0.1}},
}


class Source:
    """Rows that are made when they are used."""

    shape, dtype = (50, 3), np.dtype(np.float32)

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        assert (np.diff(rows) > 0).all()
        out[...] = np.sin(rows[:, None] * np.arange(1, 4))


def played(document: dict[str, Any], metrics: list[str]) -> tuple[Session, Any, dict[str, float]]:
    session = Session.prepare(
        resolve(load_spec(document | {"metrics": metrics})), EngineSettings("cpu", 2, 1 << 26)
    )
    position, row = session.next(session.initial_position())
    return session, position.state, row


def by_hand(session: Session, models: torch.Tensor) -> tuple[list[float], list[float]]:
    """Accuracy on its own labels, and mean training loss, of every device with ``models`` ``[N, P]``."""
    examined, layout = session.examination, ParameterLayout.of(session.model)
    train = examined.training
    assert isinstance(train.features, torch.Tensor)
    assert isinstance(train.targets, torch.Tensor)
    x, y = examined.features[:], examined.targets[:]
    accuracies, losses = [], []
    for device, flat in enumerate(models):
        layout.write(flat, session.model)
        rows = torch.from_numpy(train.partition.indices(device))
        own = train.targets[rows]
        with torch.no_grad():
            right = (session.model(x).argmax(dim=1) == y).double()
            losses.append(float(nn.functional.cross_entropy(session.model(train.features[rows]), own)))
        shares = torch.bincount(own, minlength=10) / len(own)
        accuracies.append(float(sum(shares[k] * right[y == k].mean() for k in range(10) if shares[k])))
    return accuracies, losses


@pytest.mark.parametrize("document", [TREE, GROUPS], ids=["tree", "groups"])
def test_they_follow_from_what_each_device_holds(document: dict[str, Any]) -> None:
    session, state, row = played(document, ALL)
    if document is TREE:
        models = state.model.expand(12, -1)
    else:
        classes = session.plan.groups.classes
        models = session.protocol.personalised(state)[torch.from_numpy(classes.class_of)]
    accuracies, losses = by_hand(session, models)
    assert row["train_loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert row["accuracy_spread"] == pytest.approx(np.std(accuracies), abs=1e-6)
    worst = -(-len(accuracies) // 10)
    assert row["accuracy_worst_decile"] == pytest.approx(np.mean(sorted(accuracies)[:worst]), abs=1e-6)
    if document is GROUPS:
        assert row["personal_accuracy"] == pytest.approx(np.mean(accuracies), abs=1e-6)


@pytest.mark.parametrize("document", [TREE, GROUPS], ids=["tree", "groups"])
def test_what_is_not_asked_for_is_not_computed(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    every = played(document, ["f1", *ALL])[2]
    for name in ("train_loss", "accuracies_over_devices"):
        monkeypatch.delattr(f"sfumato.protocols.evaluator.{name}")
    plain = played(document, ["f1"])[2]
    assert not set(ALL) & set(plain)
    kept = {name: value for name, value in every.items() if name not in (*ALL, "wall_time_s")}
    np.testing.assert_equal({name: plain[name] for name in kept}, kept)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_train_loss_is_the_mean_over_devices_that_have_data(in_memory: bool, threads: int) -> None:
    rows, offsets = np.array([7, 3, 40, 12, 0, 33]), np.array([0, 2, 2, 6])
    features = np.empty((50, 3), np.float32)
    Source().take(np.arange(50), features)
    targets = torch.arange(50) % 4
    model = build_model("mlp", shape=(3,), classes=4, seed=0, hidden=5)
    layout = ParameterLayout.of(model)
    models = torch.stack([layout.read(model), layout.read(model) * 2])
    training = TrainingExamples(
        torch.from_numpy(features) if in_memory else Source(), targets, Partition(rows, offsets)
    )
    found = train_loss(
        model, models, np.array([1, 0, 0]), training, loss_of("classification", None), threads=threads
    )
    expected = []
    for flat, own in ((models[1], rows[:2]), (models[0], rows[2:])):
        layout.write(flat, model)
        with torch.no_grad():
            outputs = model(torch.from_numpy(features[own]))
        expected.append(float(nn.functional.cross_entropy(outputs, targets[own])))
    assert found == pytest.approx(np.mean(expected), rel=1e-6)


def test_the_worst_decile_is_a_mean_of_whole_devices() -> None:
    accuracy = np.array([0.5, np.nan, *np.linspace(0.6, 1.0, 20)])
    found = accuracies_over_devices(accuracy)
    assert found["accuracy_worst_decile"] == pytest.approx((0.5 + 0.6 + 0.6 + 0.4 / 19) / 3)  # 3 of 21
    assert found["accuracy_spread"] == pytest.approx(np.nanstd(accuracy))
    assert all(np.isnan(value) for value in accuracies_over_devices(np.full(3, np.nan)).values())


def test_a_regression_has_a_training_loss_and_no_accuracies() -> None:
    data = {"source": "python:x", "task": "regression"}
    load_spec(TREE | {"data": data, "metrics": ["train_loss"]})
    with pytest.raises(
        SpecError, match="metrics: got 'accuracy_spread'; must be of mae, rmse, r2, train_loss"
    ):
        load_spec(TREE | {"data": data, "metrics": ["accuracy_spread"]})
