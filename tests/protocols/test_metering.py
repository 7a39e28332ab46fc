"""A run's energy, time and bytes are those of the messages of its rounds."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.radio.costs import Cost, TreeCosts
from sfumato.radio.group_costs import GroupCosts
from sfumato.schedule.group_participation import draw_assignments
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.resolve import resolve
from sfumato.simulation.run import run
from sfumato.spec.load import load_spec

pytestmark = pytest.mark.usefixtures("no_report")

SOFTMAX_ON_DIGITS = 64 * 10 + 10
COLUMNS = ["energy_j", "delay_s", "bytes_up", "bytes_down"]


def metered(costs: list[Cost]) -> list[list[float]]:
    return [[float(getattr(cost, column)) for column in COLUMNS] for cost in costs]


@pytest.mark.parametrize(
    "radio", ["{preset: h2fdp, shadowing_db: 4}", "{preset: h2fdp, access: ofdma}", "{preset: pfels}"]
)
def test_a_tree(radio, tmp_path) -> None:
    changes = ["training.rounds=3", "training.participation={rate: 0.2}", f"radio={radio}"]
    spec = load_spec("quickstart", [*changes, "topology={kind: tree, edges: 3, devices_per_edge: 8}"])
    found = run(spec.model_copy(update={"trust": type(spec.trust)()}), out=tmp_path / "run").metrics
    plan = resolve(load_spec(tmp_path / "run" / "spec.yaml"))
    costs = TreeCosts.of(plan.spec, plan.tree, SOFTMAX_ON_DIGITS)
    expected = []
    for number in range(3):
        total = Cost()
        for aggregation in plan.aggregations:
            devices = draw_participants(plan, number)
            total = total.then(costs.round(number).aggregation(aggregation.tier, devices))
        expected.append(total)
    assert len(plan.aggregations) == 2
    assert found[COLUMNS].to_numpy() == pytest.approx(np.array(metered(expected)))


@pytest.mark.parametrize("transport", ["plain", "secure-aggregation"])
def test_groups(transport, tmp_path) -> None:
    spec = load_spec(
        {
            "name": "ring", "protocol": "dp-ogl-local", "data": {"source": "digits"}, "model": "softmax",
            "topology": {"kind": "groups", "structure": "ring", "devices": 20, "groups": 4},
            "training": {
                "rounds": 4, "merge_every": 2, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1,
                "participation": {"rate": 0.7},
            },
            "privacy": {
                "clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0},
            },
            "transport": {"devices_to_master": transport},
        }
    )  # fmt: skip
    found = run(spec, out=tmp_path / "run").metrics
    plan = resolve(load_spec(tmp_path / "run" / "spec.yaml"))
    costs, expected = GroupCosts.of(plan.spec, plan.groups, SOFTMAX_ON_DIGITS), []
    for number in range(4):
        seats = draw_assignments(plan, plan.interval_start(number))
        links = plan.groups.positions(seats.groups, seats.workers)
        # inside an interval nothing is sent
        expected.append(costs.round(number, links) if number % 2 else Cost())
    assert found[COLUMNS].to_numpy() == pytest.approx(np.array(metered(expected)))
