"""Clips of examples on the CPU: Opacus over ours. Usage: python benchmarks/opacus_loop.py [MODEL ...]

The work is that of `round.py`, with every example's gradient clipped and no noise: ours trains 50 devices,
plain PyTorch with Opacus (which must be installed) ten of them, one after the other; its time counts five
times. Medians of three rounds after one that warms up, in turn, on two threads.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from workload import BATCH, CLIP, EPOCHS, LEARNING_RATE, MODELS, Workload, sgd_step

from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.learning.batches import plan_epochs
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.parameters import ParameterLayout

THREADS, LOOPED, TURNS = 2, 10, 4


def opacus_loop(work: Workload, device: str, devices: int) -> dict[str, Callable[[], object]]:
    """A round of some devices by plain PyTorch, with Opacus' clip of examples and no noise.

    By the name "Opacus"; nothing where it is not installed. ``device``: of torch.
    """
    try:
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer
    except ImportError:
        return {}
    network = GradSampleModule(copy.deepcopy(work.model).to(device))
    own_layout = ParameterLayout.of(network._module)
    model = own_layout.read(network._module)
    features, labels = work.features.to(device), work.labels.to(device)

    def run() -> Tensor:
        total = torch.zeros_like(model)
        for chosen in work.chosen[:devices]:
            own_layout.write(model, network._module)
            optimizer = DPOptimizer(
                torch.optim.SGD(network.parameters(), lr=LEARNING_RATE),
                noise_multiplier=0.0,
                max_grad_norm=CLIP,
                expected_batch_size=BATCH,
            )
            own = torch.from_numpy(work.devices[chosen]).to(device)
            for _ in range(EPOCHS):
                for rows in own[torch.randperm(len(own), device=device)].split(BATCH):
                    sgd_step(network, optimizer, features[rows], labels[rows])
            total += own_layout.read(network._module) - model
        return total

    return {"Opacus": run}


def ours(work: Workload) -> Callable[[], object]:
    """A round of all chosen devices with clipped examples."""
    engine = LocalEngine(work.model, work.features, work.labels, EngineSettings("cpu", THREADS, 512 << 20))
    start = ParameterLayout.of(work.model).read(work.model)[None]
    task = LocalTask(LocalSGD(LEARNING_RATE, example_clip=CLIP))
    rng, group_of = np.random.default_rng(0), torch.zeros(len(work.chosen), dtype=torch.long)

    def run() -> object:
        batches = plan_epochs(list(work.devices[work.chosen]), epochs=EPOCHS, batch_size=BATCH, rng=rng)
        return [chunk.updates.sum(dim=0) for chunk in engine.train(task, start, group_of, batches)]

    return run


def main() -> None:
    """Run as a command."""
    torch.set_num_threads(THREADS)
    for kind in sys.argv[1:] or MODELS:
        work = Workload.of(kind)
        contenders = {"ours": ours(work), **opacus_loop(work, "cpu", LOOPED)}
        if "Opacus" not in contenders:
            sys.exit("Opacus is not installed: pip install opacus")
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(TURNS):
            for name, run in contenders.items():
                began = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - began)
        median = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
        print(f"{kind:10} {median['Opacus'] * len(work.chosen) / LOOPED / median['ours']:.2f}", flush=True)


if __name__ == "__main__":
    main()
