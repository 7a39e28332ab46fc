"""Runs end with a page of one word and without TensorBoard: both take longer than a small run."""

from __future__ import annotations

import os

import pytest

_VARIABLE = "SFUMATO_TEST_NO_REPORT"


def without_report(patch: pytest.MonkeyPatch) -> None:
    """In this process, and in those that `forked_workers` and `fast_python` begin."""
    from sfumato.run_folder.reader import REPORT_FILE, write_text
    from sfumato.simulation import folder_writer

    patch.setenv(_VARIABLE, "1")
    patch.setattr(folder_writer, "_write_report", lambda folder: write_text(folder / REPORT_FILE, "report\n"))
    patch.setattr(folder_writer, "find_spec", lambda name: None)


def without_report_as_asked() -> None:
    """In a process that was begun by one that is without."""
    if _VARIABLE in os.environ:
        without_report(pytest.MonkeyPatch())
