"""What the tests of audits share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def bounds(coarse_losses: None) -> None:
    """What trials can tell is far coarser than these bounds are."""
