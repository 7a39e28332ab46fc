"""ε of the watched pairs: computed once, after its round, and as `account` says it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.accounting import account, pair_guarantee
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.schedule.resolve import resolve
from sfumato.simulation import watched_epsilons
from sfumato.simulation.watched_epsilons import WatchedEpsilons
from sfumato.spec.document import Spec

DELTA = 1e-5


def spec_of(**sections: Any) -> Spec:
    document: dict[str, Any] = {
        "name": "tiny",
        "protocol": "h2fdp",
        "seed": 2,
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3},
        "trust": {"trusted_edges": [1]},
        "training": {
            "rounds": 4,
            "local_steps": 2,
            "edge_every": 1,
            "batch_size": 5,
            "learning_rate": 0.2,
        },
        "privacy": {
            "delta": DELTA,
            "clip": {"kind": "update", "norm": 0.5},
            "noise": {"multiplier": 0.5},
        },
    }
    return Spec.model_validate(document | sections)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is computed and played, in order: numbers of rounds of ε, and ``"round"``."""
    order: list[Any] = []
    epsilon, play = watched_epsilons.epsilon_after, TreeProtocol.run_round

    def epsilon_after(plan: Any, device: int, coalition: Any, rounds: int) -> float:
        order.append(rounds)
        return epsilon(plan, device, coalition, rounds)

    def run_round(self: TreeProtocol, state: Any) -> Any:
        order.append("round")
        return play(self, state)

    monkeypatch.setattr(watched_epsilons, "epsilon_after", epsilon_after)
    monkeypatch.setattr(TreeProtocol, "run_round", run_round)
    return order


@pytest.mark.usefixtures("no_report")
def test_each_is_computed_once_after_its_round(tmp_path: Path, heard: list[Any]) -> None:
    run = sfumato.run(spec_of(), out=tmp_path, device="cpu", progress=False)
    pairs = len(run.folder.observers)
    assert pairs > 1
    assert heard == [found for done in (1, 2, 3, 4) for found in ["round", *[done] * pairs]]


@pytest.mark.usefixtures("no_report")
def test_a_resumed_run_computes_what_is_left(
    tmp_path: Path, heard: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, unbroken, broken = spec_of(), tmp_path / "unbroken", tmp_path / "broken"
    whole = sfumato.run(spec, out=unbroken, device="cpu", progress=False)
    pairs = len(whole.folder.observers)

    def stop(result: sfumato.RoundResult) -> None:
        if result.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sfumato.run(spec, out=broken, device="cpu", progress=False, on_round=stop)
    heard.clear()
    resumed = sfumato.run(spec, out=broken, device="cpu", progress=False, resume=True)
    assert heard == ["round", *[4] * pairs]
    columns = [f"epsilon:{name}" for name in whole.folder.observers]
    assert resumed.metrics[columns].equals(whole.metrics[columns])


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"watch": ["cloud", "edge:0", "device:4,device:5"]},
        {"topology": {"kind": "star", "devices": 6}, "trust": {}, "protocol": "dp-fedavg", "training": {
            "rounds": 4, "local_steps": 2, "batch_size": 5, "learning_rate": 0.2,
            "participation": {"kind": "poisson", "rate": 0.5}}},
    ],
)  # fmt: skip
@pytest.mark.usefixtures("coarse_losses")
def test_a_curve_ends_in_the_guarantee_and_passes_through_that_of_fewer_rounds(
    sections: dict[str, Any],
) -> None:
    spec = spec_of(**sections)
    plan = resolve(spec)
    epsilons = WatchedEpsilons.of(plan, account(spec))
    assert epsilons.pairs
    for rounds in (2, 4):
        training = spec.training.model_copy(update={"rounds": rounds})
        fewer = resolve(spec.model_copy(update={"training": training}))
        found = epsilons.after(rounds, played=4, spent=None)
        for pair in epsilons.pairs:
            row = pair_guarantee(fewer, pair.unit, pair.observer, delta=DELTA)
            assert found[f"epsilon:{pair.observer}"] == row.epsilon
    assert all(math.isnan(value) for value in epsilons.unknown().values())
