"""Charges compared quickly: what is left out of a comparison changes none of them."""

import math
from random import Random

import pytest

from sfumato.privacy.charges import Composition, smallest_epsilon
from sfumato.privacy.dominance import (
    Ways,
    approximate_size,
    are_ways_at_most,
    chains,
    is_at_most,
    monotone_figures,
    undominated,
)
from sfumato.privacy.sampling import GaussianTerm, Sampling


def random_way(rng: Random) -> Composition:
    terms = [
        GaussianTerm(rng.choice([0.0, 0.5, 1.0, 2.0, math.inf]), rng.choice([1, 3]))
        for _ in range(rng.choice([0, 1]))
    ]
    for _ in range(rng.choice([0, 1, 1, 2])):
        population = rng.choice([4, 8, 20])
        draw = rng.choice(
            [
                Sampling.revealed(2 / population),
                Sampling.without_replacement(population, 2, (2.0, 1.0)),
                Sampling.poisson(2 / population),
                Sampling.of_batches([(2 / population, 1.0, 1.0)], shares_a_part=False),
            ]
        )
        terms.append(GaussianTerm(rng.choice([0.0, 0.8, 1.0, 3.0]), rng.choice([2, 5]), draw))
    failure = rng.choice([0.0, 0.0, 1e-6])
    return Composition(tuple(terms), rng.choice(["zero-out", "replace"]), "", failure)


def random_ways(rng: Random) -> Ways:
    return tuple(random_way(rng) for _ in range(rng.randint(1, 3)))


@pytest.mark.parametrize("seed", range(5))
def test_what_is_at_most_another_has_no_larger_figure(seed: int) -> None:
    rng, under = Random(f"figures/{seed}"), 0
    every = [random_ways(rng) for _ in range(60)]
    for one in every:
        for other in every:
            if one is not other and are_ways_at_most(one, other):
                under += 1
                assert all(
                    mine <= theirs
                    for mine, theirs in zip(monotone_figures(one), monotone_figures(other), strict=True)
                )
    assert under > 20


def test_a_way_whose_draw_is_seen_does_not_veil_one_whose_draw_is_hidden() -> None:
    """The charge of a hidden draw is larger, and so is a figure, though a seen draw has less of each."""
    quiet, loud = (
        (
            Composition((GaussianTerm(9.0, 2, Sampling.revealed(0.1)),), "zero-out", ""),
            Composition((GaussianTerm(noise, 2, Sampling.without_replacement(20, 2)),), "zero-out", ""),
        )
        for noise in (2.0, 1.0)
    )
    assert are_ways_at_most(quiet, loud)
    assert not are_ways_at_most(loud, quiet)
    pairs = [*zip(monotone_figures(loud), monotone_figures(quiet), strict=True)]
    assert any(mine > theirs for mine, theirs in pairs)
    assert all(mine >= theirs for mine, theirs in pairs)


@pytest.mark.parametrize("seed", range(5))
def test_chains_are_those_of_comparing_every_charge_with_every_end(seed: int) -> None:
    rng = Random(f"chains/{seed}")
    every = [random_ways(rng) for _ in range(60)]

    def is_under(one: int, other: int) -> bool:
        return are_ways_at_most(every[one], every[other])

    sizes = [*map(approximate_size, every)]
    found = chains(sizes, [*map(monotone_figures, every)], is_under)
    assert found == chains(sizes, [[0.0]] * len(every), is_under)
    assert sorted(number for chain in found for number in chain) == list(range(60))
    assert max(map(len, found)) > 1


@pytest.mark.parametrize("seed", range(5))
def test_ways_that_are_left_out_have_one_that_is_at_most_them(seed: int) -> None:
    rng, dropped = Random(f"undominated/{seed}"), 0
    for _ in range(100):
        ways = random_ways(rng)
        ways += rng.choice([(), ways[:1]])  # equal ones
        left = undominated(ways)
        dropped += len(ways) - len(left)
        assert all(any(is_at_most(one, way) for one in left) for way in ways)
        assert not any(is_at_most(a, b) for a in left for b in left if a is not b)
    assert dropped > 20


def test_the_smallest_epsilon_of_what_is_left_is_that_of_all() -> None:
    draws = [Sampling.revealed(n) for n in (0.1, 0.3)]
    ways = tuple(
        Composition((GaussianTerm(m, 5, draw),), "zero-out", "") for m in (1.0, 2.0) for draw in draws
    )
    left = undominated(ways)
    assert left == (ways[2],)
    assert smallest_epsilon(left, 0, delta=1e-5).epsilon == smallest_epsilon(ways, 0, delta=1e-5).epsilon
