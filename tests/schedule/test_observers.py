"""Kinds of observers stand for the right pairs, in trees and in groups."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from places import ROOT, TESTS

from sfumato.accounting import account, pair_guarantee
from sfumato.errors import SpecError
from sfumato.privacy.observers import Relation
from sfumato.schedule.resolve import resolve
from sfumato.schedule.rows.observers import is_of_kind
from sfumato.schedule.rows.watch import worst_pair
from sfumato.spec.load import load_spec

HDP = ROOT / "examples" / "hdp"
RING = TESTS / "spec" / "specs" / "ogl-ring.yaml"


@pytest.mark.parametrize("spec", ["quickstart", RING], ids=["tree", "groups"])
def test_a_peer_is_a_device_under_the_same_edge_or_in_a_common_group(spec) -> None:
    plan = resolve(load_spec(spec))
    peers = [pair for pair in plan.releases.pair_classes() if is_of_kind(pair, "peer")]
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
    assert any(is_of_kind(pair, kind) for pair in plan.releases.pair_classes() for kind in plan.default_watch)


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


@pytest.mark.parametrize("spec", ["quickstart", "three-tier", "dp-fedavg", RING], ids=str)
def test_an_edge_is_above_the_unit_or_elsewhere(spec) -> None:
    """``edge`` is the two others together; an own edge is on the unit's path, or a master of its groups."""
    plan = resolve(load_spec(spec))
    for pair in plan.releases.pair_classes():
        kinds = {kind for kind in ("own-edge", "other-edge", "edge") if is_of_kind(pair, kind)}
        party = pair.observer
        if party.kind != "node" or party.tier == 0:
            assert kinds == set()
        elif spec == RING:
            own = pair.unit in plan.parties.as_lists()[party.index]
            assert kinds == {"edge", "own-edge" if own else "other-edge"}
        else:
            own = plan.tree.paths[plan.tree.leaf_of(pair.unit)][party.tier] == party.index
            assert kinds == {"edge", "own-edge" if own else "other-edge"}


@pytest.mark.parametrize("spec", ["quickstart", "three-tier", "dp-fedavg", RING], ids=str)
def test_a_device_is_a_peer_or_another_device(spec) -> None:
    """A peer is under the unit's edge, or in one of its groups."""
    plan = resolve(load_spec(spec))
    for pair in plan.releases.pair_classes():
        kinds = {kind for kind in ("peer", "other-device", "device") if is_of_kind(pair, kind)}
        party = pair.observer
        if party.kind != "device":
            assert kinds == set()
            continue
        if spec == RING:
            near = any({pair.unit, party.index} <= set(group) for group in plan.parties.as_lists())
        else:
            near = plan.tree.leaf_of(pair.unit) == plan.tree.leaf_of(party.index)
        assert kinds == {"device", "peer" if near else "other-device"}


@pytest.mark.parametrize("spec", ["quickstart", "three-tier", "dp-fedavg", RING], ids=str)
def test_a_relation_is_read_from_its_words_as_it_was(spec) -> None:
    """Folders that were written before rows said ``observer_kind`` have the words only."""
    plan = resolve(load_spec(spec))
    found = {pair.relation for pair in plan.releases.pair_classes()}
    assert {Relation.of_words(relation.words) for relation in found} == found
    assert {Relation.of_words(words).kind for words in ("asked for", "")} == {"asked-for"}


@pytest.mark.parametrize(
    ("spec", "changes", "raw"),
    [
        ("quickstart", [], 120),
        ("quickstart", ["trust.trusted_edges=1.0"], 200),
        ("quickstart", ["trust.trusted_edges=0.0"], 0),
        ("three-tier", [], 4),
        ("dp-fedavg", ["topology.devices=20"], 0),
        (HDP / "c2.yaml", [], 0),
        (HDP / "c5.yaml", ["trust.trusted_edges=1.0"], 0),
        (HDP / "c5.yaml", ["trust.trusted_edges=1.0", "transport={}"], 50),
        (HDP / "c2.yaml", ["trust.trusted_edges=0.5"], 50),
        (HDP / "c1.yaml", ["trust.trusted_edges=[3]", "transport={}"], 0),
        (RING, [], 100),
    ],
)
def test_devices_that_are_raw_to_a_trusted_edge_are_counted(spec, changes, raw) -> None:
    """As many as the devices whose row towards their own, trusted edge has no guarantee."""
    loaded = load_spec(spec, changes)
    assert resolve(loaded).raw_to_trusted_edge == raw
    if spec == RING:
        return  # a worker has two masters, each with a row
    if not resolve(loaded).classes_share_trust:
        assert not any(row.trusted for row in account(loaded).guarantees)
        return
    lowest = [row for row in account(loaded).guarantees if row.relation.words in ("own edge", "own cabinet")]
    assert sum(row.stands_for for row in lowest if row.trusted and np.isinf(row.epsilon)) == raw


def test_a_class_of_which_some_trust_their_edge_is_not_passed_over() -> None:
    """Noise placed by zone makes edges alike that are not trusted alike: those untrusted see raw updates."""
    for trusted in ([0], [9]):
        plan = resolve(load_spec(HDP / "c2.yaml", [f"trust.trusted_edges={trusted}"]))
        assert not plan.classes_share_trust
        worst = worst_pair(plan, "edge", partial(pair_guarantee, plan, delta=1e-5))
        assert np.isinf(pair_guarantee(plan, worst.unit, worst.observer, delta=1e-5).epsilon)


KINDS = {
    "name": "kinds",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 2},
    "trust": {"trusted_edges": [1]},
    "training": {"rounds": 1, "steps_per_round": 2, "batch_size": 5, "learning_rate": 0.2, "edge_every": 1},
    "privacy": {"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 1.0}},
}


@pytest.mark.parametrize("kind", ["own-edge", "other-edge", "edge", "peer", "other-device", "device"])
def test_an_account_towards_a_kind_has_its_rows_of_the_whole_account(kind):
    spec = load_spec(KINDS)
    whole = account(spec)
    relations = {
        "own-edge": {"own edge"},
        "other-edge": {"edge elsewhere"},
        "edge": {"own edge", "edge elsewhere"},
        "peer": {"peer"},
        "other-device": {"device elsewhere"},
        "device": {"peer", "device elsewhere"},
    }[kind]
    wanted = [row for row in whole.guarantees if row.relation.words in relations and not row.trusted]
    assert list(account(spec, observer=kind).guarantees) == wanted
    of_one = account(spec, unit="device:0", observer=kind).guarantees
    assert {row.unit for row in of_one} == {"device:0"}
    assert max(row.epsilon for row in of_one) <= max(row.epsilon for row in wanted)
    assert {row.unit for row in wanted} > {"device:0"} or kind == "own-edge"


def test_a_kind_that_all_trust_is_shown_as_trusted_and_one_of_nobody_is_refused():
    rows = account(load_spec(KINDS, ["trust.trusted_edges=1.0"]), observer="own-edge").guarantees
    assert rows
    assert all(row.trusted and row.epsilon == math.inf for row in rows)
    star = load_spec("dp-fedavg")
    with pytest.raises(SpecError, match=r"own-edge.*stands for nobody"):
        account(star, observer="own-edge")
