"""Exposed sets of trees: the checker takes the one that is stated, and refuses what may not be charged."""

from __future__ import annotations

import certified_folders
import pytest
from certified_folders import certified_folder, forge

import sfumato as sf
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


def problems_with(folder, exposed):
    """Of a folder that charges these aggregations in the row of the public, all else computed honestly."""

    def other_set(exposures, unit, coalition, flow_and_cut, neighbours):
        if coalition != (Party("public"),):
            return _stated(flow_and_cut[0], exposures.facts.steps_of(exposures.facts.leaf_of(unit)), 1.0)
        return _stated(exposures.between(unit, coalition, exposed), exposed, 1.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.privacy.tree.releases.cheapest", other_set)
        certified_folder(folder, sf.load_spec(SPEC))
    return check_run(folder).problems


def test_an_honest_folder_passes(tmp_path):
    folder = certified_folder(tmp_path, sf.load_spec(SPEC))
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


def test_a_row_that_states_another_set_is_named(tmp_path):
    folder = certified_folder(tmp_path, sf.load_spec(SPEC))

    def change(privacy, ledger):
        privacy["guarantees"][0]["bounds"]["min-cost"]["exposed"] = [4]

    forge(folder, change)
    assert any("min-cost: exposed" in problem for problem in check_run(folder).problems)


def test_a_set_with_less_than_it_charges_is_named(tmp_path):
    """The certificate lists an average as hidden that its releases do not sum up."""
    folder = certified_folder(tmp_path, sf.load_spec(SPEC))

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

    def first_hidden(exposures, unit, coalition, flow_and_cut, neighbours):
        steps = exposures.facts.steps_of(exposures.facts.leaf_of(unit))
        exposed = sorted({*steps[1:], *exposures.seen(unit, coalition)})
        return _stated(exposures.between(unit, coalition, exposed), exposed, 1.0)

    assert check_run(certified_folder(tmp_path / "honest", sf.load_spec(spec))).problems == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.privacy.tree.releases.cheapest", first_hidden)
        certified_folder(tmp_path / "other", sf.load_spec(spec))
    found = check_run(tmp_path / "other").problems
    assert any("a round that is sent again" in problem for problem in found), found
