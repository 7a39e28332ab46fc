"""Runs over several ranks: a forked process each, with the environment that torchrun gives it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import fast_python
from places import TESTS
from torch.distributed import TCPStore

from sfumato.run_folder.metrics_table import read_metrics
from sfumato.spec import dump_spec
from sfumato.spec.document import Spec

MAIN = TESTS / "support" / "one_rank.py"
SAME_BYTES = ("model.pt", "groups.pt", "privacy.json", "ledger.json")
Said = tuple[int, str, str]
"""Exit status, standard output, standard error."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def environments(ranks: int, port: int) -> list[dict[str, str]]:
    """Of every rank that meets the others at a port; one rank is a process that torchrun did not start."""
    if ranks == 1:
        return [{}]
    meet = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    return [meet | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def start(
    command: Sequence[str | Path],
    ranks: int,
    each: Mapping[int, Sequence[str]] | None = None,
    folders: Mapping[int, Path] | None = None,
    **options: str,
) -> list[subprocess.Popen[str]]:
    """Start a Python script as every rank.

    Args:
        command: the script and its arguments.
        ranks: how many.
        each: further arguments of some ranks.
        folders: where some ranks are started.
        options: further variables of the environment.
    """
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    meeting = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    started = [
        fast_python.Popen(
            [sys.executable, *map(str, command), *(each or {}).get(rank, ())],
            text=True,
            cwd=(folders or {}).get(rank),
            env=os.environ | environment | options,
            **pipes,  # type: ignore[call-overload]
        )
        for rank, environment in enumerate(environments(ranks, meeting.port))
    ]
    for process in started:
        process.meeting = meeting  # like torchrun's store, it outlives the ranks, and no longer
    return started


def ended(processes: Sequence[subprocess.Popen[str]], seconds: float = 120.0) -> list[Said]:
    """How every rank ended; those that do not are killed, which fails the test."""
    try:
        said = [process.communicate(timeout=seconds) for process in processes]
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
        raise
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


def written(spec: Spec, folder: Path) -> Path:
    path = folder / "wanted.yaml"
    path.write_text(dump_spec(spec))
    return path


def arguments(spec: Path, out: Path, *more: str) -> list[str | Path]:
    return [MAIN, "run", spec, "--out", out, "--device", "cpu", *more]


def played(spec: Path, out: Path, ranks: int, *more: str) -> Path:
    """The folder of a run over so many ranks."""
    said = ended(start(arguments(spec, out, *more), ranks))
    assert [status for status, _, _ in said] == [0] * ranks, said
    assert [one[1:] for one in said[1:]] == [("", "")] * (ranks - 1)
    return out


def differences(one: Path, other: Path) -> list[str]:
    """Names of files of two run folders that differ by more than wall time."""
    files = [
        {path.relative_to(at).as_posix() for path in at.rglob("*") if path.is_file()} for at in (one, other)
    ]
    found = sorted(files[0] ^ files[1])
    compared = files[0] & files[1] & {*SAME_BYTES, *(name for name in files[0] if name.startswith("views/"))}
    found += [name for name in sorted(compared) if (one / name).read_bytes() != (other / name).read_bytes()]
    tables = [read_metrics(at / "metrics.parquet")[0].drop(columns="wall_time_s") for at in (one, other)]
    return found if tables[0].equals(tables[1]) else [*found, "metrics.parquet"]
