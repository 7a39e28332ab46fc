"""``topology``: who there is and who talks to whom. ``trust``: who is trusted with raw updates."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Tag, model_validator

from sfumato.spec.base import (
    Count,
    CountOrList,
    Flag,
    Section,
    ShareOrList,
    Whole,
    by_kind,
    one_or_list,
    refuse,
)

MAX_DEVICES = 10**9


def _level_name(name: str) -> str:
    if re.fullmatch(r"[a-z][a-z0-9_-]*", name) is None:
        raise refuse("", name, "must be lower-case letters, digits, _ or -, and start with a letter")
    return name


LevelName = Annotated[str, AfterValidator(_level_name)]


class Star(Section):
    """Devices directly under the cloud."""

    kind: Literal["star"] = "star"
    devices: Count


class Tree(Section):
    """Devices under edges under the cloud, or deeper.

    Exactly one of: ``edges`` with ``devices_per_edge`` (a number, or one for each edge); ``levels``
    (fan-outs top down, the last one being devices) with ``names`` of the aggregating levels; ``file``.
    """

    kind: Literal["tree"] = "tree"
    edges: Count | None = None
    devices_per_edge: CountOrList | None = None
    levels: Annotated[tuple[Count, ...], Field(min_length=2)] | None = Field(
        default=None, description="children of each node, top down; the last entry counts devices"
    )
    names: tuple[LevelName, ...] | None = Field(
        default=None, description="names of the aggregating levels below the cloud, top down"
    )
    file: str | None = Field(default=None, description="a YAML file describing the tree (see docs/spec.md)")
    supernodes: Literal["fixed", "elected"] = "fixed"

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> Tree:
        ways = {"edges": self.edges, "levels": self.levels, "file": self.file}
        written = [key for key, value in ways.items() if value is not None]
        if len(written) != 1:
            found = " and ".join(written) or "none of them"
            allowed = "give exactly one of edges (with devices_per_edge), levels, file"
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
        return self

    def _names_fit(self) -> None:
        if self.names is None:
            if self.levels is not None and len(self.levels) > 2:
                wanted = len(self.levels) - 1
                raise refuse("names", None, f"is required: names of the {wanted} levels below the cloud")
            return
        if self.levels is None:
            raise refuse("names", list(self.names), "goes with levels")
        if len(self.names) != len(self.levels) - 1:
            allowed = f"must list {len(self.levels) - 1} names, one for each level below the cloud"
            raise refuse("names", list(self.names), allowed)
        if len(set(self.names)) != len(self.names) or {"cloud", "public", "device"} & set(self.names):
            allowed = "must differ from each other and from cloud, public and device"
            raise refuse("names", list(self.names), allowed)


GroupCountOrLists = Annotated[
    Annotated[Count, Tag("=one")] | Annotated[tuple[tuple[Whole, ...], ...], Tag("=list")], one_or_list()
]


class Groups(Section):
    """Overlapping groups of workers, each with a master."""

    kind: Literal["groups"] = "groups"
    structure: Literal["global", "clusters", "labels", "ring", "string", "list", "graph"]
    groups: GroupCountOrLists | None = None
    devices: Count | None = None
    file: str | None = None


Topology = Annotated[
    Annotated[Star, Tag("=star")] | Annotated[Tree, Tag("=tree")] | Annotated[Groups, Tag("=groups")],
    by_kind(
        "star", "tree", "groups",
        edges="tree", levels="tree", structure="groups", devices="star",
    ),
]  # fmt: skip


class Trust(Section):
    """Who may see raw updates. Everybody not named here is honest but curious."""

    cloud: Flag = Field(default=False, description="true: the cloud is trusted and adds the noise itself")
    trusted_edges: ShareOrList = Field(
        default=0.0, description="a list of edge numbers, or a fraction drawn with the seed (rounded half up)"
    )
    trusted: tuple[str, ...] = Field(default=(), description="trusted parties by name, e.g. region:0")
