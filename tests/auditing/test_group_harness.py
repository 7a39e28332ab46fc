"""What an audit of groups plays."""

import numpy as np
import pytest
import torch

from sfumato.auditing import audit_pair
from sfumato.auditing.groups import GroupHarness
from sfumato.privacy.observers import Party
from sfumato.schedule.group_participation import draw_assignments, group_turnout
from sfumato.schedule.resolve.groups import resolve_groups
from sfumato.spec.load import load_spec

SPEC = {
    "name": "audited",
    "protocol": "dp-ogl",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {"kind": "groups", "structure": "list", "groups": [[0, 1, 2], [2, 3]]},
    "training": {"rounds": 3, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
}


def test_masters_send_plain_averages_whatever_their_optimizer_is() -> None:
    """An optimizer's first step from no moments would hide the size of the unit's message from the test."""
    found = []
    for server in ("{}", "{optimizer: adam, learning_rate: 0.1}", "{momentum: 0.9, learning_rate: 2}"):
        plan = resolve_groups(load_spec(SPEC, [f"training.server={server}"]))
        harness = GroupHarness(plan, 0, (Party("device", 0, 1),))
        ((seen,),) = harness.simulate(1, taking_part=True, signs=torch.ones(4), seed=3)
        found.append({key: vector.tolist() for key, vector in seen.items()})
    assert found[0]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("participation", ["{kind: poisson, rate: 0.5}", "{kind: fixed, count: 2}"])
def test_both_worlds_have_the_same_others_and_lose_the_same_messages(participation: str) -> None:
    """What differs between a round with the unit and one without it is the unit, and whom it replaces."""
    overrides = ["topology.groups=[[0, 1, 2, 3, 4], [4, 5]]", f"training.participation={participation}"]
    plan = resolve_groups(load_spec(SPEC, [*overrides, "faults={dropout_rate: 0.5}"]))
    harness = GroupHarness(plan, 0, (Party("device", 0, 1),))
    for seed in range(20):
        worlds = [harness._with_participation(plan, 0, part, seed) for part in (True, False)]
        seats = [draw_assignments(world, 0) for world in worlds]
        there, away = (set(s.workers[s.groups == 0].tolist()) for s in seats)
        assert 0 in there
        assert 0 not in away
        assert len(there - away) == 1
        assert len(away - there) == (1 if plan.cohort else 0)
        lost = []
        for world, seat in zip(worlds, seats, strict=True):
            turnout = group_turnout(world, 0)
            assert turnout is not None
            both = np.isin(seat.workers, list(there & away)) & (seat.groups == 0)
            lost.append(seat.workers[both & ~turnout.received].tolist())
        assert lost[0] == lost[1]


@pytest.mark.parametrize("observer", ["device:1", "master:0", "device:3"])
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["trust.trusted_aggregators=[]"],
        ["trust.trusted_aggregators=[]", "transport.devices_to_master=secure-aggregation"],
        ["training.participation={kind: poisson, rate: 0.5}"],
        ["training.participation={kind: fixed, count: 2}"],
        ["protocol=dp-ogl-local", "training.merge_every=2", "training.rounds=6"],
    ],
    ids=["masters", "workers", "secure sums", "poisson", "fixed", "intervals"],
)
def test_groups_that_lose_messages_hold(overrides: list[str], observer: str) -> None:
    spec = load_spec(SPEC, ["training.rounds=6", "faults={dropout_rate: 0.3}", *overrides])
    found = audit_pair(resolve_groups(spec), "device:0", observer, trials=2_000)
    assert found.holds, found
