"""A tree's facts for the accountant: who is under whom, what is sent, who adds which noise.

The facts are arrays a tier (`AggregationFacts`), so a million devices under a thousand edges are a thousand
numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfumato.privacy.observers import Party
from sfumato.privacy.received import Hop, hides_messages
from sfumato.privacy.records import SHUFFLED, BatchFacts
from sfumato.privacy.release import GAUSSIAN, NoiseLaw
from sfumato.privacy.tree.shape import DeviceClasses, TreeShape

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


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
        """Whether ``leaf`` sends its own average to its devices although a tier above aggregates."""
        return self.leaf_broadcasts is not None and bool(self.leaf_broadcasts[leaf])

    def channel(self, tier: int) -> FloatArray | float:
        """Variance of the channel's noise in what each node of ``tier`` receives."""
        return self.channel_std[tier] ** 2 if self.channel_std else 0.0

    def channel_of(self, tier: int, node: int) -> float:
        """Variance of the channel's noise in what ``node`` of ``tier`` receives."""
        return float(self.channel_std[tier][node] ** 2) if self.channel_std else 0.0


@dataclass(frozen=True)
class TreeFacts(TreeShape):
    """Facts of a tiered protocol.

    Attributes:
        names: of the tiers, the cloud's first.
        drawn: devices of each leaf in a round: all, the fixed number, or the expected one.
        draw: how they are chosen, for each leaf (equal for all but ``population``).
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
        always_sent: whether every node sends at every step; if not, only noise on the unit's own path counts.
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
        """Leaves may have steps of their own only right below the root: every rule here holds for these."""
        own = any(step.takes_part is not None or step.leaf_broadcasts is not None for step in self.steps)
        if own and self.depth != 2:
            raise ValueError(f"steps: leaves that take part by themselves need 2 tiers; got {self.depth}")

    # --- steps ----------------------------------------------------------------------------------

    def steps_of(self, leaf: int) -> list[int]:
        """The aggregations of a round that ``leaf`` takes part in."""
        return [number for number, step in enumerate(self.steps) if step.sends(leaf)]

    def known_senders(self, coalition: Iterable[Party], step: AggregationFacts) -> set[tuple[int, int]]:
        """Nodes below those that aggregate whose average, as they send it, ``coalition`` has.

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

    # --- names ----------------------------------------------------------------------------------

    def party_name(self, party: Party) -> str:
        """What the command line calls ``party``."""
        if party.kind == "public":
            return "public"
        if party.kind == "device":
            return f"device:{party.index}"
        return "cloud" if party.tier == 0 else f"{self.names[party.tier]}:{party.index}"

    # --- devices --------------------------------------------------------------------------------

    @cached_property
    def classes(self) -> DeviceClasses:
        """Devices of each leaf that are alike."""
        return self.device_classes or DeviceClasses.alike(self.devices)

    def class_of(self, device: int) -> int:
        """The class of ``device``."""
        of_device = self.classes.of_device
        return self.leaf_of(device) if of_device is None else int(of_device[device])

    @cached_property
    def class_variance(self) -> tuple[FloatArray, ...]:
        """Variance of the noise that a device of each class adds, for each step."""
        return tuple(self.classes.variance(step.device_std) for step in self.steps)

    @property
    def may_drop_out(self) -> bool:
        """Whether a participant, or its leaf, may be missing in some of a round's aggregations."""
        return self.guaranteed_contributors is not None or not self.all_nodes_always_send

    @cached_property
    def min_contributors(self) -> IntArray:
        """How many devices' noise is sure to be in the sum of each leaf that sends.

        Under Poisson participation no device's is, unless a sum is only released with
        ``guaranteed_contributors`` in it; nor where messages are rounded.
        """
        if self.rounds_after_noise:
            return np.zeros(len(self.devices), dtype=np.int64)
        if self.guaranteed_contributors is not None:
            return self.guaranteed_contributors
        if self.draw_kind == "poisson":
            return np.zeros(len(self.devices), dtype=np.int64)
        return np.rint(self.drawn).astype(np.int64)

    # --- weights --------------------------------------------------------------------------------

    @cached_property
    def leaf_weight(self) -> FloatArray:
        """Weight of one device's message in its leaf's average, at most."""
        return 1.0 / (self.drawn if self.denominators is None else self.denominators)

    @cached_property
    def largest_denominators(self) -> FloatArray:
        """What each leaf divides the sum of its messages by, at most."""
        return 1.0 / self.leaf_weight if self.most_denominators is None else self.most_denominators

    @property
    def divides_by_drawn(self) -> bool:
        """Whether what leaves divide by depends on who is drawn."""
        return self.most_denominators is not None

    def weight_below(self, path: IntArray, tier: int, to: int) -> float:
        """Weight of the average of ``path[tier]`` in the average of its ancestor ``path[to]``."""
        weight = 1.0
        for t in range(to, tier):
            weight /= float(self.children[t][path[t]])
        return weight

    def unit_weight(self, path: IntArray, to: int) -> float:
        """Weight of one device's message in the average of its ancestor ``path[to]``."""
        return float(self.leaf_weight[path[-1]]) * self.weight_below(path, self.depth - 1, to)

    # --- hops -----------------------------------------------------------------------------------

    def hop(self, tier: int) -> Hop:
        """How messages reach the nodes of ``tier``."""
        return self.hops[tier] if self.hops else "plain"

    def receiving_sums(self, nodes: Iterable[Party], coalition: Iterable[Party]) -> set[Party]:
        """Those of ``nodes``, members of ``coalition``, that receive nothing but sums of messages."""
        summed = [node for node in nodes if self.hop(node.tier) != "plain"]
        if not summed or not self.unmask_thresholds:
            return set(summed)  # whoever colludes
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
