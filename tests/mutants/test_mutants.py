"""Mutated specs end in a result or in one line: no tracebacks, 2 GB and a minute of CPU each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from slow import first_of

HERE = Path(__file__).parent
SEED = 13


def tried(first: int, last: int, *options: str) -> list[dict]:
    """What came of these mutants; a worker that dies is what came of the one it was at."""
    found: list[dict] = []
    while first < last:
        command = [sys.executable, str(HERE / "worker.py"), str(SEED), str(first), str(last), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * (last - first) + 600)
        said = [json.loads(line) for line in done.stdout.splitlines()]
        found += [line for line in said if "outcome" in line]
        if done.returncode == 0:
            break
        number = said[-1]["trying"] if said else first
        found.append({"number": number, "outcome": "failed", "wrong": f"killed: {done.stderr[-2000:]}"})
        first = number + 1
    return found


def judge(found: list[dict], count: int) -> None:
    wrong = {row["number"]: row["wrong"] for row in found if row["wrong"]}
    assert wrong == {}
    assert len(found) == count
    outcomes = [row["outcome"] for row in found]
    assert outcomes.count("refused") > count / 4  # so that both sides of the border are tried
    assert len(outcomes) - outcomes.count("refused") > count / 8


def test_thirty_mutants():
    judge(tried(0, 30, "quick"), 30)


def test_a_wrong_ending_is_noticed(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    import worker

    assert worker._verdict("account", 2, "", "sfumato: one line\n") is None
    for status, out, err in (
        (1, "", "sfumato: internal error: KeyError: 'a'\n"),
        (0, "nan", ""),
        (2, "", "two\nlines\n"),
        (3, "", "sfumato: one line\n"),
    ):
        assert worker._verdict("account", status, out, err) is not None


@pytest.mark.parametrize(
    ("body", "said"),
    [("while True: pass", "more than 0.5 s of CPU"), ("return bytearray(2**31)", "MemoryError")],
)
def test_too_much_time_or_memory_is_noticed(body, said):
    script = f"""
import sys, worker
def tried(*arguments, **options):
    {body}
worker.CPU_SECONDS, worker.tried, sys.argv = 0.5, tried, ["worker.py", "0", "0", "1"]
worker.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=HERE, capture_output=True, text=True, timeout=300
    )
    assert said in json.loads(done.stdout.splitlines()[-1])["wrong"]


@pytest.mark.slow
@pytest.mark.parametrize("batch", first_of(40, 8))
def test_ten_thousand_mutants(batch):
    judge(tried(250 * batch, 250 * (batch + 1)), 250)
