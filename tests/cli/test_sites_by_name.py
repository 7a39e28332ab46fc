"""Sites are called by their names wherever a person reads, and may be asked for by them."""

import re
from pathlib import Path

import pytest
import yaml

from sfumato.cli import main

SPEC = {
    "name": "sites",
    "protocol": "h2fdp",
    "data": {"source": "digits"},
    "radio": "none",
    "topology": {"sites": [{"name": name, "devices": 3} for name in ("charite", "bonn", "ulm")]},
    "trust": {"trusted": ["charite"]},
    "training": {"rounds": 2, "local_steps": 4, "batch_size": 8, "learning_rate": 0.2},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
    "watch": ["cloud", "bonn"],
}


def test_every_command_calls_a_site_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sites.yaml").write_text(yaml.safe_dump(SPEC), "utf-8")
    commands = (
        ["run", "sites.yaml", "--out", "r", "--record-views", "bonn"],
        ["audit", "r", "--observer", "bonn", "--trials", "200"],
        ["attack", "r", "--observer", "bonn", "--kind", "membership"],
        ["account", "sites.yaml"],
        ["show", "sites.yaml"],
    )
    for command in commands:
        assert main(command) == 0, command
        out = capsys.readouterr().out
        assert "bonn" in out, command
        assert "edge:1" not in out.replace("edge:1 bonn", ""), command  # show says both
    assert main(["report", "r"]) == 0
    page = Path("r/report.html").read_text("utf-8")
    assert "<h3>As bonn</h3>" in page
    assert "guarantee towards bonn and no attack as bonn" in page
    curves = re.search(r'"figure-\d+-epsilon":(.*?)"layout"', page)
    assert curves is not None
    assert '"name":"cloud and bonn"' in curves[1]  # both have the same ε
    capsys.readouterr()
    assert main(["attack", "r", "--observer", "ulm", "--kind", "membership"]) == 2
    assert "that the run recorded" in capsys.readouterr().err
