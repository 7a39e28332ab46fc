"""Runs of very many devices, of data larger than memory, and of a large model; the scripts of the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf

IMPORTS = """
import json, resource, sys
import numpy, pandas, plotly.graph_objects, pyarrow.parquet, scipy.stats, sklearn.metrics, torch
import sfumato as sf, sfumato.cli.run, sfumato.report, sfumato.simulation.run

def status(what):
    with open("/proc/self/status") as file:
        return int(dict(line.split(":", 1) for line in file)[what].split()[0]) << 10

def crowd(devices, chosen, data):
    training = {"rounds": 2, "local_steps": 2, "batch_size": 4, "learning_rate": 0.1}
    training["participation"] = {"kind": "fixed", "count": chosen}
    privacy = {"clip": {"kind": "update", "norm": 1}, "noise": {"multiplier": 1.0}}
    topology = {"kind": "star", "devices": devices}
    spec = {"name": "crowd", "protocol": "dp-fedavg", "topology": topology, "training": training}
    return sf.load_spec(spec | {"data": data, "privacy": privacy, "evaluate_every": 2})

"""

CROWD = """
devices, chosen = map(int, sys.argv[1:3])
before = status("VmHWM")
run = sf.run(crowd(devices, chosen, {"source": "synthetic", "examples_per_device": 20}), out=sys.argv[3])
print(json.dumps([status("VmHWM") - before, float(run.metrics["accuracy"].iloc[-1])]))
"""

LARGER = """
size = 5 * (allowed := int(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_DATA, (status("VmData") + allowed,) * 2)
try:
    bytearray(size)
except MemoryError:
    refused = True
spec = crowd(1_000, 20, {"source": sys.argv[2]})
run = sf.run(spec, out=sys.argv[3])
print(json.dumps([refused, float(run.metrics["accuracy"].iloc[-1])]))
"""

MB = 10**6


def answer(script: str, *arguments: object) -> list[float]:
    command = [sys.executable, "-c", IMPORTS + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "chosen", "bound"), [(100_000, 1_000, 200 * MB), (1_000_000, 10_000, 500 * MB)]
)
def test_memory_is_for_those_who_take_part(devices, chosen, bound, tmp_path):
    """The features of all devices alone are 128 MB and 1,280 MB; what is beyond imports is far less."""
    taken, accuracy = answer(CROWD, devices, chosen, tmp_path / "run")
    assert taken < bound
    assert 0 <= accuracy <= 1


@pytest.mark.slow
def test_data_may_be_five_times_larger_than_memory(tmp_path):
    """All features in memory do not fit the limit that the run keeps: five times as much is refused."""
    allowed, rows = 160 * MB, 200_000
    folder = tmp_path / "data"
    folder.mkdir()
    np.lib.format.open_memmap(folder / "features.npy", "w+", np.uint8, (rows, 8, 500))  # a hole of 800 MB
    np.save(folder / "labels.npy", np.arange(rows, dtype=np.uint8) % 2)
    refused, accuracy = answer(LARGER, allowed, folder, tmp_path / "run")
    assert refused
    assert 0 <= accuracy <= 1


@pytest.mark.slow
def test_a_model_of_ten_million_parameters_runs(tmp_path):
    document = {
        "name": "large",
        "protocol": "dp-fedavg",
        "data": {"source": "digits"},
        "model": {"kind": "mlp", "hidden": [3_150, 3_150]},
        "topology": {"kind": "star", "devices": 8},
        "training": {"rounds": 2, "local_steps": 2, "batch_size": 16, "learning_rate": 0.1},
        "privacy": {"clip": {"kind": "update", "norm": 1}, "noise": {"multiplier": 0.01}},
    }
    run = sf.run(sf.load_spec(document), out=tmp_path / "run")
    assert sum(part.numel() for part in run.model.parameters()) == 10_161_910
    assert np.isfinite(run.metrics["loss"]).all()


def scripts() -> list[str]:
    page = (Path(__file__).parents[2] / "docs" / "many-devices.md").read_text("utf-8")
    return page.split("```python\n")[1:]


@pytest.mark.parametrize("number", range(3))
def test_scripts_of_the_page_run(number, tmp_path, monkeypatch):
    assert len(scripts()) == 3
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scans").mkdir()
    names: dict[str, object] = {}
    exec(scripts()[number].partition("```")[0], names)
    run = names["run"]
    assert isinstance(run, sf.simulation.run.Run)
    assert len(run.metrics) == 2
