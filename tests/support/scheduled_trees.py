"""Random facts of edges under a cloud that aggregate at steps of their own."""

from dataclasses import replace

import numpy as np
from random_tree_facts import LEVELS, make_ledger

from sfumato.privacy.observers import Party
from sfumato.privacy.tree.facts import AggregationFacts
from sfumato.privacy.tree.shape import DeviceClasses


def random_ledger(rng):
    """Edges whose aggregations, participants, bounds and noise all differ; some broadcast at the global step,
    some send the whole round again, and devices' messages may arrive summed up.
    """
    devices = [rng.randint(1, 3) for _ in range(rng.randint(1, 4))]
    edges, local = len(devices), rng.randint(0, 3)
    sends = np.array([[rng.random() < 0.6 for _ in devices] for _ in range(local)]).reshape(local, edges)
    sends = sends[sends.any(axis=1)]
    repeats = rng.random() < 0.3
    fresh = np.array([repeats and rng.random() < 0.5 for _ in devices]) & sends.any(axis=0)
    steps = []
    for number, mask in enumerate(np.vstack([sends, np.ones(edges, dtype=bool)]).astype(bool)):
        last = number == len(sends)
        steps.append(_step(rng, steps, mask, fresh if last else ~np.ones(edges, bool), last))
    kind, sizes = rng.choice(("all", "fixed", "poisson")), np.array(devices)
    counts = np.array([rng.randint(1, n) for n in devices])
    many = {"all": {}, "poisson": {"rate": 0.5, "participants": sizes * 0.5},
            "fixed": {"rate": float((counts / sizes).max()), "participants": counts}}[kind]  # fmt: skip
    declared = make_ledger([[edges], devices], steps, kind=kind, **many)
    if rng.random() < 0.5:
        total = int(sizes.sum())
        # under a fixed draw every replaced neighbour counts with the heaviest device's weight
        weights = np.array([1.0 if kind == "fixed" else rng.choice((0.25, 1.0)) for _ in range(total)])
        noisy = np.array([rng.random() < 0.7 for _ in range(total)])
        declared = replace(declared, device_classes=DeviceClasses.of(sizes, weights, noisy))
    if rng.random() < 0.5:
        shares = np.array([rng.randint(1, n) for n in devices])
        thresholds = (np.array([edges]), shares) if rng.random() < 0.5 else ()
        declared = replace(declared, hops=("plain", "secure-aggregation"), unmask_thresholds=thresholds)
    return declared


def _step(rng, before, mask, fresh, last):
    bound = np.array([rng.choice((0.5, 1.0, 3.0)) for _ in mask]) * mask
    for edge in np.flatnonzero(fresh):  # the last piece is never longer than the first
        own = [step.message_norm[edge] for step in before if step.sends(edge)]
        bound[edge] = sum(own) + min(bound[edge], own[0])
    device = np.array([rng.choice(LEVELS) for _ in mask]) * mask
    node = np.array([rng.choice(LEVELS) for _ in mask]) * mask
    cloud = np.array([rng.choice(LEVELS) if last else 0.0])
    both = np.array([last and rng.random() < 0.4 for _ in mask])
    return AggregationFacts(
        f"step {len(before)}",
        0 if last else 1,
        bound,
        device,
        (cloud, node),
        fresh,
        takes_part=None if mask.all() else mask,
        leaf_broadcasts=both if both.any() else None,
    )


def random_pair(rng, declared, most=3):
    """A unit, and a coalition without it."""
    unit = rng.randrange(declared.device_count)
    parties = [Party("public")]
    parties += [Party("node", t, i) for t, p in enumerate(declared.parents) for i in range(len(p))]
    parties += [Party("device", 0, j) for j in range(declared.device_count) if j != unit]
    return unit, tuple(rng.sample(parties, rng.randint(1, min(most, len(parties)))))
