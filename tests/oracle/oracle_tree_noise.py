"""Who of a tree adds how much noise, from docs/spec.md and docs/hdp.md, without the library's schedule.

By trust: the last trusted party before the first untrusted one adds it; a node, ``z`` times the largest share
that a contribution still raw there has in its average. By hand (``placement``, ``sources``): the noisers that
are named; a node's share is that of the contributions raw there or, where none is, of all of them. At local
steps (``at: step``): every device, to the sum of every step, whoever is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from oracle_record_laws import step_weights
from oracle_tree_world import Node, TreeWorld


@dataclass
class Noises:
    """Works out who adds how much noise.

    Attributes:
        bare: the world without its noise.
        trusted: who is trusted with raw updates, ``[tier][node]``.
        protocol: as the spec names it.
        noise: the spec's section.
        momentum: of local steps.
    """

    bare: TreeWorld
    trusted: list[list[bool]]
    protocol: str
    noise: Mapping[str, Any] | str
    momentum: float = 0.0

    def world(self) -> TreeWorld:
        """The world with its noise."""
        everybody = range(len(self.bare.weights))
        if self.noise == "none":
            device = [[0.0] * len(self.bare.aggregations) for _ in everybody]
            node = [[[0.0] * len(tier) for tier in self.bare.parents] for _ in self.bare.aggregations]
        elif self.noise.get("at") == "step":
            device, node = self._at_steps()
        else:
            device, node = self._by_hand(self._named()) if self._is_by_hand() else self._by_trust()
        return replace(
            self.bare,
            device_std=tuple(map(tuple, device)),
            node_std=tuple(tuple(map(tuple, step)) for step in node),
        )

    def _is_by_hand(self) -> bool:
        assert not isinstance(self.noise, str)
        return "sources" in self.noise or self.noise.get("placement") is not None

    def _at_steps(self) -> tuple[list[list[float]], list[list[list[float]]]]:
        assert not isinstance(self.noise, str)
        world, z = self.bare, float(self.noise["multiplier"])
        node = [[[0.0] * len(tier) for tier in world.parents] for _ in world.aggregations]
        device = [
            [
                z
                * world.weights[one]
                * math.hypot(*step_weights(a.pieces[world.zone_of[one]], self.momentum))
                for a in world.aggregations
            ]
            for one in range(len(world.weights))
        ]
        return device, node

    def _bound(self, zone: int, place: int) -> float:
        aggregation = self.bare.aggregations[place]
        if aggregation.again and self.bare.repeats[zone]:
            return aggregation.again[0]
        return aggregation.bounds[zone]

    def _share(self, zone: int, place: int) -> float:
        """How far a device of weight 1 moves its zone's average (twice where it moves the denominator)."""
        world = self.bare
        if world.least_weight is not None:
            return 2 * self._bound(zone, place) / (world.share_drawn(zone) * world.least_weight)
        return self._bound(zone, place) / world.denominator(zone, 0.0)

    def _by_trust(self) -> tuple[list[list[float]], list[list[list[float]]]]:
        assert not isinstance(self.noise, str)
        world, z, leaf = self.bare, float(self.noise["multiplier"]), self.bare.leaf_tier
        trusted = (
            self.trusted
            if self.protocol not in ("hfl-dp", "pedpfl")
            else [[False] * len(t) for t in world.parents]
        )
        device = [[0.0] * len(world.aggregations) for _ in world.weights]
        node = [[[0.0] * len(tier) for tier in world.parents] for _ in world.aggregations]
        for place, aggregation in enumerate(world.aggregations):
            raw = [[0.0] * len(tier) for tier in world.parents]
            for zone, devices in enumerate(world.zones):
                if trusted[leaf][zone]:
                    raw[leaf][zone] = self._share(zone, place)
                    continue
                for one in devices:
                    device[one][place] = z * world.weights[one] * self._bound(zone, place)
                    if self.protocol == "dp-fedavg":
                        device[one][place] /= math.sqrt(world.share_drawn(zone) * len(devices))
            for tier in range(leaf, aggregation.tier - 1, -1):
                for index, parent in enumerate(world.parents[tier]):
                    below = world.children((tier, index))
                    if below:
                        raw[tier][index] = max(raw[t][i] for t, i in below) / len(below)
                    leaves = tier == aggregation.tier or not trusted[tier - 1][parent]
                    leaves = leaves or (tier == leaf and any(aggregation.own[index : index + 1]))
                    if trusted[tier][index] and leaves:
                        node[place][tier][index] = z * raw[tier][index]
                    if leaves:
                        raw[tier][index] = 0.0
        return device, node

    def _named(self) -> tuple[dict[int, list[float]], dict[Node, list[float]]]:
        """Multipliers of the devices and nodes that are named, one for each tier that aggregates."""
        world = self.bare
        assert not isinstance(self.noise, str)
        devices: dict[int, list[float]] = {}
        nodes: dict[Node, list[float]] = {}
        if "sources" not in self.noise:
            self._placed(devices, nodes, self.noise)
            return devices, nodes
        for source in self.noise["sources"]:
            for owner in source["owners"]:
                where, _, who = owner.partition("/")
                kind, _, number = where.partition(":")
                node = (world.names.index(kind), int(number or 0))
                if not who:
                    nodes[node] = list(source["multipliers"])
                    continue
                zone = world.zones[node[1]]
                for place in _numbers(who.partition(":")[2]) or range(len(zone)):
                    devices[zone[place]] = list(source["multipliers"])
        return devices, nodes

    def _placed(
        self, devices: dict[int, list[float]], nodes: dict[Node, list[float]], noise: Mapping[str, Any]
    ) -> None:
        world, placement, z = (
            self.bare,
            noise["placement"],
            [float(noise["multiplier"])] * len(self.bare.names),
        )
        for zone in _all_or_listed(placement.get("device", []), len(world.zones)):
            devices |= dict.fromkeys(world.zones[zone], z)
        for zone in _all_or_listed(placement.get("edge", []), len(world.zones)):
            nodes[(world.leaf_tier, zone)] = z
        for zone in world.zones:
            for place in _all_or_listed(placement.get("clients", []), len(zone)):
                devices[zone[place]] = z
        for name, chosen in placement.get("levels", {}).items():
            nodes |= {(world.names.index(name), index): z for index in chosen}
        if placement.get("cloud", False):
            nodes[(0, 0)] = z

    def _by_hand(
        self, named: tuple[dict[int, list[float]], dict[Node, list[float]]]
    ) -> tuple[list[list[float]], list[list[list[float]]]]:
        world, (devices, nodes) = self.bare, named
        device = [[0.0] * len(world.aggregations) for _ in world.weights]
        node = [[[0.0] * len(tier) for tier in world.parents] for _ in world.aggregations]
        for place, aggregation in enumerate(world.aggregations):
            for one, multipliers in devices.items():
                bound = self._bound(world.zone_of[one], place)
                device[one][place] = multipliers[aggregation.tier] * world.weights[one] * bound
            for (tier, index), multipliers in nodes.items():
                if tier >= aggregation.tier:
                    share = self._share_at((tier, index), place, devices, nodes)
                    node[place][tier][index] = multipliers[aggregation.tier] * share
        return device, node

    def _share_at(
        self, node: Node, place: int, devices: dict[int, list[float]], nodes: dict[Node, list[float]]
    ) -> float:
        """The largest share of what is raw at a node, of everything where nothing is."""
        world, (tier, index) = self.bare, node
        raw, every = [0.0], [0.0]
        for zone, members in enumerate(world.zones):
            if world.ancestor(zone, tier) != index:
                continue
            share, is_raw = self._share(zone, place), True
            for level in range(world.leaf_tier, tier, -1):
                here = (level, world.ancestor(zone, level))
                is_raw = is_raw and here not in nodes
                share /= len(world.children((level - 1, world.ancestor(zone, level - 1))))
            every.append(share)
            if is_raw and not all(member in devices for member in members):
                raw.append(share)
        return max(raw) or max(every)


def _all_or_listed(places: Any, count: int) -> list[int]:
    """Zones or clients as written: a list of numbers, or the share of all (which is 0 or 1 here)."""
    if isinstance(places, list | tuple):
        return list(places)
    if places not in (0, 1):
        raise ValueError(f"{places}: the oracle reads lists, and the shares 0 and 1")
    return list(range(count)) if places else []


def _numbers(text: str) -> list[int]:
    """``0-2,5`` as numbers."""
    found: list[int] = []
    for piece in filter(None, text.split(",")):
        first, _, last = piece.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
