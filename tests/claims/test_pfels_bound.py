"""What bound (23) makes of k/d."""

from __future__ import annotations

import pytest
from air_specs import CONSTANT, air_spec

from sfumato.claims.pfels_bound import advised_ratio, bound_terms
from sfumato.schedule.resolve.tree import resolve_tree


def test_terms_are_those_of_23_in_units_of_c1() -> None:
    # eta tau = 0.5, C1 = sigma0 = zeta = 1, L = 1/24 (so eta tau L = 1/48), kappa = 0
    ratio, d, r, a = 0.25, 400, 8.0, 3.0
    step, smooth, k = 0.5, 1 / 24, 100
    beta = a / step
    compression = 8 * (step * smooth * 1 + 3 / 2) * (1 - ratio) / r
    privacy = 4 * smooth * k / (step * r**3) / beta**2
    assert bound_terms(ratio, d, r, a**-2) == pytest.approx((compression, privacy))


def test_a_good_channel_is_to_send_all_and_a_bad_one_little() -> None:
    def advised(**radio: object) -> float | None:
        spec = air_spec(radio=radio, privacy={"noise": {"formula": "pfels", "epsilon": 5}})
        return advised_ratio(resolve_tree(spec), 170)

    bad = {"gain": {"kind": "constant", "mean": 0.001, "min": 0.001, "max": 0.001}, "snr_db": [2, 2]}
    found = advised(**bad)
    assert advised(**CONSTANT) == 1.0
    assert found is not None
    assert found < 0.3


def test_no_advice_where_sparsification_does_not_make_louder() -> None:
    assert advised_ratio(resolve_tree(air_spec(protocol="wfl-pdp")), 170) is None
