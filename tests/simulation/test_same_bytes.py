"""A round gives the same bits over threads and memory, and a run goes on with others."""

from pathlib import Path
from typing import Any

import pytest
import torch
from resumed_specs import groups_of
from torch import Tensor

from sfumato.engine import local, tiles
from sfumato.engine.base import EngineSettings
from sfumato.run_folder.reader import read_ledger
from sfumato.schedule.resolve import resolve
from sfumato.simulation import run as simulate
from sfumato.simulation.training_loop import Session
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec

pytestmark = pytest.mark.usefixtures("no_report")

OTHERS = ((2, 1 << 26), (2, 1))
STEPS = ("training.local_epochs=null", "training.local_steps=3")
SMALL = (
    "training.rounds=3",
    "data={source: digits}",
    "model={kind: mlp, hidden: 9}",
    "privacy.noise={multiplier: 1.0}",
)
STAR = ("topology.devices=20", "training.participation=all", *SMALL)
TREES = {
    "odd M": ("quickstart",),
    "poisson": ("quickstart", "training.batches=poisson"),
    "example clips": ("quickstart", "privacy.clip.kind=example", "training.batches=poisson"),
    "step clips, momentum": ("quickstart", "privacy.clip.kind=step", "training.momentum=0.5"),
    "adam": ("quickstart", "training.optimizer=adam", "training.learning_rate=0.01"),
    "no clip": ("quickstart", "privacy={}", "protocol=hfl"),
    "scaffold": ("dp-fedavg", "training.drift_correction=scaffold", *STEPS),
    "error feedback": ("dp-fedavg", "compression={kind: top-k, ratio: 0.3, error_feedback: true}"),
    "air": ("dp-fedavg", "transport={devices_to_cloud: air}", "trust={}"),
}


def spec_named(name: str) -> Spec:
    if name in TREES:
        base, *changes = TREES[name]
        sizes = STAR if base == "dp-fedavg" else ("topology.devices_per_edge=7", *SMALL)
        return load_spec(base, [*sizes, *changes])
    return groups_of(name, 1 if name == "ms-fedavg" else 3)


def states(spec: Spec, threads: int, memory: int) -> list[Tensor]:
    session = Session.prepare(resolve(spec), EngineSettings("cpu", threads, memory))
    state: Any = session.protocol.initial(session.start)
    for _ in range(3):
        state = session.protocol.run_round(state)[0]
    packed = state.pack()
    return [value for value in packed.values() if isinstance(value, Tensor)]


@pytest.mark.parametrize("name", [*TREES, "dp-ogl", "dp-ogl+", "dp-ogl-local", "ms-fedavg"])
def test_the_same_state_over_threads_and_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_TILE_BYTES", 1 << 17)  # some tiles
    monkeypatch.setattr(tiles, "_BLOCK_BYTES", 1)  # of which little memory holds few
    spec = spec_named(name)
    first = states(spec, 1, 1 << 26)
    assert first
    for settings in OTHERS:
        for one, other in zip(first, states(spec, *settings), strict=True):
            assert torch.equal(one, other), settings


def test_a_run_goes_on_with_other_threads_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_named("odd M")
    simulate.run(spec, out=tmp_path / "whole", device="cpu")
    half = tmp_path / "half"

    class EnoughError(Exception):
        pass

    def stop(result: simulate.RoundResult) -> None:
        if result.round == 1:
            raise EnoughError

    with pytest.raises(EnoughError):
        simulate.run(spec, out=half, device="cpu", on_round=stop)
    others = classmethod(lambda cls, device="cpu": cls(device, 2, 1 << 15))
    monkeypatch.setattr(EngineSettings, "default", others)
    simulate.run(spec, out=half, device="cpu", resume=True)
    steps = read_ledger(half)["realised"]["sum_steps"]
    assert steps
    assert all(0 < step < 1e-9 for step in steps)  # far below clip and noise
    assert (half / "model.pt").read_bytes() == (tmp_path / "whole" / "model.pt").read_bytes()
