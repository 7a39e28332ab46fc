"""A NetworkX graph given in Python, written into a spec as the topology that it is.

With groups it is understood as a graph file is (`network.group_graph`). With a tree it is a rooted tree: the
root is the cloud, the leaves are devices, and all between are aggregators, called by their nodes' names. An
undirected graph has the node ``cloud`` as its root.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import networkx as nx

from sfumato.errors import SpecError
from sfumato.network.group_graph import groups_of_graph
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec
from sfumato.spec.topology import GroupTopology, TreeTopology

_PLACE = "graph"


def with_graph(spec: Spec, graph: Any) -> Spec:
    """``spec`` with ``graph``, a NetworkX graph, as its topology; unchanged if that is ``None``.

    Raises:
        SpecError: it is no graph, none of the kind of the spec's topology, or the spec does not fit it.
    """
    if graph is None:
        return spec
    if not isinstance(graph, nx.Graph):
        raise SpecError(_PLACE, type(graph).__name__, "must be a networkx.Graph")
    if isinstance(spec.topology, GroupTopology):
        groups = groups_of_graph(graph, spec.topology.devices)
        topology: dict[str, Any] = {
            "kind": "groups", "structure": "list", "groups": groups.as_lists(), "devices": groups.workers,
            "group_names": groups.group_names or spec.topology.group_names,
            "worker_names": spec.topology.worker_names,
        }  # fmt: skip
    elif isinstance(spec.topology, TreeTopology):
        topology = {"kind": "tree"} | _tree_section(graph)
        if spec.topology.supernodes != "fixed":
            topology["supernodes"] = spec.topology.supernodes
    else:
        raise SpecError(_PLACE, None, "goes with topology.kind: tree or groups; a star has nothing to draw")
    document = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return load_spec(document | {"topology": topology})


def _tree_section(graph: nx.Graph) -> dict[str, Any]:
    """The ``topology`` section, as a mapping, of a graph that is a rooted tree.

    Raises:
        SpecError: it is no tree, has no clear root, or its devices are not equally far from the root.
    """
    if not len(graph) or not nx.is_tree(graph):
        raise SpecError(_PLACE, f"{len(graph):,} nodes", "must be a tree: connected, without a cycle")
    if graph.is_directed():
        roots = [node for node in graph if graph.in_degree(node) == 0]
        if len(roots) != 1:
            raise SpecError(_PLACE, len(roots), "must have one root, the cloud, from which all arrows lead")
        root = roots[0]
    elif "cloud" in graph:
        root = "cloud"
    else:
        raise SpecError(_PLACE, None, "must have a node called cloud, or be directed away from its root")
    tree = nx.bfs_tree(graph, root)
    depth = nx.single_source_shortest_path_length(tree, root)
    devices = {node for node in tree if tree.out_degree(node) == 0}
    deepest = max(depth.values())
    uneven = next((node for node in devices if depth[node] != deepest), None)
    if uneven is not None or deepest < 2:
        said = "all devices must be as far from the cloud, with at least one aggregator between"
        raise SpecError(_PLACE, None if uneven is None else str(uneven), said)
    names = [str(name) for name in graph.graph.get("level_names", ())]
    levels = {"level_names": names} if names else {}
    if not names and deepest > 2:
        levels = {"level_names": [*(f"level{number}" for number in range(1, deepest - 1)), "edge"]}
    return {"sites": [_site_section(tree, child, devices) for child in tree.successors(root)], **levels}


def _site_section(tree: nx.DiGraph, node: Hashable, devices: set[Any]) -> dict[str, Any]:
    """The entry of ``sites`` for ``node`` and all that is below it; ``devices``: nodes that are devices."""
    below = list(tree.successors(node))
    if below[0] in devices:
        return {"name": str(node), "devices": len(below)}
    return {"name": str(node), "sites": [_site_section(tree, child, devices) for child in below]}
