"""Sizes of the data are declared: a device or an edge opens no file that the spec names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from handed_over import checked, free_addresses, written
from rehearsals import TREE

from sfumato.cli import main
from sfumato.data import dataset_sizes
from sfumato.deployment import hops_check
from sfumato.deployment.declared_facts import DeclaredFacts


def write_table(path: Path, rows: int) -> None:
    """A table of two features and two labels, of which a fifth are test rows."""
    drawn = np.linspace(-1, 1, 2 * rows).reshape(rows, 2)
    lines = [f"{a:.3f},{b:.3f},{number % 2}" for number, (a, b) in enumerate(drawn.tolist())]
    path.write_text("\n".join(["a,b,label", *lines]) + "\n")


def test_no_device_or_edge_opens_the_table_of_the_spec(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It might be one of the owner's own, whose counts would be in the session that it shows. The cloud has
    the table, and refuses terms that were made of another one."""
    monkeypatch.setattr(hops_check, "PATIENCE_S", 0.0)
    table, out = tmp_path / "table.csv", tmp_path / "out"
    write_table(table, 100)
    document = TREE | {"data": {"source": str(table), "label_column": "label", "test_fraction": 0.2}}
    assert main(written(tmp_path, document, free_addresses("cloud", "edge-0", "edge-1"))) == 0
    assert "the 20 rows of data.npz" in (out / "device-0" / "sheet.txt").read_text()

    def opened(*_: object) -> None:
        raise AssertionError("the table was opened")

    with monkeypatch.context() as patch:
        patch.setattr(dataset_sizes, "describe_dataset", opened)
        table.rename(tmp_path / "away.csv")
        assert "consent.yaml was proposed" in checked(out / "device-0", capsys)
        for party in ("device-0", "edge-0"):
            assert "nobody answers" in checked(out / party, capsys)
    (tmp_path / "away.csv").rename(table)
    assert "has not been dialed by edge:0, edge:1" in checked(out / "cloud", capsys)
    write_table(table, 105)
    said = "terms.yaml: facts: got '80 training rows'; must be those of"
    assert said in checked(out / "cloud", capsys)
    assert main(["party", "cloud", "--folder", str(out)]) == 2
    assert said in capsys.readouterr().err
    terms = yaml.safe_load((out / "device-0" / "terms.yaml").read_text())
    facts = terms["facts"] | {"class_counts": [1, 2]}
    (out / "device-0" / "terms.yaml").write_text(yaml.safe_dump(terms | {"facts": facts}))
    assert "facts.class_counts: got 3; must add up to 80" in checked(out / "device-0", capsys)


def test_what_is_declared_is_all_that_sizes_follow_from() -> None:
    facts = dataset_sizes.describe_dataset("digits")
    assert DeclaredFacts.of(facts).facts("digits") == facts
