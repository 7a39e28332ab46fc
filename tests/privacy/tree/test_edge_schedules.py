"""Edges with schedules of their own: the ledger against atoms, against rounds written out, and by hand."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from equal_exposures import assert_equal
from scheduled_trees import random_cohort, random_ledger, random_pair
from tree_oracle import Round, make_ledger

from sfumato.privacy.observers import Party
from sfumato.privacy.tree.compile import CompiledTree, compile_tree
from sfumato.privacy.tree.elections import with_elections
from sfumato.privacy.tree.facts import AggregationFacts
from sfumato.privacy.tree.pair_classes import TreePairs

LONG = 4000


def charged(exposure):
    """mu^2 of one round, release by release."""
    return [
        np.inf
        if r.variance == 0 and r.own_sensitivity > 0
        else (r.own_sensitivity + r.propagated_sensitivity) ** 2 / max(r.variance, 1e-300)
        for r in exposure.releases
    ]


def equal_to_atoms(number):
    """One random case: what the ledger charges is what its atoms give."""
    rng = Random(f"edge schedules/{number}")
    ledger = random_ledger(rng, hops=True)
    if rng.random() < 0.3:
        least = np.array([rng.randint(0, int(n)) for n in ledger.devices])
        ledger = replace(
            ledger,
            guaranteed_contributors=least if rng.random() < 0.5 else None,
            all_nodes_always_send=rng.random() < 0.5,
            rounds_after_noise=rng.random() < 0.3,
        )
    if rng.random() < 0.3:
        ledger = replace(ledger, elections=1.0)
    unit, coalition = random_pair(rng, ledger)
    general = with_elections(CompiledTree(ledger), unit, coalition)
    for mine, theirs in zip(ledger.exposures(unit, coalition), general, strict=True):
        assert_equal(mine, theirs)


def never_below_what_is_seen(number):
    """One random case, against a round written out message by message: flow exactly, cut at least."""
    rng = Random(f"edge schedules written out/{number}")
    ledger = random_ledger(rng, hops=False)
    unit, coalition = random_pair(rng, ledger)
    flow, cut = ledger.exposures(unit, coalition)
    own = ledger.steps_of(ledger.leaf_of(unit))
    game = Round(ledger, worst_cohort(ledger, unit, coalition))
    exposed = game.seen(coalition) + game.hidden_averages(unit)
    assert charged(flow) == pytest.approx(
        [game.charge_of_step(unit, k, exposed, coalition) for k in own], rel=1e-9
    )
    for cohort in (game.drawn, random_cohort(rng, ledger, unit)):
        played = Round(ledger, cohort)
        signs = np.array([[rng.choice((-1.0, 1.0)) for _ in ledger.steps] for _ in range(ledger.device_count)])
        for corner in (None, signs):
            seen = played.cut(unit, coalition, corner)
            assert len(seen) == len(cut.releases)
            for mine, truth in zip(charged(cut), seen.values(), strict=True):
                assert mine >= truth * (1 - 1e-9)


def exact_where_bounds_are_alike(number):
    """One random case with one bound a step: the cut charge is what is seen, too."""
    rng = Random(f"edge schedules of one bound/{number}")
    ledger = random_ledger(rng, kinds=("all", "fixed"), uniform=True, resend=False)
    unit, coalition = random_pair(rng, ledger)
    game = Round(ledger, worst_cohort(ledger, unit, coalition))
    _, cut = ledger.exposures(unit, coalition)
    assert charged(cut) == pytest.approx(list(game.cut(unit, coalition).values()), rel=1e-9)


def worst_cohort(ledger, unit, coalition):
    """The cohort with the unit in it that leaves the least noise: members first; nobody under Poisson."""
    if ledger.draw_kind == "poisson":
        return [unit]
    members = {p.index for p in coalition if p.kind == "device"}
    chosen = []
    for leaf, count in enumerate(ledger.drawn):
        here = range(int(ledger.first_device[leaf]), int(ledger.first_device[leaf + 1]))
        chosen += sorted(here, key=lambda j: (j != unit, j not in members))[: int(count)]
    return chosen


@pytest.mark.parametrize("batch", range(4))
def test_the_ledger_is_what_its_atoms_give(batch):
    for number in range(100 * batch, 100 * (batch + 1)):
        equal_to_atoms(number)


@pytest.mark.parametrize("batch", range(4))
def test_the_ledger_is_never_below_a_round_written_out(batch):
    for number in range(75 * batch, 75 * (batch + 1)):
        never_below_what_is_seen(number)
        exact_where_bounds_are_alike(number)


@pytest.mark.slow
def test_thousands_of_cases():
    for number in range(10_000, 10_000 + LONG):
        equal_to_atoms(number)
        never_below_what_is_seen(number)
        exact_where_bounds_are_alike(number)
