"""Edges with schedules of their own: what is charged, against the general form and by hand."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from equal_exposures import assert_equal
from message_graph.trees import TreeAsMessages
from random_tree_facts import charged, make_ledger
from scheduled_trees import random_ledger, random_pair
from slow import first_quick

from sfumato.privacy.observers import Party
from sfumato.privacy.tree.elections import flow_and_cut_with_elections
from sfumato.privacy.tree.facts import AggregationFacts

LONG = 4000


def equal_to_the_general_form(number):
    """One random case: what is charged is what the graph of messages gives."""
    rng = Random(f"edge schedules/{number}")
    declared = random_ledger(rng)
    if rng.random() < 0.3:
        least = np.array([rng.randint(0, int(n)) for n in declared.devices])
        declared = replace(
            declared,
            guaranteed_contributors=least if rng.random() < 0.5 else None,
            all_nodes_always_send=rng.random() < 0.5,
            rounds_after_noise=rng.random() < 0.3,
        )
    if rng.random() < 0.3:
        declared = replace(declared, elections=1.0)
    unit, coalition = random_pair(rng, declared)
    general = flow_and_cut_with_elections(TreeAsMessages(declared), unit, coalition, declared.leaf_classes)
    for mine, theirs in zip(declared.exposures(unit, coalition), general, strict=True):
        assert_equal(mine, theirs)


@pytest.mark.parametrize("batch", first_quick(range(8), 2, 4))
def test_what_is_charged_is_what_the_general_form_gives(batch):
    for number in range(50 * batch, 50 * (batch + 1)):
        equal_to_the_general_form(number)


# --- by hand ------------------------------------------------------------------------------------------


def edges(*steps):
    """Two edges of two devices; ``steps`` are (tier, who takes part, who broadcasts too)."""
    facts = []
    for number, (tier, sends, both) in enumerate(steps):
        facts.append(
            AggregationFacts(
                f"step {number}",
                tier,
                np.ones(2),
                np.ones(2),
                (np.zeros(1), np.zeros(2)),
                np.zeros(2, dtype=bool),
                takes_part=np.array(sends),
                leaf_broadcasts=np.array(both),
            )
        )
    return make_ledger([[2], [2, 2]], facts)


BUSY_AND_QUIET = (
    (1, [True, False], [False] * 2),
    (1, [True, True], [False] * 2),
    (0, [True] * 2, [False] * 2),
)


def test_each_edge_is_charged_its_own_aggregations():
    """Towards its own edge a device of the busy edge is charged three messages, of the quiet one two."""
    declared = edges(*BUSY_AND_QUIET)
    assert charged(declared.exposures(0, [Party("node", 1, 0)])[0]) == [1.0, 1.0, 1.0]
    assert charged(declared.exposures(2, [Party("node", 1, 1)])[0]) == [1.0, 1.0]
    # the public sees only the global step, behind whose noise one or two pieces are hidden
    own = [
        sum(r.own_sensitivity for r in declared.exposures(u, [Party("public")])[1].releases) for u in (0, 2)
    ]
    assert own == pytest.approx([3 / 4, 2 / 4])


def test_classes_tell_schedules_apart():
    """The two edges differ in nothing but when they take part."""
    declared = edges(*BUSY_AND_QUIET)
    assert len(set(declared.leaf_classes.tolist())) == 2
    assert len(set(edges(*BUSY_AND_QUIET[1:]).leaf_classes.tolist())) == 1
    broadcasting = edges((0, [True, True], [True, False]))
    assert len(set(broadcasting.leaf_classes.tolist())) == 2


def test_an_edge_that_broadcasts_at_the_global_step_is_charged_towards_its_devices():
    """Its average has the noise of two devices; the global one has that of four."""
    both, alone = (edges((0, [True, True], [also, False])) for also in (True, False))
    peer, away, public = Party("device", 0, 1), Party("device", 0, 2), Party("public")
    # without it: the peer's own noise is off, and three devices add 3/16 behind a quarter of the message
    assert charged(alone.exposures(0, [peer])[0]) == pytest.approx([(1 / 16) / (3 / 16)])
    # with it: only the unit's own noise is left in the average of its edge
    assert charged(both.exposures(0, [peer])[0]) == pytest.approx([1.0])
    # a device elsewhere and the public receive no more than before
    for observer in (away, public):
        before, now = (charged(declared.exposures(0, [observer])[0]) for declared in (alone, both))
        assert now == pytest.approx(before)
    # a peer under the broadcasting edge knows all noise in what its edge sends on
    assert charged(both.exposures(2, [Party("device", 0, 0)])[0]) == pytest.approx([(1 / 16) / (2 / 16)])
    assert charged(alone.exposures(2, [Party("device", 0, 0)])[0]) == pytest.approx([(1 / 16) / (3 / 16)])


def test_steps_of_single_leaves_need_edges_under_the_root():
    declared = edges(*BUSY_AND_QUIET)
    with pytest.raises(ValueError, match="need 2 tiers"):
        replace(declared, parents=(*declared.parents, np.array([0, 1])))


@pytest.mark.slow
def test_thousands_of_cases():
    for number in range(10_000, 10_000 + LONG):
        equal_to_the_general_form(number)
