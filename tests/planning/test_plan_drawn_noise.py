"""Plans under Poisson participation count the noise of others who are drawn, as account does."""

from __future__ import annotations

import math

import pytest

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.planning.noise_of_others import counts_noise_of_others
from sfumato.planning.noise_response import global_variance
from sfumato.planning.targets import EpsilonTarget
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import load_spec

pytest.importorskip("cvxpy")

SPEC = {
    "name": "drawn",
    "protocol": "hdp",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 4},
    "training": {
        "rounds": 3, "local_epochs": 1, "batch_size": 5, "learning_rate": 0.2,
        "participation": {"kind": "poisson", "rate": 0.4},
    },
    "privacy": {"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 1.0}},
    "transport": {"devices_to_edge": "secure-aggregation"},
}  # fmt: skip


def with_noise(noise, **more):
    return load_spec(SPEC | more | {"privacy": SPEC["privacy"] | {"noise": noise}})


def worst(spec, kind):
    """The largest ε towards an observer of a device of any edge."""
    units = (f"device:{first}" for first in (0, 4, 8))
    return max(float(sf.account(spec, unit=unit, observer=kind).guarantees[0].epsilon) for unit in units)


def test_one_source_needs_what_calibration_gives_it():
    planned = sf.plan(with_noise({"multiplier": 1.0}), {"public": 2})
    calibrated = resolve(with_noise({"epsilon": 2, "for": "public"}))
    assert global_variance(planned.plan) == pytest.approx(global_variance(calibrated), rel=2e-3)
    assert 2 * (1 - 1e-3) <= worst(planned.spec, "public") <= 2
    assert any("others who are drawn" in note for note in planned.notes)


TRUSTED = {
    "protocol": "h2fdp",
    "trust": {"trusted_edges": [0]},
    "transport": {},
    "training": {k: v for k, v in SPEC["training"].items() if k != "local_epochs"}
    | {"local_steps": 2, "edge_every": 2},
}
"""Edge 0 adds noise itself, and the devices of the others do."""


def test_several_sources_are_never_noisier_than_one_multiplier():
    """Each target holds, one of them binds, and one multiplier that meets them is no quieter."""
    targets = {"public": 1.5, "cloud": 6}
    planned = sf.plan(with_noise({"multiplier": 1.0}, **TRUSTED), targets)
    assert len({source.multiplier for source in planned.sources}) > 1
    reached = {kind: worst(planned.spec, kind) for kind in targets}
    assert all(reached[kind] <= epsilon for kind, epsilon in targets.items())
    assert any(reached[kind] >= epsilon * (1 - 1e-3) for kind, epsilon in targets.items())
    least = global_variance(planned.plan)
    alike = resolve(with_noise({"multiplier": 1.0}, **TRUSTED))
    same = math.sqrt(least / global_variance(alike)) * (1 - 2e-3)
    alike = with_noise({"multiplier": same}, **TRUSTED)
    assert any(worst(alike, kind) > epsilon for kind, epsilon in targets.items())


def test_only_noise_that_is_there_by_chance_scales_a_plan():
    """Where supernodes add the noise, nobody else's is there by chance."""
    edges = with_noise({"multiplier": 1.0, "placement": {"edge": 1.0}})
    assert not counts_noise_of_others(resolve(edges), [EpsilonTarget("public", 2.0)])
    assert counts_noise_of_others(resolve(with_noise({"multiplier": 1.0})), [EpsilonTarget("public", 2.0)])


def test_a_limit_of_noise_is_judged_with_the_noise_of_others():
    """Without it the plan would need more than twice the noise that the limit allows."""
    needed = sf.plan(with_noise({"multiplier": 1.0}), {"public": 2}).noise
    sf.plan(with_noise({"multiplier": 1.0}), {"public": 2, "noise": 1.01 * needed})
    with pytest.raises(SpecError):
        sf.plan(with_noise({"multiplier": 1.0}), {"public": 2, "noise": 0.9 * needed})
