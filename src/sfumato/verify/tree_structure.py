"""A tree as the facts have it: who is where, who receives what, how participants are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sfumato.verify import read
from sfumato.verify.parties import Party, kind_and_index, require_index_below
from sfumato.verify.read import Array, Json


class CheckedTreeStructure:
    """A tree of aggregators: who is where, who receives what, and how participants are drawn."""

    def __init__(self, ledger: Json) -> None:
        self.ledger = ledger
        self.names = [str(tier["name"]) for tier in ledger["tiers"]]
        self.parents = [np.zeros(len(ledger["tiers"][0]["parents"]), dtype=np.int64)]
        self.parents += [read.counts(tier["parents"]) for tier in ledger["tiers"][1:]]
        self.depth = len(self.parents)
        self.devices = read.counts(ledger["devices_per_leaf"])
        self.last = np.cumsum(self.devices)
        self.children = [
            np.bincount(below, minlength=len(above))
            for above, below in zip(self.parents, self.parents[1:], strict=False)
        ]
        self.drawn = read.figures(ledger["participants_per_leaf"])
        self.least_divisor = read.figures(ledger["denominator_per_leaf"])
        self.most_divisor = read.figures(ledger["largest_denominator_per_leaf"])
        self.sure = read.counts(ledger["sure_per_leaf"])
        self.always_sent = read.flag(ledger["always_sent"])
        self.class_leaf = read.counts([c["leaf"] for c in ledger["device_classes"]])
        self.class_size = read.counts([c["devices"] for c in ledger["device_classes"]])
        self.class_weight = read.figures([c["weight"] for c in ledger["device_classes"]])
        self.class_noisy = np.array([read.flag(c["noisy"]) for c in ledger["device_classes"]], dtype=np.bool_)
        listed = ledger.get("class_per_device")
        leaves = np.repeat(np.arange(len(self.devices)), self.devices)
        self.class_per_device = leaves if listed is None else read.counts(listed)
        self.steps = ledger["steps"]
        self.paths = self._paths()
        self._noise_cache: dict[int, Array] = {}

    def _paths(self) -> npt.NDArray[np.int64]:
        """For every leaf, its ancestors from the root down to itself, ``[leaves, tiers]``."""
        columns = [np.arange(len(self.devices))]
        for parents in reversed(self.parents[1:]):
            columns.insert(0, parents[columns[0]])
        return np.stack(columns, axis=1)

    @property
    def pair_count(self) -> int:
        """Number of ordered pairs of a device and an observer: aggregator, public or other device."""
        devices = int(self.devices.sum())
        return devices * (sum(map(len, self.parents)) + devices)

    def party_named(self, name: str) -> Party:
        """The party (kind, tier, index) of an observer's name, such as ``edge:2``.

        Raises:
            ValueError: there is no such party.
        """
        if name in ("public", "cloud"):
            return ("public", 0, 0) if name == "public" else ("node", 0, 0)
        kind, index = kind_and_index(name)
        if kind == "device":
            require_index_below(name, index, int(self.devices.sum()))
            return "device", self.depth, index
        if kind not in self.names[1:]:
            raise ValueError(f"there is no party {name!r}")
        tier = self.names.index(kind)
        require_index_below(name, index, len(self.parents[tier]))
        return "node", tier, index

    def node_name(self, tier: int, index: int) -> str:
        """The name of an aggregator: ``cloud`` on ``tier`` 0, else tier and ``index``, such as ``edge:2``."""
        return "cloud" if tier == 0 else f"{self.names[tier]}:{index}"

    def leaf_of(self, device: int) -> int:
        """Index of the leaf (aggregator of the last tier) that a device is under."""
        return int(self.class_leaf[self.class_per_device[device]])

    def class_of(self, device: int) -> int:
        """Index of the class of a device in ``device_classes`` of the ledger."""
        return int(self.class_per_device[device])

    def message_variance(self, step: int) -> Array:
        """Noise variance in a device's weighted message at aggregation ``step``, ``[classes]`` of devices."""
        std = np.array(self.steps[step]["device_noise_std_per_leaf"], dtype=np.float64)
        return np.asarray((std[self.class_leaf] * self.class_weight * self.class_noisy) ** 2)

    def sends(self, step: int, leaf: int) -> bool:
        """Whether the devices of a leaf send messages for aggregation ``step`` of a round."""
        listed = self.steps[step].get("takes_part_per_leaf")
        return listed is None or read.flag(listed[leaf])

    def sending_steps(self, leaf: int) -> list[int]:
        """The indices of a round's aggregations that the devices of ``leaf`` send to, ascending."""
        return [step for step in range(len(self.steps)) if self.sends(step, leaf)]

    def broadcasts(self, step: int, leaf: int) -> bool:
        """Whether ``leaf`` sends devices its own average at ``step``, although a tier above aggregates."""
        listed = self.steps[step].get("also_broadcasts_per_leaf")
        return listed is not None and read.flag(listed[leaf])

    def _nodes_with_known_average(self, step: int, coalition: Sequence[Party]) -> set[tuple[int, int]]:
        """Pairs (tier, index) of the nodes whose average, as they send it at ``step``, ``coalition`` has."""
        found = {(tier, index) for kind, tier, index in coalition if kind == "node"}
        leaves = {self.leaf_of(index) for kind, _, index in coalition if kind == "device"}
        return found | {(self.depth - 1, leaf) for leaf in leaves if self.broadcasts(step, leaf)}

    def weight_in_average(self, leaf: int, tier: int) -> float:
        """Largest weight of a message of weight 1 in the average of the leaf's ancestor on ``tier``."""
        weight = 1.0 / float(self.least_divisor[leaf])
        for t in range(tier, self.depth - 1):
            weight /= float(self.children[t][self.paths[leaf, t]])
        return weight

    def receives_only_sum(self, node: Party, coalition: Sequence[Party]) -> bool:
        """Whether a node of the coalition sees no single message of its children, only their sum.

        That holds over the air, and with secure aggregation while too few of its children are in the
        coalition to remove the masks.
        """
        _, tier, index = node
        hop = self.ledger["hops"][tier]
        if hop != "secure-aggregation":
            return bool(hop == "air")
        devices = [self.leaf_of(i) for kind, _, i in coalition if kind == "device" and tier == self.depth - 1]
        nodes = [int(self.parents[t][i]) for kind, t, i in coalition if kind == "node" and t == tier + 1]
        below = [*devices, *nodes].count(index)
        thresholds = self.ledger["shares_that_unmask"]
        return not thresholds or below < read.count(thresholds[tier][index])

    def ancestor(self, tier: int, index: int, above: int) -> int:
        """Index of the ancestor of a node on the tier ``above``; the node itself if it is on that tier."""
        for t in range(tier, above, -1):
            index = int(self.parents[t][index])
        return index

    def node_of(self, party: Party) -> tuple[int, int]:
        """The tier and the index of ``party``, an aggregator; for a device those of the leaf above it."""
        kind, tier, index = party
        return (self.depth - 1, self.leaf_of(index)) if kind == "device" else (tier, index)

    def lowest_common_tier(self, unit: int, party: Party) -> int:
        """The tier (0: the root) of the lowest aggregator above both device ``unit`` and ``party``."""
        (tier, node), path = self.node_of(party), self.paths[self.leaf_of(unit)]
        return sum(self.ancestor(tier, node, t) == int(path[t]) for t in range(tier + 1)) - 1

    def is_near(self, unit: int, party: Party) -> bool:
        """Whether ``party`` is an aggregator above device ``unit``, or a device under the same leaf."""
        tier, node = self.node_of(party)
        return int(self.paths[self.leaf_of(unit), tier]) == node

    def sees_average(self, step: int, unit: int, coalition: Sequence[Party]) -> bool:
        """Whether the coalition receives the average that the unit's message enters at an aggregation.

        A global average is received by everybody.

        Args:
            step: index of the aggregation in the round.
            unit: index of the device.
            coalition: the observers.
        """
        tier = read.count(self.steps[step]["aggregating_tier"])
        above = int(self.paths[self.leaf_of(unit), tier])
        for kind, t, index in coalition:
            if kind == "device" and int(self.paths[self.leaf_of(index), tier]) == above:
                return True
            if kind == "node" and t >= tier and self.ancestor(t, index, tier) == above:
                return True
        return tier == 0

    def finest_known_sum(self, step: int, unit: int, coalition: Sequence[Party]) -> tuple[int, bool]:
        """The smallest sum with the unit's message that the coalition knows at aggregation ``step``.

        Returns:
            Its node's tier (one more than the last for the message itself), and whether the noise that this
            node adds is in it. Where the coalition knows none: the aggregating tier, and ``True``.
        """
        aggregating = read.count(self.steps[step]["aggregating_tier"])
        path = self.paths[self.leaf_of(unit)]
        for tier in range(self.depth - 1, aggregating - 1, -1):
            node = ("node", tier, int(path[tier]))
            if node in coalition:
                return (tier, False) if self.receives_only_sum(node, coalition) else (tier + 1, True)
            if (tier, int(path[tier])) in self._nodes_with_known_average(step, coalition):
                return tier, True
        return aggregating, True

    def seen_steps(self, unit: int, coalition: Sequence[Party]) -> list[int]:
        """Indices of aggregations with messages of ``unit`` whose average ``coalition`` gets, ascending."""
        steps = self.sending_steps(self.leaf_of(unit))
        return [step for step in steps if self.sees_average(step, unit, coalition)]

    def sampling_seen_by(self, unit: int, coalition: Sequence[Party]) -> tuple[Json, float]:
        """The draw of participants in the leaf of ``unit`` as ``coalition`` sees it, and a ratio of weights.

        The draw has ``kind``, ``rate`` and ``hidden`` as in a certificate; a fixed one its ``population`` and
        ``sample`` without the coalition. The ratio is the largest device weight over the unit's; 1 for all
        but fixed draws.
        """
        draw, leaf = self.ledger["draw"], self.leaf_of(unit)
        first = self.names.index(draw["seen_by"].split(" of ")[0])
        path = self.paths[leaf]
        draws = any(kind == "node" and t >= first and int(path[t]) == i for kind, t, i in coalition)
        peers = sum(kind == "device" and self.leaf_of(i) == leaf for kind, _, i in coalition)
        hidden = not draws and not (peers and self.ledger["hops"][self.depth - 1] == "secure-aggregation")
        if draw["kind"] != "fixed":
            return {"kind": draw["kind"], "rate": draw["rate"], "hidden": hidden}, 1.0
        left, sample = int(self.devices[leaf]) - peers, round(float(self.drawn[leaf]))
        mine = float(self.class_weight[self.class_of(unit)])
        ratio = float(self.class_weight[self.class_leaf == leaf].max()) / mine if mine else 1.0
        sampled = {"kind": "fixed", "rate": sample / int(self.devices[leaf]), "hidden": hidden}
        return sampled | {"population": left, "sample": min(sample, left)}, ratio

    def with_whoever_is_elected(self, unit: int, coalition: Sequence[Party]) -> list[Party]:
        """``coalition`` and, where supernodes are elected, one device that may be the supernode in it.

        If the unit's supernode is in the coalition it is some device of its leaf: the one with the most noise
        is added, whose own noise the coalition then knows.
        """
        leaf, elections = self.leaf_of(unit), read.figure(self.ledger["elections_per_round"])
        if not elections or ("node", self.depth - 1, leaf) not in coalition:
            return list(coalition)
        loudness = np.sum([self.message_variance(step) for step in range(len(self.steps))], axis=0)
        first = int(self.last[leaf] - self.devices[leaf])
        others = [
            ("device", self.depth, device)
            for device in range(first, int(self.last[leaf]))
            if device != unit and ("device", self.depth, device) not in coalition
        ]
        loudest = sorted(others, key=lambda party: -float(loudness[self.class_of(party[2])]))
        return [*coalition, *loudest[:1]]

    def chances_of_office(self, coalition: Sequence[Party]) -> dict[int, float]:
        """For each leaf, the probability that it elects a member of ``coalition`` in a round.

        Only leaves that have such members, and whose supernode is not itself in the coalition.
        """
        elections = read.figure(self.ledger["elections_per_round"])
        members = Counter(self.leaf_of(index) for kind, _, index in coalition if kind == "device")
        return {
            leaf: min(1.0, elections * count / int(self.devices[leaf]))
            for leaf, count in members.items()
            if elections and ("node", self.depth - 1, leaf) not in coalition
        }
