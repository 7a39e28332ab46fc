"""docs/running.md: its scripts run, each by itself."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from places import ROOT

import sfumato as sf

SCRIPTS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "running.md").read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(4))
def test_scripts_of_the_page_run(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(SCRIPTS) == 4
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(None):
        exec(compile(SCRIPTS[number], "running.md", "exec"), {})
    (folder,) = (tmp_path / "runs").iterdir()
    assert sf.load_run(folder).finished
