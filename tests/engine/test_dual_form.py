"""Training with the first layer in its dual form equals training without, and is chosen where it pays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from local_reference import data_of, devices_of, train_all
from torch import Tensor, nn

from sfumato.engine import local
from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.engine.repeatable import repeatable_arithmetic
from sfumato.learning import dual_form
from sfumato.learning.batches import BatchPlan, plan_epochs, plan_poisson, plan_steps
from sfumato.learning.dropout import DropoutDraws, with_seeded_dropout
from sfumato.learning.dual_form import DualForm, padded_examples
from sfumato.learning.local_training import AdamMoments, LocalSGD
from sfumato.learning.losses import BUILT_IN, CROSS_ENTROPY, Loss
from sfumato.learning.parameters import ParameterLayout
from sfumato.mechanisms.clipping import FlatClip
from sfumato.mechanisms.step_noise import StepNoise

SHAPE = (1, 16, 16)
RAGGED = [21, 0, 9, 4, 1, 33, 14]
SETTINGS = EngineSettings("cpu", 2, 64 << 20)


def mlp(*, bias: bool = True, image: bool = True) -> nn.Module:
    torch.manual_seed(3)
    start = [nn.Flatten()] if image else []
    return nn.Sequential(
        *start, nn.Linear(256, 40, bias=bias), nn.ReLU(), nn.Linear(40, 12), nn.ReLU(), nn.Linear(12, 10)
    )


def epochs_of(sizes: list[int], *, epochs: int = 6, batch_size: int = 4) -> BatchPlan:
    return plan_epochs(devices_of(sizes), epochs=epochs, batch_size=batch_size, rng=np.random.default_rng(5))


NOBODY = epochs_of([1]).of(slice(0))


def poisson_of(sizes: list[int]) -> BatchPlan:
    rngs = [np.random.default_rng([6, device]) for device in range(len(sizes))]
    return plan_poisson(devices_of(sizes), steps=40, batch_size=3, rngs=rngs)


def trained(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    task: LocalTask,
    batches: BatchPlan,
    starts: Tensor | None = None,
    loss: Loss = CROSS_ENTROPY,
) -> Tensor:
    """Updates ``[P, M]``; device p from start p modulo their number."""
    if starts is None:
        starts = ParameterLayout.of(model).read(model)[None]
    group_of = torch.arange(batches.devices) % len(starts)
    engine = LocalEngine(model, *data, SETTINGS, loss)
    return torch.cat([chunk.updates for chunk in engine.train(task, starts, group_of, batches)])


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    """Every update, by its length: many steps make single entries differ more."""
    assert ((ours - theirs).norm(dim=1) <= 5e-4 * theirs.norm(dim=1)).all()


def form_of(model: nn.Module, features: Tensor, loss: Loss = CROSS_ENTROPY) -> DualForm:
    form = DualForm.of(model, features, loss)
    assert form is not None
    return form


@pytest.mark.parametrize("sgd", [LocalSGD(0.05), LocalSGD(0.05, 0.9)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("draws", [epochs_of, poisson_of])
@pytest.mark.parametrize("models", [1, 3])
def test_equals_one_device_at_a_time(sgd: LocalSGD, bias: bool, draws: object, models: int) -> None:
    model, data = mlp(bias=bias), data_of(SHAPE, examples=sum(RAGGED))
    assert callable(draws)
    batches = draws(RAGGED)
    rooms = form_of(model, data[0]).rooms(sgd, batches)
    assert (rooms > 0).any()
    assert (rooms == 0).any()
    start = ParameterLayout.of(model).read(model)
    starts = torch.stack([start * (1 + 0.3 * number) for number in range(models)])
    ours = trained(model, data, LocalTask(sgd), batches, starts)
    group_of = torch.arange(len(RAGGED)) % models
    theirs = train_all(model, starts, group_of, batches, *data, sgd)
    assert_close(ours, theirs)
    assert not ours[RAGGED.index(0)].any()


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    batch_size=st.integers(1, 9),
    kind=st.sampled_from(["epochs", "steps", "poisson"]),
    momentum=st.sampled_from([0.0, 0.7]),
    proximal=st.sampled_from([0.0, 0.4]),
    image=st.booleans(),
)
def test_equals_training_without(
    sizes: list[int], batch_size: int, kind: str, momentum: float, proximal: float, image: bool
) -> None:
    """Whatever is drawn, and even where it would not be chosen."""
    shape = SHAPE if image else (256,)
    model, data = mlp(image=image), data_of(shape, examples=max(1, sum(sizes)))
    devices, rng = devices_of(sizes), np.random.default_rng(5)
    if kind == "epochs":
        batches = plan_epochs(devices, epochs=2, batch_size=batch_size, rng=rng)
    elif kind == "poisson":
        rngs = [np.random.default_rng([6, device]) for device in range(len(sizes))]
        batches = plan_poisson(devices, steps=8, batch_size=batch_size, rngs=rngs)
    else:
        batches = plan_steps(devices, steps=8, batch_size=batch_size, rng=rng)
    task = LocalTask(LocalSGD(0.1, momentum, proximal=proximal), FlatClip(0.5))
    found = []
    for share in (0.0, 1e9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dual_form, "_SHARE", share)
            rooms = form_of(model, data[0]).rooms(task.sgd, batches)
            assert torch.equal(rooms > 0, (batches.draws > 0) & (share > 0))
            found.append(trained(model, data, task, batches))
    assert_close(*found)


def test_equals_training_without_with_dropout_and_many_targets() -> None:
    torch.manual_seed(3)
    hidden = [nn.Flatten(), nn.Linear(256, 40), nn.ReLU(), nn.Dropout(0.4)]
    model = with_seeded_dropout(nn.Sequential(*hidden, nn.Linear(40, 5)))
    features = data_of(SHAPE, examples=sum(RAGGED))[0]
    targets = torch.from_numpy(np.random.default_rng(1).standard_normal((len(features), 5), np.float32))
    draws = DropoutDraws(lambda device, step: np.random.default_rng([device, step]))
    task, found = LocalTask(LocalSGD(0.05), dropout=draws), []
    loss = BUILT_IN["regression"][0]
    for share in (0.0, 1e9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dual_form, "_SHARE", share)
            found.append(trained(model, (features, targets), task, epochs_of(RAGGED), loss=loss))
    assert_close(*found)
    assert found[0].any()


def test_bytes_do_not_depend_on_threads_memory_and_which_tiles_are_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "_TILE_BYTES", 1 << 20)
    model, data = mlp(), data_of(SHAPE, examples=sum(RAGGED) * 30)
    sizes = RAGGED * 30
    batches = epochs_of(sizes)
    start = ParameterLayout.of(model).read(model)[None]
    group_of = torch.zeros(len(sizes), dtype=torch.long)
    task = LocalTask(LocalSGD(0.05), FlatClip(1.0))
    found = []
    for speed in (SETTINGS, EngineSettings("cpu", 1, 1 << 20)):
        engine = LocalEngine(model, *data, speed)
        assert len([tile for block in engine.tiles(task, batches) for tile in block]) > 3
        found.append(torch.cat([chunk.updates for chunk in engine.train(task, start, group_of, batches)]))
        by_halves = torch.full_like(found[0], torch.nan)
        for half in (slice(0, None, 2), slice(1, None, 2)):
            for chunk in engine.train(task, start, group_of, batches, half):
                by_halves[chunk.rows] = chunk.updates
        found.append(by_halves)
    assert all(torch.equal(found[0], other) for other in found[1:])


class Source:
    def __init__(self, values: Tensor) -> None:
        self.values = values.numpy()
        self.shape, self.dtype = self.values.shape, self.values.dtype

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        out[:] = self.values[rows]


def test_features_that_are_taken_give_the_same_bytes() -> None:
    model, (features, labels) = mlp(), data_of(SHAPE, examples=sum(RAGGED))
    batches, task = epochs_of(RAGGED), LocalTask(LocalSGD(0.05), FlatClip(1.0))
    in_memory = trained(model, (features, labels), task, batches)
    start, group_of = ParameterLayout.of(model).read(model)[None], torch.zeros(len(RAGGED), dtype=torch.long)
    engine = LocalEngine(model, Source(features), labels, SETTINGS)
    assert form_of(model, features).rooms(task.sgd, batches).any()
    taken = torch.cat([chunk.updates for chunk in engine.train(task, start, group_of, batches)])
    assert torch.equal(taken, in_memory)


def test_a_device_that_diverges_changes_no_other() -> None:
    model, (features, labels) = mlp(), data_of(SHAPE, examples=sum(RAGGED))
    batches = epochs_of(RAGGED)
    task = LocalTask(LocalSGD(0.05), FlatClip(1.0))
    before = trained(model, (features, labels), task, batches)
    features = features.clone()
    features[batches.rows[5, 0, 0].long()] = torch.inf
    after = trained(model, (features, labels), task, batches)
    others = torch.arange(len(RAGGED)) != 5
    assert torch.equal(after[others], before[others])
    assert before[5].any()
    assert not after[5].any()


def test_is_chosen_by_the_number_of_multiplications() -> None:
    """Room for 20 examples is 24, which take 24 · 256 · (24 + 2 · 40), and 2 · 40 · 24 for every draw.

    Without the dual form every draw takes 2 · 256 · 40. So from 52 draws on it takes less than 0.7 of them.
    """
    form, sgd = form_of(mlp(), data_of(SHAPE)[0]), LocalSGD(0.1)

    def rooms(draws: int) -> list[int]:
        rows = torch.arange(draws, dtype=torch.int32)[None, :, None] % 20
        plan = BatchPlan(rows, torch.ones(1, draws, dtype=torch.int32), torch.tensor([draws]))
        found: list[int] = form.rooms(sgd, plan).tolist()
        return found

    fewest = 24 * 256 * (24 + 80) / (0.7 * 2 * 256 * 40 - 2 * 40 * 24)
    assert 51 < fewest < 52
    assert rooms(51) == [0]
    assert rooms(52) == [24]


def test_no_device_changes_the_form_in_which_others_are_trained() -> None:
    form, sgd = form_of(mlp(), data_of(SHAPE)[0]), LocalSGD(0.1)
    together = form.rooms(sgd, epochs_of([10, 40, 0, 1, 300, 10]))
    assert together.tolist() == [16, 48, 0, 0, 0, 16]
    assert [form.rooms(sgd, epochs_of([size])).item() for size in (10, 40, 0, 1, 300)] == [16, 48, 0, 0, 0]
    assert form.rooms(sgd, NOBODY).tolist() == []


def test_the_devices_of_a_tile_have_room_for_as_many_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_TILE_BYTES", 1 << 20)
    sizes = [10, 30, 12, 33, 500] * 20
    batches = plan_steps(devices_of(sizes), steps=60, batch_size=5, rng=np.random.default_rng(5))
    model, data = mlp(), data_of(SHAPE, examples=sum(sizes))
    blocks = LocalEngine(model, *data, SETTINGS).tiles(LocalTask(LocalSGD(0.1)), batches)
    rooms = form_of(model, data[0]).rooms(LocalSGD(0.1), batches)
    assert set(rooms.tolist()) == {0, 16, 32, 48}
    for tile in (tiles := [tile for block in blocks for tile in block]):
        assert len(set(rooms[tile].tolist())) == 1
    assert torch.equal(torch.cat(tiles).sort().values, torch.arange(len(sizes)))


def test_no_devices_no_updates() -> None:
    engine = LocalEngine(mlp(), *data_of(SHAPE), SETTINGS)
    start = torch.zeros(1, ParameterLayout.of(mlp()).total)
    nobody = torch.zeros(0, dtype=torch.long)
    assert list(engine.train(LocalTask(LocalSGD(0.1)), start, nobody, NOBODY)) == []


def test_trains_a_single_linear_layer() -> None:
    model, data = nn.Sequential(nn.Linear(1000, 10)), data_of((1000,), examples=sum(RAGGED))
    batches = epochs_of(RAGGED, epochs=60)
    assert (form_of(model, data[0]).rooms(LocalSGD(0.01), batches) > 0).any()
    ours = trained(model, data, LocalTask(LocalSGD(0.01)), batches)
    start, group_of = ParameterLayout.of(model).read(model)[None], torch.zeros(len(RAGGED), dtype=torch.long)
    assert_close(ours, train_all(model, start, group_of, batches, *data, LocalSGD(0.01)))


@pytest.mark.parametrize(
    "sgd",
    [
        LocalSGD(0.05, step_clip=1.0),
        LocalSGD(0.05, example_clip=1.0),
        LocalSGD(0.05, weight_decay=0.1),
        LocalSGD(0.05, adam=AdamMoments()),
    ],
)
def test_is_not_chosen_for_steps_that_are_no_combinations_of_gradients(sgd: LocalSGD) -> None:
    form, batches = form_of(mlp(), data_of(SHAPE)[0]), epochs_of(RAGGED)
    assert form.rooms(LocalSGD(0.05), batches).any()
    assert not form.rooms(sgd, batches).any()


def test_is_not_chosen_for_noise_and_corrections(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the dual form was chosen")

    model, data, batches = mlp(), data_of(SHAPE, examples=sum(RAGGED)), epochs_of(RAGGED)
    monkeypatch.setattr(dual_form.DualTile, "of", refuse)
    monkeypatch.setattr(dual_form.DualForm, "gradient", refuse)
    with pytest.raises(AssertionError, match="was chosen"):
        trained(model, data, LocalTask(LocalSGD(0.05)), batches)
    noise = StepNoise(0.1, lambda device, step: bytes([device, step]) * 16)
    trained(model, data, LocalTask(LocalSGD(0.05), step_noise=noise), batches)
    corrections = StoredCorrections(torch.ones(len(RAGGED), ParameterLayout.of(model).total))
    trained(model, data, LocalTask(LocalSGD(0.05), corrections=corrections), batches)


@dataclass(frozen=True)
class StoredCorrections:
    every: Tensor

    def of(self, rows: list[int]) -> Tensor:
        return self.every[rows]


def test_is_not_chosen_for_other_first_layers() -> None:
    image = torch.zeros(1, *SHAPE)
    others = [
        nn.Sequential(nn.Conv2d(1, 32, 16), nn.Flatten(), nn.Linear(32, 10)),
        nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(256, 40), nn.Linear(40, 10)),
        nn.Sequential(nn.Flatten(), nn.Linear(256, 10)),  # few weights
        nn.Sequential(nn.Flatten(), nn.Linear(256, 40), nn.Tanh(), nn.Linear(40, 10)),
    ]
    assert [DualForm.of(model, image, CROSS_ENTROPY) for model in others] == [None] * 4
    by_autograd = Loss("cross-entropy", CROSS_ENTROPY.of_examples, None)
    assert DualForm.of(mlp(), image, by_autograd) is None
    assert DualForm.of(mlp(image=False), torch.zeros(1, 256, dtype=torch.int64), CROSS_ENTROPY) is None


def test_few_sizes_hold_all_examples() -> None:
    counts = torch.arange(10_000)
    rooms = padded_examples(counts)
    assert (rooms >= counts).all()
    assert ((rooms == 16) | (rooms < 1.5 * counts + 1)).all()
    assert rooms.unique().tolist()[:6] == [16, 24, 32, 48, 64, 96]


def test_rows_used_draws_and_distinct_rows() -> None:
    rows = torch.tensor([[[3, 3], [5, 9]], [[0, 0], [0, 0]], [[7, 0], [7, 8]]], dtype=torch.int32)
    counts = torch.tensor([[2, 1], [0, 0], [1, 2]], dtype=torch.int32)
    plan = BatchPlan(rows, counts, torch.tensor([2, 0, 1]))
    assert plan.used.int().tolist() == [[[1, 1], [1, 0]], [[0, 0], [0, 0]], [[1, 0], [0, 0]]]
    assert plan.draws.tolist() == [3, 0, 1]
    assert plan.distinct.tolist() == [2, 0, 1]


@pytest.mark.needs("cuda")
def test_cuda_equals_cpu() -> None:
    model, data, batches = mlp(), data_of(SHAPE, examples=sum(RAGGED)), epochs_of(RAGGED)
    start = ParameterLayout.of(model).read(model)[None]
    group_of, found = torch.zeros(len(RAGGED), dtype=torch.long), []
    for device in ("cpu", "cuda"):
        engine = LocalEngine(model, *data, EngineSettings.default(device))
        with repeatable_arithmetic(device):
            chunks = list(engine.train(LocalTask(LocalSGD(0.05)), start, group_of, batches))
        found.append(torch.cat([chunk.updates.cpu() for chunk in chunks]))
    assert_close(*found)
