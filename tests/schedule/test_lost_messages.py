"""Rounds of groups in which messages are lost: what sums hold, what they are divided by, who is aborted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import sfumato as sf
from sfumato.auditing.worst_case_engine import WorstCaseEngine, one_example_per_device
from sfumato.protocols.groups.base import GroupedProtocol
from sfumato.run_folder.reader import read_ledger
from sfumato.schedule.group_participation import draw_assignments, group_turnout
from sfumato.schedule.participation import threshold_of
from sfumato.schedule.resolve import resolve
from sfumato.simulation import run as simulate
from sfumato.verify.checker import check_run

SECURE = {"devices_to_master": "secure-aggregation"}
LENGTH = 3
ROUNDS = 12


def plan_of(protocol="dp-ogl", *, noise=0.0, participation=None, **sections):
    document = {
        "name": "lost",
        "protocol": protocol,
        "seed": 5,
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "groups", "structure": "ring", "groups": 3, "devices": 12},
        "training": {
            "rounds": ROUNDS,
            "local_steps": 1,
            "batch_size": 4,
            "learning_rate": 0.1,
            "participation": participation or {"kind": "all"},
        },
        "privacy": {
            "clip": {"kind": "update", "norm": 1.0},
            "noise": {"multiplier": noise} if noise else "none",
        },
        "faults": {"dropout_rate": 0.3},
    }
    if protocol == "ms-fedavg":
        document["privacy"] = {}
    return resolve(sf.load_spec(document | sections))


def played(plan, rounds=ROUNDS):
    """Every assignment's update is its group's number and 1 in the first two coordinates."""
    state, models = None, []
    for number in range(rounds):
        seats = draw_assignments(plan, plan.interval_start(number) if plan.by_interval else number)
        updates = torch.zeros(len(seats.workers), LENGTH)
        updates[:, 0] = 0.25
        engine = WorstCaseEngine(np.arange(len(seats.workers)), [updates])
        protocol = GroupedProtocol(plan, engine, one_example_per_device(plan.groups.workers), LENGTH)
        state = protocol.initial(torch.zeros(LENGTH)) if state is None else state
        state, stats = protocol.run_round(state)
        models.append((state.models.clone(), stats, seats))
    return models


@pytest.mark.parametrize(
    "participation", [None, {"kind": "fixed", "count": 4}, {"kind": "poisson", "rate": 0.7}]
)
@pytest.mark.parametrize("transport", [{}, SECURE])
def test_sums_hold_survivors_and_are_divided_by_public_numbers(transport, participation):
    plan = plan_of(participation=participation, transport=transport)
    before, lost, aborted = torch.zeros(3, LENGTH), 0, 0
    for number, (models, stats, seats) in enumerate(played(plan)):
        turnout = group_turnout(plan, number)
        parties = np.bincount(seats.groups, minlength=3)
        sent = np.bincount(seats.groups[turnout.sent], minlength=3)
        least = [threshold_of(None, int(n)) if transport and n > 1 else 0 for n in parties]
        expected = np.where(sent >= least, sent, 0)
        step = (models - before)[:, 0].numpy()
        np.testing.assert_allclose(step, 0.25 * expected / plan.denominators, rtol=1e-5, atol=1e-7)
        assert (turnout.counts == expected).all()
        assert stats.participants.tolist() == sorted(set(seats.workers[turnout.received].tolist()))
        lost, aborted, before = (
            lost + int((parties - sent).sum()),
            aborted + int((sent < least).sum()),
            models,
        )
    assert lost > 10
    assert (aborted > 0) == bool(transport)


@pytest.mark.parametrize("trusted", [1.0, []])
def test_a_group_below_its_threshold_releases_nothing_not_even_noise(trusted):
    plan = plan_of(noise=2.0, transport=SECURE, trust={"trusted_aggregators": trusted})
    before, seen = torch.zeros(3, LENGTH), set()
    for number, (models, _, _) in enumerate(played(plan)):
        formed = group_turnout(plan, number).formed
        assert ((models != before).any(dim=1).numpy() == formed).all()
        before = models
        seen |= set(formed.tolist())
    assert seen == {True, False}


def test_workers_noise_is_that_of_the_survivors():
    """With no signal at all, the variance of a sum is that of as many workers as were left."""
    plan = plan_of(noise=2.0, trust={"trusted_aggregators": []})
    before, squares, wanted = torch.zeros(3, LENGTH), [], []
    for number, (models, stats, _) in enumerate(played(plan)):
        step = (models - before)[:, 1:].double().numpy()  # coordinates without a signal
        counts = group_turnout(plan, number).counts
        variance = 4.0 * counts / plan.denominators**2
        squares.append((step**2).sum(axis=1))
        wanted.append(2 * variance)
        assert stats.noise_std == pytest.approx(np.sqrt(variance.mean()))
        before = models
    assert np.sum(squares) == pytest.approx(np.sum(wanted), rel=0.5)


def test_who_drops_out_does_not_depend_on_who_is_drawn():
    everybody = plan_of()
    drawn = plan_of(participation={"kind": "fixed", "count": 3})
    for number in range(ROUNDS):
        all_seats, some = draw_assignments(everybody, number), draw_assignments(drawn, number)
        pairs = zip(all_seats.groups.tolist(), all_seats.workers.tolist(), strict=True)
        sent = dict(zip(pairs, group_turnout(everybody, number).sent.tolist(), strict=True))
        mine = group_turnout(drawn, number).sent.tolist()
        theirs = zip(some.groups.tolist(), some.workers.tolist(), strict=True)
        assert mine == [sent[pair] for pair in theirs]


def test_messages_are_lost_at_the_declared_rate():
    plan = plan_of()
    sent = np.concatenate([group_turnout(plan, number).sent for number in range(200)])
    assert sent.mean() == pytest.approx(0.7, abs=4 * (0.21 / len(sent)) ** 0.5)


def test_models_are_averaged_over_those_that_arrive():
    """MS-FedAvg, which adds no noise: every worker's model is a quarter ahead, so the average is."""
    for number, (models, _, _) in enumerate(played(plan_of("ms-fedavg"), 3)):
        assert models[:, 0].tolist() == pytest.approx([0.25 * (number + 1)] * 3)


def test_inside_an_interval_updates_may_be_lost_and_still_count_at_its_end():
    """DP-OGL+: who drops out in a round sends at the end what it has gathered, if it is there then."""
    plan = plan_of("dp-ogl+", noise=0.01)
    training = plan.spec.training.model_copy(update={"merge_every": 3})
    plan = resolve(plan.spec.model_copy(update={"training": training}))
    for number, (models, _, _) in enumerate(played(plan, 3)):
        assert torch.isfinite(models).all()
        if number == 2:
            counts = group_turnout(plan, number).counts
            wanted = 0.75 * counts / plan.denominators
            assert models[:, 0].tolist() == pytest.approx(wanted.tolist(), abs=0.05)


@pytest.mark.usefixtures("no_report")
def test_a_run_keeps_its_survivors_and_verifies(tmp_path):
    plan = plan_of(noise=3.0, transport=SECURE, trust={"trusted_aggregators": [0]})
    folder = simulate.run(plan.spec, out=tmp_path / "run").folder
    survivors = read_ledger(folder.path)["realised"]["survivors"]
    assert survivors == [group_turnout(plan, number).counts.tolist() for number in range(ROUNDS)]
    assert check_run(folder.path).problems == []
