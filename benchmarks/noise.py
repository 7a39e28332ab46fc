"""Noise on the rows of a chunk against one torch generator a row. Usage: python benchmarks/noise.py"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from sfumato.mechanisms.gaussian import add_gaussian_
from sfumato.random import Stream, key_at

SIZES = ((650, 512), (30_000, 64), (1_000_000, 8))  # coordinates, rows
REPEATS = 15
PREFIX = (3, 1, 2)


def by_generators(rows: torch.Tensor, stds: np.ndarray) -> None:
    """As 0.1.0 did: a seed, a generator and a vector for every row."""
    for row in range(len(rows)):
        sequence = np.random.SeedSequence(entropy=0, spawn_key=(int(Stream.NOISE), *PREFIX, row))
        seed = int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
        generator = torch.Generator().manual_seed(seed)
        rows[row] += torch.randn(rows.shape[1], generator=generator).mul_(float(stds[row]))


def by_keys(rows: torch.Tensor, stds: np.ndarray) -> None:
    add_gaussian_(rows, stds, lambda row: key_at(0, Stream.NOISE, *PREFIX, row))


def seconds(work: Callable[[torch.Tensor, np.ndarray], None], rows: torch.Tensor, stds: np.ndarray) -> float:
    began = time.perf_counter()
    work(rows, stds)
    return time.perf_counter() - began


def main() -> None:
    print(f"{'coordinates':>12} {'rows':>6} {'threads':>8} {'time / that of generators':>26}")
    for coordinates, count in SIZES:
        rows, stds = torch.zeros(count, coordinates), np.full(count, 0.7)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            times: dict[str, list[float]] = {"generators": [], "keys": []}
            for _ in range(REPEATS + 1):
                times["generators"].append(seconds(by_generators, rows, stds))
                times["keys"].append(seconds(by_keys, rows, stds))
            ratio = statistics.median(times["keys"][1:]) / statistics.median(times["generators"][1:])
            print(f"{coordinates:12,} {count:6} {threads:8} {ratio:26.2f}", flush=True)


if __name__ == "__main__":
    main()
