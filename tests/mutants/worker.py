"""Tries mutants one after the other in this process: ``python worker.py SEED FIRST LAST [quick]``.

Says in one JSON line each what came of it. Run with limits set by who starts it (see `test_mutants`).
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from types import FrameType

GIB = 2**30
PIPE = "pipe"  # a file that never ends, for specs that name it
ADDRESS_SPACE = 2 * GIB  # beyond what is mapped after the imports
CPU_SECONDS = 60.0
ONE_ROUND = ["--set", "training.rounds=1", "--device", "cpu", "--quiet"]

sys.path.insert(0, str(Path(__file__).parent))


class TooLongError(BaseException):
    """A mutant took more than its time; no ``except Exception`` may swallow it."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise TooLongError


def _call(arguments: list[str]) -> tuple[int, str, str]:
    from sfumato.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    return status, out.getvalue(), err.getvalue()


def _verdict(command: str, status: int, out: str, err: str) -> str | None:
    """What is wrong with how a command ended, or ``None``."""
    if "internal error" in err or "Traceback" in err or status not in (0, 1, 2):
        return f"{command}: {err.strip()[:2000] or status}"
    lines = err.strip().splitlines()
    if status and not err.startswith("Usage:") and not _one_line_a_problem(lines):
        return f"{command}: not one line for each problem: {err[:500]!r}"
    if status and len(err) > 1500 + 5 * 4096:
        return f"{command}: a message of {len(err)} characters"
    if not status and re.search(r"\bnan\b|Warning", out + err):
        return f"{command}: nan or a warning: {err[:300]}"
    return None


def _one_line_a_problem(lines: list[str]) -> bool:
    """Whether every line is a message: there is one for each of the first problems of a spec."""
    return 0 < len(lines) <= 21 and all(line.startswith("sfumato: ") for line in lines)


def tried(seed: int, number: int, folder: Path, *, quick: bool) -> tuple[str, str | None]:
    """How far a mutant came (``refused``, ``validated``, ``accounted``, ``run``), and what is wrong.

    All are validated and accounted for; every fourth is shown, every fourth resolved twice, and of every
    fourth that is small one round is run. In quick trials few are more than validated.
    """
    from mutator import SPEC_FILE, mutant

    made = mutant(seed, number)
    for name, content in made.files.items():
        (folder / name).write_bytes(content)
    if not (folder / PIPE).exists():
        os.mkfifo(folder / PIPE)
    path = folder / SPEC_FILE
    path.write_bytes(made.spec)
    call = [str(path), *(part for change in made.changes for part in ("--set", change))]
    more = [["show"]] if number % 4 == 0 else []
    for command, *asked in (["validate"], ["account", *made.asked], *more):
        status, out, err = _call([command, *call, *asked])
        found = _verdict(" ".join([command, *asked])[:200], status, out, err)
        if found is not None:
            return "failed", found
        if command == "validate" and status:
            return "refused", None
        if quick and number % 10:
            return "validated", None
    if quick:
        return "accounted", None
    if number % 4 == 1 and (found := _read_again(path, made.changes, folder)):
        return "failed", found
    if number % 4 == 2 and _is_small(path, made.changes):
        status, out, err = _call(["run", *call, *ONE_ROUND, "--out", str(folder / f"run-{number}")])
        return "run", _verdict("run", status, out, err)
    return "accounted", None


def _is_small(path: Path, changes: list[str]) -> bool:
    """Whether a round of it takes seconds, and its data need no download."""
    from sfumato.schedule.resolve import resolve
    from sfumato.spec import load_spec

    spec = load_spec(path, changes)
    training, data, hidden = spec.training, spec.data, getattr(spec.model, "hidden", None) or 1
    if data.source not in ("digits", "synthetic") or spec.model.kind not in ("softmax", "mlp"):
        return False
    widest = hidden if isinstance(hidden, int) else max(hidden) * len(hidden)
    steps = training.local_steps or (training.local_epochs or 1) * 20
    batch = 100 if training.batch_size == "all" else training.batch_size
    devices = resolve(spec).parties.device_count
    return devices <= 200 and widest <= 300 and devices * steps * batch <= 200_000


def _read_again(path: Path, changes: list[str], folder: Path) -> str | None:
    """A resolved spec, as a run folder keeps it, must load and resolve to itself."""
    from sfumato.schedule.resolve import resolve
    from sfumato.spec import dump_spec, load_spec

    text = dump_spec(resolve(load_spec(path, changes)).spec)
    kept = folder / "resolved.yaml"
    kept.write_text(text, encoding="utf-8")
    again = dump_spec(resolve(load_spec(kept)).spec)
    return None if again == text else "the resolved spec resolves to another one"


def _mapped() -> int:
    """Bytes of address space that this process has mapped."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    return pages * resource.getpagesize()


def main() -> int:
    """Try the mutants from FIRST to before LAST."""
    seed, first, last = map(int, sys.argv[1:4])
    quick = sys.argv[4:] == ["quick"]
    _call(["account", "dp-fedavg", "--json"])  # imports first: their time and warnings are not a mutant's
    import torch  # noqa: F401

    most = _mapped() + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    warnings.simplefilter("error")
    signal.signal(signal.SIGPROF, _stop)
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        for number in range(first, last):
            print(json.dumps({"trying": number}), flush=True)
            before = resource.getrusage(resource.RUSAGE_SELF)
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            used = int(before.ru_utime + before.ru_stime)  # the system ends what hears no signal
            resource.setrlimit(
                resource.RLIMIT_CPU, (used + 2 * math.ceil(CPU_SECONDS), resource.RLIM_INFINITY)
            )
            try:
                outcome, wrong = tried(seed, number, Path(name), quick=quick)
            except TooLongError:
                place = traceback.format_exc().strip().splitlines()[-12:-1]
                outcome, wrong = "failed", f"more than {CPU_SECONDS:g} s of CPU: " + " | ".join(place)
            except BaseException:
                outcome, wrong = "failed", traceback.format_exc()
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            outcome = "failed" if wrong else outcome
            after = resource.getrusage(resource.RUSAGE_SELF)
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            said = {"number": number, "outcome": outcome, "wrong": wrong, "seconds": round(seconds, 3)}
            said["mib"] = after.ru_maxrss // 1024  # the most that this process has held so far
            print(json.dumps(said), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
