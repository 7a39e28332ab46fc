"""Data and models given in Python, and scripts of at most ten lines that bring one's own data."""

import contextlib
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from places import ROOT

import sfumato as sf
from sfumato.errors import DataError, SpecError

SPEC = sf.load_spec(
    {
        "name": "mine",
        "protocol": "dp-fedavg",
        "data": {"source": "digits"},
        "topology": {"kind": "star", "devices": 3},
        "training": {"rounds": 1, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1},
        "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
    }
)
RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(30, 4)).astype(np.float32), np.arange(30) % 2
WHERE = np.repeat(["ulm", "bonn", "kiel"], 10)


def test_arrays_with_sites_go_to_their_devices_and_other_arrays_are_not_resumed(tmp_path):
    report = sf.account(SPEC, data=(X, Y, WHERE))
    assert "device 0 is bonn, device 1 is kiel, device 2 is ulm" in " ".join(report.notes)
    run = sf.run(SPEC, data=(X, Y, WHERE), out=tmp_path / "run")
    assert sum(p.numel() for p in run.model.parameters()) == 10
    assert run.privacy.epsilon(0, "cloud") == report.epsilon(0, "cloud")
    kept = sf.load_spec(tmp_path / "run" / "spec.yaml")
    assert kept.data.source == "python:tuple"
    assert len(kept.hashes["data.source"]) == 64
    sf.run(kept, data=(X, Y, WHERE), out=tmp_path / "run", resume=True)
    more = kept.model_copy(update={"training": kept.training.model_copy(update={"rounds": 2})})
    for other in ((X + 1, Y, WHERE), (X, 1 - Y, WHERE), (X, Y, WHERE[::-1])):
        with pytest.raises(DataError, match=r"data\.source: has SHA-256"):
            sf.run(more, data=other, out=tmp_path / "run", resume=True)
    with pytest.raises(DataError, match=r"give them again: sf\.run"):
        sf.run(more, out=tmp_path / "run", resume=True)
    with pytest.raises(SpecError, match="the data have 3 sites"):
        sf.account(sf.load_spec(SPEC.model_dump(by_alias=True), ["topology.devices=2"]), data=(X, Y, WHERE))


@pytest.mark.usefixtures("no_report")
def test_a_model_is_copied_and_another_one_is_not_resumed(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 2))
    before = model[0].weight.detach().clone()
    run = sf.run(SPEC, data=(X, Y), model=model, out=tmp_path / "run")
    assert torch.equal(model[0].weight, before)
    assert not torch.equal(next(iter(run.model.parameters())), before)
    more = sf.load_spec(tmp_path / "run" / "spec.yaml").model_copy(
        update={"training": SPEC.training.model_copy(update={"rounds": 2})}
    )
    with torch.no_grad():
        model[0].weight += 1
    with pytest.raises(DataError, match=r"model\.kind: has SHA-256"):
        sf.run(more, data=(X, Y), model=model, out=tmp_path / "run", resume=True)
    with pytest.raises(SpecError, match=r"the model was given in Python"):
        sf.run(SPEC.model_copy(update={"model": more.model}), out=tmp_path / "other")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([X, Y], "data: got 'list'; must be a pandas DataFrame"),
        ((X,), "a tuple of 1"),
        ((X, Y[:5]), "30 rows of features, but labels of shape"),
        ((X.astype(str), Y), "features must be numbers"),
        ((X, Y.astype(float)), "labels must be whole numbers or text"),
        ((np.where(X[4, 0] == X, np.nan, X), Y), "row 5: the value is missing"),
        (pd.DataFrame({"a": [1, 2]}), r"data\.label_column: is required"),
    ],
)
def test_what_is_wrong_with_data(data, said, tmp_path):
    with pytest.raises((SpecError, DataError), match=said):
        sf.run(SPEC, data=data, out=tmp_path / "run")


def scripts() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "own-data.md").read_text("utf-8"), re.DOTALL)


@pytest.mark.needs("hub")
@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("number", range(11))
def test_scripts_of_the_page_run(number, tmp_path, monkeypatch):
    assert len(scripts()) == 11
    script = scripts()[number]
    assert len(script.strip().splitlines()) <= 10
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    with contextlib.redirect_stdout(None):
        names: dict[str, object] = {}
        exec(script, names)
    assert isinstance(names["run"], sf.simulation.run.Run)
    assert len(names["run"].metrics) == 2


def write_files(folder: Path) -> None:
    from PIL import Image

    models = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "own-data.md").read_text("utf-8"), re.DOTALL)
    for name, text in zip(("rows.py", "tokens.py"), models, strict=True):
        (folder / name).write_text(text, "utf-8")
    frame = pd.DataFrame({"age": RNG.integers(20, 90, 60), "bmi": RNG.normal(25, 3, 60)})
    frame = frame.assign(
        outcome=np.arange(60) % 2,
        days=RNG.uniform(1, 30, 60),
        hospital=np.repeat(["ulm", "bonn", "kiel"], 20),
    )
    frame.to_csv(folder / "patients.csv", index=False)
    frame.to_parquet(folder / "patients.parquet", index=False)
    for part in ("train", "test"):
        written = {"x": RNG.random((20, 784)).round(3).tolist(), "y": [row % 10 for row in range(20)]}
        leaf = {"users": list("abcd"), "num_samples": [20] * 4, "user_data": dict.fromkeys("abcd", written)}
        place = folder / "femnist" / "data" / part
        place.mkdir(parents=True)
        (place / "data.json").write_text(json.dumps(leaf), "utf-8")
    pixels = RNG.integers(0, 256, (60, 8, 8), dtype=np.uint8)
    np.savez(folder / "scans.npz", features=pixels, labels=np.arange(60) % 2)
    for number, image in enumerate(pixels):
        place = folder / "scans" / ("healthy", "ill")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number}.png")
