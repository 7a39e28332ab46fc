"""Local steps on Poisson mini-batches against shuffled ones. Usage: benchmarks/batches.py [MODEL ...]"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from workload import BATCH, CLIP, LEARNING_RATE, MODELS, Workload

from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.learning.batches import BatchPlan, plan_poisson, plan_steps
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.parameters import ParameterLayout
from sfumato.mechanisms.clipping import FlatClip
from sfumato.random import Stream, generator

THREADS, STEPS, REPEATS, DEVICES = 2, 20, 21, 20


def contenders(work: Workload, batch_size: int) -> dict[str, Callable[[], BatchPlan]]:
    """What draws the batches of a round."""
    rows = list(work.devices[work.chosen[:DEVICES]])
    rng = np.random.default_rng(0)

    def poisson() -> BatchPlan:
        number = int(rng.integers(1 << 30))
        rngs = [generator(0, Stream.POISSON_BATCHES, number, device) for device in range(DEVICES)]
        return plan_poisson(rows, steps=STEPS, batch_size=batch_size, rngs=rngs)

    def shuffled() -> BatchPlan:
        return plan_steps(rows, steps=STEPS, batch_size=batch_size, rng=rng)

    return {"shuffled": shuffled, "poisson": poisson}


def compare(kind: str, batch_size: int) -> float:
    """Median time of a round on Poisson mini-batches over that on shuffled ones, draws included."""
    torch.set_num_threads(THREADS)
    work = Workload.of(kind)
    engine = LocalEngine(work.model, work.features, work.labels, EngineSettings("cpu", THREADS, 512 << 20))
    start = ParameterLayout.of(work.model).read(work.model)[None]
    task, together = (
        LocalTask(LocalSGD(LEARNING_RATE), FlatClip(CLIP)),
        torch.zeros(DEVICES, dtype=torch.long),
    )
    times: dict[str, list[float]] = {"shuffled": [], "poisson": []}
    draws = contenders(work, batch_size)
    for _ in range(REPEATS + 1):
        for name, draw in draws.items():
            began = time.perf_counter()
            for _chunk in engine.train(task, start, together, draw()):
                pass
            times[name].append(time.perf_counter() - began)
    return statistics.median(times["poisson"][1:]) / statistics.median(times["shuffled"][1:])


def main() -> None:
    print(f"{'model':12} {'batch':>6} {'poisson / shuffled':>20}")
    for kind in sys.argv[1:] or MODELS:
        for batch_size in (BATCH, 3 * BATCH):
            print(f"{kind:12} {batch_size:6} {compare(kind, batch_size):20.2f}", flush=True)


if __name__ == "__main__":
    main()
