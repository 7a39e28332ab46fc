"""The theorem on clipped links (docs/leakage.md), checked by listing all strategies of small worlds.

No part of the library computes this bound. These tests keep the page true.
"""

import itertools

import numpy as np
import pytest
from audit_worlds import groups_plan
from scipy.optimize import brentq
from scipy.special import ndtr

from sfumato.accounting import pair_guarantee
from sfumato.privacy.losses import gaussian

DELTA = 1e-5


def hockey_stick(p: np.ndarray, q: np.ndarray, gamma: float) -> float:
    """E_gamma of two discrete distributions: what p has beyond gamma times q."""
    return float(np.maximum(p - gamma * q, 0.0).sum())


def of_flips(right: float, rounds: int, gamma: float) -> float:
    """E_gamma of so many bits that are told rightly with this probability, of one bit against the other."""
    told = np.arange(rounds + 1)
    counts = np.array([len(list(itertools.combinations(range(rounds), int(n)))) for n in told])
    p = counts * right**told * (1 - right) ** (rounds - told)
    return hockey_stick(p, p[::-1], gamma)


def degraded(flow: float, link, gamma: float) -> float:
    """The theorem's bound: delta of the flow, and the link's E at another gamma, as a function of it."""
    return flow * link(1 + (gamma - 1) / flow) if flow > 0 else 0.0


def gaussian_delta(mu: float):
    return lambda gamma: float(gaussian.delta(epsilon=float(np.log(gamma)), mu=np.array(mu)))


def strategies_with_feedback(hidden: float, link: float):
    """The observer's two distributions ``[4]`` over (v1, v2), for every strategy of a world of two rounds.

    h1 tells the unit's bit with probability ``hidden``; v1 is a function of h1, told with probability
    ``link``. h2 tells the bit, or its opposite, or nothing, as v1 decides: this is the feedback. v2 is a
    function of h1, h2 and v1, told with probability ``link``.
    """
    tell = np.array([[link, 1 - link], [1 - link, link]])
    of_bit = np.array([[1 - hidden, hidden], [hidden, 1 - hidden]])  # [bit, h]
    second = [of_bit, of_bit[:, ::-1], np.full((2, 2), 0.5)]
    functions = np.array(list(itertools.product((0, 1), repeat=4))).reshape(16, 2, 2)
    for first in itertools.product((0, 1), repeat=2):
        v1 = tell[list(first)]  # [h1, v1]
        seen = []  # for each v1: every choice of h2's kernel and of v2's function
        for one in (0, 1):
            found = []
            for kernel in second:
                joint = of_bit[:, :, None] * v1[None, :, one, None] * kernel[:, None, :]  # [bit, h1, h2]
                found.append(np.einsum("bij,fijv->fbv", joint, tell[functions]))
            seen.append(np.concatenate(found))
        for left, right in itertools.product(*seen):
            yield np.concatenate([left[1], right[1]]), np.concatenate([left[0], right[0]])


@pytest.mark.parametrize(("hidden", "link"), [(0.7, 0.8), (0.9, 0.6), (0.6, 0.95)])
def test_no_strategy_exceeds_the_bound_with_feedback_either(hidden: float, link: float) -> None:
    pairs = np.array(list(strategies_with_feedback(hidden, link)))  # [strategies, 2, outcomes]
    p, q = pairs[:, 0], pairs[:, 1]
    closest = 0.0
    for gamma in (1.0, 1.3, 2.0, 3.0):
        largest = np.maximum(p - gamma * q, 0.0).sum(axis=1).max()
        flow = of_flips(hidden, 2, gamma)
        bound = degraded(flow, lambda at: of_flips(link, 2, at), gamma)
        assert largest <= bound + 1e-12
        assert bound <= flow * of_flips(link, 2, gamma) + 1e-12  # the product that was conjectured
        if bound > 0.01:
            closest = max(closest, largest / bound)
    assert closest > 0.5  # a bound that is far from everything would be no test


def test_the_product_of_one_round_each_is_exceeded_where_two_links_are_charged_as_one() -> None:
    """What the listing would find if the theorem left out a link."""
    pairs = np.array(list(strategies_with_feedback(0.9, 0.6)))
    largest = np.maximum(pairs[:, 0] - 1.3 * pairs[:, 1], 0.0).sum(axis=1).max()
    assert largest > degraded(of_flips(0.9, 2, 1.3), lambda at: of_flips(0.6, 1, at), 1.3)


def test_example_2_at_multiplier_2() -> None:
    """1 -> 3: two hidden releases (mu = sqrt(2)/2), one link of 2c (mu = 1): 0.951 in place of 2.944."""
    flow, link = gaussian_delta(np.sqrt(2) / 2), gaussian_delta(1.0)

    def at(epsilon: float) -> float:
        return degraded(flow(np.exp(epsilon)), link, np.exp(epsilon))

    bound = brentq(lambda epsilon: at(epsilon) - DELTA, 1e-3, 10)
    product = brentq(lambda e: flow(np.exp(e)) * link(np.exp(e)) - DELTA, 1e-3, 10)
    assert bound == pytest.approx(0.9501, abs=1e-4)
    assert product == pytest.approx(2.1454, abs=1e-4)
    topology = {"kind": "groups", "structure": "list", "groups": [[0, 1], [1, 2]]}
    training = {"rounds": 3, "participation": {"kind": "all"}}
    plan = groups_plan(topology=topology, training=training)
    assert pair_guarantee(plan, "device:0", "device:2", delta=DELTA).epsilon == pytest.approx(
        2.9432, abs=1e-4
    )


@pytest.mark.parametrize("epsilon", [0.2, 0.95, 2.0])
def test_a_threshold_attack_attains_the_bound_of_one_link(epsilon: float) -> None:
    """The linking worker sends +c above the threshold whose likelihood ratio is e^epsilon, else -c."""
    mu, gamma = np.sqrt(2) / 2, np.exp(epsilon)
    threshold = epsilon / mu + mu / 2
    above = ndtr(mu - threshold), ndtr(-threshold)  # with the unit, without
    # mixtures of N(1/2, 1) and N(-1/2, 1): the observer guesses "with" where y exceeds some value
    y = np.linspace(-10, 20, 300_001)

    def beyond(share: float) -> np.ndarray:
        return share * ndtr(0.5 - y) + (1 - share) * ndtr(-0.5 - y)

    attained = float((beyond(above[0]) - gamma * beyond(above[1])).max())
    bound = degraded(gaussian_delta(mu)(gamma), gaussian_delta(1.0), gamma)
    assert attained == pytest.approx(bound, rel=1e-6)
