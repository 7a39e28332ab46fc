"""Workers of groups as processes: `deploy --local` from first round to last; what is refused of groups."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from deployed_groups import staged_groups
from rehearsals import GROUPS, PURPOSE, spec_of

from sfumato.cli import main
from sfumato.deployment.consent import read_consent
from sfumato.deployment.doors import Doors
from sfumato.deployment.invitation import start_party, write_invitation
from sfumato.deployment.local_parties import rows_of
from sfumato.deployment.local_processes import deploy_locally
from sfumato.deployment.party_folder import PartyFolder
from sfumato.errors import SpecError
from sfumato.run_folder.rounds_log import ROUNDS_FILE
from sfumato.verify.checker import check_run
from sfumato.wire.frames import parse_frame

SMALL = GROUPS | {"topology": {"kind": "groups", "structure": "ring", "devices": 4, "groups": 2}}


def test_a_worker_that_starts_from_its_folder_answers(tmp_path: Path) -> None:
    """With the consent that is proposed for it, of whose two masters one is trusted."""
    folder = tmp_path / "device-0"
    opened = PartyFolder.open_or_create(folder)
    with staged_groups(SMALL, tmp_path, first=opened.identity) as stage:
        opened.close()
        rows = rows_of(stage.inputs.data, stage.inputs.partition, 0)
        write_invitation(folder, Doors.of_folders([folder]), stage.terms, 0, rows)
        trusted, figure = read_consent(folder / "consent.yaml").epsilon["device"]["own-edge"]
        assert (trusted, figure > 1) == ("trusted", True)
        started = start_party(folder)
        models = np.zeros((2, stage.terms.parameters), np.float32)
        asked = [data for data in stage.questions(0, models) if parse_frame(data).recipient == 0]
        assert [len(started.party.receive(data)) for data in (*asked, asked[0])] == [0, 1, 1]
        assert started.words[0] == "device:0 takes part in ring, for: a test."
        started.close()


def test_groups_over_flower_are_refused(tmp_path: Path) -> None:
    refused = r"topology\.kind: got 'groups'; must be star or tree over Flower: groups do without it"
    given = {"out": tmp_path / "run", "parties": tmp_path / "parties", "purpose": PURPOSE}
    with pytest.raises(SpecError, match=refused):
        deploy_locally(spec_of(SMALL), command=lambda folder: [], flower=tmp_path / "flower", **given)
    assert not (tmp_path / "parties").exists()


@pytest.fixture(name="command")
def fixture_command() -> Iterator[list[str]]:
    """`deploy --local`, in a folder with a short path, as sockets need."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "ring.yaml").write_text(yaml.safe_dump(SMALL))
        yield ["deploy", str(Path(name) / "ring.yaml"), "--local", "--out", str(Path(name) / "run")]


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_deploy_local_leaves_a_verified_run(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "is trusted, and sees what device:0 sends raw" in said
    assert "master:1 adds up the messages of 3 workers of its group and adds no noise." in said
    assert check_run(Path(command[-1])).problems == []


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_a_worker_that_is_killed_stops_the_run_and_it_goes_on(command: list[str]) -> None:
    run = Path(command[-1])
    words = [sys.executable, "-m", "sfumato", *command, "--set", "training.rounds=30", "--quiet"]
    environment, log = os.environ | {"OMP_NUM_THREADS": "1"}, run / ROUNDS_FILE
    deadline = time.monotonic() + 600
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as deployed:
        try:
            while not (log.exists() and log.read_bytes().count(b"\n") >= 2):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            listed = subprocess.run(
                ["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True
            )
            folder = f"party device-2 --folder {run.with_name('run-parties')} "
            (line,) = [line for line in listed.stdout.splitlines() if folder in f"{line} "]
            os.kill(int(line.split()[0]), signal.SIGKILL)
            assert deployed.wait(600) == 1
        finally:
            deployed.kill()
        assert deployed.stderr is not None
        assert "device:2: has ended" in deployed.stderr.read()
    subprocess.run([*words, "--resume"], check=True, env=environment)
    assert check_run(run).problems == []
