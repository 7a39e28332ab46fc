from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from tree_reference import Node, Reference
from tree_worlds import Library, edges, sizes_of, spec_of, star, world_of

ROUNDS = 3
STEP = {"clip": {"kind": "step", "norm": 0.7}, "noise": {"multiplier": 0.5}}
TRAINING = {"rounds": ROUNDS, "steps_per_round": 4, "edge_every": 2, "batch_size": 4, "learning_rate": 0.3}
STAR = {"rounds": ROUNDS, "local_steps": 3, "batch_size": 4, "learning_rate": 0.3}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors: threads only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass
class Case:
    spec: dict[str, Any]
    tree: Callable[[], Node]
    depth: int = 2
    empty: tuple[int, ...] = ()
    world: dict[str, Any] = field(default_factory=dict)


def three_tiers() -> Node:
    """Two regions of two edges of two devices; trusted: region 0, edges 0, 1 and 2."""
    root = Node(0, 0, False)
    for region in range(2):
        root.children.append(Node(1, region, region == 0))
        for edge in (2 * region, 2 * region + 1):
            leaf = Node(2, edge, edge < 3, devices=[2 * edge, 2 * edge + 1], public_count=2.0)
            root.children[region].children.append(leaf)
    return root


CASES = {
    "two tiers, one edge trusted": Case({"trust": {"trusted_edges": [1]}}, lambda: edges([3, 3], {1})),
    "clipped steps": Case(
        {"trust": {"trusted_edges": [0]}, "privacy": STEP},
        lambda: edges([3, 3], {0}),
        world={"clip_kind": "step", "clip_norm": 0.7},
    ),
    "clipped steps with momentum": Case(
        {"trust": {"trusted_edges": [0]}, "privacy": STEP, "training": TRAINING | {"momentum": 0.8}},
        lambda: edges([3, 3], {0}),
        world={"clip_kind": "step", "clip_norm": 0.7, "momentum": 0.8},
    ),
    "momentum, uneven pieces": Case(
        {"training": TRAINING | {"momentum": 0.9, "steps_per_round": 5}},
        lambda: edges([3, 3], set()),
        world={"momentum": 0.9, "aggregations": [(2, 1), (4, 1), (5, 0)]},
    ),
    "Adam with weight decay, uneven pieces": Case(
        {
            "training": TRAINING
            | {
                "steps_per_round": 5,
                "optimizer": {"beta1": 0.7, "beta2": 0.9, "epsilon": 0.1},
                "weight_decay": 0.4,
            }
        },
        lambda: edges([3, 3], set()),
        world={
            "adamw": {"beta1": 0.7, "beta2": 0.9, "epsilon": 0.1, "decay": 0.4},
            "aggregations": [(2, 1), (4, 1), (5, 0)],
        },
    ),
    "unequal edges": Case(
        {
            "topology": {"kind": "tree", "edges": 3, "devices_per_edge": [1, 4, 2]},
            "trust": {"trusted_edges": [1]},
        },
        lambda: edges([1, 4, 2], {1}),
    ),
    "trusted cloud over mixed edges": Case(
        {
            "topology": {"kind": "tree", "edges": 3, "devices_per_edge": [1, 4, 2]},
            "trust": {"trusted_edges": [1, 2], "cloud": True},
        },
        lambda: edges([1, 4, 2], {1, 2}, cloud=True),
    ),
    "resend": Case(
        {"trust": {"trusted_edges": [1]}, "training": TRAINING | {"global_step": "resend"}},
        lambda: edges([3, 3], {1}),
        world={"resend": True},
    ),
    "resend, clipped steps with momentum": Case(
        {
            "trust": {"trusted_edges": [0]},
            "privacy": STEP,
            "training": TRAINING | {"global_step": "resend", "momentum": 0.5, "steps_per_round": 5},
        },
        lambda: edges([3, 3], {0}),
        world={
            "resend": True,
            "clip_kind": "step",
            "clip_norm": 0.7,
            "momentum": 0.5,
            "aggregations": [(2, 1), (4, 1), (5, 0)],
        },
    ),
    "resend, part of the devices": Case(
        {
            "trust": {"trusted_edges": [1]},
            "training": TRAINING | {"global_step": "resend", "participation": {"rate": 0.5}},
        },
        lambda: edges([3, 3], {1}, count=lambda size: size / 2),
        world={"resend": True, "participation": ("poisson", 0.5)},
    ),
    "fixed participation": Case(
        {
            "topology": {"kind": "tree", "edges": 2, "devices_per_edge": [3, 5]},
            "trust": {"trusted_edges": [0]},
            "training": TRAINING | {"participation": {"count": 2}},
        },
        lambda: edges([3, 5], {0}, count=lambda size: 2),
        world={"participation": ("fixed", 2)},
    ),
    "Poisson participation": Case(
        {
            "topology": {"kind": "tree", "edges": 2, "devices_per_edge": [3, 5]},
            "trust": {"trusted_edges": [0]},
            "training": TRAINING | {"participation": {"rate": 0.4}},
        },
        lambda: edges([3, 5], {0}, count=lambda size: 0.4 * size),
        world={"participation": ("poisson", 0.4)},
    ),
    "empty cohorts": Case(
        {"trust": {"trusted_edges": [0]}, "training": TRAINING | {"participation": {"rate": 1e-9}}},
        lambda: edges([3, 3], {0}, count=lambda size: 1e-9 * size),
        world={"participation": ("poisson", 1e-9)},
    ),
    "devices without data": Case({"trust": {"trusted_edges": [0]}}, lambda: edges([3, 3], {0}), empty=(0, 4)),
    "an edge without data": Case({}, lambda: edges([3, 3], set()), empty=(0, 1, 2)),
    "no noise, no clip": Case(
        {"protocol": "hfl", "privacy": {}},
        lambda: edges([3, 3], set()),
        world={"clip_kind": None, "clip_norm": math.inf, "multiplier": 0.0},
    ),
    "hfl-dp trusts nobody": Case(
        {"protocol": "hfl-dp", "trust": {"trusted_edges": [1]}}, lambda: edges([3, 3], set())
    ),
    "star, pedpfl": Case(
        {"protocol": "pedpfl", "topology": {"kind": "star", "devices": 5}, "training": STAR},
        lambda: star(5),
        depth=1,
        world={"aggregations": [(3, 0)]},
    ),
    "star, dp-fedavg": Case(
        {
            "protocol": "dp-fedavg",
            "topology": {"kind": "star", "devices": 6},
            "training": STAR | {"participation": {"count": 4}},
        },
        lambda: star(6, count=4),
        depth=1,
        world={"aggregations": [(3, 0)], "dp_fedavg": True, "participation": ("fixed", 4)},
    ),
    "star, trusted cloud, epochs of unequal length": Case(
        {
            "protocol": "dp-fedavg",
            "topology": {"kind": "star", "devices": 6},
            "trust": {"cloud": True},
            "training": {"rounds": ROUNDS, "local_epochs": 2, "batch_size": 4, "learning_rate": 0.3},
        },
        lambda: star(6, trusted=True),
        depth=1,
        empty=(2,),
        world={"aggregations": [(1, 0)], "epochs": 2},
    ),
    "tree, one epoch with momentum": Case(
        {
            "training": {
                "rounds": ROUNDS,
                "local_epochs": 1,
                "batch_size": 3,
                "learning_rate": 0.3,
                "momentum": 0.9,
            }
        },
        lambda: edges([3, 3], set()),
        world={"aggregations": [(1, 0)], "epochs": 1, "momentum": 0.9, "batch_size": 3},
    ),
    "server momentum": Case(
        {"training": TRAINING | {"server": {"optimizer": "sgd", "learning_rate": 0.7, "momentum": 0.9}}},
        lambda: edges([3, 3], set()),
        world={"server": {"optimizer": "sgd", "learning_rate": 0.7, "momentum": 0.9}},
    ),
    "server Adam": Case(
        {"training": TRAINING | {"server": {"optimizer": "adam", "learning_rate": 0.1, "beta2": 0.95}}},
        lambda: edges([3, 3], set()),
        world={
            "server": {
                "optimizer": "adam",
                "learning_rate": 0.1,
                "beta1": 0.9,
                "beta2": 0.95,
                "epsilon": 1e-3,
            }
        },
    ),
    "falling step size": Case(
        {"privacy": STEP, "training": TRAINING | {"learning_rate": {"kind": "inverse-sqrt", "initial": 0.3}}},
        lambda: edges([3, 3], set()),
        world={
            "clip_kind": "step",
            "clip_norm": 0.7,
            "learning_rate": [0.3 / math.sqrt(k + 1) for k in range(ROUNDS)],
        },
    ),
    "three tiers": Case(
        {
            "topology": {"kind": "tree", "levels": [2, 2, 2], "names": ["region", "edge"]},
            "trust": {"trusted": ["region:0", "edge:0", "edge:1", "edge:2"]},
            "training": {
                "rounds": ROUNDS,
                "steps_per_round": 8,
                "aggregate_every": [4, 2],
                "batch_size": 4,
                "learning_rate": 0.3,
            },
        },
        three_tiers,
        depth=3,
        world={"aggregations": [(2, 2), (4, 1), (6, 2), (8, 0)]},
    ),
}


def both(case: Case) -> tuple[Library, Reference]:
    settings: dict[str, Any] = {
        "aggregations": [(2, 1), (4, 0)],
        "learning_rate": [0.3] * ROUNDS,
        "batch_size": 4,
        "clip_kind": "update",
        "clip_norm": 0.2,
        "multiplier": 0.5,
    }
    spec = spec_of(**({"training": TRAINING} | case.spec))
    tree = case.tree()
    devices = sum(len(leaf.devices) for leaf in tree.leaves())
    library = Library(spec, sizes_of(devices, case.empty))
    return library, Reference(world_of(library, tree, case.depth, **(settings | case.world)))


@pytest.mark.parametrize("name", CASES)
def test_protocol_is_the_algorithm(name: str) -> None:
    library, reference = both(CASES[name])
    state, slow = library.protocol.initial(library.start), library.start.clone()
    for number in range(ROUNDS):
        state, facts = library.protocol.run_round(state)
        played = reference.play(slow, number)
        slow = played.model
        assert facts.participants.tolist() == played.participants
        scale = float((slow - library.start).abs().max())
        torch.testing.assert_close(state.model, slow, rtol=2e-5, atol=max(2e-6, 1e-6 * scale))
    assert state.round == ROUNDS
    if "empty" not in name:
        assert float((slow - library.start).norm()) > 0.05  # something was learned, or noised


@pytest.mark.parametrize(
    "name", ["two tiers, one edge trusted", "clipped steps with momentum", "resend", "three tiers"]
)
def test_comparison_is_sharp(name: str) -> None:
    """The same comparison fails by far where the reference is told something slightly else."""
    library, reference = both(CASES[name])
    reference.world.multiplier *= 1.02
    state, _ = library.protocol.run_round(library.protocol.initial(library.start))
    slow = reference.play(library.start.clone(), 0).model
    assert float((state.model - slow).abs().max()) > 1e-4


def test_pieces_of_a_round_use_all_its_batches() -> None:
    """Unclipped, with one device an edge, cutting a round into pieces changes nothing."""
    training = {"rounds": 1, "steps_per_round": 6, "batch_size": 4, "learning_rate": 0.3}
    models = []
    for every in (1, 2, 3, 6):
        spec = spec_of(
            protocol="hfl",
            privacy={},
            topology={"kind": "tree", "edges": 3, "devices_per_edge": 1},
            training=training | {"edge_every": every},
        )
        models.append(Library(spec).play(1)[-1].model)
    for model in models[1:]:
        torch.testing.assert_close(model, models[0], rtol=1e-5, atol=1e-6)


def test_epochs_take_every_step() -> None:
    """As many epochs as steps, where a batch is all a device has."""
    star_ = {"kind": "star", "devices": 2}
    training = {"rounds": 1, "batch_size": 64, "learning_rate": 0.3}
    plain = {"protocol": "dp-fedavg", "privacy": {}, "topology": star_}
    epochs = Library(spec_of(**plain, training=training | {"local_epochs": 5})).play(1)[-1].model
    steps = Library(spec_of(**plain, training=training | {"local_steps": 5})).play(1)[-1].model
    torch.testing.assert_close(epochs, steps, rtol=1e-5, atol=1e-6)


def test_bytes() -> None:
    spec = spec_of(
        topology={"kind": "tree", "levels": [2, 3, 4], "names": ["region", "edge"]},
        training={
            "rounds": 1,
            "steps_per_round": 4,
            "aggregate_every": [2, 1],
            "batch_size": 4,
            "learning_rate": 0.1,
            "participation": {"count": 2},
        },
    )
    library = Library(spec)
    _, facts = library.protocol.run_round(library.protocol.initial(library.start))
    message = 4 * len(library.start)
    devices, active, edges_, regions = 24, 12, 6, 2
    # steps 1 and 3 by edges, step 2 by regions, step 4 by the cloud
    assert facts.bytes_up == message * (4 * active + 2 * edges_ + regions)
    assert facts.bytes_down == message * (3 * active + devices + 2 * edges_ + regions)


def test_clip_fraction() -> None:
    for norm, expected in ((1e-6, 1.0), (1e6, 0.0)):
        for kind in ("update", "step"):
            spec = spec_of(privacy={"clip": {"kind": kind, "norm": norm}, "noise": "none"})
            library = Library(spec)
            _, facts = library.protocol.run_round(library.protocol.initial(library.start))
            assert facts.clip_fraction == pytest.approx(expected)
    library = Library(spec_of(protocol="hfl", privacy={}))
    _, facts = library.protocol.run_round(library.protocol.initial(library.start))
    assert np.isnan(facts.clip_fraction)
