"""Honest folders of random specs pass, of all families, devices and records."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from certified_folders import certified_folder
from moving_trees import random_moves
from oracle_random_groups import random_groups, random_groups_with_some_trust, with_dropouts
from oracle_random_trees import random_tree, with_zone_settings
from slow import first_quick

import sfumato as sf
from sfumato.verify.checker import check_run

SIZES: tuple[dict[str, Any], ...] = (
    {"kind": "iid"},
    {"kind": "iid", "size_sigma": 1.0},
    {"kind": "labels", "labels_per_device": 2},
    {"kind": "dirichlet", "alpha": 0.5},
)


def _placed(rng: Random) -> dict[str, Any]:
    """Trees with placement, weights or elections."""
    return with_zone_settings(random_tree(rng), rng)


def _lossy(rng: Random) -> dict[str, Any]:
    """Groups that lose messages."""
    return with_dropouts(random_groups(rng), rng)


def _controlled(rng: Random) -> dict[str, Any]:
    """Trees under control."""
    sizes = [rng.randint(2, 5) for _ in range(rng.choice((2, 3)))]
    return {
        "name": "random", "protocol": "h2fdp", "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "tree", "edges": len(sizes), "devices_per_edge": sizes},
        "trust": {"trusted_edges": [0] if rng.random() < 0.5 else []},
        "control": {"smoothness": 0.5, "max_steps": 4, "draw": rng.choice(("fixed", "poisson"))},
        "transport": {"devices_to_edge": rng.choice(("plain", "secure-aggregation"))},
        "training": {"rounds": rng.choice((2, 4)), "local_steps": 4, "batch_size": 4, "learning_rate": 0.1},
        "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": rng.choice((1.0, 4.0))}},
    }  # fmt: skip


def _over_the_air(rng: Random) -> dict[str, Any]:
    """Stars over a fading channel."""
    devices = rng.randint(4, 12)
    participation: dict[str, Any] = {"kind": "fixed", "count": rng.randint(2, devices)}
    if rng.random() < 0.3:
        participation = {"kind": "all"}
    return {
        "name": "random", "protocol": "pfels", "seed": rng.randrange(1000),
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "star", "devices": devices},
        "radio": {
            "gain": {"kind": "exponential", "mean": 0.2, "min": 0.001, "max": 1.0}, "snr_db": [2, 15]
        },
        "compression": {"kind": "rand-k", "ratio": 0.3},
        "training": {
            "rounds": rng.choice((2, 4)), "local_steps": 2, "batch_size": 5, "learning_rate": 0.1,
            "participation": participation,
        },
        "privacy": {
            "delta": 1e-3, "clip": {"kind": "update", "norm": 1.0},
            "noise": {"formula": "pfels", "epsilon": rng.choice((0.5, 1.5))},
        },
    }  # fmt: skip


FAMILIES = (
    random_tree, random_tree, _placed, random_moves, random_groups, random_groups_with_some_trust, _lossy,
    _controlled, _over_the_air,
)  # fmt: skip


def _of_records(spec: dict[str, Any], rng: Random) -> dict[str, Any]:
    """The same with records as a unit, and devices of unequal sizes now and then (R1, R2 or R3)."""
    spec["data"] = spec["data"] | {"partition": rng.choice(SIZES)}
    spec["training"]["batches"] = "poisson"
    privacy = spec["privacy"] = spec["privacy"] | {"unit": rng.choice(("record", "both"))}
    which = rng.random()
    if which < 0.5 and privacy.get("clip"):
        privacy["clip"] = {"kind": "example", "norm": 1.0}
        if which < 0.25:
            privacy["noise"] = {"multiplier": 2.0, "at": "step"}
    return spec


def random_spec(rng: Random) -> sf.Spec:
    """A random spec that the library accepts."""
    while True:
        spec = rng.choice(FAMILIES)(rng)
        if rng.random() < 0.4:
            spec = _of_records(spec, rng)
        try:
            return sf.load_spec(spec)
        except sf.SfumatoError:
            continue


def assert_passes(number: int, folder: Path) -> None:
    rng = Random(f"honest {number}")
    while True:
        spec = random_spec(rng)
        try:
            certified = certified_folder(folder / str(number), spec)
        except sf.SfumatoError:
            continue  # refused once all its facts are known
        outcome = check_run(certified)
        assert outcome.problems == [], (number, outcome.problems[:3])
        assert outcome.rows > 0
        return


QUICK = (0, 1, 3, 4, 6, 7, 8, 9, 10, 11, 14, 15, 16, 17, 19, 21, 22, 23, 24, 25)
"""Numbers of specs that take little time."""
LONG = (73,)
"""Numbers of specs whose account takes minutes."""


@pytest.mark.parametrize("number", first_quick(QUICK, 4, 10))
def test_an_honest_folder_passes(number: int, tmp_path: Path) -> None:
    assert_passes(number, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [n for n in range(201) if n not in (*QUICK, *LONG)])
def test_200_honest_folders_pass(number: int, tmp_path: Path) -> None:
    assert_passes(number, tmp_path)
