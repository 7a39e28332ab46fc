"""Whose rows are whose: the sites that the data name, matched to the sites of the topology.

In a tree the rows of a site go to the devices under the edge of that name. Where no aggregator is between the
cloud and the devices, and in groups, each device is a site: the one of that name where devices have names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.data.builtin_datasets import DatasetFacts
from sfumato.errors import SpecError, listed_names
from sfumato.network.tree import from_spec
from sfumato.spec.base import closest_hint
from sfumato.spec.data import FlowerPartition, IidPartition, TwoLevelPartition
from sfumato.spec.document import Spec
from sfumato.spec.topology import GroupTopology, StarTopology, TreeTopology

IntArray = npt.NDArray[np.int64]

_PLACE = "data.site_column"


@dataclass(frozen=True)
class SitePlaces:
    """Where the rows of every site go.

    Attributes:
        of_site: the place of each site of the data, numbered as in ``DatasetFacts.site_counts``.
        devices: how many devices are at each place.
        counts: training rows at each place.
    """

    of_site: IntArray
    devices: IntArray
    counts: IntArray


def sort_sites(names: Iterable[str]) -> tuple[str, ...]:
    """Names of sites sorted as sites are numbered: whole numbers by value, then others as text."""
    return tuple(
        sorted(
            names,
            key=lambda name: (0, int(name), name) if re.fullmatch(r"[0-9]{1,18}", name) else (1, 0, name),
        )
    )


@dataclass(frozen=True)
class _Named:
    """Parties that the topology names: what they are, and under which key."""

    names: tuple[str, ...]
    what: str
    key: str


def site_places(spec: Spec, known: DatasetFacts, devices: IntArray) -> SitePlaces | None:
    """Which place of the topology (an edge, or a device) the rows of each site go to; ``None`` without sites.

    Args:
        spec: whose topology names the places.
        known: the sizes of the data set.
        devices: how many devices are under each edge (of a star: one number, of all).

    Raises:
        SpecError: the sites of the data are not those of the topology, one has no rows to train on, or
            another setting says who holds what.
    """
    if known.site_counts is None:
        return None
    _refuse_other_rules(spec)
    counts = dict(known.site_counts)
    named = _names(spec)
    if named is not None and named.what == "edges":
        order = _places_by_name(tuple(counts), named)
    else:
        rule = spec.data.partition
        if rule != IidPartition():
            allowed = "must be left out: every device is a site and holds its rows"
            raise SpecError("data.partition", rule.kind, allowed)
        if named is None:
            order = _one_device_for_each_site(tuple(counts), int(devices.sum()))
        else:
            order = _places_by_name(tuple(counts), named)
        devices = np.ones(len(order), dtype=np.int64)
    empty = [site for site, rows in counts.items() if not rows]
    if empty:
        raise SpecError(_PLACE, empty[0], "is a site without rows to train on: all of its rows are test rows")
    rows = np.zeros(len(devices), dtype=np.int64)
    rows[order] = list(counts.values())
    return SitePlaces(order, devices, rows)


def site_notes(spec: Spec, known: DatasetFacts) -> tuple[str, ...]:
    """At most one note, on which device is which site; empty where the topology names its devices."""
    if known.site_counts is None or _names(spec) is not None:
        return ()
    named = [f"device {number} is {site}" for number, (site, _) in enumerate(known.site_counts)]
    return (f"every device is a site: {listed_names(named)}",)


def _names(spec: Spec) -> _Named | None:
    """The names of the parties that may be sites: a group's workers, a star's devices, or a tree's edges.

    ``None`` where the topology gives the workers or the devices no names.
    """
    topology = spec.topology
    if isinstance(topology, GroupTopology):
        names, what, key = topology.worker_names, "workers", "topology.worker_names"
    elif isinstance(topology, StarTopology):
        names, what, key = topology.device_names, "devices", "topology.device_names"
    else:
        leaves = from_spec(topology).tiers[-1]
        numbered = tuple(f"{leaves.name}:{number}" for number in range(leaves.size))
        names, what, key = leaves.labels or numbered, "edges", "topology.sites"
    return _Named(names, what, key) if names else None


def _one_device_for_each_site(found: tuple[str, ...], devices: int) -> IntArray:
    """The number of the device of every site of ``found``, in order: 0, 1, ..., int64 ``[sites]``.

    Raises:
        SpecError: there are not as many devices as sites.
    """
    if len(found) != devices:
        allowed = (
            f"the data have {len(found)} sites ({listed_names(found)}), the topology {devices} devices: "
            "without names in the topology every device is one site"
        )
        raise SpecError(_PLACE, None, allowed)
    return np.arange(devices, dtype=np.int64)


def _places_by_name(found: tuple[str, ...], named: _Named) -> IntArray:
    """The index of the place of every site of ``found``, by its name, int64 ``[sites]``.

    Raises:
        SpecError: a site is not in the topology, or a place of it has no rows.
    """
    names, what, key = named.names, named.what, named.key
    only_data = [name for name in found if name not in names]
    only_topology = [name for name in names if name not in found]
    if only_data or only_topology:
        of_data, of_topology = listed_names(found), listed_names(names)
        allowed = f"the sites of the data are {of_data}; the {what} of the topology are {of_topology}"
        if only_data:
            near = closest_hint(only_data[0], only_topology)
            allowed += f"; no {what[:-1]} is called {listed_names(only_data)}{near}"
        if only_topology:
            allowed += f"; no row has the site {listed_names(only_topology)}"
        raise SpecError(_PLACE, None, f"{allowed}; name the {what} in {key} as the data do")
    place = {name: number for number, name in enumerate(names)}
    return np.array([place[name] for name in found], dtype=np.int64)


def _refuse_other_rules(spec: Spec) -> None:
    """Raise `SpecError` if another setting also says who holds which rows."""
    rule = spec.data.partition
    if isinstance(rule, TwoLevelPartition | FlowerPartition):
        kind = f"flwr:{rule.partitioner}" if isinstance(rule, FlowerPartition) else rule.kind
        allowed = "must be iid, labels, dirichlet or natural: the sites of the data say what each edge holds"
        raise SpecError("data.partition", kind, allowed)
    zones = getattr(spec.topology, "zones", None)
    if zones is not None:
        raise SpecError(
            "topology.zones", zones.kind, "must be left out: the sites of the data say who is where"
        )
    if spec.protocol == "pedpfl" and isinstance(spec.topology, TreeTopology):
        raise SpecError(_PLACE, None, "must be left out with pedpfl on a tree: its edges form one cluster")
