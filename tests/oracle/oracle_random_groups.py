"""Random specs on groups as a user might write them, and random coalitions; see `oracle_random_trees`."""

from __future__ import annotations

from random import Random
from typing import Any

from oracle_group_world import members
from oracle_random_trees import MULTIPLIERS


def random_groups(rng: Random) -> dict[str, Any]:
    """A spec of the group family."""
    kind = rng.choices(("dp-ogl", "dp-ogl+", "dp-ogl-local", "ms-fedavg"), (8, 3, 4, 1))[0]
    topology = _structure(rng)
    count = len(members(topology))
    every = rng.choice((1, 1, 2, 2, 3))
    spec: dict[str, Any] = {
        "name": "random",
        "protocol": kind,
        "seed": rng.randrange(10**6),
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": topology,
        "training": {
            "rounds": rng.choice((1, 2, 3, 4, 5, 6)),
            "local_steps": 1,
            "batch_size": 4,
            "learning_rate": 0.1,
        },
        "privacy": {"delta": rng.choice((1e-5, 1e-5, 1e-6, 1e-3, 1e-12))},
        "transport": {"devices_to_master": rng.choice(("plain", "plain", "secure-aggregation"))},
    }
    if kind == "ms-fedavg":
        spec["privacy"] |= {"noise": "none"}
    else:
        spec["training"]["merge_every"] = every
        spec["privacy"] |= {
            "clip": {"kind": "update", "norm": _one_or_each(rng, (0.3, 1.0, 2.0), count)},
            "noise": {"multiplier": _one_or_each(rng, (*MULTIPLIERS, 0.1), count)},
            "neighbours": rng.choice(("zero-out", "zero-out", "replace")),
        }
        if rng.random() < 0.4:
            spec["trust"] = {"trusted_aggregators": []}
    if rng.random() < 0.45:
        rates = _one_or_each(rng, (0.1, 0.3, 0.7, 1.0), count)
        spec["training"]["participation"] = {"kind": "poisson", "rate": rates}
        if count == 1 and rng.random() < 0.3:
            spec["training"]["rounds"] = rng.choice((20, 50))
    return spec


def random_groups_with_some_trust(rng: Random) -> dict[str, Any]:
    """A spec that trusts some of the masters, not all, and has noise in every group."""
    spec = random_groups(rng)
    while spec["protocol"] in ("ms-fedavg", "dp-ogl+") or len(members(spec["topology"])) == 1:
        spec = random_groups(rng)
    count = len(members(spec["topology"]))
    trusted = sorted(rng.sample(range(count), rng.randint(1, count - 1)))
    return spec | {"trust": {"trusted_aggregators": trusted}}


def with_dropouts(spec: dict[str, Any], rng: Random) -> dict[str, Any]:
    """``spec`` with lost messages, more often under secure aggregation and with fixed cohorts."""
    groups = members(spec["topology"])
    secure = rng.random() < 0.6
    faults: dict[str, Any] = {"dropout_rate": rng.choice((0.05, 0.3, {"mask": 0.1, "unmask": 0.2}))}
    if secure and rng.random() < 0.5:
        faults["survival_threshold"] = rng.choice((0.51, 0.6, 0.8, 1.0))
    transport = {"devices_to_master": "secure-aggregation" if secure else "plain"}
    training = dict(spec["training"])
    if rng.random() < 0.4:
        counts = [rng.randint(1, len(group)) for group in groups]
        training["participation"] = {"kind": "fixed", "count": counts if len(counts) > 1 else counts[0]}
    return spec | {"faults": faults, "transport": transport, "training": training}


def _one_or_each(rng: Random, values: tuple[float, ...], count: int) -> float | list[float]:
    if count > 1 and rng.random() < 0.3:
        return [rng.choice(values) for _ in range(count)]
    return rng.choice(values)


def _structure(rng: Random) -> dict[str, Any]:
    kind = rng.choices(("list", "global", "clusters", "ring", "string"), (6, 3, 1, 2, 2))[0]
    if kind == "global":
        return {"kind": "groups", "structure": kind, "devices": rng.choice((2, 3, 5, 8, 10, 20))}
    if kind != "list":
        count = rng.randint(2, 4)
        devices = rng.randint(max(4, 2 * count), 12)
        return {"kind": "groups", "structure": kind, "groups": count, "devices": devices}
    workers, count = rng.randint(3, 10), rng.randint(1, 4)
    if rng.random() < 0.3:  # many workers in both groups: what they pass on drowns the noise
        links = rng.randint(3, 9)
        return {"kind": "groups", "structure": kind, "groups": [[*range(links + 1)], [*range(1, links + 2)]]}
    groups = [set(rng.sample(range(workers), rng.randint(2, min(workers, 6)))) for _ in range(count)]
    for worker in range(workers):
        if not any(worker in group for group in groups):
            rng.choice(groups).add(worker)
    return {"kind": "groups", "structure": kind, "groups": [sorted(group) for group in groups]}


def random_pair(spec: dict[str, Any], rng: Random) -> tuple[int, str]:
    """A unit, and an observer or coalition without it."""
    groups = members(spec["topology"])
    workers = sorted({worker for group in groups for worker in group})
    unit = rng.choice(workers)
    others = [worker for worker in workers if worker != unit]
    if rng.random() < 0.4:
        names = [f"device:{other}" for other in others] + [f"master:{group}" for group in range(len(groups))]
        return unit, rng.choice(names)
    coalition = [f"master:{group}" for group in range(len(groups)) if rng.random() < 0.35]
    together = [other for other in rng.choice(groups) if other != unit]
    if rng.random() < 0.8:
        chosen = rng.sample(together, rng.randint(1, len(together)))
    else:
        chosen = rng.sample(others, rng.randint(1, len(others)))
    return unit, ",".join([*coalition, *(f"device:{worker}" for worker in chosen)])
