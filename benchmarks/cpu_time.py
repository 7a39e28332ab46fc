"""CPU time of start-up, accounts and rounds at two commits, as ratios; names every one above 1.05.

    make bench BASE=COMMIT
    python benchmarks/cpu_time.py BASE/src src

Both sides run one thread, on the specs of today, turn by turn, and their least of three turns counts. A turn
takes at least a second of CPU. What is above 1.05 is measured again by new processes, and named if the least
of all turns is still above. Exit status 1 if anything is named.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import sfumato

ROOT = Path(__file__).parent.parent
BUILT_IN = "src/sfumato/spec/builtin/{}.yaml"
STARTS = {
    "import sfumato": ("-c", "import sfumato"),
    "sfumato account quickstart": ("-m", "sfumato", "account", "quickstart"),
}
ACCOUNTS = {
    "quickstart": (BUILT_IN.format("quickstart"),),
    "three-tier": (BUILT_IN.format("three-tier"),),
    "h2fdp-fmnist": (BUILT_IN.format("h2fdp-fmnist"),),
    "h2fdp-fmnist, records": (
        BUILT_IN.format("h2fdp-fmnist"),
        "privacy.unit=record",
        "training.batches=poisson",
    ),
    "dp-ogl ring": ("examples/dp-ogl/ri.yaml",),
}
MODELS = ("softmax", "mlp", "cnn-small")
CLIPS = {
    "update": (),
    "step": ("privacy.clip.kind=step",),
    "example": ("privacy.clip.kind=example", "training.batches=poisson"),
}
IMAGES = ("data.source=fashion-mnist", "data.partition={kind: iid}", "topology.devices_per_edge=5")  # 28 x 28
ROUNDS = ("evaluate_every=100000", "topology.devices_per_edge=10", "privacy.noise={multiplier: 1.0}")

WANTED, SECONDS, TURNS = 1.05, 1.0, 3


def main() -> int:
    """Run as a command; gives the exit status."""
    if sys.argv[1:] == ["--answer"]:
        answer()
        return 0
    before, after = sys.argv[1:]
    first, above = {}, {}
    with Side(before) as base, Side(after) as now:
        for what in figures():
            print(f"{what:40} ", end="", flush=True)
            turns = Turns.of(what, base, now)
            first[what] = turns
            print(turns.shown, flush=True)
    doubted = [what for what, turns in first.items() if turns.ratio > WANTED]
    with Side(before) as base, Side(after) as now:
        for what in doubted:
            turns = first[what]
            turns.take(base, now)
            print(f"{what:40} {turns.shown}, of twice as many turns", flush=True)
            if turns.ratio > WANTED:
                above[what] = turns.ratio
    print("".join(f"ABOVE {WANTED}: {what}, {ratio:.2f}\n" for what, ratio in above.items()), end="")
    return 1 if above else 0


class Side:
    """A process that measures the package in a source folder."""

    def __init__(self, source: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(source).resolve()), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--answer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.communicate()

    def seconds(self, what: str, times: int) -> float:
        """CPU time of doing something so many times; nan where this side refuses it."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.dumps([what, times]) + "\n")
        asked.flush()
        return float(json.loads(answers.readline()))


class Turns:
    """The turns of both sides at one figure, of so many times each."""

    def __init__(self, what: str, times: int) -> None:
        self._what, self._times = what, times
        self._before: list[float] = []
        self._after: list[float] = []

    @classmethod
    def of(cls, what: str, base: Side, now: Side) -> Turns:
        """Some turns, each long enough to be measured."""
        for side in base, now:
            side.seconds(what, 1)  # which warms up
        times = 1
        while (taken := now.seconds(what, times)) < SECONDS:
            times = math.ceil(times * min(1.2 * SECONDS / max(taken, 1e-3), 20))
        turns = cls(what, times)
        turns.take(base, now)
        return turns

    def take(self, base: Side, now: Side) -> None:
        """Take turns."""
        for _ in range(TURNS):
            self._before.append(base.seconds(self._what, self._times))
            self._after.append(now.seconds(self._what, self._times))

    @property
    def ratio(self) -> float:
        """CPU time now over that of before; nan where one side refuses it."""
        return min(self._after) / min(self._before)

    @property
    def shown(self) -> str:
        """The ratio, as text."""
        return "refused by one side" if math.isnan(self.ratio) else f"{self.ratio:.2f}"


def answer() -> None:
    """Measure what is asked for on standard input; seconds on standard output, a line each."""
    answers, sys.stdout = sys.stdout, sys.stderr
    known = figures()
    for line in sys.stdin:
        what, times = json.loads(line)
        try:
            seconds = known[what](times)
        except Exception as error:  # an older commit may know neither what the spec says nor the call
            print(f"{what}: {type(error).__name__}: {error}", file=sys.stderr)
            seconds = math.nan
        print(json.dumps(seconds), file=answers, flush=True)


def figures() -> dict[str, Callable[[int], float]]:
    """What is measured: CPU seconds of doing it so many times, by name."""
    found: dict[str, Callable[[int], float]] = {}
    for name, arguments in STARTS.items():
        found[f"start, {name}"] = partial(seconds_of_processes, arguments)
    for name, spec in ACCOUNTS.items():
        found[f"account, {name}"] = partial(seconds_of_accounts, spec)
    for model in MODELS:
        for clip, changes in CLIPS.items():
            found[f"round, {model}, clip of {clip}"] = partial(
                seconds_of_rounds, [f"model.kind={model}", *ROUNDS, *changes]
            )
    for clip, changes in CLIPS.items():
        found[f"round, cnn-small 28 x 28, clip of {clip}"] = partial(
            seconds_of_rounds, ["model.kind=cnn-small", *ROUNDS, *IMAGES, *changes]
        )
    return found


def seconds_of_processes(arguments: tuple[str, ...], times: int) -> float:
    """Fresh Python processes with these arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(times):
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def seconds_of_accounts(named: tuple[str, ...], times: int) -> float:
    """Accounts of a loaded spec; each is thrown away, so that the garbage collector finds no others."""
    path, *changes = named
    spec = sfumato.load_spec(str(ROOT / path), changes)

    def work() -> None:
        for _ in range(times):
            sfumato.account(spec)

    return seconds(work)


def seconds_of_rounds(changes: list[str], times: int) -> float:
    """Rounds of the quickstart, changed: not the first, which warms up, nor the last, which evaluates."""
    spec = sfumato.load_spec(
        str(ROOT / BUILT_IN.format("quickstart")), [*changes, f"training.rounds={times + 2}"]
    )
    ends: list[float] = []

    def on_round(row: object) -> None:
        ends.append(time.process_time())

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        if "on_round" in inspect.signature(sfumato.run).parameters:
            sfumato.run(spec, out=out, progress=False, on_round=on_round)
        else:  # older commits yield every round
            for row in import_module("sfumato.simulate").play(spec, out=out):
                on_round(row)
    return ends[times] - ends[0]


def least(work: Callable[[], object], times: int) -> float:
    """The least CPU time of several runs, in seconds."""
    return min(seconds(work) for _ in range(times))


def seconds(work: Callable[[], object]) -> float:
    """CPU time of a call."""
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(main())
