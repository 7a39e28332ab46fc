"""Groups from a graph file that NetworkX reads: node-link JSON (``.json``), GraphML, else an edge list.

Two kinds of graph are understood:

- *bipartite*: every node is called ``device:N`` or ``master:M``, and an edge puts that worker into that
  group. Both are numbered from 0 without gaps.
- *group graph*: the nodes are the groups (in numerical order where all are numbers, else as in the file),
  and every edge is one worker that its two groups share. ``topology.devices`` workers in all: edge e is
  worker e, in the order of the edges; the rest are divided evenly over the groups, the first groups
  getting one more where it does not divide.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from sfumato.errors import SpecError
from sfumato.federation.groups import Groups, listed

_PLACE = "topology.file"
_PARTY = re.compile(r"(device|master):(\d+)")


def from_graph(path: Path, workers: int | None = None) -> Groups:
    """The groups that the graph in ``path`` describes.

    Args:
        path: of the file.
        workers: ``topology.devices``; needed for a group graph.

    Raises:
        SpecError: the file cannot be read, or its groups are refused as those of a list are.
    """
    graph = _read(path)
    names = [str(node) for node in graph.nodes]
    if not names:
        raise SpecError(_PLACE, str(path), "holds no node")
    loop = next(iter(nx.selfloop_edges(graph)), None)
    if loop is not None:
        raise SpecError(_PLACE, str(loop[0]), "must not be joined to itself")
    if any(_PARTY.fullmatch(name) for name in names):
        return _bipartite(graph, workers)
    return _of_groups(graph, workers)


def _read(path: Path) -> Any:
    try:
        if path.suffix == ".json":
            graph = _node_link(json.loads(path.read_text(encoding="utf-8")))
        elif path.suffix == ".graphml":
            graph = nx.read_graphml(path)
        else:
            graph = nx.read_edgelist(path, create_using=nx.MultiGraph)
    except OSError as error:
        raise SpecError(_PLACE, str(path), f"cannot be read: {error.strerror}") from None
    except Exception as error:  # whatever a parser raises is about the file
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise SpecError(_PLACE, str(path), f"is no graph that NetworkX reads: {reason}") from None
    return graph.to_undirected() if graph.is_directed() else graph


def _node_link(document: Any) -> Any:
    """A node-link graph; its edges lie under ``edges``, or under ``links`` as older NetworkX wrote them."""
    key = "links" if "links" in document else "edges"
    return nx.node_link_graph(document, edges=key)


def _bipartite(graph: Any, workers: int | None) -> Groups:
    sides: dict[str, list[int]] = {"device": [], "master": []}
    for node in graph.nodes:
        match = _PARTY.fullmatch(str(node))
        if match is None:
            raise SpecError(_PLACE, str(node), "must be device:N or master:M, as other nodes are")
        sides[match[1]].append(int(match[2]))
    groups: list[set[int]] = [set() for _ in sides["master"]]
    if sorted(sides["master"]) != list(range(len(groups))):
        raise SpecError(_PLACE, sorted(sides["master"]), "masters must be numbered from 0 without gaps")
    for edge in graph.edges():
        ends = {}
        for node in edge:
            kind, _, number = str(node).partition(":")
            ends[kind] = int(number)
        if len(ends) != 2:
            raise SpecError(_PLACE, f"{edge[0]} - {edge[1]}", "an edge must join a device and a master")
        groups[ends["master"]].add(ends["device"])
    total = 1 + max(sides["device"], default=-1) if workers is None else workers
    return listed([sorted(group) for group in groups], total)


def _of_groups(graph: Any, workers: int | None) -> Groups:
    nodes = list(graph.nodes)
    if all(str(node).isdecimal() for node in nodes):
        nodes.sort(key=lambda node: int(str(node)))
    number = {node: index for index, node in enumerate(nodes)}
    links = sorted(sorted((number[edge[0]], number[edge[1]])) for edge in graph.edges())
    if workers is None:
        raise SpecError("topology.devices", None, "is required: the graph's nodes are groups, not workers")
    if workers < len(links):
        raise SpecError("topology.devices", workers, f"must be at least {len(links)}: one worker an edge")
    groups: list[list[int]] = [[] for _ in nodes]
    for worker, ends in enumerate(links):
        for group in ends:
            groups[group].append(worker)
    own = np.array_split(np.arange(len(links), workers), len(nodes))
    return listed([[*shared, *rest.tolist()] for shared, rest in zip(groups, own, strict=True)], workers)
