"""Facts of a tree that spec.yaml determines: shape, participants, aggregations, bounds, noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sfumato.verify import read
from sfumato.verify.examples_held import examples_held
from sfumato.verify.read import Array, Json
from sfumato.verify.spec_settings import (
    WrittenEra,
    clip_kind,
    keeps_control_variates,
    may_drop_out,
    one_per_edge,
    places_of_named_sites,
    survival_threshold,
    tree_shape,
    trusted_edges,
    unlike_spec,
)
from sfumato.verify.tree_exposures import CheckedTree


def tree_spec_problems(spec: Json, tree: CheckedTree, era: WrittenEra | None) -> Iterator[str]:
    """Yield a line where a fact of a tree, or of one era of it, differs from spec.yaml.

    Args:
        spec: contents of spec.yaml.
        tree: the tree of ``ledger.json``.
        era: the rounds for which the tree holds; ``None`` where neither places nor trust change.
    """
    yield from _shape_problems(spec["topology"], tree, era)
    yield from _class_problems(spec, tree, era)
    yield from _participation_problems(spec, tree)
    yield from _step_problems(spec, tree, era)
    yield from certainty_problems(spec, tree)
    elected = spec["topology"].get("supernodes") == "elected"
    faults = spec.get("faults") or {}
    failing = read.figure(faults.get("supernode_failure_rate", 0.0))
    taken_over = faults.get("when_supernode_fails", "repeat") == "repeat"
    each = 1.0 / (1.0 - failing) if taken_over else 1.0  # whoever takes over is elected too
    stated = read.figure(tree.ledger["elections_per_round"])
    yield from unlike_spec("elections_per_round", stated, each if elected else 0.0)
    yield from _noise_source_problems(spec, tree, era)


def _shape_problems(topology: Json, tree: CheckedTree, era: WrittenEra | None) -> Iterator[str]:
    """Yield a line where tiers, parents of nodes or devices of leaves differ from spec.yaml.

    ``topology``: its section; the other arguments are those of `tree_spec_problems`.
    """
    names, parents, devices = tree_shape(topology)
    if era is not None:
        devices = np.bincount(era.places, minlength=len(devices)).tolist()
    yield from unlike_spec("tiers: names", tree.names == names, True)
    yield from unlike_spec("number of tiers", tree.depth, len(parents))
    for tier, (held, wanted) in enumerate(zip(tree.parents[1:], parents[1:], strict=True), start=1):
        yield from unlike_spec(f"tiers[{tier}].parents", held, wanted)
    yield from unlike_spec("number of clouds", len(tree.parents[0]), 1)
    yield from unlike_spec("devices_per_leaf", tree.devices, devices)


def _class_problems(spec: Json, tree: CheckedTree, era: WrittenEra | None) -> Iterator[str]:
    """Yield a line where the classes of devices (leaf, weight, noisy or not) do not fit spec.yaml.

    The arguments are those of `tree_spec_problems`.
    """
    inside = np.bincount(tree.class_leaf, tree.class_size, len(tree.devices))
    yield from unlike_spec("device_classes: devices of each leaf", inside, tree.devices)
    listed = tree.ledger.get("class_per_device")
    leaf_of = np.repeat(np.arange(len(tree.devices)), tree.devices)
    in_class = tree.class_per_device
    if listed is not None:
        leaf_of = leaf_of if era is None else np.array(era.places, dtype=np.int64)
        yield from unlike_spec("class_per_device: leaves", tree.class_leaf[in_class], leaf_of)
        sizes = np.bincount(in_class, minlength=len(tree.class_size))
        yield from unlike_spec("device_classes: devices", tree.class_size, sizes)
    elif len(tree.class_leaf) != len(tree.devices) or (np.diff(tree.class_leaf) != 1).any():
        yield "ledger.json: class_per_device: is missing; there are several classes in a leaf"
    elif era is not None and list(era.places) != sorted(era.places):
        yield "ledger.json: class_per_device: is missing; devices have moved"
    weights = spec["training"].get("weights") or {}
    examples = examples_held(spec)[0] if weights else None
    if weights.get("kind", "uniform") == "uniform":
        yield from unlike_spec("device_classes: weight", tree.class_weight, np.ones(len(tree.class_weight)))
    elif examples is not None:
        wanted = np.minimum(examples / read.figure(weights["examples"]), 1.0)
        yield from unlike_spec("device_classes: weight", tree.class_weight[in_class], wanted)
    elif (tree.class_weight < 0).any() or (tree.class_weight > 1).any():
        yield "ledger.json: device_classes: weight: must be from 0 to 1"


def _participation_problems(spec: Json, tree: CheckedTree) -> Iterator[str]:
    """Yield a line where the draw, who sees it, divisors or unmasking shares differ from spec.yaml.

    The arguments are those of `tree_spec_problems`.
    """
    ledger, part = tree.ledger, spec["training"]["participation"]
    drawn = tree.devices * part["rate"] if part["kind"] == "poisson" else tree.devices.astype(float)
    if part["kind"] == "fixed":
        drawn = np.array(one_per_edge(part["count"], len(tree.devices)), dtype=float)
    yield from unlike_spec("draw.kind", ledger["draw"]["kind"], part["kind"])
    rates = {"poisson": part.get("rate"), "all": 1.0, "fixed": float(np.max(drawn / tree.devices))}
    yield from unlike_spec("draw.rate", read.figure(ledger["draw"]["rate"]), rates[part["kind"]])
    yield from unlike_spec("participants_per_leaf", tree.drawn, drawn)
    seen_by = tree.names[0 if spec["protocol"] == "hdp" else -1]
    yield from unlike_spec("draw.seen_by", ledger["draw"]["seen_by"], f"{seen_by} of the device")
    names = [*tree.names, "devices"]
    hops = spec.get("transport") or {}
    wanted = [hops.get(f"{names[tier + 1]}_to_{names[tier]}", "plain") for tier in range(tree.depth)]
    yield from unlike_spec("number of hops", len(ledger["hops"]), tree.depth)
    for tier, (hop, stated) in enumerate(zip(ledger["hops"], wanted, strict=True)):
        yield from unlike_spec(f"hops[{tier}]", hop, stated)
    least, most = _least_and_largest_divisors(spec, tree, drawn)
    yield from unlike_spec("denominator_per_leaf", tree.least_divisor, least)
    yield from unlike_spec("largest_denominator_per_leaf", tree.most_divisor, most)
    moves = not np.allclose(least, most, rtol=1e-12, atol=0.0)
    yield from unlike_spec("denominator_depends_on_draw", ledger["denominator_depends_on_draw"], moves)
    sessions = [*tree.children, np.ceil(tree.drawn)]
    yield from unlike_spec("number of shares_that_unmask", len(ledger["shares_that_unmask"]), tree.depth)
    for tier, held in enumerate(ledger["shares_that_unmask"]):
        shares = [survival_threshold(spec, int(parties)) for parties in sessions[tier]]
        yield from unlike_spec(f"shares_that_unmask[{tier}]", read.counts(held), shares)


def _least_and_largest_divisors(spec: Json, tree: CheckedTree, drawn: Array) -> tuple[Array, Array]:
    """The least and the largest number by which the sum of each leaf is divided, ``[leaves]`` each.

    ``drawn``: expected number of devices drawn of each leaf. Both are the same where the divisor is fixed.
    """
    whole_weight = np.bincount(tree.class_leaf, tree.class_weight * tree.class_size, len(tree.devices))
    denominator = spec["training"].get("denominator") or {}
    if denominator.get("kind", "fixed") == "fixed":
        expected = drawn / tree.devices * whole_weight
        return expected, expected
    kind = spec["training"]["participation"]["kind"]
    least = np.zeros(len(tree.devices)) if kind == "poisson" else whole_weight.copy()
    most = whole_weight.copy()
    for leaf in range(len(most)) if kind == "fixed" else ():
        mine = tree.class_leaf == leaf
        weights = np.sort(np.repeat(tree.class_weight[mine], tree.class_size[mine]))
        count = round(float(drawn[leaf]))
        least[leaf], most[leaf] = weights[:count].sum(), weights[len(weights) - count :].sum()
    floor = drawn / tree.devices * denominator["min_weight"]
    return np.maximum(least, floor), np.maximum(most, floor)


def reach_of_steps(steps: int, momentum: float) -> float:
    """The largest l2 norm of the sum of ``steps`` clipped gradients with momentum, in clip norms.

    Σ_{j < steps} (steps − j) momentum^j.
    """
    return math.fsum((steps - j) * momentum**j for j in range(steps))


class SpecAggregation(NamedTuple):
    """An aggregation of a round as the spec asks for it.

    Attributes:
        step: after which local step, from 1.
        tier: of the nodes that aggregate.
        new: local steps of each leaf since its last one, ``[leaves]``; 0: the leaf takes no part.
        both: which leaves broadcast their own average besides, ``[leaves]``.
    """

    step: int
    tier: int
    new: npt.NDArray[np.int64]
    both: npt.NDArray[np.bool_]


def aggregations_of_round(training: Json, ledger: Json) -> list[SpecAggregation]:
    """The aggregations of one round that spec.yaml asks for, in order.

    Args:
        training: the section ``training`` of spec.yaml.
        ledger: contents of ledger.json, for the numbers of tiers and leaves.
    """
    depth, leaves = len(ledger["tiers"]), len(ledger["devices_per_leaf"])
    steps = training.get("local_steps") or 1
    above = [[period] * leaves for period in training.get("aggregate_every") or [steps] * (depth - 1)]
    if depth == 2 and training.get("edge_every") is not None:
        above = [one_per_edge(training["edge_every"], leaves)]
    periods = np.array(above, dtype=np.int64).reshape(len(above), leaves)
    found, before = [], np.zeros(leaves, dtype=np.int64)
    for step in range(1, steps + 1):
        due = step % periods == 0
        if step < steps and not due.any():
            continue
        tier = 0 if step == steps else int(np.argmax(due.any(axis=1))) + 1
        part = np.ones(leaves, dtype=np.bool_) if tier == 0 else due[tier - 1]
        both = due[-1] & bool(step == steps and training.get("edge_at_global")) if depth > 1 else ~part
        found.append(SpecAggregation(step, tier, np.where(part, step - before, 0), both))
        before = np.where(part, step, before)
    return found


def _step_problems(spec: Json, tree: CheckedTree, era: WrittenEra | None) -> Iterator[str]:
    """Yield a line where an aggregation of a round, or how far one device moves it, differs from spec.yaml.

    The arguments are those of `tree_spec_problems`.
    """
    training, kind = spec["training"], clip_kind(spec)
    rounds = aggregations_of_round(training, tree.ledger)
    yield from unlike_spec("number of steps", len(tree.steps), len(rounds))
    gains = np.zeros((len(rounds), len(tree.devices)))
    for place, one in enumerate(rounds):
        for new in np.unique(one.new[one.new > 0]).tolist():
            gain = reach_of_steps(new, training.get("momentum", 0.0)) if kind != "update" else 1.0
            gains[place, one.new == new] = gain
    leaves, resend = range(len(tree.devices)), training.get("global_update") == "resend"
    for place, (step, (when, tier, new, both)) in enumerate(zip(tree.steps, rounds, strict=True)):
        what = f"steps[{place}]"
        who = "global" if tier == 0 else tree.names[tier]
        yield from unlike_spec(f"{what}.name", step["name"], f"{who} aggregation at step {when}")
        yield from unlike_spec(f"{what}.aggregating_tier", read.count(step["aggregating_tier"]), tier)
        again = np.zeros(len(leaves), dtype=np.bool_)
        if resend and place == len(rounds) - 1:
            trusted = trusted_edges(spec, len(leaves)) if era is None else np.isin(leaves, era.trusted)
            again = trusted & ((gains > 0).sum(axis=0) > 1)
        held = [read.flag(one) for one in step["repeats_hidden_steps_per_leaf"]]
        yield from unlike_spec(f"{what}.repeats_hidden_steps_per_leaf", np.array(held, float), again)
        sends = np.array([tree.sends(place, leaf) for leaf in leaves], dtype=float)
        yield from unlike_spec(f"{what}.takes_part_per_leaf", sends, new > 0)
        told = np.array([tree.broadcasts(place, leaf) for leaf in leaves], dtype=float)
        yield from unlike_spec(f"{what}.also_broadcasts_per_leaf", told, both)
        bounds = np.where(again, gains.sum(axis=0) if kind != "update" else 1.0, gains[place])
        held_bounds = read.figures(step["message_bound_per_leaf"])
        yield from unlike_spec(f"{what}.message_bound_per_leaf", held_bounds, bounds)
        yield from _channel_problems(what, step["channel_noise_std"], tree)


def _channel_problems(what: str, channel: Sequence[Any], tree: CheckedTree) -> Iterator[str]:
    """Yield a line where channel noise is stated for a tier whose messages do not go over the air.

    ``what``: name of the aggregation in the message; ``channel``: noise std by tier and node.
    """
    air = tree.ledger["hops"][-1] == "air"
    yield from unlike_spec(f"{what}.channel_noise_std: tiers", len(channel), tree.depth if air else 0)
    for tier, held in enumerate(channel):
        stds = read.figures(held)
        above = tier < tree.depth - 1
        if len(stds) != len(tree.parents[tier]) or (above and stds.any()):
            yield f"ledger.json: {what}.channel_noise_std[{tier}]: only what devices send goes over the air"


def certainty_problems(spec: Json, tree: CheckedTree) -> Iterator[str]:
    """Yield a line where ``ledger.json`` counts on more noise or messages than spec.yaml guarantees.

    Over the air fewer may be certain than spec.yaml says, since the radio may lose some.
    """
    faults, compression, ledger = spec.get("faults") or {}, spec.get("compression") or {}, tree.ledger
    dropping = may_drop_out(spec)
    secure, poisson = ledger["hops"][-1] == "secure-aggregation", ledger["draw"]["kind"] == "poisson"
    always = not (secure and dropping) and not faults.get("supernode_failure_rate", 0.0)
    noisy = any(any(read.figures(step["device_noise_std_per_leaf"])) for step in tree.steps)
    rounded = compression.get("bits") is not None and noisy
    sure = np.zeros(len(tree.devices)) if poisson else np.rint(tree.drawn)
    if dropping:
        sure = np.array([survival_threshold(spec, int(n)) for n in tree.drawn]) * (secure and not poisson)
    sure = sure * (not rounded)
    yield from unlike_spec("rounded_after_noise", ledger["rounded_after_noise"], rounded)
    remembers = bool(compression.get("error_feedback")) or keeps_control_variates(spec)
    if ledger["hops"][-1] != "air":
        yield from unlike_spec("sure_per_leaf", tree.sure, sure)
        yield from unlike_spec("always_sent", tree.always_sent, always)
        yield from unlike_spec("devices_may_drop_out", ledger["devices_may_drop_out"], dropping or not always)
    else:
        read.flag(ledger["devices_may_drop_out"])
        if (tree.sure > sure).any() or tree.always_sent > always:
            yield "ledger.json: sure_per_leaf, always_sent: more than spec.yaml gives"
        if dropping or not always or not tree.always_sent or (tree.sure < sure).any():
            yield from unlike_spec("devices_may_drop_out", ledger["devices_may_drop_out"], True)
    for place, step in enumerate(tree.steps):
        if remembers or ledger["hops"][-1] != "air":
            told = step["tells_who_was_drawn"]
            yield from unlike_spec(f"steps[{place}].tells_who_was_drawn", told, remembers)
        read.flag(step["tells_who_was_drawn"])


def _noise_multipliers(spec: Json, tree: CheckedTree) -> tuple[Array, list[Array], npt.NDArray[np.bool_]]:
    """Noise multipliers that spec.yaml gives, by the tier of the aggregation.

    Returns:
        Those of devices ``[leaves, tiers]``, those of the nodes of each tier ``[nodes, tiers]``, and whether
        each device adds noise ``[devices]``.
    """
    device = np.zeros((len(tree.devices), tree.depth))
    node = [np.zeros((len(parents), tree.depth)) for parents in tree.parents]
    noisy = np.ones(int(tree.last[-1]), dtype=np.bool_)
    named = {tree.node_name(t, i): (t, i) for t in range(tree.depth) for i in range(len(tree.parents[t]))}
    named |= places_of_named_sites(spec["topology"].get("sites") or ())
    for source in spec["privacy"]["noise"].get("sources", ()):
        for owner in source["owners"]:
            name, slash, some = owner.partition("/devices")
            tier, index = named[name]
            (device if slash else node[tier])[index] = source["multipliers"]
            if some:
                first = int(tree.last[index] - tree.devices[index])
                noisy[first : int(tree.last[index])] = False
                for span in some[1:].split(","):
                    start, _, stop = span.partition("-")
                    noisy[first + int(start) : first + int(stop or start) + 1] = True
    return device, node, noisy


def _multipliers_in_era(
    device: Array, node: list[Array], spec: Json, era: WrittenEra
) -> tuple[Array, list[Array]]:
    """The multipliers (as of `_noise_multipliers`) of those who add noise in an era; 0 for all others.

    Noise is added where messages leave trusted hands: by devices of edges that are not trusted, else by the
    edge, or by the cloud if it is trusted too.

    Args:
        device: multipliers of devices, by edge and tier.
        node: multipliers of the cloud and of edges, in that order.
        spec: contents of spec.yaml.
        era: says which edges are trusted.
    """
    trusted = np.isin(np.arange(len(device)), era.trusted)
    cloud = bool((spec.get("trust") or {}).get("cloud"))
    edges = np.stack([trusted & (not cloud), trusted], axis=1)
    return device * ~trusted[:, None], [node[0] * (cloud and trusted.any()), node[1] * edges]


def _noise_source_problems(spec: Json, tree: CheckedTree, era: WrittenEra | None) -> Iterator[str]:
    """Yield a line where a source's noise std is not its multiplier times the sensitivity that it hides.

    ``era`` are the rounds with one trust; ``None`` where the spec has neither moves nor changes of trust.
    """
    device, node, noisy = _noise_multipliers(spec, tree)
    if era is not None and era.trust_changes:
        device, node = _multipliers_in_era(device, node, spec, era)
    leaf_of = np.repeat(np.arange(len(tree.devices)), tree.devices)
    yield from unlike_spec("device_classes: noisy", tree.class_noisy[tree.class_per_device], noisy)
    partly = np.array([not noisy[leaf_of == leaf].all() for leaf in range(len(tree.devices))])
    for place, step in enumerate(tree.steps):
        tier = read.count(step["aggregating_tier"])
        norms = np.array(step["message_bound_per_leaf"], dtype=np.float64)
        what = f"steps[{place}]"
        held = step["device_noise_std_per_leaf"]
        yield from unlike_spec(f"{what}.device_noise_std_per_leaf", held, device[:, tier] * norms)
        share = norms / tree.least_divisor * (2.0 if tree.ledger["denominator_depends_on_draw"] else 1.0)
        raw = (device[:, tier] == 0) | partly
        for t in range(tree.depth - 1, -1, -1):
            ancestors = tree.paths[:, t]
            if t < tree.depth - 1:
                raw = raw & (node[t + 1][tree.paths[:, t + 1], tier] == 0)
                share = share / tree.children[t][ancestors]
            hidden = np.zeros((2, len(tree.parents[t])))
            np.maximum.at(hidden[0], ancestors[raw], share[raw])
            np.maximum.at(hidden[1], ancestors, share)
            sensitivity = np.where(hidden[0] > 0, hidden[0], hidden[1])
            wanted = node[t][:, tier] * sensitivity * (t >= tier)
            if t == tree.depth - 1 > tier:  # what leaves broadcast themselves is noised for their devices
                both = np.array([tree.broadcasts(place, leaf) for leaf in range(len(wanted))])
                bare = both & ((device[:, tier] == 0) | partly) & (wanted == 0)
                wanted = np.where(bare, node[t][:, t] * sensitivity, wanted)
            yield from unlike_spec(f"{what}.node_noise_std[{t}]", step["node_noise_std"][t], wanted)
