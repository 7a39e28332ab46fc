"""Packages say what lives in them: every file in one line, and no file that is not there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import sfumato

SOURCE = Path(sfumato.__file__).parent
ROOMS = (
    "adaptive_control", "claims", "election", "network", "radio", "schedule", "secure_aggregation", "spec",
    "wire",
)  # fmt: skip


@pytest.mark.parametrize("room", ROOMS)
def test_the_package_lists_its_files(room):
    text = import_module(f"sfumato.{room}").__doc__ or ""
    # a line of the list: names, two spaces or more, what is there
    listed = {
        name
        for line in re.findall(r"^ *([a-z_0-9]+(?:, [a-z_0-9]+)*) {1,}\S", text, re.MULTILINE)
        for name in line.split(", ")
    }
    files = {path.stem for path in (SOURCE / room).glob("*.py")} - {"__init__"}
    assert files <= listed
    assert "imported" in text or "import from here" in text
