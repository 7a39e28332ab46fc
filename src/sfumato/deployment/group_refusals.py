"""Which specs of overlapping groups cannot be deployed yet, each with one line; trees are in `refusals`.

What is accepted was derived in docs/deployment-groups.md.
"""

from __future__ import annotations

from typing import cast

from sfumato.data.dataset_sizes import known_examples
from sfumato.deployment.refusals import MOST_NOISE, refused_in_any_topology
from sfumato.errors import SpecError
from sfumato.families import GROUPS, family_of
from sfumato.schedule.base import Plan
from sfumato.schedule.groups import HOP, GroupPlan
from sfumato.schedule.integer_grid import group_integer_grid
from sfumato.spec.refusals import Refusals, refuse_first
from sfumato.spec.topology import GroupTopology
from sfumato.wire.errors import QuantisationError


def require_deployable_groups(plan: Plan, parameters: int) -> GroupPlan:
    """``plan`` itself, after a check that its workers and masters can be real parties.

    Args:
        plan: resolved, of groups.
        parameters: P, length of the model's flat vector.

    Raises:
        SpecError: it cannot be deployed; the message names the key.
        DataError: the data set, from which the sizes follow, is neither tabulated nor on this machine.
    """
    assert family_of(plan.spec) is GROUPS
    plan = cast(GroupPlan, plan)
    refuse_first(_of_groups(plan))
    refuse_first(refused_in_any_topology(plan.spec))
    if known_examples(plan.spec, plan.devices_per_place) is None:
        allowed = "must be one that settles how much data a worker has: it compares its own with that"
        raise SpecError("data.partition", plan.spec.data.partition.kind, allowed)
    for group in range(plan.groups.count):
        _require_grid(plan, group, parameters)
    return plan


def _of_groups(plan: GroupPlan) -> Refusals:
    """What is refused of groups besides what `refused_in_any_topology` lists."""
    spec, topology = plan.spec, plan.spec.topology
    assert isinstance(topology, GroupTopology)
    unclipped = "must noise all that is sent; here some is neither clipped nor noised: use dp-ogl-local"
    yield not plan.noises_every_update, "protocol", spec.protocol, unclipped
    variant = "must be a built-in one: no device runs code that a spec names"
    yield spec.protocol != plan.kind, "protocol", spec.protocol, variant
    rounds, every = spec.training.rounds, plan.merge_every
    sent = f"must be at least training.merge_every ({every}): nothing is sent before an interval ends"
    yield plan.by_interval and rounds < every, "training.rounds", rounds, sent
    labels = "must not follow from labels: which ones a worker holds is not accounted"
    yield topology.by_labels, "topology.structure", topology.structure, labels
    yield topology.eras, "topology.eras", None, "must be left out: groups that change are not deployed yet"
    masked = "must be plain: sums of groups under masks are not deployed yet"
    yield spec.transport.get(HOP, "plain") != "plain", f"transport.{HOP}", spec.transport.get(HOP), masked
    yield spec.faults is not None, "faults", None, "must be left out: in groups everybody takes part"
    drawn, everybody = spec.training.participation.kind, "must be all: in groups everybody takes part"
    yield drawn != "all", "training.participation", drawn, everybody
    example = spec.privacy.clips_examples
    whole = "must be update: examples that are clipped are not deployed in groups yet"
    yield example, "privacy.clip.kind", "example", whole
    record = "must be device: records are not protected by deployed groups yet"
    yield spec.privacy.unit != "device", "privacy.unit", spec.privacy.unit, record


def _require_grid(plan: GroupPlan, group: int, parameters: int) -> None:
    """Refuse a group whose messages have no grid, or noise that is beyond it; ``parameters``: P of a model.

    All rounds are alike.

    Raises:
        SpecError: the group is refused.
    """
    grid = group_integer_grid(plan, 0, group, parameters)
    noise, bound = float(plan.noise_std(0)[group]), float(plan.bounds[group])
    master = bool(plan.trusted[group])
    try:
        grid.device_rounding(0, bound, 0.0 if master else noise)
    except QuantisationError as error:
        raise SpecError("privacy.noise", None, f"must fit the grid of messages: {error}") from None
    steps = grid.node_steps(0, 0, noise / float(plan.denominators[group])) if master else 0.0
    if steps > MOST_NOISE:
        allowed = f"must be at most 2^46 steps of the grid; a master's has {steps:.3g}"
        raise SpecError("privacy.noise", None, allowed)
