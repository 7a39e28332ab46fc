"""Messages in place of their sum: never less than what the sum tells given the draws."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.privacy.charges import bound_epsilon
from sfumato.privacy.divergence import cheaper_split, messages_of, renyi_2
from sfumato.privacy.losses.gaussian import delta
from sfumato.privacy.release import DrawnReleases, Exposure, Release
from sfumato.privacy.sampling import Sampling

DELTA = 1e-5


def a_sum(*, own: bool, linking: int, variance: float) -> Release:
    """Of messages of norm 1 with noise of ``variance`` each."""
    movers = linking + own
    return Release("", "the sum", float(own), 2.0 * linking, movers * variance, False, linking=linking)


def epsilon(parts, rate, count, neighbours):
    draws = tuple(DrawnReleases(Sampling.poisson(rate), (part,), count * times) for part, times in parts)
    exposure = Exposure("cut", draws, groups_draw_separately=True)
    return bound_epsilon(exposure, delta=DELTA, neighbours=neighbours).epsilon


def exact_delta(epsilon, *, own, linking, variance, rate, neighbours):
    """Of one sum whose draws are seen: with k movers drawn it has the noise of k messages."""
    found = 0.0
    for mine, others in itertools.product(range(own + 1), range(linking + 1)):
        chance = math.comb(linking, others) * rate ** (mine + others)
        chance *= (1 - rate) ** (own - mine + linking - others)
        moved = mine * (2 if neighbours == "replace" else 1) + 2 * others
        if moved:
            found += chance * delta(epsilon=epsilon, mu=moved / math.sqrt((mine + others) * variance))
    return found


@given(
    own=st.booleans(),
    linking=st.integers(1, 6),
    variance=st.floats(0.02, 20),
    rate=st.floats(0.02, 0.98),
    neighbours=st.sampled_from(["zero-out", "replace"]),
)
def test_messages_and_sum_bound_what_a_sum_with_seen_draws_tells(own, linking, variance, rate, neighbours):
    whole = a_sum(own=own, linking=linking, variance=variance)
    for parts in (messages_of(whole), ((whole, 1),)):
        found = epsilon(parts, rate, 1, neighbours)
        told = exact_delta(
            found, own=own, linking=linking, variance=variance, rate=rate, neighbours=neighbours
        )
        assert told <= DELTA * (1 + 1e-6)


@given(
    own=st.booleans(),
    linking=st.integers(1, 6),
    variance=st.floats(0.02, 20),
    rate=st.floats(0.02, 0.98),
    count=st.integers(1, 20),
)
def test_under_replace_messages_never_cost_more(own, linking, variance, rate, count):
    whole = a_sum(own=own, linking=linking, variance=variance)
    together = epsilon(((whole, 1),), rate, count, "replace")
    assert epsilon(messages_of(whole), rate, count, "replace") <= together * (1 + 1e-9)


def test_all_that_moves_the_sum_is_in_the_messages():
    whole = a_sum(own=True, linking=3, variance=0.5)
    (alone, once), (linked, times) = messages_of(whole)
    assert (once, times) == (1, 3)
    assert (alone.own_sensitivity, alone.propagated_sensitivity, alone.variance) == (1, 0, 0.5)
    assert (linked.own_sensitivity, linked.propagated_sensitivity, linked.variance) == (0, 2, 0.5)
    assert (alone.linking, linked.linking) == (0, 1)


@pytest.mark.parametrize(("own", "linking"), [(True, 0), (False, 1), (False, 0)])
def test_one_mover_is_one_message(own, linking):
    whole = a_sum(own=own, linking=linking, variance=1.0)
    assert messages_of(whole) == ((whole, 1),)


def test_the_sum_is_kept_where_it_costs_less():
    whole = a_sum(own=True, linking=1, variance=1.0)
    assert len(cheaper_split(whole, 0.1)) == 2
    assert cheaper_split(whole, 0.99) == ((whole, 1),)
    bare = replace(whole, variance=0.0)
    assert cheaper_split(bare, 0.1) == ((bare, 1),)


def test_renyi_divergence_of_a_mixture():
    assert renyi_2(2.0, 0.3) == pytest.approx(math.log(1 + 0.3 * (math.e**2 - 1)))
    assert renyi_2(2.0, 1.0) == 2.0
    assert renyi_2(0.0, 0.3) == 0.0
    assert renyi_2(math.inf, 0.3) == math.inf
    assert renyi_2(2000.0, 0.5) == pytest.approx(2000 + math.log(0.5))
