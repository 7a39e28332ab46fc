"""Where there is no accuracy, every command shows the error that the run is judged by."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from sfumato.cli import main

SPEC = {
    "name": "days",
    "protocol": "h2fdp",
    "data": {"source": "rows.csv", "task": "regression", "label_column": "days"},
    "topology": {"edges": 2, "devices_per_edge": 2},
    "training": {"rounds": 2, "local_steps": 5, "batch_size": 4, "learning_rate": 0.05},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 0.5}},
    "metrics": ["mae", "r2"],
}


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(80, 3)), columns=list("abc"))
    frame.assign(days=frame.sum(axis=1)).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "days.yaml").write_text(yaml.safe_dump(SPEC), "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "days.yaml"


@pytest.mark.usefixtures("fast_workers", "no_report")
def test_run_compare_and_sweep_show_the_error(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(spec), "--out", "one"]) == 0
    error = pd.read_parquet("one/metrics.parquet")["mae"].iloc[-1]
    assert f"2 rounds, final MAE {error:.4g}" in capsys.readouterr().out
    assert main(["run", str(spec), "--out", "two", "--quiet", "--set", "seed=1"]) == 0
    capsys.readouterr()
    assert main(["compare", "one", "two"]) == 0
    table = capsys.readouterr().out
    assert "MAE" in table.splitlines()[0]
    assert f"{error:.4g}" in table
    assert "accuracy" not in table
    over = ["--over", "privacy.noise.multiplier=0.5,2"]
    assert main(["sweep", str(spec), *over, "--out", "swept"]) == 0
    assert "MAE" in capsys.readouterr().out
    swept = pd.read_parquet("swept/sweep.parquet")
    assert swept["mae"].iloc[0] == error
    assert swept["accuracy"].isna().all()
    page = Path("swept/report.html").read_text("utf-8")
    assert "Lowest MAE: " in page
    assert "MAE against ε towards" in page
