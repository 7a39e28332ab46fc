"""Engines that take features when devices train: the same updates, and no row of anybody else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from local_reference import data_of
from torch import Tensor, nn
from unbatched_models import Rows

from sfumato.data.features import FeatureSource
from sfumato.engine.base import EngineSettings, LocalTask, UpdateChunk
from sfumato.engine.local import LocalEngine
from sfumato.engine.per_device import PerDeviceEngine
from sfumato.engine.registry import engine_of
from sfumato.learning.batches import BatchPlan, plan_epochs, plan_poisson
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.mechanisms.clipping import FlatClip

SHAPE = (1, 8, 8)
DEVICES = 23


class Recorded:
    """The rows of an array, and which were asked for, call by call."""

    def __init__(self, values: Tensor) -> None:
        self.values = values.numpy()
        self.shape, self.dtype = self.values.shape, self.values.dtype
        self.asked: list[np.ndarray] = []

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        self.asked.append(rows.copy())
        out[:] = self.values[rows]


def devices() -> list[np.ndarray]:
    """Rows of every third example, in random order; one device has none."""
    rows = np.random.default_rng(1).permutation(np.arange(0, 200, 3))
    parts = np.array_split(rows, DEVICES - 1)
    return [*parts[:4], rows[:0], *parts[4:]]


def plans() -> dict[str, BatchPlan]:
    rng = np.random.default_rng(2)
    rngs = [np.random.default_rng(n) for n in range(DEVICES)]
    return {
        "epochs": plan_epochs(devices(), epochs=2, batch_size=2, rng=rng),
        "poisson": plan_poisson(devices(), steps=3, batch_size=1, rngs=rngs),
    }


def joined(chunks: list[UpdateChunk]) -> list[Tensor]:
    rows = np.concatenate([chunk.rows for chunk in chunks])
    assert rows.tolist() == list(range(DEVICES))
    return [torch.cat([c.updates for c in chunks]), torch.cat([c.steps_clipped for c in chunks])]


@pytest.mark.parametrize("kind", ["softmax", "cnn-small", "lstm"])
@pytest.mark.parametrize("batches", ["epochs", "poisson"])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_updates_are_the_same_bytes(kind, batches, clip):
    torch.manual_seed(0)
    model: nn.Module = Rows() if kind == "lstm" else build_model(kind, shape=SHAPE, classes=10, seed=3)
    features, labels = data_of(SHAPE, examples=200)
    sgd, plan = LocalSGD(0.05, example_clip=clip), plans()[batches]
    kinds = {LocalEngine, PerDeviceEngine} if kind != "lstm" else {PerDeviceEngine}
    used = {int(row) for rows in devices() for row in rows}
    for make in kinds:

        def trained(data: Tensor | FeatureSource, targets: Tensor, memory: int, make=make) -> list[Tensor]:
            engine = make(model, data, targets, EngineSettings("cpu", 2, memory))
            start, task = ParameterLayout.of(model).read(model)[None], LocalTask(sgd, FlatClip(0.5))
            return joined(list(engine.train(task, start, torch.zeros(DEVICES, dtype=torch.int64), plan)))

        held = trained(features, labels, 64 << 20)
        for memory, calls in ((64 << 20, None), (1, 2)):
            source = Recorded(features)
            found = trained(source, labels.to(torch.uint8), memory)
            for ours, theirs in zip(found, held, strict=True):
                assert torch.equal(ours, theirs)
            asked = [rows for rows in source.asked if len(rows)]
            assert {int(row) for rows in asked for row in rows} <= used
            assert all((np.diff(rows) > 0).all() for rows in asked)
            assert calls is None or make is LocalEngine or len(asked) >= calls  # a tile at a time


def test_an_engine_is_chosen_without_taking_an_example():
    model, (features, labels) = (
        build_model("mlp", shape=SHAPE, classes=10, seed=3),
        data_of(SHAPE, examples=200),
    )
    source = Recorded(features)
    engine = engine_of(model, source, labels, EngineSettings("cpu", 1, 1 << 20))
    assert isinstance(engine, LocalEngine)
    assert sum(map(len, source.asked)) == 0


def test_a_load_takes_what_fits_and_never_less_than_a_tile():
    model, (features, labels) = Rows(), data_of(SHAPE, examples=200)
    source, plan = Recorded(features), plans()["epochs"]
    a_row = features[0].numel() * 4
    engine = PerDeviceEngine(model, source, labels, EngineSettings("cpu", 1, 8 * 7 * a_row))
    start = ParameterLayout.of(model).read(model)[None]
    list(engine.train(LocalTask(LocalSGD(0.1)), start, torch.zeros(DEVICES, dtype=torch.int64), plan))
    sizes = [len(rows) for rows in source.asked if len(rows)]
    assert max(sizes) <= 7
    assert sum(sizes) == sum(map(len, devices()))
    assert len(sizes) < DEVICES - 1  # some devices at a time
