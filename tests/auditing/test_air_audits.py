"""Audits of messages that add up in the air."""

from typing import Any

import numpy as np
import pytest
import torch
from audit_worlds import air_plan

from sfumato.auditing import audit_pair
from sfumato.auditing.tree import TreeHarness, tree_harness
from sfumato.errors import SpecError
from sfumato.privacy.observers import Party
from sfumato.schedule.tree import TreePlan

CLOUD = (Party("node", 0, 0),)
TREE = {
    "protocol": "h2fdp",
    "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 4},
    "transport": {"devices_to_edge": "air"},
}
BY_POWER = {"air": {"power_control": "wfl-p"}}
BY_FORMULA = {"air": {}, "privacy": {"noise": {"formula": "pfels", "epsilon": 1.5}, "delta": 1e-3}}


def as_tree(plan: Any) -> TreePlan:
    assert isinstance(plan, TreePlan)
    return plan


@pytest.mark.parametrize(
    ("sections", "observer", "near"),
    [
        ({}, "cloud", 0.6),
        ({}, "public", 0.6),
        ({}, "device:3", 0.6),
        (TREE, "edge:0", 0.6),
        (TREE | {"trust": {"trusted_edges": [0]}}, "cloud", 0.3),
        ({"privacy": {"neighbours": "replace"}}, "cloud", 0.6),
        ({"training": {"participation": {"kind": "poisson", "rate": 0.6}}}, "public", 0.2),
        ({"training": {"participation": {"kind": "poisson", "rate": 0.6}}}, "cloud", 0.2),
        ({"training": {"participation": {"kind": "fixed", "count": 8}}}, "cloud", 0.2),
        (BY_POWER, "cloud", 0.0),
        (BY_FORMULA, "cloud", 0.1),
        (BY_FORMULA | {"compression": {"kind": "rand-k", "ratio": 0.3}}, "cloud", 0.1),
        (BY_FORMULA | {"air": {"csi": {"gain_error": 0.2, "max_error_std": 2}}}, "cloud", 0.05),
        ({"air": {"power_control": "fixed", "beta": 1.7, "min_gain": 0.15}}, "cloud", 0.3),
    ],
)
def test_no_more_is_shown_than_promised(sections: dict[str, Any], observer: str, near: float) -> None:
    found = audit_pair(air_plan(**sections), "device:0", observer, trials=4_000)
    assert near * found.upper <= found.lower.epsilon <= found.upper, found


def test_amplitudes_are_those_of_the_model_of_the_spec_however_many_trials_there_are() -> None:
    """What is received of a longest message, over the noise in it, is the plan's own alignment."""
    plan = as_tree(air_plan(**BY_FORMULA, training={"rounds": 1}))
    assert plan.air is not None
    sizes = []
    for trials in (30_000, 60_000):
        ((heard,),) = TreeHarness(plan, 0, CLOUD).simulate(
            0, taking_part=True, signs=torch.tensor([1.0, 0.0]).repeat(trials // 2), seed=plan.spec.seed
        )
        values = heard[0, 0, "received", 0].reshape(-1, 2)
        sizes.append((values[:, 0] - values[:, 1]).mean() / values[:, 1].std())
    devices = np.arange(12, dtype=np.int64)
    real = plan.air.sending(0, 0, devices, np.zeros(12), 200 * 10 + 10)
    yields = min(1.0, np.sqrt(real.limit[0]) / real.amplitude[0])
    expected = real.alignment[0] * yields
    # the mean errs by 5.2 of its standard deviations with probability 2e-7, the deviation by less than 3 %
    assert sizes == pytest.approx([expected] * 2, abs=5.2 * np.sqrt(2 / 15_000) + 0.03 * expected)


def test_what_cannot_be_played_is_refused() -> None:
    with pytest.raises(SpecError, match="bits"):
        tree_harness(as_tree(air_plan(compression={"kind": "rand-k", "ratio": 0.3, "bits": 8})), 0, CLOUD)
    compression = {"kind": "rand-k", "ratio": 0.3, "error_feedback": True}
    with pytest.raises(SpecError, match="error_feedback"):
        tree_harness(as_tree(air_plan(compression=compression)), 0, CLOUD)
