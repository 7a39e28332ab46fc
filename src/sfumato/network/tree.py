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

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from sfumato.errors import SpecError
from sfumato.spec import topology as written
from sfumato.spec.validation_messages import first_problem
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
        tree = from_spec(read_sites(Path(topology.file)))
    elif topology.sites is not None:
        tree = from_sites(topology.names or ("edge",), topology.sites)
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


def from_sites(names: Sequence[str], sites: Sequence[written.Site]) -> Tree:
    """The tree whose aggregators are listed one by one, on levels called ``names`` below the cloud."""
    parents: list[list[int]] = [[] for _ in names]
    trusted: list[list[bool]] = [[] for _ in names]
    labels: list[list[str]] = [[] for _ in names]
    devices: list[int] = []

    def add(sites: Sequence[written.Site], depth: int, parent: int) -> None:
        for site in sites:
            parents[depth].append(parent)
            trusted[depth].append(site.trusted)
            labels[depth].append(site.name or f"{names[depth]}:{len(labels[depth])}")
            if site.sites is not None:
                add(site.sites, depth + 1, len(parents[depth]) - 1)
            else:
                devices.append(site.devices or 0)

    add(sites, 0, 0)
    tiers = [
        Tier(name, np.array(up, dtype=np.int64), np.array(trust, dtype=np.bool_), tuple(label))
        for name, up, trust, label in zip(names, parents, trusted, labels, strict=True)
    ]
    return Tree((_cloud(), *tiers), np.array(devices, dtype=np.int64))


def read_sites(path: Path) -> written.Tree:
    """The ``topology`` section that a YAML file describes.

    The file holds ``names`` (of the tiers below the cloud, top down; default ``[edge]``) and
    ``sites``: a list of ``{name, trusted, devices}`` or, above the last tier, ``{name, trusted, sites}``.

    Raises:
        SpecError: it cannot be read, or holds something else.
    """
    place = f"topology.file: {path.name}"
    document = plain(parse_yaml(read_text(path, place="topology.file"), place), place)
    if not isinstance(document, dict) or set(document) - {"names", "sites"} or "sites" not in document:
        raise SpecError(place, document, "must be a mapping with sites, and optionally names")
    try:
        return written.Tree.model_validate({"kind": "tree", **document})
    except ValidationError as error:
        problem = first_problem(error)
        where = f"{place}: {problem.place}" if problem.place else place
        raise SpecError(where, problem.value, problem.allowed) from None


def _cloud() -> Tier:
    return Tier("cloud", np.array([-1], dtype=np.int64), np.zeros(1, dtype=np.bool_))
