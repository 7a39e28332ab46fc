"""The worker process of a sweep: reads jobs as JSON lines from standard input, and does one after another.

It replies in JSON lines: ``{"round", "rounds"}`` during a run, then ``{"done": true}`` or
``{"failed": message}``. The output of libraries goes to standard error, which is a log file. The process
ends with the pool that started it: when its standard output is closed, a run saves its checkpoint.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import IO, Any

from sfumato.errors import SfumatoError
from sfumato.user_code import describe_error, user_code_location


def run_job(job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Do one job, ``{"task": "account" or "run", "spec", "folder", "device", "track"}``; yields progress."""
    from sfumato.spec import load_spec

    spec, folder = load_spec(job["spec"]), Path(job["folder"])
    if job["task"] == "account":
        from sfumato.sweeps.point_result import write_accounting

        write_accounting(spec, folder)
        return
    from sfumato.simulation.run import run_rounds
    from sfumato.sweeps.point_result import add_metrics

    signal.signal(signal.SIGTERM, _interrupt)  # from here on there may be a checkpoint to save
    options = {"device": job["device"], "track": job["track"]}
    for result in run_rounds(spec, out=folder, resume=True, **options):
        yield {"round": result.round, "rounds": result.rounds}
    add_metrics(folder)


def main() -> int:
    """Do jobs until the end of the input; returns the exit status."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    threading.Thread(target=_end_with_reader, args=(answers.fileno(),), daemon=True).start()
    try:
        for line in sys.stdin:
            with closing(_replies(json.loads(line))) as replies:  # closed, a run saves its checkpoint
                _print_all(replies, answers)
    except (BrokenPipeError, KeyboardInterrupt):
        return 130  # the pool has ended or stopped this worker; a run has saved its checkpoint
    return 0


def _print_all(replies: Iterator[dict[str, Any]], answers: IO[str]) -> None:
    try:
        for said in replies:
            print(json.dumps(said), file=answers, flush=True)
    except BrokenPipeError:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `_end_with_reader` sends it while the run is saved
        raise


def _replies(job: Mapping[str, Any]) -> Generator[dict[str, Any]]:
    try:
        yield from run_job(job)
    except SfumatoError as error:
        yield {"failed": str(error)}
    except (Exception, SystemExit) as error:  # a user's model may try to end the program
        traceback.print_exc()
        blame = "code that was called failed" if user_code_location(error) else "internal error"
        yield {"failed": f"{blame}: {describe_error(error)}"}
    else:
        yield {"done": True}


def _end_with_reader(pipe: int) -> None:
    """Wait until the reader of ``pipe`` has ended, then send this process the signal that stops it."""
    waiting = select.poll()
    waiting.register(pipe, 0)  # errors are reported without being requested
    waiting.poll()
    os.kill(os.getpid(), signal.SIGTERM)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would interrupt the saving of the checkpoint
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
