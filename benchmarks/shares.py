"""Shares of the CPU time of a run's rounds: training, costs, ε of watched pairs, evaluation, folder, rest.

python benchmarks/shares.py [NUMBER ...]                 # of SPECS, from 0; all of them by default
PYTHONPATH=../base/src python benchmarks/shares.py       # of another commit
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch

import sfumato
from sfumato.engine.local import LocalEngine
from sfumato.privacy.declared_releases import PairCharge
from sfumato.protocols.groups.base import GroupedProtocol
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.radio.costs import TreeCosts, TreeRound
from sfumato.radio.group_costs import GroupCosts
from sfumato.simulation.folder_writer import FolderWriter
from sfumato.simulation.training_loop import Session

EXAMPLES = Path(__file__).parents[1] / "examples"
SPECS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("dp-fedavg", ("model.kind=softmax",)),
    ("dp-fedavg", ("model.kind=mlp", "training.rounds=20")),
    ("dp-fedavg", ("model.kind=cnn-small", "training.rounds=5")),
    ("h2fdp-fmnist", ("training.rounds=50",)),
    (str(EXAMPLES / "dp-ogl" / "ri.yaml"), ()),
    (str(EXAMPLES / "hdp" / "c3.yaml"), ()),
)
PARTS: tuple[tuple[str, type, str], ...] = (
    ("rounds", TreeProtocol, "run_round"),
    ("rounds", GroupedProtocol, "run_round"),
    ("engine", LocalEngine, "_train_tile"),
    ("costs", TreeCosts, "round"),
    ("costs", TreeRound, "aggregation"),
    ("costs", GroupCosts, "round"),
    ("ε", PairCharge, "epsilon"),
    ("evaluation", Session, "_score"),
    ("folder", FolderWriter, "add"),
    ("folder", FolderWriter, "save"),
)
COLUMNS = ("training", "engine", "costs", "ε", "evaluation", "folder", "rest")


def main() -> None:
    """Run as a command."""
    chosen = [SPECS[int(number)] for number in sys.argv[1:]] or SPECS
    torch.set_num_threads(1)
    seconds: Counter[str] = Counter()
    marks: dict[str, float] = {}
    for what, owner, name in PARTS:
        setattr(owner, name, timed(getattr(owner, name), what, seconds))
    begin, finish = FolderWriter.__init__, FolderWriter.finish

    def begun(*arguments: Any) -> None:
        begin(*arguments)
        seconds.clear()  # what the account took before
        marks["begin"] = time.process_time()

    def finished(*arguments: Any) -> None:
        marks["end"] = time.process_time()
        marks.update(seconds)
        finish(*arguments)

    FolderWriter.__init__, FolderWriter.finish = begun, finished  # type: ignore[method-assign]
    print(f"{'of the CPU time of all rounds':44}", *(f"{column:>10}" for column in COLUMNS))
    for name, changes in chosen:
        marks.clear()
        with tempfile.TemporaryDirectory() as folder:
            sfumato.run(sfumato.load_spec(name, list(changes)), out=Path(folder) / "run", progress=False)
        shares = shares_of(marks)
        what = " ".join([Path(name).stem, *changes])
        print(f"{what:44}", *(f"{shares[column]:10.1%}" for column in COLUMNS), flush=True)


def timed(function: Callable[..., Any], what: str, seconds: Counter[str]) -> Callable[..., Any]:
    """``function``, whose CPU time is added up under ``what``."""

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        began = time.process_time()
        try:
            return function(*arguments, **named)
        finally:
            seconds[what] += time.process_time() - began

    return call


def shares_of(marks: dict[str, float]) -> dict[str, float]:
    """Shares by column: training is a round of the protocol but for its costs, the engine's part included."""
    whole = marks["end"] - marks["begin"]
    parts = {name: marks.get(name, 0.0) / whole for name in ("engine", "costs", "ε", "evaluation", "folder")}
    parts["training"] = marks["rounds"] / whole - parts["costs"]
    parts["rest"] = 1.0 - sum(parts[name] for name in COLUMNS[:-1] if name != "engine")
    return parts


if __name__ == "__main__":
    main()
