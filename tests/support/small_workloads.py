"""Small pieces of local work, drawn at random, to train in several ways.

PYTHONPATH=src:tests python tests/support/small_workloads.py 150     # how many depend on threads or memory
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.registry import engine_of
from sfumato.learning.batches import BatchPlan, plan_epochs, plan_poisson, plan_steps
from sfumato.learning.local_training import AdamMoments, LocalSGD
from sfumato.learning.parameters import ParameterLayout
from sfumato.mechanisms.clipping import FlatClip

EXAMPLES = 400
SETTINGS = ((1, 512 << 20), (2, 512 << 20), (1, 1), (2, 1 << 16), (1, 1 << 18), (3, 1 << 18))
"""Threads and bytes of memory."""

HOW = {
    "sgd": LocalSGD(0.1),
    "momentum": LocalSGD(0.1, 0.9),
    "step clip": LocalSGD(0.1, step_clip=0.5),
    "example clip": LocalSGD(0.1, example_clip=0.5),
    "proximal": LocalSGD(0.1, proximal=0.5, weight_decay=0.1),
    "adam": LocalSGD(0.01, adam=AdamMoments()),
}


@dataclass(frozen=True)
class Workload:
    """What some devices train.

    Attributes:
        name: what it is made of.
        model: of every device.
        features: of all examples.
        labels: of these.
        batches: of the devices.
        sgd: how they step.
    """

    name: str
    model: nn.Module
    features: Tensor
    labels: Tensor
    batches: BatchPlan
    sgd: LocalSGD

    def updates(self, threads: int, memory: int, *, tiles: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Which devices trained, and their clipped updates."""
        engine = engine_of(self.model, self.features, self.labels, EngineSettings("cpu", threads, memory))
        start = ParameterLayout.of(self.model).read(self.model)[None]
        group_of = torch.zeros(self.batches.devices, dtype=torch.long)
        task = LocalTask(self.sgd, FlatClip(1.0))
        chunks = list(engine.train(task, start, group_of, self.batches, tiles))
        rows = [torch.zeros(0, dtype=torch.long), *(torch.from_numpy(chunk.rows) for chunk in chunks)]
        return torch.cat(rows), torch.cat([start[:0], *(chunk.updates for chunk in chunks)])


def workload(number: int) -> Workload:
    """The same for the same number."""
    rng = np.random.default_rng([30, number])
    torch.manual_seed(number)
    kind, how = rng.choice(["linear", "mlp", "tanh", "cnn"]), str(rng.choice(list(HOW)))
    classes, hidden, inputs = (int(rng.integers(*span)) for span in ((2, 30), (3, 90), (3, 200)))
    shape: tuple[int, ...] = (inputs,)
    if kind == "cnn":
        side, channels, maps = (int(rng.integers(*span)) for span in ((8, 16), (1, 4), (2, 12)))
        shape, flat = (channels, side, side), maps * (side // 2) ** 2
        convolution = nn.Conv2d(channels, maps, 3, padding=1)
        layers = [convolution, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(flat, classes)]
    elif kind == "linear":
        layers = [nn.Linear(inputs, classes)]
    else:
        act = nn.Tanh() if kind == "tanh" else nn.ReLU()
        layers = [nn.Linear(inputs, hidden), act, nn.Linear(hidden, classes)]
    held = [
        np.sort(rng.choice(EXAMPLES, int(rng.integers(1, 40)), replace=False))
        for _ in range(int(rng.integers(3, 14)))
    ]
    width, draw = int(rng.integers(1, 17)), str(rng.choice(["epochs", "steps", "poisson"]))
    if draw == "epochs":
        batches = plan_epochs(held, epochs=2, batch_size=width, rng=rng)
    elif draw == "steps":
        batches = plan_steps(held, steps=6, batch_size=width, rng=rng)
    else:
        each = [np.random.default_rng([number, device]) for device in range(len(held))]
        batches = plan_poisson(held, steps=6, batch_size=width, rngs=each)
    labels = torch.from_numpy(rng.integers(0, classes, EXAMPLES))
    features = torch.randn(EXAMPLES, *shape)
    return Workload(f"{kind}, {draw}, {how}", nn.Sequential(*layers), features, labels, batches, HOW[how])


def main() -> None:
    """Count the workloads whose bits depend on threads or memory."""
    different = []
    for number in range(int(sys.argv[1])):
        work = workload(number)
        found = [work.updates(*settings)[1] for settings in SETTINGS]
        if not all(torch.equal(found[0], other) for other in found[1:]):
            different.append(work.name)
    print(f"{len(different)} of {sys.argv[1]} differ", *different, sep="\n")


if __name__ == "__main__":
    main()
