"""What the system refuses is one line with status 1 or 2, and nothing that was saved is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import fast_python
import pytest

from sfumato.cli import main
from sfumato.run_folder.damage import check_folder
from sfumato.run_folder.reader import load_run
from sfumato.simulation import run as simulate
from sfumato.spec import load_spec

SMALL = ["data={source: synthetic, examples_per_device: 20}", "trust={}", "training.rounds=3",
         "topology={kind: tree, edges: 2, devices_per_edge: 3}", "training.steps_per_round=4",
         "training.edge_every=2", "training.batch_size=4", "privacy.noise={multiplier: 1}",
         "watch=[]"]  # fmt: skip
SETS = [part for change in SMALL for part in ("--set", change)]
pytestmark = pytest.mark.usefixtures("no_report_in_module")


@pytest.fixture(scope="module")
def small_run(no_report_in_module: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, to be copied."""
    out = tmp_path_factory.mktemp("small") / "run"
    simulate.run(load_spec("quickstart", SMALL), out=out, device="cpu")
    return out


def called(*arguments: str | Path) -> int:
    return main([str(part) for part in arguments])


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    assert "internal error" not in said
    assert "Traceback" not in said
    return said


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of so many bytes."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def as_others(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run bound by what files permit, which root is not."""
    root = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner"]
    before = root if os.geteuid() == 0 else []
    return subprocess.run(
        [str(part) for part in (*before, *command)], capture_output=True, text=True, check=False
    )


@pytest.mark.needs("mount")
def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with small_disk(tmp_path / "disk", 256 << 10) as disk:
        out, filler = disk / "run", disk / "filler"
        playing = simulate.run_rounds(load_spec("quickstart", SMALL), out=out, device="cpu")
        next(playing)
        playing.close()
        before = (out / "checkpoint.pt").read_bytes()
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 512)
        for again in (["--resume"], ["--force"]):
            assert called("run", "quickstart", *SETS, "--out", out, *again) == 1
            assert "cannot be written: No space left on device" in one_line(capsys)
            assert (out / "checkpoint.pt").read_bytes() == before
        assert not list(out.rglob("*.tmp"))
        filler.unlink()
        assert called("run", "quickstart", *SETS, "--out", out, "--resume", "--quiet") == 0
        assert load_run(out).finished
        assert check_folder(out) == []


@pytest.mark.parametrize("round_number", [1, 3])
def test_a_disk_that_fills_up_while_training(
    round_number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every save fails from then on; what was saved before stays, and the run goes on from there."""
    monkeypatch.setattr(simulate, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    write, next_ = os.write, simulate.Session.next

    def full(descriptor: int, data: memoryview) -> int:
        raise OSError(28, os.strerror(28))

    def played(self: simulate.Session, standing: object) -> object:
        found = next_(self, standing)  # type: ignore[arg-type]
        if found[0].state.round == round_number:
            monkeypatch.setattr(os, "write", full)
        return found

    monkeypatch.setattr(simulate.Session, "next", played)
    arguments = ["run", "quickstart", *SETS, "--out", tmp_path / "run", "--quiet"]
    assert called(*arguments) == 1
    assert one_line(capsys).endswith("checkpoint.pt: cannot be written: No space left on device\n")
    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(simulate.Session, "next", next_)
    assert len(load_run(tmp_path / "run").metrics) == round_number - 1
    assert called(*arguments, "--resume") == 0
    assert check_folder(tmp_path / "run") == []


SEVERAL = """
import contextlib, io, json, sys
from sfumato.cli import main
found = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as said:
        status = main(arguments)
    found.append([status, said.getvalue()])
print(json.dumps(found))
"""  # one process for all commands: to start one takes longer than they do


@pytest.mark.needs("setpriv")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    run = tmp_path / "run"
    simulate.run(load_spec("quickstart", SMALL), out=run, device="cpu")
    tmp_path.chmod(0o755)
    for path in run.rglob("*"):
        path.chmod(0o444)
    run.chmod(0o555)
    before = {path: path.read_bytes() for path in run.iterdir()}
    calls = [
        ["run", "quickstart", *SETS, "--out", f"{run}/new"],
        ["run", "quickstart", *SETS, "--set", "training.rounds=4", "--out", f"{run}", "--resume"],
        ["report", f"{run}"],
        ["sweep", "quickstart", "--over", "seed=1,2", "--out", f"{run}/new"],
    ]
    try:
        done = as_others(sys.executable, "-c", SEVERAL, json.dumps(calls))
    finally:
        run.chmod(0o755)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == len(calls)
    for status, said in found:
        assert status in (1, 2), said
        assert said.count("\n") == 1
        assert "Permission denied" in said
    assert {path: path.read_bytes() for path in run.iterdir()} == before


@pytest.mark.needs("setpriv")
def test_a_report_may_go_elsewhere(tmp_path: Path) -> None:
    """Reading needs no leave to write."""
    simulate.run(load_spec("quickstart", SMALL), out=tmp_path / "run", device="cpu")
    for path in (tmp_path / "run").rglob("*"):
        path.chmod(0o444)
    (tmp_path / "run").chmod(0o555)
    tmp_path.chmod(0o777)
    done = as_others(
        sys.executable, "-m", "sfumato", "report", tmp_path / "run", "--out", tmp_path / "r.html"
    )
    (tmp_path / "run").chmod(0o755)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "r.html").stat().st_size > 10**6


NAMES = {
    "empty": ("", "is empty; give a folder"),
    "blank": ("  ", "is empty; give a folder"),
    "too long": ("x" * 300, "cannot be used: File name too long"),
    "a file": ("file", "is a file; give a folder"),
    "under a file": ("file/run", "is a file, or is inside of one; give a folder"),
    "under a folder too long": ("x" * 300 + "/run", "cannot be used: File name too long"),
}


@pytest.mark.parametrize(
    "command", [["run", "quickstart"], ["sweep", "quickstart", "--over", "seed=1"]], ids=["run", "sweep"]
)
@pytest.mark.parametrize(("name", "said"), NAMES.values(), ids=NAMES)
def test_names_that_are_no_folder(
    name: str,
    said: str,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    assert called(*command, *SETS, "--out", name) == 2
    line = one_line(capsys)
    assert line.startswith("sfumato: --out: got ")
    assert said in line
    assert os.listdir() == ["file"]


@pytest.mark.parametrize(
    "arguments", [["report", "{}"], ["report", "run", "--out", "{}"], ["compare", "run", "{}"],
                  ["attack", "{}", "--observer", "cloud", "--kind", "property"], ["audit", "{}"],
                  ["audit", "run", "--trials", "100", "--observer", "cloud", "--out", "{}"]],
    ids=lambda arguments: "-".join(arguments[:2]),
)  # fmt: skip
@pytest.mark.parametrize("name", ["", "x" * 300, "file", "file/below", "missing/deep", "/proc/nothing/here"])
def test_other_commands_with_such_names(
    name: str,
    arguments: list[str],
    small_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    shutil.copytree(small_run, "run")
    status = called(*(part.format(name) for part in arguments))
    if arguments[-2:] == ["--out", "{}"] and name in ("file", "missing/deep"):
        assert status == 0  # a file is replaced, a folder is made
        return
    assert status in (1, 2)
    one_line(capsys)
    assert Path("file").read_text() == "mine"


def test_a_folder_that_holds_a_run_offers_three_ways_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    arguments = ["run", "quickstart", *SETS, "--out", out]
    assert called(*arguments, "--quiet") == 0
    before = (out / "model.pt").read_bytes()
    assert called(*arguments) == 2
    said = one_line(capsys)
    assert f"--resume continues it, --force replaces it, and {out}-2 is free" in said
    assert called(*arguments, "--resume", "--force") == 2
    assert "--force" in one_line(capsys)
    assert (out / "model.pt").read_bytes() == before
    (out / "notes.txt").write_text("mine")
    assert called(*arguments, "--set", "seed=3", "--force", "--quiet") == 0
    assert (out / "model.pt").read_bytes() != before
    assert (out / "notes.txt").read_text() == "mine"
    assert load_run(out).spec_dict["seed"] == 3
    assert check_folder(out) == []


def test_force_replaces_runs_of_several_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "quickstart", *SETS, "--out", tmp_path / "run", "--seeds", "2", "--quiet"]
    assert called(*arguments) == 0
    assert called(*arguments) == 2
    assert f"--force replaces it, and {tmp_path / 'run-2'} is free" in one_line(capsys)
    assert called(*arguments, "--set", "training.rounds=2", "--force") == 0
    for seed in (0, 1):
        assert len(load_run(tmp_path / "run" / f"seed-{seed}").metrics) == 2


def test_a_wrong_spec_replaces_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "quickstart", *SETS, "--out", tmp_path / "run", "--quiet"]
    assert called(*arguments) == 0
    for change in ("model.kind=no_such:model", "privacy.noise.for=edge:9", "data.source=/nowhere/at/all"):
        assert called(*arguments, "--set", change, "--force") == 2
        one_line(capsys)
        assert check_folder(tmp_path / "run") == []


def test_two_processes_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ε of one beside the model of the other: it was so, and both ended with status 0."""
    arguments = ["run", "quickstart", *SETS, "--out", str(tmp_path / "run")]
    long = [*arguments, "--set", "training.rounds=100000"]
    log = tmp_path / "run" / "rounds.jsonl"
    first = fast_python.Popen([sys.executable, "-m", "sfumato", *long], stderr=subprocess.PIPE)
    try:
        while not (log.exists() and log.stat().st_size) and first.poll() is None:
            time.sleep(0.02)
        for more in ([], ["--resume"], ["--force"]):
            assert called(*arguments, "--set", "privacy.noise={multiplier: 9}", *more) == 2
            assert one_line(capsys).startswith("sfumato: --out: got ")
        assert called("report", tmp_path / "run") == 2
        assert "another process is writing there" in one_line(capsys)
        first.send_signal(signal.SIGTERM)
        _, said = first.communicate(timeout=120)
    finally:
        first.kill()  # it would train for an hour
        first.communicate()
    assert first.returncode == 130
    assert b"interrupted; continue with: sfumato run quickstart" in said
    assert check_folder(tmp_path / "run") == []
    run = load_run(tmp_path / "run")
    assert run.spec_dict["privacy"]["noise"]["calibrated_from"]["multiplier"] == 1
    assert len(run.metrics) > 0
