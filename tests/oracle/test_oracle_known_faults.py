"""Specs for which version 0.1 reported less than an attacker attains: what is reported must cover it."""

from __future__ import annotations

from typing import Any

import pytest
from oracle_compare import BELOW, compare
from oracle_specs import (
    LATE_NOISE_OF_DRAWN_DEVICES,
    LATE_NOISE_OF_DROPPED_DEVICES,
    MASTER_WITH_A_THRESHOLD,
    NOISE_MISSING_AT_THE_LAST_STEP,
    PEERS_KNOW_THE_COHORT,
    UNEQUAL_DENOMINATORS,
    devices,
)

FAULTS = {
    "clipped denominators of unequal zones, public": (UNEQUAL_DENOMINATORS, "public"),
    "clipped denominators of unequal zones, a peer": (UNEQUAL_DENOMINATORS, "device:1"),
    "the last step's noise missing with its zone": (NOISE_MISSING_AT_THE_LAST_STEP, "cloud"),
    "the last step's noise missing with its devices": (LATE_NOISE_OF_DROPPED_DEVICES, "cloud"),
    "the last step's noise missing with its drawn devices": (LATE_NOISE_OF_DRAWN_DEVICES, "cloud"),
    "peers of a session know the cohort": (PEERS_KNOW_THE_COHORT, devices(*range(1, 20))),
    "one peer of a session knows the cohort": (PEERS_KNOW_THE_COHORT, "device:1"),
    "a master with a threshold of workers": (
        MASTER_WITH_A_THRESHOLD,
        "master:0," + devices(*range(1, 8)),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_reported_covers_what_is_attained(name: str) -> None:
    spec: dict[str, Any]
    spec, observer = FAULTS[name]
    row = compare(spec, 0, observer)
    assert row.verdict != BELOW, str(row)
