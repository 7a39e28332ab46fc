"""PEDPFL as H2FDP's paper compares with it: all devices form one untrusted cluster (section 6.2)."""

from __future__ import annotations

from sfumato.errors import SpecError
from sfumato.spec.document import Spec
from sfumato.spec.topology import Tree


def as_single_cluster(spec: Spec) -> tuple[Spec, tuple[str, ...]]:
    """``spec`` with all devices under one edge where its protocol is ``pedpfl`` on a tree, and what to tell.

    Devices keep their order and so their data, distances and fading: only who averages them changes. Local
    steps and the edge's period stay.

    Raises:
        SpecError: the tree is deeper, or something is said about single edges of it.
    """
    topology = spec.topology
    if spec.protocol != "pedpfl" or not isinstance(topology, Tree):
        return spec, ()
    counts = _devices(topology)
    if len(counts) == 1 and topology.edges is not None:
        return spec, ()
    if topology.supernodes != "fixed":
        raise SpecError("topology.supernodes", topology.supernodes, "must be fixed with protocol pedpfl")
    if topology.zones is not None:
        raise SpecError("topology.zones", topology.zones.kind, "must be left out with pedpfl: one cluster")
    if hasattr(spec.data.partition, "edge"):
        raise SpecError("data.partition.edge", None, "must be left out with pedpfl: one cluster")
    one = Tree(edges=1, devices_per_edge=sum(counts))
    note = f"pedpfl: the {sum(counts)} devices of {len(counts)} edges form one cluster that is not trusted"
    return spec.model_copy(update={"topology": one}), (note,)


def _devices(topology: Tree) -> list[int]:
    """Devices of every edge."""
    if topology.edges is not None:
        each = topology.devices_per_edge
        return list(each) if isinstance(each, tuple) else [each or 1] * topology.edges
    if topology.levels is not None and len(topology.levels) == 2:
        return [topology.levels[1]] * topology.levels[0]
    if topology.sites is not None and all(site.devices is not None for site in topology.sites):
        return [site.devices or 0 for site in topology.sites]
    raise SpecError("topology", None, "must have edges directly under the cloud with protocol pedpfl")
