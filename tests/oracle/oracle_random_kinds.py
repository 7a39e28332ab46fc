"""Random specs of what came after the first trees and groups: schedules, moves, records, dropouts."""

from __future__ import annotations

from random import Random
from typing import Any

from oracle_group_world import members
from oracle_random_groups import random_groups, with_dropouts
from oracle_random_trees import MULTIPLIERS, random_tree, shape, with_zone_settings


def random_zones(rng: Random) -> dict[str, Any]:
    """Several aggregations a round, with placement, weights or elections."""
    spec = random_tree(rng)
    while spec["protocol"] != "h2fdp" or spec["training"]["steps_per_round"] == 1:
        spec = random_tree(rng)
    return with_zone_settings(spec, rng)


def random_hdp(rng: Random) -> dict[str, Any]:
    """Placements of HDP, elections more often than not, secure aggregation within and among zones."""
    spec = random_tree(rng)
    while spec["protocol"] != "hdp":
        spec = random_tree(rng)
    if rng.random() < 0.6 or "supernode_failure_rate" in spec.get("faults", {}):
        spec["topology"]["supernodes"] = "elected"
    return spec


def random_schedules(rng: Random) -> dict[str, Any]:
    """Edges under a cloud that aggregate at steps of their own, and draw numbers of their own."""
    spec = random_tree(rng)
    while spec["protocol"] not in ("h2fdp", "hfl-dp") or len(shape(spec)[0]) != 2 or "compression" in spec:
        spec = random_tree(rng)
    training, (_, sizes, each) = spec["training"], shape(spec)
    edges = sizes[-1]
    steps = training["steps_per_round"] = rng.choice((2, 3, 4))
    training.pop("global_step", None)
    training["edge_every"] = [rng.randint(1, steps) for _ in range(edges)]
    spec["transport"].pop("edge_to_cloud", None)  # sums of different models are refused
    if not (spec.get("trust") or {}).get("cloud"):
        training["edge_at_global"] = rng.random() < 0.5
    if isinstance(training.get("participation"), dict) and training["participation"]["kind"] == "fixed":
        training["participation"]["count"] = [rng.randint(1, count) for count in each]
    return spec


def random_moves(rng: Random) -> dict[str, Any]:
    """Edges under a cloud where devices move, trust changes, and participants may be drawn."""
    edges = rng.choice((2, 2, 3))
    sizes = [rng.randint(1, 4) for _ in range(edges)]
    rounds, steps = rng.choice((2, 3, 4)), rng.choice((1, 1, 2, 3))
    spec: dict[str, Any] = {
        "name": "random",
        "protocol": "h2fdp",
        "seed": rng.randrange(10**6),
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "tree", "edges": edges, "devices_per_edge": sizes},
        "trust": {"cloud": rng.random() < 0.1},
        "training": {"rounds": rounds, "steps_per_round": steps, "batch_size": 4, "learning_rate": 0.1},
        "privacy": {
            "delta": rng.choice((1e-5, 1e-5, 1e-3)),
            "clip": {"kind": rng.choice(("update", "update", "step")), "norm": 1.0},
            "noise": {"multiplier": rng.choice(MULTIPLIERS)},
            "neighbours": rng.choice(("zero-out", "zero-out", "replace")),
        },
    }
    training = spec["training"]
    training["edge_every"] = rng.randint(1, steps)
    if rng.random() < 0.4:
        training["edge_every"] = [rng.randint(1, steps) for _ in range(edges)]
    least, kind = [1] * edges, rng.choice(("all", "poisson", "poisson", "fixed"))
    if kind == "poisson":
        training["participation"] = {"kind": "poisson", "rate": rng.choice((0.1, 0.3, 0.5, 0.8))}
    elif kind == "fixed":
        least = [rng.randint(1, size) for size in sizes]
        training["participation"] = {"kind": "fixed", "count": least}
    spec["topology"]["moves"] = {"trace": _trace(rng, sizes, rounds, least)}
    changes = sorted({0, *(rng.randint(2, rounds) for _ in range(rng.choice((0, 1, 2))))})
    spec["trust"]["from"] = {
        first: [edge for edge in range(edges) if rng.random() < 0.4] for first in changes
    }
    return spec


def _trace(rng: Random, sizes: list[int], rounds: int, least: list[int]) -> list[list[int]]:
    """Moves that leave every edge with its ``least`` devices."""
    place = [edge for edge, size in enumerate(sizes) for _ in range(size)]
    trace = []
    for number in range(2, rounds + 1):
        for device in range(len(place)):
            if rng.random() < 0.4 and place.count(place[device]) > least[place[device]]:
                place[device] = rng.randrange(len(sizes))
                trace.append([number, device, place[device]])
    return trace


def random_records(rng: Random) -> dict[str, Any]:
    """A tree whose records are drawn one by one for every step; some move, or have edges of own schedules."""
    made = rng.choice((random_tree, random_tree, random_tree, random_schedules, random_moves))
    spec = made(rng)
    while "compression" in spec:
        spec = made(rng)
    training, privacy = spec["training"], spec["privacy"]
    training.pop("global_step", None)
    if training.pop("local_epochs", None):
        training["steps_per_round"] = rng.choice((1, 1, 2, 3))
    training["batches"] = "poisson" if rng.random() < 0.95 else "shuffled"
    spec["data"]["examples_per_device"] = rng.choice((4, 8, 20))
    training["batch_size"] = rng.choice((1, 2, 4))
    kind = rng.choice(("update", "step", "example", "example", "at step"))
    if "weights" in training and kind != "update":
        kind = "update"
    privacy["clip"]["kind"] = "example" if kind == "at step" else kind
    if kind == "at step":
        privacy["noise"] = {"multiplier": rng.choice(MULTIPLIERS), "at": "step"}
    if kind == "step" and rng.random() < 0.5:
        training["momentum"] = rng.choice((0.0, 0.9))
    if rng.random() < 0.6:
        training.pop("participation", None)  # hidden draws and drawn records are played one by one
    return spec


def random_records_in_groups(rng: Random) -> dict[str, Any]:
    """Groups whose records are drawn one by one for every step."""
    spec = random_groups(rng)
    while spec["protocol"] not in ("dp-ogl", "dp-ogl-local"):
        spec = random_groups(rng)
    training = spec["training"]
    training["batches"] = "poisson"
    training["local_steps"] = rng.choice((1, 1, 2))
    training["batch_size"] = rng.choice((1, 2, 4))
    training["rounds"] = min(training["rounds"], 5)
    spec["data"]["examples_per_device"] = rng.choice((4, 8, 20))
    if rng.random() < 0.5:
        spec["privacy"]["clip"] = {"kind": "example", "norm": 1.0}
    if rng.random() < 0.7:
        training.pop("participation", None)
    return spec


def random_group_dropouts(rng: Random) -> dict[str, Any]:
    """Groups whose messages may be lost, or whose cohorts have a fixed size."""
    spec = random_groups(rng)
    while spec["protocol"] not in ("dp-ogl", "dp-ogl-local") or _largest(spec) > 10:
        spec = random_groups(rng)
    found = with_dropouts(spec, rng)
    if rng.random() < 0.3:
        found.pop("faults")
    return found


def _largest(spec: dict[str, Any]) -> int:
    return max(map(len, members(spec["topology"])))
