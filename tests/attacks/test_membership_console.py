from pathlib import Path

import pytest
from member_worlds import played

from sfumato.attacks import attack
from sfumato.cli.attack_table import print_attack


def test_results_fit_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    small = {"topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3}, "training": {"rounds": 1}}
    run = played(tmp_path / "run", ("edge:0",), multiplier=4.0, **small)
    found = attack(run, observer="edge:0", kind="membership", progress=False)
    print_attack(found, str)
    print_attack(attack(run, observer="edge:0", kind="property", progress=False), str)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "membership as edge:0: 3 devices attacked, 1 round recorded" in " ".join(printed.split())
    for words in ("LiRA, online", "inner product", "last layer", "TPR at FPR 0.1 %", "δ = 1e-5"):
        assert words in printed
    online = next(row for row in found["results"] if row["attack"] == "LiRA, online")
    assert f"{online['auc']['value']:.3f} [{online['auc']['low']:.3f}" in printed
    assert "EXCEEDS" not in printed
    print_attack(found | {"results": [online | {"exceeds_bound": True}]}, str)
    assert "EXCEEDS THE BOUND" in " ".join(capsys.readouterr().out.split())
