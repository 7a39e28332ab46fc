"""Which plans have a grid of sums, and what its step follows from."""

from __future__ import annotations

import math

import pytest

from sfumato.families import family_of
from sfumato.schedule.message_grid import ROUNDINGS, group_grid, tree_grid
from sfumato.schedule.resolve import resolve
from sfumato.schedule.resolve.groups import resolve_groups
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.spec.load import load_spec

LENGTH = 7850
EXAMPLES = "privacy.clip={kind: example, norm: 0.001}"
GROUPS = {
    "name": "groups",
    "protocol": "dp-ogl",
    "data": {"source": "synthetic", "examples_per_device": 200},
    "model": {"kind": "softmax"},
    "topology": {"kind": "groups", "structure": "ring", "groups": 3, "devices": 12},
    "training": {
        "rounds": 2,
        "local_steps": 20,
        "batch_size": 50,
        "learning_rate": 0.1,
        "batches": "poisson",
    },
    "privacy": {
        "unit": "record",
        "clip": {"kind": "example", "norm": 0.001},
        "noise": {"multiplier": 1.0},
    },
}


@pytest.mark.parametrize(
    ("settings", "has_grid"),
    [
        (("privacy.noise={multiplier: 2}",), True),
        (("privacy.noise=none",), False),
    ],
)
def test_a_plan_without_noise_has_no_grid(settings: tuple[str, ...], has_grid: bool) -> None:
    plan = resolve_tree(load_spec("quickstart", settings))
    assert (tree_grid(plan, 0, 0, LENGTH) is not None) == has_grid


def test_noise_at_the_steps_needs_none_where_examples_are_clipped() -> None:
    at_steps = GROUPS | {"privacy": GROUPS["privacy"] | {"noise": {"multiplier": 1.0, "at": "step"}}}
    assert group_grid(resolve_groups(load_spec(at_steps)), 0, LENGTH) is None


def test_the_shortest_move_of_a_group_is_one_gradient() -> None:
    plan = resolve_groups(load_spec(GROUPS))
    grid = group_grid(plan, 0, LENGTH)
    assert grid is not None
    gradient = 0.001 * 0.1 / 50
    assert grid.step * math.sqrt(LENGTH) <= ROUNDINGS * 2.0**-24 * gradient
    assert grid.limit * grid.step >= 20 * 50 * gradient  # a whole batch of all steps fits


@pytest.mark.parametrize("spec", [GROUPS, "quickstart"])
def test_a_run_folder_states_the_steps(spec: object) -> None:
    plan = resolve(load_spec(spec))
    steps = family_of(plan.spec).sum_steps(plan, LENGTH)
    assert steps
    assert all(step is not None and 0 < step < 1e-6 for step in steps)
