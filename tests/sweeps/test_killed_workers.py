"""A sweep of which a worker is killed while it trains: all points are there, and are what they would be."""

from __future__ import annotations

import logging
import multiprocessing
import threading
import time
from pathlib import Path

import pandas as pd
import pytest
from places import TESTS

import sfumato as sf
from sfumato.run_folder.reader import load_run
from sfumato.run_folder.seal import read_seal
from sfumato.sweeps.grid import Axis
from sfumato.sweeps.request import SweepRequest
from sfumato.sweeps.runner import run_request
from sfumato.sweeps.sweep_progress import PointProgress

# twelve seconds of training, nearly all of them asleep, so that there are checkpoints before the end
SLOW = ["topology.edges=2", "topology.devices_per_edge=4", "training.steps_per_round=4",
        "training.edge_every=2", "training.batch_size=4", "training.rounds=150", "evaluate_every=150",
        "model.kind=sweep_models:unhurried"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("fast_workers")
def test_a_killed_worker_costs_what_came_after_its_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.syspath_prepend(str(TESTS / "support"))
    out = tmp_path / "sweep"
    told: list[PointProgress] = []
    killed: list[int] = []

    def kill_one() -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            time.sleep(0.05)
            seals = [read_seal(path.parent) for path in out.glob("points/*/*/checkpoint.pt")]
            if len(seals) == 2 and all(0 < seal.rounds.rounds < 150 for seal in seals):
                killed.append(max(seal.rounds.rounds for seal in seals))
                multiprocessing.active_children()[0].kill()
                return

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    request = SweepRequest.of("quickstart", [Axis.of("seed", [1, 2])], out=out, overrides=SLOW)
    with caplog.at_level(logging.WARNING):
        swept = run_request(request, workers=2, progress=False, otherwise=told.append)
    killer.join()
    assert swept.failures == ()
    assert swept.table["rounds"].tolist() == [150, 150]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "its process was killed (SIGKILL: out of memory?); it is tried again (2 of 3)" in warning
    (lost,) = [folder for folder in out.glob("points/*/*") if warning.startswith(str(folder))]
    seen = [one.round for one in told if lost.parent.name == one.point and one.round]
    assert seen == sorted(seen)  # the killed run went on from its checkpoint
    assert min(seen) <= killed[0] < 150
    spec = sf.load_spec(lost / "spec.yaml")
    whole = sf.run(spec, out=tmp_path / "whole", device="cpu").metrics
    pd.testing.assert_frame_equal(
        load_run(lost).metrics.drop(columns="wall_time_s"),
        whole.drop(columns="wall_time_s"),
        check_exact=True,
    )
