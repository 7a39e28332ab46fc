"""Random specs with a target: none is exceeded, and what cannot be met is refused with the reason."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from sfumato import account
from sfumato.errors import SpecError
from sfumato.spec.load import load_spec

TOWARDS = ("device", "peer", "cloud", "public", "edge", "edge:0", "device:0")


def random_spec(rng: Random) -> dict[str, Any]:
    """A small tree with noise for a target: weights, elections, draws, trust and transport at random."""
    protocol = rng.choice(["hdp", "hdp", "h2fdp"])
    topology: dict[str, Any] = {"kind": "tree", "edges": rng.randint(1, 3)}
    topology["devices_per_edge"] = [rng.randint(1, 4) for _ in range(topology["edges"])]
    training: dict[str, Any] = {"rounds": rng.randint(1, 6), "local_steps": 1, "learning_rate": 0.1}
    training["batch_size"] = 10
    if protocol == "hdp":
        if rng.random() < 0.6:
            topology["supernodes"] = "elected"
        if rng.random() < 0.5:
            training["weights"] = {"kind": "capped", "examples": 200}
    if rng.random() < 0.2:
        training["participation"] = {"kind": "poisson", "rate": 0.3}
    noise = {"epsilon": rng.choice([0.5, 4, 20]), "for": rng.choice(TOWARDS)}
    return {
        "name": "random",
        "protocol": protocol,
        "seed": rng.randrange(100),
        "topology": topology,
        "data": {"source": "digits", "partition": {"kind": "dirichlet", "alpha": 0.3}},
        "model": {"kind": "softmax"},
        "training": training,
        "trust": {"trusted_edges": rng.choice([0.0, 0.5, 1.0]), "cloud": rng.random() < 0.3},
        "transport": {"devices_to_edge": rng.choice(["plain", "secure-aggregation"])},
        "privacy": {
            "delta": rng.choice([1e-5, 1e-2]),
            "neighbours": rng.choice(["zero-out", "zero-out", "replace"]),
            "clip": {"kind": "update", "norm": 1.0},
            "noise": noise,
        },
    }


def is_concerned(towards: str, observer: str, relation: str) -> bool:
    """Whether a target towards ``towards`` is meant for this observer of a report."""
    return (
        observer == towards
        or (towards == "peer" and relation == "peer")
        or (towards in ("device", "edge") and observer.startswith(f"{towards}:"))
    )


def check(number: int) -> str:
    """What becomes of one spec: ``met``, ``refused``, or ``out of reach``."""
    spec = random_spec(Random(f"calibration/{number}"))
    target, towards = spec["privacy"]["noise"]["epsilon"], spec["privacy"]["noise"]["for"]
    try:
        report = account(load_spec(spec))
    except SpecError:  # any other exception fails the test
        return "refused"
    found = [g for g in report.guarantees if is_concerned(towards, g.observer, g.relation.words)]
    finite = [g.epsilon for g in found if math.isfinite(g.epsilon)]
    assert max(finite, default=0) <= target * (1 + 1e-9), (number, towards, target, max(finite))
    trusted = {"own edge": spec["trust"]["trusted_edges"] > 0, "cloud": spec["trust"]["cloud"]}
    for row in found:  # nobody but who is trusted with raw updates may be beyond a target
        assert math.isfinite(row.epsilon) or trusted.get(row.relation.words), (number, row)
    return "met" if finite else "out of reach"


def test_a_few() -> None:
    outcomes = [check(number) for number in range(12)]
    assert outcomes.count("met") >= 4
    assert outcomes.count("refused") >= 1


@pytest.mark.slow
def test_many() -> None:
    outcomes = [check(number) for number in range(12, 212)]
    assert outcomes.count("met") >= 80
