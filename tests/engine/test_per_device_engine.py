"""The engine for modules that vmap cannot follow: chosen by itself, and equal to the vectorised one."""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from local_reference import data_of, train_all
from torch import nn
from unbatched_models import Branching, Counting, Rows

import sfumato as sf
from sfumato.engine.base import Engine, EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.engine.per_device import PerDeviceEngine
from sfumato.engine.registry import engine_of
from sfumato.errors import SpecError
from sfumato.learning.batches import BatchPlan, plan_epochs
from sfumato.learning.local_training import AdamMoments, LocalSGD
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.mechanisms.clipping import FlatClip
from sfumato.simulation import run as simulate

SHAPE = (1, 8, 8)
SGDS = [LocalSGD(0.05), LocalSGD(0.05, 0.9), LocalSGD(0.05, step_clip=0.3), LocalSGD(0.05, 0.5, 0.3)]
ADAM = AdamMoments(0.7, 0.9, 1e-2)
SGDS += [LocalSGD(0.05, weight_decay=2.0), LocalSGD(0.02, weight_decay=0.5, adam=ADAM)]
SIZES = [5, 0, 9, 4, 1]
UNBATCHED = {"lstm": Rows, "branching": Branching, "counting": Counting}


def settings_of(threads: int = 2, memory: int = 64 << 20) -> EngineSettings:
    return EngineSettings("cpu", threads, memory)


def batches_of_sizes(epochs: int = 2) -> BatchPlan:
    starts = np.concatenate([[0], np.cumsum(SIZES)])
    rows = [np.arange(a, b) for a, b in pairwise(starts)]
    return plan_epochs(rows, epochs=epochs, batch_size=4, rng=np.random.default_rng(5))


def seeded(make) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return make()


def batched(kind: str) -> nn.Module:
    if kind == "gru":
        return seeded(lambda: Rows(nn.GRU))
    # few units: each is a chance that a sum near 0 has another sign when it is added up in another order
    return build_model(kind, shape=SHAPE, classes=10, seed=3, hidden=[9, 7])


def trained(engine: Engine, task: LocalTask, model: nn.Module) -> tuple[torch.Tensor, ...]:
    start = ParameterLayout.of(model).read(model)
    starts = torch.stack([start, start * 1.1])
    chunks = list(engine.train(task, starts, torch.tensor([0, 1, 0, 1, 0]), batches_of_sizes()))
    assert [row for chunk in chunks for row in chunk.rows.tolist()] == list(range(len(SIZES)))
    parts = [(c.updates, c.norms, c.clipped, c.steps_clipped) for c in chunks]
    return tuple(torch.cat(column) for column in zip(*parts, strict=True) if column[0] is not None)


@pytest.mark.parametrize(("sgd", "clip"), [*zip(SGDS, 3 * [FlatClip(0.05), None], strict=True)])
@pytest.mark.parametrize("kind", ["mlp", "cnn-small", "gru"])
def test_both_engines_agree_on_models_that_both_can_train(kind, sgd, clip):
    model = batched(kind)
    task, data = LocalTask(sgd, clip), data_of(SHAPE)
    vectorised = trained(LocalEngine(model, *data, settings_of()), task, model)
    for threads, memory in ((1, 64 << 20), (2, 1)):  # at once, and one device a chunk
        one_by_one = trained(PerDeviceEngine(model, *data, settings_of(threads, memory)), task, model)
        assert len(one_by_one) == len(vectorised)
        for ours, theirs in zip(one_by_one, vectorised, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-6)


# torch.optim leaves parameters that a step does not use where they are; here momentum and moments move them
# on, in both engines: so the model that does not use all of its parameters is trained without
@pytest.mark.parametrize(
    ("kind", "sgd"),
    [(kind, SGDS[2 if kind == "branching" else 3]) for kind in UNBATCHED]
    + [(k, SGDS[0]) for k in UNBATCHED]
    + [("lstm", SGDS[5]), ("counting", SGDS[5])],
)
def test_equals_plain_modules_and_torch_optim(kind, sgd):
    model, data = seeded(UNBATCHED[kind]), data_of(SHAPE)
    start = ParameterLayout.of(model).read(model)
    groups, batches = torch.zeros(len(SIZES), dtype=torch.int64), batches_of_sizes()
    engine = PerDeviceEngine(model, *data, settings_of())
    ours = torch.cat([c.updates for c in engine.train(LocalTask(sgd), start[None], groups, batches)])
    expected = train_all(model, start[None], groups, batches, *data, sgd)
    torch.testing.assert_close(ours, expected, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("kind", UNBATCHED)
def test_the_engine_is_chosen_by_itself_every_time_and_says_why(kind, caplog):
    model, data = seeded(UNBATCHED[kind]), data_of(SHAPE)
    for _ in range(2):  # warnings that torch gives once a process must not decide
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="sfumato"):
            assert isinstance(engine_of(model, *data, settings_of()), PerDeviceEngine)
        (record,) = caplog.records
        assert "one after another" in record.getMessage()


@pytest.mark.parametrize("kind", ["softmax", "mlp", "cnn-small", "gru"])
def test_what_vmap_follows_stays_vectorised_without_a_word(kind, caplog):
    model = batched(kind)
    assert isinstance(engine_of(model, *data_of(SHAPE), settings_of()), LocalEngine)
    assert not caplog.records


def test_nothing_that_one_device_keeps_reaches_another_or_the_model():
    model, data = seeded(Counting), data_of(SHAPE)
    start = ParameterLayout.of(model).read(model)[None]
    batches, groups = batches_of_sizes(), torch.zeros(len(SIZES), dtype=torch.int64)

    def of(engine: Engine, devices: list[int]) -> torch.Tensor:
        some = batches.of(torch.tensor(devices))
        chunks = engine.train(LocalTask(LocalSGD(0.05)), start, groups[: len(devices)], some)
        return torch.cat([chunk.updates for chunk in chunks])

    engine = PerDeviceEngine(model, *data, settings_of(1))
    together = of(engine, [0, 2, 3])
    alone = torch.cat([of(engine, [device]) for device in (3, 2, 0)]).flip(0)
    assert torch.equal(together, alone)
    assert not model.seen.any()
    assert model.last is None


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("drawing", "draws random numbers"), ("lstm_with_dropout", "draws random numbers")],
)
def test_randomness_is_found_where_vmap_stops_before_it(kind, reason):
    with pytest.raises(SpecError, match=reason):
        build_model(f"unbatched_models:{kind}", shape=SHAPE, classes=10, seed=0)


def small(kind: str) -> sf.Spec:
    changes = (
        "training.rounds=4",
        f"model={{kind: 'unbatched_models:{kind}'}}",
        "topology.devices_per_edge=2",
    )
    return sf.load_spec("quickstart", changes)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("kind", ["lstm", "counting"])
@pytest.mark.usefixtures("no_report")
def test_a_run_resumes_to_the_bit_with_recorded_views(kind, tmp_path: Path):
    spec = small(kind)
    whole = sf.run(spec, out=tmp_path / "whole", record_views=["edge:1"])
    playing = simulate.run_rounds(spec, out=tmp_path / "parts", record_views=["edge:1"])
    next(playing)
    next(playing)
    playing.close()
    parts = sf.run(spec, out=tmp_path / "parts", resume=True)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, parts.model.state_dict()[name]), name
        assert name != "seen" or not tensor.any()
    columns = [name for name in whole.metrics.columns if name != "wall_time_s"]
    assert whole.metrics[columns].equals(parts.metrics[columns])
    for number in range(1, 5):
        file = f"views/edge-1/round-{number:06d}.npz"
        one, other = np.load(tmp_path / "whole" / file), np.load(tmp_path / "parts" / file)
        assert np.array_equal(one["vector"], other["vector"])
        assert len(one["vector"])
