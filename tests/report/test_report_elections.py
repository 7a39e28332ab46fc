"""Elected supernodes in the report: what was drawn, and what it does to ε."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato.report.figures.elections import (
    elections_figure,
    elections_summary,
    elections_table,
    supernode_terms,
)
from sfumato.report.results.series import load_series
from sfumato.run_folder.reader import LEDGER_FILE, load_run
from sfumato.simulation import run as simulate
from sfumato.spec.document import Spec


def spec_of(**topology: Any) -> Spec:
    return Spec.model_validate(
        {
            "name": "elected",
            "protocol": "hdp",
            "data": {"source": "synthetic", "examples_per_device": 8},
            "topology": {"kind": "tree", "edges": 3, "devices_per_edge": [4, 4, 6]} | topology,
            "training": {"rounds": 12, "local_epochs": 1, "batch_size": "all", "learning_rate": 0.1},
            "privacy": {
                "clip": {"kind": "update", "norm": 1.0},
                "noise": {"multiplier": 4.0, "placement": {"device": 1.0}},
            },
            "transport": {"devices_to_edge": "secure-aggregation"},
            "faults": {"supernode_failure_rate": 0.3} if topology else None,
        }
    )


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "elected"
    simulate.run(spec_of(supernodes="elected"), out=folder)
    return folder


def test_terms_are_those_of_the_ledger(folder: Path) -> None:
    realised = json.loads((folder / LEDGER_FILE).read_text())["realised"]
    zones = [zone for number in realised["supernodes"] for step in number for zone in step]
    terms = supernode_terms(load_run(folder))
    assert terms is not None
    assert terms.devices == (4, 4, 6)
    assert sum(terms.served) == sum(map(len, zones)) == 36 + terms.failures
    assert terms.failures > 0
    for device in range(14):
        assert terms.served[device] == sum(zone.count(device) for zone in zones)
    for number in realised["supernodes"]:
        assert [zone[0] // 4 if zone[0] < 8 else 2 for zone in number[0]] == [0, 1, 2]


def test_table_and_words_say_what_elections_cost(folder: Path) -> None:
    terms = supernode_terms(load_run(folder))
    assert terms is not None
    table = elections_table(terms)
    assert "96.8 %" in table  # 1 - (3/4)^12, of the zones of four
    assert "88.8 %" in table  # 1 - (5/6)^12
    assert f"{terms.failures} supernodes failed" in table
    served = np.array(terms.served[:8])
    assert f"{served.min()} to {served.max()}" in table
    assert math.isfinite(terms.unelected)
    assert terms.epsilon > terms.unelected
    words = elections_summary(terms)
    assert "becomes an observer" in words
    assert "never serves" in words


def test_the_figure_counts_every_client(folder: Path) -> None:
    figure = elections_figure(load_series([folder]))
    assert figure is not None
    bars, line = figure.data
    assert sum(bars["y"]) == 14
    assert sum(line["y"]) <= 14
    assert "Elected supernodes" in (folder / "report.html").read_text("utf-8")


def test_no_section_without_elections(tmp_path: Path) -> None:
    simulate.run(spec_of(), out=tmp_path / "fixed")
    assert supernode_terms(load_run(tmp_path / "fixed")) is None
    assert "Elected supernodes" not in (tmp_path / "fixed" / "report.html").read_text("utf-8")
