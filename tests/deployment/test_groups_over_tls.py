"""Groups whose workers and masters are processes of their own, and meet over TLS alone."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import yaml
from forked_parties import LOG, Settings, answers, forked
from handed_over import checked, free_addresses, put_run, written
from rehearsals import GROUPS, drawn_by_run, on_the_grid, spec_of

from sfumato.accounting import account
from sfumato.cli import main
from sfumato.deployment import hops_check, remote_party, remote_rounds
from sfumato.deployment.consent import read_consent
from sfumato.deployment.hops_file import read_hops
from sfumato.deployment.invitation import read_terms
from sfumato.learning.server_optimizer import ServerState
from sfumato.protocols.tree.state import DeployedState
from sfumato.report.results.series import load_series
from sfumato.report.results.summary import score_sentence
from sfumato.run_folder.reader import GROUPS_FILE, MODEL_FILE, load_run
from sfumato.schedule.resolve import resolve
from sfumato.simulation.run import run
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.verify.checker import check_run

pytestmark = pytest.mark.usefixtures("no_report")

MASTERS = ["master-0", "master-1", "master-2"]
LOCAL = {"protocol": "dp-ogl-local", "training": GROUPS["training"] | {"rounds": 5}}
SOON_S = 600.0


def handed_over(folder: Path, document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> Path:
    """The folders of all parties, with consents."""
    assert main(written(folder, document, free_addresses(*MASTERS))) == 0
    assert "was proposed" in checked(folder / "out", capsys)
    return folder / "out"


def played(out: Path, master: str) -> Path:
    """The run folder of a master, as soon as it is finished."""
    folder, deadline = out / master / "run", time.monotonic() + SOON_S
    while not (folder / MODEL_FILE).exists() or check_run(folder).problems:
        assert time.monotonic() < deadline, (out / master / LOG).read_text()
        time.sleep(0.2)
    return folder


def model_of(folder: Path) -> bytes:
    state = torch.load(folder / MODEL_FILE, map_location="cpu", weights_only=True)
    return b"".join(value.numpy().tobytes() for value in state.values())


def test_every_worker_dials_its_own_masters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And no other one; it trusts those whom the spec does. Without one of them it does not start."""
    out = handed_over(tmp_path, GROUPS, capsys)
    for worker, masters in enumerate([(0, 2), (0,), (0, 1), (1,), (1, 2), (2,)]):
        hops = read_hops(out / f"device-{worker}")
        assert [parent.number - 6 for parent in hops.parents] == list(masters)
        consent = read_consent(out / f"device-{worker}" / "consent.yaml")
        assert list(consent.trusted) == ["master:0"] * (0 in masters)
    device = out / "device-0"
    said = yaml.safe_load((device / "hops.yaml").read_text())
    (device / "hops.yaml").write_text(yaml.safe_dump({"parents": said["parents"][:1]}))
    refused = f"{device}/hops.yaml: parents: got 1; must be those of the terms: master:0, master:2"
    assert refused in checked(device, capsys)


def test_a_master_writes_what_its_folder_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = handed_over(tmp_path, GROUPS, capsys)
    sheets = {name: (out / name / "sheet.txt").read_text() for name in ("master-1", "device-0")}
    assert "lets in nobody else" in sheets["master-1"]
    assert "plays the run and ends with it." in sheets["master-1"]
    assert "compares the run with it, and dials master:0, master:2." in sheets["device-0"]
    for master in ("master:0", "master:2"):
        assert f"{master}'s key begins" in sheets["device-0"]


def test_the_run_of_one_master_does_not_pass_for_that_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are of one session. With the copied run a master would show its workers the model of a group in
    which they are not, which no row of `account` lets them see."""
    out = handed_over(tmp_path, GROUPS, capsys)
    monkeypatch.setattr(hops_check, "PATIENCE_S", 0.0)
    _, terms = read_terms(out / "master-0")
    start, session = (1, torch.zeros(1, terms.parameters), ServerState(1, ())), terms.session.hex()
    together = terms.digest_of_keys(terms.heads)  # of a rehearsal, whose process plays all masters
    for heads in (terms.digest_of_keys(terms.heads[:1]), together):
        (run := out / "master-1" / "run").mkdir(exist_ok=True)
        put_run(run, DeployedState(*start, session=session, heads=heads))
        refused = f"{run}: is the run of another master than master:1; move it away"
        assert refused in checked(out / "master-1", capsys)
        assert main(["party", "master-1", "--folder", str(out)]) == 1
        assert capsys.readouterr().err.strip() == f"sfumato: {refused}"
    (run := out / "master-0" / "run").mkdir()
    put_run(run, DeployedState(*start, session=session, heads=terms.digest_of_keys(terms.heads[:1])))
    assert "has not been dialed by" in checked(out / "master-0", capsys)


@pytest.mark.slow
def test_parties_that_stop_send_the_same_bytes_again_and_all_groups_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker in two groups is killed with its answers kept, and a master stops after a round."""
    out = handed_over(tmp_path, GROUPS, capsys)
    with forked(Settings(str(out), deaths={"device-2": 4}, left_out="master-0")):
        rounds = remote_party.play_remotely(out / "master-0", print)
        assert next(rounds).round == 1
        cast(Generator[Any], rounds).close()  # as an interrupt ends it
        assert main(["party", "master-0", "--folder", str(out)]) == 0
        for master in MASTERS:
            assert len(load_run(played(out, master)).metrics) == 3
    assert (out / "device-2" / LOG).read_text().count("takes part in ring") == 2
    for worker, masters in enumerate([2, 1, 2, 1, 2, 1]):
        assert len(set(answers(out / f"device-{worker}"))) == 3 * masters


@pytest.mark.slow
@pytest.mark.parametrize("changed", [{}, LOCAL], ids=["dp-ogl", "dp-ogl-local"])
def test_every_master_has_the_model_of_its_group_and_no_other(
    changed: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bytes that `run` writes for it on the same grid; every run folder is verified, with account's ε."""
    document = GROUPS | changed
    with on_the_grid():
        expected = run(spec_of(document), out=tmp_path / "expected", device="cpu", progress=False)
    models = torch.load(expected.folder.path / GROUPS_FILE, weights_only=True)
    plan = resolve(spec_of(document))
    drawn = drawn_by_run(plan, TrainingInputs.of(plan), 6)
    out = handed_over(tmp_path, document, capsys)
    assert main(["deploy", "check", str(out)]) == 0
    with forked(Settings(str(out), simulated=True, left_out="master-0")):
        monkeypatch.setattr(remote_rounds, "SystemRandomness", lambda: drawn)
        assert main(["party", "master-0", "--folder", str(out)]) == 0
        folders = [played(out, master) for master in MASTERS]
    accounted = {(row.unit, row.observer): row.epsilon for row in account(spec_of(document)).guarantees}
    for group, folder in enumerate(folders):
        assert model_of(folder) == models[group].numpy().tobytes()
        assert not (folder / GROUPS_FILE).exists()
        found = load_run(folder)
        assert {(row.unit, row.observer): row.epsilon for row in found.privacy.guarantees} == accounted
        assert found.deployed["group"] == group
        assert found.deployed["on"] == "machines of their own"
        (series,) = load_series([folder])
        assert f"the model of group {group} is " in score_sentence(series)
