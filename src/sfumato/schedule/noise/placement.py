"""Who adds noise, how much, relative to what, of which law: placement by trust, multipliers by source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.network.tree import Tree
from sfumato.privacy.noise_law import GAUSSIAN, NoiseLaw
from sfumato.spec.document import Spec
from sfumato.spec.limits import LEAST_SOURCE, MOST_SOURCE
from sfumato.spec.privacy import NoiseBySource, SourceNoise
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

    def scaled(self, device: FloatArray, node: Sequence[FloatArray]) -> NoisePlan:
        """Every source multiplied by a factor of its own: ``device[leaf]``, ``node[tier][index]``."""
        return NoisePlan(
            self.device * device[:, None],
            tuple(mine * factor[:, None] for mine, factor in zip(self.node, node, strict=True)),
            self.noisy,
        )


def place_by_trust(tree: Tree, multipliers: Sequence[float | FloatArray]) -> NoisePlan:
    """Noise where a message first leaves trusted hands (docs/concepts.md).

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


def raw_sensitivity(
    tree: Tree, plan: NoisePlan, tier: int, aggregating: int, message: FloatArray
) -> FloatArray:
    """Zero-out sensitivity of what each node of ``tier`` sends, of contributions still raw there.

    Contributions that were noised on the way do not count, unless all were (then the noise tops up,
    relative to all).

    Args:
        tree: the tree.
        plan: who noises below.
        tier: whose nodes' averages.
        aggregating: the tier that aggregates.
        message: bound of a device's message times its weight in its leaf's average, for each leaf.

    Returns:
        One sensitivity a node, in the unit of ``message``.
    """
    weight, raw = message.copy(), plan.device[:, aggregating] == 0
    if plan.noisy is not None:
        raw |= ~np.logical_and.reduceat(plan.noisy, tree.first_device[:-1])
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
    """``plan`` by the names of its owners, equal ones together: what a resolved spec says.

    Raises:
        SpecError: a multiplier is beyond what a spec can say.
    """
    rows: dict[tuple[float, ...], list[str]] = {}
    for tier in range(tree.depth):
        for index in np.flatnonzero(plan.node[tier].any(axis=1)):
            rows.setdefault(tuple(plan.node[tier][index].tolist()), []).append(
                tree.node_name(tier, int(index))
            )
    for leaf in np.flatnonzero(plan.device.any(axis=1)):
        owner = f"{tree.node_name(tree.depth - 1, int(leaf))}/devices{_some_of(tree, plan, int(leaf))}"
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
    """The plan that ``privacy.noise.sources`` spells out.

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
                    noisy[first:last] = _parse_some(
                        numbers, int(last - first), place=f"{place}.owners", owner=owner
                    )
            else:
                leaf = tree.node_name(tree.depth - 1, 0)
                raise SpecError(f"{place}.owners", owner, f"must be an aggregator, or {leaf}/devices")
    return NoisePlan(device, node, None if noisy.all() else noisy)


def _some_of(tree: Tree, plan: NoisePlan, leaf: int) -> str:
    """``:0-4,7`` where only some devices of ``leaf`` add noise."""
    first, last = tree.first_device[leaf : leaf + 2]
    if plan.noisy is None or plan.noisy[first:last].all():
        return ""
    edges = np.flatnonzero(np.diff(plan.noisy[first:last].astype(np.int8), prepend=0, append=0))
    spans = zip(edges[::2].tolist(), (edges[1::2] - 1).tolist(), strict=True)
    return ":" + ",".join(f"{start}-{stop}" if stop > start else str(start) for start, stop in spans)


def _parse_some(numbers: str, devices: int, *, place: str, owner: str) -> BoolArray:
    """The devices that ``0-4,7`` names, ``[devices]``."""
    chosen = np.zeros(devices, dtype=np.bool_)
    for span in numbers.split(","):
        start, dash, stop = span.partition("-")
        first, last = decimal(start), decimal(stop if dash else start)
        if first is None or last is None or not first <= last < devices:
            raise SpecError(place, owner, f"must list devices 0 to {devices - 1}, like 0-4,7")
        chosen[first : last + 1] = True
    return chosen


def with_device_factor(plan: NoisePlan, factor: float) -> NoisePlan:
    """``plan`` with the devices' own noise multiplied by ``factor``."""
    return replace(plan, device=plan.device * factor)


_PLACE = "privacy.mechanism"


def law_of(spec: Spec) -> NoiseLaw:
    """The law of the noise that parties add: Gaussian, or of an unknown kind that is not composed.

    Raises:
        SpecError: a mechanism from outside the package does not go with another section.
    """
    mechanism, law = spec.privacy.mechanism, GAUSSIAN
    if spec.privacy.clips_examples:
        law = NoiseLaw(
            "Gaussian",
            "privacy.clip.kind: example bounds what single examples contribute, and leaves the message of a "
            "whole device without a bound",
            composed_for_records=True,
        )
    if mechanism is None:
        return law
    if mechanism.law != "gaussian":
        law = NoiseLaw(mechanism.kind, "the accountant composes Gaussian noise only")
    _refuse_what_does_not_fit(spec, mechanism.kind, law)
    return law


def _refuse_what_does_not_fit(spec: Spec, name: str, law: NoiseLaw) -> None:
    other = next((how for how in spec.transport.values() if how != "plain"), None)
    if other is not None:
        raise SpecError(_PLACE, name, f"goes with plain transport only; {other} has a mechanism of its own")
    if spec.control is not None:
        raise SpecError(
            _PLACE, name, "must be left out with control, whose privacy filter is for Gaussian noise"
        )
    noise = spec.privacy.noise
    stated = getattr(noise, "calibrated_from", None) or noise
    if law.why_not_composed and stated.kind in ("target", "formula"):
        raise SpecError(
            "privacy.noise", stated.kind, f"must be a multiplier: the epsilon of {name} is not known"
        )
