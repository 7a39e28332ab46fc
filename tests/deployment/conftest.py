"""What all tests of deployments share."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfumato.deployment import tls_hops


@pytest.fixture(autouse=True)
def own_ledgers(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's ledgers, one a test, for its processes too."""
    state = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return state / "sfumato" / "ledgers"


@pytest.fixture(autouse=True)
def patient_doors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child has a minute to introduce itself, which a busy machine may take."""
    monkeypatch.setattr(tls_hops, "_HANDSHAKE_S", 60.0)
