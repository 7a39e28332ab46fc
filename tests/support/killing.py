"""Kills runs at random moments and resumes them, a process each; says in JSON what became of them.

    python killing.py SPEC FOLDER KILLS SEED [OBSERVER]

Processes are forked from this one, which has loaded everything: starting Python anew takes longer than a run.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import torch

from sfumato.cli import main
from sfumato.run_folder.damage import check_folder
from sfumato.run_folder.metrics_table import read_metrics
from sfumato.run_folder.reader import write_text
from sfumato.run_folder.seal import read_checkpoint
from sfumato.simulation import folder_writer
from sfumato.simulation import run as simulate
from sfumato.spec.load import load_spec

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
TIMED = (
    "metrics.parquet",
    "rounds.jsonl",
    "checkpoint.pt",
    "manifest.json",
)  # hold wall times, or their hashes
MOST_KILLS = 4  # of one run, before it may go on to its end


class Killing:
    """One spec that is killed over and over."""

    def __init__(self, spec: Path, folder: Path, seed: int, observers: list[str]) -> None:
        self.spec, self.folder, self.rng = spec, folder, random.Random(seed)
        self.views = [part for name in observers for part in ("--record-views", name)]
        self.found: Counter[str] = Counter()
        self.faults: list[str] = []
        folder.mkdir(parents=True)
        began = time.monotonic()
        assert self.play(folder / "whole", None) == 0, (folder / "said").read_text()
        self.longest = time.monotonic() - began

    def play(self, out: Path, kill: tuple[int, float] | None) -> int:
        """Play in a process of its own; kill it with a signal after so many seconds. Returns the status."""
        process = os.fork()
        if process == 0:
            self._child(out)
        if kill is None:
            return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        began = time.monotonic()
        while (elapsed := time.monotonic() - began) < kill[1]:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                self.longest = min(self.longest, elapsed)  # the first run may have met a busy machine
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        os.kill(process, kill[0])  # one that has ended is still there to be waited for
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def _child(self, out: Path) -> None:
        status = 130
        try:
            signal.signal(
                signal.SIGINT, signal.default_int_handler
            )  # shells have it ignored in their background
            said = os.open(self.folder / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(said, 2)
            options = ["--out", str(out), "--device", "cpu", "--quiet", "--resume"]
            status = main(["run", str(self.spec), *options, *self.views])
        except KeyboardInterrupt:  # before the command began, or after its end
            pass
        finally:
            os._exit(status)

    def round_of(self) -> None:
        """A new run, killed a few times, then resumed to its end."""
        out = self.folder / "killed"
        shutil.rmtree(out, ignore_errors=True)
        for _ in range(self.rng.randint(1, MOST_KILLS)):
            number = self.rng.choice(SIGNALS)
            status = self.play(out, (number, self.rng.uniform(0, 1.1 * self.longest)))
            name = signal.Signals(number).name
            match status:
                case 0:
                    self.found["ended before"] += 1
                case 130 | -9 | -2 | -15:
                    self.found[name] += 1
                case _:
                    self.faults.append(f"{name}: status {status}")
        if self.play(out, None) != 0:
            self.faults.append("cannot be resumed")
            return
        self.faults += self.differences(out)
        self.found["resumed"] += 1

    def differences(self, out: Path) -> list[str]:
        """Between a run that was killed and one never killed."""
        whole = self.folder / "whole"
        mine, right = _files(out), _files(whole)
        found = [f"{name}: is not there twice" for name in sorted(mine ^ right)]
        found += [f"{one.name}: {one.what}" for one in check_folder(out)]
        for name in sorted((mine & right) - set(TIMED)):
            if (out / name).read_bytes() != (whole / name).read_bytes():
                found.append(f"{name}: other bytes")
        metrics = [read_metrics(at / "metrics.parquet")[0].drop(columns="wall_time_s") for at in (out, whole)]
        if not metrics[0].equals(metrics[1]):
            found.append("metrics.parquet: other values")
        archives = [bytes(held[1]) for at in (out, whole) if (held := read_checkpoint(at))]
        if len(archives) != 2 or archives[0] != archives[1]:
            found.append("checkpoint.pt: another state")
        return found


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def killed(spec: Path, folder: Path, kills: int, seed: int, observers: list[str]) -> dict[str, object]:
    """Kill until so many processes were alive when it came; what became of them."""
    torch.set_num_threads(1)
    simulate._SECONDS_BETWEEN_CHECKPOINTS = 0.0
    folder_writer._write_report = lambda at: write_text(at / "report.html", "report\n")
    folder_writer.find_spec = lambda name: None  # type: ignore[assignment]
    load_spec(spec)
    one = Killing(spec, folder, seed, observers)
    while sum(one.found[number.name] for number in SIGNALS) < kills and not one.faults:
        one.round_of()
    said = (folder / "said").read_text() if (folder / "said").exists() else ""
    lines = [line for line in said.splitlines() if "interrupted" not in line and line]
    return {
        "found": dict(one.found),
        "faults": one.faults,
        "said": sorted(set(lines)),
        "seconds": one.longest,
    }


if __name__ == "__main__":
    _, spec, folder, kills, seed, *observers = sys.argv
    print(json.dumps(killed(Path(spec), Path(folder), int(kills), int(seed), observers)))
