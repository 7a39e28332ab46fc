"""The log of rounds: appended, sealed, never held in memory."""

from __future__ import annotations

import errno
import hashlib
import itertools
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.errors import RunError
from sfumato.run_folder.metrics_table import columns_of, table_of, tables_of
from sfumato.run_folder.rounds_log import (
    EMPTY,
    NEXT_FILE,
    ROUNDS_FILE,
    LoggedRound,
    RoundsLog,
    SealedPrefix,
    read_rounds,
    write_next,
)


def rounds(count: int, start: int = 0) -> list[LoggedRound]:
    return [
        LoggedRound({"round": k + 1.0, "accuracy": 0.1 * k if k % 2 else math.nan, "epsilon:cloud": math.inf},
              {"edge-1": "ab" * 32} if k % 3 else {})
        for k in range(start, start + count)
    ]  # fmt: skip


def same(found: list[LoggedRound], right: list[LoggedRound]) -> bool:
    return [one.line() for one in found] == [one.line() for one in right]


def logged(folder: Path, count: int) -> SealedPrefix:
    log = RoundsLog(folder, EMPTY)
    for one in rounds(count):
        log.add(one)
    mark = log.flush(count)
    log.close()
    return mark


def test_what_is_flushed_is_read(tmp_path: Path) -> None:
    mark = logged(tmp_path, 5)
    content = (tmp_path / ROUNDS_FILE).read_bytes()
    assert mark == SealedPrefix(5, len(content), hashlib.sha256(content).hexdigest())
    assert same(list(read_rounds(tmp_path, mark)), rounds(5))
    assert list(read_rounds(tmp_path / "nowhere", EMPTY)) == []


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(value=st.floats(allow_nan=True, allow_infinity=True))
def test_every_float_comes_back_to_the_bit(value: float) -> None:
    (found,) = LoggedRound.read(LoggedRound({"x": value}).line()).metrics.values()
    assert np.float64(found).tobytes() == np.float64(value).tobytes() or (
        math.isnan(value) and math.isnan(found)
    )


def test_a_log_goes_on_where_it_was_sealed(tmp_path: Path) -> None:
    """What a killed run had written behind that is dropped."""
    mark = logged(tmp_path, 3)
    with (tmp_path / ROUNDS_FILE).open("ab") as file:
        file.write(b'{"metrics": {"round": 4.0}}\nhalf of a li')
    assert same(list(read_rounds(tmp_path, mark)), rounds(3))
    log = RoundsLog(tmp_path, mark)
    for one in rounds(2, start=3):
        log.add(one)
    mark = log.flush(5)
    log.close()
    (tmp_path / "whole").mkdir()
    assert mark == logged(tmp_path / "whole", 5)
    assert same(list(read_rounds(tmp_path, mark)), rounds(5))


def test_only_rounds_that_count_are_flushed(tmp_path: Path) -> None:
    """An interrupt may come between the line of a round and the state after it."""
    log = RoundsLog(tmp_path, EMPTY)
    for one in rounds(3):
        log.add(one)
    assert log.flush(2).rounds == 2
    assert log.flush(2) == log.mark
    assert same(list(read_rounds(tmp_path, log.mark)), rounds(2))
    assert same(list(read_rounds(tmp_path, log.flush(3))), rounds(3))
    log.close()


def test_every_damage_to_what_is_sealed_is_refused(tmp_path: Path) -> None:
    mark = logged(tmp_path, 4)
    path = tmp_path / ROUNDS_FILE
    whole = path.read_bytes()
    flipped = [
        whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in range(0, len(whole), 7)
    ]
    for damaged in (b"", whole[:-1], whole[1:], *flipped):
        path.write_bytes(damaged)
        for use in (lambda: RoundsLog(tmp_path, mark), lambda: list(read_rounds(tmp_path, mark))):
            with pytest.raises(RunError, match=r"rounds\.jsonl: is damaged: the 4 rounds"):
                use()
    path.unlink()
    with pytest.raises(RunError, match=r"rounds\.jsonl: is missing"):
        RoundsLog(tmp_path, mark)


def test_a_log_written_anew_counts_once_it_is_sealed(tmp_path: Path) -> None:
    old = logged(tmp_path, 3)
    other = [LoggedRound({"round": one.metrics["round"]}, one.views) for one in rounds(3)]
    new = write_next(tmp_path, iter(other))
    assert same(list(read_rounds(tmp_path, old)), rounds(3))
    assert same(list(read_rounds(tmp_path, new)), other)  # as after a kill between the checkpoint and the log
    RoundsLog(tmp_path, new).close()
    assert not (tmp_path / NEXT_FILE).exists()
    assert same(list(read_rounds(tmp_path, new)), other)
    write_next(tmp_path, iter(rounds(3)))
    RoundsLog(tmp_path, new).close()  # as after a kill before the checkpoint
    assert not (tmp_path / NEXT_FILE).exists()
    assert same(list(read_rounds(tmp_path, new)), other)


def test_a_full_disk_loses_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RoundsLog(tmp_path, EMPTY)
    for one in rounds(2):
        log.add(one)
    sealed = log.flush(2)
    for one in rounds(3, start=2):
        log.add(one)

    def full(descriptor: int, data: memoryview, at: int) -> int:
        os.lseek(descriptor, at, os.SEEK_SET)
        os.write(descriptor, data[:20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        for _ in range(2):
            with pytest.raises(RunError, match=r"rounds\.jsonl: cannot be written: No space left"):
                log.flush(5)
    assert same(list(read_rounds(tmp_path, sealed)), rounds(2))
    assert same(list(read_rounds(tmp_path, log.flush(5))), rounds(5))
    log.close()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ROUNDS_FILE).symlink_to(tmp_path / "precious")
    with pytest.raises(RunError, match="cannot be written"):
        RoundsLog(tmp_path, EMPTY)
    assert (tmp_path / "precious").read_text() == "mine"


def test_tables_come_in_parts_and_in_order() -> None:
    row = dict.fromkeys(("accuracy", "loss", "energy_j", "delay_s", "bytes_up", "bytes_down", "clip_fraction",
                         "noise_std", "wall_time_s"), 1.0)  # fmt: skip
    late = [{"late": k * 1.0} if k > 2 else {} for k in range(7)]
    given_ = [LoggedRound({"round": k + 1.0} | row | {"epsilon:cloud": 2.0} | late[k]) for k in range(7)]
    columns = columns_of(given_)
    assert columns[:5] == ("round", "accuracy", "loss", "late", "epsilon:cloud")
    parts = list(tables_of(iter(given_), columns, most=3))
    assert [len(part) for part in parts] == [3, 3, 1]
    whole = table_of(iter(given_))
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole)
    assert whole["late"].isna().tolist() == [True] * 3 + [False] * 4
    assert (whole["round"].dtype, whole["bytes_up"].dtype, whole["loss"].dtype) == (
        "int64",
        "int64",
        "float64",
    )


def test_memory_does_not_grow_with_the_rounds(tmp_path: Path) -> None:
    """Neither what waits nor what is written at a save."""
    log = RoundsLog(tmp_path, EMPTY)
    sizes = []
    for k, one in zip(itertools.count(1), rounds(1000), strict=False):
        log.add(one)
        if k % 100 == 0:
            log.flush(k)
            sizes.append(len(log._waiting))
    assert sizes == [0] * 10
    assert log.mark.rounds == 1000
    log.close()
