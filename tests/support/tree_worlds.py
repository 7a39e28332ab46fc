"""Small federations: as the library resolves them, and as the reference plays them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tree_reference import Node, World, flat

from sfumato.data.partition import Partition
from sfumato.engine.base import EngineSettings
from sfumato.engine.local import LocalEngine
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.protocols.tree.state import TreeState
from sfumato.schedule.resolve import resolve
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec

SHAPE, CLASSES = (6,), 3
SPEED = EngineSettings("cpu", 1, 64 << 20)


def spec_of(**sections: Any) -> Spec:
    document: dict[str, Any] = {
        "name": "world",
        "protocol": "h2fdp",
        "seed": 5,
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3},
        "training": {
            "rounds": 3,
            "steps_per_round": 4,
            "edge_every": 2,
            "batch_size": 4,
            "learning_rate": 0.3,
        },
        "privacy": {"clip": {"kind": "update", "norm": 0.2}, "noise": {"multiplier": 0.5}},
    }
    return Spec.model_validate(document | sections)


def sizes_of(devices: int, empty: tuple[int, ...] = ()) -> np.ndarray:
    sizes = 5 + np.arange(devices) % 4 * 3  # some hold less than a batch or two
    sizes[list(empty)] = 0
    return sizes


def partition_of(sizes: np.ndarray, seed: int = 0) -> Partition:
    order = np.random.default_rng(seed).permutation(int(sizes.sum()))
    return Partition(order, np.concatenate([[0], np.cumsum(sizes)]))


class Library:
    """A spec with the data of `sizes`, ready to play."""

    def __init__(
        self,
        spec: Spec,
        sizes: np.ndarray | None = None,
        *,
        shape: tuple[int, ...] = SHAPE,
        classes: int = CLASSES,
        kind: str = "mlp",
        speed: EngineSettings = SPEED,
    ) -> None:
        self.plan: TreePlan = resolve(spec)
        self.sizes = sizes_of(self.plan.tree.device_count) if sizes is None else sizes
        self.partition = partition_of(self.sizes)
        rng = np.random.default_rng(11)
        examples = max(1, int(self.sizes.sum()))
        self.features = torch.from_numpy(rng.standard_normal((examples, *shape), dtype=np.float32))
        self.labels = torch.from_numpy(rng.integers(0, classes, examples))
        self.model = build_model(kind, shape=shape, classes=classes, seed=1, hidden=5, bias=False)
        self.engine = LocalEngine(self.model, self.features, self.labels, speed)
        total = ParameterLayout.of(self.model).total
        self.protocol = TreeProtocol(self.plan, self.engine, self.partition, total)
        self.start = flat(self.model)

    def play(self, rounds: int) -> list[TreeState]:
        states = [self.protocol.initial(self.start)]
        for _ in range(rounds):
            states.append(self.protocol.run_round(states[-1])[0])
        return states


def world_of(library: Library, tree: Node, depth: int, **settings: Any) -> World:
    return World(
        cloud=tree,
        depth=depth,
        model=library.model,
        features=library.features,
        labels=library.labels,
        rows=[library.partition.indices(d) for d in range(library.partition.devices)],
        seed=library.plan.spec.seed,
        **settings,
    )


def edges(sizes: list[int], trusted: set[int], *, cloud: bool = False, count: Any = None) -> Node:
    """A cloud over edges; ``count`` gives an edge's public number of participants."""
    root, first = Node(0, 0, cloud), 0
    for index, size in enumerate(sizes):
        leaf = Node(1, index, index in trusted, devices=list(range(first, first + size)))
        leaf.public_count = float(size if count is None else count(size))
        root.children.append(leaf)
        first += size
    return root


def star(size: int, *, trusted: bool = False, count: float | None = None) -> Node:
    return Node(
        0, 0, trusted, devices=list(range(size)), public_count=float(size if count is None else count)
    )
