"""Attacks on recorded views of runs with control: every round at its own steps, step size and noise."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import sfumato as sf
from sfumato.attacks import inversion
from sfumato.attacks.attack_context import AttackContext
from sfumato.attacks.inversion_targets import smallest_sum_targets
from sfumato.attacks.views import load_view, plan_of_run, replay_rounds
from sfumato.engine.base import EngineSettings
from sfumato.engine.registry import engine_of
from sfumato.learning.parameters import ParameterLayout
from sfumato.privacy.losses import gaussian
from sfumato.protocols.tree.local_work import local_task
from sfumato.run_folder.reader import load_run_to_add
from sfumato.schedule.control.adaptive import evenly_spaced_aggregations
from sfumato.schedule.control.realised_rounds import settings_of_run
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.spec.load import load_spec

SPEC = """
name: controlled
protocol: h2fdp
data: {source: synthetic, examples_per_device: 30, partition: {kind: iid}}
model: {kind: softmax, bias: false}
topology: {kind: tree, edges: 2, devices_per_edge: 4}
trust: {trusted_edges: []}
training: {rounds: 4, steps_per_round: 8, edge_every: 4, batch_size: 5,
    learning_rate: {kind: inverse-sqrt, initial: 0.4}}
privacy: {delta: 1.0e-5, clip: {kind: step, norm: 1.0}, noise: {multiplier: 3.0}}
control: {energy: 30.0, delay: 30.0, optimality_gap_weight: 0.02, optimality_gap_scale: 1.0, max_steps: 8,
    bounds: {smoothness: 4.0}}
evaluate_every: 100
"""
QUIET = ("protocol=hfl", "privacy.noise=none")

pytestmark = pytest.mark.usefixtures("no_report")


def recorded(tmp_path: Path, observer: str, *changes: str) -> Path:
    path = tmp_path / "controlled.yaml"
    path.write_text(SPEC)
    sf.run(load_spec(path, list(changes)), out=tmp_path / "run", record_views=(observer,))
    return tmp_path / "run"


def test_messages_are_those_of_the_batches_and_step_sizes_of_their_rounds(tmp_path: Path) -> None:
    run = recorded(tmp_path, "edge:1", *QUIET)
    folder = load_run_to_add(run)
    plan, view = plan_of_run(folder), load_view(folder, "edge:1")
    inputs, coalition = TrainingInputs.of(plan), parse_coalition("edge:1", plan.parties)
    features, labels = map(torch.from_numpy, (inputs.data.train_features, inputs.data.train_labels))
    engine = engine_of(inputs.model, features, labels, EngineSettings.default("cpu"))
    initial = ParameterLayout.of(inputs.model).read(inputs.model)
    rates, checked = set(), 0
    for number, model, vectors in replay_rounds(plan, view, initial):
        played = plan.at(number)
        for target in smallest_sum_targets(played, inputs.partition, vectors, model, number, coalition)[:1]:
            task = local_task(played.spec, number)
            (chunk,) = engine.train(
                task, target.start[None], torch.zeros(1, dtype=torch.int64), target.batches
            )
            torch.testing.assert_close(target.update, chunk.updates[0], atol=2e-6, rtol=1e-4)
            rates.add(round(task.sgd.learning_rate, 6))
            checked += 1
    assert checked > 4
    assert len(rates) > 2


def test_inversion_looks_for_the_batches_of_the_round(tmp_path: Path) -> None:
    run = recorded(tmp_path, "edge:1")
    folder = load_run_to_add(run)
    plan, view = plan_of_run(folder), load_view(folder, "edge:1")
    found, settings = (
        list(inversion._targets_of_first_rounds(plan, TrainingInputs.of(plan), view)),
        settings_of_run(run),
    )
    assert settings[0].steps != 8  # the spec's own
    ends = [aggregation.step for aggregation in evenly_spaced_aggregations(settings[0].steps, 1)]
    assert {int(t.batches.steps.max()) for n, t in found if n == 0} == {ends[0], ends[1] - ends[0]}


def test_observations_have_the_noise_and_the_steps_of_their_rounds(tmp_path: Path) -> None:
    run = recorded(tmp_path, "edge:1")
    context, settings = AttackContext.of_run(run, "edge:1"), settings_of_run(run)
    found = [observation for several in context.observations.values() for observation in several]
    assert len({setting.steps for setting in settings}) > 1
    assert found
    for observation in found:
        setting = settings[observation.round]
        played = context.plan.at(observation.round)
        assert observation.unit in draw_participants(played, observation.round)
        ends = [aggregation.step for aggregation in evenly_spaced_aggregations(setting.steps, 1)]
        assert (observation.first_step, observation.last_step) in [(0, ends[0]), (ends[0], ends[1])]
        local = observation.last_step - observation.first_step
        # the edge receives single messages: multiplier 3 times the round's factor, of the bound of a message
        assert observation.noise_std == pytest.approx(3 * setting.noise * setting.rate * local, rel=1e-6)
    first = next(o for o in found if o.round == 0)
    # control took 1/4, not the 0.4 of the spec
    usual = replace(context.attacker, spec_of_round=lambda _: context.plan.spec)
    longer, taken = (one.updates(first, [np.arange(30)], 1).norm() for one in (usual, context.attacker))
    assert taken < 0.8 * longer


def test_the_guarantee_beside_an_attack_is_the_budget(tmp_path: Path) -> None:
    run = recorded(tmp_path, "edge:1")
    context = AttackContext.of_run(run, "edge:1")
    mu = math.sqrt(4 * 2 / 9)  # four rounds of two single messages
    assert context.guaranteed_epsilon("zero-out") == pytest.approx(gaussian.epsilon(delta=1e-5, mu=mu))
    assert context.guaranteed_epsilon("replace") == pytest.approx(gaussian.epsilon(delta=1e-5, mu=2 * mu))
    assert np.isfinite(context.guaranteed_epsilon("replace"))
