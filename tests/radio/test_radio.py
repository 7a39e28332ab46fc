"""Link budgets worked out by hand, distributions by Kolmogorov-Smirnov, access by enumeration.

A statistical test here errs on a right implementation with probability below 1e-7, and has to reject the
same numbers scaled by 2/3 and by 3/2.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.radio import cells as air
from sfumato.radio import channels as laws
from sfumato.radio.channels import disc_distances_m, from_db, noise_power_w, path_gain, watts
from sfumato.spec.radio import AirRadio

N, NEVER = 20_000, 1e-7
K_FACTOR = 4.0


def test_decibels() -> None:
    # 24 dBm = 10^2.4 mW = 251.19 mW; 38 dBm = 6309.6 mW; -3 dB is about a half
    assert watts(24.0) == pytest.approx(0.251189, rel=1e-5)
    assert watts(38.0) == pytest.approx(6.30957, rel=1e-5)
    assert from_db(-3.0) == pytest.approx(0.501187, rel=1e-5)
    assert from_db(np.array([0.0, 10.0, 20.0])).tolist() == [1.0, 10.0, 100.0]


def test_path_loss_of_h2fdp() -> None:
    # -30 dB at 1 m; every tenfold distance costs 10 * 3.75 = 37.5 dB: -67.5 dB at 10 m, -105 dB at 100 m
    gains = path_gain(np.array([1.0, 10.0, 100.0]), exponent=3.75, reference_db=-30.0)
    assert 10 * np.log10(gains) == pytest.approx([-30.0, -67.5, -105.0], abs=1e-9)


def test_path_loss_in_free_space() -> None:
    # Friis at 2.4 GHz: wavelength 0.125 m, (0.125 / (4 pi))^2 = 9.895e-5 at 1 m, which is -40.05 dB; at 1 km
    # 60 dB more: -100.05 dB
    (gain,) = path_gain(np.array([1000.0]), exponent=2.0, reference_db=-40.05)
    assert gain == pytest.approx((0.125 / (4 * math.pi * 1000)) ** 2, rel=2e-3)


@pytest.mark.parametrize("distance_m", [0.99, 0.0, -1.0, math.nan])
def test_no_path_loss_below_the_reference_distance(distance_m) -> None:
    with pytest.raises(ValueError, match=r"distance_m: got .*must be at least 1"):
        path_gain(np.array([5.0, distance_m]), exponent=2.0, reference_db=0.0)


def test_thermal_noise() -> None:
    # -174 dBm/Hz over 20 MHz (73.01 dB Hz) is the textbook's -101 dBm; H2FDP's -173 over 1 MHz is -113 dBm
    assert 10 * math.log10(noise_power_w(-174.0, 20e6) / 1e-3) == pytest.approx(-100.99, abs=0.005)
    assert noise_power_w(-173.0, 1e6) == pytest.approx(10**-11.3 * 1e-3, rel=1e-12)


def test_a_whole_link_budget() -> None:
    # H2FDP at 100 m without fading: 24 dBm - 105 dB = -81 dBm arrive over -113 dBm of noise: 32 dB, 1584.9.
    # log2(1585.9) = 10.6311 bits a symbol, 10.6311 Mbit/s in 1 MHz. 7,840 parameters of 32 bits are 250,880
    # bits: 23.599 ms, and 5.9277 mJ at 251.19 mW.
    (gain,) = path_gain(np.array([100.0]), exponent=3.75, reference_db=-30.0)
    snr = watts(24.0) * gain / noise_power_w(-173.0, 1e6)
    assert 10 * math.log10(snr) == pytest.approx(32.0, abs=1e-9)
    time_s = float(air.airtime_s(7840 * 32, snr, 1e6))
    assert time_s == pytest.approx(23.599e-3, rel=1e-4)
    assert time_s * watts(24.0) == pytest.approx(5.9277e-3, rel=1e-4)


def test_a_narrower_band_gets_denser_power() -> None:
    # SNR 3 over 1 MHz: log2(4) = 2 Mbit/s alone. On half of it SNR 6: 0.5 * log2(7) = 1.40368 Mbit/s.
    assert float(air.airtime_s(2e6, 3.0, 1e6)) == pytest.approx(1.0)
    assert float(air.airtime_s(1.40368e6, 3.0, 1e6, 0.5)) == pytest.approx(1.0, rel=1e-5)


def test_the_faintest_links_have_a_rate() -> None:
    # log2(1 + x) is x / ln 2 for small x, and log2(1 + 1e-18) would be 0 if 1 was added
    assert float(air.airtime_s(1.0, 1e-18, 1.0)) == pytest.approx(math.log(2) * 1e18)
    assert float(air.airtime_s(1.0, 0.0, 1.0)) == math.inf


def test_in_turns_it_takes_the_sum_and_side_by_side_the_slowest() -> None:
    times, cells = np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2])
    assert air.sum_in_cells(times, cells, 4).tolist() == [1.0, 0.0, 6.0, 0.0]
    assert air.slowest_in_cells(times, cells, 4).tolist() == [1.0, 0.0, 4.0, 0.0]


@pytest.mark.parametrize(("coordinates", "slots"), [(1, 1), (3300, 1), (3301, 2), (2_925_277, 887)])
def test_slots_on_air(coordinates, slots) -> None:
    # PFELS: 0.3 * 9,750,922 = 2,925,276.6 coordinates over 3,300 subcarriers are 886.4 slots: 887, 8.87 s
    radio = AirRadio(preset="pfels", subcarriers=3300, slot_s=0.01)
    channels = laws.Channels(radio, seed=0, cells=np.zeros(2, dtype=np.int64), cell_count=1)
    assert channels.air_delay_s(coordinates) == pytest.approx(slots * 0.01)


@given(st.lists(st.floats(0.0, 1e3), min_size=1, max_size=8), st.data())
def test_the_expected_slowest_is_the_mean_over_all_draws(values, data) -> None:
    chosen = data.draw(st.integers(1, len(values)))
    draws = [max(draw) for draw in itertools.combinations(values, chosen)]
    found = air.expected_slowest(np.array(values), chosen)
    assert found == pytest.approx(np.mean(draws), rel=1e-9, abs=1e-12)


def rice(k_factor: float):
    return stats.rice(math.sqrt(2 * k_factor), scale=math.sqrt(0.5 / (k_factor + 1)))


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (lambda rng: laws.rayleigh(rng, N), stats.rayleigh(scale=math.sqrt(0.5))),
        (lambda rng: laws.rician(rng, N, K_FACTOR), rice(K_FACTOR)),
        (lambda rng: laws.rician(rng, N, 0.0), stats.rayleigh(scale=math.sqrt(0.5))),
        (lambda rng: 10 * np.log10(laws.shadowing(rng, N, 8.0)), stats.norm(scale=8.0)),
        (lambda rng: disc_distances_m(rng, N, 50.0) ** 2, stats.uniform(1.0, 2499.0)),
    ],
    ids=["rayleigh", "rician", "rician without line of sight", "shadowing", "disc"],
)
def test_distributions(draw, law) -> None:
    drawn = draw(np.random.default_rng(5))
    assert stats.kstest(drawn, law.cdf).pvalue > NEVER
    for scale in (2 / 3, 3 / 2):
        assert stats.kstest(scale * drawn, law.cdf).pvalue < NEVER


@pytest.mark.parametrize("k_factor", [0.0, 0.3, 4.0, 300.0])
def test_the_mean_of_a_rician_magnitude(k_factor) -> None:
    assert laws.rician_mean(k_factor) == pytest.approx(rice(k_factor).mean(), rel=1e-6)
    assert laws.rician_mean(1e6) == pytest.approx(1.0, rel=1e-6)  # nothing but the direct path


def test_fading_keeps_the_mean_power() -> None:
    # power has standard deviation at most its mean, so 5.4 of them over sqrt(N) is 1e-7
    for drawn in (
        laws.rayleigh(np.random.default_rng(1), N),
        laws.rician(np.random.default_rng(2), N, 4.0),
    ):
        assert np.mean(drawn**2) == pytest.approx(1.0, abs=5.4 / math.sqrt(N))


def test_no_disc_within_the_reference_distance() -> None:
    with pytest.raises(ValueError, match=r"radius_m: got 1\.0; must be above 1"):
        disc_distances_m(np.random.default_rng(0), 3, 1.0)
