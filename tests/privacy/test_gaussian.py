"""The closed forms against independent quadrature, each other and dp_accounting."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special

from sfumato.privacy.losses import gaussian

MUS = st.floats(math.log(1e-6), math.log(1e4)).map(math.exp)
DELTAS = st.floats(math.log(1e-15), math.log(0.5)).map(math.exp)
EPSILONS = st.floats(0, 1e8) | st.floats(0, 10)


def test_delta_by_hand():
    # μ = 2, ε = 0: the total variation distance of N(0, 1) and N(2, 1), 2 Φ(1) − 1
    assert gaussian.delta(epsilon=0.0, mu=2.0) == pytest.approx(0.6826894921370859, rel=1e-14)


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("surprise", [-1.0, 0.5, 3.0, 6.0])
def test_delta_is_the_integral_of_phi_over_mu(mu, surprise):
    epsilon = max(0.0, mu * mu / 2 + surprise * mu)

    def density(m):
        return math.exp(-((m / 2 - epsilon / m) ** 2) / 2) / math.sqrt(2 * math.pi)

    # dδ/dμ = φ(μ/2 − ε/μ), which is negligible but on the last few units (or per cents) of μ
    value, _ = integrate.quad(density, 1e-12 * mu, mu, epsabs=0, epsrel=1e-12, limit=500, points=[0.9 * mu])
    assert gaussian.delta(epsilon=epsilon, mu=mu) == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize(
    ("mu", "delta", "epsilon"),
    [  # by root finding in 60-digit arithmetic (mpmath)
        (1e-06, 1e-15, 5.69907383194314e-06),
        (1e-06, 1e-08, 1.938356675940721e-06),
        (0.001, 1e-05, 0.00193872496986011),
        (1.0, 1e-15, 8.165579695504254),
        (1.0, 0.1, 1.1603338527916172),
        (8.629, 0.001, 63.04262359354343),
        (30.0, 0.5, 449.00036922447106),
        (10000.0, 1e-15, 50079412.45365857),
        (10000.0, 0.5, 49999999.0),
    ],
)
def test_epsilon_at_the_edges(mu, delta, epsilon):
    assert gaussian.epsilon(delta=delta, mu=mu) == pytest.approx(epsilon, rel=1e-9)
    assert gaussian.delta(epsilon=epsilon, mu=mu) == pytest.approx(delta, rel=1e-8)
    assert gaussian.mu(epsilon=epsilon, delta=delta) == pytest.approx(mu, rel=1e-9)


@given(mu=MUS, delta=DELTAS)
def test_epsilon_and_delta_are_inverse(mu, delta):
    epsilon = gaussian.epsilon(delta=delta, mu=mu)
    back = gaussian.delta(epsilon=epsilon, mu=mu)
    if epsilon > 0:
        assert back == pytest.approx(delta, rel=1e-8)
    else:
        assert back <= delta * (1 + 1e-8)


@given(epsilon=EPSILONS, delta=DELTAS)
def test_mu_is_the_inverse_too(epsilon, delta):
    mu = gaussian.mu(epsilon=epsilon, delta=delta)
    assert gaussian.delta(epsilon=epsilon, mu=mu) == pytest.approx(delta, rel=1e-6)


@given(mu=MUS, delta=DELTAS, more=st.floats(1.001, 10))
def test_epsilon_grows_with_mu_and_falls_with_delta(mu, delta, more):
    epsilon = gaussian.epsilon(delta=delta, mu=mu)
    larger = gaussian.epsilon(delta=delta, mu=mu * more)
    assert larger > epsilon or larger == epsilon == 0
    assert gaussian.epsilon(delta=min(delta * more, 0.9), mu=mu) <= epsilon


def test_arrays_are_the_scalars_one_by_one():
    mus = np.array([[0.0, 1e-6, 0.3], [1.0, 20.0, math.inf]])
    deltas = np.array([1e-5, 1e-9, 0.1])
    epsilons = gaussian.epsilon(delta=deltas, mu=mus)
    assert epsilons.shape == (2, 3)
    for place in np.ndindex(2, 3):
        alone = gaussian.epsilon(delta=float(deltas[place[1]]), mu=float(mus[place]))
        assert epsilons[place] == pytest.approx(alone, rel=1e-12)
    back = gaussian.delta(epsilon=epsilons, mu=mus)
    assert back[1, 1] == pytest.approx(1e-9)
    assert gaussian.mu(epsilon=epsilons[1, :2], delta=deltas[:2]) == pytest.approx(mus[1, :2])


def test_nothing_and_everything():
    assert gaussian.epsilon(delta=1e-5, mu=0.0) == 0
    assert gaussian.epsilon(delta=1e-5, mu=math.inf) == math.inf
    assert gaussian.delta(epsilon=0.0, mu=0.0) == 0
    assert gaussian.delta(epsilon=1e6, mu=math.inf) == 1
    assert gaussian.delta(epsilon=math.inf, mu=3.0) == 0
    assert gaussian.delta(epsilon=5.0, mu=1e-310) == 0
    assert gaussian.epsilon(delta=1e-5, mu=1e200) == math.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gaussian.delta(epsilon=-1.0, mu=1.0), "epsilon: got -1.0; must be >= 0"),
        (lambda: gaussian.delta(epsilon=1.0, mu=-1.0), "mu: got -1.0; must be >= 0"),
        (lambda: gaussian.delta(epsilon=1.0, mu=math.nan), "mu: got nan"),
        (lambda: gaussian.epsilon(delta=0.0, mu=1.0), r"delta: got 0.0; must be in \(0, 1\)"),
        (lambda: gaussian.epsilon(delta=1.0, mu=1.0), "delta: got 1.0"),
        (lambda: gaussian.epsilon(delta=0.1, mu=np.array([1.0, -2.0])), "mu: got"),
        (lambda: gaussian.mu(epsilon=math.inf, delta=0.1), "epsilon: got inf; must be >= 0 and finite"),
        (lambda: gaussian.mu(epsilon=1.0, delta=math.nan), "delta: got nan"),
    ],
)
def test_what_is_out_of_range_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 5.0, 40.0])
def test_the_fall_of_delta_is_its_derivative(epsilon: float) -> None:
    """−dδ/dε = e^ε Φ(−μ/2 − ε/μ), on either side of a = 0."""
    mus = np.array([0.05, 0.6, 2.0, 7.0, 12.0])
    found, fall = gaussian.delta_and_fall(epsilon=epsilon, mu=mus)
    assert np.array_equal(found, gaussian.delta(epsilon=epsilon, mu=mus))
    stated = np.exp(epsilon + special.log_ndtr(-mus / 2 - epsilon / mus))
    np.testing.assert_allclose(fall, stated, rtol=1e-9)
