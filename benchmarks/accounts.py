"""CPU time of `account` on trees with many unequal edges and on networks of many groups, as JSON.

python benchmarks/accounts.py > after.json
PYTHONPATH=../base/src python benchmarks/accounts.py > before.json
python benchmarks/accounts.py before.json after.json      # prints ratios

Every account runs in a process of its own, which is ended after `LIMIT` seconds of CPU time; where the first
file has no figure, the ratio is of that limit, and the true one is below what is printed.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

LIMIT = 60
ONE = "import sys, sfumato; sfumato.account(sfumato.load_spec(sys.argv[1], sys.argv[2:]))"
FIXED = "training.participation={kind: fixed, count: 2}"
STATED = "privacy.noise={multiplier: 4}"
SMALL = ("data.source=synthetic", "data.examples_per_device=20")
EXAMPLES = Path(__file__).parents[1] / "examples" / "dp-ogl"


def unequal(edges: int, *more: str) -> tuple[str, ...]:
    """The quickstart with as many edges of 3, 4, 5 ... devices."""
    sizes = list(range(3, edges + 3))
    tree = (f"topology.edges={edges}", f"topology.devices_per_edge={sizes}")
    return ("quickstart", *tree, *SMALL, "data.partition={kind: iid}", *more)


def ring(groups: int) -> tuple[str, ...]:
    """The ring of the examples with as many groups, of ten workers each."""
    size = (f"topology.groups={groups}", f"topology.devices={10 * groups}")
    return (str(EXAMPLES / "ri.yaml"), *size, *SMALL)


ACCOUNTS = {
    "100 unequal edges": unequal(100),
    "1,000 unequal edges": unequal(1000),
    "50 unequal edges, fixed counts": unequal(50, FIXED, STATED),
    "1,000 unequal edges, fixed counts": unequal(1000, FIXED, STATED),
    "50 unequal edges, fixed counts, noise for a target": unequal(50, FIXED),
    "1,000 unequal edges, fixed counts, noise for a target": unequal(1000, FIXED),
    "a ring of 100 groups": ring(100),
    "a ring of 1,000 groups": ring(1000),
    "lb with 10 groups": (str(EXAMPLES / "lb.yaml"), "topology.groups=10"),
}


def main() -> None:
    """Run as a command."""
    arguments = sys.argv[1:]
    if arguments:
        before, after = (json.loads(Path(name).read_text("utf-8")) for name in arguments)
        for what, seconds in after.items():
            base = before[what]
            ratio = (seconds or LIMIT) / (base or LIMIT)
            print(f"{what:52} {'below ' if base is None else ''}{ratio:.2f}")
        return
    print(json.dumps({what: seconds_of(spec) for what, spec in ACCOUNTS.items()}, indent=1))


def seconds_of(spec: tuple[str, ...]) -> float | None:
    """CPU time of a command that accounts for ``spec``; ``None`` where it takes more than `LIMIT`."""
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [sys.executable, "-c", ONE, *spec],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT)),
        check=False,
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode < 0:
        return None
    ended.check_returncode()
    return used.ru_utime + used.ru_stime - start.ru_utime - start.ru_stime


if __name__ == "__main__":
    main()
