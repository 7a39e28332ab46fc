"""Marks the tests of tests/slow.txt as slow: `make test` leaves them out, `make test-slow` and CI run them.

    pytest -m "not slow or listed" --durations=0 | python tests/support/slow.py 0.4 > tests/slow.txt

makes the list anew, of all cases that took more than 0.4 seconds on an idle machine. A function without
parameters stands for all of its cases: their mean is more than that. Cases that share a
fixture which takes long are listed together: the first that is not would wait for it. The last part of the
list is chosen by hand and kept: CI does not run it, only `make test-slow`; it may name some of the cases of
a function that the first part names. Tests that take minutes are not
listed: they carry the mark ``slow`` where they stand, and only `make test-slow` runs them. A family
of them that takes hours has its first part there; the rest is marked ``long`` as well (`make test-long`).

A rule that many random cases test is tested by a few of them in `make test`, by more in CI and by all in
`make test-slow` (`first_quick`). What carries the mark ``quick`` is run by `make test` though it is listed.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

LIST = Path(__file__).parents[1] / "slow.txt"
NOT_IN_CI = "# Not run by CI: long, and CI runs others of their kind."
_DURATION = re.compile(r"\s*([\d.]+)s (?:call|setup|teardown)\s+(\S.*)")


def first_of(count: int, slow: int) -> list[ParameterSet]:
    """Numbers 0 to ``count`` - 1 for `parametrize`; those from ``slow`` on are marked ``long``."""
    return [pytest.param(n, marks=[pytest.mark.long] if n >= slow else []) for n in range(count)]


def first_quick(values: Iterable[Any], quick: int, in_ci: int) -> list[ParameterSet]:
    """``values`` for `parametrize`: `make test` runs the first ``quick``, CI the first ``in_ci``.

    For random cases of one rule, each of which fails where the rule is broken. The first ones are run by
    `make test` even where the list names them.
    """
    slow, listed = pytest.mark.slow, pytest.mark.listed
    return [
        pytest.param(value, marks=pytest.mark.quick if n < quick else [slow, listed] if n < in_ci else slow)
        for n, value in enumerate(values)
    ]


def listed() -> tuple[list[str], list[str]]:
    """Names of the cases and functions in the list: those that CI runs, and those that it does not."""
    of_ci, _, others = LIST.read_text().partition(NOT_IN_CI)
    by_ci, by_hand = (
        [line for line in part.splitlines() if line and not line.startswith("#")] for part in (of_ci, others)
    )
    return by_ci, by_hand


def function_of(case: str) -> str:
    """The name of a case without its parameters."""
    return case.partition("[")[0]


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is listed; where everything is collected, names of no test are refused."""
    by_ci, by_hand = map(set, listed())
    lost = by_ci | by_hand
    for item in items:
        names = {item.nodeid, function_of(item.nodeid)}
        lost -= names
        if names & by_hand:
            item.add_marker(pytest.mark.slow)
        elif names & by_ci and not any(map(item.get_closest_marker, ("quick", "slow"))):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.listed)
    if lost and config.args == config.getini("testpaths"):
        raise pytest.UsageError(f"{LIST.name} names tests that are not there: {', '.join(sorted(lost))}")


def slow_names(seconds: Mapping[str, float], least: float) -> list[str]:
    """Names of the functions whose cases take more than ``least`` in the mean, and of other such cases."""
    functions: dict[str, list[str]] = {}
    for case in seconds:
        functions.setdefault(function_of(case), []).append(case)
    found = []
    for function, cases in functions.items():
        if len(cases) > 1 and sum(seconds[case] for case in cases) > least * len(cases):
            found.append(function)
        else:
            found += [case for case in cases if seconds[case] > least]
    return sorted(found)


def main() -> None:
    """Read what ``--durations=0`` prints; write the list."""
    least = float(sys.argv[1])
    seconds: Counter[str] = Counter()
    for line in sys.stdin:
        if found := _DURATION.fullmatch(line.rstrip("\n")):
            seconds[found[2]] += float(found[1])
    print(f"# Cases that took more than {least:g} seconds (tests/support/slow.py makes this list).")
    by_hand = listed()[1]
    in_ci = {case: took for case, took in seconds.items() if not {case, function_of(case)} & {*by_hand}}
    print(*slow_names(in_ci, least), NOT_IN_CI, *by_hand, sep="\n")


if __name__ == "__main__":
    main()
