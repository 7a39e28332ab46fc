"""Reads what a tree's spec says into worlds: who is under whom, what is sent when, who may be missing.

Written from docs/spec.md and docs/hdp.md (schedules, weights, denominators, dropouts, elections, moves),
without the library's schedule. Specs as a user writes them: no files, shares or calibrated noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from oracle_record_laws import Records, step_weights
from oracle_tree_noise import Noises
from oracle_tree_world import Aggregation, TreeWorld
from partition_rules import partition_rule

from sfumato.data.partition import partition_sizes

Places = tuple[tuple[int, ...], ...]
"""The devices of every node of the last tier."""


def read_tree(spec: Mapping[str, Any]) -> TreeWorld:
    """The world of a spec on a star or a tree that stays as it is."""
    ((world, _),) = read_eras(spec)
    return world


def read_eras(spec: Mapping[str, Any]) -> list[tuple[TreeWorld, int]]:
    """Every world that rounds of a spec are in, and how many rounds.

    Which rounds they are does not matter: no round tells of another.
    """
    names, parents, start = _shape(spec["topology"])
    rounds = spec["training"]["rounds"]
    tally: Counter[TreeWorld] = Counter()
    kept: dict[tuple[Any, ...], TreeWorld] = {}
    for number in range(1, rounds + 1):
        zones = _places(spec["topology"], start, number)
        trusted = _trusted(spec, names, parents, number)
        key = (zones, tuple(map(tuple, trusted)))
        if key not in kept:
            kept[key] = _read(spec, names, parents, start, zones, trusted)
        tally[kept[key]] += 1
    return list(tally.items())


def _read(
    spec: Mapping[str, Any],
    names: tuple[str, ...],
    parents: tuple[tuple[int, ...], ...],
    start: Places,
    zones: Places,
    trusted: list[list[bool]],
) -> TreeWorld:
    training, privacy, protocol = spec["training"], spec["privacy"], spec["protocol"]
    sizes = _sizes(spec, start)
    resend = training.get("global_step", "increment") == "resend"
    aggregations = _aggregations(training, privacy["clip"]["kind"], len(names), len(zones), resend=resend)
    faults = spec.get("faults") or {}
    rates = faults.get("dropout_rate", 0.0)
    phases = rates if isinstance(rates, Mapping) else {"mask": rates}
    alive = {
        name: 1.0 - phases.get(name, 0.0) for name in ("advertise", "share", "mask", "consent", "unmask")
    }
    denominator = training.get("denominator", "fixed")
    bare = TreeWorld(
        names=names,
        parents=parents,
        zones=zones,
        weights=_weights(training, sizes),
        hops=_hops(spec.get("transport") or {}, names),
        aggregations=aggregations,
        repeats=tuple(resend and trust for trust in trusted[-1]),
        device_std=(),
        node_std=(),
        rounds=training["rounds"],
        delta=float(privacy.get("delta", 1e-5)),
        replace=privacy.get("neighbours") == "replace",
        records=Records.read(training, privacy, sizes),
        draw=_draw(training.get("participation", "all"), len(zones)),
        least_weight=None if denominator == "fixed" else denominator["min_weight"],
        cloud_draws=protocol == "hdp" or len(names) == 1,
        sends=alive["advertise"] * alive["share"] * alive["mask"],
        lasts=alive["consent"] * alive["unmask"],
        faulty=bool(faults),
        least=faults.get("survival_threshold"),
        elected=spec["topology"].get("supernodes") == "elected",
        fails=faults.get("supernode_failure_rate", 0.0),
        on_failure=faults.get("when_supernode_fails", "repeat"),
    )
    return Noises(bare, trusted, protocol, privacy["noise"], training.get("momentum", 0.0)).world()


def _shape(topology: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...], Places]:
    if topology["kind"] == "star":
        return ("cloud",), ((-1,),), (tuple(range(topology["devices"])),)
    if "levels" in topology:
        *fans, each = topology["levels"]
        names = tuple(topology.get("names") or ["edge"])
    else:
        fans, names, each = [topology["edges"]], ("edge",), topology["devices_per_edge"]
    parents, size = [(-1,)], 1
    for fan in fans:
        parents.append(tuple(node // fan for node in range(size * fan)))
        size *= fan
    counts = each if isinstance(each, list | tuple) else [each] * size
    zones, first = [], 0
    for count in counts:
        zones.append(tuple(range(first, first + count)))
        first += count
    return ("cloud", *names), tuple(parents), tuple(zones)


def _places(topology: Mapping[str, Any], start: Places, number: int) -> Places:
    """Where devices are in a round, from 1: at the place of the last move up to it."""
    where = {device: zone for zone, devices in enumerate(start) for device in devices}
    for first, device, zone in sorted((topology.get("moves") or {}).get("trace", [])):
        if first <= number:
            where[device] = zone
    return tuple(tuple(d for d in sorted(where) if where[d] == zone) for zone in range(len(start)))


def _trusted(
    spec: Mapping[str, Any], names: tuple[str, ...], parents: tuple[tuple[int, ...], ...], number: int
) -> list[list[bool]]:
    trust = spec.get("trust") or {}
    marks = [[False] * len(tier) for tier in parents]
    marks[0][0] = bool(trust.get("cloud", False))
    edges = trust.get("trusted_edges", [])
    if "from" in trust:
        edges = trust["from"][max(first for first in trust["from"] if first <= number)]
    for edge in edges:
        marks[-1][edge] = True
    for name in trust.get("trusted", []):
        kind, _, node = name.partition(":")
        marks[names.index(kind)][int(node)] = True
    return marks


def _sizes(spec: Mapping[str, Any], start: Places) -> tuple[int, ...]:
    """How many examples every device has, which is public and fixed by the seed."""
    devices, data = sum(map(len, start)), spec["data"]
    sizes = partition_sizes(
        partition_rule(**data.get("partition", {})),
        [len(zone) for zone in start],
        examples=data["examples_per_device"] * devices,
        seed=spec.get("seed", 0),
    )
    return tuple(sizes.tolist())


def _weights(training: Mapping[str, Any], sizes: tuple[int, ...]) -> tuple[float, ...]:
    """How much every device counts."""
    weights = training.get("weights", "uniform")
    if weights == "uniform":
        return (1.0,) * len(sizes)
    return tuple(min(size / weights["examples"], 1.0) for size in sizes)


def _hops(transport: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, ...]:
    below = [*names[1:], "devices"]
    senders = [f"{name}_to_{to}" for name, to in zip(below, names, strict=True)]
    return tuple(transport.get(hop, "plain") for hop in senders)


def _draw(participation: Any, zones: int) -> tuple[str, tuple[float, ...]]:
    if participation == "all":
        return ("all", ())
    if participation["kind"] == "poisson":
        return ("poisson", (participation["rate"],) * zones)
    return ("fixed", tuple(_of_each(participation["count"], zones)))


def _of_each(value: Any, zones: int) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [value] * zones


def _aggregations(
    training: Mapping[str, Any], clip: str, tiers: int, zones: int, *, resend: bool
) -> tuple[Aggregation, ...]:
    """At every step the highest tier whose period divides it aggregates; the cloud after the last.

    Edges of different periods aggregate by themselves; who is not due trains on.
    """
    steps = training.get("local_steps") or training.get("steps_per_round") or 1
    periods = [[period] * zones for period in training.get("aggregate_every") or []]
    if training.get("edge_every"):
        periods = [_of_each(training["edge_every"], zones)]
    momentum, last, found = training.get("momentum", 0.0), [0] * zones, []
    for step in range(1, steps + 1):
        due = [[step % period == 0 for period in tier] for tier in periods]
        tier = 0 if step == steps else next((t for t, ones in enumerate(due, 1) if any(ones)), None)
        if tier is None:
            continue
        here = [True] * zones if tier == 0 else due[tier - 1]
        pieces = tuple(step - before if sends else 0 for before, sends in zip(last, here, strict=True))
        bounds = tuple(
            float(piece > 0) if clip == "update" else sum(step_weights(piece, momentum)) for piece in pieces
        )
        own = tuple(due[0]) if step == steps and training.get("edge_at_global") and due else ()
        found.append(Aggregation(tier, bounds, pieces, None, own))
        last = [step if sends else before for before, sends in zip(last, here, strict=True)]
    return tuple(_repeated(found, clip) if resend and len(found) > 1 else found)


def _repeated(found: list[Aggregation], clip: str) -> list[Aggregation]:
    """The aggregations of a round that some zones send again at its end; all have one schedule."""
    bounds = [one.bounds[0] for one in found]
    again = (1.0, 1.0) if clip == "update" else (sum(bounds), bounds[-1])
    last = found[-1]
    return [*found[:-1], Aggregation(last.tier, last.bounds, last.pieces, again, last.own)]
