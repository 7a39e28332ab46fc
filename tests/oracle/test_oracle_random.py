"""Random specs: rows cover what the oracles attain; no coalition is told less than a part of it.

The large form is a command, `long_run.py`.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from oracle_compare import BELOW, EQUAL, Table, compare, drawn, seen_by_more
from oracle_specs import star
from slow import first_quick

PIECE, PIECES = 5, 24


@pytest.mark.parametrize("piece", first_quick(range(PIECES), 3, 9))
def test_no_row_is_below_and_no_part_learns_more(piece: int) -> None:
    numbers = range(piece * PIECE, (piece + 1) * PIECE)
    for one in drawn(12, numbers, pairs=2, monotone=True):
        for row in one.rows:
            assert row.verdict != BELOW, f"draw {one.number}: {row}"
        assert not one.refusals, f"draw {one.number}: {one.refusals[0]}"


@pytest.mark.parametrize(
    ("numbers", "least"), [(range(10), 1), pytest.param(range(10, 400), 40, marks=pytest.mark.slow)]
)
def test_rows_of_a_larger_coalition_are_not_below(numbers: range, least: int) -> None:
    rows = list(seen_by_more(numbers))
    assert len(rows) >= least
    for row in rows:
        assert row.verdict != BELOW, str(row)


def test_a_row_that_is_too_small_is_found() -> None:
    row = compare(star(4), 0, "cloud")
    assert row.verdict == EQUAL
    assert replace(row, reported={**row.reported, "epsilon": row.epsilon * 0.999}).verdict == BELOW
    assert replace(row, reported={**row.reported, "epsilon": row.epsilon * 1.05}).verdict == "to 1.1"


def test_the_table_counts_every_pair() -> None:
    table = Table()
    rows = 0
    for one in drawn(3, range(3, 7), pairs=1, monotone=False):
        table.add(one)
        rows += len(one.rows)
    assert rows == sum(count for (group, _), count in table.counts.items() if group == "all") > 0
    assert str(table).splitlines()[-2].startswith("all")


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(("300", "28", "--pairs", "4"), id="pairs"),
        pytest.param(("100", "1", "--parts"), id="parts"),
        pytest.param(("2500", "28", "--pairs", "4"), id="all pairs", marks=pytest.mark.long),
        pytest.param(("600", "1", "--parts"), id="all parts", marks=pytest.mark.long),
    ],
)
def test_long_run(asked: tuple[str, ...]) -> None:
    """Pairs of every kind that `FEATURES` counts, 10,000 of them in the long run; and parts of coalitions."""
    specs, seed, *more = asked
    command = [sys.executable, str(Path(__file__).with_name("long_run.py")), "--specs", specs, "--seed", seed]
    done = subprocess.run([*command, *more], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
