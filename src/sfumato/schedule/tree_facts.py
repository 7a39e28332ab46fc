"""What a tree will release, round by round, as facts for the accountant."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.network.tree import Tree
from sfumato.privacy.received import Hop
from sfumato.privacy.records import BatchFacts
from sfumato.privacy.tree.facts import AggregationFacts
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.privacy.tree.shape import DeviceClasses
from sfumato.schedule.local_steps import Aggregation, momentum_gain
from sfumato.schedule.noise.placement import NoisePlan, noise_law_of, raw_sensitivity
from sfumato.schedule.participation import TreeParticipants, guaranteed_survivors_of, shares_that_unmask
from sfumato.spec.document import Spec

if TYPE_CHECKING:
    from sfumato.schedule.air.power_control import AirPlan

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TreeRounds:
    """The trees of a run, and the aggregations of a round on them, before noise is placed.

    Attributes:
        spec: resolved, but for its noise.
        trees: each from which round (from 0) on; several where devices move or trust changes.
        aggregations: of one round.
        batches: how devices draw them.
    """

    spec: Spec
    trees: tuple[tuple[int, Tree], ...]
    aggregations: tuple[Aggregation, ...]
    batches: BatchFacts

    @property
    def tree(self) -> Tree:
        """The tree of the first round."""
        return self.trees[0][1]

    @cached_property
    def hops(self) -> tuple[Hop, ...]:
        """How messages reach the nodes of each tier, the cloud first.

        Raises:
            SpecError: ``transport`` names a hop that is not there.
        """
        hops = self.tree.hop_names
        for hop in self.spec.transport:
            if hop not in hops:
                listed = ", ".join(reversed(hops))
                raise SpecError(f"transport.{hop}", None, f"is no hop of this topology; hops are {listed}")
        return tuple(self.spec.transport.get(hop, "plain") for hop in hops)

    @cached_property
    def steps_in_clip_norms(self) -> FloatArray:
        """How far the steps behind a message can move the model, in clip norms: ``[aggregations, leaves]``.

        0 for an aggregation that a leaf takes no part in.
        """
        leaves, momentum = self.tree.leaf_count, self.spec.training.momentum
        steps = np.stack([aggregation.steps_of(leaves) for aggregation in self.aggregations])
        found = np.zeros(steps.shape)
        for count in np.unique(steps[steps > 0]).tolist():
            found[steps == count] = momentum_gain(count, momentum)
        return found


def uplink_over_the_air(spec: Spec, tree: Tree, participants: TreeParticipants) -> AirPlan | None:
    """How devices send over the air, as power control sets it up; ``None`` where they send otherwise."""
    if not spec.sends_over_the_air:
        return None
    from sfumato.radio.channels import Channels  # slow to import
    from sfumato.schedule.air.power_control import AirPlan

    return AirPlan(spec, tree, participants.drawn, Channels.of_tree(spec, tree))


def tree_releases(
    rounds: TreeRounds, tree: Tree, participants: TreeParticipants, noise: NoisePlan
) -> TreeReleases:
    """Declare the releases of all rounds of a training on one tree, from which every ε is computed.

    Where devices move or trust changes, a training has several trees; the releases are then those that it
    would have if all of its rounds were on ``tree``.

    Args:
        rounds: what a round consists of, resolved.
        tree: one of the trees of ``rounds``.
        participants: who takes part in a round.
        noise: the noise multipliers of everybody who adds noise.
    """
    spec, air = rounds.spec, uplink_over_the_air(rounds.spec, tree, participants)
    steps = _facts_of_aggregations(rounds, tree, participants, noise, air)
    hops = rounds.hops
    left = guaranteed_survivors_of(
        spec.faults, hops[-1], participants.drawn, by_chance=participants.kind == "poisson"
    )
    # the silent add no noise: with weak channels left out nobody is sure to be there
    heard = air is None or air.everybody_sends
    return TreeReleases(
        names=tuple(tier.name for tier in tree.tiers),
        parents=tree.parents,
        devices=tree.devices,
        drawn=participants.drawn,
        draw_kind=participants.kind,
        draw_rate=participants.rate,
        draw_seen_from=0 if spec.protocol == "hdp" else tree.depth - 1,  # HDP's cloud knows who is online
        steps=steps,
        rounds=spec.training.rounds,
        hops=hops,
        device_classes=_device_classes(tree, participants, noise),
        placed=tree.placed,
        denominators=participants.count,
        most_denominators=participants.most,
        guaranteed_contributors=left.least if heard else np.zeros(tree.leaf_count, dtype=np.int64),
        all_nodes_always_send=left.all_nodes_always_send and (air is None or air.is_always_heard),
        elections=left.elections if spec.elects_supernodes else 0.0,
        noise_law=noise_law_of(spec),
        batches=rounds.batches,
        rounds_after_noise=spec.compression is not None
        and spec.compression.bits is not None
        and bool(noise.device.any()),
        unmask_thresholds=shares_that_unmask(spec.faults, tree, participants.drawn),
        searched_under=None if spec.control is not None else spec.privacy.neighbours,
        rows_may_fold=spec.privacy.unit == "device" and _noise_shows_trust(tree, noise),
        sites=_sites(tree),
    )


def _noise_shows_trust(tree: Tree, noise: NoisePlan) -> bool:
    """Whether devices add noise just where their aggregator is not trusted, in a star or under edges."""
    bare = ~noise.device.any(axis=1)
    return tree.depth <= 2 and noise.noisy is None and np.array_equal(bare, tree.tiers[-1].trusted)


def _sites(tree: Tree) -> IntArray | None:
    """The number of the site of every device, ``[devices]``; ``None`` where the topology names no sites.

    ``None`` too where only aggregators are named and devices have moved.
    """
    if tree.device_names:
        return np.arange(tree.device_count)
    if tree.tiers[-1].labels and tree.placed is None:
        return np.repeat(np.arange(tree.leaf_count), tree.devices)
    return None


def _device_classes(tree: Tree, participants: TreeParticipants, noise: NoisePlan) -> DeviceClasses | None:
    """Classes of devices of a leaf that are alike; ``None`` where all of a leaf are, and none have moved.

    Where devices move, weights and noise of some devices only are refused (`schedule.moves`).
    """
    if tree.placed is not None:
        return DeviceClasses.placed(tree.devices, tree.placed)
    if participants.weights is None and noise.noisy is None:
        return None
    return DeviceClasses.of(tree.devices, participants.weights, noise.noisy)


def _facts_of_aggregations(
    rounds: TreeRounds, tree: Tree, participants: TreeParticipants, noise: NoisePlan, air: AirPlan | None
) -> tuple[AggregationFacts, ...]:
    """The facts of every aggregation of a round: bounds, noise, and who takes part.

    With clips of examples a "bound" is how far one example can move a message if nothing else changes, which
    the noise is a multiple of. It bounds no device's message: `noise_law_of` sees to it that none
    is charged by it.
    """
    spec, aggregations = rounds.spec, rounds.aggregations
    clip, resend = spec.privacy.clip, spec.training.global_update == "resend"
    per_step = clip is not None and clip.kind != "update"
    error_feedback = spec.compression is not None and spec.compression.error_feedback
    remembers = error_feedback or spec.training.keeps_variates
    silent_above = [np.zeros(tier.size) for tier in tree.tiers[:-1]]
    steps = []
    for number, aggregation in enumerate(aggregations):
        sends = aggregation.takes_part(tree.leaf_count)
        bound = rounds.steps_in_clip_norms[number] if per_step else sends.astype(np.float64)
        fresh = np.zeros(tree.leaf_count, dtype=np.bool_)
        if resend and number == len(aggregations) - 1:
            gains = rounds.steps_in_clip_norms
            fresh = tree.tiers[1].trusted & ((gains > 0).sum(axis=0) > 1)
            bound = np.where(fresh, gains.sum(axis=0) if per_step else 1.0, bound)
        share = bound / participants.count
        both = np.array(aggregation.edge_broadcasts, dtype=np.bool_)
        steps.append(
            AggregationFacts(
                aggregation.title([tier.name for tier in tree.tiers]),
                aggregation.tier,
                bound,
                noise.device[:, aggregation.tier] * bound,
                _node_std(tree, noise, aggregation, share * (1.0 if participants.most is None else 2.0)),
                fresh,
                () if air is None else (*silent_above, share * air.multiplier),
                reveals_draw=remembers or (air is not None and not air.is_steady.all()),
                takes_part=None if sends.all() else sends,
                leaf_broadcasts=both if both.any() else None,
            )
        )
    return tuple(steps)


def _node_std(
    tree: Tree, noise: NoisePlan, aggregation: Aggregation, message: FloatArray
) -> tuple[FloatArray, ...]:
    """Std, a coordinate, of the noise of every node at ``aggregation``: for each tier ``[nodes]``.

    An edge that broadcasts its own average at a global aggregation adds the noise of its own aggregations,
    where something in what it broadcasts would be raw: where not all devices add noise, nor it for the cloud.
    ``message``: bound of a device's message times its weight in its leaf's average, ``[leaves]``.
    """
    aggregating = aggregation.tier
    found = [
        noise.node[tier][:, aggregating] * raw_sensitivity(tree, noise, tier, aggregating, message)
        if tier >= aggregating
        else np.zeros(tree.tiers[tier].size)
        for tier in range(tree.depth)
    ]
    if aggregation.edge_broadcasts:
        last = tree.depth - 1
        raw = noise.has_raw_messages(tree, 0) & np.array(aggregation.edge_broadcasts) & (found[last] == 0)
        own = noise.node[last][:, last] * raw_sensitivity(tree, noise, last, last, message)
        found[last] = np.where(raw, own, found[last])
    return tuple(found)
