"""The version, and completion for shells."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from sfumato.cli import main


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"sfumato {version('sfumato')}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_SFUMATO_COMPLETE", f"source_{shell}")
    assert main([]) == 0
    assert "_SFUMATO_COMPLETE=complete_" in capsys.readouterr().out
