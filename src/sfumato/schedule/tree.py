"""The plan of a tree protocol: everything that ``account`` judges and ``run`` plays, without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.network.tree import Tree
from sfumato.privacy.observers import Party
from sfumato.privacy.received import Hop
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.schedule.local_steps import Aggregation, learning_rate
from sfumato.schedule.noise.placement import NoisePlan
from sfumato.schedule.participation import TreeParticipants
from sfumato.schedule.tree_facts import uplink_over_the_air
from sfumato.spec.document import Spec

if TYPE_CHECKING:
    from sfumato.schedule.air.power_control import AirPlan

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TreePlan:
    """A resolved, calibrated tree protocol.

    Attributes:
        spec: as resolved: every random choice made, every source's noise written out.
        tree: with trust marked.
        aggregations: of one round.
        participants: who takes part.
        noise: multipliers by source.
        releases: the same facts for the accountant.
        notes: what the user should hear.
        eras: the plans from which round (from 0) on, where devices move or trust changes; all that is said
            here is of the first rounds then, but for ``releases``. Of a run with control, that of every round
            it played (`schedule.control.realised_rounds`).
    """

    spec: Spec
    tree: Tree
    aggregations: tuple[Aggregation, ...]
    participants: TreeParticipants
    noise: NoisePlan
    releases: TreeReleases
    notes: tuple[str, ...]
    eras: tuple[tuple[int, TreePlan], ...] = ()

    @cached_property
    def structures(self) -> tuple[TreePlan, ...]:
        """The plan of every era, in order; this plan alone where there are none."""
        return tuple(plan for _, plan in self.eras) or (self,)

    def at(self, number: int) -> TreePlan:
        """The plan of round ``number`` (from 0), with the tree of that round."""
        return self.structures[max(0, sum(first <= number for first, _ in self.eras) - 1)]

    def require_one_tree(self, reason: str) -> None:
        """Refuse a plan with several trees, because devices move or trust changes.

        Raises:
            SpecError: there are several trees; the message ends in ``reason``.
        """
        if self.eras:
            place = "trust.from" if self.spec.trust.from_ is not None else "topology.moves"
            raise SpecError(place, None, f"must be left out here: {reason}")

    @property
    def parties(self) -> Tree:
        """The tree of the first round."""
        return self.tree

    @property
    def devices_per_place(self) -> IntArray:
        """Number of devices of each leaf ``[leaves]``: data are divided among leaves, then among devices."""
        return self.tree.devices

    @property
    def is_sampled(self) -> bool:
        """Whether the participants of a round are drawn at random."""
        return self.participants.kind != "all"

    @property
    def default_watch(self) -> tuple[str, ...]:
        """The observers to follow by default: ``cloud`` or ``public``, and in a tree ``edge``, the worst."""
        cloud = "public" if self.tree.tiers[0].trusted[0] else "cloud"
        return (cloud,) if self.tree.depth == 1 else (cloud, "edge")

    def trusts(self, party: Party, device: int) -> bool:
        """Whether ``party`` is an aggregator above ``device`` that is trusted with raw updates.

        If devices move or trust changes: whether it is trusted at the end, and was so while above the device.
        """
        if self.eras:
            now = self.structures[-1].tree.tiers
            return (
                party.kind == "node"
                and bool(now[party.tier].trusted[party.index])
                and any(plan.trusts(party, device) for plan in self.structures)
            )
        return (
            party.kind == "node"
            and self.is_near(party, device)
            and bool(self.tree.tiers[party.tier].trusted[party.index])
        )

    def ever_trusts(self, party: Party, device: int) -> bool:
        """Whether ``party`` is a trusted aggregator above ``device`` in some round."""
        return any(plan.trusts(party, device) for plan in self.structures)

    def is_near(self, party: Party, device: int) -> bool:
        """Whether ``party`` is, in some round, an aggregator above ``device`` or another device at its leaf.

        The public is near nobody.
        """
        if self.eras:
            return any(plan.is_near(party, device) for plan in self.structures)
        leaf = self.tree.leaf_of(device)
        if party.kind == "node":
            return bool(self.tree.paths[leaf][party.tier] == party.index)
        return party.kind == "device" and self.tree.leaf_of(party.index) == leaf

    @property
    def moves_without_change(self) -> tuple[tuple[int, int, int], ...]:
        """The moves of ``topology.moves.trace`` that name the edge which their device is under already.

        Each is a round (from 1), a device and an edge (from 0). () without a trace.
        """
        moves = getattr(self.spec.topology, "moves", None)
        if moves is None or moves.drawn_at is not None:
            return ()
        from sfumato.network.moves import moves_without_change  # only networks that change need it

        return moves_without_change(self.tree, moves.trace or ())

    @property
    def grows_in_proportion(self) -> bool:
        """Whether all rounds are alike, and none is charged by a privacy filter."""
        return self.rounds_are_alike and self.spec.control is None

    @property
    def rounds_are_alike(self) -> bool:
        """Whether every round has the releases of the first."""
        return not self.eras and (self.air is None or bool(self.air.is_steady.all()))

    @property
    def classes_share_trust(self) -> bool:
        """Whether leaves of an accountant's class have equally trusted nodes above them, on all levels."""
        if self.eras:
            return True  # edges without a bound are in no class together
        trusted = [tier.trusted[self.tree.paths[:, depth]] for depth, tier in enumerate(self.tree.tiers)]
        classes = self.releases.leaf_classes
        told = {(int(number), *map(bool, flags)) for number, *flags in zip(classes, *trusted, strict=True)}
        return len(told) == len(np.unique(classes))

    @property
    def devices_at_untrusted_edges(self) -> int | None:
        """How many devices are ever under an edge, the lowest aggregator, that is not trusted.

        ``None`` in a star, or where trust changes: an edge that was trusted keeps what it received.
        """
        if self.tree.depth == 1 or self.spec.trust.from_ is not None:
            return None
        everybody = np.arange(self.tree.device_count)
        apart = [~p.tree.tiers[-1].trusted[p.tree.leaves_of(everybody)] for p in self.structures]
        return int(np.any(apart, axis=0).sum())

    @property
    def raw_to_trusted_edge(self) -> int:
        """Number of devices that send raw updates, alone or in a sum, to an edge that is trusted with them.

        An update is raw if no noise is on it: over the air the receiver's is on every sum, in a plain message
        the device's own, in a masked sum that of any device of the edge.
        """
        hop = self.releases.hop(self.tree.depth - 1)
        if self.tree.depth == 1 or hop == "air":
            return 0
        return int(np.logical_or.reduce([plan._is_raw() for plan in self.structures]).sum())

    def _is_raw(self) -> npt.NDArray[np.bool_]:
        """Mark which devices send raw updates to a trusted edge, ``[devices]``."""
        hop = self.releases.hop(self.tree.depth - 1)
        leaf = self.tree.leaves_of(np.arange(self.tree.device_count))
        raw = np.logical_or.reduce([step.device_std == 0 for step in self.releases.steps])[leaf]
        if self.noise.noisy is not None and hop == "plain":
            raw = raw | ~self.noise.noisy
        return np.asarray(raw & self.tree.tiers[-1].trusted[leaf], dtype=np.bool_)

    def sends(self, index: int) -> npt.NDArray[np.bool_]:
        """Which leaves send in aggregation ``index`` of a round, ``[leaves]``."""
        found = self.releases.steps[index].takes_part
        return np.ones(self.tree.leaf_count, dtype=np.bool_) if found is None else found

    @cached_property
    def global_noise(self) -> tuple[float, ...]:
        """Expected variance a coordinate that the noise of each aggregation leaves in the global average.

        In squared units of ``message_scale``; of a repeated (resent) round only the global aggregation's
        counts.
        """
        return self.noise_with(self.participants.drawn)

    def noise_with(
        self,
        present: FloatArray,
        channel: Sequence[FloatArray | None] = (),
        formed: npt.NDArray[np.bool_] | Literal[True] = True,
    ) -> tuple[float, ...]:
        """The expected noise variance, a coordinate, of each aggregation of a round in the global average.

        Args:
            present: messages in a leaf's average, ``[aggregations, leaves]``, or alike for all aggregations
                ``[leaves]``.
            channel: variance of the channel's noise in every leaf's average, for each aggregation; where it
                is not known (``None``, or empty) the declared one counts.
            formed: which leaves send anything, for each aggregation ``[aggregations, leaves]``; ``True``:
                all.

        Returns:
            One variance for each aggregation of a round, in squared units of `message_scale`.
        """
        tree, variances = self.tree, []
        shape = (len(self.releases.steps), tree.leaf_count)
        counts, sends = np.broadcast_to(present, shape), np.broadcast_to(formed, shape)
        for number, facts in enumerate(self.releases.steps):
            forgotten = (
                self.releases.steps[-1].resends
                if number < len(self.releases.steps) - 1
                else ~np.ones_like(facts.resends)
            )
            classes = self.releases.classes
            each = (
                np.bincount(classes.leaf, weights=classes.variance(facts.device_std) * classes.count)
                / tree.devices
            )
            value = each * counts[number] / self.participants.count**2
            known = channel[number] if channel else None
            heard = facts.channel(tree.depth - 1) if known is None else known
            value = value + heard + np.where(sends[number], facts.node_std[-1], 0.0) ** 2
            value = np.where(forgotten, 0.0, value)
            for tier in range(tree.depth - 2, -1, -1):
                share = np.bincount(tree.parents[tier + 1], weights=value, minlength=tree.tiers[tier].size)
                value = share / tree.children[tier] ** 2 + facts.channel(tier) + facts.node_std[tier] ** 2
            variances.append(float(value[0]))
        return tuple(variances)

    @cached_property
    def air(self) -> AirPlan | None:
        """The plan for sending over the air; ``None`` where devices send by other transport."""
        return uplink_over_the_air(self.spec, self.tree, self.participants)

    @property
    def hops(self) -> tuple[Hop, ...]:
        """How messages reach the nodes of each tier, the cloud first."""
        return self.releases.hops

    @cached_property
    def device_of_each_class(self) -> IntArray:
        """The lowest number of a device in every class, ``[classes]``, in the order of classes.

        It stands for its class (`DeviceClasses`): devices of one leaf that have the same weight, bound and
        noise, though maybe not as many examples.
        """
        everybody = np.arange(self.tree.device_count, dtype=np.int64)
        return np.unique(self._classes_of(everybody), return_index=True)[1]

    def weights_of(self, devices: IntArray) -> FloatArray:
        """The factor on the clipped update of each of ``devices`` in its message, ``[P]``."""
        weights = self.participants.weights
        return np.ones(len(devices)) if weights is None else weights[devices]

    def bounds_of(self, step: int, devices: IntArray) -> FloatArray:
        """l2 bound of the message of each of ``devices`` in aggregation ``step``, ``[P]``.

        In units of `message_scale` of the round: times that, it is in units of the model. Infinite where the
        gradients of examples are clipped, whose number in a batch is drawn.
        """
        if self.spec.privacy.clips_examples:
            return np.full(len(devices), np.inf)
        return self.example_bounds_of(step, devices)

    def example_bounds_of(self, step: int, devices: IntArray) -> FloatArray:
        """l2 bound on how far one example moves the message of each of ``devices`` at ``step``, ``[P]``.

        In units of `message_scale` of the round. Where examples are not clipped, the bound of the message
        itself.
        """
        bounds = self.releases.classes.bounds(self.releases.steps[step].message_norm)
        return bounds[self._classes_of(devices)]

    def device_stds_of(self, step: int, devices: IntArray) -> FloatArray:
        """Std, a coordinate, of the noise that each of ``devices`` adds in aggregation ``step``, ``[P]``.

        In units of `message_scale` of the round.
        """
        std = np.sqrt(self.releases.classes.variance(self.releases.steps[step].device_std))
        return std[self._classes_of(devices)]

    def denominators_of(self, devices: IntArray) -> FloatArray:
        """What the sum of each leaf's messages is divided by when ``devices`` take part, ``[leaves]``.

        ``participants.count``, unless the denominator is clipped: then the weight of ``devices`` where that
        is more (weights and participation are public).
        """
        if self.participants.most is None:
            return self.participants.count
        leaves = self.tree.leaves_of(devices)
        came = np.bincount(leaves, weights=self.weights_of(devices), minlength=self.tree.leaf_count)
        return np.maximum(self.participants.count, came)

    def _classes_of(self, devices: IntArray) -> IntArray:
        """The number of the class of each of ``devices``, ``[P]``."""
        of_device = self.releases.classes.of_device
        if of_device is not None:
            return of_device[devices]
        return self.tree.leaves_of(devices)

    def message_scale(self, round_number: int) -> float:
        """The unit, in model units, of the declared bounds and standard deviations of round ``round_number``.

        For whole updates the clip norm, and with `Clip.adapt` a little more; step size times clip norm for
        clipped steps; of that the share of one example in a mini-batch for clipped examples.
        """
        clip, batch_size = self.spec.privacy.clip, self.spec.training.batch_size
        if clip is None:
            return 1.0
        if clip.kind == "update":
            return clip.norm * clip.message_bound
        step = clip.norm * learning_rate(self.spec.training, round_number)
        return step / float(batch_size) if clip.kind == "example" else step
