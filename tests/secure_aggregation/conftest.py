from __future__ import annotations

import pytest
from secagg_stage import COUNT, Stage
from transport_parties import Parties


@pytest.fixture(name="make_parties")
def fixture_make_parties() -> type[Parties]:
    return Parties


@pytest.fixture(name="stage")
def fixture_stage():
    """``stage(KIND)`` is a session of five parties, threshold 4, stopped before messages of KIND arrive."""
    return lambda stop, silent=None, **other: Stage(Parties(COUNT), **other).until(stop, silent)
