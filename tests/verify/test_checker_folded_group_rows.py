"""Rows of groups that stand for several observers: missing rows and moved counts are found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from certified_folders import GROUPS, Documents, certified_folder, forge

from sfumato.privacy.groups import folded_observers
from sfumato.spec.load import load_spec
from sfumato.verify.checker import check_run
from sfumato.verify.folded_rows import is_folded
from sfumato.verify.group_exposures import CheckedGroups
from sfumato.verify.group_pairs import CheckedGroupPairs
from sfumato.verify.pair_counts import pair_problems

MEMBERS = [[0, 1, 2, 3], [2, 3, 4, 5], [3, 5, 6], [6, 7, 8], [0, 3, 8], [1, 7]]


def of_members(groups: list[list[int]]) -> Documents:
    return GROUPS | {"topology": {"kind": "groups", "structure": "list", "groups": groups}}


OVERLAPPING = of_members(MEMBERS[:-1])
MERGING = of_members(MEMBERS) | {"training": GROUPS["training"] | {"rounds": 7, "merge_every": 2}}


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every network is large enough for observers to stand for those that see no more."""
    monkeypatch.setattr(folded_observers, "MOST_PAIRS", 0)


# --- honest folders -----------------------------------------------------------------------------------------


def has_folded_rows(folder: Path) -> bool:
    return any(map(is_folded, json.loads((folder / "privacy.json").read_text("utf-8"))["guarantees"]))


@pytest.mark.parametrize("document", [OVERLAPPING, GROUPS])
def test_an_honest_folder_passes(document: Documents, tmp_path: Path) -> None:
    assert has_folded_rows(certified_folder(tmp_path, load_spec(document)))
    outcome = check_run(tmp_path)
    assert outcome.problems == []
    assert any("kinds_of_pairs" in what for what in outcome.unchecked)


def random_groups(draw: Random) -> Documents:
    """Groups of 6 to 11 workers, of whom some are in the same groups, or in some of another's only."""
    workers = draw.randint(6, 11)
    groups = [
        {worker for worker in range(workers) if draw.random() < draw.choice([0.3, 0.6])}
        for _ in range(draw.randint(3, 6))
    ]
    for worker in range(workers):
        draw.choice(groups).add(worker)
    found = of_members([sorted(members) for members in groups if len(members) > 1])
    protocol = draw.choice(["dp-ogl", "dp-ogl", "dp-ogl-local", "dp-ogl+"])
    every = 1 if protocol == "dp-ogl+" else draw.randint(1, 3)
    training = GROUPS["training"] | {"rounds": draw.randint(3, 8), "merge_every": every}
    return found | {"protocol": protocol, "training": training}


def check_random_groups(folder: Path, seeds: Iterable[int]) -> None:
    folded = 0
    for seed in seeds:
        where = certified_folder(folder / str(seed), load_spec(random_groups(Random(f"groups {seed}"))))
        assert check_run(where).problems == [], seed
        folded += has_folded_rows(where)
    assert folded


def test_random_groups_pass(tmp_path: Path) -> None:
    check_random_groups(tmp_path, range(2))


@pytest.mark.slow
def test_many_random_groups_pass(tmp_path: Path) -> None:
    check_random_groups(tmp_path, range(2, 80))


# --- rows that are left out, and counts that are moved ------------------------------------------------------


class Rows:
    """The rows of an honest folder, and what the checker says of others."""

    def __init__(self, folder: Path, document: Documents) -> None:
        certified_folder(folder, load_spec(document))
        ledger, privacy = (
            json.loads((folder / name).read_text("utf-8")) for name in ("ledger.json", "privacy.json")
        )
        self.facts = CheckedGroups(ledger)
        self.rows: list[Documents] = privacy["guarantees"]
        self.groups: list[list[int]] = document["topology"]["groups"]

    def problems(self, rows: list[Documents]) -> list[str]:
        return [*pair_problems(rows, self.facts, "zero-out", {})]

    def is_refused(self, less: int, more: int, pairs: int) -> bool:
        """Whether problems are found if ``pairs`` of one row are counted in another.

        A row that has no pairs then is left out.
        """
        rows = [dict(row) for row in self.rows]
        rows[less]["stands_for"] -= pairs
        rows[more]["stands_for"] += pairs
        return bool(self.problems([row for row in rows if row["stands_for"]]))

    def milder(self, number: int) -> set[int]:
        """Rows with the next smaller ε: that which is folded, and that which is about the same unit."""
        row = self.rows[number]
        epsilons = {n: float(other["epsilon"]) for n, other in enumerate(self.rows)}
        smaller = [n for n in epsilons if epsilons[n] < epsilons[number] * (1 - 1e-9)]
        folded = [n for n in smaller if is_folded(self.rows[n])]
        alike = [n for n in smaller if self.rows[n]["unit"] == row["unit"]]
        return {max(some, key=epsilons.__getitem__) for some in (folded, alike) if some}

    def groups_of(self, party: str) -> set[int]:
        """The groups of ``device:N``."""
        worker = int(party.removeprefix("device:"))
        return {number for number, members in enumerate(self.groups) if worker in members}

    def most_stood_for(self, row: Documents) -> int:
        """How many pairs of units placed alike, with observers in groups of the row's, there are at most."""
        wider = self.groups_of(row["observer"])
        devices = [f"device:{worker}" for worker in range(max(map(max, self.groups)) + 1)]
        below = sum(self.groups_of(device) <= wider for device in devices if device != row["unit"])
        of_unit = sum(one["stands_for"] for one in self.rows if one["unit"] == row["unit"])
        return below * of_unit // (len(self.groups) + len(devices) - 1)


@pytest.fixture(scope="module")
def merging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    """Charges are kept: they are the same for all counts."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(folded_observers, "MOST_PAIRS", 0)
        found = Rows(tmp_path_factory.mktemp("merging"), MERGING)
        charge, kept = CheckedGroupPairs._charge, dict[Any, Any]()

        def charge_once(self: CheckedGroupPairs, unit: int, observer: Any) -> Any:
            if self.facts is not found.facts:
                return charge(self, unit, observer)
            if (unit, observer) not in kept:
                kept[unit, observer] = charge(self, unit, observer)
            return kept[unit, observer]

        patched.setattr(CheckedGroupPairs, "_charge", charge_once)
        yield found


@pytest.mark.slow
def test_a_row_that_is_left_out_is_found(merging: Rows) -> None:
    """Its pairs are counted in a row with a smaller ε, so that all counts still add up."""
    assert merging.problems(merging.rows) == []
    finite = [number for number, row in enumerate(merging.rows) if row["epsilon"] != "inf"]
    tried = [
        (number, other, merging.is_refused(number, other, merging.rows[number]["stands_for"]))
        for number in finite
        for other in merging.milder(number)
    ]
    assert len({number for number, *_ in tried}) > len(finite) * 2 // 3
    assert [(number, other) for number, other, refused in tried if not refused] == []


@pytest.mark.slow
def test_a_count_that_is_moved_to_a_row_of_another_unit_is_found(merging: Rows) -> None:
    folded = [number for number, row in enumerate(merging.rows) if is_folded(row)]
    pairs = [(a, b) for a in folded for b in folded if merging.rows[a]["unit"] != merging.rows[b]["unit"]]
    assert pairs
    assert all(merging.is_refused(less, more, 1) for less, more in pairs)


@pytest.mark.slow
def test_a_count_that_is_moved_beyond_the_observers_that_see_no_more_is_found(merging: Rows) -> None:
    """Between rows of one unit that stand for several kinds of pairs."""
    tried = 0
    for less, row in enumerate(merging.rows):
        for more, other in enumerate(merging.rows):
            if less == more or row["unit"] != other["unit"] or not (is_folded(row) and is_folded(other)):
                continue
            pairs = merging.most_stood_for(other) - other["stands_for"] + 1
            if 0 < pairs < row["stands_for"]:
                assert merging.is_refused(less, more, pairs), (row["observer"], other["observer"])
                tried += 1
    assert tried


def test_a_count_that_is_moved_from_a_master_to_a_worker_is_found(merging: Rows) -> None:
    masters = [n for n, row in enumerate(merging.rows) if row["observer"].startswith("master:")]
    moved = Counter[bool]()
    for less in masters:
        for more, other in enumerate(merging.rows):
            if is_folded(other) and other["unit"] == merging.rows[less]["unit"]:
                moved[merging.is_refused(less, more, 1)] += 1
    assert moved[True]
    assert not moved[False]


# --- whole folders ------------------------------------------------------------------------------------------


def some_pairs_fewer(privacy: Documents, _: Documents) -> None:
    next(row for row in privacy["guarantees"] if is_folded(row))["stands_for"] -= 1


def one_pair_moved(privacy: Documents, folder: Documents) -> None:
    some_pairs_fewer(privacy, folder)
    next(row for row in privacy["guarantees"] if not is_folded(row))["stands_for"] += 1


def a_row_left_out(privacy: Documents, ledger: Documents) -> None:
    """The largest finite one, counted in the last folded row."""
    rows = privacy["guarantees"]
    worst = max((row for row in rows if row["epsilon"] != "inf"), key=lambda row: float(row["epsilon"]))
    next(row for row in reversed(rows) if is_folded(row))["stands_for"] += worst["stands_for"]
    for listed in (rows, ledger["certificates"]["rows"]):
        listed[:] = [
            one for one in listed if (one["unit"], one["observer"]) != (worst["unit"], worst["observer"])
        ]


def a_master_that_stands_for_others(privacy: Documents, _: Documents) -> None:
    rows = privacy["guarantees"]
    next(row for row in rows if row["observer"].startswith("master:"))["kinds_of_pairs"] = 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (some_pairs_fewer, "rows about a device stand for"),
        (one_pair_moved, "pairs placed like device:0 towards"),
        (a_row_left_out, "pairs placed like device:"),
        (a_master_that_stands_for_others, "a master stands for no other observer"),
    ],
)
def test_counts_that_do_not_add_up_are_found(change: Any, words: str, tmp_path: Path) -> None:
    forge(certified_folder(tmp_path, load_spec(OVERLAPPING)), change)
    assert any(words in problem for problem in check_run(tmp_path).problems)


def test_an_observer_that_stands_for_one_that_sees_more_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account itself is made to let every worker be stood for by one in fewer groups."""
    wider = folded_observers.wider_kinds

    def narrower_kinds(kinds: Any) -> list[list[int]]:
        found = wider(kinds)
        return [[k for k, more in enumerate(found) if kind in more] for kind in range(len(found))]

    monkeypatch.setattr(folded_observers, "wider_kinds", narrower_kinds)
    problems = check_run(certified_folder(tmp_path, load_spec(OVERLAPPING))).problems
    assert any("it can stand for" in problem for problem in problems)


def test_groups_in_which_nobody_stands_for_others_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With noise of devices: the account is made to fold all the same."""
    monkeypatch.setattr(folded_observers, "may_fold", lambda facts: True)
    document = OVERLAPPING | {"trust": {"trusted_aggregators": []}}
    problems = check_run(certified_folder(tmp_path, load_spec(document))).problems
    assert any("no observer stands for others" in problem for problem in problems)


# --- rows of one kind of pairs ------------------------------------------------------------------------------

REPLACED = of_members([[0, 1, 2, 3, 6], [1, 2, 3], [0, 4], [1, 5]]) | {
    "training": GROUPS["training"] | {"rounds": 5, "merge_every": 2},
    "privacy": {
        "clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 1.0}, "neighbours": "replace",
    },
}  # fmt: skip


@pytest.mark.slow
def test_a_row_whose_pairs_are_counted_in_one_of_equal_upstream_charge_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``replace`` the smaller bound is often that of what is received, and not of what is upstream."""
    monkeypatch.setattr(folded_observers, "MOST_PAIRS", 2_000)
    found = Rows(tmp_path, REPLACED)
    assert not any(map(is_folded, found.rows))
    assert found.problems(found.rows) == []
    finite = [number for number, row in enumerate(found.rows) if row["epsilon"] != "inf"]
    at = {(row["unit"], row["observer"]): number for number, row in enumerate(found.rows)}
    tried = [(at["device:2", "master:3"], at["device:2", "device:5"])]
    tried += [(number, other) for number in finite for other in found.milder(number)]
    assert all(found.is_refused(less, more, found.rows[less]["stands_for"]) for less, more in tried)
