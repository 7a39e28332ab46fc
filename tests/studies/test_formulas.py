"""Formulas of studies, beside what follows by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sfumato.spec.load import load_spec
from sfumato.studies.measures.computing import measure_spec

AIR: dict[str, Any] = {
    "name": "air", "protocol": "wfl-p", "data": {"source": "synthetic", "examples_per_device": 8},
    "model": {"kind": "softmax"}, "topology": {"kind": "star", "devices": 20},
    "training": {"rounds": 1, "local_epochs": 1, "batch_size": 4, "learning_rate": 0.1,
                 "participation": {"kind": "fixed", "count": 5}},
    "radio": {"gain": {"kind": "constant", "mean": 0.1, "max": 0.1}, "noise_std": 1.0, "snr_db": [3, 3]},
    "compression": {"kind": "rand-k", "ratio": 0.5},
    "privacy": {"delta": 1e-3, "clip": {"kind": "update", "norm": 1.0},
                "noise": {"formula": "pfels", "epsilon": 1000.0}},
}  # fmt: skip


CHAIN: dict[str, Any] = {
    "name": "chain", "protocol": "dp-ogl", "data": {"source": "synthetic", "examples_per_device": 10},
    "model": {"kind": "softmax"},
    "topology": {"kind": "groups", "structure": "list", "groups": [[0, 1], [1, 2]], "devices": 3},
    "training": {"rounds": 3, "local_steps": 1, "batch_size": 10, "learning_rate": 0.1, "merge_every": 2},
    "privacy": {"delta": 1e-5, "clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
}  # fmt: skip


@pytest.mark.parametrize("protocol", ["pfels", "wfl-p", "wfl-pdp"])
def test_where_power_binds_everybody_sends_with_all_of_it(protocol: str) -> None:
    """SNR d σ₀² of each of five devices in each of three rounds, 3 dB being 1.995; d = 1,000."""
    spec = load_spec(AIR | {"protocol": protocol})
    (energy,) = measure_spec("energy_at_clip:1000,3", spec)
    assert energy.value == pytest.approx(3 * 5 * 10**0.3 * 1000)
    assert measure_spec("privacy_binds:1000,3", spec)[0].value == 0.0


def test_where_privacy_binds_energy_follows_from_20_alone() -> None:
    """a = εN / (2√2 r √ln(1.25 r/(Nδ))) arrives; a device sends (a/h)² p of it on average."""
    spec = load_spec(AIR | {"protocol": "pfels"}, ["privacy.noise.epsilon=0.1"])
    alignment = 0.1 * 20 / (2 * 2**0.5 * 5 * (5.745) ** 0.5)
    (energy,) = measure_spec("energy_at_clip:1000,3", spec)
    assert energy.value == pytest.approx(3 * 5 * (alignment / 0.1) ** 2 * 0.5, rel=1e-3)
    assert measure_spec("privacy_binds:1000,3", spec)[0].value == 100.0


def test_snr_limits_may_be_uniform_as_ratios() -> None:
    """All 20 devices of one gain send in each of three rounds, so the lowest limit sets the energy."""
    radio = AIR["radio"] | {"snr_db": [2, 15]}
    training = AIR["training"] | {"participation": {"kind": "fixed", "count": 20}}
    spec = load_spec(AIR | {"protocol": "wfl-p", "radio": radio, "training": training})
    (in_db,) = measure_spec("energy_at_clip:1000,3", spec)
    (linear,) = measure_spec("energy_at_clip:1000,3,linear", spec)
    share = (10 * math.log10(in_db.value / (3 * 20 * 1000)) - 2) / 13
    assert 0 < share < 1
    assert linear.value == pytest.approx(3 * 20 * 1000 * (10**0.2 + share * (10**1.5 - 10**0.2)), rel=1e-6)


def test_the_whole_bound_of_theorem_4_3_is_the_sum_of_its_terms() -> None:
    """With independent noises only the noise term is smaller: (K_ℓ² + 1)/(K_ℓ³ + 1) of it, 10/28."""
    spec = load_spec("h2fdp-fmnist")
    of = {
        term: {one.series: one.value for one in measure_spec(f"theorem_4_3:{term}:48,1,2,2,1,2.3", spec)}
        for term in ("start", "drift", "noise", "bound")
    }
    of_series = {
        "as printed": ("as printed", "as printed", "as printed"),
        "slips mended": ("slips mended", "slips mended", "as printed"),
        "mended and tightened": ("slips mended", "mended and tightened", "as printed"),
        "tightened, independent noises": (
            "slips mended",
            "mended and tightened",
            "tightened, independent noises",
        ),
    }
    assert of["bound"].keys() == of_series.keys()
    for series, own in of_series.items():
        terms = [of[term][one] for term, one in zip(("start", "drift", "noise"), own, strict=True)]
        assert of["bound"][series] == pytest.approx(sum(terms))
    smaller = of["bound"]["mended and tightened"] - of["bound"]["tightened, independent noises"]
    assert smaller == pytest.approx(of["noise"]["as printed"] * 18 / 28)


def test_a_mended_drift_term_is_the_printed_one_with_mended_dispersions_and_steps() -> None:
    """It has their mean, Σ 1/√k / K_g, in the place of 1/√(K_g + 1)."""
    spec = load_spec("h2fdp-fmnist")
    of = {
        term: {one.series: one.value for one in measure_spec(f"theorem_4_3:{term}:48,1,2,2,1,2.3", spec)}
        for term in ("b1", "b2", "drift")
    }
    rounds, steps = spec.training.rounds, 20
    mean_step = sum(k**-0.5 for k in range(1, rounds + 1)) / rounds / (rounds * 48)
    inner = 48 * steps * (of["b1"]["slips mended"] + of["b2"]["slips mended"]) + 1 + steps
    assert of["drift"]["slips mended"] == pytest.approx(48 * mean_step * inner)
    assert of["drift"]["slips mended"] > of["drift"]["mended and tightened"]


def test_the_least_epsilon_in_a_common_group_is_that_of_neighbours() -> None:
    """Workers 0 and 2 share no group: worker 1 alone links them, and less of their releases arrives."""
    found = {one.series: one.value for one in measure_spec("pairs", load_spec(CHAIN)) if one.unit < 0}
    assert found["releases, least"] < found["releases, least in a common group"] == 3.0
    of_pairs = {(one.unit, one.observer): one.value for one in measure_spec("pairs", load_spec(CHAIN))
                if one.series == "rigorous"}  # fmt: skip
    assert found["rigorous, least in a common group"] == min(of_pairs[pair] for pair in ((0, 1), (1, 2)))
