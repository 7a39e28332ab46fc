"""docs/spec.md, *Limits*, says what the code says."""

import re

import pytest
from places import ROOT

from sfumato.schedule.moves import MOST_CELLS
from sfumato.spec import limits, names
from sfumato.spec.privacy import OBSERVER_KINDS
from sfumato.spec.radio import REFERENCE_M
from sfumato.sweeps import grid
from sfumato.user_text import files, values

GUIDE = (ROOT / "docs" / "spec.md").read_text("utf-8").partition("\n## Limits\n")[2]
ROWS = {
    "a number that is not 0": (limits.LEAST, limits.MOST),
    "`rate`, `ratio`, and other shares": (limits.LEAST_SHARE, 1),
    "`delta`": (limits.LEAST_DELTA, 1 - limits.LEAST_SHARE),
    "`multipliers` of `sources`": (limits.LEAST_SOURCE, limits.MOST_SOURCE),
    "decibels": (-limits.MOST_DECIBELS, limits.MOST_DECIBELS),
    "`shadowing_db`": (0, limits.MOST_SHADOWING_DB),
    "distances": (REFERENCE_M, limits.MOST_METRES),
    "`pathloss_exponent`": (limits.LEAST, limits.MOST_PATHLOSS),
    "`size_sigma`": (0, limits.MOST_SIGMA),
    "`seed`": (0, limits.MAX_SEED),
    "`--seeds`": (1, limits.MAX_SEEDS),
    "`rounds`": (1, limits.MAX_ROUNDS),
    "`local_steps`": (1, limits.MAX_STEPS),
    "aggregations of a round": (1, limits.MAX_AGGREGATIONS),
    "aggregations of a round, times": (1, limits.MAX_STATED),
    "devices of a tree or star": (1, limits.MAX_DEVICES),
    "workers of groups": (1, limits.MAX_WORKERS),
    "memberships of groups": (1, limits.MAX_MEMBERSHIPS),
    "groups": (1, limits.MAX_GROUPS),
    "moves of devices": (0, limits.MAX_MOVES),
    "pairs of histories": (0, MOST_CELLS),
    "aggregators": (1, limits.MAX_AGGREGATORS),
    "levels between": (1, limits.MAX_LEVELS),
    "examples of synthetic data": (1, limits.MAX_EXAMPLES),
    "numbers in a data set of your own": (1, limits.MAX_DATA_VALUES),
    "rows of a data set": (1, limits.MAX_ROWS),
    "`vocabulary`": (2, limits.MAX_VOCABULARY),
    "parameters of a model": (1, limits.MAX_PARAMETERS),
    "layers of `hidden`": (1, limits.MAX_LAYERS),
    "observers to `watch`": (0, limits.MAX_WATCHED),
    "parties of a coalition": (1, limits.MAX_COALITION),
    "any other count": (1, limits.MAX_NUMBER),
    "points of a sweep": (1, grid.MAX_POINTS),
    "MiB of a spec": (0, files.MAX_BYTES / 2**20),
    "values of a file": (0, values.MAX_VALUES),
    "sections and lists": (0, values.MAX_DEPTH),
    "digits of a number": (1, values.MAX_DIGITS),
}
NOT_THE_USERS = {"MAX_OWN_BYTES"}  # of files that a run writes


def documented() -> dict[str, tuple[float, float]]:
    """The rows of the table: what, from, to."""
    rows = re.findall(r"^\| (.+?) \| (\S+) \| (\S.*?) \| .*\|$", GUIDE, re.MULTILINE)
    return {what: (number(least), number(most)) for what, least, most in rows if what != "what"}


def number(text: str) -> float:
    if " - " in text:
        whole, _, rest = text.partition(" - ")
        return float(whole) - float(rest)
    return float(text.replace(",", ""))


def test_every_row_says_what_the_code_says():
    table = documented()
    found = {what: [row for row in table if row == what or row.startswith(what)] for what in ROWS}
    matched = {what: what if what in rows else min(rows, default="") for what, rows in found.items()}
    assert {what: table.get(row) for what, row in matched.items()} == {
        what: pytest.approx(bounds, rel=1e-15) for what, bounds in ROWS.items()
    }
    assert set(table) == set(matched.values())


def test_every_limit_has_a_row():
    named = {
        name: value
        for module in (limits, files, values)
        for name, value in vars(module).items()
        if name.startswith(("MAX_", "MOST", "LEAST")) and name not in NOT_THE_USERS
    }
    named["MAX_BYTES"] /= 2**20
    stated = {abs(bound) for bounds in ROWS.values() for bound in bounds}
    assert {name for name, value in named.items() if value not in stated} == set()


def test_reserved_names_are_listed():
    assert all(f"`{name}`" in GUIDE for name in names._RESERVED)


def test_no_level_is_called_like_a_kind_of_observers():
    assert set(OBSERVER_KINDS) - names._RESERVED == {"edge"}  # whose nodes are what the kind means
