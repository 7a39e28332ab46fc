"""The page *from a CSV to a signed statement*, followed literally in an empty folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from places import ROOT

from sfumato.cli import main

PAGE = ROOT / "docs" / "tutorials" / "csv-to-statement.md"


@pytest.mark.slow
def test_the_page_can_be_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8")
    blocks = re.findall(r"```(python|sh)\n(.*?)```\n((?:\n(?: {4}[^\n]*)?(?=\n))*)", text, re.DOTALL)
    assert [kind for kind, _, _ in blocks] == ["python", "sh", "sh", "sh", "sh", "python"]
    for kind, code, shown in blocks:
        if kind == "python":
            exec(compile(code, str(PAGE), "exec"), {})
            continue
        assert main(shlex.split(code)[1:]) == 0, code
        said = " ".join(capsys.readouterr().out.split())
        for line in filter(None, map(str.strip, shown.splitlines())):
            # accuracies may differ in a row or two between processors
            parts = re.split(
                r"[\d.]+ %|No cost of the noise is seen .*?: |The noise costs .*?: ", " ".join(line.split())
            )
            assert all(part in said for part in parts), line
    assert Path("statement.html").exists()
    assert Path("statement.json").exists()
