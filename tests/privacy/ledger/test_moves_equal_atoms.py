"""What is charged where devices move and trust changes is what the general ledger of every round gives."""

from random import Random

import pytest
from equal_exposures import assert_equal
from moving_trees import RoundByRound, last_trust_throughout, nobody_moves, random_coalition, random_moves

from sfumato.privacy.observers import Party
from sfumato.privacy.tree.moving import MovingReleases
from sfumato.privacy.tree.round_kinds import RoundKinds
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
        several = isinstance(plan.ledger, MovingReleases)
        moved += several
        differ += several and any(step.takes_part is not None for step in plan.ledger.steps)
        for _ in range(3):
            unit, coalition = random_coalition(rng, document)
            found = plan.ledger.exposures(unit, coalition)
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
    flow, _ = resolve(load_spec(MOVED_ONCE)).ledger.exposures(0, observer)
    general, _ = RoundByRound(MOVED_ONCE).exposures(0, observer)
    with pytest.raises(AssertionError):
        assert_equal(flow, general)


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
