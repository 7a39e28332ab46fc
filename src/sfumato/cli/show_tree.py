"""``sfumato show`` for a tree or a star: the parties below each other, their trust and their noise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato.claims.pfels_bound import advised_ratio
from sfumato.cli.console import empty_table, with_noun
from sfumato.cli.plan_summary import (
    describe_dropouts,
    describe_radio,
    describe_section,
    describe_training,
    first_rows,
)
from sfumato.rounding import lower_bound, number
from sfumato.schedule.model_size import parameter_count

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table
    from rich.tree import Tree

    from sfumato.schedule.air.power_control import AirPlan
    from sfumato.schedule.tree import TreePlan
    from sfumato.spec.control import Control
    from sfumato.spec.document import Spec
    from sfumato.spec.faults import Faults
    from sfumato.spec.privacy import ClipSettings, Noise

MOST_NODES = 40


@dataclass(frozen=True)
class TreeSummary:
    """The summary of a plan over a tree."""

    legend: ClassVar[str] = "×z: standard deviation z times the zero-out sensitivity of the message noised"

    plan: TreePlan

    def rows(self) -> Iterable[tuple[str, str]]:
        """Pairs of the name and the value of each property of the plan, as texts; see `PlanSummary.rows`."""
        return _property_rows(self.plan)

    def drawing(self) -> Tree | Table:
        """The tree as a drawing; a tree of more than `MOST_NODES` aggregators as a table of its levels."""
        small = sum(tier.size for tier in self.plan.tree.tiers) <= MOST_NODES
        return _tree_drawing(self.plan) if small else _level_table(self.plan)


def _zone_rows(spec: Spec) -> Iterable[tuple[str, str]]:
    """Yield (name, value) texts of zones, supernodes and transport, where they differ from the defaults."""
    topology = spec.topology
    rule = getattr(topology, "zones", None)
    if rule is not None:
        yield "zones", {"list": "as listed", "random": "at random"}.get(rule.kind, f"by {rule.kind}")
    if spec.elects_supernodes:
        yield "supernodes", "elected: in each round another device of every zone"
    hops = [f"{hop} by {how}" for hop, how in spec.transport.items() if how != "plain"]
    if hops:
        yield "transport", ", ".join(hops)


def _describe_faults(faults: Faults) -> str:
    """Probabilities of failures, and how the protocol continues after them, as text; "none" without any."""
    said = list(describe_dropouts(faults))
    if faults.supernode_failure_rate:
        repeats = faults.when_supernode_fails == "repeat"
        done = "the next one repeats its work" if repeats else "its zone skips the round"
        said.append(f"a supernode fails with probability {faults.supernode_failure_rate:g}: {done}")
    return ", ".join(said) or "none"


def _describe_control(control: Control) -> str:
    """The weights of adaptive control, and the ranges that it chooses from."""
    most = "all devices" if control.max_devices is None else with_noun(control.max_devices, "device")
    whose = "participants of every edge" if control.per_edge else "participants"
    whose = f"expected {whose}" if control.draw else whose
    return (
        f"chooses step size, local steps and {whose} in each round; weights: "
        f"energy {control.energy:g}, delay {control.delay:g}, "
        f"gap {control.optimality_gap_weight:g}/{control.optimality_gap_scale:g}; "
        f"at most {with_noun(control.max_steps, 'step')} and {most} of an edge; "
        f"step size: {control.step_size}; when the budget is spent: {control.budget_policy}"
    )


def _property_rows(plan: TreePlan) -> Iterable[tuple[str, str]]:
    """Yield (name, value) texts of the properties of a tree's plan, in the order in which they are shown."""
    from sfumato.radio.channels import Channels

    spec, tree = plan.spec, plan.tree
    training, privacy = spec.training, spec.privacy
    yield from first_rows(spec)
    tiers = [with_noun(tier.size, tier.name) for tier in tree.tiers[1:]]
    yield (
        "network",
        " under ".join([with_noun(tree.device_count, "device"), *reversed(tiers), "the cloud"]),
    )
    yield from _move_rows(plan)
    yield from _zone_rows(spec)
    yield "radio", describe_radio(spec, Channels.of_tree(spec, tree))
    yield "trusted", _describe_trusted(plan)
    yield "training", describe_training(spec)
    yield "aggregations", _describe_round(plan)
    if spec.control is None:
        yield "participation", _describe_participation(plan)
    else:
        full = "this summary shows the schedule behind the budget, with all devices"
        yield "control", f"{_describe_control(spec.control)}; {full}"
    for name in ("weights", "denominator", "drift_correction"):
        section = getattr(training, name)
        if section.kind not in ("uniform", "fixed", "none"):
            yield name.replace("_", " "), describe_section(section)
    if spec.faults is not None:
        yield "faults", _describe_faults(spec.faults)
    yield ("clip", "none" if privacy.clip is None else _describe_clip(privacy.clip))
    if plan.air is not None:
        yield "air", _describe_air(plan, plan.air)
    yield "noise", _describe_noise(privacy.requested_noise)
    yield "privacy", f"δ = {number(privacy.delta)}, neighbours {privacy.neighbours}"


def _describe_clip(clip: ClipSettings) -> str:
    """What is clipped to which norm, and how the norm follows: ``each update to norm 1``."""
    said = f"each {clip.kind} to norm {clip.norm:g}"
    if clip.adapt is None:
        return said
    return f"{said} in round 1, then adapted so that {clip.adapt.quantile:.3g} of the updates are not clipped"


def _move_rows(plan: TreePlan) -> Iterable[tuple[str, str]]:
    """Yield (name, value) texts of how many devices move, and when trust changes; none if neither does."""
    if not plan.eras:
        return
    places = [one.tree.leaves_of(np.arange(plan.tree.device_count)) for one in plan.structures]
    moved = int(np.logical_or.reduce([there != places[0] for there in places]).sum())
    name = plan.tree.tiers[-1].name
    yield (
        "moves",
        f"{with_noun(moved, 'device')} change their {name}; {with_noun(len(places), 'tree')} over the rounds",
    )
    for (_, before), (first, after) in pairwise(plan.eras):
        if (before.tree.tiers[-1].trusted != after.tree.tiers[-1].trusted).any():
            yield f"trusted from round {first + 1}", _describe_trusted(after)


def _describe_noise(noise: Noise) -> str:
    """The noise of the spec; if it is placed by zone, also the parties that add it."""
    placement = getattr(noise, "placement", None)
    if placement is None:
        return describe_section(noise)
    placed = placement.model_dump(exclude_none=True, exclude_defaults=True)
    names = {"cloud": "the cloud", "device_fraction": f"{placement.device_fraction} of every zone's devices"}
    where = ", ".join(names.get(who, f"{who} {share}") for who, share in placed.items())
    return f"{describe_section(noise.model_copy(update={'placement': None}))}, added by {where or 'no party'}"


def _describe_air(plan: TreePlan, air: AirPlan) -> str:
    """Transmission over the air as text: power control, receiver noise, and coordinates that are sent.

    Where the model's size is known, also the ratio of coordinates that PFELS's bound favours.
    """
    least = lower_bound(float(air.multiplier.min()))
    parts = [f"power control {air.rule}", f"receiver noise at least ×{least}"]
    parameters = parameter_count(plan.spec)
    if parameters is not None:
        parts.append(f"{air.coordinates(parameters):,} of {parameters:,} coordinates")
        advised = advised_ratio(plan, parameters)
        if advised is not None:
            parts.append(f"PFELS's bound (23) favours a ratio of {advised:g} (docs/pfels.md)")
    return ", ".join(parts)


def _describe_trusted(plan: TreePlan) -> str:
    """The trusted aggregators as text, tier by tier, at most 8 of each; "none" if no aggregator is."""
    parts = []
    for depth, tier in enumerate(plan.tree.tiers):
        marked = [int(index) for index in tier.trusted.nonzero()[0]]
        names = [plan.tree.titled(plan.tree.node_name(depth, index)) for index in marked[:8]]
        if marked:
            parts.append(
                ", ".join(names) + (f" … ({len(marked):,} of {tier.size:,})" if len(marked) > 8 else "")
            )
    return "; ".join(parts) or "none"


def _describe_round(plan: TreePlan) -> str:
    """A phrase on after which local steps which tier of the tree aggregates."""
    steps: dict[int, list[int]] = {}
    for aggregation in plan.aggregations:
        steps.setdefault(aggregation.tier, []).append(aggregation.step)
    epochs = plan.spec.training.local_epochs
    if epochs is not None:
        return f"{with_noun(epochs, 'local epoch')}, then one aggregation up to the cloud"
    parts = []
    for tier in sorted(steps, reverse=True):
        name = "global" if tier == 0 else plan.tree.tiers[tier].name
        listed = ", ".join(str(step) for step in steps[tier][:8]) + (" …" if len(steps[tier]) > 8 else "")
        parts.append(f"{name} aggregation after local step {listed}")
    own = plan.spec.training.edge_every
    if isinstance(own, tuple):
        listed = ", ".join(map(str, own[:8])) + (" …" if len(own) > 8 else "")
        parts.append(f"each {plan.tree.tiers[-1].name} every {listed} local steps, in order")
    if plan.aggregations[-1].edge_broadcasts:
        parts.append(f"each {plan.tree.tiers[-1].name} that is due broadcasts at the global step too")
    return "; ".join(parts)


def _describe_participation(plan: TreePlan) -> str:
    """A phrase on how participants are drawn."""
    participants = plan.participants
    if participants.kind == "poisson":
        return f"every device with probability {participants.rate:g}"
    if participants.kind == "fixed":
        every = f" of every {plan.tree.tiers[-1].name}" if plan.tree.depth > 1 else ""
        drawn = sorted({int(number) for number in participants.drawn})
        if len(drawn) > 1:
            return f"{drawn[0]} to {drawn[-1]} devices{every}, without replacement"
        return f"{with_noun(drawn[0], 'device')}{every}, without replacement"
    return "every device"


def _describe_added_noise(plan: TreePlan, multipliers: NDArray[Any]) -> str:
    """The noise of one party as text, ``noise ×1.5``; "" if it adds none.

    ``multipliers[a]``: its noise multiplier at aggregations by tier ``a``.
    """
    names = ["global", *(tier.name for tier in plan.tree.tiers[1:])]
    added = {names[tier]: float(value) for tier, value in enumerate(multipliers) if value > 0}
    if not added:
        return ""
    if len(set(added.values())) == 1:
        return f"noise ×{number(next(iter(added.values())))}"
    return "noise " + ", ".join(f"×{number(value)} at {name} aggregations" for name, value in added.items())


def _step_noise_text(plan: TreePlan) -> str:
    """The multiplier of what every device adds at every local step, ``×1.5 at every local step``; else ""."""
    step = plan.spec.privacy.step_noise
    return f"×{number(step)} at every local step" if step else ""


def _tree_drawing(plan: TreePlan) -> Tree:
    """The tree drawn for a terminal, with trust and noise at its nodes."""
    from rich.tree import Tree

    tree = plan.tree
    nodes: dict[tuple[int, int], Tree] = {}
    for depth, tier in enumerate(tree.tiers):
        for index in range(tier.size):
            trust = "trusted" if tier.trusted[index] else "untrusted"
            adds = _describe_added_noise(plan, plan.noise.node[depth][index])
            site = f" {tier.labels[index]}" if tier.labels else ""
            text = ", ".join(part for part in (f"{tree.node_name(depth, index)}{site}", trust, adds) if part)
            if depth == 0:
                nodes[depth, index] = Tree(text, highlight=False)
            else:
                nodes[depth, index] = nodes[depth - 1, int(tree.parents[depth][index])].add(text)
    for leaf in range(tree.leaf_count):
        step = _step_noise_text(plan)
        adds = f"noise {step}" if step else _describe_added_noise(plan, plan.noise.device[leaf])
        devices, noisy = with_noun(int(tree.devices[leaf]), "device"), int(_noisy_devices(plan)[leaf])
        who = "each" if noisy == tree.devices[leaf] else f"{noisy:,} of them"
        add = "adds" if who == "each" or noisy == 1 else "add"
        nodes[tree.depth - 1, leaf].add(f"{devices}, {who} {add} {adds}" if adds else devices)
    return nodes[0, 0]


def _noisy_devices(plan: TreePlan) -> NDArray[np.int64]:
    """Number of devices of each leaf that add noise, ``[leaves]``."""
    some, tree = plan.noise.noisy, plan.tree
    if plan.spec.privacy.step_noise:
        return tree.devices
    here = tree.devices if some is None else np.add.reduceat(some, tree.first_device[:-1], dtype=np.int64)
    return np.where((plan.noise.device > 0).any(axis=1), here, 0)


def _level_table(plan: TreePlan) -> Table:
    """A table with a row for each tier, for trees that are too large to draw."""
    shown = empty_table(
        "party", "number", "trusted", "add noise", "noise", right=("number", "trusted", "add noise")
    )
    rows = [
        (tier.name, tier.size, int(tier.trusted.sum()), int((noise > 0).any(axis=1).sum()), noise)
        for tier, noise in zip(plan.tree.tiers, plan.noise.node, strict=True)
    ]
    rows.append(("device", plan.tree.device_count, 0, int(_noisy_devices(plan).sum()), plan.noise.device))
    for name, size, trusted, adding, noise in rows:
        values = noise[noise > 0]
        span = "" if not values.size else f"×{number(float(values.min()))}"
        if values.size and values.max() > values.min():
            span += f" to ×{number(float(values.max()))}"
        if name == "device" and plan.spec.privacy.step_noise:
            span = _step_noise_text(plan)
        shown.add_row(name, f"{size:,}", f"{trusted:,}", f"{adding:,}", span)
    return shown
