"""What tests of several folders share."""

from __future__ import annotations

import pytest

pytest_plugins = ["needs"]


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs end with a page of one word and without TensorBoard: both take longer than a small run."""
    from sfumato.run_folder.reader import REPORT_FILE, write_text
    from sfumato.simulation import folder_writer

    monkeypatch.setattr(
        folder_writer, "_write_report", lambda folder: write_text(folder / REPORT_FILE, "report\n")
    )
    monkeypatch.setattr(folder_writer, "find_spec", lambda name: None)


@pytest.fixture
def coarse_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Privacy losses on a grid ten times as coarse: rounded up as ever, so that bounds stay bounds, in a tenth of the time."""
    from sfumato.privacy import accountant

    monkeypatch.setattr(accountant, "_FINEST_INTERVAL", 1e-3)
