"""Who adds noise, how much, relative to what, of which law: by trust, by a paper's formula, by source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.network.tree import Tree
from sfumato.privacy.release import GAUSSIAN, NoiseLaw
from sfumato.schedule.local_steps import Aggregation, momentum_gain
from sfumato.spec.document import Spec
from sfumato.spec.limits import LEAST_SOURCE, MOST_SOURCE
from sfumato.spec.privacy import NoiseByFormula, NoiseBySource, SourceNoise
from sfumato.user_text import decimal

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class NoisePlan:
    """Noise multipliers (standard deviation over the zero-out sensitivity of the message noised).

    Attributes:
        device: of every device under each leaf, ``[leaves, depth]``; column ``a`` holds for
            aggregations by tier ``a``; 0 where devices add no noise.
        node: of every node, one ``[nodes, depth]`` array a tier.
        noisy: which devices add the noise of their leaf, ``[devices]``; all of them if ``None``.
    """

    device: FloatArray
    node: tuple[FloatArray, ...]
    noisy: BoolArray | None = None

    def has_raw_messages(self, tree: Tree, aggregating: int) -> BoolArray:
        """Mask ``[leaves]`` of those where some device adds no noise when tier ``aggregating`` aggregates."""
        raw: BoolArray = self.device[:, aggregating] == 0
        if self.noisy is not None:
            raw |= ~np.logical_and.reduceat(self.noisy, tree.first_device[:-1])
        return raw

    def scaled(self, device: FloatArray, node: Sequence[FloatArray]) -> NoisePlan:
        """This plan with its multipliers times ``device`` ``[leaves]`` and ``node[tier]`` ``[nodes]``."""
        return NoisePlan(
            self.device * device[:, None],
            tuple(mine * factor[:, None] for mine, factor in zip(self.node, node, strict=True)),
            self.noisy,
        )


def place_by_trust(tree: Tree, multipliers: Sequence[float | FloatArray]) -> NoisePlan:
    """Place noise where a message first leaves trusted hands (docs/concepts.md).

    On its way up, a message is noised by the last trusted party before the first untrusted one:
    the device itself under an untrusted leaf, else the trusted node below the first untrusted one.
    Where everybody up to the aggregating node is trusted, that node noises what it broadcasts.

    Args:
        tree: with trust marked.
        multipliers: for aggregations by each tier, the cloud's first; one for all leaves, or for each. A node
            above several leaves takes the largest of theirs.
    """
    depth = tree.depth
    device = np.zeros((tree.leaf_count, depth))
    node = tuple(np.zeros((tier.size, depth)) for tier in tree.tiers)
    paths = tree.paths
    for aggregating in range(depth):
        undecided = np.ones(tree.leaf_count, dtype=np.bool_)
        each = np.broadcast_to(multipliers[aggregating], tree.leaf_count).astype(np.float64)
        for tier in range(depth - 1, aggregating - 1, -1):
            stops = undecided & ~tree.tiers[tier].trusted[paths[:, tier]]
            if tier == depth - 1:
                device[stops, aggregating] = each[stops]
            else:
                np.maximum.at(node[tier + 1][:, aggregating], paths[stops, tier + 1], each[stops])
            undecided &= ~stops
        np.maximum.at(node[aggregating][:, aggregating], paths[undecided, aggregating], each[undecided])
    return NoisePlan(device, node)


def h2fdp_noise(
    noise: NoiseByFormula, spec: Spec, tree: Tree, rounds: tuple[Aggregation, ...], examples_per_device: float
) -> NoisePlan:
    """The noise plan that H2FDP's (15) with Lemma 3.2 gives.

    ``sigma = c2 q Delta sqrt(L ln(1/delta)) / epsilon`` with ``Delta = 2 eta tau G`` (``2 C`` where whole
    updates are clipped), over ``s_c`` at a trusted edge. ``L`` is the number of global aggregations of all
    training, or of the edge's own, ``q`` the batch size over the examples of a device. A multiplier is sigma
    over the message's actual zero-out sensitivity: ``eta G`` times what the steps it holds can add up to.

    In deeper trees than the paper's every tier is treated as its edges are: ``L`` counts the aggregations by
    that tier. No claim is made then (`claims.h2fdp`).

    Args:
        noise: the formula's constants and its ε.
        spec: of the protocol.
        tree: with trust marked.
        rounds: the aggregations of one round.
        examples_per_device: mean number, for q.
    """
    training, share = spec.training, record_rate(spec, examples_per_device)
    per_step = spec.privacy.clip is not None and spec.privacy.clip.kind == "step"

    def multiplier(steps: int, releases: int) -> float:
        """The noise multiplier of a message.

        Args:
            steps: number of local steps that the message holds.
            releases: L, number of the owner's releases in all rounds.
        """
        stated = 2.0 * rounds[-1].step / momentum_gain(steps, training.momentum) if per_step else 2.0
        sigma = noise.c2 * share * math.sqrt(releases * math.log(1 / spec.privacy.delta)) / noise.epsilon
        return sigma * stated

    held = np.stack([aggregation.steps_of(tree.leaf_count) for aggregation in rounds])
    multipliers = []
    for tier in range(tree.depth):
        own = held[[a.tier == tier for a in rounds]]
        steps, counts = own.max(axis=0, initial=0), (own > 0).sum(axis=0)
        if tier == tree.depth - 1 > 0 and rounds[-1].edge_broadcasts:
            counts = counts + np.array(rounds[-1].edge_broadcasts)
            steps = np.where(rounds[-1].edge_broadcasts, np.maximum(steps, held[-1]), steps)
        each = [
            multiplier(max(int(most), 1), training.rounds * int(count))
            for most, count in zip(steps, counts, strict=True)
        ]
        multipliers.append(np.array(each))
    plan = place_by_trust(tree, multipliers)
    if training.global_update == "resend" and tree.depth == 2 and per_step:
        # a trusted edge's global message holds the whole round
        for edge, own in enumerate(held.T):
            whole = sum(momentum_gain(int(steps), training.momentum) for steps in own[own > 0])
            plan.node[1][edge, 0] *= momentum_gain(int(own[-1]), training.momentum) / whole
    return plan


def record_rate(spec: Spec, examples_per_device: float) -> float:
    """q of H2FDP's (15): batch size over ``examples_per_device``, at most 1; 1 for full batches."""
    size = spec.training.batch_size
    return 1.0 if size == "all" else min(1.0, size / examples_per_device)


def dp_fedavg_device_factor(participants: float) -> float:
    """The factor ``1 / sqrt(r)`` on each device's noise std in DP-FedAvg, so that the sum has std sigma.

    ``participants``: r, in a round. From Alg. 1 of PFELS.
    """
    return 1.0 / math.sqrt(participants)


def raw_sensitivity(
    tree: Tree, plan: NoisePlan, tier: int, aggregating: int, message: FloatArray
) -> FloatArray:
    """Zero-out sensitivity of what each node of ``tier`` sends to contributions without noise so far.

    Contributions noised on the way do not count. Where all were noised, all count: noise at the node is then
    added on top of theirs.

    Args:
        tree: the tree.
        plan: who noises below.
        tier: whose nodes send.
        aggregating: the tier that aggregates.
        message: bound of a device's message times its weight in its leaf's average, ``[leaves]``.

    Returns:
        One sensitivity for each node ``[nodes]``, in the unit of ``message``.
    """
    weight, raw = message.copy(), plan.has_raw_messages(tree, aggregating)
    for above in range(tree.depth - 1, tier, -1):
        ancestors = tree.paths[:, above]
        raw &= plan.node[above][ancestors, aggregating] == 0
        weight = weight / tree.children[above - 1][tree.paths[:, above - 1]]
    out = np.zeros(tree.tiers[tier].size)
    everything = np.zeros_like(out)
    np.maximum.at(out, tree.paths[:, tier][raw], weight[raw])
    np.maximum.at(everything, tree.paths[:, tier], weight)
    return np.where(out > 0, out, everything)


def to_sources(tree: Tree, plan: NoisePlan) -> tuple[SourceNoise, ...]:
    """``plan`` as entries of ``privacy.noise.sources``, one for all owners of the same multipliers.

    ``tree``: gives the owners' names.

    Raises:
        SpecError: a multiplier is outside the range that a spec allows.
    """
    rows: dict[tuple[float, ...], list[str]] = {}
    for tier in range(tree.depth):
        for index in np.flatnonzero(plan.node[tier].any(axis=1)):
            rows.setdefault(tuple(plan.node[tier][index].tolist()), []).append(
                tree.node_name(tier, int(index))
            )
    for leaf in np.flatnonzero(plan.device.any(axis=1)):
        owner = (
            f"{tree.node_name(tree.depth - 1, int(leaf))}/devices{_name_noisy_devices(tree, plan, int(leaf))}"
        )
        rows.setdefault(tuple(plan.device[leaf].tolist()), []).append(owner)
    for row, owners in rows.items():
        for multiplier in row:
            if multiplier != 0 and not LEAST_SOURCE <= multiplier <= MOST_SOURCE:
                allowed = (
                    f"would give {owners[0]} this multiplier; must be {LEAST_SOURCE:g} to {MOST_SOURCE:g}"
                )
                raise SpecError("privacy.noise", multiplier, allowed)
    return tuple(SourceNoise(owners=tuple(owners), multipliers=row) for row, owners in rows.items())


def from_sources(tree: Tree, noise: NoiseBySource) -> NoisePlan:
    """Read the multipliers of every owner of noise in ``tree`` from the entries of ``privacy.noise.sources``.

    Raises:
        SpecError: an owner does not exist, appears twice, or lists the wrong number of multipliers.
    """
    device = np.zeros((tree.leaf_count, tree.depth))
    node = tuple(np.zeros((tier.size, tree.depth)) for tier in tree.tiers)
    noisy = np.ones(tree.device_count, dtype=np.bool_)
    seen: set[tuple[int, int, str]] = set()
    for number, source in enumerate(noise.sources):
        place = f"privacy.noise.sources[{number}]"
        if len(source.multipliers) != tree.depth:
            raise SpecError(f"{place}.multipliers", source.multipliers, f"must list {tree.depth}, one a tier")
        for owner in source.owners:
            name, slash, what = owner.partition("/")
            what, colon, numbers = what.partition(":")
            tier, index = tree.find_node(name, place=f"{place}.owners")
            if (tier, index, what) in seen:
                raise SpecError(f"{place}.owners", owner, "must be named once")
            seen.add((tier, index, what))
            if not slash:
                node[tier][index] = source.multipliers
            elif what == "devices" and tier == tree.depth - 1:
                device[index] = source.multipliers
                if colon:
                    first, last = tree.first_device[index : index + 2]
                    noisy[first:last] = _parse_noisy_devices(
                        numbers, int(last - first), place=f"{place}.owners", owner=owner
                    )
            else:
                leaf = tree.node_name(tree.depth - 1, 0)
                raise SpecError(f"{place}.owners", owner, f"must be an aggregator, or {leaf}/devices")
    return NoisePlan(device, node, None if noisy.all() else noisy)


def _name_noisy_devices(tree: Tree, plan: NoisePlan, leaf: int) -> str:
    """Which of a leaf's devices add noise, counted from its first as 0: ``:0-4,7``; empty where all do."""
    first, last = tree.first_device[leaf : leaf + 2]
    if plan.noisy is None or plan.noisy[first:last].all():
        return ""
    edges = np.flatnonzero(np.diff(plan.noisy[first:last].astype(np.int8), prepend=0, append=0))
    spans = zip(edges[::2].tolist(), (edges[1::2] - 1).tolist(), strict=True)
    return ":" + ",".join(f"{start}-{stop}" if stop > start else str(start) for start, stop in spans)


def _parse_noisy_devices(numbers: str, devices: int, *, place: str, owner: str) -> BoolArray:
    """Mask of the devices of a leaf that ``numbers``, such as ``0-4,7``, lists, ``[devices]``.

    Raises:
        SpecError: at ``place``, about ``owner``: no such list, or a device that is not there.
    """
    chosen = np.zeros(devices, dtype=np.bool_)
    for span in numbers.split(","):
        start, dash, stop = span.partition("-")
        first, last = decimal(start), decimal(stop if dash else start)
        if first is None or last is None or not first <= last < devices:
            raise SpecError(place, owner, f"must list devices 0 to {devices - 1}, like 0-4,7")
        chosen[first : last + 1] = True
    return chosen


def noise_law_of(spec: Spec) -> NoiseLaw:
    """The distribution of the spec's noise, and the reason if the accountant cannot compose it.

    No code that the spec names is run.
    """
    mechanism = spec.privacy.mechanism
    if mechanism is not None and mechanism.law != "gaussian":
        return NoiseLaw(mechanism.kind, "the accountant composes Gaussian noise only")
    if not spec.privacy.clips_examples:
        return GAUSSIAN
    return NoiseLaw(
        "Gaussian",
        "privacy.clip.kind: example bounds what single examples contribute, and leaves the message of a "
        "whole device without a bound",
        composed_for_records=True,
    )
