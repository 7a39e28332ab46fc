"""A round's training on a GPU against other ways to train there. Usage: python benchmarks/gpu.py [MODEL ...]

The work is that of `round.py`: 50 devices of 60 examples, 5 epochs of batches of 10, the update clipped; and
the same with clipped steps or examples. Contenders, with repeatable arithmetic but where they say otherwise:

    floor      centralised SGD over the same samples in batches of 500, nothing clipped
    loop       plain PyTorch, one device after another (the first ten devices, times five)
    Opacus     the loop with examples clipped by Opacus, if it is installed
    launched   ours, every operation launched by itself
    TF32       ours, with TF32 and whatever algorithms torch finds fastest
    CPU        ours, two threads of this machine
    one by one ours, every device by itself, for models of millions of parameters

Prints ratios to ours, and the share of the time that noise takes.
"""

from __future__ import annotations

import copy
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import torch
from opacus_loop import opacus_loop
from torch import Tensor
from workload import BATCH, CLIP, EPOCHS, FLOOR_BATCH, LEARNING_RATE, MODELS, Workload, sgd_step

from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.engine.per_device import PerDeviceEngine
from sfumato.engine.repeatable import repeatable_arithmetic
from sfumato.learning import captured_step
from sfumato.learning.batches import plan_epochs
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.mechanisms.clipping import FlatClip
from sfumato.mechanisms.gaussian import add_gaussian_
from sfumato.random import Stream, key_at

REPEATS, LOOPED = 7, 10
CLIPS = {
    "update": LocalSGD(LEARNING_RATE),
    "step": LocalSGD(LEARNING_RATE, step_clip=CLIP),
    "example": LocalSGD(LEARNING_RATE, example_clip=CLIP),
}
LARGE = {"vgg11": (3, 32, 32), "vgg11 without norm": (3, 32, 32), "resnet18": (3, 32, 32)}


def main() -> None:
    """Run as a command."""
    for kind in sys.argv[1:] or [*MODELS, *LARGE]:
        work = _large(kind) if kind in LARGE else Workload.of(kind)
        for clip in CLIPS if kind not in LARGE else ("update",):
            _report(kind, clip, work)
    _report_noise()


def _large(kind: str) -> Workload:
    """Random images of ten devices, 20 each, for a model of millions of parameters."""
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(2_000, *LARGE[kind], generator=generator)
    labels = torch.randint(10, (len(features),), generator=generator)
    name, _, norm = kind.partition(" without ")
    model = build_model(name, shape=LARGE[kind], classes=10, seed=0, norm="none" if norm else "group")
    return Workload(features, labels, np.arange(200).reshape(10, 20), np.arange(10), model)


def _report(kind: str, clip: str, work: Workload) -> None:
    contenders: dict[str, Callable[[], object]] = {"ours": _ours(work, clip, "cuda")}
    contenders["launched"] = _launched(_ours(work, clip, "cuda"))
    contenders["TF32"] = _ours(work, clip, "cuda", repeatable=False)
    contenders["floor"] = _floor(work)
    if clip == "update":
        contenders["loop"] = _loop(work)
    if clip == "example":
        contenders |= opacus_loop(work, "cuda", LOOPED)
    if kind in LARGE:
        contenders["one by one"] = _ours(work, clip, "cuda", engine_of=PerDeviceEngine)
    else:
        contenders["CPU"] = _ours(work, clip, "cpu")
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(REPEATS + 3):
        for name, run in contenders.items():
            if (name in ("loop", "Opacus", "CPU") or kind in LARGE) and turn not in (0, 3, 4):
                continue
            torch.cuda.synchronize()
            began = time.perf_counter()
            run()
            torch.cuda.synchronize()
            if turn >= 3:
                times[name].append(time.perf_counter() - began)
    ours = statistics.median(times["ours"])
    scale = {"loop": len(work.chosen) / LOOPED, "Opacus": len(work.chosen) / LOOPED}
    ratios = {
        name: statistics.median(seconds) * scale.get(name, 1) / ours
        for name, seconds in times.items()
        if name != "ours"
    }
    print(
        f"{kind:18} {clip:8} " + "  ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()),
        flush=True,
    )


def _ours(
    work: Workload,
    clip: str,
    device: str,
    *,
    repeatable: bool = True,
    engine_of: type[LocalEngine | PerDeviceEngine] = LocalEngine,
) -> Callable[[], object]:
    settings = EngineSettings.default("cuda") if device == "cuda" else EngineSettings("cpu", 2, 512 << 20)
    engine = engine_of(work.model, work.features, work.labels, settings)
    start = ParameterLayout.of(work.model).read(work.model)[None].to(device)
    task = LocalTask(CLIPS[clip], FlatClip(CLIP) if clip == "update" else None)
    rng, group_of = np.random.default_rng(0), torch.zeros(len(work.chosen), dtype=torch.long)

    def run() -> object:
        batches = plan_epochs(list(work.devices[work.chosen]), epochs=EPOCHS, batch_size=BATCH, rng=rng)
        with repeatable_arithmetic(device) if repeatable else _fast():
            return [chunk.updates.sum(dim=0) for chunk in engine.train(task, start, group_of, batches)]

    return run


def _fast() -> AbstractContextManager[object]:
    torch.set_float32_matmul_precision("high")
    return torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True)


def _launched(run: Callable[[], object]) -> Callable[[], object]:
    """The same without graphs."""

    def launched() -> object:
        before, captured_step._EAGER_CALLS = captured_step._EAGER_CALLS, 1 << 60
        try:
            return run()
        finally:
            captured_step._EAGER_CALLS = before

    return launched


def _floor(work: Workload) -> Callable[[], object]:
    network = copy.deepcopy(work.model).cuda()
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
    features, labels = work.features.cuda(), work.labels.cuda()
    own = torch.from_numpy(work.devices[work.chosen].ravel()).cuda()

    def run() -> None:
        with repeatable_arithmetic("cuda"):
            for _ in range(EPOCHS):
                for rows in own[torch.randperm(len(own), device="cuda")].split(FLOOR_BATCH):
                    sgd_step(network, optimizer, features[rows], labels[rows])

    return run


def _loop(work: Workload) -> Callable[[], object]:
    layout, network = ParameterLayout.of(work.model), copy.deepcopy(work.model).cuda()
    model = layout.read(network)
    features, labels = work.features.cuda(), work.labels.cuda()

    def run() -> Tensor:
        total = torch.zeros_like(model)
        with repeatable_arithmetic("cuda"):
            for device in work.chosen[:LOOPED]:
                layout.write(model, network)
                optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
                own = torch.from_numpy(work.devices[device]).cuda()
                for _ in range(EPOCHS):
                    for rows in own[torch.randperm(len(own), device="cuda")].split(BATCH):
                        sgd_step(network, optimizer, features[rows], labels[rows])
                update = layout.read(network) - model
                total += update * (CLIP / update.norm()).clamp(max=1)
        return total

    return run


def _report_noise() -> None:
    """Noise of one key a row against torch's own normals, for 50 rows of a million coordinates."""
    rows = torch.zeros(50, 1_000_000, device="cuda")
    numbers = itertools.count()
    ways = {
        "keys": lambda: add_gaussian_(
            rows, np.ones(len(rows)), lambda row: key_at(0, Stream.NOISE, next(numbers), row)
        ),
        "torch": lambda: rows.add_(torch.randn_like(rows)),
    }
    seconds = {}
    for name, way in ways.items():
        times = []
        for _ in range(8):
            torch.cuda.synchronize()
            began = time.perf_counter()
            way()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        seconds[name] = statistics.median(times[2:])
    print(f"noise of 50 rows of a million: keys / torch {seconds['keys'] / seconds['torch']:.2f}")


if __name__ == "__main__":
    main()
