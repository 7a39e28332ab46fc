"""ε towards the watched observers: computed once, after its round, and never below that of any pair."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.accounting import account, pair_guarantee
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.schedule.resolve import resolve
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.simulation import watched_epsilons
from sfumato.simulation.watched_epsilons import WatchedEpsilons
from sfumato.spec import Spec, load_spec

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

    def epsilon_after(plan: Any, devices: Any, coalition: Any, rounds: int) -> float:
        order.append(rounds)
        return epsilon(plan, devices, coalition, rounds)

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
    assert epsilons.watched
    for rounds in (2, 4):
        found = epsilons.after(rounds, played=4, spent=None)
        fewer = resolve(after(spec, rounds))
        for one in epsilons.watched:
            expected = largest(fewer, one.observer, one.devices)
            assert found[f"epsilon:{one.observer}"] == expected
    assert all(math.isnan(value) for value in epsilons.unknown().values())


def after(spec: Spec, rounds: int) -> Spec:
    """``spec`` with another number of rounds."""
    return spec.model_copy(update={"training": spec.training.model_copy(update={"rounds": rounds})})


def largest(plan: Any, observer: str, devices: Any, *, unit: str = "device") -> float:
    """The largest ε towards ``observer`` of any of ``devices``, or of a record in them, each by itself."""
    return max(pair_guarantee(plan, f"{unit}:{d}", observer, delta=DELTA).epsilon for d in devices)


RING = Path(__file__).parents[2] / "examples" / "dp-ogl" / "ri.yaml"


def test_another_worker_is_the_worst_after_a_merging_round() -> None:
    """In a ring one worker is the worst towards worker 25 after round 12, and another after round 21."""
    spec = load_spec(RING, ["training.rounds=21"])
    epsilons = WatchedEpsilons.of(resolve(spec), account(spec))
    for rounds in (12, 13, 21):
        fewer = resolve(after(spec, rounds))
        found = epsilons.after(rounds, played=rounds, spent=None)
        for column, value in found.items():
            observer = column.removeprefix("epsilon:")
            others = {d for d in range(100) if f"device:{d}" != observer}
            assert value == pytest.approx(largest(fewer, observer, others), rel=1e-9)


@pytest.mark.parametrize("unit", ["device", "record"])
def test_another_device_is_the_worst_after_moves(unit: str) -> None:
    """First edge 0 has 2 devices and edge 1 has 8; from round 4 on they have 7 and 3, which hide less."""
    moves = {"trace": [[4, device, 0] for device in range(2, 7)]}
    training = {"rounds": 20, "local_steps": 2, "edge_every": 1, "batch_size": 5, "learning_rate": 0.2}
    privacy = {"delta": DELTA, "clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 0.5}}
    spec = spec_of(
        topology={"kind": "tree", "edges": 2, "devices_per_edge": [2, 8], "moves": moves},
        trust={},
        watch=["cloud", "own-edge"],
        training=training,
        privacy=privacy | {"unit": unit},
    )
    epsilons = WatchedEpsilons.of(resolve(spec), account(spec))
    observers = [one.observer for one in epsilons.watched]
    worst: list[set[int]] = []
    for rounds in (1, 3, 4, 20):
        found = epsilons.after(rounds, played=rounds, spent=None)
        fewer = resolve(after(spec, rounds))
        for observer in observers:
            each = {d: largest(fewer, observer, [d], unit=unit) for d in range(10)}
            assert found[f"epsilon:{observer}"] == max(each.values())
            worst.append({d for d, epsilon in each.items() if epsilon == max(each.values())})
    assert not set.intersection(*worst[:: len(observers)])  # else one pair would do


@pytest.mark.parametrize(("watch", "near"), [("peer", True), ("other-device", False), ("device", None)])
def test_a_kind_means_the_units_that_are_placed_so(watch: str, near: bool | None) -> None:
    spec = load_spec(RING, ["training.rounds=3"]).model_copy(update={"watch": (watch,)})
    plan = resolve(spec)
    (one,) = WatchedEpsilons.of(plan, account(spec)).watched
    (observer,) = parse_coalition(one.observer, plan.parties)
    placed = {plan.is_near(observer, device) for device in one.devices}
    assert placed == ({True, False} if near is None else {near})
