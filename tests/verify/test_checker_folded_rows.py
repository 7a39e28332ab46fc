"""Rows of trees that stand for several kinds of pairs: rows about milder pairs than these are found."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from certified_folders import TREE, certified_folder, copied_folder, forge
from oracle_random_trees import random_tree

import sfumato as sf
from sfumato.privacy.tree import folded_pairs
from sfumato.spec.load import load_spec
from sfumato.verify.checker import check_run

UNEQUAL = TREE | {
    "topology": {"kind": "tree", "edges": 7, "devices_per_edge": [2, 3, 4, 5, 6, 7, 8]},
    "trust": {"trusted_edges": [1, 4]},
}
FIXED = UNEQUAL | {
    "trust": {"trusted_edges": list(range(7))},
    "training": TREE["training"] | {"participation": {"kind": "fixed", "count": 2}},
}
QUICK, LONG = (5, 6, 11, 26), range(12, 100)  # 26: losses of 1,170
FEW = 5


def folded(document: dict[str, Any]) -> bool:
    return any("kinds_of_pairs" in row for row in document["guarantees"])


def test_an_honest_folder_with_folded_rows_passes(tmp_path: Path) -> None:
    found: list[bool] = []
    forge(copied_folder(tmp_path, load_spec(UNEQUAL)), lambda privacy, _: found.append(folded(privacy)))
    assert found == [True]
    assert check_run(tmp_path).problems == []


@pytest.mark.slow
def test_an_honest_folder_of_fixed_counts_with_folded_rows_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folded_pairs, "MOST_CLASSES", FEW)
    assert check_run(certified_folder(tmp_path, load_spec(FIXED))).problems == []


def some_pairs_fewer(privacy: dict[str, Any], _: dict[str, Any]) -> None:
    next(row for row in privacy["guarantees"] if "kinds_of_pairs" in row)["stands_for"] -= 1


def one_kind_fewer(privacy: dict[str, Any], _: dict[str, Any]) -> None:
    next(row for row in privacy["guarantees"] if "kinds_of_pairs" in row)["kinds_of_pairs"] += 1


@pytest.mark.parametrize("change", [some_pairs_fewer, one_kind_fewer])
def test_counts_that_do_not_add_up_are_found(change: Any, tmp_path: Path) -> None:
    forge(copied_folder(tmp_path, load_spec(UNEQUAL)), change)
    assert any("stand" in problem for problem in check_run(tmp_path).problems)


@pytest.mark.parametrize("relation", ["public", "edge elsewhere", "device elsewhere", "peer"])
def test_a_row_about_a_milder_pair_than_it_stands_for_is_found(
    relation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account itself is made to take the mildest pair of a class for the worst: its row is honest."""
    worst_of = folded_pairs._worst_of

    def mildest_of(chain: Any) -> Any:
        return worst_of(chain[::-1] if chain[0].relation.words == relation else chain)

    monkeypatch.setattr(folded_pairs, "MOST_CLASSES", FEW)
    monkeypatch.setattr(folded_pairs, "_worst_of", mildest_of)
    problems = check_run(certified_folder(tmp_path, load_spec(UNEQUAL))).problems
    assert problems
    assert all("charged more than" in problem for problem in problems)


def check_random_trees(folder: Path, seeds: Iterable[int]) -> None:
    some_folded = 0
    for seed in seeds:
        document = random_tree(Random(seed))
        document.get("privacy", {}).pop("unit", None)
        try:
            where = certified_folder(folder / str(seed), load_spec(document))
        except sf.SpecError:
            continue
        assert check_run(where).problems == [], seed
        found: list[bool] = []
        forge(where, lambda privacy, _, found=found: found.append(folded(privacy)))
        some_folded += any(found)
    assert some_folded


def test_random_trees_with_folded_rows_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded_pairs, "MOST_CLASSES", FEW)
    check_random_trees(tmp_path, QUICK)


@pytest.mark.slow
def test_many_random_trees_with_folded_rows_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded_pairs, "MOST_CLASSES", FEW)
    check_random_trees(tmp_path, LONG)
