"""Who there is: a tree of aggregators over devices, their names, and who is trusted with raw updates."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sfumato.arguments import ErrorPlace
from sfumato.errors import SpecError
from sfumato.privacy.tree.shape import TreeShape
from sfumato.random import Stream, generator
from sfumato.spec import topology as written
from sfumato.spec.base import closest_hint
from sfumato.spec.other_words import observer_hint
from sfumato.user_text import KeyLines, decimal, parse_yaml, plain, read_text

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_NODE = re.compile(r"(?<![\w:-])[a-z][a-z0-9_-]*:\d+\b")
MOST_SITES = 8
"""Sites that an error lists."""


@dataclass(frozen=True)
class Tier:
    """What is known of the aggregators at one depth, besides whom they are under.

    Attributes:
        name: what the spec calls one of them (``cloud``, ``edge``, ``region`` ...).
        trusted: who may see raw updates.
        labels: names of sites, where the topology file gives them; else empty.
    """

    name: str
    trusted: BoolArray
    labels: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of aggregators in this tier."""
        return len(self.trusted)


@dataclass(frozen=True)
class Tree(TreeShape):
    """A tree of aggregators with ``devices[c]`` devices under leaf ``c``; a star's only tier is the cloud.

    Attributes:
        tiers: names, trust and sites, for each tier.
        home: the leaf that every device was under in the first round, where some have moved.
        device_names: what the devices are called; empty: by their numbers.
    """

    tiers: tuple[Tier, ...]
    home: IntArray | None = field(default=None, kw_only=True)
    device_names: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def has_public(self) -> bool:
        """Always true: a tree has one global model, which the public may see."""
        return True

    @property
    def site_names(self) -> tuple[str, ...]:
        """The names of the devices if they have any, else those of the leaves; () without either."""
        return self.device_names or self.tiers[-1].labels

    @property
    def hop_names(self) -> tuple[str, ...]:
        """For each tier, the name of the hop that leads up to it (``devices_to_edge``); the cloud first."""
        names = [*(tier.name for tier in self.tiers), "devices"]
        return tuple(f"{below}_to_{above}" for above, below in pairwise(names))

    def node_name(self, tier: int, index: int) -> str:
        """The name of an aggregator by tier and index: ``cloud``, or level and number, such as ``edge:3``."""
        return "cloud" if tier == 0 else f"{self.tiers[tier].name}:{index}"

    def titled(self, text: str) -> str:
        """``text`` with ``edge:3``, ``device:N`` and the like replaced by the topology's names."""
        return _NODE.sub(lambda name: self._titles.get(name[0], name[0]), text) if self._titles else text

    @cached_property
    def _sites(self) -> dict[str, tuple[int, int]]:
        """The tier and the index of every named site."""
        return {
            label: (depth, index)
            for depth, tier in enumerate(self.tiers)
            for index, label in enumerate(tier.labels)
        }

    @cached_property
    def _titles(self) -> dict[str, str]:
        """The names that the topology gives, by ``edge:3``, ``device:N``, ``record:N`` or ``person:N``."""
        sites = {self.node_name(*where): label for label, where in self._sites.items()}
        devices = {f"device:{number}": name for number, name in enumerate(self.device_names)}
        within = {
            f"{kind}:{number}": f"{kind}:{name}"
            for number, name in enumerate(self.device_names)
            for kind in ("record", "person")
        }
        return sites | devices | within

    def find_node(self, name: str, *, place: ErrorPlace) -> tuple[int, int]:
        """``(tier, index)`` of the aggregator called ``name``, its own name or ``level:number``.

        Raises:
            SpecError: at ``place``; there is none.
        """
        if name == "cloud":
            return 0, 0
        if name in self._sites:
            return self._sites[name]
        kind, _, number = name.partition(":")
        for depth, tier in enumerate(self.tiers[1:], start=1):
            if tier.name == kind:
                found = decimal(number)
                if found is not None and found < tier.size:
                    return depth, found
                here, others = f"must be {kind}:0 to {kind}:{tier.size - 1}", self._levels(but=kind)
                raise SpecError(place, name, f"{', '.join([here, *others])} or cloud")
        if name in self.device_names:
            raise SpecError(place, name, "is a device; there is no aggregator of this name")
        named = [label for label in self._sites if ":" not in label] + list(self.device_names)
        more = [f"{len(named) - MOST_SITES:,} more names"] if len(named) > MOST_SITES else []
        names = ", ".join(["cloud", *self._levels(), *named[:MOST_SITES], *more])
        known = ["cloud", *self._sites, *self.device_names]
        kinds = [*(tier.name for tier in self.tiers[1:]), "device"]
        near = observer_hint(name, kinds) or closest_hint(name, known)
        raise SpecError(place, name, f"there are {names}{near}")

    def _levels(self, *, but: str = "") -> list[str]:
        """The aggregators of every level below the cloud ``but`` one, such as ``edge:0..4``."""
        return [f"{tier.name}:0..{tier.size - 1}" for tier in self.tiers[1:] if tier.name != but]


def star(devices: int) -> Tree:
    """The tree with ``devices`` devices directly under the cloud."""
    return _tree((), (), [devices])


def balanced(fan_out: Sequence[int], names: Sequence[str]) -> Tree:
    """The tree in which every node of a tier has the same number of children.

    Args:
        fan_out: numbers of children, top down; the last is that of devices under a leaf.
        names: of the tiers below the cloud.
    """
    parents, size = [], 1
    for children in fan_out[:-1]:
        parents.append(np.repeat(np.arange(size), children))
        size *= children
    tiers = [Tier(name, np.zeros(len(up), dtype=np.bool_)) for name, up in zip(names, parents, strict=True)]
    return _tree(parents, tiers, np.full(size, fan_out[-1]))


def from_spec(topology: written.StarTopology | written.TreeTopology) -> Tree:
    """The tree that the section ``topology`` of a spec describes; trusted are only sites that it marks so.

    Raises:
        SpecError: the section names a file that cannot be read, or holds something else than a topology.
    """
    if isinstance(topology, written.StarTopology):
        tree = replace(star(topology.devices), device_names=topology.device_names)
    elif topology.file is not None:
        tree = from_spec(read_topology_file(Path(topology.file)))
    elif topology.sites is not None:
        tree = from_sites(topology.level_names or ("edge",), topology.sites)
    elif topology.levels is not None:
        tree = balanced(topology.levels, topology.level_names or ("edge",))
    else:
        assert topology.edges is not None  # the model allows no fourth way
        per_edge = topology.devices_per_edge
        counts = np.broadcast_to(np.asarray(per_edge), (topology.edges,))
        edges = Tier("edge", np.zeros(topology.edges, dtype=np.bool_))
        tree = _tree([np.zeros(topology.edges)], [edges], counts)
    return tree


def from_sites(names: Sequence[str], sites: Sequence[written.Site]) -> Tree:
    """The tree of the aggregators that ``sites`` lists; ``names``: of the tiers below the cloud, top down."""
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
        Tier(name, np.array(trust, dtype=np.bool_), tuple(label))
        for name, trust, label in zip(names, trusted, labels, strict=True)
    ]
    return _tree(parents, tiers, devices)


def read_topology_file(path: Path) -> written.TreeTopology:
    """The ``topology`` section that a YAML file describes.

    The file holds ``names`` (of the tiers below the cloud, top down; default ``[edge]``) and
    ``sites``: a list of ``{name, trusted, devices}`` or, above the last tier, ``{name, trusted, sites}``.

    Raises:
        SpecError: it cannot be read, or holds something else.
    """
    from pydantic import ValidationError

    from sfumato.spec.validation_messages import Problem, error_of_problems, problems_of

    place = f"topology.file: {path.name}"
    text = read_text(path, place="topology.file")
    document = plain(parse_yaml(text, place), place)
    if not isinstance(document, dict) or set(document) - {"names", "sites"} or "sites" not in document:
        raise SpecError(place, document, "must be a mapping with sites, and optionally names")
    try:
        said = {"level_names" if key == "names" else key: value for key, value in document.items()}
        return written.TreeTopology.model_validate({"kind": "tree", **said})
    except ValidationError as error:
        problems = problems_of(error)

    lines = KeyLines(text)

    def located(problem: Problem) -> SpecError:
        key = problem.place.replace("level_names", "names")
        where = f"{place}: {key}" if key else place
        return SpecError(where, problem.value, problem.allowed + lines.of(key))

    raise error_of_problems(problems, located, place)


def _tree(parents: Sequence[npt.ArrayLike], tiers: Sequence[Tier], devices: npt.ArrayLike) -> Tree:
    """The tree of an untrusted cloud over ``tiers``, with ``devices`` under each leaf.

    ``parents``: for each tier the number of every node's parent.
    """
    cloud = Tier("cloud", np.zeros(1, dtype=np.bool_))
    above = tuple(np.array(up, dtype=np.int64) for up in ([-1], *parents))
    return Tree(above, np.array(devices, dtype=np.int64), (cloud, *tiers))


def with_trust(tree: Tree, trust: written.Trust, *, seed: int) -> Tree:
    """``tree`` with the aggregators marked that the section ``trust`` trusts.

    A fraction of ``trusted_edges`` is rounded half up and drawn without replacement from the stream TRUST of
    ``seed``; parties that the topology's own file trusts stay trusted.

    Raises:
        SpecError: a trusted party does not exist.
    """
    marks = [tier.trusted.copy() for tier in tree.tiers]
    marks[0][0] |= trust.cloud
    if trust.from_ is not None:
        _check_changes(tree)
        marks[-1] = mark_edges(tree, trust.from_[0])
    elif tree.depth > 1:
        marks[-1][_trusted_edges(tree, trust, seed)] = True
    for name in trust.trusted:
        tier, index = tree.find_node(name, place="trust.trusted")
        marks[tier][index] = True
    tiers = tuple(replace(tier, trusted=mark) for tier, mark in zip(tree.tiers, marks, strict=True))
    return replace(tree, tiers=tiers)


def _check_changes(tree: Tree) -> None:
    """Raise a SpecError if trust may not change here.

    It may at edges under the cloud, where ``trust.from`` alone says who is trusted.
    """
    if tree.depth != 2:
        raise SpecError("trust.from", None, "goes with edges under the cloud")
    if tree.tiers[1].trusted.any():
        raise SpecError("trust.from", None, "says who is trusted; leave trusted out of topology's sites")


def trust_as_written(tree: Tree, trust: written.Trust) -> written.Trust:
    """The ``trust`` section of the resolved spec, which names every trusted party of ``tree``.

    If trust changes over time, the rest of ``trust`` stays as it is; only the cloud's entry is set.
    """
    found: dict[str, object] = {"cloud": bool(tree.tiers[0].trusted[0])}
    if trust.from_ is None:
        by_number = tree.depth == 2
        names = tuple(
            node if by_number else tree.node_name(depth, node)
            for depth, tier in enumerate(tree.tiers[1:], start=1)
            for node in np.flatnonzero(tier.trusted).tolist()
        )
        found |= {"trusted_edges": names if by_number else 0.0, "trusted": () if by_number else names}
        found["trusted_aggregators"] = None
    return trust.model_copy(update=found)


def whole_share(share: float, count: int) -> int:
    """How many of ``count`` parties are a ``share`` of them, from 0 to 1: rounded half up."""
    return math.floor(share * count + 0.5)


def _trusted_edges(tree: Tree, trust: written.Trust, seed: int) -> list[int]:
    """Numbers of the trusted edges: those of ``trust.trusted_edges``, or a share drawn by ``seed``.

    Raises:
        SpecError: a listed edge does not exist.
    """
    edges = tree.tiers[-1].size
    if isinstance(trust.trusted_edges, tuple):
        for edge in trust.trusted_edges:
            if edge >= edges:
                raise SpecError("trust.trusted_edges", edge, f"there are edges 0 to {edges - 1}")
        return list(trust.trusted_edges)
    wanted = whole_share(trust.trusted_edges, edges)
    drawn = generator(seed, Stream.TRUST).choice(edges, size=wanted, replace=False)
    return sorted(int(edge) for edge in drawn)


def mark_edges(tree: Tree, edges: Iterable[int]) -> BoolArray:
    """A mask ``[edges]`` of the tree's edges whose number is in ``edges``, one entry of ``trust.from``.

    These edges are trusted.

    Raises:
        SpecError: at ``trust.from``; there is no edge of such a number.
    """
    marks = np.zeros(tree.leaf_count, dtype=np.bool_)
    for edge in edges:
        if edge >= tree.leaf_count:
            raise SpecError("trust.from", edge, f"there are edges 0 to {tree.leaf_count - 1}")
        marks[edge] = True
    return marks
