"""What is charged where devices move and trust changes is what the general form gives for every round."""

import math
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from equal_exposures import assert_equal
from moving_trees import (
    RoundByRound,
    last_trust_throughout,
    nobody_moves,
    random_coalition,
    random_moves,
    random_record_moves,
)

from sfumato.privacy.observers import Party
from sfumato.privacy.tree.moving_pairs import RoundKinds
from sfumato.privacy.tree.moving_releases import MovingReleases
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.schedule import moves
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import load_spec


def compare(first, last):
    """Random trees, three coalitions each; how many have several eras, and of these how many schedules."""
    moved = differ = 0
    for number in range(first, last):
        rng = Random(f"moves/{number}")
        document = random_moves(rng)
        plan = resolve(load_spec(document))
        apart = RoundByRound(document)
        several = isinstance(plan.releases, MovingReleases)
        moved += several
        differ += several and any(step.takes_part is not None for step in plan.releases.steps)
        for _ in range(3):
            unit, coalition = random_coalition(rng, document)
            found = plan.releases.exposures(unit, coalition)
            for mine, general in zip(found[:2], apart.exposures(unit, coalition), strict=True):
                assert_equal(mine, general)
    return moved, differ


@pytest.mark.parametrize("batch", range(3))
def test_random_moves(batch):
    moved, differ = compare(12 * batch, 12 * (batch + 1))
    assert moved >= 8
    assert differ >= 1


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(8))
def test_many_random_moves(batch):
    moved, differ = compare(36 + 150 * batch, 36 + 150 * (batch + 1))
    assert moved > 100
    assert differ > 15


def test_a_ledger_that_leaves_everybody_under_the_first_edge_is_found(monkeypatch):
    monkeypatch.setattr(moves, "trees_over_time", nobody_moves)
    with pytest.raises(AssertionError):
        compare(0, 10)


def test_a_ledger_with_the_trust_of_the_last_rounds_is_found(monkeypatch):
    monkeypatch.setattr(moves, "trees_over_time", last_trust_throughout)
    with pytest.raises(AssertionError):
        compare(0, 10)


def test_a_ledger_that_does_not_charge_an_edge_after_a_move_is_found(monkeypatch):
    """Whoever is under another edge than the unit's first one is charged as the public."""
    charged = RoundKinds.exposures

    def without_new_edges(self, unit, coalition):
        first = 0 if unit < 2 else 1
        kept = tuple(
            Party("public")
            if p.kind == "node" and p.tier and p.index == self.releases.leaf_of(unit) and p.index != first
            else p
            for p in coalition
        )
        return charged(self, unit, kept)

    monkeypatch.setattr(RoundKinds, "exposures", without_new_edges)
    observer = (Party("node", 1, 1),)
    flow, _ = resolve(load_spec(MOVED_ONCE)).releases.exposures(0, observer)
    general, _ = RoundByRound(MOVED_ONCE).exposures(0, observer)
    with pytest.raises(AssertionError):
        assert_equal(flow, general)


def charged(parts):
    """What a record is charged, and how often, to nine digits."""
    found = Counter()
    for part in parts:
        square = math.fsum(
            r.sensitivity("replace") ** 2 / r.variance if r.variance else math.inf for r in part.releases
        )
        shares = (part.moves, part.replaced_moves or part.moves)
        key = (f"{square:.9g}", len(part.releases), *shares, part.participation, part.largest_move)
        found[*key, f"{part.beyond:.9g}"] += part.count
    return found


def compare_records(first, last):
    """As `compare`, for records that are drawn one by one; how many trees have several eras."""
    moved = 0
    for number in range(first, last):
        rng = Random(f"records that move/{number}")
        document = random_record_moves(rng)
        plan = resolve(load_spec(document))
        apart = RoundByRound(document)
        moved += isinstance(plan.releases, MovingReleases)
        for _ in range(3):
            unit, coalition = random_coalition(rng, document)
            assert charged(plan.releases.record_releases(unit, coalition)) == charged(
                apart.records(unit, coalition)
            )
    return moved


def test_random_records_that_move():
    assert compare_records(0, 36) >= 24


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(4))
def test_many_random_records_that_move(batch):
    assert compare_records(36 + 250 * batch, 36 + 250 * (batch + 1)) > 170


def test_records_charged_as_under_the_first_edge_throughout_are_found(monkeypatch):
    first_tree = TreeReleases.record_releases
    monkeypatch.setattr(
        MovingReleases, "record_releases", lambda self, *pair: first_tree(self.eras[0].releases, *pair)
    )
    with pytest.raises(AssertionError):
        compare_records(0, 10)


def test_records_charged_by_the_schedule_of_another_edge_are_found(monkeypatch):
    """The local steps behind a message are those of the edge that the device is under in that round."""
    of_round = TreeReleases.record_releases

    def by_the_first_leaf(self, unit, coalition):
        batches = replace(self.batches.at(0), rates=self.batches.rates, of_leaf=())
        return of_round(replace(self, batches=batches), unit, coalition)

    monkeypatch.setattr(TreeReleases, "record_releases", by_the_first_leaf)
    with pytest.raises((AssertionError, ValueError)):
        compare_records(0, 36)


def test_a_record_that_counts_the_draws_of_one_round_as_those_of_all_is_found(monkeypatch):
    """One draw of batches for all rounds would charge one round only."""
    every = MovingReleases.record_releases
    monkeypatch.setattr(
        MovingReleases,
        "record_releases",
        lambda self, *pair: tuple(replace(p, count=1) for p in every(self, *pair)),
    )
    with pytest.raises(AssertionError):
        compare_records(0, 10)


MOVED_ONCE = {
    "name": "once",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {
        "kind": "tree", "edges": 2, "devices_per_edge": [2, 2], "moves": {"trace": [[2, 0, 1]]},
    },
    "trust": {"cloud": False, "from": {0: []}},
    "training": {"rounds": 2, "local_steps": 2, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
}  # fmt: skip
