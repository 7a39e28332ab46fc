"""``rounds.jsonl``: one line a round, appended and never written again.

A line holds the metrics of a round and the SHA-256 of the views recorded in it::

    {"metrics": {"round": 1, "accuracy": 0.41, "epsilon:cloud": "inf", ...}, "views": {"edge-1": "9f2c..."}}

``null`` is what was not measured. A checkpoint seals the log as far as it goes (`SealedPrefix`); lines behind
that are of rounds that a killed run plays again. A log that is written anew, because a resumed run is to show
something else, lies beside the old one until the checkpoint that seals it is in its place.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfumato.durable_files import reason, replacing, require_regular, sync_folder
from sfumato.errors import RunError

ROUNDS_FILE = "rounds.jsonl"
NEXT_FILE = ".rounds.jsonl.next"


@dataclass(frozen=True)
class SealedPrefix:
    """The first rounds of a log.

    Attributes:
        rounds: how many.
        size: bytes.
        sha256: of these bytes.
    """

    rounds: int
    size: int
    sha256: str


EMPTY = SealedPrefix(0, 0, hashlib.sha256().hexdigest())


@dataclass(frozen=True)
class LoggedRound:
    """One line.

    Attributes:
        metrics: by column; NaN: not measured.
        views: SHA-256 of what was recorded in this round, by folder under ``views/``.
    """

    metrics: Mapping[str, float]
    views: Mapping[str, str] = field(default_factory=dict)

    def line(self) -> bytes:
        """As it is written."""
        metrics = {name: _written(value) for name, value in self.metrics.items()}
        document: dict[str, Any] = {"metrics": metrics} | ({"views": dict(self.views)} if self.views else {})
        return (json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n").encode()

    @classmethod
    def read(cls, line: bytes) -> LoggedRound:
        """The round that a line holds."""
        document = json.loads(line)
        metrics = {name: _read(value) for name, value in document["metrics"].items()}
        return cls(metrics, document.get("views", {}))


class RoundsLog:
    """The log of a run, open for appending; to be closed.

    Args:
        folder: of the run.
        mark: what of it is sealed; the rest is dropped.

    Raises:
        RunError: what was sealed is not there any more, or the system does not let it be written.
    """

    def __init__(self, folder: Path, mark: SealedPrefix) -> None:
        self._path = folder / ROUNDS_FILE
        self._waiting: deque[bytes] = deque()
        found, self._sum = _sealed(folder, mark)
        try:
            if found.name == NEXT_FILE:
                os.replace(found, self._path)
                sync_folder(folder)
            (folder / NEXT_FILE).unlink(missing_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o666)
            os.ftruncate(self._descriptor, mark.size)
        except OSError as error:
            raise RunError(f"{self._path}: cannot be written: {reason(error)}") from error
        self._mark = mark

    @property
    def mark(self) -> SealedPrefix:
        """What was flushed."""
        return self._mark

    def close(self) -> None:
        """Drop what was not flushed."""
        os.close(self._descriptor)

    def add(self, done: LoggedRound) -> None:
        """Keep a round until it is flushed."""
        self._waiting.append(done.line())

    def flush(self, rounds: int) -> SealedPrefix:
        """Write what waits, of the first ``rounds`` rounds of the run, to the disk; seals all of it.

        Raises:
            RunError: the system does not let it be written; nothing is lost.
        """
        lines = [self._waiting[n] for n in range(rounds - self._mark.rounds)]
        rest = memoryview(b"".join(lines))
        end, size = self._mark.size, self._mark.size + len(rest)
        try:
            while rest:
                written = os.pwrite(self._descriptor, rest, end)
                end, rest = end + written, rest[written:]
            if lines:
                os.fsync(self._descriptor)
        except OSError as error:
            raise RunError(f"{self._path}: cannot be written: {reason(error)}") from error
        for line in lines:
            self._sum.update(line)
            self._waiting.popleft()
        self._mark = SealedPrefix(rounds, size, self._sum.hexdigest())
        return self._mark


def read_rounds(folder: Path, mark: SealedPrefix) -> Iterator[LoggedRound]:
    """The rounds that ``mark`` seals, one by one.

    Raises:
        RunError: they are not there any more.
    """
    if mark.rounds == 0:
        return
    path, _ = _sealed(folder, mark)
    with path.open("rb") as file:
        for _ in range(mark.rounds):
            yield LoggedRound.read(file.readline())


def write_next(folder: Path, rounds: Iterable[LoggedRound]) -> SealedPrefix:
    """Write a log anew, beside the old one; returns the mark that the next checkpoint is to hold."""
    count = 0
    with replacing(folder / NEXT_FILE) as file:
        for one in rounds:
            file.write(one.line())
            count += 1
    return SealedPrefix(count, file.size, file.sha256)


def _sealed(folder: Path, mark: SealedPrefix) -> tuple[Path, Any]:
    """The file that begins with what ``mark`` seals, and the hash of that, to go on with."""
    path = folder / ROUNDS_FILE
    if mark.size == 0:
        return path, hashlib.sha256()
    for at in (path, folder / NEXT_FILE):
        try:
            found = _hash_of(at, mark.size)
        except OSError:
            continue
        if found.hexdigest() == mark.sha256:
            return at, found
    state = "is damaged" if path.exists() else "is missing"
    raise RunError(f"{path}: {state}: the {mark.rounds:,} rounds that the checkpoint seals are not in it")


def _hash_of(path: Path, size: int) -> Any:
    """The hash, to go on with, of the first ``size`` bytes."""
    found = hashlib.sha256()
    require_regular(path)
    with path.open("rb") as file:
        while size > 0 and (part := file.read(min(size, 1 << 20))):
            found.update(part)
            size -= len(part)
    return found


def _written(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return ("inf" if value > 0 else "-inf") if math.isinf(value) else float(value)


def _read(value: float | str | None) -> float:
    return math.nan if value is None else float(value)
