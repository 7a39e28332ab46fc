"""The same spec, seed and device give the same bytes (docs/run-folder.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fast_python
import pandas as pd
import pytest

from sfumato.run_folder.damage import check_folder
from sfumato.run_folder.reader import load_run

PLAY = """
import sys, torch
from pathlib import Path
from sfumato.simulation import folder_writer, run as simulate
from sfumato.run_folder.reader import write_text
from sfumato.spec import load_spec
folder_writer._write_report = lambda folder: write_text(folder / "report.html", "report")
folder_writer.find_spec = lambda name: None
spec, device, threads, *folders = sys.argv[1:]
torch.set_num_threads(int(threads))
for out in folders:
    simulate.run(load_spec(spec), out=Path(out), device=device, record_views=["edge:1"])
"""
SPEC = """
name: same
protocol: h2fdp
seed: 5
data: {source: digits, partition: {kind: dirichlet, alpha: 0.5}}
model: {kind: mlp, hidden: 16}
topology: {kind: tree, edges: 3, devices_per_edge: [5, 4, 6]}
trust: {trusted_edges: 0.5}
training:
  {rounds: 4, steps_per_round: 4, edge_every: 2, batch_size: 8, learning_rate: 0.3,
   participation: {kind: fixed, count: 3}, server: {optimizer: adam, learning_rate: 0.05}}
privacy: {clip: {kind: update, norm: 1.0}, noise: {multiplier: 0.5}}
transport: {devices_to_edge: secure-aggregation}
watch: [cloud]
"""
SAME = ""  # the hash seed that the process that forks was given
BYTES = ("model.pt", "spec.yaml", "privacy.json", "ledger.json", "views/edge-1/round-000004.npz")


def played(
    folder: Path, *names: str, threads: int = 1, hash_seed: str = SAME, device: str = "cpu"
) -> list[Path]:
    """One process that plays the spec into every folder named."""
    (folder / "spec.yaml").write_text(SPEC)
    environment = os.environ | ({} if hash_seed == SAME else {"PYTHONHASHSEED": hash_seed})
    folders = [folder / name for name in names]
    command = [sys.executable, "-c", PLAY, folder / "spec.yaml", device, str(threads), *folders]
    start = fast_python.run if hash_seed == SAME else subprocess.run
    start(command, check=True, env=environment, cwd=folder)
    assert [check_folder(out) for out in folders] == [[] for _ in folders]
    return folders


def metrics(folder: Path) -> pd.DataFrame:
    return load_run(folder).metrics.drop(columns="wall_time_s")


def assert_same_bytes(one: Path, other: Path) -> None:
    for name in BYTES:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    pd.testing.assert_frame_equal(metrics(one), metrics(other), check_exact=True)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return played(tmp_path_factory.mktemp("runs"), "first")[0]


def test_another_process_another_hash_seed_another_folder(first: Path, tmp_path: Path) -> None:
    assert_same_bytes(first, played(tmp_path, "a-much-longer-name", hash_seed="4242")[0])


def test_another_number_of_threads(first: Path, tmp_path: Path) -> None:
    assert_same_bytes(first, played(tmp_path, "two", threads=2)[0])


@pytest.mark.needs("cuda")
def test_on_a_gpu_twice(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = (played(tmp_path / name, "run", device="cuda")[0] for name in ("one", "two"))
    assert_same_bytes(one, two)
