"""``topology``: who there is and who talks to whom. ``trust``: who is trusted with raw updates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag, field_validator

from sfumato.spec.base import (
    Count,
    CountOrList,
    Flag,
    Section,
    ShareOrList,
    Whole,
    by_kind,
    count_limit,
    one_or_list,
    refused_error,
)
from sfumato.spec.limits import MAX_AGGREGATORS, MAX_DEVICES, MAX_GROUPS, MAX_LEVELS, MAX_WORKERS
from sfumato.spec.moves import TopologyMoves
from sfumato.spec.names import PartyName, as_site_name, names_given_twice, unfit_level_names
from sfumato.spec.refusals import Refusals

Devices = Annotated[
    int,
    Field(ge=1, le=MAX_DEVICES),
    count_limit(MAX_DEVICES, "lists of a number a device must fit into memory"),
]
Edges = Annotated[
    int, Field(ge=1, le=MAX_AGGREGATORS), count_limit(MAX_AGGREGATORS, "each is named in the resolved spec")
]
Workers = Annotated[
    int, Field(ge=1, le=MAX_WORKERS), count_limit(MAX_WORKERS, "groups look at every worker's memberships")
]
GroupCount = Annotated[
    int,
    Field(ge=1, le=MAX_GROUPS),
    count_limit(MAX_GROUPS, "what each group learns of each other one is computed"),
]


class Zones(Section):
    """Which shares of the data are under one edge together.

    At ``random``, alike in ``data`` (most frequent label), near each other (``distance``), alike in
    ``compute`` speed, or as a ``list`` says.
    """

    kind: Literal["random", "data", "distance", "compute", "list"]
    members: tuple[tuple[Whole, ...], ...] | None = Field(
        default=None, description="with kind: list, the shares of each edge, numbered as partitioned"
    )

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`; they refuse ``members`` without ``kind: list``, and the reverse."""
        verb = "is required" if self.members is None else "goes"
        allowed = f"{verb} with kind: list, the shares of every edge"
        yield (self.members is not None) != (self.kind == "list"), "members", self.members, allowed


class StarTopology(Section):
    """Devices directly under the cloud."""

    kind: Literal["star"] = "star"
    devices: Annotated[Devices, Field(description="how many there are, e.g. {kind: star, devices: 10}")]
    device_names: tuple[PartyName, ...] = Field(
        default=(), description="what each device is called, in the order of their numbers"
    )

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`; they refuse device names that repeat, or too few or many."""
        yield from names_given_twice(self, "device_names")
        names = self.device_names
        allowed = f"must be {self.devices:,}, one for each device; there are {', '.join(names[:20])}"
        yield names and len(names) != self.devices, "device_names", f"{len(names):,} names", allowed


class Site(Section):
    """An aggregator of a tree: with ``devices`` under it at the last level, with ``sites`` above it."""

    name: Annotated[str, BeforeValidator(as_site_name)] | None = None
    trusted: Flag = False
    devices: Devices | None = None
    sites: Annotated[tuple[Site, ...], Field(min_length=1)] | None = None

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`; they refuse a site without or with both of devices and sites."""
        allowed = "must have devices (at the last level) or sites, and not both"
        yield (self.devices is None) == (self.sites is None), "", None, allowed

    def with_all_below(self, place: str) -> Iterator[tuple[str, Site]]:
        """Yield (dotted key, site) of this site, at ``place``, and of every site below it, depth first."""
        yield place, self
        for number, site in enumerate(self.sites or ()):
            yield from site.with_all_below(f"{place}.sites[{number}]")


def size_problem_of_levels(levels: tuple[int, ...]) -> str | None:
    """What makes a tree given by levels too large, as a text beginning with "must"; ``None`` if nothing does.

    ``levels``: how many children each node of a level has, top down; the last are the devices.
    """
    if len(levels) - 1 > MAX_LEVELS:
        between = "levels between the cloud and the devices"
        return f"must have at most {MAX_LEVELS} {between}, not {len(levels) - 1:,}"
    aggregators, width = 0, 1
    for children in levels[:-1]:
        width *= children
        aggregators += width
    return size_problem(aggregators, math.prod(levels))


def size_problem(aggregators: int, devices: int) -> str | None:
    """What makes a tree too large, as a text beginning with "must"; ``None`` if nothing does.

    Args:
        aggregators: number of nodes between the cloud and the devices.
        devices: number of devices.
    """
    if aggregators > MAX_AGGREGATORS:
        most = f"{MAX_AGGREGATORS:,} aggregators: each is named in the resolved spec"
        return f"must make at most {most}; these make {aggregators:,}"
    if devices > MAX_DEVICES:
        return f"must make at most {MAX_DEVICES:,} devices in all, not {devices:,}"
    return None


class TreeTopology(Section):
    """Devices under edges under the cloud, or deeper.

    Exactly one of: ``edges`` with ``devices_per_edge`` (a number, or one for each edge); ``levels``
    (fan-outs top down, the last one being devices) with ``level_names`` of the aggregating levels; ``sites``,
    one by one, with ``level_names`` of the levels they are on (default ``[edge]``); ``file``, with names and
    sites.
    """

    kind: Literal["tree"] = "tree"
    edges: Edges | None = None
    devices_per_edge: CountOrList | None = None
    levels: Annotated[tuple[Count, ...], Field(min_length=2)] | None = Field(
        default=None, description="children of each node, top down; the last entry counts devices"
    )
    level_names: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_LEVELS)] | None = Field(
        default=None, description="names of the aggregating levels below the cloud, top down"
    )
    sites: Annotated[tuple[Site, ...], Field(min_length=1)] | None = Field(
        default=None, description="every aggregator by itself: what a run folder keeps of a file"
    )
    file: str | None = Field(default=None, description="a YAML file with names and sites (see docs/spec.md)")
    supernodes: Literal["fixed", "elected"] = "fixed"
    zones: Zones | None = Field(
        default=None, description="who is under an edge together; as partitioned without"
    )
    moves: TopologyMoves | None = Field(
        default=None, description="devices that change their edge between rounds"
    )

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`.

        They refuse none or several of ``edges``, ``levels``, ``sites`` and ``file``, ``devices_per_edge``
        that does not fit ``edges``, unfit names, and too many nodes.
        """
        ways = {"edges": self.edges, "levels": self.levels, "sites": self.sites, "file": self.file}
        written = [key for key, value in ways.items() if value is not None]
        found = " and ".join(written) or "none of them"
        allowed = f"give exactly one of edges (with devices_per_edge), levels, sites, file; found {found}"
        yield len(written) != 1, "", None, allowed
        edges, each = self.edges, self.devices_per_edge
        yield edges is None and each is not None, "devices_per_edge", each, "goes with edges"
        allowed = "is required with edges: one number for all, or a list"
        yield edges is not None and each is None, "devices_per_edge", None, allowed
        if isinstance(each, tuple):
            allowed = f"must list {edges} numbers, one for each of the edges, or be one number for all"
            yield len(each) != edges, "devices_per_edge", list(each), allowed
        yield from self._refusals_of_names()
        if edges is not None:
            devices = sum(each) if isinstance(each, tuple) else edges * (each or 1)
            allowed = f"must make at most {MAX_DEVICES:,} devices in all, not {devices:,}"
            yield devices > MAX_DEVICES, "devices_per_edge", each, allowed
        elif self.levels is not None:
            problem = size_problem_of_levels(self.levels)
            yield problem, "levels", list(self.levels), problem or ""

    def _refusals_of_names(self) -> Refusals:
        """Refusals of names of levels and devices that do not fit the tree."""
        wanted, names = None if self.levels is None else len(self.levels) - 1, self.level_names
        if self.sites is not None:
            yield from _sites_off_their_level(self.sites, len(names or ("edge",)), "sites")
            yield from _sites_of_one_name(self.sites)
        if names is None:
            allowed = f"is required: names of the {wanted} levels below the cloud"
            yield wanted is not None and wanted > 1, "level_names", None, allowed
            return
        yield wanted is None and self.sites is None, "level_names", list(names), "goes with levels or sites"
        allowed = f"must list {wanted} names, one for each level below the cloud"
        yield wanted is not None and len(names) != wanted, "level_names", list(names), allowed
        problem = unfit_level_names(names)
        yield problem, "level_names", list(names), problem or ""


def _sites_off_their_level(sites: tuple[Site, ...], below: int, place: str) -> Refusals:
    """Refusals of sites with devices above the last of ``below`` levels, or with sites on it.

    ``place``: dotted key of the list, for messages.
    """
    for number, site in enumerate(sites):
        here = f"{place}[{number}]"
        had, wanted = ("devices", "sites") if below > 1 else ("sites", "devices")
        allowed = f"has {had}; at this level, by names, it must have {wanted}"
        yield (site.devices is not None) != (below == 1), here, None, allowed
        yield from _sites_off_their_level(site.sites or (), below - 1, f"{here}.sites")


def _sites_of_one_name(sites: tuple[Site, ...]) -> Refusals:
    """Refusals of a name that two sites have, and of too many sites or devices."""
    named: dict[str, str] = {}
    aggregators = devices = 0
    for number, first in enumerate(sites):
        for place, site in first.with_all_below(f"sites[{number}]"):
            aggregators, devices = aggregators + 1, devices + (site.devices or 0)
            if site.name is not None:
                allowed = f"is the name of another site already: {named.get(site.name)}"
                yield site.name in named, f"{place}.name", site.name, allowed
                named[site.name] = place
    problem = size_problem(aggregators, devices)
    yield problem, "sites", None, problem or ""


GroupCountOrLists = Annotated[
    Annotated[GroupCount, Tag("=one")] | Annotated[tuple[tuple[Whole, ...], ...], Tag("=list")], one_or_list()
]


class GroupChange(Section):
    """Other members of the groups, from a round on."""

    from_round: Annotated[int, Field(ge=2)] = Field(description="the first round with these members")
    groups: tuple[tuple[Whole, ...], ...] = Field(
        description="the workers of every group, as many groups as before"
    )


class GroupTopology(Section):
    """Overlapping groups of workers, each with a master.

    ``global`` (one group of all), ``clusters`` (disjoint), ``labels`` (a worker that holds label y is in
    group y mod M), ``ring`` and ``string`` (neighbours share one worker) take ``devices`` and the number of
    ``groups``; ``list`` takes the members of every group; ``graph`` takes a ``file``. ``eras`` says who is in
    which group later on.
    """

    kind: Literal["groups"] = "groups"
    structure: Literal["global", "clusters", "labels", "ring", "string", "list", "graph"]
    groups: GroupCountOrLists | None = Field(
        default=None, description="how many groups; with structure: list, the workers of each"
    )
    devices: Workers | None = Field(
        default=None, description="how many workers; for list and graph, if left out, those named"
    )
    file: str | None = Field(
        default=None, description="structure: graph: a NetworkX graph as node-link JSON, GraphML or edge list"
    )
    eras: tuple[GroupChange, ...] = Field(
        default=(),
        description="changes of the groups' members: from which round on, and the members of every group",
    )
    group_names: tuple[PartyName, ...] = Field(
        default=(), description="what each group's master is called, in the order of the groups"
    )
    worker_names: tuple[PartyName, ...] = Field(
        default=(), description="what each worker is called, in the order of their numbers"
    )
    stated: Literal["labels"] | None = Field(
        default=None,
        description="written into run folders: labels, where a list was made from workers' labels",
    )

    @property
    def by_labels(self) -> bool:
        """Whether workers are in groups by the labels that they hold, so that a group tells a label."""
        return "labels" in (self.structure, self.stated)

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`.

        They refuse names that occur twice, eras out of order, and values of ``groups``, ``devices``, ``file``
        and ``stated`` that do not go with ``structure``.
        """
        structure, groups, devices, file = self.structure, self.groups, self.devices, self.file
        yield from names_given_twice(self, "group_names", "worker_names")
        starts = [1, *(era.from_round for era in self.eras)]
        for number, (before, after) in enumerate(pairwise(starts)):
            allowed = f"must be after round {before}, when the groups before begin"
            yield after <= before, f"eras[{number}].from_round", after, allowed
        yield (
            self.stated is not None and structure != "list",
            "stated",
            self.stated,
            "goes with structure: list",
        )
        verb = "is required" if file is None else "goes"
        yield (file is not None) != (structure == "graph"), "file", file, f"{verb} with structure: graph"
        if structure == "graph":
            yield (
                groups is not None,
                "groups",
                groups,
                "must be left out: the file says which groups there are",
            )
            return
        if structure == "list":
            allowed = "must list every group's workers, like [[0, 1], [1, 2]]"
            yield not isinstance(groups, tuple), "groups", groups, allowed
            return
        allowed = f"must be a number; lists go with list, not with {structure}"
        yield isinstance(groups, tuple), "groups", groups, allowed
        allowed = f"is required with structure: {structure}: the number of workers"
        yield devices is None, "devices", None, allowed
        if structure == "global":
            allowed = "must be 1 or left out with structure: global"
            yield groups not in (None, 1), "groups", groups, allowed
            return
        yield groups is None, "groups", None, f"is required with structure: {structure}: the number of groups"
        allowed = f"must be at most {devices}, the number of workers"
        yield isinstance(groups, int) and groups > (devices or 0), "groups", groups, allowed


Topology = Annotated[
    Annotated[StarTopology, Tag("=star")]
    | Annotated[TreeTopology, Tag("=tree")]
    | Annotated[GroupTopology, Tag("=groups")],
    by_kind(
        "star", "tree", "groups",
        edges="tree", levels="tree", sites="tree", structure="groups", devices="star",
    ),
]  # fmt: skip


class Trust(Section):
    """Who may see raw updates. Everybody not named here is honest but curious."""

    cloud: Flag = Field(default=False, description="true: the cloud is trusted and adds the noise itself")
    trusted_edges: ShareOrList = Field(
        default=0.0, description="a list of edge numbers, or a fraction drawn with the seed (rounded half up)"
    )
    trusted_aggregators: ShareOrList | None = Field(
        default=None,
        description="groups: a list of group numbers, or a fraction drawn with the seed (rounded half up); "
        "left out: the masters that trusted names, or all of them where it names none",
    )
    trusted: tuple[str, ...] = Field(
        default=(), description="trusted parties by name, e.g. region:0; groups: master:2"
    )
    from_: dict[Whole, tuple[Whole, ...]] | None = Field(
        default=None,
        alias="from",
        description="edges under the cloud: the trusted edges from a round on, like {0: [0, 1], 100: [0]}",
    )

    @field_validator("trusted_edges", "trusted_aggregators", mode="before")
    @classmethod
    def _are_numbers(cls, value: Any) -> Any:
        """``value``, refused where listed parties are not whole numbers."""
        for place, entry in enumerate(value if isinstance(value, list) else ()):
            if isinstance(entry, str):
                allowed = "must be a whole number; parties are named in trust.trusted"
                raise refused_error(f"[{place}]", entry, allowed)
        return value

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`.

        They refuse a party that is listed twice, and beside ``from`` the keys that would say the same, a
        start at round 1, and no entry for round 0.
        """
        listed = {name: getattr(self, name) for name in ("trusted_edges", "trusted_aggregators", "trusted")}
        changes = self.from_ or {}
        for key, parties in (listed | {f"from.{first}": edges for first, edges in changes.items()}).items():
            seen = set[int | str]()
            for at, party in enumerate(parties if isinstance(parties, tuple) else ()):
                yield party in seen, f"{key}[{at}]", party, "is listed already: list each party once"
                seen.add(party)
        if self.from_ is not None:
            allowed = "must say who is trusted from 0, and from rounds 2 and later"
            yield 0 not in changes or 1 in changes, "from", sorted(changes), allowed
            for key in ("trusted_edges", "trusted"):
                allowed = "must be left out with from, which lists the trusted edges"
                yield listed[key] not in (0.0, ()), key, listed[key], allowed
