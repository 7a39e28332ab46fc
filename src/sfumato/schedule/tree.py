"""The tiered protocol's plan: everything that ``account`` judges and ``run`` plays, without training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.network.tree import Tree
from sfumato.privacy.guarantee import EpsilonBound
from sfumato.privacy.hops import Hop
from sfumato.privacy.observers import Party
from sfumato.privacy.release import Exposure, Release
from sfumato.privacy.tree.device_classes import DeviceClasses
from sfumato.privacy.tree.facts import AggregationFacts
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.schedule.aggregation_schedule import Aggregation
from sfumato.schedule.air_power_control import AirPlan, air_of
from sfumato.schedule.explanations import multipliers
from sfumato.schedule.guaranteed_survivors import shares_that_unmask, survival
from sfumato.schedule.learning_rate import learning_rate
from sfumato.schedule.noise import NoisePlan, raw_sensitivity
from sfumato.schedule.zone_placement import device_weights
from sfumato.spec.document import Spec
from sfumato.spec.training import ClippedDenominator, FixedParticipation, PoissonParticipation

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a round.

    Attributes:
        kind: how they are chosen.
        rate: share of rounds a device takes part in, expected.
        drawn: devices of each leaf in a round: all, the fixed number, or the expected one.
        count: what the sum of each leaf's messages is divided by (a public constant, so that one device's
            weight never depends on the others): ``drawn``, or their expected weight where devices count
            differently; with a clipped denominator, the least that is divided by.
        weights: how much every device counts, ``[devices]``; 1 if ``None``.
        most: the most that is divided by, where that depends on who is drawn ``[leaves]``; else ``None``.
        cohort: who takes part in every round, ascending, where an audit decides that; ``None``: who is drawn.
    """

    kind: Literal["all", "poisson", "fixed"]
    rate: float
    drawn: FloatArray
    count: FloatArray
    weights: FloatArray | None = None
    most: FloatArray | None = None
    cohort: IntArray | None = None


@dataclass(frozen=True)
class TreePlan:
    """A resolved, calibrated tiered protocol.

    Attributes:
        spec: as resolved: every random choice made, every source's noise written out.
        tree: with trust marked.
        aggregations: of one round.
        participants: who takes part.
        noise: multipliers by source.
        ledger: the same facts for the accountant.
        notes: what the user should hear.
    """

    spec: Spec
    tree: Tree
    aggregations: tuple[Aggregation, ...]
    participants: Cohort
    noise: NoisePlan
    ledger: TreeReleases
    notes: tuple[str, ...]

    @property
    def parties(self) -> Tree:
        """Who there is."""
        return self.tree

    @property
    def is_sampled(self) -> bool:
        """Whether participants are drawn."""
        return self.participants.kind != "all"

    @property
    def default_watch(self) -> tuple[str, ...]:
        """The cloud (the public, where the cloud is trusted) and, in a tree, the worst edge."""
        cloud = "public" if self.tree.tiers[0].trusted[0] else "cloud"
        return (cloud,) if self.tree.depth == 1 else (cloud, "edge")

    def trusts(self, party: Party, device: int) -> bool:
        """Whether ``party`` is a trusted aggregator above ``device``."""
        path = self.tree.paths[self.tree.leaf_of(device)]
        return (
            party.kind == "node"
            and bool(path[party.tier] == party.index)
            and bool(self.tree.tiers[party.tier].trusted[party.index])
        )

    def units_outside(self, members: Set[int]) -> Iterator[tuple[int, int]]:
        """One device of every class that has any outside ``members``, and how many it stands for."""
        classes = self.ledger.classes
        inside = Counter(self.ledger.class_of(member) for member in members)
        for number, devices in enumerate(classes.count):
            count = int(devices) - inside[number]
            if count:
                candidates = classes.members(number, inside[number] + 1)
                yield next(int(device) for device in candidates if int(device) not in members), count

    def describe(self, exposure: Exposure, bound: EpsilonBound) -> str:
        """What is charged, sum by sum, at which noise multipliers."""
        views: dict[str, list[tuple[Release, int]]] = {}
        for release, count in exposure.counted:
            views.setdefault(release.vector, []).append((release, count))
        parts = [
            f"{sum(count for _, count in found)} of {view} at multiplier {multipliers([r for r, _ in found])}"
            for view, found in views.items()
        ]
        clause = " and ".join(parts)
        if exposure.bound_name == "cut" and any(r.propagated_sensitivity for r in exposure.releases):
            clause += ", devices that started from hidden averages as replaced"
        return clause

    @cached_property
    def global_noise(self) -> tuple[float, ...]:
        """Expected variance a coordinate that the noise of each aggregation leaves in the global average.

        In squared units of ``message_scale``; of a repeated (resent) round only the global aggregation's counts.
        """
        return self.noise_with(self.participants.drawn)

    def noise_with(
        self,
        present: FloatArray,
        channel: Sequence[FloatArray | None] = (),
        formed: npt.NDArray[np.bool_] | Literal[True] = True,
    ) -> tuple[float, ...]:
        """`global_noise` of a round with so many messages in every leaf's average.

        Args:
            present: for each aggregation and leaf, or alike for all aggregations ``[leaves]``.
            channel: variance of the channel's noise in every leaf's average, for each aggregation; the least
                there may be, where it is not known.
            formed: which leaves send anything, for each aggregation ``[aggregations, leaves]``.
        """
        tree, variances = self.tree, []
        shape = (len(self.ledger.steps), tree.leaf_count)
        counts, sends = np.broadcast_to(present, shape), np.broadcast_to(formed, shape)
        for number, facts in enumerate(self.ledger.steps):
            forgotten = (
                self.ledger.steps[-1].resends
                if number < len(self.ledger.steps) - 1
                else ~np.ones_like(facts.resends)
            )
            classes = self.ledger.classes
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
                share = np.bincount(
                    tree.tiers[tier + 1].parents, weights=value, minlength=tree.tiers[tier].size
                )
                value = share / tree.children[tier] ** 2 + facts.channel(tier) + facts.node_std[tier] ** 2
            variances.append(float(value[0]))
        return tuple(variances)

    @cached_property
    def air(self) -> AirPlan | None:
        """The air as the devices' uplink, where it is."""
        return air_of(self.spec, self.tree, self.participants.drawn)

    @property
    def hops(self) -> tuple[Hop, ...]:
        """How messages reach the nodes of each tier, the cloud first."""
        return self.ledger.hops

    def weights_of(self, devices: IntArray) -> FloatArray:
        """How much each of ``devices`` counts: its message is its clipped update times this, ``[P]``."""
        weights = self.participants.weights
        return np.ones(len(devices)) if weights is None else weights[devices]

    def bounds_of(self, step: int, devices: IntArray) -> FloatArray:
        """Bound of the message of each of ``devices`` at ``step``, in the unit of the round, ``[P]``."""
        bounds = self.ledger.classes.bounds(self.ledger.steps[step].message_norm)
        return bounds[self._classes_of(devices)]

    def device_stds_of(self, step: int, devices: IntArray) -> FloatArray:
        """Noise that each of ``devices`` adds at ``step``, in the unit of the round, ``[P]``."""
        std = np.sqrt(self.ledger.classes.variance(self.ledger.steps[step].device_std))
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
        of_device = self.ledger.classes.of_device
        if of_device is not None:
            return of_device[devices]
        return self.tree.leaves_of(devices)

    def message_scale(self, round_number: int) -> float:
        """What the ledger's bounds and standard deviations are multiples of, in this round.

        The clip norm for whole updates; step size times clip norm for clipped steps.
        """
        clip = self.spec.privacy.clip
        if clip is None:
            return 1.0
        if clip.kind == "update":
            return clip.norm
        return clip.norm * learning_rate(self.spec.training, round_number)


def participants_of(spec: Spec, tree: Tree) -> Cohort:
    """How many devices of each leaf take part, and how they are chosen.

    Raises:
        SpecError: a fixed number larger than an edge.
    """
    choice = spec.training.participation
    devices = tree.devices.astype(np.float64)
    if isinstance(choice, PoissonParticipation):
        return _weighed(spec, tree, "poisson", choice.rate, devices * choice.rate)
    if isinstance(choice, FixedParticipation):
        least = int(tree.devices.min())
        if choice.count > least:
            where = "the star" if tree.depth == 1 else f"the smallest {tree.tiers[-1].name}"
            raise SpecError(
                "training.participation.count",
                choice.count,
                f"must be at most the {least} devices of {where}",
            )
        count = np.full(tree.leaf_count, float(choice.count))
        return _weighed(spec, tree, "fixed", float(np.max(count / devices)), count)
    return _weighed(spec, tree, "all", 1.0, devices)


def _weighed(
    spec: Spec, tree: Tree, kind: Literal["all", "poisson", "fixed"], rate: float, drawn: FloatArray
) -> Cohort:
    """What sums are divided by: ``q W``, or ``q W_min`` at least (hdp.txt, Algorithm 1, repaired).

    A clipped denominator is the weight of those drawn where that is more than ``q W_min``. It is one number
    for all rounds where everybody takes part, or as many devices of one weight.
    """
    weights = device_weights(spec, tree)
    share, denominator = drawn / tree.devices, spec.training.denominator
    if isinstance(denominator, ClippedDenominator):
        floor = share * denominator.min_weight
        least, most = _drawn_weight(tree, kind, drawn, weights)
        least, most = np.maximum(floor, least), np.maximum(floor, most)
        moves = not np.allclose(least, most, rtol=1e-12, atol=0.0)
        return Cohort(kind, rate, drawn, least, weights, most if moves else None)
    if weights is None:
        return Cohort(kind, rate, drawn, drawn)
    whole = np.add.reduceat(weights, tree.first_device[:-1])
    return Cohort(kind, rate, drawn, share * whole, weights)


def _drawn_weight(
    tree: Tree, kind: Literal["all", "poisson", "fixed"], drawn: FloatArray, weights: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """The least and the most that the devices drawn in each leaf can weigh, ``[leaves]`` each."""
    each = np.ones(tree.device_count) if weights is None else weights
    bounds = []
    for first, last, count in zip(tree.first_device, tree.first_device[1:], drawn, strict=False):
        sums = np.concatenate([[0.0], np.cumsum(np.sort(each[first:last]))])
        number = round(float(count))
        if kind == "fixed":
            bounds.append((float(sums[number]), float(sums[-1] - sums[-1 - number])))
        else:
            bounds.append((0.0 if kind == "poisson" else float(sums[-1]), float(sums[-1])))
    least, most = np.array(bounds).T
    return least, most


def _channel_std(air: AirPlan, message: FloatArray) -> tuple[FloatArray, ...]:
    """What the receivers' noise leaves in the averages of every tier at least, as `AggregationFacts` wants it.

    Args:
        air: the devices' uplink.
        message: bound of a device's message times its weight in its leaf's average, for each leaf.
    """
    above = (np.zeros(tier.size) for tier in air.tree.tiers[:-1])
    return (*above, message * air.multiplier)


def hops_of(spec: Spec, tree: Tree) -> tuple[Hop, ...]:
    """How messages reach the nodes of each tier, the cloud first.

    Raises:
        SpecError: ``transport`` names a hop that is not there.
    """
    names = [*(tier.name for tier in tree.tiers), "devices"]
    hops = [f"{names[tier + 1]}_to_{names[tier]}" for tier in range(tree.depth)]
    for hop in spec.transport:
        if hop not in hops:
            listed = ", ".join(reversed(hops))
            raise SpecError(f"transport.{hop}", None, f"is no hop of this topology; hops are {listed}")
    return tuple(spec.transport.get(hop, "plain") for hop in hops)


def momentum_gain(steps: int, momentum: float) -> float:
    """How far ``steps`` clipped steps of SGD with momentum can go, in steps times clip norm.

    The buffer starts at zero: ``sum_j (steps - j) momentum**j``; ``steps`` without momentum.
    """
    return float(sum((steps - j) * momentum**j for j in range(steps)))


def build_ledger(
    spec: Spec, tree: Tree, rounds: tuple[Aggregation, ...], participants: Cohort, noise: NoisePlan
) -> TreeReleases:
    """The facts of the protocol for the accountant.

    Raises:
        SpecError: clipped steps where the number of steps is private (``local_epochs``).
    """
    clip, training = spec.privacy.clip, spec.training
    per_step = clip is not None and clip.kind == "step"
    if per_step and training.local_epochs is not None:
        raise SpecError(
            "privacy.clip.kind",
            "step",
            "needs local steps: the number of steps in an epoch is a device's own secret; use update",
        )
    resend = training.global_step == "resend"
    if resend and tree.depth != 2:
        raise SpecError(
            "training.global_step", "resend", "is defined for edges under the cloud only; use increment"
        )
    names = tuple(tier.name for tier in tree.tiers)
    air = air_of(spec, tree, participants.drawn)
    remembers = spec.compression is not None and spec.compression.error_feedback
    moving = participants.most is not None
    steps = []
    for number, aggregation in enumerate(rounds):
        size = momentum_gain(aggregation.local_steps, training.momentum) if per_step else 1.0
        bound = np.full(tree.leaf_count, size)
        fresh = np.zeros(tree.leaf_count, dtype=np.bool_)
        if resend and number == len(rounds) - 1 and len(rounds) > 1:
            fresh = tree.tiers[1].trusted.copy()
            pieces = [momentum_gain(a.local_steps, training.momentum) for a in rounds]
            bound = np.where(fresh, sum(pieces) if per_step else 1.0, bound)
        message = bound / participants.count * (2.0 if moving else 1.0)
        node_std = tuple(
            noise.node[t][:, aggregation.tier] * raw_sensitivity(tree, noise, t, aggregation.tier, message)
            if t >= aggregation.tier  # nobody above hears of it
            else np.zeros(tree.tiers[t].size)
            for t in range(tree.depth)
        )
        steps.append(
            AggregationFacts(
                aggregation.title(names),
                aggregation.tier,
                bound,
                noise.device[:, aggregation.tier] * bound,
                node_std,
                fresh,
                () if air is None else _channel_std(air, bound / participants.count),
                reveals_draw=remembers or (air is not None and not air.is_steady.all()),
            )
        )
    hops = hops_of(spec, tree)
    bits = None if spec.compression is None else spec.compression.bits
    left = survival(spec.faults, hops[-1], participants.drawn, by_chance=participants.kind == "poisson")
    elected = getattr(spec.topology, "supernodes", "fixed") == "elected"
    return TreeReleases(
        names=names,
        parents=tuple(tier.parents for tier in tree.tiers),
        devices=tree.devices,
        drawn=participants.drawn,
        draw_kind=participants.kind,
        draw_rate=participants.rate,
        draw_seen_from=0 if spec.protocol == "hdp" else tree.depth - 1,  # HDP's cloud knows who is online
        steps=tuple(steps),
        rounds=training.rounds,
        hops=hops,
        device_classes=None
        if participants.weights is None and noise.noisy is None
        else DeviceClasses.of(tree.devices, participants.weights, noise.noisy),
        denominators=participants.count,
        most_denominators=participants.most,
        # the silent add no noise: with weak channels left out nobody is sure to be there
        guaranteed_contributors=left.least
        if air is None or air.everybody_sends
        else np.zeros(tree.leaf_count, dtype=np.int64),
        all_nodes_always_send=left.all_nodes_always_send and (air is None or air.is_always_heard),
        elections=left.elections if elected else 0.0,
        rounds_after_noise=bits is not None and bool(noise.device.any()),
        unmask_thresholds=shares_that_unmask(spec.faults, tree, participants.drawn),
    )
