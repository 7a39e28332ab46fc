"""Noise for a target where many edges differ: pairs share factors, which are enough and little too much."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest

from sfumato import account
from sfumato.privacy.accountant import composed_epsilon
from sfumato.privacy.charges import Composition
from sfumato.privacy.noise_scale import is_surely_enough, scale_for
from sfumato.privacy.sampling import GaussianTerm, Neighbours, Sampling
from sfumato.schedule.noise import shared_factors
from sfumato.schedule.noise.shared_factors import MOST_EXCESS, FactorsFound
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import load_spec

pytestmark = pytest.mark.usefixtures("coarse_losses")


def random_spec(rng: Random) -> dict[str, Any]:
    """Edges of many sizes, some of them trusted, that draw two or three devices each."""
    edges, count = rng.randint(4, 6), rng.randint(2, 3)
    return {
        "name": "unequal",
        "protocol": "h2fdp",
        "seed": rng.randrange(100),
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {
            "kind": "tree",
            "edges": edges,
            "devices_per_edge": [rng.randint(count, 30) for _ in range(edges)],
        },
        "trust": {"trusted_edges": rng.choice([0.0, 0.5, 1.0])},
        "training": {
            "rounds": rng.randint(2, 6), "local_steps": 4, "edge_every": rng.choice([2, 4]), "batch_size": 5,
            "learning_rate": 0.2, "participation": {"kind": "fixed", "count": count},
        },
        "privacy": {
            "neighbours": rng.choice(["zero-out", "replace"]),
            "clip": {"kind": "update", "norm": 0.5},
            "noise": {"epsilon": rng.choice([1.0, 8.0]), "for": rng.choice(["cloud", "public"])},
        },
    }  # fmt: skip


@pytest.mark.parametrize("specs", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_shared_noise_meets_every_target_and_is_at_most_the_excess_above_what_each_needs(
    specs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Towards the cloud every source serves one edge alone, so its noise is a factor of that edge."""
    rng, shared = Random("shared factors"), 0
    for _ in range(specs):
        document = random_spec(rng)
        document["privacy"]["noise"]["for"] = "cloud"
        own = resolve(load_spec(document)).noise
        monkeypatch.setattr(shared_factors, "MOST_ROOTS", 0)
        monkeypatch.setattr(shared_factors, "MOST_EXCESS", 0.1)
        report = account(load_spec(document), observer="cloud")
        monkeypatch.undo()
        found = report.plan.noise
        for mine, theirs in ((own.device, found.device), *zip(own.node, found.node, strict=True)):
            assert ((mine > 0) == (theirs > 0)).all()
            ratios = theirs[mine > 0] / mine[mine > 0]
            assert (ratios >= 1 - 3e-4).all()
            assert (ratios <= 1.1 * (1 + 1e-3)).all()
            shared += int((ratios > 1 + 1e-3).sum())
        target = document["privacy"]["noise"]["epsilon"]
        spent = [row.epsilon for row in report.guarantees]
        assert max(epsilon for epsilon in spent if math.isfinite(epsilon)) <= target * (1 + 1e-9)
    assert shared >= specs


@pytest.mark.slow
def test_shared_noise_that_several_sources_add_meets_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    document = random_spec(Random("several sources"))
    document["privacy"]["noise"]["for"] = "public"
    monkeypatch.setattr(shared_factors, "MOST_ROOTS", 0)
    report = account(load_spec(document), observer="public")
    assert max(row.epsilon for row in report.guarantees) <= document["privacy"]["noise"]["epsilon"] * (
        1 + 1e-9
    )


def charged(
    multiplier: float,
    *,
    sample: int = 2,
    count: int = 3,
    fails: float = 0.0,
    terms: int = 1,
    neighbours: Neighbours = "zero-out",
) -> Composition:
    term = GaussianTerm(multiplier, count, Sampling.without_replacement(12, sample, (2.0, 1.0)))
    return Composition((term,) * terms, neighbours, "", fails)


def test_pairs_without_noise_are_judged_anew() -> None:
    found = FactorsFound([0.0], ((charged(1.0),),))
    assert not found.are_met_by(((charged(0.0),),))


@pytest.mark.parametrize(
    ("later", "met"),
    [
        (((charged(2.0),), (charged(6.0),)), True),
        (((charged(2.0 * (1 + 1e-13)),), (charged(6.0),)), True),
        (((charged(2.0),), (charged(6.0 * (1 - 1e-10)),)), False),
        (((charged(2.0),), (charged(6.0 * (1 + 1e-6)),)), False),
        (((charged(2.0),), (charged(6.0, sample=3),)), False),
        (((charged(2.0),), (charged(6.0, count=4),)), False),
        (((charged(2.0),), (charged(6.0, fails=1e-9),)), False),
        (((charged(2.0),), (charged(6.0), charged(7.0))), False),
        (((charged(2.0),), (charged(6.0, terms=2),)), False),
        (((charged(2.0),), (charged(6.0, neighbours="replace"),)), False),
        (((charged(2.0),),), False),
    ],
)
def test_factors_are_met_where_every_pair_is_charged_as_with_its_noise_times_its_factor(
    later: tuple[tuple[Composition, ...], ...], met: bool
) -> None:
    found = FactorsFound([2.0, 3.0], ((charged(1.0),), (charged(2.0),)))
    assert found.are_met_by(later) == met


def test_a_trial_that_is_charged_as_the_one_before_foretold_asks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Towards the cloud every source serves one edge: the second trial is the first one times its factors."""
    document = random_spec(Random("asked once"))
    document["privacy"]["noise"]["for"] = "cloud"
    asked, met = list[int](), list[tuple[int, bool]]()
    original = FactorsFound.are_met_by

    def counted(*given: Any, **by_name: Any) -> bool:
        asked.append(1)
        return is_surely_enough(*given, **by_name)

    def noted(found: FactorsFound, ways: Any) -> bool:
        met.append((len(asked), original(found, ways)))
        return met[-1][1]

    monkeypatch.setattr(shared_factors, "MOST_ROOTS", 0)
    monkeypatch.setattr(shared_factors, "is_surely_enough", counted)
    monkeypatch.setattr(FactorsFound, "are_met_by", noted)
    resolve(load_spec(document))
    assert met == [(len(asked), True)]
    assert asked


@pytest.mark.parametrize("observer", ["other-device", "cloud"])
@pytest.mark.parametrize(
    ("sizes", "rounds"), [([3, 5], 2), pytest.param([4, 6, 9], 5, marks=pytest.mark.slow)]
)
def test_pairs_with_draws_of_several_kinds_meet_the_target(
    sizes: list[int], rounds: int, observer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With elected supernodes a pair is charged by fixed draws in one way, by revealed ones in another."""
    document = random_spec(Random("elected"))
    document["topology"] |= {"edges": len(sizes), "devices_per_edge": sizes, "supernodes": "elected"}
    document["training"]["participation"]["count"] = 1
    document["training"]["rounds"] = rounds
    document["trust"] = {"trusted_edges": 0.0}
    document["privacy"]["noise"] = {"epsilon": 8.0, "for": observer}
    monkeypatch.setattr(shared_factors, "MOST_ROOTS", 0)
    report = account(load_spec(document), observer=observer)
    finite = [row.epsilon for row in report.guarantees if math.isfinite(row.epsilon)]
    assert max(finite) <= 8.0 * (1 + 1e-9)


def test_few_different_edges_have_factors_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    document = random_spec(Random("few"))
    wanted = resolve(load_spec(document)).noise
    monkeypatch.setattr(shared_factors, "MOST_EXCESS", 1.0)
    np.testing.assert_array_equal(resolve(load_spec(document)).noise.device, wanted.device)


def test_an_excess_that_is_not_kept_to_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of the first test is one: with another excess it does not hold."""
    document = random_spec(Random("broken"))
    document["privacy"]["noise"] = {"epsilon": 8.0, "for": "cloud"}
    document["topology"] |= {"edges": 3, "devices_per_edge": [4, 12, 30]}
    document["trust"] = {"trusted_edges": 0.0}
    own = resolve(load_spec(document)).noise.device
    monkeypatch.setattr(shared_factors, "MOST_ROOTS", 0)
    monkeypatch.setattr(shared_factors, "MOST_EXCESS", 1.0)
    found = resolve(load_spec(document)).noise.device
    assert (found[own > 0] / own[own > 0]).max() > 1 + 2 * MOST_EXCESS


@pytest.mark.parametrize("population", [4, 40])
def test_what_is_surely_enough_is_enough(population: int) -> None:
    """A factor just above the root is enough on the coarse grid, one just below is not."""
    term = GaussianTerm(1.0, 5, Sampling.without_replacement(population, 2, (2.0, 1.0)))
    way = Composition((term,), "zero-out", "", failure_probability=1e-6)
    root = scale_for([way], epsilon=3.0, delta=1e-5)
    assert is_surely_enough([way], root * 1.005, epsilon=3.0, delta=1e-5)
    assert not is_surely_enough([way], root * 0.995, epsilon=3.0, delta=1e-5)
    assert not is_surely_enough([way], 0.0, epsilon=3.0, delta=1e-5)
    scaled = GaussianTerm(root * 1.005, 5, term.sampling)
    assert composed_epsilon([scaled], "zero-out", 1e-5 - 1e-6)[0] <= 3.0
