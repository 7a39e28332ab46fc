"""A tree's facts for the accountant: what is sent, who adds which noise, and how much of it stays unknown.

The facts are arrays a tier (`AggregationFacts`), so a million devices under a thousand edges are a thousand
numbers.

*How much noise there is in a sum that a coalition does not know* (`TreeNoise`). Noise that a member of the
coalition added, or that entered a sum the member saw, protects nobody: it is taken off. Of devices' noise
only as much is counted as is there whoever takes part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfumato.privacy.observers import Party
from sfumato.privacy.received import Hop, hides_messages
from sfumato.privacy.records import SHUFFLED, BatchFacts
from sfumato.privacy.release import GAUSSIAN, NoiseLaw
from sfumato.privacy.tree.shape import DeviceClasses, FloatArray, IntArray, TreeShape


@dataclass(frozen=True)
class AggregationFacts:
    """One aggregation step of a round, the same in every round up to a common scale.

    Attributes:
        name: for people, e.g. ``edge aggregation at step 5``.
        tier: of the nodes that aggregate.
        message_norm: of one device's message, l2, for each leaf; of weight 1, where devices differ in weight.
        device_std: noise every noisy participating device adds to its message, for each leaf; likewise.
        node_std: noise every node adds to its average before it leaves, for each tier.
        resends: whether the message repeats what hidden aggregations held, with noise of its own
            (the *resend* reading of H2FDP), for each leaf; otherwise it adds to them.
        channel_std: noise that the channel adds to the average every node receives, owned by nobody, for each
            tier; only where messages arrive summed up, and empty where no channel adds any.
        takes_part: which leaves send anything at this step: all that are under a node that aggregates;
            ``None``: all.
        leaf_broadcasts: which leaves send their own average to their devices too, where a tier above
            aggregates; ``None``: none.
        reveals_draw: whether more than messages depends on who is drawn: the scale of the channel's noise, or
            what devices remember. Then a draw that is hidden amplifies nothing.
    """

    name: str
    tier: int
    message_norm: FloatArray
    device_std: FloatArray
    node_std: tuple[FloatArray, ...]
    resends: npt.NDArray[np.bool_]
    channel_std: tuple[FloatArray, ...] = ()
    reveals_draw: bool = False
    takes_part: npt.NDArray[np.bool_] | None = None
    leaf_broadcasts: npt.NDArray[np.bool_] | None = None

    def sends(self, leaf: int) -> bool:
        """Whether the devices of ``leaf`` send anything at this step."""
        return self.takes_part is None or bool(self.takes_part[leaf])

    def broadcasts(self, leaf: int) -> bool:
        """Whether ``leaf`` sends its own average to its devices although a tier above it aggregates."""
        return self.leaf_broadcasts is not None and bool(self.leaf_broadcasts[leaf])

    def channel(self, tier: int) -> FloatArray | float:
        """Variance of the channel's noise in what each node of ``tier`` receives, ``[nodes]``; 0 for none."""
        return self.channel_std[tier] ** 2 if self.channel_std else 0.0

    def channel_of(self, tier: int, node: int) -> float:
        """Variance of the channel's noise in what ``node`` of ``tier`` receives; 0 for none."""
        return float(self.channel_std[tier][node] ** 2) if self.channel_std else 0.0


@dataclass(frozen=True)
class TreeFacts(TreeShape):
    """Facts of a tree protocol.

    Attributes:
        names: of the tiers, the cloud's first.
        drawn: devices of each leaf in a round: all, the fixed number, or the expected one.
        draw_kind: how they are chosen.
        draw_rate: share of rounds that a device takes part in, expected; the largest over leaves.
        draw_seen_from: tier from which downward (towards the leaf) aggregators see the draw.
        steps: aggregations of one round, in order; the last one is the cloud's.
        rounds: how many rounds.
        hops: how messages reach the nodes of each tier; empty: plain everywhere.
        device_classes: devices of one leaf that differ; ``None`` where none do.
        denominators: what each leaf divides the sum of its messages by, at least; if ``None``, participants.
        most_denominators: what each leaf divides by at most, where that depends on who is drawn
            (docs/hdp.md); ``None`` where it does not.
        guaranteed_contributors: how many devices are sure to be in a leaf's sum that is released, the unit
            included; ``None`` where nobody drops out: all, the fixed number, none under Poisson
            participation.
        all_nodes_always_send: whether every node sends at every step; if not, only noise on the unit's own
            path counts.
        elections: expected number of elections a round of every leaf's supernode among its devices; 0 where
            leaves are parties of their own.
        unmask_thresholds: under secure aggregation, how many of a node's children hold enough shares of the
            others' secrets to take the masks off their messages, with that node's help; for each tier. Empty:
            sums hide messages whoever colludes.
        rounds_after_noise: whether devices round their messages once they are noised. The noise is no
            Gaussian any more and a sum of them can be taken apart, so a unit is protected by its own alone.
        noise_law: of all noise; a law that is not composed counts as no noise.
        batches: how devices draw their batches.
        sites: the site of every device, by number, where a user named sites; ``None`` elsewhere.
    """

    names: tuple[str, ...]
    drawn: FloatArray
    draw_kind: Literal["all", "poisson", "fixed"]
    draw_rate: float
    draw_seen_from: int
    steps: tuple[AggregationFacts, ...]
    rounds: int
    hops: tuple[Hop, ...] = ()
    device_classes: DeviceClasses | None = None
    denominators: FloatArray | None = None
    most_denominators: FloatArray | None = None
    guaranteed_contributors: IntArray | None = None
    all_nodes_always_send: bool = True
    elections: float = 0.0
    unmask_thresholds: tuple[IntArray, ...] = ()
    rounds_after_noise: bool = False
    noise_law: NoiseLaw = GAUSSIAN
    batches: BatchFacts = SHUFFLED
    sites: IntArray | None = None

    def __post_init__(self) -> None:
        """Raise a ValueError if leaves have steps of their own in a tree of other than two tiers."""
        own = any(step.takes_part is not None or step.leaf_broadcasts is not None for step in self.steps)
        if own and self.depth != 2:
            raise ValueError(f"steps: leaves that take part by themselves need 2 tiers; got {self.depth}")

    def steps_of(self, leaf: int) -> list[int]:
        """Numbers of the aggregations of a round that ``leaf`` takes part in."""
        return [number for number, step in enumerate(self.steps) if step.sends(leaf)]

    def known_senders(self, coalition: Iterable[Party], step: AggregationFacts) -> set[tuple[int, int]]:
        """Nodes ``(tier, index)`` below the aggregating ones whose average, as sent, ``coalition`` knows.

        A member sends its own; where a leaf broadcasts too, its devices receive what it sends.
        """
        found, last = set[tuple[int, int]](), self.depth - 1
        for party in coalition:
            if party.kind == "node" and party.tier > step.tier:
                found.add((party.tier, party.index))
            elif party.kind == "device" and step.tier < last:
                leaf = self.leaf_of(party.index)
                if step.broadcasts(leaf):
                    found.add((last, leaf))
        return found

    def party_name(self, party: Party) -> str:
        """The name of ``party`` on the command line, such as ``edge:0``; that it exists is not checked."""
        if party.kind == "public":
            return "public"
        if party.kind == "device":
            return f"device:{party.index}"
        return "cloud" if party.tier == 0 else f"{self.names[party.tier]}:{party.index}"

    @cached_property
    def classes(self) -> DeviceClasses:
        """The devices sorted into classes: those of one class are under one leaf and alike."""
        return self.device_classes or DeviceClasses.alike(self.devices)

    def class_of(self, device: int) -> int:
        """The class of ``device`` (a number from 0), as an index into the arrays of `classes`."""
        of_device = self.classes.of_device
        return self.leaf_of(device) if of_device is None else int(of_device[device])

    @cached_property
    def class_variance(self) -> tuple[FloatArray, ...]:
        """For each step, the noise variance, a coordinate, of one message of each class, ``[classes]``.

        Its square root has the unit of ``message_norm``.
        """
        return tuple(self.classes.variance(step.device_std) for step in self.steps)

    @property
    def may_drop_out(self) -> bool:
        """Whether a participant, or its leaf, may be missing in some of a round's aggregations."""
        return self.guaranteed_contributors is not None or not self.all_nodes_always_send

    @cached_property
    def min_contributors(self) -> IntArray:
        """A lower bound on how many devices, noisy or not, are in each leaf's sum, if it sends ``[leaves]``.

        0 where their noise is not counted, as messages are rounded after it; and under Poisson participation,
        unless there a sum is only released with ``guaranteed_contributors`` in it.
        """
        if self.rounds_after_noise:
            return np.zeros(len(self.devices), dtype=np.int64)
        if self.guaranteed_contributors is not None:
            return self.guaranteed_contributors
        if self.draw_kind == "poisson":
            return np.zeros(len(self.devices), dtype=np.int64)
        return np.rint(self.drawn).astype(np.int64)

    @cached_property
    def leaf_weight(self) -> FloatArray:
        """For each leaf, the largest weight of one device's message in its average, ``[leaves]``."""
        return 1.0 / (self.drawn if self.denominators is None else self.denominators)

    @cached_property
    def largest_denominators(self) -> FloatArray:
        """The most that each leaf divides the sum of its messages by, ``[leaves]``."""
        return 1.0 / self.leaf_weight if self.most_denominators is None else self.most_denominators

    @property
    def divides_by_drawn(self) -> bool:
        """Whether the denominators of leaves depend on who is drawn."""
        return self.most_denominators is not None

    def weight_below(self, path: IntArray, tier: int, to: int) -> float:
        """Weight of ``path[tier]``'s average in that of ``path[to]``, an ancestor; ``path``: root first."""
        weight = 1.0
        for t in range(to, tier):
            weight /= float(self.children[t][path[t]])
        return weight

    def unit_weight(self, path: IntArray, to: int) -> float:
        """Largest weight of a device's message in the average of ``path[to]``; ``path``: root to leaf."""
        return float(self.leaf_weight[path[-1]]) * self.weight_below(path, self.depth - 1, to)

    def hop(self, tier: int) -> Hop:
        """How messages reach the nodes of ``tier``: plain, secure-aggregation or air."""
        return self.hops[tier] if self.hops else "plain"

    def receiving_sums(self, nodes: Iterable[Party], coalition: Iterable[Party]) -> set[Party]:
        """Those of ``nodes``, members of ``coalition``, that receive only sums of messages."""
        summed = [node for node in nodes if self.hop(node.tier) != "plain"]
        if not summed or not self.unmask_thresholds:
            return set(summed)  # nothing can be unmasked, whoever colludes
        below = Counter(
            (self.depth - 1, self.leaf_of(p.index))
            if p.kind == "device"
            else (p.tier - 1, int(self.parents[p.tier][p.index]))
            for p in coalition
            if p.kind != "public"
        )
        return {
            node
            for node in summed
            if hides_messages(
                self.hop(node.tier),
                colluders=below[node.tier, node.index],
                threshold=int(self.unmask_thresholds[node.tier][node.index]),
            )
        }


@dataclass(frozen=True)
class TreeNoise:
    """Least variances, a coordinate.

    Attributes:
        facts: of the tree.
    """

    facts: TreeFacts

    @cached_property
    def sent(self) -> tuple[tuple[FloatArray, ...], ...]:
        """For each step and tier, the least variance in the average that each node sends on, ``[nodes]``."""
        return tuple(self._variance_sent(number) for number in range(len(self.facts.steps)))

    def _variance_sent(self, number: int) -> tuple[FloatArray, ...]:
        """The least variance in each node's average in aggregation ``number``, ``[nodes]`` for each tier."""
        facts, step = self.facts, self.facts.steps[number]
        devices = (
            facts.classes.least_noise(step.device_std, facts.min_contributors) / facts.largest_denominators**2
        )
        out = [devices + step.channel(facts.depth - 1) + step.node_std[-1] ** 2]
        for tier in range(facts.depth - 2, -1, -1):
            share = np.bincount(facts.parents[tier + 1], weights=out[-1], minlength=len(facts.parents[tier]))
            received = share / facts.children[tier] ** 2 + step.channel(tier)
            out.append(received + step.node_std[tier] ** 2)
        return tuple(out[::-1])

    def variance_unknown_to(
        self,
        unit: int,
        coalition: Sequence[Party],
        number: int,
        tier: int,
        sent: bool,
        present: bool = True,
    ) -> float:
        """The noise variance that no member knows in the average of the node of ``tier`` above ``unit``.

        All noise in what a member off the path to the unit sends is known, as is what member devices add.

        Args:
            unit: the device.
            coalition: the members, who pool what they know.
            number: of the aggregation in a round, from 0.
            tier: whose average.
            sent: with the node's own noise, or as it is received.
            present: whether the unit sends at this aggregation. If not, its own noise is missing, and all
                noise of its leaf where leaves may send nothing.
        """
        facts, step, least_sent = self.facts, self.facts.steps[number], self.sent[number]
        path = facts.paths[facts.leaf_of(unit)]
        leaf_may_be_silent = not present and not facts.all_nodes_always_send
        own_variance = float(facts.class_variance[number][facts.class_of(unit)]) if present else 0.0
        if facts.rounds_after_noise and own_variance > 0:
            return own_variance * facts.unit_weight(path, tier) ** 2
        senders = facts.known_senders(coalition, step)
        known = {(t, i) for t, i in senders if t > tier and path[t] != i}
        members = Counter(facts.class_of(p.index) for p in coalition if p.kind == "device")
        leaves = {int(facts.classes.leaf[number]) for number in members} | {int(path[-1])}
        changed: dict[int, float] = {}  # what the nodes of the tier at hand send, where members know of it
        for t in range(facts.depth - 1, tier - 1, -1):
            received: dict[int, float] = {}
            if t == facts.depth - 1:
                for leaf in leaves:
                    mine = facts.class_of(unit) if leaf == path[-1] else None
                    received[leaf] = self.variance_of_devices(number, leaf, mine, members, present=present)
            else:
                for parent in {int(facts.parents[t + 1][child]) for child in changed}:
                    first, last = facts.first_child[t][parent : parent + 2].tolist()
                    always = float(facts.all_nodes_always_send)  # else others may have nothing
                    values = least_sent[t + 1][first:last] * always
                    for child, value in changed.items():
                        if first <= child < last and (facts.all_nodes_always_send or child == path[t + 1]):
                            values[child - first] = value
                    received[parent] = float(values.sum()) / (last - first) ** 2
            if t == tier and not sent:
                return received[int(path[t])] + step.channel_of(t, int(path[t]))
            changed = {
                i: value + step.channel_of(t, i) + float(step.node_std[t][i]) ** 2
                for i, value in received.items()
            }
            changed |= {i: 0.0 for level, i in known if level == t}
            if leaf_may_be_silent and t == facts.depth - 1:
                changed[int(path[-1])] = 0.0
        return changed[int(path[tier])]

    def variance_if_drawn(
        self, path: IntArray, coalition: Sequence[Party], number: int, tier: int
    ) -> FloatArray:
        """Variance that a drawn device of each class adds to the average of ``path[tier]``, ``[C]``.

        Nothing where a member off the path sends it on; nor in the unit's leaf, if its aggregator is a member
        and has members among the senders: few of them take the masks off in a small session.

        Args:
            path: of the unit's leaf.
            coalition: who pools knowledge.
            number: of the aggregation.
            tier: whose average.
        """
        facts, last, mine = self.facts, self.facts.depth - 1, int(path[-1])
        weight = np.where(
            np.arange(len(facts.paths)) == mine, facts.leaf_weight, 1 / facts.largest_denominators
        )
        for t in range(tier, last):
            weight = weight / facts.children[t][facts.paths[:, t]]
        counts = facts.paths[:, tier] == path[tier]
        for t, i in facts.known_senders(coalition, facts.steps[number]):
            if t > tier and path[t] != i:
                counts &= facts.paths[:, t] != i
        inside = any(p.kind == "device" and facts.leaf_of(p.index) == mine for p in coalition)
        if inside and Party("node", last, mine) in coalition:
            counts[mine] = False
        leaf = facts.classes.leaf
        added: FloatArray = facts.class_variance[number] * (weight**2 * counts)[leaf]
        return added

    def variance_of_devices(
        self, number: int, leaf: int, unit: int | None, members: Counter[int], *, present: bool
    ) -> float:
        """A lower bound on the variance of devices' noise in the average of ``leaf`` that no member knows.

        The fewest devices of a sum are taken to be all members (``members``: their number by class), then the
        others with least noise. ``unit``: the unit's class if it is under this leaf, else ``None``; if
        ``present`` it adds its noise. Where denominators depend on who is drawn, another leaf divides noise
        by the largest; the unit's divides its message by the same, so the smallest is the worst. ``number``:
        of the aggregation.
        """
        classes, variance = self.facts.classes, self.facts.class_variance[number]
        alike = classes.of_leaf(leaf)
        places, total = int(self.facts.min_contributors[leaf]), 0.0
        unit_sends = unit is not None and present
        if unit is not None and unit_sends:
            places, total = places - 1, float(variance[unit])
        places -= sum(members[c] for c in alike)
        for c in sorted(alike, key=lambda c: float(variance[c])):
            if places <= 0:
                break
            taken = min(places, int(classes.count[c]) - members[c] - (c == unit))
            places, total = places - taken, total + taken * float(variance[c])
        denominators = 1.0 / self.facts.leaf_weight if unit_sends else self.facts.largest_denominators
        return total / float(denominators[leaf]) ** 2
