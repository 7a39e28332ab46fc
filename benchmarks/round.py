"""One round by each contender, interleaved; medians, as ratios."""

from __future__ import annotations

import copy
import itertools
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch
from workload import (
    BATCH,
    CLIP,
    EPOCHS,
    FLOOR_BATCH,
    LEARNING_RATE,
    NOISE_MULTIPLIER,
    Workload,
    sgd_step,
)

from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.learning.batches import plan_epochs
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.parameters import ParameterLayout
from sfumato.mechanisms.clipping import FlatClip
from sfumato.mechanisms.gaussian import add_gaussian_
from sfumato.random import Stream, key_at

THREADS = 2
OURS, PFL, LOOP, FLOOR = "sfumato", "pfl", "per-device loop", "floor"


def compare(kind: str, rounds: int, pfl_python: str | None) -> dict[str, float]:
    """Median seconds of a round, by contender."""
    torch.set_num_threads(THREADS)
    work = Workload.of(kind)
    times: dict[str, list[float]] = {}
    with ExitStack() as stack:
        contenders = {OURS: _ours(work), LOOP: _loop(work), FLOOR: _floor(work)}
        if pfl_python is not None:
            contenders[PFL] = stack.enter_context(_pfl(work, pfl_python))
        for name, run in contenders.items():
            run()
            times[name] = []
        for _ in range(rounds):
            for name, run in contenders.items():
                times[name].append(run())
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def _timed(run: Callable[[], None]) -> Callable[[], float]:
    def timed() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return timed


def _noised_mean(total: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    return (total + NOISE_MULTIPLIER * CLIP * torch.randn(total.shape, generator=generator)) / count


def _ours(work: Workload) -> Callable[[], float]:
    engine = LocalEngine(work.model, work.features, work.labels, EngineSettings("cpu", THREADS, 512 << 20))
    model = ParameterLayout.of(work.model).read(work.model)
    task = LocalTask(LocalSGD(LEARNING_RATE), FlatClip(CLIP))
    rng, rounds = np.random.default_rng(0), itertools.count()
    group_of = torch.zeros(len(work.chosen), dtype=torch.long)

    def run() -> None:
        batches = plan_epochs(list(work.devices[work.chosen]), epochs=EPOCHS, batch_size=BATCH, rng=rng)
        total = torch.zeros_like(model)
        for chunk in engine.train(task, model[None], group_of, batches):
            total += chunk.updates.sum(dim=0)
        std, key = np.array([NOISE_MULTIPLIER * CLIP]), key_at(0, Stream.NOISE, next(rounds))
        add_gaussian_(total[None], std, lambda _: key)
        model.add_(total / len(work.chosen))

    return _timed(run)


def _loop(work: Workload) -> Callable[[], float]:
    layout = ParameterLayout.of(work.model)
    network = copy.deepcopy(work.model)
    model = layout.read(work.model)
    generator = torch.Generator().manual_seed(0)

    def run() -> None:
        total = torch.zeros_like(model)
        for device in work.chosen:
            layout.write(model, network)
            optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
            own = torch.from_numpy(work.devices[device])
            features, labels = work.features[own], work.labels[own]
            for _ in range(EPOCHS):
                for rows in torch.randperm(len(own), generator=generator).split(BATCH):
                    sgd_step(network, optimizer, features[rows], labels[rows])
            update = layout.read(network) - model
            total += update * (CLIP / update.norm()).clamp(max=1)
        model.add_(_noised_mean(total, len(work.chosen), generator))

    return _timed(run)


def _floor(work: Workload) -> Callable[[], float]:
    network = copy.deepcopy(work.model)
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
    generator = torch.Generator().manual_seed(0)
    own = torch.from_numpy(work.devices[work.chosen].ravel())

    def run() -> None:
        for _ in range(EPOCHS):
            for rows in own[torch.randperm(len(own), generator=generator)].split(FLOOR_BATCH):
                sgd_step(network, optimizer, work.features[rows], work.labels[rows])

    return _timed(run)


@contextmanager
def _pfl(work: Workload, python: str) -> Iterator[Callable[[], float]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "work.pt"
        handed_over = {
            "features": work.features,
            "labels": work.labels,
            "devices": torch.from_numpy(work.devices),
            "chosen": torch.from_numpy(work.chosen),
            "model": work.model,
            "threads": THREADS,
            "epochs": EPOCHS,
            "batch": BATCH,
            "learning_rate": LEARNING_RATE,
            "clip": CLIP,
            "noise_multiplier": NOISE_MULTIPLIER,
        }
        torch.save(handed_over, path)
        command = [python, str(Path(__file__).parent / "pfl_round.py"), str(path)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            requests, answers = process.stdin, process.stdout
            float(answers.readline())  # the round that warms up

            def run() -> float:
                requests.write("go\n")
                requests.flush()
                return float(answers.readline())

            yield run
            requests.close()
