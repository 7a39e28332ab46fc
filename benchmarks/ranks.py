"""CPU time of the rounds of a run over ranks, and what of it exchanges and evaluation take.

python benchmarks/ranks.py SPEC [SET ...]                                  # one process
torchrun --nproc-per-node 2 benchmarks/ranks.py SPEC [SET ...]             # two ranks, a line each
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter

import torch
from shares import timed

from sfumato.cli import main as sfumato
from sfumato.distributed.launch import Launch
from sfumato.distributed.process_group import ProcessGroup
from sfumato.simulation.training_loop import Session


def main() -> None:
    """Run as a command."""
    torch.set_num_threads(1)
    seconds: Counter[str] = Counter()
    for what, owner, name in (
        ("rounds", Session, "next"),
        ("evaluation", Session, "_score"),
        ("exchanges", ProcessGroup, "_wait"),
    ):
        setattr(owner, name, timed(getattr(owner, name), what, seconds))
    spec, *changes = sys.argv[1:]
    sets = [part for change in changes for part in ("--set", change)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            sfumato(["run", spec, *sets, "--out", f"{folder}/run", "--device", "cpu", "--quiet"])
        finally:
            launch, rounds = Launch.of(), seconds["rounds"]
            shares = ", ".join(f"{what} {seconds[what] / rounds:.1%}" for what in ("evaluation", "exchanges"))
            print(f"rank {launch.rank} of {launch.count}: {rounds:.2f} s of CPU time, {shares}", flush=True)


if __name__ == "__main__":
    main()
