"""Which specs cannot be deployed yet: each is refused with one line, before anything is sent.

What is accepted was derived in docs/deployment.md. A new key of a spec has to be looked at here:
tests/deployment/test_refused_specs.py lists those that were.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from sfumato.data.dataset_sizes import known_examples
from sfumato.errors import SpecError
from sfumato.families import TREE, family_of
from sfumato.schedule.base import Plan
from sfumato.schedule.integer_grid import IntArray, IntegerGrid, integer_grid_of
from sfumato.schedule.message_grid import message_lengths
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec
from sfumato.spec.refusals import Refusals, refuse_first
from sfumato.wire.errors import QuantisationError

MOST_NOISE = 2.0**46  # steps, that the sampler of discrete Gaussians draws


def require_deployable(plan: Plan, parameters: int) -> TreePlan:
    """``plan`` itself, after a check that its devices and aggregators can be real parties.

    Args:
        plan: resolved.
        parameters: M, length of the model's flat vector.

    Raises:
        SpecError: it cannot be deployed; the message names the key.
        DataError: the data set, from which the sizes follow, is neither tabulated nor on this machine.
    """
    assert family_of(plan.spec) is TREE
    plan = cast(TreePlan, plan)
    plan.require_one_tree("networks that change are not deployed yet")
    refuse_first(refused_in_any_topology(plan.spec))
    refuse_first(_of_tree(plan))
    if known_examples(plan.spec, plan.tree.devices) is None:
        allowed = "must be one that settles how much data a device has: it compares its own with that"
        raise SpecError("data.partition", plan.spec.data.partition.kind, allowed)
    _require_grids(plan, parameters)
    return plan


def refuse_groups_over_flower(spec: Spec) -> None:
    """Check that the topology is a tree: a worker of groups would need a SuperNode for each of its masters.

    Raises:
        SpecError: the topology is groups.
    """
    if family_of(spec) is not TREE:
        only = "must be star or tree over Flower: groups do without it, on one machine or several"
        raise SpecError("topology.kind", spec.topology.kind, only)


def require_own_loop_fits(spec: Spec) -> None:
    """Check that a spec may be trained by a loop of a device's owner; see `own_loop`.

    Raises:
        SpecError: its guarantees need Sfumato's own local training; the message names the key.
    """
    refuse_first(_of_own_loop(spec))


def _of_own_loop(spec: Spec) -> Refusals:
    """What a spec must not say where a device trains with a loop of its owner's."""
    privacy, clip = spec.privacy, spec.privacy.clip
    bounds = "with an own loop; protection of records and persons needs Sfumato's own training"
    yield privacy.unit != "device", "privacy.unit", privacy.unit, f"must be device {bounds}"
    kind = None if clip is None else clip.kind
    updates = "must be update with an own loop, whose gradients nobody clips"
    yield kind != "update", "privacy.clip.kind", kind, updates
    groups = "must be star or tree with an own loop, which trains no workers of groups yet"
    yield family_of(spec) is not TREE, "topology.kind", spec.topology.kind, groups
    drawn = "must be shuffled with an own loop: it draws none, and the ε of records would count on it"
    yield spec.training.batches == "poisson", "training.batches", "poisson", drawn


def _require_grids(plan: TreePlan, parameters: int) -> None:
    """Refuse a plan where a round has no grid, several grids, or noise or messages beyond its grid.

    Looked at are all rounds: the unit of a round, on which its grid depends, follows the learning rate.
    ``parameters``: M, length of the model's flat vector.

    Raises:
        SpecError: the plan is refused.
    """
    everybody = np.arange(plan.tree.device_count, dtype=np.int64)
    leaves = plan.tree.leaves_of(everybody)
    aggregations = range(len(plan.aggregations))
    seen: set[float] = set()
    for number in range(plan.spec.training.rounds):
        if (unit := plan.message_scale(number)) in seen:
            continue
        seen.add(unit)
        grids = [integer_grid_of(plan, number, index, everybody, parameters) for index in aggregations]
        if len({grid.scale for grid in grids}) > 1:
            allowed = (
                f"must give aggregations of round {number + 1:,} one grid, which adds them up: equally many"
                " local steps do"
            )
            raise SpecError("training.edge_every", None, allowed)
        for index, grid in enumerate(grids):
            _require_noise_fits(plan, index, grid, leaves, parameters)


def _require_noise_fits(
    plan: TreePlan, index: int, grid: IntegerGrid, leaves: IntArray, parameters: int
) -> None:
    """Refuse noise that the sampler or the sums of 64 bits have no room for, at any device, edge or cloud.

    ``index``: of the aggregation; ``parameters``: M.

    Raises:
        SpecError: there is some.
    """
    everybody = np.arange(plan.tree.device_count, dtype=np.int64)
    bounds = message_lengths(plan, index, everybody, parameters)
    stds = plan.device_stds_of(index, everybody)
    classes = np.unique(np.stack([leaves, bounds, stds])[:, bounds > 0], axis=1)
    try:
        for leaf, bound, std in classes.T.tolist():
            grid.device_rounding(int(leaf), bound, std)
    except QuantisationError as error:
        raise SpecError("privacy.noise", None, f"must fit the grid of messages: {error}") from None
    for tier in range(plan.tree.depth):
        most = float(plan.releases.steps[index].node_std[tier].max()) * grid.unit
        steps = max(grid.node_steps(tier, node, most) for node in range(plan.tree.tiers[tier].size))
        if steps > MOST_NOISE:
            allowed = f"must be at most 2^46 steps of the grid; an aggregator's has {steps:.3g}"
            raise SpecError("privacy.noise", None, allowed)


def refused_in_any_topology(spec: Spec) -> Refusals:
    """The settings that no deployment has, of trees or of groups, as rows (applies, key, value, allowed).

    If ``applies`` of a row is true, the spec is refused with an error about ``key``.
    """
    training, privacy = spec.training, spec.privacy
    hops = [hop for hop in spec.transport if spec.transport[hop] == "air"]
    sent = f"transport.{hops[0]}" if hops else "transport"
    no_air = "must be plain or secure-aggregation: parties send bytes, and no waves"
    yield spec.sends_over_the_air or bool(hops), sent, spec.transport.get(hops[0]) if hops else None, no_air
    no_clip = "must be there: without a clip nothing bounds what noise has to hide"
    yield privacy.clip is None, "privacy.clip", None, no_clip
    at_steps = "must be message: noise at local steps is of floating point, and is only simulated"
    yield privacy.step_noise > 0, "privacy.noise.at", "step", at_steps
    own = "must be left out: what is deployed adds discrete Gaussian noise, exact to the bit"
    yield privacy.mechanism is not None, "privacy.mechanism", None, own
    listed = "must be zero-out or replace: every party has the list of keys, which tells who is there"
    yield privacy.neighbours == "remove", "privacy.neighbours", "remove", listed
    yield spec.elects_supernodes, "topology.supernodes", "elected", "is not deployed yet"
    code = "must be a built-in one: no device runs code that a spec names; an owner's consent may name a loop"
    yield ":" in spec.model.kind, "model.kind", spec.model.kind, code
    yield ":" in (training.loss or ""), "training.loss", training.loss, code
    for key in ("compression", "control"):
        yield getattr(spec, key) is not None, key, None, "must be left out: it is not deployed yet"
    yield training.keeps_variates, "training.drift_correction", "scaffold", "is not deployed yet"
    yield training.global_update == "resend", "training.global_update", "resend", "is not deployed yet"
    bounded = "messages of clipped examples are bounded by their gradients; use privacy.clip.kind: update"
    adam, decay = training.optimizer.kind == "adam", training.weight_decay
    yield privacy.clips_examples and adam, "training.optimizer", "adam", f"must be sgd here: {bounded}"
    yield privacy.clips_examples and decay, "training.weight_decay", decay, f"must be 0 here: {bounded}"
    adapts = privacy.clip is not None and privacy.clip.adapt is not None
    yield adapts, "privacy.clip.adapt", None, "must be left out: it is not deployed yet"


def _of_tree(plan: TreePlan) -> Refusals:
    """Yield (is refused, key, its value, what must be instead) for each limit on a resolved tree."""
    tree = plan.tree
    yield tree.depth > 2, "topology.levels", tree.depth, "must be a star, or edges under the cloud"
    unlike = any(one.of_edge or one.edge_broadcasts for one in plan.aggregations)
    yield (
        unlike,
        "training.edge_every",
        None,
        "must be one number: periods of single edges are not deployed yet",
    )
    yield from _of_fixed_draws(plan)
    moving = plan.participants.most is not None
    yield moving, "training.denominator", None, "must be a number that does not depend on who takes part"


def _of_fixed_draws(plan: TreePlan) -> Refusals:
    """Yield refusals, as `_of_tree`, of a fixed number of drawn devices; derived in docs/deployment.md."""
    if plan.participants.kind != "fixed":
        return
    everybody = np.arange(plan.tree.device_count, dtype=np.int64)
    steps = range(len(plan.releases.steps))
    place, drawn = "training.participation", "must be all or poisson here: who draws a fixed number must"
    untrusted = not plan.tree.tiers[-1].trusted.all()
    yield untrusted, place, "fixed", f"{drawn} be trusted with raw updates by all devices"
    noisy = any(plan.device_stds_of(index, everybody).any() for index in steps)
    yield noisy, place, "fixed", f"{drawn} add the noise, and no device"
    masked = bool(plan.hops) and plan.hops[-1] != "plain"
    yield masked, place, "fixed", f"{drawn} receive single messages, over a plain hop"
    yield plan.spec.faults is not None, place, "fixed", f"{drawn} have everybody's answers: leave faults out"
