"""Errors about what ``--set`` gave name the change, not the file; names in ``watch`` are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

import sfumato as sf
from sfumato.cli import main

TEXT = """name: sites
protocol: h2fdp
data: {source: digits}
topology: {sites: [{name: bonn, devices: 2}, {name: kiel, devices: 2}]}
training: {rounds: 2, local_steps: 1, batch_size: 4, learning_rate: 0.1}
privacy: {clip: {kind: update, norm: 1}, noise: {epsilon: 8, for: cloud}}
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "sites.yaml"
    path.write_text(TEXT)
    return str(path)


@pytest.mark.parametrize(
    ("change", "starts"),
    [
        ("privacy.noise={epsilon: 4, for: clod}", "--set privacy.noise.for: got 'clod'"),
        ("trust.trusted=[Bonn]", "--set trust.trusted: got 'Bonn'"),
        ("watch=[berlin]", "--set watch: got 'berlin'"),
    ],
)
@pytest.mark.parametrize("command", ["validate", "account", "show"])
def test_the_change_is_blamed(
    spec: str, change: str, starts: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, spec, "--set", change]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"sfumato: {starts}")
    assert "line" not in said


def test_the_file_is_blamed_for_what_it_says(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(spec).write_text(TEXT + "watch: [cloud, berlin]\n")
    assert main(["validate", spec, "--set", "training.rounds=3"]) == 2
    said = capsys.readouterr().err
    assert "watch: got 'berlin'" in said
    assert "(line 7)" in said


def test_one_observer_has_no_empty_column(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["account", spec, "--observer", "kiel"]) == 0
    assert "relation" not in capsys.readouterr().out
    assert main(["account", spec]) == 0
    assert "relation" in capsys.readouterr().out


def test_what_is_printed_of_results_is_one_line(spec: str, tmp_path: Path) -> None:
    planned = sf.plan(sf.load_spec(spec), {"cloud": 4})
    assert repr(planned).startswith("PlannedSpec('sites', targets: cloud=4, noise in the global model: ")
    sf.run(sf.load_spec(spec), out=tmp_path / "run")
    assert (
        repr(sf.load_run(tmp_path / "run").folder)
        == f"RunFolder({str(tmp_path / 'run')!r}, 'sites', 2 of 2 rounds)"
    )
    assert sf.__version__.count(".") == 2
    with pytest.raises(sf.SpecError, match=r"must be a Spec, as sfumato.load_spec\('sites.yaml'\) gives it"):
        sf.account("sites.yaml")  # type: ignore[arg-type]
    with pytest.raises(sf.SpecError, match="must be a list of texts"):
        sf.load_spec(spec, {"training.rounds": 3})  # type: ignore[arg-type]
