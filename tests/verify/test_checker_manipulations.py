"""Generated manipulations over all families: none that states a smaller ε passes, or the output names it.

The full forms are slow: every change of every kind of entry that certificates and facts have, in every
family, and the figures of every other spec.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import manipulated_folders
import pytest
from certified_folders import certified_folder, forge
from manipulated_folders import FAMILIES, SMALLER, Case, apply, case_of, changes, entries, kind_of
from swapped_specs import swapped

import sfumato as sf
from sfumato.verify import read
from sfumato.verify.checker import check_run

QUICK = (
    "tree", "tree, masked and lossy", "tree, three tiers", "tree, resent", "tree, schedules", "star, blind",
    "moving", "groups", "groups, masked and lossy", "groups, un-noised inside", "groups, intervals", "zones",
    "elections, edges noise", "air", "control", "records R2", "records R3",
)  # fmt: skip
MEANS_THE_SAME = {
    "hashes": "the test of the folder's hashes covers them",
    "hashes.spec": "the same",
    "tiers.*.parents.*": "of the root",
    "eras.*.tiers.*.parents.*": "of the root",
    "eras.*.kind": "nobody reads it: eras are trees",
    "eras.*.groups.*": "members in another order",
    "class_per_device": "where every leaf has one class",
    "noise_not_composed": "the name of the law",
    "steps.*.node_noise_std.*": "one tier too many",
    "eras.*.steps.*.node_noise_std.*": "one tier too many",
    "steps.*.takes_part_per_leaf.*": "one leaf too many",
    "steps.*.also_broadcasts_per_leaf.*": "one leaf too many",
    "sure_per_leaf.*": "one leaf too many",
}
CHARGES_MORE = {
    "batches.moved_share_by_first_step.*.*",
    "batches.moved_share_by_first_step_replaced.*.*",
    "devices_may_drop_out",
}
"""Facts that only have a least value: a larger one makes ε larger."""
BELIEVED = {
    "steps.*.channel_noise_std.*.*": "the noise of the radio channel",
    "steps.*.tells_who_was_drawn": "whether it tells who was drawn",
}
"""Facts that spec.yaml does not determine: what the output says instead."""


@cache
def honest(family: str, base: Path) -> Case:
    return case_of(FAMILIES[family], base / family)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("honest")


def families(quick: tuple[str, ...]) -> list[Any]:
    """All families, of which some are slow."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in quick)) for name in FAMILIES]


@pytest.mark.parametrize("family", families(QUICK))
def test_honest_folders_pass(family: str, base: Path) -> None:
    assert honest(family, base).problems() == []


# --- entries of certificates --------------------------------------------------------------------------


def assert_entries_are_refused(case: Case, chosen: list[Any]) -> None:
    for place, name, path, change in chosen:
        forged = manipulated_folders.manipulated(case, place, name, path, change)
        before, after = (
            one.privacy["guarantees"][place]["bounds"][name]["epsilon"] for one in (case, forged)
        )
        assert read.figure(after) < read.figure(before) * SMALLER
        assert manipulated_folders.problems_of_row(forged, place), (place, name, path, change)


@pytest.mark.parametrize("family", QUICK)
def test_changed_entries_are_refused(family: str, base: Path) -> None:
    case, rng = honest(family, base), Random(f"some of {family}")
    assert_entries_are_refused(case, rng.sample([*manipulated_folders.manipulations_of(case, rng)], 6))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_change_of_every_kind_of_entry_is_refused(family: str, base: Path) -> None:
    case = honest(family, base)
    chosen = [*manipulated_folders.manipulations_of(case, Random(family))]
    assert len(chosen) > 150
    assert_entries_are_refused(case, chosen)


def test_noise_without_bound_is_refused(base: Path) -> None:
    """∞ is close to no finite figure: a variance of ∞ does not follow from sources that are finite."""
    case = honest("star, blind", base)
    path = ("draws", 0, "releases", 0, "variance")
    forged = manipulated_folders.manipulated(case, 0, "flow", path, "infinite")
    assert forged.privacy["guarantees"][0]["epsilon"] < case.privacy["guarantees"][0]["epsilon"]
    assert any(
        "variance: stated inf" in problem for problem in manipulated_folders.problems_of_row(forged, 0)
    )


@pytest.mark.parametrize("change", ["doubled", "infinite"])
def test_what_is_met_out_of_office_is_what_is_charged(change: str, base: Path) -> None:
    """A term of office adds the more in μ², so nothing may be said of the less that is not charged, too."""
    case = honest("elections, edges noise", base)
    rows = case.ledger["certificates"]["rows"]
    place, name = next(
        (place, name)
        for place, cert in enumerate(rows)
        for name, bound in cert["bounds"].items()
        if bound.get("elections") and 0 < read.figure(bound["epsilon"]) < float("inf")
    )
    path = ("elections", 0, "pairs", 0, 1, 0, "own_sensitivity")
    forged = manipulated_folders.manipulated(case, place, name, path, change)
    assert any("out of office" in problem for problem in manipulated_folders.problems_of_row(forged, place))


def test_hashes_that_were_renewed_make_no_difference(tmp_path: Path) -> None:
    """A whole folder, through its files: the manifest and hashes fit what was changed."""
    folder = certified_folder(tmp_path / "run", sf.load_spec(FAMILIES["tree"]))
    case = Case.read(folder)
    path = ("draws", 0, "releases", 0, "own_sensitivity")
    forged = manipulated_folders.manipulated(case, 0, "flow", path, "halved")

    def change(privacy: dict[str, Any], ledger: dict[str, Any]) -> None:
        privacy.update(forged.privacy)
        ledger.update(forged.ledger)

    forge(folder, change)
    problems = check_run(folder).problems
    assert problems
    assert not any("SHA-256" in problem for problem in problems)


# --- facts --------------------------------------------------------------------------------------------


def assert_facts_are_checked(case: Case, rng: Random, most: int | None) -> None:
    """Whatever follows from facts, spec.yaml says what they are; or the output says what is believed."""
    facts = {key: value for key, value in case.ledger.items() if key != "certificates"}
    places: dict[str, list[tuple[Any, Any]]] = {}
    for path, held in entries(facts):
        places.setdefault(kind_of(path), []).append((path, held))
    chosen = [
        (kind, path, change)
        for kind, listed in sorted(places.items())
        for path, held in [rng.choice(listed)]
        for change in changes(path, held)
    ]
    for kind, path, change in rng.sample(chosen, min(most or len(chosen), len(chosen))):
        ledger = copy.deepcopy(case.ledger)
        apply(ledger, path, change)
        forged = Case(case.spec, case.privacy, ledger)
        if ledger == case.ledger or forged.spec_problems():
            continue
        if kind in BELIEVED:
            assert any(BELIEVED[kind] in what for what in forged.believed())
        elif kind not in MEANS_THE_SAME and kind not in CHARGES_MORE:
            assert forged.problems(), (kind, path, change)


@pytest.mark.parametrize("family", QUICK)
def test_changed_facts_are_refused(family: str, base: Path) -> None:
    assert_facts_are_checked(honest(family, base), Random(f"some of {family}"), 20)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_change_of_every_kind_of_fact_is_refused(family: str, base: Path) -> None:
    assert_facts_are_checked(honest(family, base), Random(family), None)


# --- rows ---------------------------------------------------------------------------------------------

Rows = list[dict[str, Any]]


def all_smaller(rows: Rows, certificates: Rows) -> None:
    for row, cert in zip(rows, certificates, strict=True):
        for name, bound in cert["bounds"].items():
            if bound["epsilon"] not in (0, 0.0, "inf"):
                bound["epsilon"] = row["bounds"][name]["epsilon"] = bound["epsilon"] * 0.9
        row["epsilon"] = row["bounds"][row["bound"]]["epsilon"]


def _order(rows: Rows) -> list[int]:
    return sorted(range(len(rows)), key=lambda place: read.figure(rows[place]["epsilon"]))


def best_for_worst(rows: Rows, certificates: Rows) -> None:
    """The row with the largest ε becomes one more of the smallest."""
    order = _order(rows)
    best, worst = order[0], order[-1]
    stands = rows[worst]["stands_for"]
    rows[worst], certificates[worst] = copy.deepcopy(rows[best]), copy.deepcopy(certificates[best])
    rows[worst]["stands_for"] = stands


def worst_left_out(rows: Rows, certificates: Rows) -> None:
    """The row with the smallest ε stands for its pairs."""
    order = _order(rows)
    rows[order[0]]["stands_for"] += rows[order[-1]]["stands_for"]
    del rows[order[-1]], certificates[order[-1]]


def another_name(rows: Rows, certificates: Rows) -> None:
    """The smallest figures under the name of whoever has the largest."""
    order = _order(rows)
    best, worst = order[0], order[-1]
    unit, observer = rows[worst]["unit"], rows[worst]["observer"]
    kept = {key: rows[worst].get(key) for key in ("stands_for", "relation", "trusted")}
    rows[worst], certificates[worst] = copy.deepcopy(rows[best]), copy.deepcopy(certificates[best])
    for one in (rows[worst], certificates[worst]):
        one |= {"unit": unit, "observer": observer}
    rows[worst] |= {key: value for key, value in kept.items() if value is not None}


def fewer_of_the_worst(rows: Rows, certificates: Rows) -> None:
    order = _order(rows)
    rows[order[-1]]["stands_for"] -= 1
    rows[order[0]]["stands_for"] += 1


ROWS: tuple[Callable[[Rows, Rows], None], ...] = (
    all_smaller, best_for_worst, worst_left_out, another_name, fewer_of_the_worst,
)  # fmt: skip


@pytest.mark.parametrize("family", families(QUICK))
def test_changed_rows_are_refused(family: str, base: Path) -> None:
    case = honest(family, base)
    for change in ROWS:
        forged = copy.deepcopy(case)
        rows = forged.privacy["guarantees"]
        change(rows, forged.ledger["certificates"]["rows"])
        if rows != case.privacy["guarantees"]:
            assert forged.problems(), change.__name__


# --- specs --------------------------------------------------------------------------------------------


def assert_swaps_are_refused(family: str, folder: Path, only: tuple[str, ...] | None) -> None:
    for what, case in swapped(FAMILIES[family], folder, only):
        if not case.problems():
            assert "radio" in case.spec, what  # the noise of the channel is no one figure of the spec
            assert any("the noise of the radio channel" in said for said in case.believed())


@pytest.mark.parametrize("family", ["tree", "star, blind", "groups", "records R2", "air"])
def test_figures_of_another_spec_are_refused(family: str, tmp_path: Path) -> None:
    some = ("fewer rounds", "more noise", "more data", "rarer participation", "less demanded of the air")
    assert_swaps_are_refused(family, tmp_path, some)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_figures_of_every_other_spec_are_refused(family: str, tmp_path: Path) -> None:
    assert_swaps_are_refused(family, tmp_path, None)
