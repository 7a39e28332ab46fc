"""Who there is: a tree of aggregators over devices, as arrays a tier, never an object a device.

Tier 0 is the cloud; the last tier's nodes (the *leaves*) have devices under them. A star is a tree
whose only tier is the cloud. Nodes are numbered within their tier, devices over the whole tree,
leaf by leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.spec import topology as written
from sfumato.spec.limits import MAX_AGGREGATORS, MAX_DEVICES, MAX_LEVELS
from sfumato.spec.names import unfit_level_names, unfit_site_name
from sfumato.user_text import decimal, parse_yaml, plain, read_text

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Tier:
    """The aggregators at one depth.

    Attributes:
        name: what the spec calls one of them (``cloud``, ``edge``, ``region`` ...).
        parents: index of each one's parent in the tier above, ascending; ``[-1]`` for the cloud.
        trusted: who may see raw updates.
        labels: names of sites, where the topology file gives them; else empty.
    """

    name: str
    parents: IntArray
    trusted: BoolArray
    labels: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of aggregators in this tier."""
        return len(self.parents)


@dataclass(frozen=True)
class Tree:
    """A tree of aggregators with ``devices[c]`` devices under leaf ``c``."""

    tiers: tuple[Tier, ...]
    devices: IntArray

    @property
    def depth(self) -> int:
        """Number of tiers, the cloud included."""
        return len(self.tiers)

    @property
    def leaf_count(self) -> int:
        """Number of nodes that have devices under them."""
        return len(self.devices)

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return int(self.devices.sum())

    @property
    def has_public(self) -> bool:
        """A tree has one global model, which the public may see."""
        return True

    @cached_property
    def first_device(self) -> IntArray:
        """Index of each leaf's first device, and one past the last device: ``leaf_count + 1`` entries."""
        return np.concatenate([[0], np.cumsum(self.devices)]).astype(np.int64)

    @cached_property
    def children(self) -> tuple[IntArray, ...]:
        """For every tier, how many children (nodes, or devices under leaves) each node has."""
        counts = [
            np.bincount(self.tiers[t + 1].parents, minlength=self.tiers[t].size).astype(np.int64)
            for t in range(self.depth - 1)
        ]
        return (*counts, self.devices)

    @cached_property
    def paths(self) -> IntArray:
        """For every leaf, its ancestors' indices from the cloud down to itself: ``[leaves, depth]``."""
        columns = [np.arange(self.leaf_count)]
        for tier in reversed(self.tiers[1:]):
            columns.append(tier.parents[columns[-1]])
        return np.stack(columns[::-1], axis=1).astype(np.int64)

    def leaf_of(self, device: int) -> int:
        """The leaf that ``device`` is under."""
        return int(self.leaves_of(np.array([device]))[0])

    def leaves_of(self, devices: IntArray) -> IntArray:
        """The leaf that each of ``devices`` is under, ``[devices]``."""
        return np.searchsorted(self.first_device, devices, side="right") - 1

    def node_name(self, tier: int, index: int) -> str:
        """``cloud``, or ``name:index``."""
        return "cloud" if tier == 0 else f"{self.tiers[tier].name}:{index}"

    def find_node(self, name: str, *, place: str) -> tuple[int, int]:
        """``(tier, index)`` of the aggregator called ``name``; SpecError at ``place`` where there is none."""
        if name == "cloud":
            return 0, 0
        kind, _, number = name.partition(":")
        for depth, tier in enumerate(self.tiers[1:], start=1):
            if tier.name == kind:
                found = decimal(number)
                if found is not None and found < tier.size:
                    return depth, found
                raise SpecError(place, name, f"must be {kind}:0 to {kind}:{tier.size - 1}")
        names = ", ".join(["cloud", *(f"{tier.name}:0..{tier.size - 1}" for tier in self.tiers[1:])])
        raise SpecError(place, name, f"there are {names}")


def star(devices: int) -> Tree:
    """``devices`` directly under the cloud."""
    return Tree((_cloud(),), np.array([devices], dtype=np.int64))


def balanced(fan_out: Sequence[int], names: Sequence[str]) -> Tree:
    """A tree in which every node of a tier has equally many children; ``fan_out`` runs top down."""
    tiers, size = [_cloud()], 1
    for name, children in zip(names, fan_out[:-1], strict=True):
        parents = np.repeat(np.arange(size, dtype=np.int64), children)
        size *= children
        tiers.append(Tier(name, parents, np.zeros(size, dtype=np.bool_)))
    return Tree(tuple(tiers), np.full(size, fan_out[-1], dtype=np.int64))


def from_spec(topology: written.Star | written.Tree) -> Tree:
    """The tree that a spec's ``topology`` section describes, nobody trusted yet."""
    if isinstance(topology, written.Star):
        tree = star(topology.devices)
    elif topology.file is not None:
        tree = from_file(Path(topology.file))
    elif topology.levels is not None:
        tree = balanced(topology.levels, topology.names or ("edge",))
    else:
        assert topology.edges is not None  # the model allows no fourth way
        per_edge = topology.devices_per_edge
        counts = np.broadcast_to(np.asarray(per_edge, dtype=np.int64), (topology.edges,)).copy()
        edges = Tier(
            "edge", np.zeros(topology.edges, dtype=np.int64), np.zeros(topology.edges, dtype=np.bool_)
        )
        tree = Tree((_cloud(), edges), counts)
    return tree


def from_file(path: Path) -> Tree:
    """A tree from a YAML file: unequal sites, with names and trust of their own.

    The file holds ``names`` (of the tiers below the cloud, top down; default ``[edge]``) and
    ``sites``: a list of ``{name, trusted, devices}`` or, above the last tier, ``{name, trusted, sites}``.
    """
    place = f"topology.file: {path.name}"
    document = plain(parse_yaml(read_text(path, place="topology.file"), place), place)
    if not isinstance(document, dict) or set(document) - {"names", "sites"}:
        raise SpecError(place, document, "must be a mapping with names and sites")
    names = _tier_names(document.get("names", ["edge"]), f"{place}: names")
    parents: list[list[int]] = [[] for _ in names]
    trusted: list[list[bool]] = [[] for _ in names]
    labels: list[list[str]] = [[] for _ in names]
    devices: list[int] = []
    named: dict[str, str] = {}

    def add(sites: Any, depth: int, parent: int, where: str) -> None:
        if not isinstance(sites, list) or not sites:
            raise SpecError(where, sites, "must be a list of at least one site")
        last = depth == len(names) - 1
        below = "devices" if last else "sites"
        for number, site in enumerate(sites):
            here = f"{where}[{number}]"
            if not isinstance(site, dict) or set(site) - {"name", "trusted", below} or below not in site:
                raise SpecError(
                    here, site, f"must be a mapping with {below}, and optionally name and trusted"
                )
            if not isinstance(site.get("trusted", False), bool):
                raise SpecError(f"{here}.trusted", site["trusted"], "must be true or false")
            parents[depth].append(parent)
            trusted[depth].append(site.get("trusted", False))
            own = _site_name(site["name"], here, named) if "name" in site else None
            labels[depth].append(own or f"{names[depth]}:{len(labels[depth])}")
            if last:
                count = site["devices"]
                if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_DEVICES:
                    allowed = f"must be a whole number from 1 to {MAX_DEVICES:,}"
                    raise SpecError(f"{here}.devices", count, allowed)
                devices.append(count)
            else:
                add(site["sites"], depth + 1, len(parents[depth]) - 1, f"{here}.sites")

    add(document.get("sites"), 0, 0, f"{place}: sites")
    tiers = [
        Tier(name, np.array(up, dtype=np.int64), np.array(trust, dtype=np.bool_), tuple(label))
        for name, up, trust, label in zip(names, parents, trusted, labels, strict=True)
    ]
    if sum(devices) > MAX_DEVICES:
        raise SpecError(f"{place}: devices", sum(devices), f"must be at most {MAX_DEVICES:,} in all")
    if sum(map(len, parents)) > MAX_AGGREGATORS:
        raise SpecError(place, sum(map(len, parents)), f"must be at most {MAX_AGGREGATORS:,} sites in all")
    return Tree((_cloud(), *tiers), np.array(devices, dtype=np.int64))


def _tier_names(names: Any, place: str) -> list[str]:
    if not isinstance(names, list) or not 0 < len(names) <= MAX_LEVELS:
        allowed = f"must list the names of the tiers below the cloud, at most {MAX_LEVELS}"
        raise SpecError(place, names, allowed)
    problem = unfit_level_names(names)
    if problem is not None:
        raise SpecError(place, names, problem)
    return names


def _site_name(name: Any, here: str, named: dict[str, str]) -> str:
    """A site's own name; ``named`` says where names were given so far."""
    name = str(name) if isinstance(name, int) and not isinstance(name, bool) else name  # as YAML reads 12
    problem = unfit_site_name(name)
    if problem is None and name in named:
        problem = f"is the name of another site already: {named[name]}"
    if problem is not None:
        raise SpecError(f"{here}.name", name, problem)
    named[name] = here
    return str(name)


def _cloud() -> Tier:
    return Tier("cloud", np.array([-1], dtype=np.int64), np.zeros(1, dtype=np.bool_))
