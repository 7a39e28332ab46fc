"""A bound that is surely larger than another one of its pair is not composed, and no figure changes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.privacy.accountant import compose, composed_epsilon
from sfumato.privacy.charges import has_larger_epsilon
from sfumato.privacy.declared_releases import PairCharge, bounds_of
from sfumato.privacy.losses.hidden_draws import PrivacyLoss, delta_of_one_release
from sfumato.privacy.release import are_unprotected
from sfumato.privacy.sampling import GaussianTerm, Neighbours, Sampling
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import load_spec

DELTA = 1e-5
DRAWS: dict[str, tuple[Sampling, Neighbours]] = {
    "fixed": (Sampling.without_replacement(12, 2, (2.0, 1.0)), "zero-out"),
    "fixed, replaced": (Sampling.without_replacement(40, 3), "replace"),
    "fixed, heavier others": (Sampling.without_replacement(30, 4, (3.5, 2.5)), "zero-out"),
    "poisson": (Sampling.poisson(0.2), "zero-out"),
    "poisson, replaced": (Sampling.poisson(0.1, apart=0.5), "replace"),
    "everybody": (Sampling.poisson(0.999), "zero-out"),
}


@pytest.mark.parametrize("name", DRAWS)
@settings(max_examples=12, deadline=None)
@given(multiplier=st.floats(0.3, 5.0), count=st.integers(1, 20), epsilon=st.floats(0.0, 8.0))
def test_a_composition_has_at_least_the_delta_of_one_release(
    name: str, multiplier: float, count: int, epsilon: float
) -> None:
    sampling, neighbours = DRAWS[name]
    one = delta_of_one_release(GaussianTerm(multiplier, count, sampling), epsilon)
    other = GaussianTerm(7.0, 3, Sampling.revealed(0.3))
    for terms in (
        [GaussianTerm(multiplier, count, sampling)],
        [GaussianTerm(multiplier, count, sampling), other],
    ):
        assert compose(terms, neighbours=neighbours).delta(epsilon) >= one * (1 - 1e-9)


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize(("multiplier", "epsilon"), [(0.5, 0.3), (1.0, 0.1), (2.0, 0.02), (0.4, 3.0)])
def test_it_is_the_delta_of_a_release_alone(name: str, multiplier: float, epsilon: float) -> None:
    sampling, neighbours = DRAWS[name]
    term = GaussianTerm(multiplier, 1, sampling)
    exact = compose([term], neighbours=neighbours).delta(epsilon)
    assert delta_of_one_release(term, epsilon) == pytest.approx(exact, rel=1e-3)


def test_nothing_is_said_of_other_releases() -> None:
    seen = Sampling.revealed(0.5)
    scaled = Sampling.poisson(0.5, scales=((0.5, 1.0), (0.5, 0.2)))
    batches = Sampling.of_batches([(0.5, 1.0, 1.0)], shares_a_part=False)
    for sampling in (None, seen, scaled, batches, Sampling.poisson(0.0)):
        assert delta_of_one_release(GaussianTerm(0.1, 5, sampling), 0.0) == 0.0
    hidden = Sampling.poisson(0.5)
    assert delta_of_one_release(GaussianTerm(0.0, 1, hidden), 9.0) == 1.0
    assert delta_of_one_release(GaussianTerm(math.inf, 1, hidden), 0.0) == 0.0


def test_a_larger_bound_of_hidden_draws_is_charged_as_seen_only_where_it_may_be_rough() -> None:
    terms = [GaussianTerm(1.0, 15, Sampling.without_replacement(12, 2, (2.0, 1.0)))]
    full = composed_epsilon(terms, "zero-out", DELTA)
    assert full[1] == "pld"
    assert composed_epsilon(terms, "zero-out", DELTA, known=0.5) == full
    told, how = composed_epsilon(terms, "zero-out", DELTA, known=0.5, roughly=True)
    assert how == "gdp"
    assert told >= full[0]
    near, how = composed_epsilon(terms, "zero-out", DELTA, known=0.9 * full[0], roughly=True)
    assert how == "pld"  # one release does not show that it is larger
    assert near == pytest.approx(full[0], rel=0.02)


TREE: dict[str, Any] = {
    "name": "unequal",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {"kind": "tree", "edges": 160, "devices_per_edge": [3, 5, 9, 12] * 40},
    "trust": {"trusted_edges": list(range(160))},
    "training": {
        "rounds": 8, "local_steps": 4, "edge_every": 2, "batch_size": 5, "learning_rate": 0.2,
        "participation": {"kind": "fixed", "count": 2},
    },
    "privacy": {"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 1.5}},
}  # fmt: skip
SPECS = {
    "fixed": TREE,
    "fixed, more noise": TREE | {"privacy": TREE["privacy"] | {"noise": {"multiplier": 4.0}}},
    "replaced": TREE | {"privacy": TREE["privacy"] | {"neighbours": "replace"}},
    "some untrusted": TREE | {"trust": {"trusted_edges": [1]}},
    "one hidden step": TREE | {"training": TREE["training"] | {"edge_every": 4}},
    "many hidden steps": TREE | {"training": TREE["training"] | {"edge_every": 1}},
    "all": TREE | {"training": {k: v for k, v in TREE["training"].items() if k != "participation"}},
}


def charges_of(name: str) -> Iterator[PairCharge]:
    plan = resolve(load_spec(SPECS[name]))
    neighbours = plan.spec.privacy.neighbours
    for pair in plan.releases.pair_classes():
        yield PairCharge.of(plan.releases, "device", pair.unit, (pair.observer,), neighbours=neighbours)


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("name", SPECS)
def test_the_least_epsilon_is_that_of_all_bounds_composed_in_full(
    name: str, rough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TreeReleases, "_most_leaves_alone", 2 if rough else 60)
    for charge in charges_of(name):
        full: dict[str, float] = {
            e.bound_name: charge.releases.bound_epsilon(e, delta=DELTA, neighbours=charge.neighbours).epsilon
            for e in charge.exposures
        }
        assert charge.epsilon(DELTA) == min(full.values())
        bounds = bounds_of(charge.releases, charge.exposures, delta=DELTA, neighbours=charge.neighbours)
        assert list(bounds) == list(full)
        assert min(bound.epsilon for bound in bounds.values()) == min(full.values())
        for bound_name, bound in bounds.items():
            assert bound.epsilon >= full[bound_name]
            assert bound.draws_told == (bound.epsilon > full[bound_name]) or not rough
        assert charge.is_unprotected == are_unprotected(charge.exposures)


def test_both_kinds_of_bounds_are_the_smallest_of_some_pair() -> None:
    """Else it would not be seen if always the same one were left out."""
    smallest = set()
    for charge in charges_of("fixed"):
        flow, cut, _ = (
            charge.releases.bound_epsilon(e, delta=DELTA, neighbours="zero-out").epsilon
            for e in charge.exposures
        )
        smallest.add((flow > cut) - (flow < cut))
    assert {-1, 1} <= smallest


def test_a_larger_flow_of_hidden_draws_is_not_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    composed: list[float] = []
    slow = PrivacyLoss.epsilon

    def counted(self: PrivacyLoss, delta: float) -> float:
        composed.append(delta)
        return slow(self, delta)

    monkeypatch.setattr(PrivacyLoss, "epsilon", counted)
    left = [
        charge
        for charge in charges_of("fixed")
        for flow, cut, *_ in [charge.exposures]
        if flow.hides_a_draw and not cut.hides_a_draw
        if has_larger_epsilon(
            flow,
            charge.releases.bound_epsilon(cut, delta=DELTA, neighbours="zero-out").epsilon,
            delta=DELTA,
            neighbours="zero-out",
        )
    ]
    assert left
    composed.clear()
    for charge in left:
        charge.epsilon(DELTA)
    assert not composed


@pytest.mark.parametrize("name", SPECS)
def test_distinct_exposures_are_some_of_all(name: str) -> None:
    for charge in charges_of(name):
        alike = [each.without_names for each in charge.exposures]
        for exposure in charge.distinct_exposures:
            assert exposure.without_names in alike
        assert charge.distinct_exposures[0].bound_name == "flow"


def test_distinct_exposures_refuse_the_unit_as_an_observer() -> None:
    charge = next(charges_of("all"))
    with pytest.raises(ValueError, match="must not contain the unit"):
        charge.releases.distinct_exposures(
            charge.device, (type(charge.coalition[0])("device", 0, charge.device),)
        )


@pytest.mark.parametrize("name", ["fixed", "fixed, more noise", "replaced", "all"])
def test_no_exposure_is_said_to_be_above_its_own_epsilon(name: str) -> None:
    for charge in charges_of(name):
        how: dict[str, Any] = {"delta": DELTA, "neighbours": charge.neighbours}
        for exposure in charge.distinct_exposures:
            found = charge.releases.bound_epsilon(exposure, **how).epsilon
            if found < math.inf:
                assert not has_larger_epsilon(exposure, found * (1 + 1e-9), **how)
