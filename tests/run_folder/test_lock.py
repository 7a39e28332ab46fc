"""One writer a folder, however the others end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.run_folder.beside import baseline_folder, next_free
from sfumato.run_folder.lock import LOCK_FILE, is_being_written, only_writer
from sfumato.run_folder.reader import repair_hint

HOLDS = """
import sys, time
from pathlib import Path
from sfumato.run_folder.lock import only_writer
with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDS, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def enter(folder: Path) -> None:
    with only_writer(folder, argument=Argument("out")):
        pass


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_a_second_process_is_refused_until_the_first_ends(end: signal.Signals | None, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with holder(folder) as first:
        (tmp_path / "run-2").mkdir()
        with pytest.raises(SpecError, match="another process is writing there") as caught:
            enter(folder)
        assert str(caught.value).startswith(f"out: got '{folder}'; ")
        assert str(caught.value).endswith(f"({tmp_path / 'run-3'} is free)")
        assert "\n" not in str(caught.value)
        if end is None:
            first.communicate()
        else:
            first.send_signal(end)
            first.wait()
    folder.mkdir(exist_ok=True)  # a folder with nothing in it is removed
    (folder / "mine").touch()
    enter(folder)
    assert sorted(os.listdir(folder)) == [LOCK_FILE, "mine"]


def test_not_even_twice_in_one_process(tmp_path: Path) -> None:
    with only_writer(tmp_path), pytest.raises(SpecError, match="another process"):
        enter(tmp_path)
    enter(tmp_path)


def test_what_was_made_for_nothing_is_removed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), only_writer(tmp_path / "new"):
        raise ZeroDivisionError
    assert not (tmp_path / "new").exists()
    with only_writer(tmp_path / "new"):
        (tmp_path / "new" / "file").touch()
    enter(tmp_path / "new")
    assert (tmp_path / "new" / "file").exists()


def test_temporary_files_are_cleaned_but_not_those_of_other_writers(tmp_path: Path) -> None:
    name = ".model.pt.0123456789abcdef.tmp"
    for folder in ("", "views/edge-1", "attacks", "points/a/seed-0", "points/b/seed-0"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).touch()
    (tmp_path / "points/b/seed-0" / LOCK_FILE).touch()
    (tmp_path / "elsewhere").symlink_to(tmp_path / "points/b/seed-0")
    enter(tmp_path)
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob(name)] == [Path("points/b/seed-0", name)]


@pytest.mark.parametrize("name", ["file", "file/below", "x" * 300, "nul\0"])
def test_what_cannot_be_a_folder_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SpecError, match="out: ") as caught:
        enter(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["file"]


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / LOCK_FILE).symlink_to(tmp_path / "precious")
    with pytest.raises(SpecError, match="cannot be used"):
        enter(tmp_path)
    assert (tmp_path / "precious").read_text() == "mine"


def test_the_next_free_number(tmp_path: Path) -> None:
    assert next_free(tmp_path / "run") == tmp_path / "run-2"
    (tmp_path / "run-2").mkdir()
    (tmp_path / "run-3").touch()
    assert next_free(tmp_path / "run") == tmp_path / "run-4"
    assert next_free(Path()).name == f"{Path().absolute().name}-2"
    assert baseline_folder(Path()).name == f"{Path().absolute().name}-without-noise"


def test_a_reader_is_told_that_a_run_is_going_on(tmp_path: Path) -> None:
    """Files that do not fit each other are no damage while another process writes them."""
    assert not is_being_written(tmp_path)
    with holder(tmp_path):
        assert is_being_written(tmp_path)
        assert repair_hint(tmp_path) == "the run is going on there: try again, or when it is done"
    assert not is_being_written(tmp_path)
    assert "restores it" in repair_hint(tmp_path)
