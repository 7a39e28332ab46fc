"""Releases that tell very little: ε beside closed forms, integrals and another composition, never below."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy import integrate, optimize, stats

from sfumato.privacy.accountant import compose
from sfumato.privacy.losses import gaussian, one_release
from sfumato.privacy.losses.hidden_draws import PrivacyLoss
from sfumato.privacy.sampling import GaussianTerm, Sampling
from sfumato.verify.epsilon import recomputed_epsilon
from sfumato.verify.loss_curves import Event


def of_poisson(rate, multiplier, count):
    return compose([GaussianTerm(multiplier, count, Sampling.poisson(rate))], neighbours="zero-out")


@pytest.mark.parametrize(
    ("rate", "multiplier", "delta"),
    [(1e-3, 10.0, 1e-11), (3.6e-4, 27.8, 1e-12), (1e-5, 5.0, 1e-8), (0.05, 40.0, 1e-13), (0.3, 2.0, 1e-14)],
)
def test_one_release_at_a_tiny_delta(rate, multiplier, delta):
    """q δ(η; μ) = δ with e^η = 1 + (e^ε - 1)/q, the worse direction; also as a record's draw of batches."""
    inner = gaussian.epsilon(delta=delta / rate, mu=1 / multiplier)
    exact = math.log1p(rate * math.expm1(inner))
    assert exact * (1 - 1e-9) <= of_poisson(rate, multiplier, 1).epsilon(delta) <= exact * (1 + 2e-3)
    plain = Sampling.of_batches([(rate, 1.0, 1.0)], shares_a_part=False)
    batches = compose([GaussianTerm(multiplier, 1, plain)], neighbours="zero-out").epsilon(delta)
    assert exact * (1 - 1e-9) <= batches <= exact * (1 + 2e-3)


@pytest.mark.parametrize(("rate", "multiplier", "delta"), [(1e-3, 10.0, 1e-9), (0.02, 60.0, 1e-8)])
def test_one_replaced_unit_at_a_tiny_delta(rate, multiplier, delta):
    """The densities integrated beyond where they cross."""
    mu = 0.5 / multiplier  # of the unit from the release without it

    def loss(x):
        ends = (math.expm1(sign * mu * x - mu * mu / 2) for sign in (1, -1))
        one, other = (math.log1p(rate * end) for end in ends)
        return one - other

    def delta_at(epsilon):
        crossing = optimize.brentq(lambda x: loss(x) - epsilon, 0, 40)

        def excess(x):
            q = stats.norm.pdf(x) * (1 + rate * math.expm1(-mu * x - mu * mu / 2))
            return q * (math.expm1(loss(x)) - math.expm1(epsilon))

        return integrate.quad(excess, crossing, crossing + 12, epsabs=0, epsrel=1e-9)[0]

    exact = optimize.brentq(lambda e: math.log(delta_at(e) / delta), loss(2.0), loss(9.0), xtol=1e-14)
    term = GaussianTerm(multiplier, 1, Sampling.poisson(rate, apart=0.5))
    found = compose([term], neighbours="replace").epsilon(delta)
    assert exact * (1 - 1e-6) <= found <= exact * (1 + 2e-3)


@pytest.mark.parametrize(
    ("count", "delta", "before"), [(475, 3e-5, 9.3e-4), (475, 1e-6, 1.83e-3), (120_566, 1e-6, 3.79e-2)]
)
def test_rounding_adds_less_than_a_thousandth_to_small_losses(count, delta, before):
    """Issue 28, item 7: with an interval of 1e-4 ε was two to four times as large."""
    curve = of_poisson(3.6e-4, 27.8, count)
    found = curve.epsilon(delta)
    finer = PrivacyLoss(
        [GaussianTerm(27.8, count, Sampling.poisson(3.6e-4))], curve.discretization / 4
    ).epsilon(delta)
    assert finer <= found <= finer * (1 + 1e-3)
    assert found < before / 2.5


def test_hundreds_of_small_losses_beside_the_library_s():
    rate, multiplier, count, delta, interval = 3.6e-4, 27.8, 475, 1e-6, 2e-6
    library = privacy_loss_distribution.from_gaussian_mechanism(
        multiplier, sampling_prob=rate, value_discretization_interval=interval
    )
    found = of_poisson(rate, multiplier, count).epsilon(delta)
    assert found == pytest.approx(library.self_compose(count).get_epsilon_for_delta(delta), rel=1e-2)


def test_a_hundred_thousand_small_losses_are_nearly_one_gaussian():
    """The central limit: μ = q √(n (e^(1/z²) - 1)) (Bu, Dong, Long and Su 2020)."""
    rate, multiplier, count = 1e-3, 30.0, 200_000
    mu = rate * math.sqrt(count * math.expm1(multiplier**-2))
    found = of_poisson(rate, multiplier, count).epsilon(1e-6)
    assert found == pytest.approx(gaussian.epsilon(delta=1e-6, mu=mu), rel=2e-3)


@pytest.mark.parametrize(
    ("sampling", "event"),
    [
        (Sampling.poisson(1e-6), ("poisson", ())),
        (Sampling.poisson(1e-6, apart=0.5), ("replaced", (0.5, 0.5))),
        (
            Sampling.of_batches([(1e-6, 1.0, 1.0)], shares_a_part=False),
            ("batches", (False, (1e-6, 1.0, 1.0))),
        ),
    ],
)
def test_a_million_rare_draws_are_checked_on_as_fine_a_grid(sampling, event):
    """Rounding of differences of numbers near 1 would outweigh such losses, here and in the checker."""
    kind, detail = event
    neighbours = "replace" if kind == "replaced" else "zero-out"
    curve = compose([GaussianTerm(3.0, 1_000_000, sampling)], neighbours=neighbours)
    found = curve.epsilon(1e-6)
    again = recomputed_epsilon(
        [Event(1 / 9, 1_000_000, kind, 1e-6, detail)], "pld", 1e-6, curve.discretization
    )
    assert found * (1 - 2e-3) <= again <= found * (1 + 1e-6)
    spread = 4 * math.sinh(1 / 36) if kind == "replaced" else math.expm1(1 / 9)
    mu = 1e-6 * math.sqrt(1e6 * spread)
    assert found == pytest.approx(gaussian.epsilon(delta=1e-6, mu=mu), rel=0.02)


def test_a_release_that_tells_next_to_nothing_has_a_grid():
    assert of_poisson(0.5, 1e200, 3).epsilon(1e-9) <= 1e-9


@pytest.mark.parametrize(
    ("rate", "between", "away"),
    [(0.5, 0.6, 2.0), (2e-3, 1.9, 1.0), (1.0, 0.3, 1.0), (0.04, 1.2, 0.5), (0.3, 30.0, 2.0), (0.2, 0.9, 1.7)],
)
def test_places_where_weights_are_even_are_where_all_steps_lead(rate, between, away, monkeypatch):
    """Roots in closed form, and points that settle early: every step of Newton's iteration leads there."""

    def all_steps(levels, of_shared, move):
        s, t = move.between, move.from_shared
        with np.errstate(divide="ignore"):
            log_shared = levels + np.log(of_shared)
        z = np.minimum(s / 2 - levels / s, t / 2 - log_shared / t)
        for _ in range(one_release._NEWTON_STEPS):
            one, two = levels + s * z - s * s / 2, log_shared + t * z - t * t / 2
            both = np.logaddexp(one, two)
            z = z - both / (s * np.exp(one - both) + t * np.exp(two - both))
        return z

    levels, move = np.arange(4_000) * 5e-3, one_release.DrawnShift(rate, between, between * away)
    found = one_release.profile_of_shift(levels, rate, move)
    monkeypatch.setattr(one_release, "_place_where_even", all_steps)
    exact = one_release.profile_of_shift(levels, rate, move)
    np.testing.assert_allclose(found, exact, rtol=1e-10, atol=4e-16 * rate)


@pytest.mark.parametrize("away", [1.0, 2.0, 1.7])
def test_profiles_are_as_accurate_where_weights_are_no_floats(away):
    """e^ε is no float, or Φ(z) is none, for releases with very little noise: logarithms are taken there."""
    levels, move = np.arange(4_000) * 0.25, one_release.DrawnShift(0.3, 35.0, 35.0 * away)
    found = one_release.profile_of_shift(levels, 0.3, move)
    assert np.isfinite(found).all()
    assert (np.diff(found) <= 1e-15).all()
    quick = one_release.profile_of_shift(levels[:1000], 0.3, move)
    np.testing.assert_allclose(quick, found[:1000], rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("away", [0.5, 2.0])
def test_a_shared_part_that_is_never_released_weighs_nothing_where_its_ratio_is_no_float(away):
    """At rate 1 the profile is that of N(0, 1) against N(s, 1), also where e^ε Φ(z - t) is above e^710."""
    levels = np.arange(4_000) * 0.5
    found = one_release.profile_of_shift(levels, 1.0, one_release.DrawnShift(1.0, 60.0, 60.0 * away))
    np.testing.assert_allclose(
        found, gaussian.delta(epsilon=levels, mu=np.array(60.0)), rtol=1e-9, atol=1e-15
    )


def test_a_replaced_unit_that_is_always_drawn_has_no_less_than_its_noise_s_scales_tell():
    """Half of the releases have μ = 60: δ at ε = 800, far below μ²/2, is their probability, and no less."""
    sampling = Sampling.poisson(1.0, apart=0.5, scales=((0.5, 1.0), (0.3, 0.4)))
    loss = PrivacyLoss([GaussianTerm(1 / 60, 1, sampling)], 1.0)
    assert not loss.is_within(800.0, 0.4)
    assert 0.5 - 1e-9 <= loss.delta(800.0) <= 0.5 + 1e-9
    exact = gaussian.epsilon(delta=2e-5, mu=60.0)
    assert exact <= loss.epsilon(1e-5) <= exact + 1.0
