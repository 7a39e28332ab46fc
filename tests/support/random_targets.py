"""Random specs of every family with noise for a target, and what `account` says of the noise found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import oracle_random_kinds as kinds
from oracle_group_world import members
from oracle_random_groups import random_groups, random_groups_with_some_trust
from oracle_random_trees import random_tree, shape

from sfumato import account
from sfumato.accounting import pair_guarantee
from sfumato.errors import SpecError
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import load_spec

Document = dict[str, Any]

OFTEN = (
    "trees",
    "stars",
    "hdp",
    "schedules of edges",
    "groups",
    "groups, some trust",
    "groups, dropouts and cohorts",
)
"""Families whose targets take little time: two turns of three."""

OBSERVERS = ("own-edge", "other-edge", "edge", "peer", "other-device", "device")
EVERYBODY = ("cloud", "public")
TARGETS = (0.3, 1.0, 4.0, 20.0)


def tree(rng: Random) -> Document:
    """A tree without large zones, whose targets take long."""
    spec = random_tree(rng)
    while spec["topology"]["kind"] == "star" or max(shape(spec)[2]) > 12:
        spec = random_tree(rng)
    return _with_possible_masks(spec)


def star(rng: Random) -> Document:
    """Devices under the cloud."""
    spec = random_tree(rng)
    while spec["topology"]["kind"] != "star":
        spec = random_tree(rng)
    return spec


def _with_possible_masks(spec: Document) -> Document:
    names, sizes, _ = shape(spec)
    for upper, lower, above, below in zip(names, names[1:], sizes, sizes[1:], strict=False):
        if below < 3 * above or spec["training"].get("steps_per_round", 1) > 1:
            spec.get("transport", {}).pop(f"{lower}_to_{upper}", None)
    return spec


def hdp(rng: Random) -> Document:
    """HDP by trust: a target sizes the noise of who is placed so."""
    spec = _with_possible_masks(kinds.random_hdp(rng))
    zones = shape(spec)[1][-1]
    if len(shape(spec)[0]) == 2:
        spec["trust"] = {"trusted_edges": [zone for zone in range(zones) if rng.random() < 0.5]}
    spec["trust"] = spec.get("trust", {}) | {"cloud": rng.random() < 0.2}
    return spec


def air(rng: Random) -> Document:
    """PFELS: devices add what the receiver's noise lacks; messages are sums on the air."""
    devices = rng.randint(3, 10)
    return {
        "name": "random",
        "protocol": rng.choice(("pfels", "wfl-p")),
        "seed": rng.randrange(10**6),
        "data": {"source": "synthetic", "examples_per_device": 20},
        "model": {"kind": "softmax"},
        "topology": {"kind": "star", "devices": devices},
        "training": {
            "rounds": rng.randint(1, 6),
            "local_steps": rng.randint(1, 3),
            "batch_size": 5,
            "learning_rate": 0.1,
            "participation": rng.choice(("all", {"kind": "fixed", "count": rng.randint(1, devices)})),
        },
        "radio": {"gain": {"kind": "constant", "mean": 0.1, "min": 0.1, "max": 0.1}, "snr_db": [2, 15]},
        "privacy": {"delta": 1e-3, "clip": {"kind": "update", "norm": 1.0}, "noise": "none"},
    }


def records(rng: Random) -> Document:
    """Records of trees that are drawn for every step."""
    spec = kinds.random_records(rng)
    while max(shape(spec)[2]) > 12:
        spec = kinds.random_records(rng)
    return _with_possible_masks(spec)


FAMILIES: Mapping[str, Callable[[Random], Document]] = {
    "trees": tree,
    "stars": star,
    "hdp": hdp,
    "schedules of edges": kinds.random_schedules,
    "moves": kinds.random_moves,
    "records": records,
    "records in groups": kinds.random_records_in_groups,
    "groups": random_groups,
    "groups, some trust": random_groups_with_some_trust,
    "groups, dropouts and cohorts": kinds.random_group_dropouts,
    "the air": air,
}


def with_target(spec: Document, rng: Random) -> Document:
    """``spec`` with noise for a target towards somebody whom the family knows."""
    grouped = spec["topology"]["kind"] == "groups"
    towards = rng.choice(OBSERVERS if grouped else (*OBSERVERS, *EVERYBODY, *EVERYBODY))
    if spec["topology"]["kind"] == "star":
        towards = rng.choice(("cloud", "cloud", "public", "device"))
    if rng.random() < 0.1:
        towards = "device:0"
    drawn = spec["training"].get("participation")
    if isinstance(drawn, dict) and drawn.get("rate") == 1e-4:
        drawn["rate"] = 0.1  # so rare a draw needs next to no noise, which takes a minute to find out
    privacy = spec["privacy"] | {"noise": {"epsilon": rng.choice(TARGETS), "for": towards}}
    return spec | {"privacy": privacy}


@dataclass(frozen=True)
class Calibrated:
    """What became of a target.

    Attributes:
        family: of the spec.
        outcome: ``met``, ``refused``, or ``out of reach`` where nobody is left whom the target holds for.
        share: the largest epsilon of a concerned pair over the target; 0 where there is none.
        said: why it was refused.
        spec: as written.
    """

    family: str
    outcome: str
    share: float
    said: str
    spec: Document


def drawn(number: int) -> tuple[str, Document, Random]:
    """A random spec of one family after the other."""
    rng = Random(f"targets/{number}")
    turns = [*FAMILIES, *OFTEN, *OFTEN]
    family = turns[number % len(turns)]
    spec = FAMILIES[family](rng)
    if "records" in family:
        spec["privacy"]["unit"] = "record"
    return family, with_target(spec, rng), rng


def calibrated(number: int, *, pairs: int = 1) -> Calibrated:
    """Resolve a spec, account for what is resolved, and ask for a few concerned pairs by themselves."""
    family, spec, rng = drawn(number)
    noise = spec["privacy"]["noise"]
    target, towards = noise["epsilon"], noise["for"]
    try:
        plan = resolve(load_spec(spec))
    except SpecError as error:
        return Calibrated(family, "refused", 0.0, f"{error.place}: {error}", spec)
    found = []
    for row in account(plan.spec, observer=towards).guarantees:
        if not row.trusted or math.isfinite(row.epsilon):  # a trusted cloud may see noised messages
            found.append(row.epsilon)
    unit = "record" if plan.spec.privacy.unit == "record" else "device"
    concerned = list(concerned_pairs(spec, towards))
    for one, observer in rng.sample(concerned, min(pairs, len(concerned))):
        row = pair_guarantee(plan, f"{unit}:{one}", observer, delta=plan.spec.privacy.delta)
        if not row.trusted or math.isfinite(row.epsilon):  # a trusted cloud may see noised messages
            found.append(row.epsilon)
    finite = [epsilon for epsilon in found if math.isfinite(epsilon)]
    outcome = "met" if finite and len(finite) == len(found) else "out of reach"
    return Calibrated(family, outcome, max(finite, default=0.0) / target, "", spec)


def concerned_pairs(spec: Document, towards: str) -> list[tuple[int, str]]:
    """Pairs that a target is for, from the spec alone; none where devices move or the tree is deep."""
    topology = spec["topology"]
    if topology["kind"] == "groups":
        places, name = members(topology), "master"
    else:
        names, _, each = shape(spec)
        if "moves" in topology or len(names) > 2:
            return []
        places, name, first = (), "edge", 0
        for count in each:
            places, first = (*places, tuple(range(first, first + count))), first + count
    devices, found = sorted({device for place in places for device in place}), []
    for unit in devices:
        own = [place for place, inside in enumerate(places) if unit in inside]
        peers = {device for place in own for device in places[place]} - {unit}
        others = {
            "peer": peers,
            "other-device": set(devices) - peers - {unit},
            "device": set(devices) - {unit},
        }
        nodes = {
            "own-edge": set(own),
            "other-edge": set(range(len(places))) - set(own),
            "edge": set(range(len(places))),
        }
        if topology["kind"] == "star":
            nodes = {}
        found += [(unit, f"device:{other}") for other in sorted(others.get(towards, ()))]
        found += [(unit, f"{name}:{node}") for node in sorted(nodes.get(towards, ()))]
        if towards in EVERYBODY or (towards.startswith("device:") and towards != f"device:{unit}"):
            found.append((unit, towards))
    return found
