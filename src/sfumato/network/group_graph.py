"""Groups from a graph file that NetworkX reads: node-link JSON (``.json``), GraphML, else an edge list.

Two kinds of graph are understood:

- *bipartite*: every node is called ``device:N`` or ``master:M``, and an edge puts that worker into that
  group. Both are numbered from 0 without gaps.
- *group graph*: the nodes are the groups (in numerical order where all are numbers, else as in the file),
  and every edge is one worker that its two groups share. ``topology.devices`` workers in all: edge e is
  worker e, in the order of the edges; the rest are divided evenly over the groups, the first groups
  getting one more where it does not divide. Nodes name their groups, if a party may have each of their names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from sfumato.errors import SpecError, first_line
from sfumato.network.groups import Groups, listed, named
from sfumato.spec.limits import MAX_MEMBERSHIPS, MAX_WORKERS
from sfumato.spec.names import unfit_party_name
from sfumato.user_text import decimal, parse_json, read_text

_PLACE = "topology.file"
_PARTY = re.compile(r"(device|master):(0|[1-9][0-9]{0,17})")


def from_graph(path: Path, workers: int | None = None) -> Groups:
    """The groups that the graph in ``path`` describes.

    Args:
        path: of the file.
        workers: ``topology.devices``; needed for a group graph.

    Raises:
        SpecError: the file cannot be read, or its groups are refused as those of a list are.
    """
    return groups_of_graph(_read_graph(path), workers)


def groups_of_graph(graph: Any, workers: int | None = None) -> Groups:
    """The groups that an undirected NetworkX graph describes, of one of the two kinds (see the module).

    ``workers``: how many; ``None``, on a bipartite graph only: one more than its largest device number.

    Raises:
        SpecError: the graph is of neither kind, has too many workers, or is a group graph without ``workers``
            or with fewer than edges; or its groups are refused as those of a list are.
    """
    names = [str(node) for node in graph.nodes]
    if not names:
        raise SpecError(_PLACE, None, "holds no node")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SpecError(_PLACE, twice, "must be the name of one node only")
    loop = next(iter(nx.selfloop_edges(graph)), None)
    if loop is not None:
        raise SpecError(_PLACE, str(loop[0]), "must not be joined to itself")
    if any(_PARTY.fullmatch(name) for name in names):
        return _groups_of_bipartite_graph(graph, workers)
    return _groups_of_group_graph(graph, workers)


def _read_graph(path: Path) -> Any:
    """The undirected NetworkX graph in a file, whose format its suffix tells.

    Raises:
        SpecError: the file cannot be read, holds no graph, or too large a one.
    """
    text = read_text(path, place=_PLACE)
    place = f"{_PLACE}: {path.name}"
    try:
        if path.suffix == ".json":
            graph = _node_link(parse_json(text, place), place)
        elif path.suffix == ".graphml":
            graph = _graphml(text, place)
        else:
            lines = text.splitlines()
            _require_few(len(lines), place)
            graph = nx.parse_edgelist(lines, create_using=nx.MultiGraph, data=False)
    except SpecError:
        raise
    except Exception as error:  # whatever a parser raises is about the file
        said = f"is no graph that NetworkX reads: {first_line(error)}"
        raise SpecError(_PLACE, str(path), said) from None
    return graph.to_undirected() if graph.is_directed() else graph


def _node_link(document: Any, place: str) -> Any:
    """The graph of a node-link document, named ``place`` in errors."""
    key = "links" if "links" in document else "edges"
    _require_few(len(document[key]), place)
    return nx.node_link_graph(document, edges=key)


def _graphml(text: str, place: str) -> Any:
    """The graph of a GraphML text, named ``place`` in errors.

    Entities, which can grow without end, are refused.

    Raises:
        SpecError: it has a DOCTYPE, entities or too many edges.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise SpecError(place, None, "must have no DOCTYPE and no entities")
    _require_few(text.count("<edge"), place)
    return nx.parse_graphml(text)


def _require_few(edges: int, place: str) -> None:
    """Raise a `SpecError` at ``place`` if a graph has more ``edges`` than memberships are allowed."""
    if edges > MAX_MEMBERSHIPS:
        raise SpecError(place, edges, f"must be at most {MAX_MEMBERSHIPS:,} edges")


def _groups_of_bipartite_graph(graph: Any, workers: int | None) -> Groups:
    """The groups of a graph of nodes ``device:N`` and ``master:M``: an edge puts device N into group M.

    ``workers``: how many there are; ``None``: one more than the largest device number.

    Raises:
        SpecError: a node has another name, masters are not numbered 0, 1, …, or an edge joins two of a kind.
    """
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
    if total > MAX_WORKERS:
        raise SpecError(
            _PLACE, f"device:{total - 1}", f"workers are numbered from 0, at most {MAX_WORKERS:,}"
        )
    return listed([sorted(group) for group in groups], total)


def _groups_of_group_graph(graph: Any, workers: int | None) -> Groups:
    """The groups of a graph whose nodes are groups and whose edges are workers, each in both of its ends.

    The workers that are left are divided evenly among the groups. Groups keep the names of the nodes where
    these can name parties.

    Args:
        graph: undirected NetworkX graph.
        workers: how many there are, at least one for each edge.

    Raises:
        SpecError: ``workers`` is ``None`` or too small, or the groups are refused as those of a list are.
    """
    nodes = list(graph.nodes)
    if all(decimal(str(node)) is not None for node in nodes):
        nodes.sort(key=lambda node: decimal(str(node)) or 0)
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
    found = listed([[*shared, *rest.tolist()] for shared, rest in zip(groups, own, strict=True)], workers)
    names = [str(node) for node in nodes]
    return named(found, names, ()) if all(unfit_party_name(name) is None for name in names) else found
