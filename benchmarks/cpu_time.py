"""CPU time of start-up, of `account` and of a round by model and clip, as JSON, to compare two commits.

python benchmarks/cpu_time.py > after.json
PYTHONPATH=../base/src python benchmarks/cpu_time.py > before.json
python benchmarks/cpu_time.py before.json after.json      # prints ratios
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import sfumato

STARTS = {
    "import sfumato": ("-c", "import sfumato"),
    "sfumato account quickstart": ("-m", "sfumato", "account", "quickstart"),
}
SPECS = {
    "quickstart": (),
    "three-tier": (),
    "h2fdp-fmnist": (),
    "h2fdp-fmnist, records": ("privacy.unit=record", "training.batches=poisson"),
}
MODELS = ("softmax", "mlp", "cnn-small")
CLIPS = {
    "update": (),
    "step": ("privacy.clip.kind=step",),
    "example": ("privacy.clip.kind=example", "training.batches=poisson"),
}
SMALL = ("evaluate_every=100", "topology.devices_per_edge=10", "privacy.noise={multiplier: 1.0}")


def main() -> None:
    """Run as a command."""
    if sys.argv[1:]:
        before, after = (json.loads(Path(name).read_text("utf-8")) for name in sys.argv[1:])
        for what, seconds in before.items():
            print(f"{what:36} {after[what] / seconds:5.2f}")
        return
    found = {f"start, {name}": least_of_process(arguments, 7) for name, arguments in STARTS.items()}
    for name, changes in SPECS.items():
        spec = sfumato.load_spec(name.partition(",")[0], list(changes))
        sfumato.account(spec)
        found[f"account, {name}"] = least(lambda spec=spec: sfumato.account(spec), 5)
    for model in MODELS:
        for clip, changes in CLIPS.items():
            play([f"model.kind={model}", "training.rounds=1", *SMALL, *changes])
            spec = [f"model.kind={model}", *SMALL, *changes]
            one = least(lambda spec=spec: play([*spec, "training.rounds=1"]), 2)
            five = least(lambda spec=spec: play([*spec, "training.rounds=5"]), 2)
            found[f"round, {model}, clip of {clip}"] = (five - one) / 4
    print(json.dumps(found, indent=1))


def play(changes: list[str]) -> None:
    """Run the quickstart, changed."""
    with tempfile.TemporaryDirectory() as folder:
        sfumato.run(sfumato.load_spec("quickstart", changes), out=Path(folder) / "run", progress=False)


def least(work: Callable[[], object], times: int) -> float:
    """The least CPU time of several runs, in seconds."""
    seconds = []
    for _ in range(times):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def least_of_process(arguments: tuple[str, ...], times: int) -> float:
    """The least CPU time of several fresh Python processes with these arguments, in seconds."""
    seconds = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


if __name__ == "__main__":
    main()
