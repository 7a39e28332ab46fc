"""Searches for records and models whose replacement moves an update by more than is charged.

Two devices train from one model. All their records are the same but one, which is drawn into the last local
step only: what is charged is the least there is, two clipped gradients. Other records are copies of one of
the two, so that the sum is as long as it can be. The pair is the one whose clipped gradients are farthest
apart, of a pool of records and their mirror images; then both are changed at random, and a change is kept if
the excess grows. Models have weights of several sizes.

``python tests/support/rounding_search.py [PATIENCE] [MODEL ...]`` prints a table: the largest move found over
what is charged. Above 1 a guarantee does not hold.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from unbatched_models import Rows

from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.engine.per_device import PerDeviceEngine
from sfumato.learning.batches import BatchPlan
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout

CLIP, MOMENTUM = 0.1, 0.9


@dataclass(frozen=True)
class Subject:
    """A model to search with: how many records are in a batch, and how many candidates are in the pool."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    pool: int = 20
    engine: type[LocalEngine] | type[PerDeviceEngine] = LocalEngine


@dataclass(frozen=True)
class Setting:
    """How devices train; ``steps`` of which the last one has the record."""

    sgd: LocalSGD
    steps: int = 1
    half: bool = False  # records are numbers of float16

    @property
    def of_examples(self) -> bool:
        return self.sgd.example_clip is not None


def built_in(kind: str, shape: tuple[int, ...]) -> Callable[[], nn.Module]:
    return lambda: build_model(kind, shape=shape, classes=10, seed=3)


def tanh_layers() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.Tanh(), nn.Linear(40, 10))


def lstm() -> nn.Module:
    torch.manual_seed(3)
    return Rows()


SUBJECTS = {
    "softmax": Subject(built_in("softmax", (1, 28, 28)), (1, 28, 28), 600),
    "mlp": Subject(built_in("mlp", (1, 28, 28)), (1, 28, 28), 600),
    "cnn-small": Subject(built_in("cnn-small", (1, 28, 28)), (1, 28, 28), 200),
    "cnn": Subject(built_in("cnn", (1, 12, 12)), (1, 12, 12), 60),
    "resnet18": Subject(built_in("resnet18", (1, 8, 8)), (1, 8, 8), 3, 4),
    "vgg11": Subject(built_in("vgg11", (1, 17, 17)), (1, 17, 17), 3, 4),
    "module, torch.func": Subject(tanh_layers, (1, 8, 8), 300),
    "module, by itself": Subject(lstm, (1, 8, 8), 40, 10, PerDeviceEngine),
}
SETTINGS = {
    "examples, one step": Setting(LocalSGD(1e-4, example_clip=CLIP)),
    "steps, momentum": Setting(LocalSGD(1e-6, MOMENTUM, step_clip=CLIP), steps=4),
    "examples, FedProx": Setting(LocalSGD(1e-4, example_clip=CLIP, proximal=0.1, weight_decay=1e-3), steps=2),
    "float16, tiny steps": Setting(LocalSGD(1e-6, example_clip=CLIP), half=True),
}


class Search:
    """Of one model in one setting."""

    def __init__(self, subject: Subject, setting: Setting, seed: int = 0) -> None:
        self.subject, self.setting = subject, setting
        self.rng = np.random.default_rng(seed)
        self.model = subject.make()
        self.start = ParameterLayout.of(self.model).read(self.model)

    def largest(self, patience: int) -> float:
        """The largest excess found, over models of three sizes; so many changes are tried with the last."""
        found = 0.0
        for size in (1.0, 4.0, 16.0):
            start = self.start * size
            records, labels = self._farthest_pair(start)
            best = self.excess(start, records, labels)
            found = max(found, best)
        for _ in range(patience):
            changed = self._changed(records)
            excess = self.excess(start, changed, labels)
            if excess > best:
                records, best = changed, excess
        return max(found, best)

    def excess(self, start: Tensor, records: Tensor, labels: Tensor) -> float:
        """How far apart two devices end that have one record or the other, over what is charged."""
        setting, batch = self.setting, self.subject.batch
        rows = torch.zeros(2, setting.steps, batch, dtype=torch.int32)
        rows[1, -1, -1] = 1
        counts = torch.full((2, setting.steps), batch, dtype=torch.int32)
        divisor = batch
        if not setting.of_examples:  # the last step has the record alone, as others would only dilute it
            counts[:, -1], rows[1, -1, 0], divisor = 1, 1, 1
        steps = torch.full((2,), setting.steps)
        one, other = self._updates(start, records, labels, BatchPlan(rows, counts, steps, divisor))
        charged = 2 * setting.sgd.learning_rate * CLIP / divisor
        return float((one - other).norm()) / charged

    def _updates(self, start: Tensor, records: Tensor, labels: Tensor, batches: BatchPlan) -> Tensor:
        engine = self.subject.engine(self.model, records, labels, EngineSettings("cpu", 1, 1 << 29))
        group_of = torch.zeros(batches.devices, dtype=torch.int64)
        chunks = engine.train(LocalTask(self.setting.sgd), start[None], group_of, batches)
        return torch.cat([chunk.updates for chunk in chunks]).double()

    def _farthest_pair(self, start: Tensor) -> tuple[Tensor, Tensor]:
        count = self.subject.pool // 2
        drawn = self.rng.standard_normal((count, *self.subject.shape), dtype=np.float32)
        drawn *= np.geomspace(0.1, 100, count, dtype=np.float32).reshape(-1, *[1] * len(self.subject.shape))
        pool = self._rounded(torch.from_numpy(np.concatenate([drawn, -drawn])))
        labels = torch.from_numpy(np.tile(self.rng.integers(0, 10, count), 2))
        rows = torch.arange(len(pool), dtype=torch.int32)[:, None, None]
        ones = torch.ones(len(pool), 1, dtype=torch.int32)
        alone = BatchPlan(rows, ones, torch.ones(len(pool), dtype=torch.int64), 1)
        updates = self._updates(start, pool, labels, alone)
        products = updates @ updates.T
        squares = products.diagonal()
        apart = squares[:, None] + squares - 2 * products
        one, other = divmod(int(apart.argmax()), len(pool))
        return pool[[one, other]], labels[[one, other]]

    def _changed(self, records: Tensor) -> Tensor:
        records = records.clone()
        which = int(self.rng.integers(2))
        if self.rng.random() < 0.5:
            records[which] *= float(np.exp(self.rng.normal()))
        else:
            noise = torch.from_numpy(self.rng.standard_normal(self.subject.shape, dtype=np.float32))
            records[which] += noise * float(records[which].std()) * float(np.exp(self.rng.normal() - 2))
        return self._rounded(records)

    def _rounded(self, records: Tensor) -> Tensor:
        return records.half().float() if self.setting.half else records


def main(patience: int = 12, *names: str) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print(f"{'':20s}", *(f"{name:>20s}" for name in SETTINGS))
    for name, subject in SUBJECTS.items():
        if names and name not in names:
            continue
        found = [Search(subject, setting).largest(patience) for setting in SETTINGS.values()]
        print(f"{name:20s}", *(f"{excess:20.6f}" for excess in found), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
