"""What a worker does with a job: its output, its errors, and how it is stopped."""

from __future__ import annotations

import signal
from pathlib import Path

import pool_jobs
import pytest

from sfumato.errors import SpecError
from sfumato.pool.worker import do_job


def refuses() -> None:
    raise SpecError("training.rounds", 0, "must be positive")


def test_output_and_traceback_of_a_failure_go_to_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    with capfd.disabled():  # pytest gives Python another standard output than the process has
        said = do_job(pool_jobs.fails, ("here",), log)
    assert said.startswith("code that was called failed: KeyError: 'here' (")
    assert "pool_jobs.py, line" in said
    written = log.read_text()
    assert written.startswith("before\n")
    assert "here on standard output" in written
    assert "here on standard error" in written
    assert written.count("Traceback") == 1
    print("after")
    assert capfd.readouterr() == ("after\n", "")


def test_an_error_of_the_users_is_its_message_without_a_traceback(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert do_job(refuses, (), log) == "training.rounds: got 0; must be positive"
    assert do_job(pool_jobs.write, (tmp_path / "done", "x"), log) == ""
    assert log.read_text() == ""
    assert (tmp_path / "done").read_text() == "x"


def test_a_bug_of_ours_is_called_so(tmp_path: Path) -> None:
    assert do_job(int, ("x",), tmp_path / "log").startswith("internal error: ValueError: invalid literal")


def test_code_that_ends_the_program_is_a_failure(tmp_path: Path) -> None:
    said = do_job(pool_jobs.ends_the_program, (), tmp_path / "log")
    assert "it ended the program (SystemExit: 3)" in said


def test_no_signal_interrupts_the_saving_of_a_run(tmp_path: Path) -> None:
    """It did: rounds since the last checkpoint were lost, now and then, when a pool was killed."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        do_job(pool_jobs.is_stopped_twice, (tmp_path / "saved",), tmp_path / "log")
    assert (tmp_path / "saved").read_text() == "all is saved"
    assert signal.getsignal(signal.SIGTERM) is before
    assert "Traceback" not in (tmp_path / "log").read_text()
