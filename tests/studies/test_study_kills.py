"""A study whose process is killed at random moments and started again gives the table of one that was not."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import fast_python
import pandas as pd
import pytest
from slow import first_of
from test_study_files import written
from test_study_runs import study

SEED = 31


def table_of(file: Path, out: Path) -> pd.DataFrame:
    return pd.read_parquet(out / file.stem / "digits" / "results.parquet")


def is_trained(result: Path) -> bool:
    """Whether a result, which is first written when the point is accounted for, has metrics."""
    return json.loads(result.read_text("utf-8"))["metrics"] is not None


def started(file: Path, out: Path) -> fast_python.Popen:
    command = [sys.executable, "-m", "sfumato", "study", file, "--workers", "2", "--out", out]
    return fast_python.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("batch", first_of(4, 1))
def test_twenty_kills(batch: int, tmp_path: Path) -> None:
    """Five in each batch. A second call is not killed; runs that the first one ended are not done again."""
    document = study()
    document["grids"]["main"]["spec"]["training"]["rounds"] = 300  # so that runs take as long as all the rest
    file = written(tmp_path, document)
    begun = time.monotonic()
    with started(file, tmp_path / "whole") as process:
        _, said = process.communicate()
    assert process.returncode == 0, said
    seconds = time.monotonic() - begun
    expected = table_of(file, tmp_path / "whole")

    moments = random.Random(SEED + batch)
    for number in range(5):
        out = tmp_path / f"killed-{number}"
        with started(file, out) as process:
            try:
                process.communicate(timeout=moments.uniform(0, seconds))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        kept = {path: path.stat().st_mtime_ns for path in out.rglob("seed-*/result.json") if is_trained(path)}
        with started(file, out) as process:
            _, said = process.communicate()
        assert process.returncode == 0, said
        assert {path: path.stat().st_mtime_ns for path in kept} == kept
        pd.testing.assert_frame_equal(table_of(file, out), expected)
        print(f"kill {number}: {len(kept)} of 8 runs had ended")
