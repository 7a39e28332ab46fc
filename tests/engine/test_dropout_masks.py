"""Dropout: masks from the run's seed, for every device, step and example, the same in both engines."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from dropout_models import (
    Shared,
    TimeFirst,
    chain,
    chain_from_pixels,
    channels,
    layers,
    lstm,
    shared,
    time_first,
)
from local_reference import data_of, devices_of
from torch import Tensor, nn

from sfumato.engine import local
from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.engine.per_device import PerDeviceEngine
from sfumato.engine.registry import engine_of
from sfumato.learning.batches import BatchPlan, plan_epochs, plan_poisson
from sfumato.learning.dropout import (
    DropoutCall,
    DropoutDraws,
    DropoutLayout,
    masks_of,
    with_own_dropout,
    with_seeded_dropout,
)
from sfumato.learning.gradients import FunctionalGradient, stacked_gradient, why_not_batched
from sfumato.learning.local_training import AdamMoments, LocalSGD
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.rounding_margin import with_margin
from sfumato.learning.sequential import SequentialGradient
from sfumato.mechanisms.clipping import FlatClip

SHAPE = (1, 8, 8)
SIZES = [5, 0, 7, 1]
MODELS: dict[str, Callable[[], nn.Module]] = {
    "layers": layers,
    "channels": channels,
    "chain": chain,
    "chain from pixels": chain_from_pixels,
    "shared": shared,
    "time first": time_first,
}
# of an example, in the order of the calls: probability, shape of the mask, axis of the examples
CALLS: dict[str, list[tuple[float, tuple[int, ...], int]]] = {
    "layers": [(0.2, (64,), 0), (0.5, (12,), 0)],
    "channels": [(0.4, (6, 1, 1), 0)],
    "chain": [
        (0.3, (1, 1, 1), 0),
        (0.1, (1, 8, 8), 0),
        (0.4, (4, 1, 1), 0),
        (0.2, (4, 6, 6), 0),
        (0.3, (36,), 0),
        (0.2, (12,), 0),
        (0.5, (12,), 0),
    ],
    "chain from pixels": [(0.2, (64,), 0), (0.5, (12,), 0)],
    "shared": [(0.3, (12,), 0), (0.3, (7,), 0)],
    "time first": [(0.5, (8, 6), 1)],
    "lstm": [(0.5, (8, 6), 1)],
}


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return make()


def generator_of(device: int, step: int) -> np.random.Generator:
    return np.random.default_rng([17, device, step])


DRAWS = DropoutDraws(generator_of)


def epochs() -> BatchPlan:
    return plan_epochs(devices_of(SIZES), epochs=1, batch_size=4, rng=np.random.default_rng(5))


def poisson() -> BatchPlan:
    rngs = [np.random.default_rng([1, device]) for device in range(len(SIZES))]
    return plan_poisson(devices_of(SIZES), steps=4, batch_size=3, rngs=rngs)


def masks(kind: str, device: int, step: int, examples: int) -> list[Tensor]:
    """By another way than the library: one mask after the other, example by example."""
    calls = CALLS[kind]
    total = sum(math.prod(shape) for _, shape, _ in calls)
    drawn = generator_of(device, step).random((examples, total), dtype=np.float32)
    found, done = [], 0
    for p, shape, axis in calls:
        size = math.prod(shape)
        each = [(row[done : done + size] >= p).reshape(shape) / (1 - p) for row in drawn]
        found.append(torch.from_numpy(np.stack(each, axis=axis).astype(np.float32)))
        done += size
    return found


def train_one(
    kind: str, model: nn.Module, start: Tensor, batches: BatchPlan, device: int, sgd: LocalSGD, data: Any
) -> Tensor:
    """One device by plain autograd, with the user's own layers, whose forward pass uses the next mask."""
    layout, queue = ParameterLayout.of(model), list[Tensor]()
    sgd = with_margin(sgd, batches, start[None], noisy=False)
    own = copy.deepcopy(model)
    for layer in own.modules():
        if isinstance(layer, nn.Dropout | nn.Dropout2d):
            layer.forward = lambda x: x * queue.pop(0)  # type: ignore[method-assign]
    position, velocity = start.clone(), torch.zeros_like(start)
    for step in range(int(batches.steps[device])):
        rows = batches.rows[device, step, : int(batches.counts[device, step])].long()
        if not len(rows):
            velocity = sgd.momentum * velocity
            position = position - sgd.learning_rate * velocity
            continue
        whole = masks(kind, device, step, len(rows))
        total = torch.zeros_like(start)
        groups = (
            [slice(0, len(rows))] if sgd.example_clip is None else [slice(i, i + 1) for i in range(len(rows))]
        )
        for some in groups:
            axes = [axis for _, _, axis in CALLS[kind]]
            queue[:] = [
                m.movedim(axis, 0)[some].movedim(0, axis) for m, axis in zip(whole, axes, strict=True)
            ]
            layout.write(position, own)
            losses = nn.functional.cross_entropy(
                own(data[0][rows[some]]), data[1][rows[some]], reduction="sum"
            )
            slope = torch.cat([g.flatten() for g in torch.autograd.grad(losses, list(own.parameters()))])
            assert not queue
            if sgd.example_clip is not None:
                slope = slope * min(1.0, sgd.example_clip / float(slope.norm()))
            total += slope
        velocity = sgd.momentum * velocity + total / (batches.divisor or len(rows))
        position = position - sgd.learning_rate * velocity
    return position - start


def updates(
    engine: LocalEngine | PerDeviceEngine, model: nn.Module, batches: BatchPlan, task: LocalTask
) -> Tensor:
    start = ParameterLayout.of(model).read(model)[None]
    chunks = engine.train(task, start, torch.zeros(batches.devices, dtype=torch.int64), batches)
    return torch.cat([chunk.updates for chunk in chunks])


def engines(model: nn.Module, data: Any, *, batched: bool) -> list[LocalEngine | PerDeviceEngine]:
    sizes = ((1, 1 << 26), (2, 1 << 26), (2, 1))
    found: list[LocalEngine | PerDeviceEngine] = [
        PerDeviceEngine(model, *data, EngineSettings("cpu", *size)) for size in sizes
    ]
    return found + [LocalEngine(model, *data, EngineSettings("cpu", *size)) for size in sizes if batched]


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize(
    "sgd", [LocalSGD(0.1, 0.5), LocalSGD(0.1, example_clip=0.7)], ids=["batch", "example"]
)
@pytest.mark.parametrize("kind", CALLS)
def test_equals_plain_modules_with_the_same_masks(kind: str, sgd: LocalSGD) -> None:
    """In both engines, with any number of threads and size of tiles, batches of any width."""
    model, data = seeded((MODELS | {"lstm": lstm})[kind]), data_of(SHAPE)
    start = ParameterLayout.of(model).read(model)
    batches = epochs() if sgd.example_clip is None else poisson()
    theirs = torch.stack(
        [train_one(kind, model, start, batches, device, sgd, data) for device in range(len(SIZES))]
    )
    ours = with_seeded_dropout(copy.deepcopy(model))
    task = LocalTask(sgd, dropout=DRAWS)
    for engine in engines(ours, data, batched=kind in MODELS):
        torch.testing.assert_close(updates(engine, ours, batches, task), theirs, rtol=1e-4, atol=2e-6)
    kept = updates(PerDeviceEngine(with_own(ours), *data, EngineSettings("cpu", 1, 1)), ours, batches, task)
    assert not torch.allclose(kept[0], theirs[0], atol=1e-3)  # what is compared is not the model alone


def with_own(model: nn.Module) -> nn.Module:
    return with_own_dropout(copy.deepcopy(model))


def test_what_is_compared_are_both_gradients() -> None:
    """With the same masks, in the same places."""
    for kind in MODELS:
        model, data = with_seeded_dropout(seeded(MODELS[kind])), data_of(SHAPE)
        found = stacked_gradient(model, data[0])
        assert isinstance(found, SequentialGradient if kind.startswith("chain") else FunctionalGradient)
        assert found.dropout_floats == FunctionalGradient(model, data[0]).dropout_floats


@pytest.mark.parametrize("kind", [*MODELS, "lstm"])
def test_masks_have_their_layout(kind: str) -> None:
    model = with_seeded_dropout(seeded((MODELS | {"lstm": lstm})[kind]))
    layout = DropoutLayout.of(model, torch.zeros(1, *SHAPE))
    assert [(call.p, call.shape, call.axis) for call in layout.calls] == CALLS[kind]
    assert layout.floats == sum(math.prod(shape) for _, shape, _ in CALLS[kind])
    assert DropoutLayout.of(nn.Linear(2, 2), torch.zeros(1, 2)).floats == 0


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_masks_keep_the_mean_and_drop_the_stated_share(p: float) -> None:
    """40,000 entries: within 5 standard deviations, and shares of 2/3 and 3/2 of what is kept are not."""
    uniforms = DRAWS.of([3])(0, (1, 40, 1000))
    mask = DropoutCall(p, (1000,), 0).mask(uniforms)
    assert torch.equal(mask.unique(), torch.tensor([0.0, 1 / (1 - p)]))

    def off(kept: float) -> float:
        return abs(float((mask > 0).double().mean()) - kept) / math.sqrt(kept * (1 - kept) / mask.numel())

    assert off(1 - p) < 5
    for other in (2 / 3 * (1 - p), 3 / 2 * (1 - p)):
        assert other >= 1 or off(other) > 5
    assert abs(float(mask.mean()) - 1) < 5 * math.sqrt(p / (1 - p) / mask.numel())


def test_a_number_of_an_example_may_be_dropped() -> None:
    mask = DropoutCall(0.5, (), 0).mask(torch.tensor([[0.1], [0.9], [0.4]]))
    assert mask.tolist() == [0.0, 2.0, 0.0]


def test_everything_may_be_dropped() -> None:
    assert not DropoutCall(1.0, (4,), 0).mask(torch.rand(2, 4)).any()


def test_devices_steps_and_examples_have_masks_of_their_own() -> None:
    drawn = {
        (device, step, example): tuple((row >= 0.5).tolist())
        for step in range(3)
        for device, rows in zip((0, 1, 4), DRAWS.of([0, 1, 4])(step, (3, 5, 40)), strict=True)
        for example, row in enumerate(rows)
    }
    assert len(set(drawn.values())) == len(drawn) == 45
    again = DRAWS.of([4])(2, (1, 2, 40))
    assert [tuple((row >= 0.5).tolist()) for row in again[0]] == [drawn[4, 2, 0], drawn[4, 2, 1]]


def test_masks_do_not_depend_on_tiles_and_threads() -> None:
    model, data = with_seeded_dropout(seeded(layers)), data_of(SHAPE)
    task = LocalTask(LocalSGD(0.02, weight_decay=0.5, adam=AdamMoments(0.7, 0.9, 1e-2)), dropout=DRAWS)
    found = []
    for threads, tile in ((1, 1 << 23), (2, 1 << 23), (2, 1), (1, 1 << 14)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local, "_TILE_BYTES", tile)
            engine = LocalEngine(model, *data, EngineSettings("cpu", threads, 1 << 26))
            found.append(updates(engine, model, poisson(), task))
    for other in found[1:]:
        torch.testing.assert_close(found[0], other, rtol=1e-5, atol=1e-6)


@pytest.mark.needs("cuda")
@pytest.mark.parametrize("kind", MODELS)
def test_cuda_equals_cpu(kind: str) -> None:
    model, data, batches = with_seeded_dropout(seeded(MODELS[kind])), data_of(SHAPE), epochs()
    task = LocalTask(LocalSGD(0.1, weight_decay=0.5), dropout=DRAWS)
    together = why_not_batched(model, *(part[:0] for part in data), device="cuda") is None
    assert together or kind == "time first"
    for made in (LocalEngine, PerDeviceEngine) if together else (PerDeviceEngine,):
        on_cpu, on_cuda = (
            updates(made(model, *data, EngineSettings.default(device)), model, batches, task).cpu()
            for device in ("cpu", "cuda")
        )
        torch.testing.assert_close(on_cuda, on_cpu, rtol=1e-3, atol=1e-5)


def test_a_model_with_dropout_is_batched_and_needs_draws() -> None:
    model, data = with_seeded_dropout(seeded(layers)), data_of(SHAPE)
    engine = engine_of(model, *data, EngineSettings("cpu", 1, 1 << 26))
    assert isinstance(engine, LocalEngine)
    for one in (engine, PerDeviceEngine(model, *data, EngineSettings("cpu", 1, 1 << 26))):
        with pytest.raises(ValueError, match="needs draws"):
            updates(one, model, epochs(), LocalTask(LocalSGD(0.1), FlatClip(1.0)))


@pytest.mark.parametrize("kind", ["layers", "channels", "chain from pixels", "shared"])
def test_an_example_moves_a_step_by_its_clip_whatever_the_others_hold(kind: str) -> None:
    """One mask for an example: the rest of the batch, with masks of its own, does not answer."""
    model, (features, labels) = with_seeded_dropout(seeded(MODELS[kind])), data_of(SHAPE)
    batches = plan_poisson([np.arange(6)], steps=1, batch_size=6, rngs=[np.random.default_rng(0)])
    task = LocalTask(LocalSGD(1.0, example_clip=0.01), dropout=DRAWS)

    def step(x: Tensor) -> Tensor:
        engine = LocalEngine(model, x, labels, EngineSettings("cpu", 1, 1 << 26))
        return updates(engine, model, batches, task)[0].double()

    with_it = step(features)
    for value in (1e3, float("nan"), 0.0):
        other = features.clone()
        other[2] = value
        moved = float((step(other) - with_it).norm())
        assert 0.05 * 0.01 / 6 < moved <= 2 * 0.01 / 6 * (1 + 1e-5)


def test_nothing_is_dropped_outside_of_training() -> None:
    model = seeded(layers)
    x = data_of(SHAPE)[0]
    ours = with_seeded_dropout(copy.deepcopy(model))
    expected = copy.deepcopy(model).eval()(x.clone())
    for mode in (True, False):
        assert torch.equal(ours.train(mode)(x.clone()), expected)
    assert list(ours.state_dict()) == list(model.state_dict())
    assert ParameterLayout.of(ours) == ParameterLayout.of(model)


def test_a_model_gets_its_own_layers_back() -> None:
    model = seeded(Shared)
    ours = with_seeded_dropout(copy.deepcopy(model))
    assert masks_of(ours) is not None
    back = with_own_dropout(copy.deepcopy(ours))
    assert masks_of(back) is None
    assert type(back.drop) is nn.Dropout
    assert back.drop.p == 0.3
    assert not back.training
    assert not torch.equal(back.train()(torch.ones(1, 64)), back(torch.ones(1, 64)))
    assert masks_of(ours) is not masks_of(copy.deepcopy(ours))  # threads have copies


def test_a_model_that_drops_by_its_data_is_stopped() -> None:
    class ByData(TimeFirst):
        def forward(self, x: Tensor) -> Tensor:
            x = self.drop(x.flatten(1)[:, :6])
            return self.head(self.drop(x) if x.abs().sum() > 0 else x)

    model, data = with_seeded_dropout(seeded(ByData)), data_of(SHAPE)
    engine = PerDeviceEngine(model, *data, EngineSettings("cpu", 1, 1))
    with pytest.raises(Exception, match="must not depend on the data"):
        updates(engine, model, epochs(), LocalTask(LocalSGD(0.1), dropout=DRAWS))
