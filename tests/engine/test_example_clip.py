"""Gradients clipped example by example, and noise at every step: equal to a plain loop, in both engines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from local_reference import data_of, devices_of, one_example_at_a_time
from torch import Tensor, nn
from unbatched_models import Branching, Counting, Rows

from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.engine.per_device import PerDeviceEngine
from sfumato.learning import sequential
from sfumato.learning.batches import BatchPlan, plan_poisson
from sfumato.learning.example_clip import ProductTarget, product_of
from sfumato.learning.gradients import FunctionalGradient, stacked_gradient
from sfumato.learning.local_training import AdamMoments, LocalSGD
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.sequential import SequentialGradient
from sfumato.learning.tape import Memory, Tape
from sfumato.mechanisms.step_noise import StepNoise

SHAPE = (1, 8, 8)
SIZES = [5, 0, 9, 4, 1, 12]
CLIP = 0.9
PLAIN = LocalSGD(0.05, example_clip=CLIP)
MOMENTUM = LocalSGD(0.05, 0.9, example_clip=CLIP)
ADAM = LocalSGD(0.02, example_clip=CLIP, weight_decay=0.5, adam=AdamMoments(0.7, 0.9, 1e-2))


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return make()


def tanh_layers() -> nn.Module:
    """A module that torch.func can batch, but whose layers have no gradients written by hand."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.Tanh(), nn.Linear(9, 10))


def strided_images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(3, 12, 3, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 10, bias=False),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    **{
        kind: (lambda kind=kind: build_model(kind, shape=SHAPE, classes=10, seed=3, hidden=[9, 7]))
        for kind in ("softmax", "mlp", "cnn-small", "cnn")
    },
    "strided": strided_images,
    "tanh": tanh_layers,
}
UNBATCHED = {"lstm": Rows, "branching": Branching, "counting": Counting}


def key_of(device: int, step: int) -> bytes:
    return bytes([7, device, step]).ljust(32, b"\0")


def poisson(steps: int = 6, batch_size: int = 3) -> BatchPlan:
    rngs = [np.random.default_rng([1, device]) for device in range(len(SIZES))]
    batches = plan_poisson(devices_of(SIZES), steps=steps, batch_size=batch_size, rngs=rngs)
    assert (batches.counts[np.array(SIZES) > 0] == 0).any()
    return batches


def updates(
    engine: LocalEngine | PerDeviceEngine, model: nn.Module, batches: BatchPlan, sgd: LocalSGD, std: float
) -> tuple[Tensor, Tensor]:
    task = LocalTask(sgd, step_noise=StepNoise(std, key_of) if std else None)
    start = ParameterLayout.of(model).read(model)[None]
    chunks = list(engine.train(task, start, torch.zeros(len(SIZES), dtype=torch.int64), batches))
    return torch.cat([c.updates for c in chunks]), torch.cat([c.steps_clipped for c in chunks])


@pytest.mark.parametrize(("sgd", "std"), [(PLAIN, 0.0), (MOMENTUM, 0.3), (ADAM, 0.3)])
@pytest.mark.parametrize("kind", [*MODELS, *UNBATCHED])
def test_equals_one_example_at_a_time(kind: str, sgd: LocalSGD, std: float) -> None:
    model, data, batches = seeded((MODELS | UNBATCHED)[kind]), data_of(SHAPE), poisson()
    start = ParameterLayout.of(model).read(model)
    theirs = torch.stack(
        [
            one_example_at_a_time(
                model,
                start,
                data,
                batches,
                device,
                sgd,
                std,
                lambda step, device=device: key_of(device, step),
            )
            for device in range(len(SIZES))
        ]
    )
    engines = [PerDeviceEngine(model, *data, EngineSettings("cpu", 1, 1))]  # one device a chunk
    if kind in MODELS:
        sizes = ((1, 1 << 26), (2, 1))  # all devices in a chunk, one device in a chunk
        engines = [LocalEngine(model, *data, EngineSettings("cpu", *size)) for size in sizes]
        engines += [PerDeviceEngine(model, *data, EngineSettings("cpu", 2, 1 << 26))]
    found = [updates(engine, model, batches, sgd, std) for engine in engines]
    for ours, share in found:
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(share, found[0][1])
    assert 0 < float(found[0][1].max()) <= 1
    assert (found[0][0][1] == 0).all()  # a device without data does nothing, and adds no noise


@pytest.mark.parametrize("kind", ["cnn-small", "cnn", "strided"])
def test_equals_one_example_at_a_time_with_devices_as_groups(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What larger images take on a CPU."""
    monkeypatch.setattr(sequential, "_MANY_IN_PATCHES", 0)
    test_equals_one_example_at_a_time(kind, MOMENTUM, 0.3)


def test_what_is_compared_are_three_ways() -> None:
    assert isinstance(stacked_gradient(MODELS["strided"](), torch.zeros(1, *SHAPE)), SequentialGradient)
    assert isinstance(stacked_gradient(MODELS["tanh"](), torch.zeros(1, *SHAPE)), FunctionalGradient)


@pytest.mark.parametrize(("pixels", "outputs", "inputs"), [(1, 4, 6), (9, 2, 3), (9, 12, 30), (4, 12, 30)])
def test_norms_of_a_product_equal_those_of_the_stored_gradients(
    pixels: int, outputs: int, inputs: int
) -> None:
    """By the product itself where it takes no more memory, by two Gram matrices where it would."""
    rng = np.random.default_rng(4)
    dy, x = (
        torch.from_numpy(rng.standard_normal((2, 5, pixels, size), dtype=np.float32))
        for size in (outputs, inputs)
    )
    target = ProductTarget(torch.zeros(2, outputs, inputs), None, 0.0, 1.0)
    expected = (dy.mT @ x).double().square().sum(dim=(2, 3))
    torch.testing.assert_close(
        product_of(dy, x, target, Tape(Memory())).squares(), expected, rtol=1e-5, atol=0.0
    )


def test_vgg11_without_normalisation_has_its_examples_clipped() -> None:
    """One step on two examples equals the mean of their gradients, each clipped alone; in both engines."""
    shape, clip = (1, 17, 17), 0.5
    model = build_model("vgg11", shape=shape, classes=3, seed=3, norm="none")
    rng = np.random.default_rng(5)
    features = torch.from_numpy(rng.standard_normal((2, *shape), dtype=np.float32))
    labels = torch.tensor([0, 2])
    layout = ParameterLayout.of(model)
    assert isinstance(stacked_gradient(model, torch.zeros(1, *shape)), SequentialGradient)
    expected = torch.zeros(layout.total)
    for x, y in zip(features, labels, strict=True):
        loss = nn.functional.cross_entropy(model(x[None]), y[None])
        gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, [*model.parameters()])])
        assert float(gradient.norm()) > clip  # so that the clip has an effect
        expected -= gradient * clip / gradient.norm() / 2
    batches = plan_poisson([np.arange(2)], steps=1, batch_size=2, rngs=[np.random.default_rng(0)])
    task, settings = LocalTask(LocalSGD(1.0, example_clip=clip)), EngineSettings("cpu", 1, 1 << 26)
    for engine in (LocalEngine, PerDeviceEngine):
        (chunk,) = engine(model, features, labels, settings).train(
            task, layout.read(model)[None], torch.zeros(1, dtype=torch.int64), batches
        )
        torch.testing.assert_close(chunk.updates[0], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["softmax", "cnn-small", "tanh"])
def test_an_example_changes_a_step_by_its_clip_whatever_it_holds(kind: str) -> None:
    """The largest move of one step over the public divisor, for examples that are huge, infinite, nan."""
    model, (features, labels) = seeded(MODELS[kind]), data_of(SHAPE)
    rows = [np.arange(6)]
    batches = plan_poisson(rows, steps=1, batch_size=6, rngs=[np.random.default_rng(0)])
    sgd = LocalSGD(1.0, example_clip=0.01)
    start = ParameterLayout.of(model).read(model)[None]

    def step(x: Tensor) -> Tensor:
        engine = LocalEngine(model, x, labels, EngineSettings("cpu", 1, 1 << 26))
        (chunk,) = engine.train(LocalTask(sgd), start, torch.zeros(1, dtype=torch.int64), batches)
        return chunk.updates[0].double()

    with_it = step(features)
    for value in (1e3, 1e30, float("inf"), float("nan")):
        other = features.clone()
        other[2] = value
        moved = step(other)
        assert bool(moved.isfinite().all())
        assert float((moved - with_it).norm()) <= 2 * 0.01 / 6
        assert float((moved - with_it).norm()) > 0.2 * 0.01 / 6


def test_step_noise_has_the_stated_scale() -> None:
    """2,000 draws: the sum of squares is within 6 standard deviations, and those of 2/3 and 3/2 are not."""
    model, data = build_model("softmax", shape=SHAPE, classes=10, seed=3), data_of(SHAPE)
    layout, std, rate = ParameterLayout.of(model), 0.8, 0.05
    sgd = LocalSGD(rate, example_clip=1e-9)  # gradients are nothing beside the noise
    engine = LocalEngine(model, *data, EngineSettings("cpu", 1, 1 << 26))
    batches = poisson(steps=4)
    found, _ = updates(engine, model, batches, sgd, std)
    noise = found[np.array(SIZES) > 0].double().flatten() / (rate / 3)  # of the sums of four steps
    count = noise.numel()
    assert count > 5 * layout.total - 1

    def off(scale: float) -> float:
        return abs(float((noise / (2 * scale)).square().sum()) - count) / (2 * count) ** 0.5

    assert off(std) < 6
    assert off(std * 2 / 3) > 6
    assert off(std * 3 / 2) > 6
