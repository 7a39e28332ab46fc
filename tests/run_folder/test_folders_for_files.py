"""A folder where a file of a run or of a sweep belongs: one message, and nothing is lost."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path

import pytest
from folder_damages import files_of
from resumed_specs import TRAINING, spec_of

from sfumato.cli import main
from sfumato.errors import RunError
from sfumato.pool.worker import do_job
from sfumato.simulation.run import run
from sfumato.spec import dump_spec
from sfumato.sweeps.point_jobs import account_point, train_point
from sfumato.sweeps.point_result import write_accounting

SPEC = spec_of(
    watch=["cloud"],
    training=TRAINING | {"rounds": 1},
    privacy={"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 0.5}},
)
EVENTS = "tensorboard/events.out.tfevents.1.machine.1.0"
NAMES = (
    "checkpoint.pt", "ledger.json", "manifest.json", "metrics.parquet", "model.pt", "privacy.json",
    "report.html", "rounds.jsonl", "spec.yaml", "test_labels.json",
    "views/observers.json", "views/edge-0/round-000001.npz",
    "attacks/audit.json", EVENTS,
)  # fmt: skip


@pytest.fixture(name="finished", scope="module")
def fixture_finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    write_accounting(SPEC, folder)  # as a sweep does before it trains
    run(SPEC, out=folder, resume=True, record_views=["edge:0"], progress=False)
    return folder


def damaged(finished: Path, name: str, to: Path) -> Path:
    """A copy of the run in which a folder with a file in it takes the place of a file."""
    shutil.copytree(finished, to)
    (to / name).unlink(missing_ok=True)
    (to / name).mkdir(parents=True)
    (to / name / "mine.txt").write_text("mine")
    return to


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files_of(folder)}


@pytest.mark.parametrize("name", NAMES)
def test_a_run_says_so_at_once_and_writes_nothing(
    finished: Path, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = damaged(finished, name, tmp_path / "run")
    before = contents(folder)
    for choice in ({"resume": True}, {"force": True}):
        with caplog.at_level(logging.WARNING), pytest.raises(RunError) as caught:
            run(SPEC, out=folder, progress=False, **choice)
        assert str(caught.value) == f"{folder / name}: is a folder; must be a file: remove the folder"
    assert not caplog.records  # nothing is announced that does not happen
    assert contents(folder) == before


def test_every_file_of_the_run_was_tried(finished: Path) -> None:
    own = {re.sub(r"^tensorboard/.*", EVENTS, name) for name in files_of(finished)}
    assert own - set(NAMES) == {"point.yaml", "result.json"}
    assert set(NAMES) - own <= {"attacks/audit.json", EVENTS}


@pytest.mark.parametrize("name", [*NAMES, "point.yaml", "result.json"])
def test_a_point_of_a_sweep_fails_with_the_same_message(finished: Path, name: str, tmp_path: Path) -> None:
    folder = damaged(finished, name, tmp_path / "run")
    point = SPEC.model_dump(mode="json", by_alias=True, exclude_none=True), folder
    said = f"{folder / name}: is a folder; must be a file: remove the folder"
    if name in ("point.yaml", "result.json"):
        assert do_job(account_point, point, tmp_path / "log") == said
    else:
        assert do_job(train_point, (*point, "cpu", ()), tmp_path / "log") == said


@pytest.mark.parametrize(
    "name", ["sweep.json", "sweep.parquet", "report.html", "workers.log", "manifest.json"]
)
def test_a_sweep_says_so_before_it_begins(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sweep"
    (out / name).mkdir(parents=True)
    (tmp_path / "spec.yaml").write_text(dump_spec(SPEC))
    swept = ["sweep", str(tmp_path / "spec.yaml"), "--over", "seed=1,2", "--out", str(out), "--account-only"]
    assert main(swept) == 1
    said = capsys.readouterr().err
    assert said == f"sfumato: {out / name}: is a folder; must be a file: remove the folder\n"
