"""What a Python prompt and a notebook show of a spec, an account and a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import sfumato as sf
from sfumato.auditing.report import AuditedPair, AuditReport, LowerBound
from sfumato.notebook import MOST_ROWS, block

SPEC = {
    "name": "small",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 8},
    "model": {"kind": "softmax"},
    "topology": {"sites": [{"name": "a<b", "devices": 2}, {"name": "c&d", "trusted": True, "devices": 3}]},
    "training": {"rounds": 2, "local_steps": 2, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
}


def small(tmp_path: Path) -> sf.Spec:
    import yaml

    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    return sf.load_spec(path)


def test_one_line_says_what_a_person_asks_first(tmp_path: Path) -> None:
    spec = small(tmp_path)
    report = sf.account(spec)
    run = sf.run(spec, out=tmp_path / "run")
    accuracy = 100 * float(run.metrics["accuracy"].iloc[-1])
    assert repr(spec) == "<Spec small: h2fdp, tree, seed 0>"
    assert repr(report) == f"<PrivacyReport small: {len(report.guarantees)} rows, ε up to ∞, δ = 1e-5>"
    assert repr(run).startswith(f"<Run small: 2 rounds, accuracy {accuracy:.1f} %, in ")


def test_a_notebook_shows_tables_with_the_names_of_sites_escaped(tmp_path: Path) -> None:
    spec = small(tmp_path)
    shown = sf.account(spec)._repr_html_()
    assert "a&lt;b" in shown
    assert "<td>c&amp;d</td>" in shown
    assert "<td>∞</td>" in shown
    assert "a<b" not in shown
    assert "name: a&lt;b" in spec._repr_html_()
    run = sf.run(spec, out=tmp_path / "run")._repr_html_()
    assert run.count("<tr>") == len(sf.account(spec).guarantees)
    assert "ε (δ = 1e-5)" in run


def test_an_audit_says_whether_guarantees_hold() -> None:
    lower = LowerBound(1.23456, "curve", 1.0, 1.23456, 0.5)
    pair = AuditedPair("device:0", "cloud", "zero-out", 2.0, "gdp", lower, None, 0.1)
    report = AuditReport("small", 1e-5, 100, 1e-3, (pair,), ("a note",))
    assert repr(report) == "<AuditReport small: 1 pair, all hold, ε at least 1.234>"
    shown = report._repr_html_()
    assert "<td>1.234</td>" in shown
    assert "<td>2</td>" in shown
    assert "<td>yes</td>" in shown
    assert "a note" in shown
    assert "a guarantee is refuted" in repr(replace(report, findings=(replace(pair, upper=1.0),)))


def test_of_many_rows_the_first_are_shown_and_the_others_counted() -> None:
    shown = block("t", ("a",), [(str(row),) for row in range(MOST_ROWS + 7)])
    assert f"<td>{MOST_ROWS - 1}</td>" in shown
    assert f"<td>{MOST_ROWS}</td>" not in shown
    assert "7 more rows" in shown
