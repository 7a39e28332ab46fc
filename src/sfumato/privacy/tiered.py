"""The ledger of a tree: what is noised where in a round, and who sees which sums of it.

The facts are arrays a tier (``StepFacts``), so a million devices under a thousand edges are a
thousand numbers. What a coalition sees is a linear map of the noised messages: at a step where the
nodes of tier ``a`` aggregate, every node at or below tier ``a`` on the way receives its children's
averages, and everybody under a tier-``a`` node receives that node's average.

Two bounds for a unit ``u`` and a coalition ``o`` (docs/accounting.md derives both):

*flow*: every aggregation of ``u``'s messages is charged, at the finest sum of it that ``o`` sees, or,
where ``o`` sees none, at the average that goes to ``u``'s own subtree (an ancestor of what ``o`` sees
later, as devices start from it). Only ``u``'s own contribution counts.

*cut*: only what ``o`` sees is charged. Aggregations hidden from ``o`` reach it summed up in the next
one that it sees; the devices that started from a hidden average count with ``2 a_j C_j``. The noise of a
hidden aggregation went into those devices' inputs, so what they send may cancel it: only the noise that is
added at the seen aggregation itself counts.

Noise that a member of ``o`` added, or that entered a sum the member saw, protects nobody: it is taken off.

Where messages arrive summed up (secure aggregation, the air), the node meets the sum of its children
before its own noise, and no single message. Of devices' noise only as much is counted as is there whoever
takes part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sfumato.privacy.accountant import Neighbours
from sfumato.privacy.device_classes import DeviceClasses
from sfumato.privacy.guarantee import Bound, judge
from sfumato.privacy.release import Chance, Draw, Exposure, Release
from sfumato.privacy.views import View

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Hop = Literal["plain", "secure-aggregation", "air"]


@dataclass(frozen=True)
class Party:
    """An observer: ``public``, an aggregator (``node``) or a device.

    Attributes:
        kind: which of the three.
        tier: of a node; 0 is the cloud.
        index: of a node within its tier, or of a device.
    """

    kind: Literal["public", "node", "device"]
    tier: int = 0
    index: int = 0


@dataclass(frozen=True)
class StepFacts:
    """One aggregation step of a round, the same in every round up to a common scale.

    Attributes:
        name: for people, e.g. ``edge aggregation at step 5``.
        tier: of the nodes that aggregate.
        bound: of one device's message, l2, for each leaf; of weight 1, where devices differ in weight.
        device_std: noise every noisy participating device adds to its message, for each leaf; likewise.
        node_std: noise every node adds to its average before it leaves, for each tier.
        fresh: whether the message repeats what hidden aggregations held, with noise of its own
            (the *resend* reading of H2FDP), for each leaf; otherwise it adds to them.
        channel_std: noise that the channel adds to the average every node receives, owned by nobody, for each
            tier; only where messages arrive summed up, and empty where no channel adds any.
        tells_draw: whether more than messages depends on who is drawn: the scale of the channel's noise, or
            what devices remember. Then a draw that is hidden amplifies nothing.
    """

    name: str
    tier: int
    bound: FloatArray
    device_std: FloatArray
    node_std: tuple[FloatArray, ...]
    fresh: npt.NDArray[np.bool_]
    channel_std: tuple[FloatArray, ...] = ()
    tells_draw: bool = False

    def channel(self, tier: int) -> FloatArray | float:
        """Variance of the channel's noise in what each node of ``tier`` receives."""
        return self.channel_std[tier] ** 2 if self.channel_std else 0.0


@dataclass(frozen=True)
class PairClass:
    """Equivalent ordered pairs of a unit and an observer, by one of them."""

    unit: int
    observer: Party
    relation: str
    stands_for: int


@dataclass(frozen=True)
class TieredLedger:
    """Facts of a tiered protocol.

    Attributes:
        names: of the tiers, the cloud's first.
        parents: for each tier, every node's parent in the tier above.
        devices: number of devices under each leaf.
        participants: devices of each leaf in a round: all, the fixed number, or the expected one.
        draw: how they are chosen, for each leaf (equal for all but ``population``).
        draw_seen_from: tier from which downward (towards the leaf) aggregators see the draw.
        steps: aggregations of one round, in order; the last one is the cloud's.
        rounds: how many rounds.
        hops: how messages reach the nodes of each tier; empty: plain everywhere.
        device_classes: devices of one leaf that differ; ``None`` where none do.
        denominators: what each leaf divides the sum of its messages by, at least; if ``None``, participants.
        moving_denominator: whether leaves divide by what came, where that is more: then a device that is left
            out moves the average by up to twice its share (docs/hdp.md).
        least: how many devices are sure to be in a leaf's sum that is released, the unit included; ``None``
            where nobody drops out: all, the fixed number, none under Poisson participation.
        always_sent: whether every node sends at every step; if not, only noise on the unit's own path counts.
        elections: expected number of elections a round of every leaf's supernode among its devices; 0 where
            leaves are parties of their own.
    """

    names: tuple[str, ...]
    parents: tuple[IntArray, ...]
    devices: IntArray
    participants: FloatArray
    draw_kind: Literal["all", "poisson", "fixed"]
    draw_rate: float
    draw_seen_from: int
    steps: tuple[StepFacts, ...]
    rounds: int
    hops: tuple[Hop, ...] = ()
    device_classes: DeviceClasses | None = None
    denominators: FloatArray | None = None
    moving_denominator: bool = False
    least: IntArray | None = None
    always_sent: bool = True
    elections: float = 0.0
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    # --- the tree -------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Number of tiers."""
        return len(self.parents)

    @cached_property
    def first_device(self) -> IntArray:
        """Each leaf's first device, and one past the last."""
        return np.concatenate([[0], np.cumsum(self.devices)]).astype(np.int64)

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return int(self.first_device[-1])

    @cached_property
    def children(self) -> tuple[IntArray, ...]:
        """Nodes of the next tier under each node, for every tier but the last."""
        return tuple(
            np.bincount(self.parents[t + 1], minlength=len(self.parents[t])).astype(np.int64)
            for t in range(self.depth - 1)
        )

    @cached_property
    def paths(self) -> IntArray:
        """For every leaf, its ancestors from the cloud down to itself, ``[leaves, depth]``."""
        columns = [np.arange(len(self.devices))]
        for parents in reversed(self.parents[1:]):
            columns.append(parents[columns[-1]])
        return np.stack(columns[::-1], axis=1)

    def leaf_of(self, device: int) -> int:
        """The leaf above ``device``."""
        return int(np.searchsorted(self.first_device, device, side="right") - 1)

    def party_name(self, party: Party) -> str:
        """What the command line calls ``party``."""
        if party.kind == "public":
            return "public"
        if party.kind == "device":
            return f"device:{party.index}"
        return "cloud" if party.tier == 0 else f"{self.names[party.tier]}:{party.index}"

    @cached_property
    def classes(self) -> DeviceClasses:
        """Devices of each leaf that are alike."""
        return self.device_classes or DeviceClasses.alike(self.devices)

    def class_of(self, device: int) -> int:
        """The class of ``device``."""
        of_device = self.classes.of_device
        return self.leaf_of(device) if of_device is None else int(of_device[device])

    def is_sum(self, tier: int) -> bool:
        """Whether nodes of ``tier`` receive their children's messages summed up only."""
        return bool(self.hops) and self.hops[tier] != "plain"

    # --- noise ----------------------------------------------------------------------------------

    @cached_property
    def _leaf_weight(self) -> FloatArray:
        """Weight of one device's message in its leaf's average."""
        return 1.0 / (self.participants if self.denominators is None else self.denominators)

    @cached_property
    def _most_weight(self) -> FloatArray:
        """Most that weights in a leaf's average can add up to: more devices than expected may take part."""
        heaviest = np.zeros(len(self.devices))
        np.maximum.at(heaviest, self.classes.leaf, self.classes.weight)
        drawn = self.participants * heaviest if self.draw_kind == "fixed" else self.classes.total_weight
        return drawn * self._leaf_weight

    @cached_property
    def _sure(self) -> IntArray:
        """How many devices are sure to be in the sum of each leaf that sends.

        Under Poisson participation no device is, unless a sum is only released with ``least`` in it.
        """
        if self.least is not None:
            return self.least
        if self.draw_kind == "poisson":
            return np.zeros(len(self.devices), dtype=np.int64)
        return np.rint(self.participants).astype(np.int64)

    def _average_noise(self, step: int) -> tuple[FloatArray, ...]:
        """Least variance of the noise in what each node sends on at ``step``, its own included, by tier."""
        key = ("noise", step)
        if key not in self._cache:
            facts = self.steps[step]
            devices = self.classes.least_noise(facts.device_std, self._sure) * self._leaf_weight**2
            out = [devices + facts.channel(self.depth - 1) + facts.node_std[-1] ** 2]
            for tier in range(self.depth - 2, -1, -1):
                share = np.bincount(
                    self.parents[tier + 1], weights=out[-1], minlength=len(self.parents[tier])
                )
                received = share / self.children[tier] ** 2 + facts.channel(tier)
                out.append(received + facts.node_std[tier] ** 2)
            self._cache[key] = tuple(out[::-1])
        noise: tuple[FloatArray, ...] = self._cache[key]
        return noise

    def _device_noise(self, step: int, leaf: int, unit: int | None, members: Counter[int]) -> float:
        """Least variance of devices' noise in the average of ``leaf`` that nobody in the coalition knows.

        Members fill the cohort first, then the quietest others; a unit that takes part adds its own noise.

        Args:
            step: number of the aggregation.
            leaf: whose average.
            unit: class of the unit, where it is under this leaf.
            members: devices of each class that belong to the coalition.
        """
        classes, variance = self.classes, self._class_variance(step)
        alike = classes.of_leaf(leaf)
        left, total = int(self._sure[leaf]), 0.0
        if unit is not None:
            left, total = left - 1, float(variance[unit])
        left -= sum(members[number] for number in alike)
        for number in sorted(alike, key=lambda c: float(variance[c])):
            if left <= 0:
                break
            taken = min(left, int(classes.count[number]) - members[number] - (number == unit))
            left, total = left - taken, total + taken * float(variance[number])
        return total * float(self._leaf_weight[leaf]) ** 2

    def _class_variance(self, step: int) -> FloatArray:
        key = ("variance", step)
        if key not in self._cache:
            self._cache[key] = self.classes.variance(self.steps[step].device_std)
        variance: FloatArray = self._cache[key]
        return variance

    def _children_of(self, tier: int, index: int) -> tuple[int, int]:
        """First child of a node (in the tier below), and one past the last: children stand together."""
        key = ("children", tier, index)
        if key not in self._cache:
            first, last = np.searchsorted(self.parents[tier + 1], [index, index + 1])
            self._cache[key] = int(first), int(last)
        span: tuple[int, int] = self._cache[key]
        return span

    def _noise_met(
        self, unit: int, path: IntArray, coalition: Sequence[Party], number: int, tier: int, sent: bool
    ) -> float:
        """Variance, in the average of ``path[tier]``, of the noise that no member knows.

        All noise in what a member off the path sends is known, as is what member devices add.

        Args:
            unit: the device.
            path: of its leaf.
            coalition: who pools knowledge.
            number: of the aggregation.
            tier: whose average.
            sent: with the node's own noise, or as it is received.
        """
        facts, out = self.steps[number], self._average_noise(number)
        known = {
            (p.tier, p.index)
            for p in coalition
            if p.kind == "node" and p.tier > tier and path[p.tier] != p.index
        }
        members = Counter(self.class_of(p.index) for p in coalition if p.kind == "device")
        leaves = {int(self.classes.leaf[number]) for number in members} | {int(path[-1])}
        changed: dict[int, float] = {}  # what the nodes of the tier at hand send, where members know of it
        for t in range(self.depth - 1, tier - 1, -1):
            received: dict[int, float] = {}
            if t == self.depth - 1:
                for leaf in leaves:
                    mine = self.class_of(unit) if leaf == path[-1] else None
                    received[leaf] = self._device_noise(number, leaf, mine, members)
            else:
                for parent in {int(self.parents[t + 1][child]) for child in changed}:
                    first, last = self._children_of(t, parent)
                    values = out[t + 1][first:last] * float(
                        self.always_sent
                    )  # the others may have nothing to send
                    for child, value in changed.items():
                        if first <= child < last and (self.always_sent or child == path[t + 1]):
                            values[child - first] = value
                    received[parent] = float(values.sum()) / (last - first) ** 2
            channel = np.broadcast_to(facts.channel(t), len(self.parents[t]))
            if t == tier and not sent:
                return received[int(path[t])] + float(channel[path[t]])
            changed = {
                i: value + float(channel[i]) + float(facts.node_std[t][i]) ** 2
                for i, value in received.items()
            }
            changed |= {i: 0.0 for level, i in known if level == t}
        return changed[int(path[tier])]

    def _weight_below(self, path: IntArray, tier: int, to: int) -> float:
        """Weight of the average of ``path[tier]`` in the average of its ancestor ``path[to]``."""
        weight = 1.0
        for t in range(to, tier):
            weight /= float(self.children[t][path[t]])
        return weight

    def _unit_weight(self, path: IntArray, to: int) -> float:
        """Weight of one device's message in the average of its ancestor ``path[to]``."""
        return float(self._leaf_weight[path[-1]]) * self._weight_below(path, self.depth - 1, to)

    # --- views ----------------------------------------------------------------------------------

    def exposures(self, unit: int, coalition: Sequence[Party]) -> tuple[Exposure, ...]:
        """The flow and the cut exposure of ``unit`` towards ``coalition``.

        Raises:
            ValueError: the coalition contains the unit, which knows its own data.
        """
        members = tuple(dict.fromkeys(coalition))
        if Party("device", 0, unit) in members:
            raise ValueError(f"coalition: got device:{unit}; must not contain the unit")
        path = self.paths[self.leaf_of(unit)]
        members = self._with_whoever_is_elected(unit, path, members)
        ways = [
            tuple(
                replace(e, blind=False, chances=chances) if chances else e
                for e in (self._flow(unit, path, members + always), self._cut(unit, path, members + always))
            )
            for always, chances in self._terms_of_office(unit, path, members)
        ]
        return tuple(replace(first, also=tuple(others)) for first, *others in zip(*ways, strict=True))

    def _with_whoever_is_elected(
        self, unit: int, path: IntArray, members: tuple[Party, ...]
    ) -> tuple[Party, ...]:
        """An elected supernode is a device too, and knows its own noise: the loudest that may be it."""
        leaf = int(path[-1])
        if self.elections == 0 or Party("node", self.depth - 1, leaf) not in members:
            return members
        taken = Counter(self.class_of(p.index) for p in members if p.kind == "device")
        loudest = sum((self._class_variance(number) for number in range(len(self.steps))), np.zeros(1))
        for number in sorted(self.classes.of_leaf(leaf), key=lambda c: -float(loudest[c])):
            found = self.classes.members(number, taken[number] + 2).tolist()
            other = (Party("device", 0, d) for d in found if d != unit)
            elected = next((party for party in other if party not in members), None)
            if elected is not None:
                return (*members, elected)
        return members

    def _terms_of_office(
        self, unit: int, path: IntArray, members: tuple[Party, ...]
    ) -> list[tuple[tuple[Party, ...], tuple[Chance, ...]]]:
        """Supernodes that members are charged as in every round, and what more they meet when elected.

        Zones elect independently of each other. Several other zones count as one: once any of them elects
        a member, all of them are charged as if they had. Every way returned to charge the unit's zone and the
        others together is sound (docs/hdp.md).
        """
        if self.elections == 0:
            return [((), ())]
        devices = Counter(self.leaf_of(p.index) for p in members if p.kind == "device")
        share = {
            leaf: min(1.0, self.elections * count / float(self.devices[leaf]))
            for leaf, count in devices.items()
            if Party("node", self.depth - 1, leaf) not in members
        }
        here, last = int(path[-1]), self.depth - 1
        own = (Party("node", last, here),) if here in share else ()
        others = tuple(Party("node", last, leaf) for leaf in sorted(share) if leaf != here)
        p_own = share.get(here, 0.0)
        p_others = 1.0 - math.prod(1.0 - p for leaf, p in share.items() if leaf != here)
        met = {
            more: self._flow(unit, path, members + more).releases for more in {(), own, others, own + others}
        }

        def chance(
            probability: float, more: tuple[Party, ...], beside: tuple[tuple[Party, ...], ...]
        ) -> Chance:
            zone = self.party_name(Party("node", last, here))
            where = f"of {zone}" if more == own else "elsewhere"
            pairs = tuple((met[more + b if more == own else b + more], met[b]) for b in beside)
            return Chance(probability, pairs, f"a member is the elected supernode {where}")

        if not others:
            return [((), (chance(p_own, own, ((),)),) if own else ())]
        if not own:
            return [((), (chance(p_others, others, ((),)),))]
        return [
            ((), (chance(p_own, own, ((), others)), chance(p_others, others, ((), own)))),
            (others, (chance(p_own, own, (others,)),)),
            (own, (chance(p_others, others, (own,)),)),
        ]

    def judge(self, exposure: Exposure, *, delta: float, neighbours: Neighbours) -> Bound:
        """The smallest sound bound that an exposure of this ledger gives."""
        return judge(exposure, delta=delta, neighbours=neighbours)

    def view(self, coalition: Sequence[Party], tier: int) -> View:
        """What ``coalition`` receives when the nodes of ``tier`` aggregate.

        Everything goes through the aggregating node, whose average everybody below receives; that of the
        cloud goes to all, the public included.
        """
        nodes = [p for p in coalition if p.kind == "node" and p.tier >= tier]
        devices = [p.index for p in coalition if p.kind == "device"]
        roots = {int(self.paths[self.leaf_of(device)][tier]) for device in devices}
        roots |= {self._ancestor(node, tier) for node in nodes}
        return View(
            single=frozenset((p.tier, p.index) for p in nodes if not self.is_sum(p.tier)),
            summed=frozenset((p.tier, p.index) for p in nodes if self.is_sum(p.tier)),
            averages=frozenset((tier, root) for root in (roots if tier else {0})),
            senders=frozenset(
                [(p.tier, p.index) for p in nodes if p.tier > tier] + [(self.depth, d) for d in devices]
            ),
        )

    def _sees(self, path: IntArray, coalition: Sequence[Party], step: StepFacts) -> bool:
        """Whether some member receives the average made at ``step`` above the unit."""
        return (step.tier, int(path[step.tier])) in self.view(coalition, step.tier).averages

    def _ancestor(self, node: Party, tier: int) -> int:
        index = node.index
        for t in range(node.tier, tier, -1):
            index = int(self.parents[t][index])
        return index

    def _met(self, path: IntArray, coalition: Sequence[Party], step: StepFacts) -> tuple[int, bool]:
        """Whose average is the finest sum with the unit's message: a tier, and whether its own noise is in.

        One past the last tier stands for the device's own message.
        """
        view = self.view(coalition, step.tier)
        for tier in range(self.depth - 1, step.tier - 1, -1):
            how = view.how(tier, int(path[tier]))
            if how is not None:
                return (tier, False) if how == "sum" else (tier + 1, True)
        return step.tier, True

    def _release(self, unit: int, path: IntArray, coalition: Sequence[Party], number: int) -> Release:
        """The finest sum with the unit's message that is seen at a step, or exposed by flow."""
        facts, mine = self.steps[number], self.class_of(unit)
        own = float(facts.bound[path[-1]]) * float(self.classes.weight[mine])
        tier, sent = self._met(path, coalition, facts)
        if tier == self.depth:
            variance = float(self._class_variance(number)[mine])
            return Release(facts.name, "the device's own message", own, 0.0, variance, False, self.rounds)
        variance = self._noise_met(unit, path, coalition, number, tier, sent)
        node = self.party_name(Party("node", tier, int(path[tier])))
        if not sent:
            view = f"the sum that {node} receives"
        else:
            view = "the global average" if tier == 0 else f"the average of {node}"
        own *= self._unit_weight(path, tier) * self._denominator_gap(tier, sent)
        return Release(facts.name, view, own, 0.0, variance, self._is_standing(path, number), self.rounds)

    def _denominator_gap(self, tier: int, sent: bool) -> float:
        """2 where leaving a device out also moves the denominator; who divides knows what it divides by."""
        knows = tier == self.depth - 1 and not sent
        return 2.0 if self.moving_denominator and not knows else 1.0

    def _is_standing(self, path: IntArray, number: int) -> bool:
        """Whether the noise counted at step ``number`` is the same whether the unit is drawn or not.

        A fixed number of devices that all add as much does. Under Poisson participation the unit's own noise
        is there when it is, and a threshold is reached or not.
        """
        leaf = int(path[-1])
        variance = self._class_variance(number)[list(self.classes.of_leaf(leaf))]
        if self.steps[number].tells_draw:
            return False
        if self.draw_kind == "poisson":  # a threshold is reached, or is not, because the unit came
            return bool(self._sure[leaf] == 0) and not variance.any()
        if not variance.any():
            return True
        return bool(variance.min() == variance.max()) and bool(self._sure[leaf] == self.participants[leaf])

    def _draw(self, leaf: int, coalition: Sequence[Party]) -> Draw:
        """The draw of the unit's leaf, as ``coalition`` meets it.

        Members know that they were not drawn (or were, which leaves even less room for the unit): among the
        others the unit is one of fewer.
        """
        if self.draw_kind != "fixed":
            return Draw(self.draw_kind, self.draw_rate)
        devices, sample = int(self.devices[leaf]), round(float(self.participants[leaf]))
        members = sum(p.kind == "device" and self.leaf_of(p.index) == leaf for p in coalition)
        return Draw("fixed", sample / devices, devices - members, min(sample, devices - members))

    def _blind(self, path: IntArray, coalition: Sequence[Party]) -> bool:
        """Whether nobody in ``coalition`` sees who is drawn: secure aggregation shows it to neighbours."""
        peers = self.hops[-1:] == ("secure-aggregation",)
        return not any(
            p.tier >= self.draw_seen_from and path[p.tier] == p.index
            if p.kind == "node"
            else peers and p.kind == "device" and self.leaf_of(p.index) == path[-1]
            for p in coalition
        )

    def _exposure(
        self,
        bound: Literal["flow", "cut"],
        path: IntArray,
        coalition: Sequence[Party],
        releases: list[Release],
    ) -> Exposure:
        draw = self._draw(int(path[-1]), coalition)
        return Exposure(bound, tuple(releases), draw, self._blind(path, coalition), self.rounds)

    def _flow(self, unit: int, path: IntArray, coalition: Sequence[Party]) -> Exposure:
        releases = [self._release(unit, path, coalition, number) for number in range(len(self.steps))]
        return self._exposure("flow", path, coalition, releases)

    def _cut(self, unit: int, path: IntArray, coalition: Sequence[Party]) -> Exposure:
        releases: list[Release] = []
        hidden: list[int] = []
        for number, facts in enumerate(self.steps):
            if not self._sees(path, coalition, facts):
                hidden.append(number)
                continue
            release = self._release(unit, path, coalition, number)
            releases.append(
                self._with_hidden(release, unit, path, coalition, number, hidden) if hidden else release
            )
            hidden = []
        return self._exposure("cut", path, coalition, releases)

    def _with_hidden(
        self,
        seen: Release,
        unit: int,
        path: IntArray,
        coalition: Sequence[Party],
        number: int,
        hidden: list[int],
    ) -> Release:
        """``seen`` together with the hidden aggregations that it sums up, behind its own noise alone.

        Noise of a hidden aggregation is in the inputs of whoever started from it, so it is no shield for what
        they did then: with the hidden noise given, the sum moves by at most ``own + others``.
        """
        facts, leaf = self.steps[number], int(path[-1])
        to, _ = self._met(path, coalition, facts)
        weight = self._unit_weight(path, to) * float(self.classes.weight[self.class_of(unit)])
        fresh = bool(facts.fresh[leaf])
        own, others = seen.own, 0.0
        widest = self.depth
        for earlier in hidden:
            step = self.steps[earlier]
            if widest < self.depth:
                others += self._influenced(path, step, widest, to, weight)
            if not fresh:
                own += float(step.bound[leaf]) * weight
            widest = min(widest, step.tier)
        last = facts
        if fresh:
            # the resent sum moves by what everybody did since the first hidden average
            pieces = self.steps[hidden[0]]
            last = StepFacts(
                facts.name, facts.tier, pieces.bound, facts.device_std, facts.node_std, facts.fresh
            )
        others += self._influenced(path, last, widest, to, weight)
        if fresh:  # nor by more than their whole messages
            others = min(others, self._influenced(path, facts, widest, to, weight))
        name = f"{seen.name} (with {len(hidden)} hidden before it)"
        return replace(seen, name=name, own=own, others=others)

    def _influenced(self, path: IntArray, step: StepFacts, widest: int, to: int, weight: float) -> float:
        """Replace sensitivity of the others under ``path[widest]``, in the average of ``path[to]``."""
        top = max(widest, to)
        under = self.paths[:, top] == path[top]
        mass = self._weight_below(path, top, to) * float(self._most_weight[under].max())
        bound = float(step.bound[under].max())
        return 2.0 * bound * max(0.0, mass - weight)

    # --- classes of pairs -----------------------------------------------------------------------

    @cached_property
    def _orbits(self) -> tuple[IntArray, ...]:
        """A number for every node, equal only where an automorphism of the tree maps one to the other."""
        below: list[list[Any]] = []
        facts = [
            (
                int(n),
                float(p),
                float(self._leaf_weight[i]),
                int(self._sure[i]),
                *(
                    (*self._kind(number), int(self.classes.count[number]))
                    for number in self.classes.of_leaf(i)
                ),
                *((float(s.bound[i]), float(s.device_std[i]), bool(s.fresh[i])) for s in self.steps),
            )
            for i, (n, p) in enumerate(zip(self.devices, self.participants, strict=True))
        ]
        keys: dict[Any, int] = {}

        def number(key: Any) -> int:
            return keys.setdefault(key, len(keys))

        current = [number((fact, self._node_facts(self.depth - 1, i))) for i, fact in enumerate(facts)]
        below.append(current)
        for tier in range(self.depth - 2, -1, -1):
            groups: list[list[int]] = [[] for _ in self.parents[tier]]
            for child, parent in enumerate(self.parents[tier + 1]):
                groups[int(parent)].append(current[child])
            current = [
                number((tier, tuple(sorted(group)), self._node_facts(tier, i)))
                for i, group in enumerate(groups)
            ]
            below.append(current)
        subtree = below[::-1]
        paths: dict[Any, int] = {}
        orbits: list[IntArray] = []
        for tier, numbers in enumerate(subtree):
            above = orbits[-1][self.parents[tier]] if tier else np.zeros(1, dtype=np.int64)
            rows = [
                paths.setdefault((tier, int(a), n), len(paths)) for a, n in zip(above, numbers, strict=True)
            ]
            orbits.append(np.array(rows, dtype=np.int64))
        return tuple(orbits)

    def _node_facts(self, tier: int, index: int) -> tuple[tuple[float, float], ...]:
        """Noise of a node and of its channel, at every step."""
        return tuple(
            (
                float(s.node_std[tier][index]),
                float(s.channel_std[tier][index]) if s.channel_std else 0.0,
            )
            for s in self.steps
        )

    def _kind(self, number: int) -> tuple[float, bool]:
        """What tells a class of devices from the others of its leaf."""
        return float(self.classes.weight[number]), bool(self.classes.noisy[number])

    def to_dict(self) -> dict[str, Any]:
        """The facts as JSON: enough to recompute every epsilon without this library (docs/accounting.md)."""
        return {
            "kind": "tiered",
            "rounds": self.rounds,
            "tiers": [
                {"name": name, "parents": parents.tolist()}
                for name, parents in zip(self.names, self.parents, strict=True)
            ],
            "devices_per_leaf": self.devices.tolist(),
            "participants_per_leaf": self.participants.tolist(),
            "denominator_per_leaf": (1.0 / self._leaf_weight).tolist(),
            "denominator_moves": self.moving_denominator,
            "sure_per_leaf": self._sure.tolist(),
            "always_sent": self.always_sent,
            "elections_per_round": self.elections,
            "hops": list(self.hops or ("plain",) * self.depth),
            "device_classes": [
                {"leaf": int(leaf), "devices": int(count), "weight": float(weight), "noisy": bool(noisy)}
                for leaf, count, weight, noisy in zip(
                    self.classes.leaf,
                    self.classes.count,
                    self.classes.weight,
                    self.classes.noisy,
                    strict=True,
                )
            ],
            "draw": {
                "kind": self.draw_kind,
                "rate": self.draw_rate,
                "seen_by": f"{self.names[self.draw_seen_from]} of the device",
            },
            "steps": [
                {
                    "name": step.name,
                    "aggregating_tier": step.tier,
                    "message_bound_per_leaf": step.bound.tolist(),
                    "device_noise_std_per_leaf": step.device_std.tolist(),
                    "node_noise_std": [std.tolist() for std in step.node_std],
                    "channel_noise_std": [std.tolist() for std in step.channel_std],
                    "tells_who_was_drawn": step.tells_draw,
                    "repeats_hidden_steps_per_leaf": step.fresh.tolist(),
                }
                for step in self.steps
            ],
        }

    @property
    def leaf_orbits(self) -> IntArray:
        """A number for every leaf, equal only where their devices are interchangeable."""
        return self._orbits[-1]

    def after(self, rounds: int) -> TieredLedger:
        """The ledger of the first ``rounds`` rounds."""
        return replace(self, rounds=rounds)

    def pair_classes(self, unit: int | None = None) -> Iterator[PairClass]:
        """One representative of every class of equivalent ordered pairs; ``stands_for`` adds up to all pairs.

        Observers are every aggregator, the public and every other device. With ``unit``, only the pairs of
        that one device.
        """
        if unit is not None:
            yield from self._pairs_of(unit, units=1)
            return
        leaf_orbits = self.leaf_orbits
        _, firsts = np.unique(leaf_orbits, return_index=True)
        for leaf in np.sort(firsts):
            alike = int((leaf_orbits == leaf_orbits[leaf]).sum())
            for number in self.classes.of_leaf(int(leaf)):
                units = int(self.classes.count[number]) * alike
                yield from self._pairs_of(int(self.classes.members(number, 1)[0]), units)

    def _pairs_of(self, unit: int, units: int) -> Iterator[PairClass]:
        leaf = self.leaf_of(unit)
        path = self.paths[leaf]
        yield PairClass(unit, Party("public"), "public", units)
        for tier in range(self.depth):
            relation = "cloud" if tier == 0 else f"own {self.names[tier]}"
            yield PairClass(unit, Party("node", tier, int(path[tier])), relation, units)
        for number in self.classes.of_leaf(leaf):
            peers = int(self.classes.count[number]) - (number == self.class_of(unit))
            if peers:
                peer = next(int(d) for d in self.classes.members(number, 2) if d != unit)
                yield PairClass(unit, Party("device", 0, peer), "peer", units * peers)
        for common in range(self.depth - 1):
            yield from self._elsewhere(unit, path, common, units)

    def _elsewhere(self, unit: int, path: IntArray, common: int, units: int) -> Iterator[PairClass]:
        """Observers whose lowest common ancestor with the unit is ``path[common]``."""
        place = (
            "elsewhere" if common == 0 else f"in another {self.names[common + 1]} of its {self.names[common]}"
        )
        for tier in range(common + 1, self.depth):
            ancestors = np.arange(len(self.parents[tier]))
            for t in range(tier, common + 1, -1):
                ancestors = self.parents[t][ancestors]
            siblings = self.parents[common + 1][ancestors] == path[common]
            nodes = np.flatnonzero(siblings & (ancestors != path[common + 1]))
            orbits = self._orbits[tier][nodes]
            for orbit in np.unique(orbits):
                alike = nodes[orbits == orbit]
                yield PairClass(
                    unit,
                    Party("node", tier, int(alike[0])),
                    f"{self.names[tier]} {place}",
                    units * len(alike),
                )
                if tier == self.depth - 1:
                    for number in self.classes.of_leaf(int(alike[0])):
                        first = int(self.classes.members(number, 1)[0])
                        count = int(self.classes.count[number]) * len(alike)
                        yield PairClass(unit, Party("device", 0, first), f"device {place}", units * count)


def round_square(releases: Sequence[Release]) -> float:
    """``mu^2`` of a round's releases, zero-out; infinite where one of them has no noise."""
    if any(r.variance == 0 and r.own + r.others > 0 for r in releases):
        return math.inf
    return sum((r.own + r.others) ** 2 / r.variance for r in releases if r.own + r.others > 0)
