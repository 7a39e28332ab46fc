"""Rows of unequal trees that stand for several kinds of pairs: none has a larger ε than its row."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.accounting import PrivacyReport
from sfumato.privacy.accountant import compose
from sfumato.privacy.charges import Composition
from sfumato.privacy.dominance import is_at_most
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.sampling import GaussianTerm, Sampling
from sfumato.privacy.tree import folded_pairs
from sfumato.privacy.tree.folded_pairs import Chains
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import load_spec

TREE: dict[str, Any] = {
    "name": "unequal",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {"kind": "tree", "edges": 5, "devices_per_edge": [2, 3, 5, 5, 6]},
    "trust": {"trusted_edges": [1, 3]},
    "training": {"rounds": 2, "local_steps": 4, "edge_every": 2, "batch_size": 5, "learning_rate": 0.2},
    "privacy": {"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 1.5}},
}
TRUSTED = TREE | {"trust": {"trusted_edges": [0, 1, 2, 3, 4]}}


def training(**more: Any) -> dict[str, Any]:
    return {"training": TREE["training"] | more}


THREE_TIERS = TREE | {
    "protocol": "h2fdp",
    "topology": {"kind": "tree", "levels": [2, 3, 3], "names": ["region", "cabinet"]},
    "trust": {"trusted": ["region:0", "cabinet:1"]},
    "training": {
        "rounds": 2, "local_steps": 20, "aggregate_every": [10, 5], "batch_size": 16, "learning_rate": 0.1
    },
}  # fmt: skip
SPECS = {
    "all": TREE,
    "replaced": TREE | {"privacy": TREE["privacy"] | {"neighbours": "replace"}},
    "resent": TREE | training(global_step="resend"),
    "masked": TREE | {"transport": {"devices_to_edge": "secure-aggregation"}},
    "hidden steps": TREE | training(edge_every=1),
    "fixed": TRUSTED | training(participation={"kind": "fixed", "count": 2}),
    "poisson": TRUSTED | training(participation={"kind": "poisson", "rate": 0.3}),
}
SLOW = {"fixed", "poisson"}
ZONES = TREE | {
    "protocol": "hdp",
    "trust": {"trusted_edges": [0]},
    "transport": {"devices_to_edge": "secure-aggregation"},
    "training": {"rounds": 2, "local_steps": 2, "batch_size": 5, "learning_rate": 0.2},
    "privacy": TREE["privacy"] | {"noise": {"multiplier": 1.5, "placement": {"device": 1.0}}},
}


def accounts(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> tuple[PrivacyReport, PrivacyReport]:
    """Pair by pair, and with as few rows as possible."""
    spec = load_spec(document)
    monkeypatch.setattr(folded_pairs, "MOST_CLASSES", 10_000)
    one_by_one = sf.account(spec)
    monkeypatch.setattr(folded_pairs, "MOST_CLASSES", 1)
    return one_by_one, sf.account(spec)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in SPECS])
def test_rows_stand_for_all_pairs_and_none_of_these_has_a_larger_epsilon(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one, folded = accounts(SPECS[name], monkeypatch)
    assert len(folded.guarantees) < len(one_by_one.guarantees)
    of: defaultdict[str, list[Any]] = defaultdict(list)
    for row in one_by_one.guarantees:
        of[row.relation.words].append(row)
    exact = {(row.unit, row.observer): row.epsilon for row in one_by_one.guarantees}
    for words, pairs in of.items():
        rows = [row for row in folded.guarantees if row.relation.words == words]
        assert sum(row.stands_for for row in rows) == sum(pair.stands_for for pair in pairs)
        assert sum(row.kinds for row in rows) == len(pairs)
        least = [row.epsilon_range[0] if row.epsilon_range else row.epsilon for row in rows]
        assert min(least) == pytest.approx(min(pair.epsilon for pair in pairs), rel=1e-3)
        assert max(row.epsilon for row in rows) == pytest.approx(max(p.epsilon for p in pairs), rel=1e-3)
        for row in rows:
            assert row.epsilon == exact.get((row.unit, row.observer), row.epsilon)
        raw = [sum(row.stands_for for row in some if row.trusted) for some in (rows, pairs)]
        assert raw[0] == raw[1]


def test_the_least_epsilon_of_a_row_is_known_where_it_is_the_largest_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is computed in trees, and so told from rows of which only the worst pair was charged."""
    _, folded = accounts(TREE, monkeypatch)
    several = [row for row in folded.guarantees if row.kinds > 1]
    assert any(row.epsilon_range is None for row in several)
    for row in several:
        read = Guarantee.from_dict(row.to_dict(), row.delta)
        least = row.epsilon if row.epsilon_range is None else row.epsilon_range[0]
        assert row.least_known == read.least_known == least


def test_no_pair_of_a_chain_has_a_larger_epsilon_than_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pair of every chain, one by one: the worst first."""
    spec, chains = load_spec(TREE), []
    worst_of = folded_pairs._worst_of
    monkeypatch.setattr(folded_pairs, "_worst_of", lambda chain: chains.append(chain) or worst_of(chain))
    monkeypatch.setattr(folded_pairs, "MOST_CLASSES", 1)
    report = sf.account(spec)
    name = report.plan.releases.party_name
    lengths = []
    for chain in chains:
        spent = [report.epsilon(f"device:{pair.unit}", name(pair.observer)) for pair in chain]
        lengths.append(len(spent))
        assert all(after <= before * (1 + 1e-9) for before, after in pairwise(spent))
    assert max(lengths) > 2


def test_a_pair_that_is_asked_for_is_charged_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one, folded = accounts(TREE, monkeypatch)
    for row in one_by_one.guarantees:
        assert folded.epsilon(row.unit, row.observer) == row.epsilon


def test_named_sites_keep_rows_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = [{"name": name, "devices": n} for name, n in (("Ulm", 2), ("Bonn", 3), ("Kiel", 4))]
    document = TREE | {"topology": {"kind": "tree", "sites": sites}, "trust": {}}
    one_by_one, folded = accounts(document, monkeypatch)
    assert len(folded.guarantees) < len(one_by_one.guarantees)
    assert {row.sites for row in folded.guarantees} == {row.sites for row in one_by_one.guarantees}
    wanted = {(row.sites, row.relation.words): row.epsilon for row in one_by_one.guarantees}
    for row in folded.guarantees:
        assert row.epsilon >= wanted[row.sites, row.relation.words] * (1 - 1e-9)


@pytest.mark.parametrize("document", [THREE_TIERS, ZONES])
def test_rows_do_not_fold_where_noise_does_not_tell_who_is_trusted(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trusted observers and others would share a row: with noise placed by hand, in deeper trees."""
    one_by_one, folded = accounts(document, monkeypatch)
    assert [row.epsilon for row in folded.guarantees] == [row.epsilon for row in one_by_one.guarantees]


def test_observers_do_not_fold_where_sets_of_releases_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set is chosen by its cost, which does not follow the noise that an observer knows."""
    participation = {"kind": "fixed", "count": 2}
    spec = load_spec(TRUSTED | training(edge_every=1, participation=participation))
    monkeypatch.setattr(folded_pairs, "MOST_CLASSES", 1)
    releases = resolve(spec).releases
    assert sum(step.tier > 0 for step in releases.steps) > 1
    asked = list(releases.pair_classes(every_unit=True))
    assert [pair.observer for pair in asked] == [pair.observer for pair in releases._pairs.of(None)]


def test_few_classes_are_not_folded() -> None:
    document = TREE | {"topology": {"kind": "tree", "edges": 3, "devices_per_edge": [2, 3, 4]}}
    assert all(row.kinds == 1 for row in sf.account(load_spec(document | {"trust": {}})).guarantees)


def charge(multiplier: float, sampling: Sampling | None, count: int = 3) -> Composition:
    return Composition((GaussianTerm(multiplier, count, sampling),), "zero-out", "")


LADDERS = {
    "noise": [charge(m, None) for m in (1.0, 1.1, 2.0)],
    "seen": [charge(1.0, Sampling.revealed(q)) for q in (0.9, 0.5, 0.1)],
    "poisson": [charge(1.0, Sampling.poisson(q)) for q in (0.9, 0.5, 0.1)],
    "poisson, replaced": [charge(1.0, Sampling.poisson(q, apart=0.5)) for q in (0.9, 0.5, 0.1)],
    "fixed": [charge(1.0, Sampling.without_replacement(n, 2, (2.0, 1.0))) for n in (3, 5, 50)],
}


@pytest.mark.parametrize("name", LADDERS)
def test_what_is_said_to_be_at_most_another_never_has_a_larger_delta(name: str) -> None:
    curves = [compose(one.terms, neighbours="zero-out") for one in LADDERS[name]]
    for before, after in pairwise(LADDERS[name]):
        assert is_at_most(after, before)
        assert not is_at_most(before, after)
    for level in (0.1, 0.5, 1.0, 2.0):
        found = [curve.delta(level) for curve in curves]
        assert all(b <= a * (1 + 1e-6) + 1e-15 for a, b in pairwise(found))


def test_charges_that_cannot_be_compared_are_not() -> None:
    hidden, seen = Sampling.poisson(0.5), Sampling.revealed(0.5)
    assert not is_at_most(charge(1.0, hidden), charge(1.0, seen))
    assert not is_at_most(charge(2.0, Sampling.poisson(0.6)), charge(1.0, hidden))
    assert not is_at_most(charge(1.0, None, count=4), charge(1.0, None, count=3))
    near, far = (Sampling.without_replacement(5, 2, apart) for apart in ((2.0, 1.0), (3.0, 2.0)))
    assert not is_at_most(charge(1.0, near), charge(1.0, far))


def test_draws_of_different_kinds_are_not_compared() -> None:
    """None is said to be at most one of another kind, whatever the rates."""
    kinds = [
        [Sampling.without_replacement(n, 1, (2.0, 1.0)) for n in (2, 6)],
        [Sampling.revealed(q) for q in (0.25, 0.9)],
        [Sampling.poisson(q) for q in (0.25, 0.9)],
        [None],
    ]
    for number, some in enumerate(kinds):
        for others in (*kinds[:number], *kinds[number + 1 :]):
            for one in some:
                assert not any(is_at_most(charge(1.0, one), charge(1.0, other)) for other in others)


def test_certain_releases_are_compared_together() -> None:
    """Of releases that always use the unit only the sum of μ² counts."""
    one, other = (
        Composition(tuple(GaussianTerm(m) for m in multipliers), "zero-out", "")
        for multipliers in ((1.0, 3.0), (2.9, 0.9))
    )
    assert is_at_most(one, other)
    assert not is_at_most(other, one)


def test_chains_of_what_cannot_be_compared() -> None:
    known = np.array([[1.0, 5.0], [2.0, 4.0], [0.5, 4.5], [2.0, 3.0]])
    chains = [chain.tolist() for chain in Chains.of(known).among(np.ones(4, dtype=np.bool_))]
    assert sorted(map(sorted, chains)) == [[0, 2], [1, 3]]
    for chain in chains:
        assert all((known[b] <= known[a]).all() for a, b in pairwise(chain))
