"""Runs of models with dropout: masks follow from the seed, and a model leaves with its own layers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from dropout_models import layers
from torch import nn

import sfumato as sf
from sfumato.engine.base import EngineSettings
from sfumato.errors import SpecError
from sfumato.protocols.tree import local_work
from sfumato.protocols.tree.local_work import dropout_draws
from sfumato.random import Stream, generator
from sfumato.schedule.resolve import resolve
from sfumato.simulation import run as simulate
from sfumato.simulation.pilot import pilot
from sfumato.simulation.training_loop import Session

LAYERS = "model={kind: 'dropout_models:layers'}"
TRAINING = "{rounds: 3, local_steps: 2, edge_every: 1, batch_size: 4, learning_rate: 0.5}"
SMALL = (f"training={TRAINING}", "topology={edges: 2, devices_per_edge: 2}")
IN_GROUPS = (
    "protocol=dp-ogl",
    "topology={kind: groups, structure: ring, groups: 3, devices: 6}",
    "trust={trusted_aggregators: 1.0}",
    "training={rounds: 3, local_steps: 2, batch_size: 5, learning_rate: 0.5, merge_every: 2}",
    "privacy.noise={multiplier: 0.01}",
)
EXAMPLES = (
    "training.batches=poisson",
    "privacy={unit: record, clip: {kind: example, norm: 1.0}, noise: {multiplier: 0.1, at: step}}",
)

pytestmark = pytest.mark.usefixtures("no_report")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def spec_of(*changes: str, model: str = LAYERS) -> sf.Spec:
    return sf.load_spec("quickstart", [*SMALL, model, *changes])


def models_of(spec: sf.Spec, settings: EngineSettings, rounds: int) -> list[torch.Tensor]:
    session = Session.prepare(resolve(spec), settings)
    state, found = session.protocol.initial(session.start), []
    for _ in range(rounds):
        state, _ = session.protocol.run_round(state)
        found.append(session.protocol.model(state))
    return found


@pytest.mark.parametrize("kind", ["layers", "lstm"])  # in either engine
@pytest.mark.parametrize("more", [(), EXAMPLES, IN_GROUPS], ids=["updates", "examples", "groups"])
def test_a_run_resumes_to_the_bit(kind: str, more: tuple[str, ...], tmp_path: Path) -> None:
    spec = spec_of(*more, model=f"model={{kind: 'dropout_models:{kind}'}}")
    whole = sf.run(spec, out=tmp_path / "whole")
    playing = simulate.run_rounds(spec, out=tmp_path / "parts")
    next(playing)
    next(playing)
    playing.close()
    parts = sf.run(spec, out=tmp_path / "parts", resume=True)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, parts.model.state_dict()[name]), name
    columns = [name for name in whole.metrics.columns if name != "wall_time_s"]
    assert whole.metrics[columns].equals(parts.metrics[columns])


def test_the_model_of_a_run_is_the_users(tmp_path: Path) -> None:
    """Given in Python, in eval mode; its layers drop when it is trained on, and its parameters load."""
    mine = layers().eval()
    before = {name: tensor.clone() for name, tensor in mine.state_dict().items()}
    spec = sf.load_spec("quickstart", SMALL)
    run = sf.run(spec, out=tmp_path / "run", model=mine)
    assert type(run.model[1]) is nn.Dropout
    assert not run.model.training
    x = torch.ones(2, 1, 8, 8)
    assert torch.equal(run.model(x.clone()), run.model(x.clone()))
    assert not torch.equal(run.model.train()(x.clone()), run.model(x.clone()))
    assert all(torch.equal(mine.state_dict()[name], tensor) for name, tensor in before.items())
    assert type(mine[1]) is nn.Dropout  # what was given stays as it was
    assert not mine.training
    mine.load_state_dict(run.model.state_dict())


@pytest.mark.parametrize("more", [(), IN_GROUPS], ids=["tree", "groups"])
def test_masks_follow_from_the_seed_alone(more: tuple[str, ...]) -> None:
    """The same for any number of threads and memory; others for another seed of the masks."""
    spec = spec_of(*more, "privacy.noise=none")
    first, *others = (
        models_of(spec, EngineSettings("cpu", threads, memory), 2)
        for threads, memory in ((1, 1 << 26), (2, 1 << 26), (2, 1))
    )
    for other in others:
        for one, same in zip(first, other, strict=True):
            torch.testing.assert_close(one, same, rtol=1e-4, atol=1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_work, "generator", lambda seed, *address: generator(seed + 1, *address))
        changed = models_of(spec, EngineSettings("cpu", 1, 1 << 26), 1)
    assert float((changed[0] - first[0]).norm()) > 0.01 * float(first[0].norm())


def test_draws_are_addressed_by_round_aggregation_device_and_step() -> None:
    spec = spec_of()
    draws = dropout_draws(spec, [(1, 0, 7), (1, 0, 9)])
    for row, device in enumerate((7, 9)):
        expected = generator(spec.seed, Stream.DROPOUT, 1, 0, device, 4).random(6, dtype=np.float32)
        assert np.array_equal(draws.generator_of(row, 4).random(6, dtype=np.float32), expected)


def test_pilots_play_dropout() -> None:
    plain = "model={kind: mlp, hidden: 12}"
    for model in (LAYERS, plain):
        found = pilot(spec_of(model=model), rounds=1)
        assert found.messages == 4


@pytest.mark.parametrize("kind", ["membership", "property"])
def test_attackers_draw_masks_of_their_own(kind: str, tmp_path: Path) -> None:
    spec = spec_of("privacy.noise=none", "training.rounds=1")
    sf.run(spec, out=tmp_path / "run", record_views=["edge:0"])
    found = sf.attack(tmp_path / "run", observer="edge:0", kind=kind)  # type: ignore[arg-type]
    assert found["kind"] == kind


def test_an_inversion_would_have_to_know_the_masks(tmp_path: Path) -> None:
    sf.run(spec_of("training.rounds=1"), out=tmp_path / "run", record_views=["edge:0"])
    with pytest.raises(SpecError, match="what devices dropped"):
        sf.attack(tmp_path / "run", observer="edge:0", kind="inversion")


def test_control_measures_with_the_masks_of_a_round() -> None:
    control = "control={smoothness: 1.0, max_steps: 4, estimates: {multiplier: 20.0, bound: 5.0}}"
    changes = ("training.local_steps=4", "training.edge_every=2", "training.rounds=10", control)
    models = models_of(spec_of(*changes), EngineSettings("cpu", 1, 1 << 26), 2)
    assert all(bool(model.isfinite().all()) for model in models)
