"""Alignment, power control and the envelope, against PFELS's formulas written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from air_specs import CONSTANT, FADING, air_spec
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.network.tree import from_spec
from sfumato.radio.channels import Channels
from sfumato.schedule.air.power_control import AirPlan, formula_alignment
from sfumato.schedule.model_size import parameter_count

NOISE_FREE = {"kind": "none"}


def _plan(count: float = 5.0, **sections: Any) -> AirPlan:
    spec = air_spec(**sections)
    tree = from_spec(spec.topology)
    return AirPlan(spec, tree, np.full(tree.leaf_count, count), Channels.of_tree(spec, tree))


def _sending(plan: AirPlan, devices: list[int], number: int = 0, noise: float = 0.0) -> Any:
    chosen = np.array(devices, dtype=np.int64)
    parameters = parameter_count(plan.spec)
    assert parameters is not None
    return plan.sending(number, 0, chosen, np.full(len(devices), noise), parameters)


def test_formula_alignment_is_20_with_21() -> None:
    eta_tau_c1, sigma0, n, r, delta, epsilon = 0.7, 1.3, 1000, 32, 1e-3, 1.5
    c2 = 2 * math.sqrt(2) * eta_tau_c1 * r * math.sqrt(math.log(1.25 * r / (n * delta))) / (n * sigma0)
    beta = epsilon / c2
    found = formula_alignment(epsilon, devices=n, participants=r, delta=delta)
    assert found == pytest.approx(beta * eta_tau_c1 / sigma0, rel=1e-12)


def test_formula_asks_for_nothing_where_its_logarithm_is_not_positive() -> None:
    assert formula_alignment(1.5, devices=1000, participants=1, delta=0.01) == math.inf


@pytest.mark.parametrize("rule", ["pfels", "wfl-p", "wfl-pdp"])
def test_power_control_is_36_37_38(rule: str) -> None:
    plan = _plan(air={"power_control": rule})
    devices = [1, 4, 7, 9, 19]
    clip, sigma0 = 1.0, plan.channels.noise_std
    d = parameter_count(plan.spec)
    assert d is not None
    k = round(0.3 * d)
    for number in range(4):
        gains = plan.channels.gains(number)[devices]
        powers = plan.channels.snr_limits[devices] * d * sigma0**2
        power_term = {
            "pfels": gains * np.sqrt(d * powers) / (clip * np.sqrt(k)),
            "wfl-p": gains * np.sqrt(powers) / clip,
            "wfl-pdp": gains * np.sqrt(powers) / clip,
        }[rule].min()
        c2 = 2 * math.sqrt(2) * clip * 5 * math.sqrt(math.log(1.25 * 5 / (20 * 1e-3))) / (20 * sigma0)
        beta = power_term if rule == "wfl-p" else min(power_term, 1.5 / c2)
        sending = _sending(plan, devices, number)
        assert sending.alignment[0] == pytest.approx(beta * clip / sigma0, rel=1e-12)
        np.testing.assert_allclose(sending.amplitude, sending.alignment[0] / gains, rtol=1e-12)


def test_artificial_noise_takes_its_share_of_the_power() -> None:
    plan = _plan(privacy={"noise": NOISE_FREE})
    d = parameter_count(plan.spec)
    assert d is not None
    k, noise, devices = round(0.3 * d), 0.05, [0, 3]
    sending = _sending(plan, devices, noise=noise)
    expected_energy = sending.amplitude**2 * (k / d + k * noise**2)
    assert np.all(expected_energy <= sending.limit * (1 + 1e-9))
    assert np.isclose(expected_energy, sending.limit).any()  # the worst channel binds


def test_weak_channels_stay_silent_and_do_not_bind() -> None:
    plan = _plan(air={"min_gain": 0.1}, privacy={"noise": NOISE_FREE})
    everyone = list(range(20))
    gains = plan.channels.gains(0)
    sending = _sending(plan, everyone)
    np.testing.assert_array_equal(sending.sends, gains >= 0.1)
    assert 0 < sending.sends.sum() < 20
    assert np.all(sending.amplitude[~sending.sends] == 0)
    strong = [i for i in everyone if gains[i] >= 0.1]
    assert sending.alignment[0] == _sending(plan, strong).alignment[0]


def test_where_nobody_sends_the_receiver_hears_its_noise_at_the_loudness_agreed_on() -> None:
    silent = {"min_gain": 2.0}
    assert _sending(_plan(air=silent), [0, 1]).alignment[0] == _plan().max_alignment[0]
    assert _sending(_plan(air=silent, privacy={"noise": NOISE_FREE}), [0, 1]).alignment[0] == 0


def test_fixed_beta_is_beta() -> None:
    plan = _plan(air={"power_control": "fixed", "beta": 3.0}, privacy={"noise": NOISE_FREE})
    assert plan.envelope[0] == _sending(plan, [0, 1]).alignment[0] == 3.0
    assert plan.is_steady[0]


@given(
    seed=st.integers(0, 2**20),
    rule=st.sampled_from(["pfels", "wfl-p", "wfl-pdp"]),
    epsilon=st.floats(0.01, 50),
)
def test_every_round_is_within_the_envelope(seed: int, rule: str, epsilon: float) -> None:
    plan = _plan(
        seed=seed,
        air={"power_control": rule},
        privacy={"noise": {"formula": "pfels", "epsilon": epsilon}},
    )
    chosen = sorted(np.random.default_rng(seed).choice(20, 5, replace=False).tolist())
    alignment = _sending(plan, chosen, number=seed % 100).alignment
    assert np.all(alignment <= plan.envelope * (1 + 1e-9))
    if plan.is_steady[0]:
        assert alignment[0] == pytest.approx(plan.envelope[0], rel=1e-9)


def test_alignment_is_steady_only_where_power_never_binds() -> None:
    assert _plan(radio=CONSTANT, privacy={"noise": {"formula": "pfels", "epsilon": 0.1}}).is_steady[0]
    assert not _plan(radio=FADING).is_steady[0]
    assert not _plan(air={"power_control": "wfl-p"}, radio=CONSTANT).is_steady[0]


def test_envelope_of_a_link_budget_is_the_formula_alone() -> None:
    plan = _plan(radio={"preset": "h2fdp"})
    assert plan.envelope[0] == plan.max_alignment[0] < math.inf


def test_gain_ratio_bounds_what_errors_amplify() -> None:
    csi = {"gain_error": 0.1, "phase_error_rad": 0.5, "max_error_std": 2.0}
    plan = _plan(air={"csi": csi})
    assert plan.gain_ratio == pytest.approx(1.2)
    assert plan.multiplier[0] == pytest.approx(1 / (1.2 * plan.envelope[0]))
    arrives = np.concatenate([_sending(plan, list(range(20)), number).arrives for number in range(50)])
    assert arrives.max() <= 1.2
    assert arrives.min() >= 0.8 * math.cos(1.0)
    assert arrives.std() > 0.05
    assert _plan(air={"csi": {"gain_error": 0.1}}).gain_ratio == math.inf
    assert _plan(air={"csi": {"phase_error_rad": 0.1}}).gain_ratio == 1.0


def test_errors_have_the_truncated_normal_distribution() -> None:
    plan = _plan(
        topology={"kind": "star", "devices": 4000}, air={"csi": {"gain_error": 0.05, "max_error_std": 1.5}}
    )
    arrives = _sending(plan, list(range(4000))).arrives
    errors = (arrives - 1) / 0.05
    assert stats.kstest(errors, stats.truncnorm(-1.5, 1.5).cdf).pvalue > 1e-6
    assert stats.kstest(errors, stats.norm.cdf).pvalue < 1e-6  # would notice if nothing were truncated
    assert stats.kstest(errors * 1.5, stats.truncnorm(-1.5, 1.5).cdf).pvalue < 1e-6
