"""``rounds.jsonl``: one line for each round, appended and never changed.

A line holds the metrics of a round and the SHA-256 of the views recorded in it::

    {"metrics": {"round": 1, "accuracy": 0.41, "epsilon:cloud": "inf", ...}, "views": {"edge-1": "9f2c..."}}

``null`` stands for a value that was not measured. A checkpoint seals the first part of the log
(`SealedPrefix`); the lines after it belong to rounds that a resumed run repeats. If a resumed run requests
other metrics, a new log is written beside the old one, which it replaces once a checkpoint seals it.
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
    """The first rounds of a log, which a checkpoint seals.

    Attributes:
        rounds: number of rounds.
        size: number of bytes.
        sha256: of these bytes.
    """

    rounds: int
    size: int
    sha256: str


EMPTY = SealedPrefix(0, 0, hashlib.sha256().hexdigest())


@dataclass(frozen=True)
class LoggedRound:
    """The round in one line of the log.

    Attributes:
        metrics: by column; NaN if not measured.
        views: SHA-256 of the views recorded in this round, by folder under ``views/``.
    """

    metrics: Mapping[str, float]
    views: Mapping[str, str] = field(default_factory=dict)

    def line(self) -> bytes:
        """The round as one line of the log: JSON as bytes, with a newline."""
        metrics = {name: _number_to_json(value) for name, value in self.metrics.items()}
        document: dict[str, Any] = {"metrics": metrics} | ({"views": dict(self.views)} if self.views else {})
        return (json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n").encode()

    @classmethod
    def read(cls, line: bytes) -> LoggedRound:
        """The round that one line of the log holds, as `line` writes it.

        The caller has checked the hash of the log, so a damaged line need not be looked for here.
        """
        document = json.loads(line)
        metrics = {name: _number_from_json(value) for name, value in document["metrics"].items()}
        return cls(metrics, document.get("views", {}))


class RoundsLog:
    """The log of a run, open for appending. It must be closed.

    Args:
        folder: of the run.
        mark: the sealed part of the log; the rest is removed.

    Raises:
        RunError: the sealed part is missing or damaged, or the log cannot be written.
    """

    def __init__(self, folder: Path, mark: SealedPrefix) -> None:
        self._path = folder / ROUNDS_FILE
        self._waiting: deque[bytes] = deque()
        found, self._sum = _open_sealed(folder, mark)
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
        """The seal (rounds, bytes and hash) of the part of the log that is on the disk."""
        return self._mark

    def close(self) -> None:
        """Close the log; rounds that were not flushed are lost."""
        os.close(self._descriptor)

    def add(self, done: LoggedRound) -> None:
        """Keep a round in memory; the next `flush` writes it."""
        self._waiting.append(done.line())

    def flush(self, rounds: int) -> SealedPrefix:
        """Write the added rounds, up to the run's first ``rounds``, to the disk; returns the log's seal.

        Raises:
            RunError: they cannot be written; they are kept for the next call.
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
    """Yield, one by one, the rounds in the part of the log that ``mark`` seals.

    Raises:
        RunError: they are missing or damaged.
    """
    if mark.rounds == 0:
        return
    path, _ = _open_sealed(folder, mark)
    with path.open("rb") as file:
        for _ in range(mark.rounds):
            yield LoggedRound.read(file.readline())


def write_next(folder: Path, rounds: Iterable[LoggedRound]) -> SealedPrefix:
    """Write ``rounds`` as the next log beside the present one; returns its seal for the next checkpoint.

    The present log stays valid until a checkpoint with that seal is written.

    Raises:
        RunError: it cannot be written.
    """
    count = 0
    with replacing(folder / NEXT_FILE) as file:
        for one in rounds:
            file.write(one.line())
            count += 1
    return SealedPrefix(count, file.size, file.sha256)


def _open_sealed(folder: Path, mark: SealedPrefix) -> tuple[Path, Any]:
    """Find the log file, the present or the next one, that begins with the bytes that ``mark`` seals.

    Returns:
        Its path, and the SHA-256 object of these bytes, to be continued.

    Raises:
        RunError: neither file begins with them.
    """
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
    """A SHA-256 object of the first ``size`` bytes of a file, to be continued."""
    found = hashlib.sha256()
    require_regular(path)
    with path.open("rb") as file:
        while size > 0 and (part := file.read(min(size, 1 << 20))):
            found.update(part)
            size -= len(part)
    return found


def _number_to_json(value: float) -> float | str | None:
    """``value`` as the log of rounds has it: NaN as null, infinities as text."""
    if math.isnan(value):
        return None
    return ("inf" if value > 0 else "-inf") if math.isinf(value) else float(value)


def _number_from_json(value: float | str | None) -> float:
    """The number that ``value`` in the log of rounds stands for; null is NaN."""
    return math.nan if value is None else float(value)
