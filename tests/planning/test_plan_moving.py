"""Plans for networks that move: every target met over the whole run, with the least noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.planning.noise_response import global_variance
from sfumato.planning.sources import with_intensities
from sfumato.planning.targets import EpsilonTarget, noise_scale, pairs_of
from sfumato.planning.tree_planning import TreePlanning
from sfumato.privacy.losses import gaussian
from sfumato.privacy.release import total_mu_squared
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.schedule.rows.observers import is_of_kind

pytestmark = pytest.mark.needs("plan")

VISITS: dict[str, Any] = {
    "name": "visits",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {
        "kind": "tree", "edges": 3, "devices_per_edge": [2, 3, 4],
        "moves": {"trace": [[2, 0, 1], [3, 0, 2], [4, 5, 0]]},
    },
    "trust": {"trusted_edges": [0, 1]},
    "training": {"rounds": 5, "local_steps": 2, "edge_every": 1, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
}  # fmt: skip


def spec(**changes: Any) -> sf.Spec:
    document = {name: VISITS.get(name, {}) | section for name, section in changes.items()}
    return sf.load_spec(VISITS | document)


def least_by_hand(loaded: sf.Spec, kind: str, epsilon: float) -> float:
    """The least variance at which every pair of every unit has at most this ε, by a general solver."""
    base = resolve_tree(loaded)
    sources = TreePlanning().sources(base, frozenset())

    def plan_at(logs: np.ndarray) -> Any:
        return with_intensities(base, sources, np.exp(logs))

    limit = gaussian.mu(epsilon=epsilon, delta=loaded.privacy.delta) ** 2
    pairs = [
        (unit, pair.observer)
        for unit in range(9)
        for pair in base.releases.pair_classes(unit)
        if is_of_kind(pair, kind) and not any(one.trusts(pair.observer, unit) for one in base.structures)
    ]

    def slack(logs: np.ndarray) -> np.ndarray:
        declared = plan_at(logs).releases
        squares = [
            min(sum(total_mu_squared(d.releases, "zero-out") * d.count for d in e.draws) for e in found)
            for found in (declared.exposures(unit, (observer,)) for unit, observer in pairs)
        ]
        return np.log(limit) - np.log(squares)

    found = minimize(
        lambda logs: math.log(global_variance(plan_at(logs))),
        np.full(len(sources), 4.0),
        constraints={"type": "ineq", "fun": slack},
        method="SLSQP",
        options={"maxiter": 200, "ftol": 1e-9},
    )
    assert found.success, found.message
    return math.exp(found.fun)


@pytest.mark.parametrize("kind", ["cloud", "public"])
def test_the_noise_is_the_least_there_is(kind: str) -> None:
    loaded = spec()
    planned = sf.plan(loaded, {kind: 3.0})
    assert global_variance(planned.plan) == pytest.approx(least_by_hand(loaded, kind, 3.0), rel=2e-3)


@pytest.mark.parametrize(
    "trust", [{"trusted_edges": [0, 1]}, {"from": {0: [0], 3: [0, 1], 5: []}}], ids=["moves", "trust too"]
)
def test_every_pair_meets_its_target(trust: dict[str, Any]) -> None:
    loaded = sf.load_spec(VISITS | {"trust": trust})
    targets = {"cloud": 4.0, "other-edge": 2.0, "peer": 6.0}
    planned = sf.plan(loaded, targets)
    report = sf.account(planned.spec)
    declared, worst = report.plan.releases, dict.fromkeys(targets, 0.0)
    for unit in range(9):
        for pair in declared.pair_classes(unit):
            for kind in targets:
                if is_of_kind(pair, kind):
                    found = report.epsilon(unit, declared.party_name(pair.observer))
                    worst[kind] = max(worst[kind], found)
    assert all(worst[kind] <= targets[kind] for kind in targets)
    assert max(worst[kind] / targets[kind] for kind in targets) > 0.999


def test_it_is_no_noisier_than_one_multiplier_for_all() -> None:
    planned = sf.plan(spec(), {"cloud": 3.0})
    one = resolve_tree(spec())  # a multiplier of 1 everywhere
    needed = max(noise_scale(one, pair, 3.0) for pair in pairs_of(one, EpsilonTarget("cloud", 3.0)))
    assert global_variance(planned.plan) < 0.99 * needed**2 * global_variance(one)


def test_a_target_towards_the_cloud_alone_needs_no_plan() -> None:
    planned = sf.plan(spec(), {"cloud": 3.0})
    calibrated = resolve_tree(spec(privacy={"noise": {"epsilon": 3.0, "for": "cloud"}}))
    assert global_variance(planned.plan) == pytest.approx(global_variance(calibrated), rel=1e-6)


def test_the_noise_of_all_rounds_counts() -> None:
    """Edges have other sizes after a move, so the same multipliers leave another noise in the average."""
    plan = resolve_tree(spec())
    rounds = [sum(plan.at(number).global_noise) for number in range(5)]
    assert len({round(one, 9) for one in rounds}) > 1
    assert TreePlanning().variance(plan) == pytest.approx(sum(rounds))


def test_records_are_planned_for() -> None:
    loaded = spec(
        topology={"edges": 2, "devices_per_edge": [2, 2], "moves": {"trace": [[2, 0, 1]]}},
        training={"batches": "poisson", "rounds": 2, "local_steps": 1},
        privacy={"unit": "record"},
        trust={"trusted_edges": [0]},
    )
    assert len(resolve_tree(loaded).structures) == 2
    planned = sf.plan(loaded, {"cloud": 2.0})
    report = sf.account(planned.spec)
    worst = max(report.epsilon(f"record:{unit}", "cloud") for unit in range(4))
    assert 1.99 < worst <= 2.0


def test_an_edge_that_saw_raw_updates_is_named() -> None:
    loaded = sf.load_spec(VISITS | {"trust": {"from": {0: [0], 3: []}}})
    planned = sf.plan(loaded, {"own-edge": 5.0})
    assert any("raw updates of 2 devices" in note for note in planned.notes)
    with pytest.raises(SpecError, match="conflicts with trust"):
        sf.plan(loaded, {"edge:0": 5.0})


@pytest.mark.parametrize(
    ("training", "minimise", "allowed"),
    [
        ({"participation": {"kind": "poisson", "rate": 0.5}}, "noise", "no single signal-to-noise ratio"),
        ({}, "energy", "compared for one tree"),
    ],
)
def test_what_is_refused(training: dict[str, Any], minimise: Any, allowed: str) -> None:
    with pytest.raises(SpecError, match=allowed) as refused:
        sf.plan(spec(training=training), {"cloud": 3.0}, minimize=minimise)
    assert refused.value.place == "topology.moves"
