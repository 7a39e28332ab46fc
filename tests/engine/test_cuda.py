"""Training on a GPU: captured steps, operations that wait for it, and those that are not repeatable."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import torch
from local_reference import data_of, devices_of
from torch import Tensor, nn

from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.engine.repeatable import repeatable_arithmetic
from sfumato.learning import captured_step
from sfumato.learning.batches import plan_epochs, plan_poisson
from sfumato.learning.local_training import AdamMoments, LocalSGD
from sfumato.learning.losses import BUILT_IN, CROSS_ENTROPY, Loss
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.mechanisms.clipping import FlatClip

pytestmark = pytest.mark.needs("cuda")

RAGGED = [25, 0, 9, 4, 1, 32, 14]
SGDS = {
    "plain": LocalSGD(0.05),
    "momentum": LocalSGD(0.05, 0.9),
    "clipped steps": LocalSGD(0.05, 0.5, 0.3),
    "clipped examples": LocalSGD(0.05, example_clip=0.3),
    "Adam": LocalSGD(0.02, adam=AdamMoments()),
}
WRITTEN = [loss for losses in BUILT_IN.values() for loss in losses if loss.write_gradient is not None]
MODELS = {
    "softmax": (1, 8, 8),
    "mlp": (1, 8, 8),
    "cnn-small": (1, 12, 12),
    "vgg11": (3, 32, 32),
    "resnet18": (3, 8, 8),
}
LARGE = [(kind, name) for kind in ("vgg11", "resnet18") for name in ("plain", "clipped examples")]
CASES = [(kind, name) for kind in ("softmax", "mlp", "cnn-small") for name in SGDS] + LARGE


def updates(kind: str, sgd: str, *, epochs: int = 3, poisson: bool = False) -> Tensor:
    """Updates ``[P, M]`` of seven devices, on the GPU."""
    shape, rng = MODELS[kind], np.random.default_rng(0)
    model = build_model(kind, shape=shape, classes=10, seed=3, hidden=[9, 7], norm="none")
    engine = LocalEngine(model, *data_of(shape, examples=sum(RAGGED)), EngineSettings.default("cuda"))
    start = ParameterLayout.of(model).read(model)[None]
    if poisson:
        rngs = [np.random.default_rng(device) for device in range(len(RAGGED))]
        batches = plan_poisson(devices_of(RAGGED), steps=12, batch_size=3, rngs=rngs)
    else:
        batches = plan_epochs(devices_of(RAGGED), epochs=epochs, batch_size=4, rng=rng)
    group_of = torch.zeros(len(RAGGED), dtype=torch.long)
    found = []
    with repeatable_arithmetic("cuda"):
        for _ in range(2):  # what is kept from one round serves the next one
            found = [
                chunk.updates
                for chunk in engine.train(LocalTask(SGDS[sgd], FlatClip(0.5)), start, group_of, batches)
            ]
    return torch.cat(found)


@pytest.mark.parametrize(("kind", "sgd"), CASES)
def test_captured_steps_give_the_bytes_of_others(
    kind: str, sgd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = updates(kind, sgd)
    monkeypatch.setattr(captured_step, "_EAGER_CALLS", 1_000_000)
    assert torch.equal(captured, updates(kind, sgd))
    assert captured.abs().sum() > 0


def test_captured_steps_of_batches_of_many_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = updates("mlp", "clipped examples", poisson=True)
    monkeypatch.setattr(captured_step, "_EAGER_CALLS", 1_000_000)
    assert torch.equal(captured, updates("mlp", "clipped examples", poisson=True))


class CopiesFromTheCPU(nn.Module):
    """A step of it cannot be captured."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv1d(1, 10, 6)

    def forward(self, features: Tensor) -> Tensor:
        return self.inner(features[:, None]).flatten(1) * torch.tensor([2.0], device=features.device)


def test_a_step_that_cannot_be_captured_is_launched(caplog: pytest.LogCaptureFixture) -> None:
    model, found = CopiesFromTheCPU(), {}
    start = ParameterLayout.of(model).read(model)[None]
    group_of = torch.zeros(len(RAGGED), dtype=torch.long)
    batches = plan_epochs(devices_of(RAGGED), epochs=3, batch_size=4, rng=np.random.default_rng(0))
    for device in ("cuda", "cpu"):
        engine = LocalEngine(model, *data_of((6,), examples=sum(RAGGED)), EngineSettings.default(device))
        with repeatable_arithmetic(device):
            chunks = engine.train(LocalTask(SGDS["plain"]), start, group_of, batches)
            found[device] = torch.cat([chunk.updates.cpu() for chunk in chunks])
    torch.testing.assert_close(found["cuda"], found["cpu"], rtol=1e-4, atol=1e-6)
    assert [record.message.split(": ")[1] for record in caplog.records] == [
        "its steps are launched one operation after another"
    ]


def test_more_devices_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was captured for fewer devices is thrown away, and captured anew."""

    def rounds() -> list[Tensor]:
        shape, task = MODELS["mlp"], LocalTask(SGDS["clipped examples"])
        model = build_model("mlp", shape=shape, classes=10, seed=3, hidden=[9, 7])
        engine = LocalEngine(model, *data_of(shape, examples=900), EngineSettings.default("cuda"))
        start = ParameterLayout.of(model).read(model)[None]
        found = []
        with repeatable_arithmetic("cuda"):
            for devices in (2, 9, 3, 30, 30):
                rng, group_of = np.random.default_rng(devices), torch.zeros(devices, dtype=torch.long)
                batches = plan_epochs(devices_of([30] * devices), epochs=2, batch_size=4, rng=rng)
                found += [chunk.updates for chunk in engine.train(task, start, group_of, batches)]
        return found

    captured = rounds()
    monkeypatch.setattr(captured_step, "_EAGER_CALLS", 1_000_000)
    assert all(map(torch.equal, captured, rounds()))


@pytest.mark.parametrize(("kind", "sgd"), CASES)
def test_no_step_waits_for_the_gpu(kind: str, sgd: str) -> None:
    def waits(epochs: int) -> int:
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                updates(kind, sgd, epochs=epochs)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return sum("synchroniz" in str(warning.message) for warning in caught)

    updates(kind, sgd)
    assert waits(1) == waits(4)


@pytest.mark.parametrize(("kind", "sgd"), CASES)
def test_every_operation_is_repeatable(kind: str, sgd: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        one, two = updates(kind, sgd), updates(kind, sgd)
    assert not [str(w.message) for w in caught if re.search("determinis", str(w.message))]
    assert torch.equal(one, two)


@pytest.mark.parametrize("loss", WRITTEN, ids=[loss.name for loss in WRITTEN])
def test_gradients_of_losses_equal_those_on_the_cpu(loss: Loss) -> None:
    assert loss.write_gradient is not None
    generator = torch.Generator().manual_seed(1)
    outputs = torch.randn(3, 5, 7, generator=generator)
    if loss is CROSS_ENTROPY:
        targets = torch.randint(7, (3, 5), generator=generator)
    else:
        targets = torch.rand(3, 5, 7, generator=generator)
    found = {}
    for device in ("cpu", "cuda"):
        out = torch.empty(3, 5, 7, device=device)
        loss.write_gradient(outputs.to(device), targets.to(device), out)
        found[device] = out.cpu()
    torch.testing.assert_close(found["cuda"], found["cpu"], rtol=1e-6, atol=1e-7)
