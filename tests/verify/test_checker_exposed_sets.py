"""Exposed sets of trees: the checker takes the one that is stated, and refuses what may not be charged."""

from __future__ import annotations

import math

import certified_folders
import pytest
from certified_folders import certified_folder, copied_folder, forge

import sfumato as sf
from sfumato.privacy.divergence import divergence
from sfumato.privacy.groups.exposed_set import Exposed
from sfumato.privacy.groups.exposure_problem import cost
from sfumato.privacy.observers import Party
from sfumato.privacy.tree.exposed_averages import _stated
from sfumato.verify.checker import check_run

NOISE = {"sources": [{"owners": ["cabinet:0", "cabinet:1"], "multipliers": [2.0, 2.0, 0.2]}]}
SPEC = certified_folders.TREE | {
    "topology": {"kind": "tree", "levels": [1, 2, 2], "names": ["region", "cabinet"]},
    "trust": {"trusted": ["cabinet:0", "cabinet:1"]},
    "training": certified_folders.TREE["training"] | {"local_steps": 4, "aggregate_every": [2, 1]},
    "privacy": {"clip": {"kind": "update", "norm": 0.5}, "noise": NOISE},
}
del SPEC["training"]["edge_every"]


def problems_with(folder, exposed, gap=math.inf):
    """Of a folder that charges these aggregations in the row of the public, all else computed honestly."""

    def other_set(pair, flow_and_cut, neighbours):
        if pair.coalition != (Party("public"),):
            return _stated(flow_and_cut[0], pair.steps, math.inf)
        return _stated(pair.exposure(exposed), exposed, gap)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.privacy.tree.releases.cheapest_exposure", other_set)
        certified_folder(folder, sf.load_spec(SPEC))
    return check_run(folder).problems


def test_an_honest_folder_passes(tmp_path):
    folder = copied_folder(tmp_path, sf.load_spec(SPEC))
    assert check_run(folder).problems == []
    report = sf.account(sf.load_spec(SPEC))
    assert any(row.bound == "min-cost" for row in report.guarantees)


@pytest.mark.parametrize("exposed", [(0, 1, 2, 3), (1, 3), (1, 2, 3), (3,)])
def test_every_set_that_may_be_charged_passes(exposed, tmp_path):
    """Aggregations 1 and 3 are those of cabinets, 2 that of the region, 4 the cloud's."""
    assert problems_with(tmp_path, exposed) == []


@pytest.mark.parametrize(
    ("exposed", "what"),
    [
        ((2, 3), "comes after a hidden average of a tier above"),
        ((1, 2), "the observer receives that average"),
    ],
)
def test_a_set_that_may_not_be_charged_is_named(exposed, what, tmp_path):
    found = problems_with(tmp_path, exposed)
    assert any(what in problem for problem in found), found


@pytest.mark.parametrize(
    ("exposed", "gap", "named"),
    [((1, 3), 1.0, False), ((1, 2, 3), 1.0, True), ((1, 2, 3), 6.7, True), ((1, 2, 3), 6.8, False)],
)
def test_a_set_that_is_further_from_the_cheapest_than_it_says_is_named(exposed, gap, named, tmp_path):
    """μ² of a round is 27.125 where the region's average is exposed beside those of cabinets, else 4."""
    found = problems_with(tmp_path, exposed, gap)
    about = [one for one in found if "device:0 towards public" in one]
    assert bool(about) is named
    assert all("min-cost: gap: stated" in one and "that of [2, 4] is 4" in one for one in about)


@pytest.mark.parametrize(
    ("key", "value", "what"), [("certified", False, "certified: False"), ("gap", 0.5, "gap: 0.5; it is at")]
)
def test_what_a_row_says_of_the_cheapest_set_agrees(key, value, what, tmp_path):
    folder = copied_folder(tmp_path, sf.load_spec(SPEC))

    def change(privacy, ledger):
        privacy["guarantees"][0]["bounds"]["min-cost"][key] = value

    forge(folder, change)
    assert any(what in problem for problem in check_run(folder).problems)


LINKED = [[0, 1, 2], [2, 3, 4], [4, 5, 6], [0, 6, 7]]
GROUPS = certified_folders.GROUPS | {
    "topology": {"kind": "groups", "structure": "list", "groups": LINKED},
    "training": certified_folders.GROUPS["training"] | {"rounds": 24, "merge_every": 8},
}


def test_sets_of_groups_that_are_not_the_cheapest_are_named(tmp_path, monkeypatch):
    honest = certified_folder(tmp_path / "honest", sf.load_spec(GROUPS))
    outcome = check_run(honest)
    assert outcome.problems == []
    assert not any("another set of messages" in one for one in outcome.unchecked)
    bounds = [row["bounds"] for row in sf.account(sf.load_spec(GROUPS)).to_dict()["guarantees"]]
    assert any(0 < float(b["min-cost"]["epsilon"]) < 0.9 * float(b["flow"]["epsilon"]) for b in bounds)

    def flow(scene, price):
        spent = cost(scene, scene.reach, price)
        return Exposed(scene.reach, spent, spent)

    monkeypatch.setattr("sfumato.privacy.groups.releases.flow_or_cut", flow)
    found = check_run(certified_folder(tmp_path / "dearer", sf.load_spec(GROUPS))).problems
    assert found
    assert all("min-cost: gap: stated 1; μ² of the set is" in one for one in found)


REPLACED = GROUPS | {
    "topology": GROUPS["topology"] | {"groups": [[0, 1], [1, 2], [2, 3, 4], [3, 4, 5], [1, 5, 6]]},
    "training": GROUPS["training"] | {"rounds": 5, "merge_every": 2},
    "privacy": GROUPS["privacy"] | {"neighbours": "replace"},
}


def test_replaced_workers_have_sets_that_are_the_cheapest_when_they_are_replaced(tmp_path, monkeypatch):
    """What costs least when a worker sends zeros may not be what costs least when it is replaced."""
    rows = sf.account(sf.load_spec(REPLACED)).to_dict()["guarantees"]
    for bounds in (row["bounds"] for row in rows):
        assert bounds["min-cost"]["certified"]
        least = min(float(bound["epsilon"]) for bound in bounds.values())
        assert float(bounds["min-cost"]["epsilon"]) <= least * (1 + 1e-9)
    assert check_run(certified_folder(tmp_path / "honest", sf.load_spec(REPLACED))).problems == []

    as_zeroed = "sfumato.privacy.groups.received_sums.divergence"
    monkeypatch.setattr(as_zeroed, lambda drawn, relation: divergence(drawn, "zero-out"))
    found = check_run(certified_folder(tmp_path / "zeroed", sf.load_spec(REPLACED))).problems
    assert found
    assert all("min-cost: gap: stated 1; μ² of the set is" in one for one in found)


@pytest.mark.parametrize("neighbours", ["zero-out", "replace"])
def test_sets_for_records_are_certified_only_where_records_are_charged_as_sets_are_compared(neighbours):
    """Under zero-out a record is charged as if its device were replaced; sets are compared otherwise."""
    spec = REPLACED | {"privacy": REPLACED["privacy"] | {"unit": "record", "neighbours": neighbours}}
    rows = [row["bounds"] for row in sf.account(sf.load_spec(spec)).to_dict()["guarantees"]]
    apart = [bounds["min-cost"] for bounds in rows if bounds["flow"]["releases"] != bounds["cut"]["releases"]]
    assert apart
    if neighbours == "replace":
        assert all(bounds["min-cost"]["certified"] for bounds in rows)
    else:
        assert all((one["certified"], one["gap"]) == (False, "inf") for one in apart)


def test_where_workers_are_drawn_the_gap_is_said_to_be_unchecked(tmp_path):
    drawn = GROUPS["training"] | {"rounds": 3, "merge_every": 2, "participation": {"rate": 0.5}}
    outcome = check_run(certified_folder(tmp_path, sf.load_spec(GROUPS | {"training": drawn})))
    assert outcome.problems == []
    (said,) = (one for one in outcome.unchecked if "whether a smaller ε could be proved" in one)
    assert said.startswith(f"in {outcome.unchecked_gaps} of {outcome.rows} rows, ")
    assert outcome.unchecked_gaps > 0


def test_a_row_that_states_another_set_is_named(tmp_path):
    folder = copied_folder(tmp_path, sf.load_spec(SPEC))

    def change(privacy, ledger):
        privacy["guarantees"][0]["bounds"]["min-cost"]["exposed"] = [4]

    forge(folder, change)
    assert any("min-cost: exposed" in problem for problem in check_run(folder).problems)


def test_a_set_with_less_than_it_charges_is_named(tmp_path):
    """The certificate lists an average as hidden that its releases do not sum up."""
    folder = copied_folder(tmp_path, sf.load_spec(SPEC))

    def change(privacy, ledger):
        for row in [*privacy["guarantees"], *ledger["certificates"]["rows"]]:
            bound = row["bounds"]["min-cost"]
            key = "exposed" if "exposed" in bound else "exposed_aggregations"
            bound[key] = bound[key][-1:]

    forge(folder, change)
    assert any("releases a round" in problem for problem in check_run(folder).problems)


def test_a_round_that_is_sent_again_has_two_sets(tmp_path):
    spec = certified_folders.TREE | {
        "training": certified_folders.TREE["training"] | {"edge_every": 1, "global_update": "resend"}
    }

    def first_hidden(pair, flow_and_cut, neighbours):
        exposed = sorted({*pair.steps[1:], *pair.received_steps})
        return _stated(pair.exposure(exposed), exposed, 1.0)

    assert check_run(certified_folder(tmp_path / "honest", sf.load_spec(spec))).problems == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.privacy.tree.releases.cheapest_exposure", first_hidden)
        certified_folder(tmp_path / "other", sf.load_spec(spec))
    found = check_run(tmp_path / "other").problems
    assert any("a round that is sent again" in problem for problem in found), found
