from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lost_signals import send_lost

import sfumato
from sfumato.accounting import account
from sfumato.engine.base import EngineSettings
from sfumato.engine.local import LocalEngine
from sfumato.errors import EnvelopeError, RunError
from sfumato.interrupts import interrupted_by
from sfumato.learning import evaluation
from sfumato.learning.evaluation import Scoring, apply_model, score_of
from sfumato.privacy.losses import gaussian as gdp
from sfumato.run_folder.metrics_table import METRIC_COLUMNS
from sfumato.run_folder.reader import (
    MODEL_FILE,
    PRIVACY_FILE,
    SPEC_FILE,
    load_run,
    read_json,
    read_ledger,
    write_text,
)
from sfumato.run_folder.recorded_privacy import RecordedPrivacy
from sfumato.schedule.resolve import resolve
from sfumato.simulation import folder_writer
from sfumato.simulation import run as simulate
from sfumato.simulation.after_run import with_participations
from sfumato.simulation.training_loop import Session
from sfumato.spec import load_spec
from sfumato.spec.document import Spec

CLIP = {"kind": "update", "norm": 0.5}
TRAINING = {"rounds": 4, "steps_per_round": 4, "edge_every": 2, "batch_size": 5, "learning_rate": 0.2}
STAR = {"rounds": 6, "local_steps": 2, "batch_size": 5, "learning_rate": 0.2}
DELTA = 1e-5


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def spec_of(**sections: Any) -> Spec:
    document: dict[str, Any] = {
        "name": "tiny",
        "protocol": "h2fdp",
        "seed": 2,
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3},
        "trust": {"trusted_edges": [1]},
        "training": TRAINING,
        "privacy": {"delta": DELTA, "clip": CLIP, "noise": {"multiplier": 0.5}},
    }
    return Spec.model_validate(document | sections)


def star_of(**sections: Any) -> Spec:
    star = {
        "protocol": "dp-fedavg",
        "topology": {"kind": "star", "devices": 8},
        "trust": {},
        "training": STAR,
    }
    return spec_of(**(star | sections))


def test_a_run_folder_holds_what_it_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_writer, "find_spec", lambda name: None)
    spec = spec_of(evaluate_every=3)
    results = list(simulate.run_rounds(spec, out=tmp_path, device="cpu"))
    assert [(r.round, r.rounds) for r in results] == [(k, 4) for k in range(1, 5)]
    run = load_run(tmp_path)
    assert run.finished
    assert {p.name for p in tmp_path.iterdir()} == {
        "spec.yaml", "metrics.parquet", "privacy.json", "ledger.json", "model.pt", "checkpoint.pt",
        "report.html", "rounds.jsonl", "manifest.json", ".lock", "test_labels.json",
    }  # fmt: skip
    metrics = run.metrics
    epsilons = [f"epsilon:{name}" for name in run.observers]
    assert list(metrics.columns) == ["round", "accuracy", "loss", *epsilons, *METRIC_COLUMNS[3:]]
    assert metrics["round"].tolist() == [1, 2, 3, 4]
    assert metrics["accuracy"].notna().tolist() == [False, False, True, True]
    assert metrics["epsilon:cloud"].notna().tolist() == [False, False, True, True]
    assert metrics["bytes_up"].dtype == np.int64
    assert (metrics["noise_std"] > 0).all()
    assert (metrics["wall_time_s"] > 0).all()
    assert (metrics[["energy_j", "delay_s"]] > 0).all(axis=None)
    written = read_json(tmp_path / PRIVACY_FILE)
    assert written.pop("hashes") == run.spec_dict["hashes"]
    assert written == json.loads(json.dumps(account(load_spec(tmp_path / SPEC_FILE)).to_dict()))
    assert RecordedPrivacy.from_dict(written) == run.privacy
    assert all("ex_post" not in row for row in written["guarantees"])
    assert resolve(load_spec(tmp_path / SPEC_FILE)).releases.to_dict() == resolve(spec).releases.to_dict()
    realised = read_ledger(tmp_path)["realised"]
    parameters = sum(p.numel() for p in torch.load(tmp_path / MODEL_FILE, weights_only=True).values())
    steps = realised.pop("sum_steps")
    assert len(steps) == len(resolve(spec).releases.steps)
    assert all(0 < step < 1e-9 for step in steps)
    assert realised == {"participations": [4] * 6, "rounds": 4, "parameters": parameters}
    report = tmp_path / "report.html"
    report.unlink()  # killed before it was written, say
    assert list(simulate.run_rounds(spec, out=tmp_path, device="cpu", resume=True)) == []
    assert report.is_file()


@pytest.mark.usefixtures("no_report")
def test_in_python(tmp_path: Path) -> None:
    run = sfumato.run(star_of(), out=tmp_path, device="cpu")
    state = torch.load(tmp_path / MODEL_FILE, weights_only=True)
    assert {name: tuple(value.shape) for name, value in state.items()} == {
        name: tuple(p.shape) for name, p in run.model.named_parameters()
    }
    assert run.metrics["accuracy"].iloc[-1] > 0.3
    assert run.privacy.epsilon(0, "cloud") == run.metrics["epsilon:cloud"].iloc[-1]


@pytest.mark.usefixtures("no_report")
def test_a_run_that_lost_an_interrupt_stops_before_its_next_round(tmp_path: Path) -> None:
    with interrupted_by(signal.SIGUSR1):
        rounds = simulate.run_rounds(star_of(), out=tmp_path, device="cpu")
        next(rounds)
        send_lost(signal.SIGUSR1)
        with pytest.raises(KeyboardInterrupt):
            next(rounds)
    assert len(load_run(tmp_path).metrics) == 1
    assert sfumato.run(star_of(), out=tmp_path, device="cpu", resume=True).metrics["round"].max() > 1


@pytest.mark.usefixtures("no_report")
def test_the_same_spec_gives_the_same_run_and_another_seed_another(tmp_path: Path) -> None:
    models = []
    for name, seed in (("a", 2), ("b", 2), ("c", 3)):
        simulate.run(spec_of(seed=seed), out=tmp_path / name, device="cpu")
        models.append(torch.load(tmp_path / name / MODEL_FILE, weights_only=True))
    assert all(torch.equal(models[0][k], models[1][k]) for k in models[0])
    assert not any(torch.equal(models[0][k], models[2][k]) for k in models[0])
    generator = torch.get_rng_state()
    simulate.run(spec_of(), out=tmp_path / "d", device="cpu")
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.usefixtures("no_report")
def test_threads_change_only_rounding_and_are_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, finals = spec_of(privacy={"clip": CLIP}), []
    for threads in (1, 2, 3):
        speed = EngineSettings("cpu", threads, 1 << 20)
        monkeypatch.setattr(EngineSettings, "default", classmethod(lambda cls, device, speed=speed: speed))
        run = simulate.run(spec, out=tmp_path / str(threads), device="cpu")
        finals.append(torch.cat([p.detach().flatten() for p in run.model.parameters()]))
        assert torch.get_num_threads() == 1
    for final in finals[1:]:
        torch.testing.assert_close(final, finals[0], rtol=1e-4, atol=1e-6)


def test_scoring_in_parts_is_scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session.prepare(resolve(spec_of()), EngineSettings("cpu", 1, 1 << 20))
    test = session.examination
    test = replace(test, features=test.features[:599], targets=test.targets[:599])
    how = Scoring()
    sums = apply_model(session.model, session.start, test.features, test.targets, how)
    whole = score_of([sums], test.targets, how)
    monkeypatch.setattr(evaluation, "PART", 70)  # unequal parts
    parts = [replace(test, threads=threads).score(session.start) for threads in (1, 2, 5)]
    assert parts[0].accuracy == whole.accuracy
    assert parts[0].loss == pytest.approx(whole.loss, rel=1e-6)
    assert parts[1:] == parts[:1] * 2  # to the bit, whatever the threads


@pytest.mark.usefixtures("no_report")
def test_a_breach_stops_the_run_before_anything_of_the_round_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, rounds = LocalEngine.train, 0

    def broken(self: Any, *arguments: Any) -> Any:
        nonlocal rounds
        rounds += 1
        for chunk in train(self, *arguments):
            yield (
                replace(chunk, updates=chunk.updates * 3) if rounds > 4 else chunk
            )  # from the third round on

    monkeypatch.setattr(LocalEngine, "train", broken)
    with pytest.raises(EnvelopeError, match="round 3"):
        simulate.run(spec_of(), out=tmp_path, device="cpu")
    run = load_run(tmp_path)
    assert not run.finished
    assert len(run.metrics) == 2


@pytest.mark.usefixtures("no_report")
def test_a_model_no_longer_finite_stops_the_run(tmp_path: Path) -> None:
    spec = spec_of(protocol="hfl", privacy={}, evaluate_every=4)
    far = spec.training.model_copy(update={"learning_rate": 1e38})  # beyond what a spec may say
    spec = spec.model_copy(update={"training": far})
    with pytest.raises(RunError, match="no longer finite"):
        simulate.run(spec, out=tmp_path, device="cpu")


@pytest.mark.usefixtures("no_tables")
class TestTensorBoard:
    @pytest.mark.needs("tensorboard")
    def test_where_it_is_installed_the_metrics_go_there(self, tmp_path: Path) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        run = simulate.run(spec_of(evaluate_every=2), out=tmp_path, device="cpu")
        events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
        found = {event.step: event.value for event in events.Scalars("accuracy")}
        stated = run.metrics.set_index("round")["accuracy"].dropna()
        assert found == pytest.approx(stated.to_dict())
        assert "epsilon/cloud" in events.Tags()["scalars"]

    def test_where_it_is_not_nothing_is_imported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(folder_writer, "find_spec", lambda name: None)
        monkeypatch.setitem(sys.modules, "sfumato.simulation.tensorboard", None)
        assert simulate.run(spec_of(), out=tmp_path, device="cpu").folder.finished
        assert not (tmp_path / "tensorboard").exists()

    @pytest.fixture
    def no_tables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            folder_writer, "_write_report", lambda folder: write_text(folder / "report.html", "")
        )


class TestExPost:
    """Who sees the draw can be charged, afterwards, what really happened (docs/accounting.md)."""

    def row(self, document: dict[str, Any], observer: str) -> dict[str, Any]:
        return next(row for row in document["guarantees"] if row["observer"] == observer)

    @pytest.mark.parametrize("participation", [{"rate": 0.5}, {"count": 4}])
    @pytest.mark.usefixtures("no_report")
    def test_of_a_run(self, participation: dict[str, Any], tmp_path: Path) -> None:
        """The cloud sees single messages; a device that came n times met n Gaussians."""
        spec = star_of(
            protocol="pedpfl",
            training=STAR | {"participation": participation},
            privacy={"delta": DELTA, "clip": CLIP, "noise": {"multiplier": 2.0}},
            evaluate_every=6,
        )
        run = simulate.run(spec, out=tmp_path, device="cpu")
        most = max(read_ledger(tmp_path)["realised"]["participations"])
        assert 0 < most <= 6
        written = read_json(tmp_path / PRIVACY_FILE)
        cloud = self.row(written, "cloud")
        expected = gdp.epsilon(delta=DELTA, mu=math.sqrt(most) / 2.0)
        assert cloud["ex_post"] == {"epsilon": pytest.approx(expected), "participations": most}
        assert "ex_post" not in self.row(written, "public")
        after = {run.folder.privacy.guarantees[n].observer for n in run.folder.privacy.after_run}
        assert after == {"cloud"}
        assert "ex_post" not in self.row(account(spec).to_dict(), "cloud")
        assert run.privacy.to_dict() | {"hashes": run.folder.spec_dict["hashes"]} == written

    def test_of_the_worst_unit_that_a_row_stands_for(self) -> None:
        spec = spec_of(
            topology={"kind": "tree", "edges": 3, "devices_per_edge": [2, 4, 4]},
            trust={"trusted_edges": []},
            training=TRAINING | {"participation": {"rate": 0.5}},
        )
        report = with_participations(account(spec), np.array([4, 1, 0, 2, 3, 1, 0, 0, 1, 2]), 6, 1)
        found = {}
        for guarantee, after in zip(report.guarantees, report.ex_post, strict=True):
            if guarantee.relation.words == "own edge":
                assert after is not None
                found[guarantee.unit] = after.participations
                mu = math.sqrt(2 * after.participations) / 0.5
                assert after.epsilon == pytest.approx(gdp.epsilon(delta=DELTA, mu=mu))
            if guarantee.relation.words in ("public", "peer", "cloud"):
                assert after is None  # the edge draws; these do not see whom
        assert found == {"device:0": 4, "device:2": 3}

    def test_nobody_came(self) -> None:
        spec = star_of(training=STAR | {"participation": {"rate": 0.1}})
        report = with_participations(account(spec), np.zeros(8, np.int64), 6, 1)
        cloud = self.row(report.to_dict(), "cloud")
        assert cloud["ex_post"] == {"epsilon": 0.0, "participations": 0}

    def test_a_trusted_edge_has_no_epsilon_unless_nobody_came(self) -> None:
        spec = spec_of(training=TRAINING | {"participation": {"count": 2}})
        report = with_participations(account(spec), np.array([4, 2, 2, 4, 4, 0]), 6, 1)
        found = {
            row["unit"]: row["ex_post"]
            for row in report.to_dict()["guarantees"]
            if row["relation"] == "own edge"
        }
        assert found["device:3"] == {"epsilon": "inf", "participations": 4}
        assert found["device:0"]["participations"] == 4
        nobody = with_participations(account(spec), np.zeros(6, np.int64), 6, 1)
        assert {after.epsilon for after in nobody.ex_post if after is not None} == {0.0}

    def test_is_no_better_than_every_round_and_no_worse_than_before(self) -> None:
        spec = star_of(training=STAR | {"participation": {"rate": 0.5}})
        before = account(spec)
        everyone = account(star_of())
        full = with_participations(before, np.full(8, 6), 6, 1)
        for guarantee, after in zip(full.guarantees, full.ex_post, strict=True):
            if after is not None:
                assert after.epsilon >= guarantee.epsilon
        scale = math.sqrt(8 / 4)  # dp-fedavg's devices divide the noise by the square root of those expected
        assert self.row(full.to_dict(), "cloud")["ex_post"]["epsilon"] < everyone.epsilon(0, "cloud") * scale

    def test_where_everybody_always_comes_there_is_nothing_to_add(self) -> None:
        report = account(star_of())
        assert with_participations(report, np.full(8, 6), 6, 1) is report
