"""Files written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from sfumato import durable_files
from sfumato.durable_files import clean_temporary, hash_file, make_folder, read_regular, replacing
from sfumato.errors import RunError


def test_replacing_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    with replacing(path) as file:
        file.write(b"old")
        assert not path.exists()
    assert (file.sha256, file.size) == (hashlib.sha256(b"old").hexdigest(), 3) == hash_file(path)

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half of the n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]


KILLED = """
import os, sys
from pathlib import Path
from sfumato.durable_files import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half of the n")
    os.kill(os.getpid(), 9)
"""


def test_a_killed_writer_leaves_the_old_file_and_what_can_be_cleaned(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    mine = [".file.txt.tmp", "file.0123456789abcdef.tmp", ".a.0123456789abcdeg.tmp"]
    for name in mine:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".b.0123456789abcdef.tmp").symlink_to(path)
    (tmp_path / ".c.0123456789abcdef.tmp").mkdir()
    assert subprocess.run([sys.executable, "-c", KILLED, path], check=False).returncode == -9
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 7
    clean_temporary(tmp_path)
    left = {"file.txt", ".c.0123456789abcdef.tmp", *mine}
    assert {p.name for p in tmp_path.iterdir()} == left
    assert path.read_text() == "old"


def test_names_cannot_be_guessed_and_links_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_text("precious")
    monkeypatch.setattr(durable_files.secrets, "token_hex", lambda count: "0" * 2 * count)
    (tmp_path / f".file.{'0' * 16}.tmp").symlink_to(victim)

    def write() -> None:
        with replacing(path) as file:
            file.write(b"new")

    with pytest.raises(RunError, match="file: cannot be written: File exists"):
        write()
    monkeypatch.undo()
    path.symlink_to(victim)
    seen = set()
    real = os.open
    monkeypatch.setattr(os, "open", lambda at, *more: (seen.add(str(at)), real(at, *more))[1])
    write()
    write()
    assert len({name for name in seen if name.endswith(".tmp")}) == 2
    assert path.read_text() == "new"
    assert not path.is_symlink()
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(("private", "mode"), [(False, 0o640), (True, 0o600)])
def test_who_may_read(private: bool, mode: int, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "file", private=private) as file:
            file.write(b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_files_and_folders_are_flushed_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file before its new name, the folder after it; new folders in those above them."""
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flushed(descriptor: int) -> None:
        done.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("renamed"), replace(*paths))[1])
    with replacing(tmp_path / "a" / "b" / "file") as file:
        file.write(b"x")
    top, inner = str(tmp_path), str(tmp_path / "a" / "b")
    assert done[:2] == [str(tmp_path / "a"), top]
    assert done[2].startswith(f"{inner}/.file.")
    assert done[3:] == ["renamed", inner]


def in_words_of_its_own(file) -> None:
    """What libraries in other languages make of a failed write."""
    try:
        file.write(b"x" * 10**6)
    except OSError:
        raise RuntimeError("unexpected position") from None


WRITERS = {
    "words of its own": in_words_of_its_own,
    "bytes": lambda file: file.write(b"x" * 10**6),
    "torch": lambda file: torch.save({"a": torch.zeros(10**6)}, file),
    "numpy": lambda file: np.savez(file, a=np.zeros(10**6)),
    "parquet": lambda file: pd.DataFrame({"a": np.random.default_rng(0).random(10**5)}).to_parquet(file),
}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_is_one_line_and_loses_nothing(
    writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, left = tmp_path / "file", 30_000
    path.write_text("old")
    write = os.write

    def full(descriptor: int, data: memoryview) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, data[:left])
        left -= written
        return written

    monkeypatch.setattr(os, "write", full)
    with (
        pytest.raises(RunError, match="file: cannot be written: No space left on device") as caught,
        replacing(path) as file,
    ):
        writer(file)
    assert "\n" not in str(caught.value)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["", ".", "x" * 300, "file/below"])
def test_names_that_cannot_be_are_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")

    def write() -> None:
        with replacing(tmp_path / name) as file:
            file.write(b"new")

    with pytest.raises(RunError, match="cannot be written"):
        write()
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_what_libraries_write_is_hashed_as_it_lies_there(tmp_path: Path) -> None:
    for name, writer in WRITERS.items():
        with replacing(tmp_path / name) as file:
            writer(file)
        assert hash_file(tmp_path / name) == (file.sha256, file.size)
    assert len(np.load(tmp_path / "numpy")["a"]) == 10**6
    assert len(torch.load(tmp_path / "torch", weights_only=True)["a"]) == 10**6


def test_a_folder_is_made_once(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("read", [hash_file, read_regular])
def test_what_never_ends_is_not_read(read: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "zeros").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    for name, said in (
        ("zeros", "not a regular file"),
        ("pipe", "not a regular file"),
        (".", "Is a directory"),
    ):
        with pytest.raises(OSError, match=said):
            read(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nowhere")
