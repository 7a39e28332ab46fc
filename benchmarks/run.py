"""The benchmarks behind RESULTS.md. Usage: python benchmarks/run.py [--pfl-python PYTHON] [MODEL ...]"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from round import FLOOR, LOOP, OURS, PFL, compare
from workload import MODELS

MEMORY_LIMIT = 4e9
WHOLE_RUN_LIMIT = 30.0  # seconds, for 200,000 device steps on two cores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--pfl-python", help="python of an environment made by pfl_environment.sh")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if options.pfl_python is None:
        print("without --pfl-python pfl is left out: see benchmarks/pfl_environment.sh")
    print(f"{'one round':12} {'pfl / ours':>12} {'loop / ours':>12} {'ours / floor':>12}")
    for kind in options.models:
        seconds = compare(kind, options.rounds, options.pfl_python)
        ours = seconds[OURS]
        against_pfl = f"{seconds[PFL] / ours:.1f}" if PFL in seconds else "-"
        loop, floor = seconds[LOOP] / ours, ours / seconds[FLOOR]
        print(f"{kind:12} {against_pfl:>12} {loop:12.1f} {floor:12.2f}", flush=True)
    crowd = subprocess.run(
        [sys.executable, Path(__file__).parent / "crowd.py"], capture_output=True, text=True, check=True
    )
    print(f"10,000 devices a round: peak memory {int(crowd.stdout) / MEMORY_LIMIT:.2f} of 4 GB")
    print(f"h2fdp-fmnist, start to report: {whole_run() / WHOLE_RUN_LIMIT:.2f} of the time allowed")


def whole_run() -> float:
    """Seconds that the built-in spec takes as a command, report included."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        command = [
            sys.executable,
            "-m",
            "sfumato",
            "run",
            "h2fdp-fmnist",
            "--quiet",
            "--out",
            f"{folder}/run",
        ]
        subprocess.run(command, check=True)
        return time.monotonic() - began


if __name__ == "__main__":
    main()
