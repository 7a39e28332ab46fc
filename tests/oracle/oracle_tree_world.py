"""What a tree's spec says: who is under whom, who adds how much noise, who may be missing.

Written from docs/spec.md and docs/hdp.md (placement, weights, denominators, dropouts, elections), without
the library's schedule. Lengths are in units of the clip: a message of a device of weight 1 is at most
``bound`` long, which is 1 where whole messages are clipped, and the number of its (clipped) steps where steps
are; a round's learning rate multiplies messages and noise alike and cancels.

*Noise.* By trust: the last trusted party before the first untrusted one adds it; a node, ``z`` times the
largest share that a contribution still raw there has in its average. By hand (``placement``, ``sources``):
the noisers that are named; a node's share is that of the contributions raw there or, where none is, of all of
them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sfumato.data.partition import PartitionRule, partition_sizes

Node = tuple[int, int]
"""An aggregator: its tier (0 is the cloud) and its number there."""


@dataclass(frozen=True)
class Aggregation:
    """What happens after some local steps.

    Attributes:
        tier: of the nodes that average and broadcast.
        bound: of a message, in clips.
        again: where a zone's devices repeat their round: bound of that message and of its last piece.
    """

    tier: int
    bound: float
    again: tuple[float, float] | None = None


@dataclass(frozen=True)
class TreeWorld:
    """A tree as the oracle plays it.

    Attributes:
        names: of the tiers, the cloud's first.
        parents: for every tier, each node's parent in the tier above.
        zones: the devices of every node of the last tier.
        weights: of every device.
        hops: how messages reach every tier's nodes: ``plain`` or ``secure-aggregation``.
        aggregations: of a round, in order.
        repeats: zones that send the whole round again at its end.
        device_std: of each device's own noise in its message, an aggregation each.
        node_std: of a node's noise, ``[aggregation][tier][node]``.
        draw: ``("all" | "poisson" | "fixed", rate or count)``.
        least_weight: of the clipped denominator, ``None`` where it is fixed.
        cloud_draws: whether the cloud picks who takes part.
        sends, lasts: probabilities that a device sends its message, and having sent stays to the end.
        faulty: whether dropouts are declared at all.
        least: share of a session that must survive.
        elected: whether clients are elected supernodes.
        fails: probability that a supernode fails.
        on_failure: ``repeat`` or ``skip``.
    """

    names: tuple[str, ...]
    parents: tuple[tuple[int, ...], ...]
    zones: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]
    hops: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]
    repeats: tuple[bool, ...]
    device_std: tuple[tuple[float, ...], ...]
    node_std: tuple[tuple[tuple[float, ...], ...], ...]
    rounds: int
    delta: float
    replace: bool
    draw: tuple[str, float] = ("all", 1.0)
    least_weight: float | None = None
    cloud_draws: bool = True
    sends: float = 1.0
    lasts: float = 1.0
    faulty: bool = False
    least: float | None = None
    elected: bool = False
    fails: float = 0.0
    on_failure: str = "repeat"

    @property
    def leaf_tier(self) -> int:
        """The tier whose nodes have devices."""
        return len(self.names) - 1

    @cached_property
    def zone_of(self) -> dict[int, int]:
        """Each device's zone."""
        return {device: zone for zone, devices in enumerate(self.zones) for device in devices}

    def ancestor(self, zone: int, tier: int) -> int:
        """The node of ``tier`` that ``zone`` is under."""
        node = zone
        for level in range(self.leaf_tier, tier, -1):
            node = self.parents[level][node]
        return node

    def children(self, node: Node) -> list[Node]:
        """The nodes directly below."""
        tier, index = node
        if tier == self.leaf_tier:
            return []
        return [(tier + 1, child) for child, parent in enumerate(self.parents[tier + 1]) if parent == index]

    def share_drawn(self, zone: int) -> float:
        """The share of a zone's devices that is expected to take part."""
        kind, number = self.draw
        return {"all": 1.0, "poisson": number, "fixed": number / len(self.zones[zone])}[kind]

    def denominator(self, zone: int, weight_came: float) -> float:
        """What the zone's sum is divided by when devices of this weight take part."""
        drawn = self.share_drawn(zone)
        if self.least_weight is not None:
            return max(drawn * self.least_weight, weight_came)
        return drawn * sum(self.weights[device] for device in self.zones[zone])

    def threshold(self, parties: int) -> int:
        """Fewest of a session's parties whose sum may be learnt, and who together open single messages."""
        if self.least is not None:
            return math.ceil(self.least * parties - 1e-12)
        return 2 * parties // 3 + 1

    def parse(self, observer: str) -> tuple[frozenset[Node], frozenset[int]]:
        """Nodes and devices of a coalition."""
        nodes, devices = set(), set()
        for name in observer.split(","):
            kind, _, number = name.partition(":")
            if kind == "device":
                devices.add(int(number))
            elif kind != "public":
                nodes.add((self.names.index(kind), int(number or 0)))
        return frozenset(nodes), frozenset(devices)


def read_tree(spec: Mapping[str, Any]) -> TreeWorld:
    """The world of a spec on a star or a tree, as a user writes it (no files, shares or calibrated noise)."""
    names, parents, zones = _shape(spec["topology"])
    training, privacy, protocol = spec["training"], spec["privacy"], spec["protocol"]
    weights = _weights(spec, zones)
    trusted = _trusted(spec, names, parents)
    resend = training.get("global_step", "increment") == "resend"
    aggregations = _aggregations(training, privacy["clip"]["kind"], len(names), resend=resend)
    faults = spec.get("faults") or {}
    rates = faults.get("dropout_rate", 0.0)
    phases = rates if isinstance(rates, Mapping) else {"mask": rates}
    alive = {
        name: 1.0 - phases.get(name, 0.0) for name in ("advertise", "share", "mask", "consent", "unmask")
    }
    denominator = training.get("denominator", "fixed")
    bare = TreeWorld(
        names=names,
        parents=parents,
        zones=zones,
        weights=weights,
        hops=_hops(spec.get("transport") or {}, names),
        aggregations=aggregations,
        repeats=tuple(resend and trust for trust in trusted[-1]),
        device_std=(),
        node_std=(),
        rounds=training["rounds"],
        delta=float(privacy.get("delta", 1e-5)),
        replace=privacy.get("neighbours") == "replace",
        draw=_draw(training.get("participation", "all")),
        least_weight=None if denominator == "fixed" else denominator["min_weight"],
        cloud_draws=protocol == "hdp" or len(names) == 1,
        sends=alive["advertise"] * alive["share"] * alive["mask"],
        lasts=alive["consent"] * alive["unmask"],
        faulty=bool(faults),
        least=faults.get("survival_threshold"),
        elected=spec["topology"].get("supernodes") == "elected",
        fails=faults.get("supernode_failure_rate", 0.0),
        on_failure=faults.get("when_supernode_fails", "repeat"),
    )
    return Noises(bare, trusted, protocol, privacy["noise"]).world()


def _shape(
    topology: Mapping[str, Any],
) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    if topology["kind"] == "star":
        return ("cloud",), ((-1,),), (tuple(range(topology["devices"])),)
    if "levels" in topology:
        *fans, each = topology["levels"]
        names = tuple(topology.get("names") or ["edge"])
    else:
        fans, names, each = [topology["edges"]], ("edge",), topology["devices_per_edge"]
    parents, size = [(-1,)], 1
    for fan in fans:
        parents.append(tuple(node // fan for node in range(size * fan)))
        size *= fan
    counts = each if isinstance(each, list | tuple) else [each] * size
    zones, first = [], 0
    for count in counts:
        zones.append(tuple(range(first, first + count)))
        first += count
    return ("cloud", *names), tuple(parents), tuple(zones)


def _trusted(
    spec: Mapping[str, Any], names: tuple[str, ...], parents: tuple[tuple[int, ...], ...]
) -> list[list[bool]]:
    trust = spec.get("trust") or {}
    marks = [[False] * len(tier) for tier in parents]
    marks[0][0] = bool(trust.get("cloud", False))
    for edge in trust.get("trusted_edges", []):
        marks[-1][edge] = True
    for name in trust.get("trusted", []):
        kind, _, number = name.partition(":")
        marks[names.index(kind)][int(number)] = True
    return marks


def _weights(spec: Mapping[str, Any], zones: tuple[tuple[int, ...], ...]) -> tuple[float, ...]:
    """How much every device counts: example counts are public, and fixed by the seed."""
    devices = sum(map(len, zones))
    weights = spec["training"].get("weights", "uniform")
    if weights == "uniform":
        return (1.0,) * devices
    data = spec["data"]
    sizes = partition_sizes(
        PartitionRule(**data.get("partition", {})),
        [len(zone) for zone in zones],
        examples=data["examples_per_device"] * devices,
        seed=spec.get("seed", 0),
    )
    return tuple(min(size / weights["examples"], 1.0) for size in sizes.tolist())


def _hops(transport: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, ...]:
    below = [*names[1:], "devices"]
    senders = [f"{name}_to_{to}" for name, to in zip(below, names, strict=True)]
    return tuple(transport.get(hop, "plain") for hop in senders)


def _draw(participation: Any) -> tuple[str, float]:
    if participation == "all":
        return ("all", 1.0)
    if participation["kind"] == "poisson":
        return ("poisson", participation["rate"])
    return ("fixed", participation["count"])


def farthest(steps: int, momentum: float) -> float:
    """How far so many steps of norm 1 take a model, with momentum that starts from rest."""
    velocity = position = 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1.0
        position += velocity
    return position


def _aggregations(
    training: Mapping[str, Any], clip: str, tiers: int, *, resend: bool
) -> tuple[Aggregation, ...]:
    """At every step the highest tier whose period divides it aggregates; the cloud after the last."""
    steps = training.get("steps_per_round") or 1
    periods = list(training.get("aggregate_every") or [])
    if training.get("edge_every"):
        periods = [training["edge_every"]]
    momentum, last, found = training.get("momentum", 0.0), 0, []
    for step in range(1, steps + 1):
        tier = 0 if step == steps else next((t for t, p in enumerate(periods, 1) if step % p == 0), None)
        if tier is None:
            continue
        found.append((tier, 1.0 if clip == "update" else farthest(step - last, momentum)))
        last = step
    bounds = [bound for _, bound in found]
    again = None
    if resend and len(found) > 1:
        again = (1.0, 1.0) if clip == "update" else (sum(bounds), bounds[-1])
    return tuple(
        Aggregation(tier, bound, again if place == len(found) - 1 else None)
        for place, (tier, bound) in enumerate(found)
    )


@dataclass
class Noises:
    """Works out who adds how much noise.

    Attributes:
        bare: the world without its noise.
        trusted: who is trusted with raw updates, ``[tier][node]``.
        protocol: as the spec names it.
        noise: the spec's section.
    """

    bare: TreeWorld
    trusted: list[list[bool]]
    protocol: str
    noise: Mapping[str, Any] | str

    def world(self) -> TreeWorld:
        """The world with its noise."""
        everybody = range(len(self.bare.weights))
        if self.noise == "none":
            device = [[0.0] * len(self.bare.aggregations) for _ in everybody]
            node = [[[0.0] * len(tier) for tier in self.bare.parents] for _ in self.bare.aggregations]
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

    def _bound(self, zone: int, place: int) -> float:
        aggregation = self.bare.aggregations[place]
        if aggregation.again and self.bare.repeats[zone]:
            return aggregation.again[0]
        return aggregation.bound

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
