"""A fixed number drawn among devices that count differently: whom the unit is exchanged for matters."""

import math
from dataclasses import replace

import numpy as np
import pytest
from random_tree_facts import make_ledger
from scipy.stats import binom

from sfumato.privacy.charges import bound_epsilon, ways_to_charge
from sfumato.privacy.losses import gaussian
from sfumato.privacy.observers import Party
from sfumato.privacy.tree.facts import AggregationFacts
from sfumato.privacy.tree.shape import DeviceClasses

DEVICES, ROUNDS, DELTA = 20, 400, 1e-4
PUBLIC = (Party("public"),)


def star_of(weights, std):
    """One of the devices is drawn a round; the cloud adds ``std`` to what it sends."""
    nothing = np.zeros(1)
    facts = AggregationFacts("global", 0, np.ones(1), nothing, (np.array([std]),), np.zeros(1, dtype=bool))
    return make_ledger(
        [[len(weights)]],
        [facts],
        kind="fixed",
        rate=1 / len(weights),
        participants=[1],
        rounds=ROUNDS,
        device_classes=DeviceClasses.of(np.array([len(weights)]), np.array(weights), None),
    )


def test_heavy_devices_give_away_when_a_light_one_is_drawn():
    """Others send 1, twenty standard deviations away: whoever sees less knows that the unit was drawn."""
    std, light = 0.05, 0.01
    declared = star_of([light] + [1.0] * (DEVICES - 1), std)
    (flow, _) = declared.exposures(0, PUBLIC)
    assert flow.draw_hidden
    assert all(release.noise_is_draw_independent for release in flow.releases)
    found = bound_epsilon(flow, delta=DELTA, neighbours="zero-out")
    times = np.arange(ROUNDS + 1)
    chances = binom.pmf(times, ROUNDS, 1 / DEVICES)
    curves = gaussian.delta(epsilon=found.epsilon, mu=np.sqrt(times) * light / std)
    assert float(chances @ curves) <= DELTA * (1 + 1e-6)


def test_the_exchange_is_for_the_heaviest_of_the_same_leaf():
    weights = [0.25, 0.5, 1.0, 1.0]
    declared = star_of(weights, 1.0)
    for unit, weight in enumerate(weights):
        flow, _ = declared.exposures(unit, PUBLIC)
        assert flow.draws[0].max_weight_ratio == pytest.approx(1 / weight)
        for relation, apart in (("zero-out", (weight + 1.0, 1.0)), ("replace", (weight + 1.0, weight + 1.0))):
            (term,) = ways_to_charge(flow, relation)[1].terms
            assert 1 / term.multiplier == pytest.approx(weight * (2 if relation == "replace" else 1))
            assert np.array(term.sampling.apart) / term.multiplier == pytest.approx(apart)
    nobody = replace(declared, device_classes=None)
    assert nobody.exposures(0, PUBLIC)[0].draws[0].max_weight_ratio == 1.0


def test_a_device_that_counts_nothing_has_nothing_to_lose():
    flow, _ = star_of([0.0, 1.0], 1.0).exposures(0, PUBLIC)
    assert bound_epsilon(flow, delta=DELTA, neighbours="zero-out").epsilon == 0
    assert not math.isnan(flow.draws[0].max_weight_ratio)
