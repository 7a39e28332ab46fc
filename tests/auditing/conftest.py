"""What the audits' tests share."""

from __future__ import annotations

import pytest

from sfumato.privacy import accountant


@pytest.fixture(autouse=True)
def coarse_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Privacy losses on a grid ten times as coarse, rounded up as ever: bounds stay bounds, in a tenth of the time.

    What trials can tell is far coarser than that.
    """
    monkeypatch.setattr(accountant, "_FINEST_INTERVAL", 1e-3)
