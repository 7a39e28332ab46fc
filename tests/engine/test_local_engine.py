from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from local_reference import data_of, devices_of, train_all
from torch import Tensor, nn

from sfumato.engine import local, tiles
from sfumato.engine.base import EngineSettings, LocalTask, picked_device
from sfumato.engine.local import LocalEngine
from sfumato.engine.repeatable import repeatable_arithmetic
from sfumato.errors import SpecError
from sfumato.learning import sequential
from sfumato.learning.batches import BatchPlan, plan_epochs, plan_poisson, plan_steps
from sfumato.learning.gradients import FunctionalGradient, stacked_gradient
from sfumato.learning.local_training import AdamMoments, LocalSGD
from sfumato.learning.losses import BUILT_IN, CROSS_ENTROPY, Loss
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.rounding_margin import with_margin
from sfumato.learning.sequential import SequentialGradient
from sfumato.mechanisms.clipping import FlatClip

KINDS = [
    ("softmax", (1, 8, 8)),
    ("mlp", (1, 8, 8)),
    ("cnn-small", (1, 8, 8)),
    ("cnn-small", (3, 9, 7)),
    ("cnn", (1, 8, 8)),
    ("resnet18", (3, 8, 8)),
    ("vgg11", (1, 28, 28)),
]
SGDS = [LocalSGD(0.05), LocalSGD(0.05, 0.9), LocalSGD(0.05, step_clip=0.3), LocalSGD(0.05, 0.5, 0.3)]
ADAM = AdamMoments(0.7, 0.9, 1e-2)
SGDS += [LocalSGD(0.05, weight_decay=2.0), LocalSGD(0.02, weight_decay=0.5, adam=ADAM)]
SLOW = ("resnet18", "vgg11")
RAGGED = [5, 0, 9, 4, 1, 12, 4]


def model_of(kind: str, shape: tuple[int, ...]) -> nn.Module:
    return build_model(kind, shape=shape, classes=10, seed=3, hidden=[9, 7])


def speed_of() -> EngineSettings:
    return EngineSettings("cpu", 2, 64 << 20)


def updates_of(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    task: LocalTask,
    start: Tensor,
    group_of: Tensor,
    batches: BatchPlan,
    speed: EngineSettings,
) -> Tensor:
    engine = LocalEngine(model, *data, speed)
    chunks = list(engine.train(task, start, group_of, batches))
    assert [row for chunk in chunks for row in chunk.rows.tolist()] == list(range(len(group_of)))
    return torch.cat([chunk.updates for chunk in chunks])


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.mark.parametrize(
    ("kind", "shape", "sgd"),
    [(kind, shape, sgd) for kind, shape in KINDS for sgd in (SGDS if kind not in SLOW else SGDS[3:4])],
)
def test_equals_one_device_at_a_time(kind: str, shape: tuple[int, ...], sgd: LocalSGD) -> None:
    big = kind in SLOW
    model = model_of(kind, shape)
    layout = ParameterLayout.of(model)
    data = data_of(shape)
    sizes = [3, 0, 1] if big else RAGGED
    batches = plan_epochs(devices_of(sizes), epochs=1 if big else 2, batch_size=2 if big else 4, rng=rng())
    other = layout.read(build_model(kind, shape=shape, classes=10, seed=4, hidden=[9, 7]))
    start = torch.stack([layout.read(model), other])
    group_of = torch.arange(len(sizes)) % 2
    ours = updates_of(model, data, LocalTask(sgd), start, group_of, batches, speed_of())
    theirs = train_all(model, start, group_of, batches, *data, sgd)
    torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-6)
    assert (ours[1] == 0).all()


@pytest.mark.parametrize("step_clip", [None, 0.3])
def test_decay_is_apart_from_momentum_and_clips(step_clip: float | None) -> None:
    """A step multiplies the model by 1 - rate * decay, then subtracts the step of SGD with momentum."""
    sgd, data = LocalSGD(0.05, 0.9, step_clip, weight_decay=3.0), data_of((6,))
    model = nn.Linear(6, 10)
    start = ParameterLayout.of(model).read(model)
    batches = plan_epochs(devices_of([12]), epochs=2, batch_size=4, rng=rng())
    groups = torch.zeros(1, dtype=torch.long)
    ours = updates_of(model, data, LocalTask(sgd), start[None], groups, batches, speed_of())
    position, velocity = start.clone(), torch.zeros_like(start)
    step_clip = with_margin(sgd, batches, start[None], noisy=False).step_clip
    for step in range(int(batches.steps[0])):
        rows = batches.rows[0, step].long()
        ParameterLayout.of(model).write(position, model)
        loss = nn.functional.cross_entropy(model(data[0][rows]), data[1][rows])
        slope = torch.cat([p.flatten() for p in torch.autograd.grad(loss, list(model.parameters()))])
        if step_clip is not None:
            slope = slope * min(1.0, step_clip / float(slope.norm()))
        velocity = 0.9 * velocity + slope
        position = position * (1 - 0.05 * 3.0) - 0.05 * velocity
    torch.testing.assert_close(ours[0], position - start, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["mlp", "cnn-small"])
def test_local_steps_equal_one_device_at_a_time(kind: str) -> None:
    model, data = model_of(kind, (1, 8, 8)), data_of((1, 8, 8))
    start = ParameterLayout.of(model).read(model)[None]
    group_of = torch.zeros(len(RAGGED), dtype=torch.long)
    batches = plan_steps(devices_of(RAGGED), steps=5, batch_size=4, rng=rng())
    ours = updates_of(model, data, LocalTask(LocalSGD(0.1)), start, group_of, batches, speed_of())
    theirs = train_all(model, start, group_of, batches, *data, LocalSGD(0.1))
    torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("kind", ["softmax", "mlp", "cnn-small"])
@pytest.mark.parametrize("sgd", SGDS)
def test_poisson_batches_equal_one_device_at_a_time(kind: str, sgd: LocalSGD) -> None:
    """Widths differ from step to step, some batches are empty, and every sum is over the same divisor."""
    model, data = model_of(kind, (1, 8, 8)), data_of((1, 8, 8))
    start = ParameterLayout.of(model).read(model)[None]
    group_of = torch.zeros(len(RAGGED), dtype=torch.long)
    rngs = [np.random.default_rng([6, device]) for device in range(len(RAGGED))]
    batches = plan_poisson(devices_of(RAGGED), steps=12, batch_size=2, rngs=rngs)
    assert (batches.counts[np.array(RAGGED) > 0] == 0).any()
    assert batches.width > 3
    ours = updates_of(model, data, LocalTask(sgd), start, group_of, batches, speed_of())
    theirs = train_all(model, start, group_of, batches, *data, sgd)
    torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-6)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 11), min_size=1, max_size=9),
    batch_size=st.integers(1, 6),
    kind=st.sampled_from(["epochs", "steps", "poisson"]),
    momentum=st.sampled_from([0.0, 0.7]),
    step_clip=st.sampled_from([None, 0.2]),
    threads=st.integers(1, 3),
    tile_bytes=st.sampled_from([1, 1 << 14, 1 << 20]),
    memory=st.sampled_from([1, 1 << 15, 1 << 26]),
)
def test_any_devices_any_chunks(
    sizes: list[int],
    batch_size: int,
    kind: str,
    momentum: float,
    step_clip: float | None,
    threads: int,
    tile_bytes: int,
    memory: int,
) -> None:
    model, data = model_of("mlp", (6,)), data_of((6,), examples=100)
    start = ParameterLayout.of(model).read(model)[None]
    group_of = torch.zeros(len(sizes), dtype=torch.long)
    devices = devices_of(sizes)
    if kind == "epochs":
        batches = plan_epochs(devices, epochs=2, batch_size=batch_size, rng=rng())
    elif kind == "poisson":
        rngs = [np.random.default_rng([6, device]) for device in range(len(sizes))]
        batches = plan_poisson(devices, steps=4, batch_size=batch_size, rngs=rngs)
    else:
        batches = plan_steps(devices, steps=4, batch_size=batch_size, rng=rng())
    sgd = LocalSGD(0.3, momentum, step_clip)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_TILE_BYTES", tile_bytes)
        patch.setattr(tiles, "_BLOCK_BYTES", 1)  # a block is a tile: small memories make many chunks
        ours = updates_of(
            model, data, LocalTask(sgd), start, group_of, batches, EngineSettings("cpu", threads, memory)
        )
    theirs = train_all(model, start, group_of, batches, *data, sgd)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def every_hand_written_layer() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 5, (3, 2), stride=2, padding=1, bias=False),
        nn.MaxPool2d(2, stride=1),
        nn.ReLU(),
        nn.Conv2d(5, 4, 3),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True),
        nn.Flatten(),
        nn.ReLU(),
        nn.Linear(4 * 2 * 2, 6, bias=False),
        nn.ReLU(),
        nn.Linear(6, 10),
    )


WITH_CLOSED_FORM = [loss for losses in BUILT_IN.values() for loss in losses if loss.write_gradient]


@pytest.mark.parametrize("loss", WITH_CLOSED_FORM, ids=lambda loss: loss.name)
@pytest.mark.parametrize("widths", [(4,), (2, 4, 2), (4, 1, 3, 4)], ids=["one width", "wider", "narrower"])
@pytest.mark.parametrize("many", [0, 1 << 20], ids=["grouped convolutions", "products with patches"])
def test_both_gradients_agree_on_every_hand_written_layer(
    many: int, widths: tuple[int, ...], loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of several widths share their memory, so what one leaves there must not reach another."""
    monkeypatch.setattr(sequential, "_MANY_IN_PATCHES", many)
    model, shape = every_hand_written_layer(), (2, 10, 11)
    layout = ParameterLayout.of(model)
    features, labels = data_of(shape, examples=12)
    if loss is not CROSS_ENTROPY:
        labels = torch.rand(12, 10, generator=torch.Generator().manual_seed(1))
    fast, general = stacked_gradient(model, features, loss), FunctionalGradient(model, features, loss)
    assert isinstance(fast, SequentialGradient)
    flat = torch.randn(3, layout.total, generator=torch.Generator().manual_seed(0)) * 0.3
    results = []
    for gradient in (fast, general):
        models, target, out = (torch.empty_like(flat) for _ in range(3))
        gradient.pack(flat, models)
        gradient.pack(flat, target)
        memory = torch.empty(12, *shape)
        batches = {width: memory[: 3 * width].unflatten(0, (3, width)) for width in widths}
        steps = {
            width: gradient.bind(models, target, held, keep=0.5, scale=2.0) for width, held in batches.items()
        }
        for width in widths:
            batches[width].copy_(features.view(3, 4, *shape)[:, :width])
            weights = torch.tensor([0.5, 0.25, 0.25, 0.0])[:width].expand(3, width)
            steps[width](labels.unflatten(0, (3, 4))[:, :width], weights)
        gradient.unpack(target, out)
        results.append(out)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 10)),
        nn.Sequential(nn.Linear(6, 10), nn.Identity()),
        nn.Sequential(*[nn.Linear(6, 6)] * 2, nn.Linear(6, 10)),
    ],
    ids=["unknown layer", "identity", "one layer twice"],
)
def test_other_modules_take_the_general_path(model: nn.Module) -> None:
    assert isinstance(stacked_gradient(model, torch.zeros(1, 6)), FunctionalGradient)
    data = data_of((6,))
    start = ParameterLayout.of(model).read(model)[None]
    batches = plan_epochs(devices_of([5, 3]), epochs=1, batch_size=2, rng=rng())
    group_of = torch.zeros(2, dtype=torch.long)
    ours = updates_of(model, data, LocalTask(LocalSGD(0.1)), start, group_of, batches, speed_of())
    theirs = train_all(model, start, group_of, batches, *data, LocalSGD(0.1))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_frozen_parameters_stay_out_of_the_vector() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 10))
    model[0].requires_grad_(False)
    assert ParameterLayout.of(model).total == 70
    data = data_of((6,))
    start = ParameterLayout.of(model).read(model)[None]
    batches = plan_epochs(devices_of([5]), epochs=1, batch_size=2, rng=rng())
    group_of = torch.zeros(1, dtype=torch.long)
    ours = updates_of(model, data, LocalTask(LocalSGD(0.1)), start, group_of, batches, speed_of())
    theirs = train_all(model, start, group_of, batches, *data, LocalSGD(0.1))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_update_clip_bounds_every_update_and_says_which() -> None:
    model, data = model_of("softmax", (1, 8, 8)), data_of((1, 8, 8))
    start = ParameterLayout.of(model).read(model)[None]
    group_of = torch.zeros(len(RAGGED), dtype=torch.long)
    batches = plan_epochs(devices_of(RAGGED), epochs=2, batch_size=4, rng=rng())
    engine = LocalEngine(model, *data, speed_of())
    (raw,) = engine.train(LocalTask(LocalSGD(0.1)), start, group_of, batches)
    norms = raw.updates.norm(dim=1)
    bound = float(norms.median())
    (chunk,) = engine.train(LocalTask(LocalSGD(0.1), FlatClip(bound)), start, group_of, batches)
    assert raw.norms is None
    assert raw.clipped is None
    assert chunk.norms is not None
    torch.testing.assert_close(chunk.norms, norms)
    assert torch.equal(chunk.clipped, norms > bound)
    expected = raw.updates * (bound / norms).clamp(max=1).nan_to_num()[:, None]
    torch.testing.assert_close(chunk.updates, expected, rtol=1e-4, atol=1e-7)
    assert float(chunk.updates.double().norm(dim=1).max()) <= bound


def test_step_clip_reports_its_share() -> None:
    model, data = model_of("softmax", (1, 8, 8)), data_of((1, 8, 8))
    start = ParameterLayout.of(model).read(model)[None]
    group_of = torch.zeros(2, dtype=torch.long)
    batches = plan_epochs(devices_of([8, 0]), epochs=1, batch_size=4, rng=rng())
    engine = LocalEngine(model, *data, speed_of())
    for clip, share in ((1e-3, 1.0), (1e3, 0.0)):
        (chunk,) = engine.train(LocalTask(LocalSGD(0.1, step_clip=clip)), start, group_of, batches)
        assert chunk.steps_clipped.tolist() == [share, 0.0]


def test_a_diverged_device_sends_a_clipped_update_of_zero() -> None:
    model = model_of("mlp", (1, 8, 8))
    features, labels = data_of((1, 8, 8))
    features[0] = float("nan")
    start = ParameterLayout.of(model).read(model)[None]
    batches = plan_epochs([np.arange(4), np.arange(4, 8)], epochs=1, batch_size=4, rng=rng())
    engine = LocalEngine(model, features, labels, speed_of())
    task = LocalTask(LocalSGD(0.1), FlatClip(1.0))
    (chunk,) = engine.train(task, start, torch.zeros(2, dtype=torch.long), batches)
    assert (chunk.updates[0] == 0).all()
    assert chunk.updates[1].isfinite().all()
    assert chunk.updates[1].abs().sum() > 0


def test_same_seed_and_speed_same_bytes() -> None:
    model, data = model_of("cnn-small", (1, 8, 8)), data_of((1, 8, 8))
    start = ParameterLayout.of(model).read(model)[None]
    group_of = torch.zeros(len(RAGGED), dtype=torch.long)
    first, second = (
        updates_of(
            model,
            data,
            LocalTask(LocalSGD(0.1, 0.9), FlatClip(1.0)),
            start,
            group_of,
            plan_epochs(devices_of(RAGGED), epochs=2, batch_size=4, rng=rng()),
            speed_of(),
        )
        for _ in range(2)
    )
    assert torch.equal(first, second)


def test_leaves_model_threads_and_generator_alone() -> None:
    model, data = model_of("resnet18", (1, 8, 8)), data_of((1, 8, 8))
    before = ParameterLayout.of(model).read(model)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    batches = plan_epochs(devices_of([2, 2]), epochs=1, batch_size=2, rng=rng())
    group_of = torch.zeros(2, dtype=torch.long)
    updates_of(model, data, LocalTask(LocalSGD(0.1)), before[None], group_of, batches, speed_of())
    assert torch.equal(ParameterLayout.of(model).read(model), before)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_no_devices_no_chunks() -> None:
    model, data = model_of("softmax", (1, 8, 8)), data_of((1, 8, 8))
    start = ParameterLayout.of(model).read(model)[None]
    batches = plan_epochs([], epochs=1, batch_size=2, rng=rng())
    engine = LocalEngine(model, *data, speed_of())
    assert (
        list(engine.train(LocalTask(LocalSGD(0.1)), start, torch.zeros(0, dtype=torch.long), batches)) == []
    )


def test_refuses_starts_of_another_model() -> None:
    model, data = model_of("softmax", (1, 8, 8)), data_of((1, 8, 8))
    batches = plan_epochs(devices_of([3]), epochs=1, batch_size=2, rng=rng())
    engine = LocalEngine(model, *data, speed_of())
    with pytest.raises(SpecError, match="650"):
        next(engine.train(LocalTask(LocalSGD(0.1)), torch.zeros(1, 7), torch.zeros(1).long(), batches))


@pytest.mark.parametrize(
    ("device", "here", "allowed"),
    [
        ("tpu", 0, "must be auto, cpu or cuda"),
        ("meta", 2, "must be auto, cpu or cuda"),
        ("cuda", 0, "no CUDA device is available here"),
        ("cuda:2", 2, "must be cuda:0 to cuda:1, the CUDA devices here"),
    ],
)
def test_refuses_devices_that_are_not_here(
    device: str, here: int, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: here > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: here)
    with pytest.raises(SpecError) as caught:
        EngineSettings.default(device)
    assert str(caught.value) == f"device: got {device!r}; {allowed}"


def test_auto_is_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for here, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda here=here: here)
        assert picked_device("auto") == device


@pytest.mark.needs("cuda")
def test_cuda_equals_cpu() -> None:
    batches = plan_epochs(devices_of(RAGGED), epochs=1, batch_size=4, rng=rng())
    group_of = torch.zeros(len(RAGGED), dtype=torch.long)
    task = LocalTask(LocalSGD(0.05, 0.9, 0.3), FlatClip(0.5))
    for kind, shape in KINDS[:6]:
        model, data = model_of(kind, shape), data_of(shape)
        start = ParameterLayout.of(model).read(model)[None]
        on_cpu = updates_of(model, data, task, start, group_of, batches, speed_of())
        with repeatable_arithmetic("cuda"):
            on_cuda = updates_of(model, data, task, start, group_of, batches, EngineSettings.default("cuda"))
        if kind == "resnet18":  # so deep that rounding changes more than the last bits of some weights
            assert float((on_cuda.cpu() - on_cpu).norm() / on_cpu.norm()) < 1e-2
        else:
            torch.testing.assert_close(on_cuda.cpu(), on_cpu, rtol=1e-3, atol=1e-5)
