"""Files that an account of one pair and a training round pass through, and modules that an account loads.

    python benchmarks/walks.py

Counted are the files in which a function is called, in a process that has imported everything the call needs,
and how often a call goes from one file to another. They do not depend on the machine. ``--files`` names
the files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # with more, some chunks are trained by threads that are not followed

import sfumato as sf

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from entered_files import Walk


def show(walk: Walk, what: str) -> None:
    print(f"{what}: {len(walk.files)} files, {walk.changes} changes of file")
    if "--files" in sys.argv:
        print("  " + "\n  ".join(sorted(walk.files)))


def walk_of_a_round(spec: sf.Spec) -> Walk:
    """The walk from the end of the first round to the end of the second, which evaluates nothing."""
    walk = Walk()

    def on_round(row: object) -> None:
        (walk.stop if walk.files else walk.start)()

    with tempfile.TemporaryDirectory() as folder:
        sf.run(spec, out=Path(folder) / "run", progress=False, on_round=on_round)
    return walk


def loaded_modules(code: str) -> int:
    """How many modules of Sfumato a fresh process has loaded after ``code``."""
    script = f"{code}\nimport sys\nprint(sum(name.split('.')[0] == 'sfumato' for name in sys.modules))"
    return int(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    )


def main() -> None:
    """Print one line for each walk."""
    spec = sf.load_spec("quickstart")

    def account() -> object:
        return sf.account(spec, unit="device:0", observer="cloud")

    account()
    walk = Walk()
    walk.start()
    account()
    walk.stop()
    show(walk, "account of one pair")
    code = "import sfumato as sf\nsf.account(sf.load_spec('quickstart'), unit='device:0', observer='cloud')"
    print(f"modules loaded by it: {loaded_modules(code)}")
    of_round = walk_of_a_round(sf.load_spec("quickstart", ["training.rounds=3", "evaluate_every=3"]))
    show(of_round, "a training round")


if __name__ == "__main__":
    main()
