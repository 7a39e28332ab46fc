"""What an audit of groups plays."""

import torch

from sfumato.auditing.groups import GroupHarness
from sfumato.privacy.observers import Party
from sfumato.schedule.resolve_groups import resolve_groups
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
