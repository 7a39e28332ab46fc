"""Pilot scans: every point meets the targets, and the cheapest that is accurate enough is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

import sfumato as sf
from sfumato.cli import main
from sfumato.errors import SpecError
from sfumato.sweeps.pilot_scan import PilotPlan

SMALL = ["topology.edges=2", "topology.devices_per_edge=4", "training.rounds=2", "training.local_steps=6",
         "training.edge_every=3", "training.batch_size=4", "data.partition=iid"]  # fmt: skip
TARGETS = {"cloud": 50.0}
OVER = {"training.rounds": [1, 4], "training.batch_size": [4]}
pytestmark = [pytest.mark.usefixtures("fast_workers", "no_report"), pytest.mark.needs("plan")]


def scanned(folder: Path, accuracy: float, **options: object) -> PilotPlan:
    spec = sf.load_spec("quickstart", SMALL)
    settings = {"workers": 1, "progress": False, "over": OVER, **options}
    return sf.plan_by_pilot(spec, TARGETS, accuracy=accuracy, out=folder, **settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test leaves its runs, for the others to take."""
    return tmp_path_factory.mktemp("pilot") / "scan"


def test_the_fewest_rounds_that_are_accurate_enough_are_chosen(folder: Path) -> None:
    easy = scanned(folder, 0.01)
    one, four = easy.points
    assert [point.settings for point in easy.points] == [
        {"training.rounds": rounds, "training.batch_size": 4} for rounds in (1, 4)
    ]
    assert one.accuracy < four.accuracy
    assert (one.cost, four.cost) == (1, 4)
    assert one.chosen
    assert not four.chosen
    assert easy.planned.spec.training.rounds == 1
    hard = scanned(folder, four.accuracy)  # reached exactly
    assert [point.chosen for point in hard.points] == [False, True]
    assert [point.accuracy for point in hard.points] == [one.accuracy, four.accuracy]
    assert hard.planned.spec.training.rounds == 4


def test_every_point_has_the_noise_that_its_targets_need(folder: Path) -> None:
    found = scanned(folder, 0.01)
    assert list(found.sweep.table["epsilon:cloud"]) == pytest.approx([50.0, 50.0], rel=1e-3)
    for plan in (found.planned, scanned(folder, found.points[1].accuracy).planned):
        assert sf.account(plan.spec).epsilon(0, "cloud") == pytest.approx(50.0, rel=1e-3)


def test_what_is_kept_is_not_trained_again(folder: Path) -> None:
    runs = {path: path.stat().st_mtime_ns for path in folder.glob("points/*/*/model.pt")}
    assert len(runs) == 2
    scanned(folder, 0.01, minimize="noise")
    assert {path: path.stat().st_mtime_ns for path in folder.glob("points/*/*/model.pt")} == runs


def test_of_noise_the_quieter_point_is_chosen(folder: Path) -> None:
    found = scanned(folder, 0.01, minimize="noise")
    assert found.planned.noise == min(point.cost for point in found.points)


@pytest.mark.parametrize(("minimize", "column"), [("energy", "energy_j"), ("delay", "delay_s")])
def test_energy_and_delay_are_those_of_the_whole_training(minimize: str, column: str, folder: Path) -> None:
    found = scanned(folder, 0.01, minimize=minimize)
    assert [point.cost for point in found.points] == pytest.approx(list(found.sweep.table[column]))
    assert found.points[0].cost < found.points[1].cost
    assert found.points[0].chosen


def test_an_accuracy_that_no_point_reaches_is_refused_with_the_best(folder: Path) -> None:
    with pytest.raises(SpecError, match=r"accuracy: got 1\.0; no point is so accurate: .*rounds=4.* has 0\."):
        scanned(folder, 1.0)


def test_a_point_that_cannot_be_planned_fails_alone(tmp_path: Path) -> None:
    spec = sf.load_spec("quickstart", SMALL)
    over = {"trust.trusted_edges": [[0], [1]], "training.rounds": [1]}
    found = sf.plan_by_pilot(
        spec, {"edge:0": 50.0}, over, accuracy=0.01, out=tmp_path / "scan", workers=1, progress=False
    )
    assert [point.settings["trust.trusted_edges"] for point in found.points] == [[1]]
    (failure,) = found.sweep.failures
    assert "edge:0" in failure.message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accuracy": 1.5}, "accuracy: got 1.5; must be above 0, at most 1"),
        ({"over": ["training.rounds"]}, "over: got .* must be a mapping of keys"),
        ({"over": {"training.rounds": [0]}}, r"over: training\.rounds: got 0"),
        ({"minimize": "energy"}, r"radio: got 'none'; has no energy to minimise"),
    ],
)
def test_mistakes_are_refused_before_anything_is_trained(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    spec = sf.load_spec("quickstart", [*SMALL, *(["radio=none"] if "minimize" in changes else [])])
    with pytest.raises(SpecError, match=said):
        sf.plan_by_pilot(spec, TARGETS, **{"over": OVER, "accuracy": 0.1, "out": tmp_path / "x", **changes})
    assert not (tmp_path / "x").exists()


def test_the_command_line_prints_the_scan_and_writes_the_plan(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scanned(folder, 0.01)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    sets = [part for change in SMALL for part in ("--set", change)]
    call = ["plan", "quickstart", "--target", "cloud=50", "--minimize", "rounds", "--out", "mine.yaml", *sets]
    varied = ["--over", "training.rounds=1,4", "--over", "training.batch_size=4"]
    assert main([*call, "--accuracy", "0.01", *varied, "--pilot", str(folder), "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert "chosen" in said
    assert f"pilot folder: {folder}" in said
    assert sf.load_spec("mine.yaml").training.rounds == 1
    for options, refusal in (
        ([], "--minimize: got 'rounds'; goes with --accuracy"),
        (["--accuracy", "0.5"], "--over: is required with --accuracy"),
        (varied, "--minimize: got 'rounds'; goes with --accuracy"),
        (["--accuracy", "0.5", *varied, "--pilot", "mine.yaml"], "--pilot: got 'mine.yaml'; is a file"),
    ):
        assert main([*call, *options]) == 2
        assert refusal in capsys.readouterr().err
