"""Progress bars: on a terminal, in the cell of a notebook, and nowhere else."""

from __future__ import annotations

import math
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import sfumato as sf
from sfumato.progress_bars import progress_bars
from sfumato.simulation.run_progress import run_progress
from sfumato.sweeps.sweep_progress import PointProgress, sweep_progress

pytestmark = pytest.mark.usefixtures("no_report")

SPEC = {
    "name": "small",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 8},
    "model": {"kind": "softmax"},
    "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 2},
    "training": {"rounds": 2, "local_steps": 2, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
}
STEPS = (
    "preparing the schedule and its noise",
    "computing ε",
    "reading the data, building the model",
    "training",
    "writing the report",
)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error is a terminal of 120 columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Everything that the cell of a notebook showed, one after the other."""
    shown: list[str] = []

    class Handle:
        def update(self, drawn: Any) -> None:
            shown.append(drawn._repr_mimebundle_([], [])["text/html"])

    def display(drawn: Any, *, display_id: bool) -> Handle:
        assert display_id
        Handle().update(drawn)
        return Handle()

    shell = type("ZMQInteractiveShell", (), {})
    monkeypatch.setattr("builtins.get_ipython", shell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    return shown


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_nothing_is_written_where_nobody_looks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sf.run(sf.load_spec(SPEC), out=tmp_path / "run")
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("terminal")
def test_a_run_on_a_terminal_shows_rounds_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sf.run(sf.load_spec(SPEC), out=tmp_path / "run")
    out, err = capsys.readouterr()
    last = plain(err).splitlines()[-1]
    assert out == ""
    assert last.startswith("small, seed 0 ━")
    accuracy = 100 * run.metrics["accuracy"].iloc[-1]
    assert f"2/2 accuracy {accuracy:.1f} % ε cloud " in last


@pytest.mark.usefixtures("terminal")
def test_the_score_of_the_task_is_shown_until_there_is_a_newer_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with run_progress(sf.load_spec(SPEC), wanted=True) as shown:
        shown.round(1, 3, {"accuracy": math.nan, "loss": 2.0, "mae": 1.25})
        shown.step("writing the report")
        assert "1/3 MAE 1.25" not in plain(capsys.readouterr().err).splitlines()[-1]
        shown.round(2, 3, {"accuracy": math.nan, "loss": math.nan, "mae": math.nan})
    assert "2/3 MAE 1.25" in plain(capsys.readouterr().err).splitlines()[-1]


@pytest.mark.usefixtures("terminal")
def test_progress_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sf.run(sf.load_spec(SPEC), out=tmp_path / "run", progress=False)
    assert capsys.readouterr() == ("", "")


def test_a_run_in_a_notebook_says_every_step_in_its_cell(
    tmp_path: Path, cell: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sf.run(sf.load_spec(SPEC), out=tmp_path / "run")
    found = [next((i for i, shown in enumerate(cell) if step in shown), -1) for step in STEPS]
    assert found == sorted(found)
    assert found[0] >= 0
    assert "2/2 accuracy" in cell[-1]
    assert STEPS[-1] not in cell[-1]
    assert capsys.readouterr() == ("", "")


def test_steps_are_told_before_they_begin(tmp_path: Path) -> None:
    from sfumato.simulation.run import run_rounds

    told: list[str] = []
    rounds = run_rounds(sf.load_spec(SPEC), out=tmp_path / "run", on_step=told.append)
    next(rounds)
    assert tuple(told) == STEPS[:-1]
    assert len(list(rounds)) == 1
    assert tuple(told) == STEPS


def test_a_sweep_in_a_notebook_shows_its_points_and_failures(
    cell: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[PointProgress] = []
    with sweep_progress(2, wanted=True, otherwise=told.append) as show:
        show(PointProgress("rounds=0", None, finished=True, failure="must be at least 1"))
        show(PointProgress("rounds=4", 7, round=3, rounds=4))
        show(PointProgress("rounds=4", 7, finished=True))
    assert cell[1].count("\n") == 2
    assert "0/2" in cell[1]
    assert "2/2" in cell[-1]
    assert capsys.readouterr().err == "rounds=0: failed: must be at least 1\n"
    with sweep_progress(1, wanted=False, otherwise=told.append) as show:
        show(PointProgress("rounds=4", 7))
    assert told == [PointProgress("rounds=4", 7)]


@pytest.mark.usefixtures("terminal")
def test_a_sweep_on_a_terminal_has_a_bar_for_each_run_and_one_for_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with sweep_progress(2, wanted=True) as show:
        show(PointProgress("rounds=4", 7, round=3, rounds=4))
    lines = plain(capsys.readouterr().err).splitlines()[-2:]
    assert re.match(r"sweep +━.* 0/2 *$", lines[0])
    assert re.match(r"rounds=4, seed 7 ━.* round 3/4 *$", lines[1])


@pytest.mark.usefixtures("terminal")
def test_audits_and_attacks_count_what_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = sf.load_spec(SPEC)
    sf.audit(spec, observers=("cloud",), trials=200)
    assert "1/1" in plain(capsys.readouterr().err).splitlines()[-1]
    sf.run(spec, out=tmp_path / "run", record_views=("cloud",), progress=False)
    sf.attack(tmp_path / "run", observer="cloud", kind="property")
    assert "property as cloud ━" in plain(capsys.readouterr().err)
    sf.audit(spec, observers=("cloud",), trials=200, progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("terminal")
def test_time_that_is_left_is_said_only_once_it_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bars() as bars:
        assert bars.are_drawn
        bar = bars.add("work [red]")
        bar.show("reading")
        unknown = plain(capsys.readouterr().err)
        bar.show("1/2", 1, 2)
    assert "left" not in unknown
    assert "work [red] ━" in unknown  # no markup
    with progress_bars(wanted=False) as bars:
        assert not bars.are_drawn
        bars.counter("work")(1, 2)
        bars.print("nothing")
    assert "nothing" not in capsys.readouterr().err
