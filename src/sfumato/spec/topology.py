"""``topology``: who there is and who talks to whom. ``trust``: who is trusted with raw updates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag, field_validator, model_validator

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
    refuse,
)
from sfumato.spec.limits import MAX_AGGREGATORS, MAX_DEVICES, MAX_GROUPS, MAX_LEVELS, MAX_WORKERS
from sfumato.spec.moves import Moves
from sfumato.spec.names import PartyName, as_site_name, require_one_party_each, unfit_level_names

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

    @model_validator(mode="after")
    def _members_are_listed(self) -> Zones:
        if (self.members is not None) != (self.kind == "list"):
            verb = "is required" if self.members is None else "goes"
            raise refuse("members", self.members, f"{verb} with kind: list, the shares of every edge")
        return self


class Star(Section):
    """Devices directly under the cloud."""

    kind: Literal["star"] = "star"
    devices: Devices
    device_names: tuple[PartyName, ...] = Field(
        default=(), description="what each device is called, in the order of their numbers"
    )

    @model_validator(mode="after")
    def _names_of_one_device_each(self) -> Star:
        require_one_party_each(self, "device_names")
        if self.device_names and len(self.device_names) != self.devices:
            allowed = f"must be {self.devices:,}, one for each device"
            raise refuse("device_names", f"{len(self.device_names):,} names", allowed)
        return self


class Site(Section):
    """An aggregator of a tree: with ``devices`` under it at the last level, with ``sites`` above it."""

    name: Annotated[str, BeforeValidator(as_site_name)] | None = None
    trusted: Flag = False
    devices: Devices | None = None
    sites: Annotated[tuple[Site, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _devices_or_sites(self) -> Site:
        if (self.devices is None) == (self.sites is None):
            raise refuse("", None, "must have devices (at the last level) or sites, and not both")
        return self

    def with_all_below(self, place: str) -> Iterator[tuple[str, Site]]:
        """It and every site below it, each with its place in the spec."""
        yield place, self
        for number, site in enumerate(self.sites or ()):
            yield from site.with_all_below(f"{place}.sites[{number}]")


def too_many(levels: tuple[int, ...]) -> str | None:
    """What is wrong with a tree of these fan-outs, top down, if it is too large."""
    if len(levels) - 1 > MAX_LEVELS:
        between = "levels between the cloud and the devices"
        return f"must have at most {MAX_LEVELS} {between}, not {len(levels) - 1:,}"
    aggregators, width = 0, 1
    for children in levels[:-1]:
        width *= children
        aggregators += width
    return too_large(aggregators, math.prod(levels))


def too_large(aggregators: int, devices: int) -> str | None:
    """What is wrong with a tree of so many nodes, if it is too large."""
    if aggregators > MAX_AGGREGATORS:
        most = f"{MAX_AGGREGATORS:,} aggregators: each is named in the resolved spec"
        return f"must make at most {most}; these make {aggregators:,}"
    if devices > MAX_DEVICES:
        return f"must make at most {MAX_DEVICES:,} devices in all, not {devices:,}"
    return None


class Tree(Section):
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
    moves: Moves | None = Field(default=None, description="devices that change their edge between rounds")

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> Tree:
        ways = {"edges": self.edges, "levels": self.levels, "sites": self.sites, "file": self.file}
        written = [key for key, value in ways.items() if value is not None]
        if len(written) != 1:
            found = " and ".join(written) or "none of them"
            allowed = "give exactly one of edges (with devices_per_edge), levels, sites, file"
            raise refuse("", None, f"{allowed}; found {found}")
        if self.edges is None and self.devices_per_edge is not None:
            raise refuse("devices_per_edge", self.devices_per_edge, "goes with edges")
        if self.edges is not None and self.devices_per_edge is None:
            raise refuse("devices_per_edge", None, "is required with edges: one number for all, or a list")
        if isinstance(self.devices_per_edge, tuple) and len(self.devices_per_edge) != self.edges:
            raise refuse(
                "devices_per_edge",
                list(self.devices_per_edge),
                f"must list {self.edges} numbers, one for each of the edges, or be one number for all",
            )
        self._names_fit()
        self._not_too_many()
        return self

    def _not_too_many(self) -> None:
        if self.edges is not None:
            each = self.devices_per_edge
            devices = sum(each) if isinstance(each, tuple) else self.edges * (each or 1)
            if devices > MAX_DEVICES:
                allowed = f"must make at most {MAX_DEVICES:,} devices in all, not {devices:,}"
                raise refuse("devices_per_edge", each, allowed)
        elif self.levels is not None:
            problem = too_many(self.levels)
            if problem is not None:
                raise refuse("levels", list(self.levels), problem)

    def _names_fit(self) -> None:
        wanted = None if self.levels is None else len(self.levels) - 1
        if self.sites is not None:
            self._on_their_levels(self.sites, len(self.level_names or ("edge",)), "sites")
            self._differ(self.sites)
        if self.level_names is None:
            if wanted is not None and wanted > 1:
                raise refuse(
                    "level_names", None, f"is required: names of the {wanted} levels below the cloud"
                )
            return
        if wanted is None and self.sites is None:
            raise refuse("level_names", list(self.level_names), "goes with levels or sites")
        if wanted is not None and len(self.level_names) != wanted:
            allowed = f"must list {wanted} names, one for each level below the cloud"
            raise refuse("level_names", list(self.level_names), allowed)
        problem = unfit_level_names(self.level_names)
        if problem is not None:
            raise refuse("level_names", list(self.level_names), problem)

    def _on_their_levels(self, sites: tuple[Site, ...], below: int, place: str) -> None:
        for number, site in enumerate(sites):
            here = f"{place}[{number}]"
            if (site.devices is not None) != (below == 1):
                had, wanted = ("devices", "sites") if below > 1 else ("sites", "devices")
                raise refuse(here, None, f"has {had}; at this level, by names, it must have {wanted}")
            if site.sites is not None:
                self._on_their_levels(site.sites, below - 1, f"{here}.sites")

    def _differ(self, sites: tuple[Site, ...]) -> None:
        named: dict[str, str] = {}
        aggregators = devices = 0
        for number, first in enumerate(sites):
            for place, site in first.with_all_below(f"sites[{number}]"):
                aggregators, devices = aggregators + 1, devices + (site.devices or 0)
                if site.name is not None and site.name in named:
                    allowed = f"is the name of another site already: {named[site.name]}"
                    raise refuse(f"{place}.name", site.name, allowed)
                if site.name is not None:
                    named[site.name] = place
        problem = too_large(aggregators, devices)
        if problem is not None:
            raise refuse("sites", None, problem)


GroupCountOrLists = Annotated[
    Annotated[GroupCount, Tag("=one")] | Annotated[tuple[tuple[Whole, ...], ...], Tag("=list")], one_or_list()
]


class GroupChange(Section):
    """Other members of the groups, from a round on."""

    from_round: Annotated[int, Field(ge=2)] = Field(description="the first round with these members")
    groups: tuple[tuple[Whole, ...], ...] = Field(
        description="the workers of every group, as many groups as before"
    )


class Groups(Section):
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
        """Whether a worker's groups tell which labels it holds."""
        return "labels" in (self.structure, self.stated)

    @model_validator(mode="after")
    def _names_of_one_party_each(self) -> Groups:
        require_one_party_each(self, "group_names", "worker_names")
        return self

    @model_validator(mode="after")
    def _one_structure(self) -> Groups:
        structure, listed = self.structure, isinstance(self.groups, tuple)
        starts = [1, *(era.from_round for era in self.eras)]
        for number, (before, after) in enumerate(pairwise(starts)):
            if after <= before:
                allowed = f"must be after round {before}, when the groups before begin"
                raise refuse(f"eras[{number}].from_round", after, allowed)
        if self.stated is not None and structure != "list":
            raise refuse("stated", self.stated, "goes with structure: list")
        if (self.file is not None) != (structure == "graph"):
            verb = "is required" if self.file is None else "goes"
            raise refuse("file", self.file, f"{verb} with structure: graph")
        if structure == "graph":
            if self.groups is not None:
                raise refuse("groups", self.groups, "must be left out: the file says which groups there are")
            return self
        if structure == "list":
            if not isinstance(self.groups, tuple):
                raise refuse("groups", self.groups, "must list every group's workers, like [[0, 1], [1, 2]]")
            return self
        if listed:
            raise refuse("groups", self.groups, f"must be a number; lists go with list, not with {structure}")
        if self.devices is None:
            raise refuse("devices", None, f"is required with structure: {structure}: the number of workers")
        if structure == "global":
            if self.groups not in (None, 1):
                raise refuse("groups", self.groups, "must be 1 or left out with structure: global")
        elif self.groups is None:
            raise refuse("groups", None, f"is required with structure: {structure}: the number of groups")
        elif isinstance(self.groups, int) and self.groups > self.devices:
            raise refuse("groups", self.groups, f"must be at most {self.devices}, the number of workers")
        return self


Topology = Annotated[
    Annotated[Star, Tag("=star")] | Annotated[Tree, Tag("=tree")] | Annotated[Groups, Tag("=groups")],
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
        for place, entry in enumerate(value if isinstance(value, list) else ()):
            if isinstance(entry, str):
                allowed = "must be a whole number; parties are named in trust.trusted"
                raise refuse(f"[{place}]", entry, allowed)
        return value

    @model_validator(mode="after")
    def _each_party_once(self) -> Trust:
        listed = {name: getattr(self, name) for name in ("trusted_edges", "trusted_aggregators", "trusted")}
        listed |= {f"from.{first}": edges for first, edges in (self.from_ or {}).items()}
        for key, parties in listed.items():
            seen = set[int | str]()
            for at, party in enumerate(parties if isinstance(parties, tuple) else ()):
                if party in seen:
                    raise refuse(f"{key}[{at}]", party, "is listed already: list each party once")
                seen.add(party)
        return self

    @model_validator(mode="after")
    def _from_the_start(self) -> Trust:
        if self.from_ is None:
            return self
        if 0 not in self.from_ or 1 in self.from_:
            raise refuse(
                "from", sorted(self.from_), "must say who is trusted from 0, and from rounds 2 and later"
            )
        given = {"trusted_edges": self.trusted_edges, "trusted": self.trusted}
        for key, value in given.items():
            if value not in (0.0, ()):
                raise refuse(key, value, "must be left out with from, which lists the trusted edges")
        return self
