"""An engine that has trained other stacks before gives the same updates, byte for byte, as a new one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from local_reference import data_of, devices_of
from torch import Tensor, nn

from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.learning.batches import BatchPlan, plan_poisson, plan_steps
from sfumato.learning.gradients import stacked_gradient
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.training_memory import TrainingMemory

SHAPE = (1, 8, 8)
WAYS = [
    LocalSGD(0.05),
    LocalSGD(0.05, 0.9),
    LocalSGD(0.05, 0.9, step_clip=0.5),
    LocalSGD(0.05, example_clip=0.5),
]
MODELS = {
    kind: build_model(kind, shape=SHAPE, classes=10, seed=3, hidden=[9, 7])
    for kind in ("softmax", "mlp", "cnn-small", "cnn")
}
MODELS["wide mlp"] = build_model("mlp", shape=SHAPE, classes=10, seed=3, hidden=[160, 7])  # has a dual form


def engine_of(model: nn.Module) -> LocalEngine:
    features, labels = data_of(SHAPE)
    return LocalEngine(model, features, labels, EngineSettings("cpu", 1, 64 << 20))


def trained(engine: LocalEngine, model: nn.Module, batches: BatchPlan, sgd: LocalSGD) -> Tensor:
    start = ParameterLayout.of(model).read(model)[None]
    group_of = torch.zeros(batches.devices, dtype=torch.long)
    chunks = engine.train(LocalTask(sgd), start, group_of, batches)
    return torch.cat([chunk.updates for chunk in chunks])


@st.composite
def stacks(draw: st.DrawFn) -> BatchPlan:
    sizes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
    steps, width, seed = (
        draw(st.sampled_from([1, 2, 3, 5, 40])),
        draw(st.integers(1, 6)),
        draw(st.integers(0, 99)),
    )
    if draw(st.booleans()):
        rngs = [np.random.default_rng([seed, device]) for device in range(len(sizes))]
        return plan_poisson(devices_of(sizes), steps=steps, batch_size=width, rngs=rngs)
    rng = np.random.default_rng(seed)
    return plan_steps(devices_of(sizes), steps=steps, batch_size=width, rng=rng)


@pytest.mark.parametrize("kind", sorted(MODELS))
@settings(max_examples=25)
@given(work=st.lists(st.tuples(stacks(), st.sampled_from(WAYS)), min_size=2, max_size=4))
def test_what_was_trained_before_changes_nothing(kind: str, work: list[tuple[BatchPlan, LocalSGD]]) -> None:
    model = MODELS[kind]
    used = engine_of(model)
    for batches, sgd in work:
        assert torch.equal(trained(used, model, batches, sgd), trained(engine_of(model), model, batches, sgd))


def test_every_model_begins_at_a_line_of_the_cache() -> None:
    """Products are faster there; rows lie so whatever the size of a model."""
    features = torch.zeros(1, *SHAPE)
    model = MODELS["mlp"]
    size = ParameterLayout.of(model).total
    memory = TrainingMemory(stacked_gradient(model, features), size, features)
    assert size % 16
    for stack in (memory.reserve(3, 2), memory.slopes(3), memory.drifts(3)):
        assert stack.shape == (3, size)
        assert stack.stride() == (-(-size // 16) * 16, 1)
