"""Kinds of observers stand for the right pairs, in trees and in groups."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from places import ROOT, TESTS

from sfumato.accounting import pair_guarantee
from sfumato.schedule.observers import is_of_kind
from sfumato.schedule.resolve import resolve
from sfumato.schedule.watch import worst_pair
from sfumato.spec.load import load_spec

HDP = ROOT / "examples" / "hdp"
RING = TESTS / "spec" / "specs" / "ogl-ring.yaml"


@pytest.mark.parametrize("spec", ["quickstart", RING], ids=["tree", "groups"])
def test_a_peer_is_a_device_under_the_same_edge_or_in_a_common_group(spec) -> None:
    plan = resolve(load_spec(spec))
    peers = [pair for pair in plan.ledger.pair_classes() if is_of_kind(pair, "peer")]
    assert peers
    for pair in peers:
        assert pair.observer.kind == "device"
        if spec == RING:
            mine, other = (
                {g for g, members in enumerate(plan.parties.as_lists()) if device in members}
                for device in (pair.unit, pair.observer.index)
            )
            assert mine & other
        else:
            assert plan.tree.leaf_of(pair.unit) == plan.tree.leaf_of(pair.observer.index)


def test_peers_are_followed_in_groups() -> None:
    plan = resolve(load_spec(RING))
    assert any(is_of_kind(pair, kind) for pair in plan.ledger.pair_classes() for kind in plan.default_watch)


def test_only_who_is_trusted_is_passed_over():
    """A supernode that sees raw updates without being trusted is what a run has to show."""
    for trust, infinite in (("trust={}", True), ("trust={trusted_edges: 1.0}", False)):
        plan = resolve(load_spec(HDP / "c2.yaml", [trust]))
        for name in ("edge", "edge:0"):
            worst = worst_pair(plan, name, partial(pair_guarantee, plan, delta=1e-5))
            epsilon = pair_guarantee(plan, worst.unit, worst.observer, delta=1e-5).epsilon
            assert np.isinf(epsilon) == infinite


def test_an_audit_looks_where_something_is_promised():
    plan = resolve(load_spec(HDP / "c2.yaml"))
    worst = worst_pair(plan, "edge", partial(pair_guarantee, plan, delta=1e-5), bounded=True)
    assert np.isfinite(pair_guarantee(plan, worst.unit, worst.observer, delta=1e-5).epsilon)
