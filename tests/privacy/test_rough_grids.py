"""Losses composed roughly: never less than on the finer grid, and at most 2 % more."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.planning.certification import _shortfall
from sfumato.planning.targets import EpsilonTarget
from sfumato.privacy import accountant
from sfumato.privacy.accountant import MOST_ABOVE, compose, compose_roughly, composed_epsilon
from sfumato.privacy.charges import Composition, smallest_epsilon
from sfumato.privacy.sampling import GaussianTerm, Neighbours, Sampling
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.spec.load import load_spec

ROUNDING = 1e-9


def terms_of(kind: str, rate: float, multiplier: float, count: int, certain: int) -> list[GaussianTerm]:
    """Drawn releases, and some that always use the unit."""
    draws = {
        "poisson": Sampling.poisson(rate),
        "replaced": Sampling.poisson(rate, apart=0.5),
        "fixed": Sampling.without_replacement(max(2, round(2 / rate)), 2, (2.0, 1.0)),
    }
    sure = [GaussianTerm(2 * multiplier, certain)] if certain else []
    return [GaussianTerm(multiplier, count, draws[kind]), *sure]


@settings(max_examples=8, deadline=None)
@given(
    kind=st.sampled_from(["poisson", "replaced", "fixed"]),
    rate=st.floats(0.005, 0.95),
    multiplier=st.floats(0.3, 10.0),
    count=st.integers(1, 60),
    certain=st.sampled_from([0, 3]),
    delta=st.sampled_from([1e-3, 1e-5, 1e-8]),
)
@example(kind="fixed", rate=0.002, multiplier=0.54, count=15, certain=0, delta=1e-5)
def test_rough_epsilon_is_a_bound_and_at_most_its_share_above(
    kind: str, rate: float, multiplier: float, count: int, certain: int, delta: float
) -> None:
    terms = terms_of(kind, rate, multiplier, count, certain)
    neighbours: Neighbours = "replace" if kind == "replaced" else "zero-out"
    fine = compose(terms, neighbours=neighbours)
    rough = compose_roughly(terms, neighbours=neighbours, delta=delta)
    least, found = fine.epsilon(delta), rough.epsilon(delta)
    assert least * (1 - ROUNDING) <= found <= least * (1 + MOST_ABOVE) + ROUNDING
    if fine.discretization is not None:
        assert rough.discretization is not None
        ratio = rough.discretization / fine.discretization
        assert ratio in (1.0, 2.0, 4.0, 8.0)  # its points are points of the finer grid


@settings(max_examples=6, deadline=None)
@given(rate=st.floats(0.01, 0.9), multiplier=st.floats(0.5, 5.0), count=st.integers(1, 20))
def test_a_grid_adds_at_most_its_interval_for_every_release(
    rate: float, multiplier: float, count: int
) -> None:
    """What the share rests on, for grids far wider than any that is used."""
    terms = terms_of("fixed", rate, multiplier, count, 0)
    least = compose(terms, neighbours="zero-out").epsilon(1e-5)
    for coarser in (16.0, 128.0):
        wide = compose(terms, neighbours="zero-out", coarser=coarser)
        if wide.discretization is not None:
            found = wide.epsilon(1e-5)
            assert least * (1 - ROUNDING) <= found <= least + count * wide.discretization


def test_a_grid_that_would_add_more_than_the_share_is_not_taken() -> None:
    """Few small losses, of draws of 2 of 221: on the widest grid ε is 9 % larger."""
    terms = terms_of("fixed", 2 / 221, 8.0573, 5, 0)
    least = compose(terms, neighbours="zero-out").epsilon(1e-3)
    widest = compose(terms, neighbours="zero-out", coarser=accountant._TIMES_WIDER).epsilon(1e-3)
    assert widest > least * (1 + MOST_ABOVE)
    found = compose_roughly(terms, neighbours="zero-out", delta=1e-3).epsilon(1e-3)
    assert least <= found <= least * (1 + MOST_ABOVE)


@settings(max_examples=25, deadline=None)
@given(
    multiplier=st.floats(1.0, 10.0),
    seen=st.floats(0.01, 0.99),
    hidden=st.floats(0.01, 0.9),
    known=st.floats(0.05, 20.0),
)
def test_draws_are_told_only_where_another_bound_is_surely_smaller(
    multiplier: float, seen: float, hidden: float, known: float
) -> None:
    """Then the smallest bound of the pair stays, and this one is still a bound."""
    terms = (
        GaussianTerm(multiplier, 12, Sampling.revealed(seen)),
        GaussianTerm(multiplier, 12, Sampling.poisson(hidden)),
    )
    exact, _ = composed_epsilon(terms, "zero-out", 1e-5)
    found, method = composed_epsilon(terms, "zero-out", 1e-5, known, roughly=True)
    assert found >= exact * (1 - ROUNDING)
    if exact <= known:
        assert found <= exact * (1 + MOST_ABOVE)
    way = Composition(terms, "zero-out", "", roughly=True)
    bound = smallest_epsilon([way], 24, delta=1e-5, known=known)
    if composed_epsilon(terms[:1], "zero-out", 1e-5)[0] > known * (1 + ROUNDING):
        assert method == "gdp"  # no losses are composed
        assert bound.to_dict()["draws_told"]
    if found > exact * (1 + MOST_ABOVE):
        assert bound.draws_told
    if found <= known:
        assert "draws_told" not in bound.to_dict()


def test_a_bound_is_marked_if_another_way_to_charge_it_is_told_all_draws() -> None:
    """Composed as hidden, the other way might give less than the one that is taken."""
    seen = GaussianTerm(1.0, 20, Sampling.revealed(0.9))
    told = Composition((seen, GaussianTerm(1.0, 20, Sampling.poisson(0.9))), "zero-out", "", roughly=True)
    plain = Composition((GaussianTerm(2.0, 20),), "zero-out", "", roughly=True)
    alone = [smallest_epsilon([way], 20, delta=1e-5, known=1.0) for way in (told, plain)]
    assert alone[0].epsilon > alone[1].epsilon > 1
    assert [bound.draws_told for bound in alone] == [True, False]
    assert smallest_epsilon([told, plain], 20, delta=1e-5, known=1.0).draws_told


UNEQUAL: dict[str, Any] = {
    "name": "unequal",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {"kind": "tree", "edges": 3, "devices_per_edge": [3, 7, 20]},
    "trust": {"trusted_edges": [0]},
    "training": {
        "rounds": 3, "local_steps": 4, "edge_every": 2, "batch_size": 5, "learning_rate": 0.2,
        "participation": {"kind": "fixed", "count": 2},
    },
    "privacy": {"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 1.5}},
}  # fmt: skip


def test_rows_of_very_many_rates_are_composed_roughly(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is below what the finest grid gives, or more than its share above; the grid is stated."""
    spec = load_spec(UNEQUAL)
    fine = sf.account(spec)
    assert not fine.plan.releases.is_composed_roughly  # 3 kinds of edges are few
    monkeypatch.setattr(TreeReleases, "_most_leaves_alone", 1)
    rough = sf.account(spec)
    changed = 0
    for mine, theirs in zip(fine.guarantees, rough.guarantees, strict=True):
        assert (mine.unit, mine.observer) == (theirs.unit, theirs.observer)
        if math.isfinite(mine.epsilon):
            assert mine.epsilon * (1 - ROUNDING) <= theirs.epsilon <= mine.epsilon * (1 + MOST_ABOVE)
        changed += theirs.epsilon != mine.epsilon
        assert rough.epsilon(theirs.unit, theirs.observer) == theirs.epsilon
    assert changed
    stated = [
        [
            bound["losses"]["interval"]
            for row in report.certificates()["rows"]
            for bound in row["bounds"].values()
        ]
        for report in (fine, rough)
    ]
    assert {after / before for before, after in zip(*stated, strict=True) if before} <= {2.0, 4.0, 8.0}


def test_noise_for_a_target_meets_it_in_rows_that_are_composed_roughly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TreeReleases, "_most_leaves_alone", 1)
    noise = {"epsilon": 8.0, "for": "cloud"}
    spec = load_spec(UNEQUAL | {"privacy": UNEQUAL["privacy"] | {"noise": noise}})
    rows = sf.account(spec, observer="cloud").guarantees
    assert 7.9 <= max(row.epsilon for row in rows) <= 8.0 * (1 + ROUNDING)


def test_a_plan_lacks_noise_where_only_the_rough_epsilon_of_a_row_is_above_its_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The factor that such a row needs is looked for on finer grids, where it needs none."""
    noise = {"multiplier": 1.6}  # of this test alone, as compositions are kept
    spec = load_spec(UNEQUAL | {"privacy": UNEQUAL["privacy"] | {"noise": noise}})
    exact = max(row.epsilon for row in sf.account(spec, observer="cloud").guarantees)
    monkeypatch.setattr(TreeReleases, "_most_leaves_alone", 1)
    monkeypatch.setattr(accountant, "_TIMES_WIDER", 512.0)
    monkeypatch.setattr(accountant, "MOST_ABOVE", 1.0)
    report = sf.account(spec, observer="cloud")
    rough = max(row.epsilon for row in report.guarantees)
    assert rough > exact * (1 + 5e-4)
    target = EpsilonTarget("cloud", math.sqrt(rough * exact))
    factor, missed = _shortfall(report.plan, [target])
    assert missed
    assert factor > 1


@settings(max_examples=15, deadline=None)
@given(
    kind=st.sampled_from(["poisson", "replaced", "fixed"]),
    rate=st.floats(0.01, 0.9),
    multiplier=st.floats(0.4, 6.0),
    count=st.integers(1, 60),
    certain=st.sampled_from([0, 3]),
    share=st.floats(0.5, 1.5),
    coarser=st.sampled_from([1.0, 16.0]),
)
def test_whether_an_epsilon_is_enough_is_told_as_by_computing_its_delta(
    kind: str, rate: float, multiplier: float, count: int, certain: int, share: float, coarser: float
) -> None:
    terms = terms_of(kind, rate, multiplier, count, certain)
    neighbours: Neighbours = "replace" if kind == "replaced" else "zero-out"
    epsilon = share * compose(terms, neighbours=neighbours, coarser=coarser).epsilon(1e-5)
    asked, slow = (compose(terms, neighbours=neighbours, coarser=coarser) for _ in range(2))
    found = slow.delta(epsilon)
    for delta in (1e-5, found * (1 - 1e-9), found * (1 + 1e-9)):
        assert delta in (0.0, 1.0) or asked.is_within(epsilon, delta) == (found <= delta)
