"""A million devices, 10,000 of them a round: memory beyond imports, CPU time of a round and of all before it.

python benchmarks/many_devices.py [DEVICES [CHOSEN [EXAMPLES]]]
"""

from __future__ import annotations

import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import pandas  # noqa: F401
import plotly.graph_objects  # noqa: F401
import pyarrow.parquet  # noqa: F401
import scipy.stats  # noqa: F401
import sklearn.metrics  # noqa: F401
import torch  # noqa: F401

import sfumato as sf
import sfumato.cli.run
import sfumato.report
import sfumato.simulation.run

ROUNDS = 3


def peak_megabytes() -> float:
    """The most memory that this process had so far."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text("utf-8").splitlines())
    return int(status["VmHWM"].split()[0]) * 1024 / 1e6


def main(devices: int = 1_000_000, chosen: int = 10_000, examples: int = 20) -> None:
    training = {"rounds": ROUNDS, "local_steps": 2, "batch_size": 4, "learning_rate": 0.1}
    document = {
        "name": "crowd",
        "protocol": "dp-fedavg",
        "data": {"source": "synthetic", "examples_per_device": examples},
        "topology": {"kind": "star", "devices": devices},
        "training": training | {"participation": {"kind": "fixed", "count": chosen}},
        "privacy": {"clip": {"kind": "update", "norm": 1}, "noise": {"multiplier": 1.0}},
        "evaluate_every": ROUNDS,
    }
    imports, times = peak_megabytes(), [time.process_time()]
    with tempfile.TemporaryDirectory() as folder:
        spec = sf.load_spec(document)
        sf.run(spec, out=Path(folder) / "run", on_round=lambda done: times.append(time.process_time()))
    first, *rounds = (after - before for before, after in pairwise(times))
    print(f"{peak_megabytes() - imports:.0f} MB beyond the {imports:.0f} MB of imports")
    print(f"{min(rounds):.2f} s of CPU a round, {first:.2f} s up to the end of the first")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
