"""Sums that were not formed: the ledger counts them by zone, and run and report say so."""

import json

import numpy as np
import pytest

import sfumato as sf
from sfumato.cli import main
from sfumato.findings.training import warn_of_empty_sums
from sfumato.report.results.series import load_series
from sfumato.run_folder.reader import read_ledger
from sfumato.schedule.faults.dropouts import Attendance, lost_sums
from sfumato.schedule.group_participation import group_turnout
from sfumato.schedule.resolve import resolve

TREE = {
    "name": "zones",
    "protocol": "hdp",
    "data": {"source": "synthetic", "examples_per_device": 2},
    "topology": {"kind": "tree", "edges": 20, "devices_per_edge": 3},
    "training": {"rounds": 1, "local_steps": 1, "batch_size": 2, "learning_rate": 0.1},
    "transport": {"devices_to_edge": "secure-aggregation"},
    "faults": {"dropout_rate": 0.6},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
}
GROUPS = {
    **TREE,
    "protocol": "dp-ogl",
    "topology": {"kind": "groups", "structure": "ring", "groups": 4, "devices": 12},
    "training": TREE["training"] | {"rounds": 4},
    "transport": {"devices_to_master": "secure-aggregation"},
}


@pytest.mark.parametrize("document", [TREE, GROUPS])
def test_a_run_counts_them_and_says_which(document, tmp_path, capsys):
    spec = sf.load_spec(document)
    plan, rounds = resolve(spec), spec.training.rounds
    if document is TREE:
        formed, kind = Attendance.of(plan, rounds).formed[:, 0], "edge"
    else:
        formed, kind = np.array([group_turnout(plan, number).formed for number in range(rounds)]), "master"
    missing = (~formed).sum(axis=0)  # everybody is drawn, so whatever was not formed is lost
    assert 0 < missing.sum() < formed.size
    file = tmp_path / "spec.yaml"
    file.write_text(sf.dump_spec(spec))
    assert main(["run", str(file), "--out", str(tmp_path / "run")]) == 0
    by = {f"{kind}:{place}": int(count) for place, count in enumerate(missing) if count}
    assert read_ledger(tmp_path / "run")["realised"]["lost_sums"] == {"of": formed.size, "by": by}
    said = " ".join(capsys.readouterr().out.split())
    start = f"{missing.sum()} of {formed.size} sums of devices' messages were not formed"
    assert f"finding: {start}" in said
    (one,) = load_series([tmp_path / "run"])
    (finding,) = (said for said in one.findings.others if said.startswith(start))
    assert (f"{len(by) - 5} more" in finding) == (len(by) > 5)
    page = (tmp_path / "run" / "report.html").read_text()
    if document is GROUPS:
        start = start.replace("devices", "workers")
    assert start.replace("'", "&#x27;") in page


def test_without_lost_sums_nothing_is_said():
    drawn = np.array([[[3, 0, 2]]])
    assert lost_sums(drawn, np.array([[[2, 0, 1]]]), "edge:{}".format) == {}
    assert warn_of_empty_sums(None) is None


def test_places_without_messages_to_send_have_lost_nothing():
    drawn, counts = np.array([[3, 0, 2], [3, 1, 0]]), np.array([[0, 0, 1], [0, 0, 0]])
    found = lost_sums(drawn, counts, "edge:{}".format)
    assert found == {"lost_sums": {"of": 4, "by": {"edge:0": 2, "edge:1": 1}}}
    assert json.loads(json.dumps(found)) == found
    said = warn_of_empty_sums(found["lost_sums"])
    assert said.startswith("3 of 4 sums of devices' messages were not formed")
    assert "edge:0 (2 times), edge:1 (1 time); nothing was sent" in said
