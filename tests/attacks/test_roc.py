import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.attacks.roc import ROC, pooled
from sfumato.privacy.losses import gaussian
from sfumato.privacy.losses.gaussian import allowed_tpr

SCORES = st.lists(st.integers(-4, 4), min_size=1, max_size=30)


def gaussian_pair(mu: float, trials: int, seed: int = 0) -> ROC:
    rng = np.random.default_rng(seed)
    return ROC.of(rng.normal(mu, 1, trials), rng.normal(0, 1, trials))


def auc_is(roc: ROC, mu: float, error: float = 1e-6) -> bool:
    """Whether the measured area is what two Gaussians ``mu`` apart give, by Hoeffding's inequality."""
    room = math.sqrt(math.log(2 / error) / (2 * min(roc.members, roc.non_members)))
    return abs(roc.auc.value - stats.norm.cdf(mu / math.sqrt(2))) <= room


def test_a_gaussian_pair_has_its_closed_form() -> None:
    mu, trials = 1.5, 40_000
    roc = gaussian_pair(mu, trials)
    assert auc_is(roc, mu)
    assert not auc_is(roc, mu * 2 / 3)
    assert not auc_is(roc, mu * 3 / 2)
    # on the whole curve, within Dvoretzky, Kiefer and Wolfowitz's band on either axis
    band = math.sqrt(math.log(4 / 1e-6) / (2 * trials))

    def lies_on(m: float) -> bool:
        high = stats.norm.cdf(m + stats.norm.ppf(np.clip(roc.fpr + band, 0, 1))) + band
        low = stats.norm.cdf(m + stats.norm.ppf(np.clip(roc.fpr - band, 0, 1))) - band
        return bool(((roc.tpr >= low) & (roc.tpr <= high)).all())

    assert lies_on(mu)
    assert not lies_on(mu * 2 / 3)
    assert not lies_on(mu * 3 / 2)


@pytest.mark.parametrize("rate", [0.001, 0.01])
def test_low_false_positive_rates_of_a_gaussian_pair(rate: float) -> None:
    mu, trials = 2.0, 200_000
    found = gaussian_pair(mu, trials).tpr_at(rate)

    def expected(m: float) -> float:
        return float(stats.norm.cdf(m + stats.norm.ppf(rate)))

    # 5.5 standard errors of the threshold, which the others choose, and of the share above it
    density = stats.norm.pdf(mu + stats.norm.ppf(rate)) / stats.norm.pdf(stats.norm.ppf(rate))
    threshold = density * math.sqrt(rate / trials)
    room = 5.5 * math.hypot(threshold, math.sqrt(expected(mu) / trials))
    assert abs(found.value - expected(mu)) < room
    assert abs(found.value - expected(mu * 2 / 3)) > room
    assert abs(found.value - expected(mu * 3 / 2)) > room
    assert found.low < found.value < found.high


@given(SCORES, SCORES)
def test_it_is_the_curve_of_all_thresholds(inside: list[int], outside: list[int]) -> None:
    roc = ROC.of(inside, outside)
    thresholds = [math.inf, *sorted({*inside, *outside}, reverse=True)]
    assert roc.tpr.tolist() == [sum(s >= t for s in inside) / len(inside) for t in thresholds]
    assert roc.fpr.tolist() == [sum(s >= t for s in outside) / len(outside) for t in thresholds]
    wins = sum((a > b) + (a == b) / 2 for a in inside for b in outside)
    assert roc.auc.value == pytest.approx(wins / (len(inside) * len(outside)))
    assert roc.auc.low <= roc.auc.value <= roc.auc.high
    swapped = ROC.of([-s for s in outside], [-s for s in inside])
    assert swapped.auc.value == pytest.approx(roc.auc.value)


@given(SCORES, SCORES)
def test_the_corners_draw_the_same_curve(inside: list[int], outside: list[int]) -> None:
    roc = ROC.of(inside, outside)
    curve = roc.to_dict()["curve"]
    fpr, tpr = np.array(curve["fpr"]), np.array(curve["tpr"])
    for x in np.unique(roc.fpr):
        assert tpr[fpr <= x].max() == roc.tpr[roc.fpr <= x].max()
    assert (np.array(curve["tpr_low"]) <= tpr).all()
    assert (tpr <= np.array(curve["tpr_high"])).all()


def test_with_few_others_a_low_rate_means_no_false_alarm() -> None:
    found = ROC.of([3.0, 2.0, 0.5], [1.0, 0.0]).tpr_at(0.001)
    assert found.value == pytest.approx(2 / 3)
    assert found.low == pytest.approx(stats.beta.ppf(0.025, 2, 2))
    assert found.high == pytest.approx(stats.beta.ppf(0.975, 3, 1))


def test_separated_scores_leave_room_below_one() -> None:
    auc = ROC.of(np.ones(50), np.zeros(50)).auc
    assert auc.value == auc.high == 1
    assert auc.low == pytest.approx(math.exp(-math.log(40) / 50))


def test_a_mechanism_is_within_its_own_bound_and_outside_a_smaller_one() -> None:
    delta = 1e-5
    epsilon = gaussian.epsilon(delta=delta, mu=1.0)
    for roc in (gaussian_pair(1.0, 20_000), gaussian_pair(-1.0, 20_000)):
        assert not roc.exceeds(epsilon=epsilon, delta=delta, error=1e-6)
    assert gaussian_pair(1.0, 20_000).exceeds(epsilon=0.5, delta=delta, error=1e-6)
    assert not gaussian_pair(5.0, 2000).exceeds(epsilon=math.inf, delta=0.0, error=1e-6)
    assert not gaussian_pair(5.0, 2000).exceeds(epsilon=1e6, delta=0.0, error=1e-6)  # e^epsilon overflows


def test_a_mechanism_is_called_outside_as_seldom_as_said() -> None:
    """Randomised response meets (ε, 0) at both of its thresholds; a third score splits neither."""
    epsilon, trials, error, times = 1.0, 300, 0.2, 400
    rate = 1 / (1 + math.exp(-epsilon))
    rng = np.random.default_rng(0)
    ties = rng.random((times, 2, trials)) / 2
    said = rng.random((times, 2, trials)) < np.array([rate, 1 - rate])[:, None]
    for scores in (said, said + ties):  # with two scores in all, with one a trial
        called = sum(ROC.of(*one).exceeds(epsilon=epsilon, delta=0.0, error=error) for one in scores)
        assert called <= 130  # 80 expected at most; more than this has a chance below 1e-6
    assert stats.binom.sf(130, times, error) < 1e-6
    assert all(ROC.of(*one).exceeds(epsilon=epsilon / 4, delta=0.0, error=error) for one in said + ties)


def test_sure_exclusion_is_outside_a_small_bound_too() -> None:
    # a tenth of the others is known not to be members, and nothing else
    rng = np.random.default_rng(3)
    members, others = rng.random(20_000), np.where(rng.random(20_000) < 0.1, -1.0, rng.random(20_000))
    roc = ROC.of(members, others)
    assert roc.exceeds(epsilon=1.0, delta=1e-5, error=1e-6)


@given(st.floats(0, 20), st.floats(0, 0.5), st.floats(0, 1))
def test_the_allowed_region_is_that_of_differential_privacy(epsilon: float, delta: float, fpr: float) -> None:
    tpr = float(allowed_tpr(fpr, epsilon=epsilon, delta=delta))
    assert fpr - 1e-12 <= tpr <= 1
    assert tpr <= math.exp(epsilon) * fpr + delta + 1e-12
    assert 1 - fpr <= math.exp(epsilon) * (1 - tpr + 1e-15) + delta + 1e-9
    assert allowed_tpr(fpr, epsilon=math.inf, delta=delta) == 1


def test_targets_are_pooled() -> None:
    roc = pooled([(np.array([1.0]), np.array([0.0])), (np.array([2.0]), np.array([3.0]))])
    assert (roc.members, roc.non_members, roc.auc.value) == (2, 2, 0.5)


@pytest.mark.parametrize(("inside", "outside"), [([], [1.0]), ([1.0], []), ([math.nan], [1.0])])
def test_it_needs_scores(inside: list[float], outside: list[float]) -> None:
    with pytest.raises(ValueError, match="members and non-members"):
        ROC.of(inside, outside)
