"""Noise placed by zone and by level of a tree (hdp.txt; docs/hdp.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.network.tree import Tree, whole_share
from sfumato.random import Stream, generator
from sfumato.schedule.noise.placement import NoisePlan
from sfumato.spec.privacy import Placement

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_PLACE = "privacy.noise.placement"
_ZONES, _LEVELS = 1, 2  # addresses within Stream.TRUST; part of the file format


def place_by_zone(
    tree: Tree, placement: Placement, multiplier: float, aggregating: Iterable[int], *, seed: int
) -> NoisePlan:
    """A noise plan that puts noise of one multiplier where ``placement`` says: HDP's seven cases, any level.

    Named parties noise what they send, at every aggregation of a round that their messages are part of.
    Shares are rounded half up and drawn without replacement from the stream TRUST of ``seed``; of a share of
    the clients, the first devices of every zone add noise.

    Args:
        tree: who is under whom.
        placement: the spec's section ``privacy.noise.placement``.
        multiplier: of every noiser.
        aggregating: the tiers that aggregate in a round.
        seed: of the draw.

    Raises:
        SpecError: zones or levels that do not exist or are named twice, shares that add up to more than 1.
    """
    device = np.zeros((tree.leaf_count, tree.depth))
    node = tuple(np.zeros((tier.size, tree.depth)) for tier in tree.tiers)
    if placement.device_fraction is not None and placement.device is not None:
        raise SpecError(
            f"{_PLACE}.device_fraction",
            placement.device_fraction,
            "are devices of every zone: leave out device, or device_fraction",
        )
    own, edges = _choose_zones(tree, placement, seed)
    tiers = sorted(set(aggregating))
    device[np.ix_(own, tiers)] = multiplier
    node[-1][np.ix_(edges, tiers)] = multiplier
    for tier, chosen in _choose_aggregators(tree, placement, seed):
        above = np.array([t for t in tiers if t <= tier], dtype=np.int64)
        node[tier][np.ix_(np.asarray(chosen, dtype=np.int64), above)] = multiplier
    if placement.cloud:
        node[0][0, 0] = multiplier
    noisy = None
    if placement.device_fraction is not None:
        noisy = _choose_clients(tree, placement.device_fraction)
        here = np.logical_or.reduceat(noisy, tree.first_device[:-1])
        device[np.ix_(np.flatnonzero(here), np.asarray(tiers, dtype=np.int64))] = multiplier
        noisy |= np.repeat(~here, tree.devices)  # said of leaves that have noise only
        noisy = None if noisy.all() else noisy
    return NoisePlan(device, node, noisy)


def _choose_zones(tree: Tree, placement: Placement, seed: int) -> tuple[list[int], list[int]]:
    """Numbers of the zones whose devices add noise, and of those whose edges do; a zone is one edge.

    Both are as ``placement`` lists them; shares of the zones are drawn by ``seed`` among those not listed,
    ascending.

    Raises:
        SpecError: a zone that does not exist or is named twice, or shares of more than all zones.
    """
    zones = tree.leaf_count
    listed: dict[str, list[int]] = {}
    named: set[int] = set()
    for key in ("device", "edge"):
        value = getattr(placement, key)
        if not isinstance(value, tuple):
            continue
        for zone in value:
            if zone >= zones:
                raise SpecError(f"{_PLACE}.{key}", zone, f"there are zones 0 to {zones - 1}")
            if zone in named:
                raise SpecError(f"{_PLACE}.{key}", zone, "must be named once: a zone adds noise in one place")
            named.add(zone)
        listed[key] = list(value)
    shares = {k: v for k in ("device", "edge") if isinstance(v := getattr(placement, k), float)}
    if sum(shares.values()) > 1 + 1e-9:
        raise SpecError(f"{_PLACE}.edge", shares["edge"], "must leave device and edge at most 1 together")
    free = np.array([zone for zone in range(zones) if zone not in named], dtype=np.int64)
    order = generator(seed, Stream.TRUST, _ZONES).permutation(free).tolist()
    for key, share in shares.items():
        wanted = whole_share(share, zones)
        if len(shares) == 2:
            wanted = min(wanted, len(order))  # two halves of an odd number are rounded up once
        if wanted > len(order):
            raise SpecError(f"{_PLACE}.{key}", share, f"is {wanted} of {zones} zones; {len(order)} are left")
        listed[key], order = sorted(order[:wanted]), order[wanted:]
    return listed.get("device", []), listed.get("edge", [])


def _choose_aggregators(tree: Tree, placement: Placement, seed: int) -> Iterator[tuple[int, list[int]]]:
    """Yield, for each level that ``placement`` names, its tier and the aggregators that add noise, ascending.

    A share of a level is drawn by ``seed``.

    Raises:
        SpecError: no such level or aggregator, or one named twice.
    """
    tiers = {tier.name: number for number, tier in enumerate(tree.tiers) if number > 0}
    for name, chosen in placement.levels.items():
        place = f"{_PLACE}.levels.{name}"
        if name not in tiers:
            raise SpecError(place, None, f"is no level below the cloud; levels are {', '.join(tiers)}")
        tier, size = tiers[name], tree.tiers[tiers[name]].size
        if isinstance(chosen, tuple):
            if max(chosen, default=0) >= size or len(set(chosen)) < len(chosen):
                raise SpecError(place, list(chosen), f"must name each once, from 0 to {size - 1}")
            yield tier, sorted(chosen)
            continue
        drawn = generator(seed, Stream.TRUST, _LEVELS, tier).permutation(size)
        yield tier, sorted(drawn[: whole_share(chosen, size)].tolist())


def _choose_clients(tree: Tree, chosen: float | tuple[int, ...]) -> BoolArray:
    """Mask of the devices that add noise, ``[devices]``: the first of each zone, or the places listed.

    ``chosen``: a share in (0, 1] of every zone's devices, or their places in the zone, from 0.

    Raises:
        SpecError: a place that the smallest zone lacks, or one named twice.
    """
    number = np.arange(tree.device_count) - np.repeat(tree.first_device[:-1], tree.devices)
    if isinstance(chosen, tuple):
        least, named = int(tree.devices.min()), set[int]()
        for client in chosen:
            if client >= least or client in named:
                allowed = f"must be named once, from 0 to {least - 1} in the smallest zone"
                raise SpecError(f"{_PLACE}.device_fraction", client, allowed)
            named.add(client)
        return np.isin(number, chosen)
    counts = np.floor(chosen * tree.devices + 0.5)
    return np.asarray(number < np.repeat(counts, tree.devices))
