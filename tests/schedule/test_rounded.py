"""Messages that are rounded once they are noised: what of the noise still counts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sfumato.privacy.observers import Party
from sfumato.privacy.release import Release
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec

BITS = {"kind": "rand-k", "ratio": 1, "bits": 4}
CLOUD, PUBLIC = Party("node", 0, 0), Party("public")


def _plan(**sections: Any) -> TreePlan:
    document: dict[str, Any] = {
        "name": "rounded",
        "protocol": "h2fdp",
        "data": {"source": "synthetic", "examples_per_device": 20},
        "model": {"kind": "softmax"},
        "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 4},
        "trust": {"trusted_edges": [1]},
        "training": {"rounds": 3, "local_steps": 2, "batch_size": 5, "learning_rate": 0.1},
        "compression": BITS,
        "privacy": {"delta": 1e-5, "clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 3.0}},
    }
    return resolve_tree(Spec.model_validate(document | sections))


def _met(plan: TreePlan, unit: int, observer: Party) -> Release:
    (release,) = plan.releases.exposures(unit, (observer,))[0].releases
    return release


def _multiplier(release: Release) -> float:
    return math.sqrt(release.variance) / release.own_sensitivity


@pytest.mark.parametrize("observer", [CLOUD, PUBLIC, Party("device", 0, 1), Party("node", 1, 0)])
def test_a_device_that_adds_noise_has_its_own_and_no_other(observer: Party) -> None:
    assert _multiplier(_met(_plan(), 0, observer)) == pytest.approx(3.0)


def test_under_a_trusted_edge_the_edges_noise_counts_and_no_devices() -> None:
    plan = _plan()
    assert _multiplier(_met(plan, 4, CLOUD)) == pytest.approx(3.0)
    assert _multiplier(_met(plan, 4, PUBLIC)) == pytest.approx(3.0)  # nothing of the other edge's devices
    both = _plan(trust={"trusted_edges": [0, 1]})
    assert not both.releases.rounds_after_noise  # nobody rounds noise: what is rounded keeps its bound
    assert _multiplier(_met(both, 4, PUBLIC)) == pytest.approx(3.0 * math.sqrt(2))


def test_without_rounding_noise_of_all_adds_up() -> None:
    plan = _plan(compression={"kind": "rand-k", "ratio": 1})
    assert not any("round" in note for note in plan.notes)
    assert _multiplier(_met(plan, 0, CLOUD)) == pytest.approx(3.0 * 2)
    assert any("taken apart" in note for note in _plan().notes)


def test_nothing_is_amplified_by_a_draw() -> None:
    training = {
        "rounds": 3,
        "local_steps": 2,
        "batch_size": 5,
        "learning_rate": 0.1,
        "participation": {"kind": "fixed", "count": 2},
    }
    rounded, floats = _plan(training=training), _plan(training=training, compression=None)
    assert not _met(rounded, 0, PUBLIC).noise_is_draw_independent
    assert _met(floats, 0, PUBLIC).noise_is_draw_independent


def test_no_bound_on_sums_of_hidden_messages() -> None:
    training = {"rounds": 3, "local_steps": 4, "edge_every": 2, "batch_size": 5, "learning_rate": 0.1}
    for compression, finite in ((BITS, False), (None, True)):
        flow, cut, *_ = _plan(training=training, compression=compression).releases.exposures(0, (CLOUD,))
        assert all(math.isfinite(release.propagated_sensitivity) for release in flow.releases)
        assert all(math.isfinite(release.propagated_sensitivity) for release in cut.releases) == finite
