"""Marks the tests of tests/slow.txt as slow: `make test` leaves them out, `make test-slow` and CI run them.

    pytest -m "not slow or listed" --durations=0 | python tests/support/slow.py 1.5 > tests/slow.txt

makes the list anew, of all cases that took more than 1.5 seconds on an idle machine. Cases that share a
fixture which takes long are listed together: the first that is not would wait for it. Tests that take minutes
are not listed: they carry the mark ``slow`` where they stand, and only `make test-slow` runs them. A family
of them that takes hours has its first part there; the rest is marked ``long`` as well (`make test-long`).
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

LIST = Path(__file__).parents[1] / "slow.txt"
_DURATION = re.compile(r"\s*([\d.]+)s (?:call|setup|teardown)\s+(\S.*)")


def first_of(count: int, slow: int) -> list[ParameterSet]:
    """Numbers 0 to ``count`` - 1 for `parametrize`; those from ``slow`` on are marked ``long``."""
    return [pytest.param(n, marks=[pytest.mark.long] if n >= slow else []) for n in range(count)]


def listed() -> set[str]:
    """Names of the cases in the list, as pytest has them."""
    return {line for line in LIST.read_text().splitlines() if line and not line.startswith("#")}


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is listed; where everything is collected, names of no test are refused."""
    names = listed()
    for item in items:
        if item.nodeid in names:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.listed)
    lost = names - {item.nodeid for item in items}
    if lost and config.args == config.getini("testpaths"):
        raise pytest.UsageError(f"{LIST.name} names tests that are not there: {', '.join(sorted(lost))}")


def main() -> None:
    """Read what ``--durations=0`` prints; write the list."""
    least = float(sys.argv[1])
    seconds: Counter[str] = Counter()
    for line in sys.stdin:
        if found := _DURATION.fullmatch(line.rstrip("\n")):
            seconds[found[2]] += float(found[1])
    print(f"# Cases that took more than {least:g} seconds (tests/support/slow.py makes this list).")
    print(*sorted(name for name, took in seconds.items() if took > least), sep="\n")


if __name__ == "__main__":
    main()
