"""Parties as processes: the folders that they start from, and `deploy --local` from first round to last."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from deployed_parties import Stage, staged
from rehearsals import PURPOSE, STAR, TREE

from sfumato.cli import main
from sfumato.data.dataset import Dataset
from sfumato.deployment.consent import ConsentRefusedError, agree, proposed_consent, read_consent
from sfumato.deployment.doors import Doors
from sfumato.deployment.invitation import start_party, write_invitation
from sfumato.deployment.local_parties import rows_of
from sfumato.deployment.memory import PartyMemory
from sfumato.deployment.party_folder import PartyFolder
from sfumato.deployment.terms import DeploymentTerms
from sfumato.errors import DataError, RunError, SpecError
from sfumato.run_folder.rounds_log import ROUNDS_FILE
from sfumato.verify.checker import check_run
from sfumato.wire.errors import SessionMemoryError
from sfumato.wire.keys import digest


def invite(folders: list[Path], terms: DeploymentTerms, number: int, rows: Dataset) -> None:
    write_invitation(folders[number], Doors.of_folders(folders), terms, number, rows)


@pytest.fixture(name="stage")
def fixture_stage(tmp_path: Path) -> Iterator[Stage]:
    """A star whose device 0 has a folder of its own."""
    parties = tmp_path / "parties"
    opened = PartyFolder.open_or_create(parties / "device-0")
    with staged(STAR, parties, first=opened.identity) as stage:
        opened.close()
        rows = rows_of(stage.inputs.data, stage.inputs.partition, 0)
        invite([parties / "device-0"], stage.terms, 0, rows)
        yield stage


def test_a_party_that_starts_from_its_folder_answers(stage: Stage) -> None:
    started = start_party(stage.folder / "device-0")
    (question, *_) = stage.cloud().ask(0, np.zeros(stage.terms.parameters, np.float32))
    (answer,) = started.party.receive(question)
    stage.cloud().receive(answer)
    assert stage.cloud().missing == [1, 2]
    assert started.words[0] == "device:0 takes part in star, for: a test."
    started.close()


def test_a_consent_that_was_edited_counts(stage: Stage) -> None:
    path = stage.folder / "device-0" / "consent.yaml"
    said = yaml.safe_load(path.read_text())
    assert said["purposes"] == [PURPOSE]
    said["epsilon"]["device"]["cloud"] = 0.1
    path.write_text(yaml.safe_dump(said))
    rows = rows_of(stage.inputs.data, stage.inputs.partition, 0)
    invite([stage.folder / "device-0"], stage.terms, 0, rows)  # it stays as it is
    with pytest.raises(ConsentRefusedError, match=r"its consent allows 0\.1"):
        start_party(stage.folder / "device-0")


def test_the_same_rows_have_one_ledger_in_all_runs(stage: Stage) -> None:
    """New folders for another run propose a new consent, and the sum over runs goes on."""
    rows = [rows_of(stage.inputs.data, stage.inputs.partition, device) for device in (0, 0, 1)]
    ledgers = [read_consent(stage.folder / "device-0" / "consent.yaml").ledger]
    for number, own in enumerate(rows[1:]):
        folder = stage.folder.with_name(f"other-{number}") / "device-0"
        folder.mkdir(parents=True)
        invite([folder], stage.terms, 0, own)
        ledgers.append(read_consent(folder / "consent.yaml").ledger)
    assert ledgers[0] == ledgers[1] != ledgers[2]
    Path(ledgers[0]).unlink()
    with pytest.raises(SessionMemoryError, match="no ledger of a data owner"):
        start_party(stage.folder / "device-0")


def test_data_or_a_consent_that_others_can_read_are_refused(stage: Stage) -> None:
    for name in ("data.npz", "consent.yaml"):
        (stage.folder / "device-0" / name).chmod(0o644)
        with pytest.raises(RunError, match="may be read by others"):
            start_party(stage.folder / "device-0")
        (stage.folder / "device-0" / name).chmod(0o600)


def test_what_others_can_change_is_refused(stage: Stage) -> None:
    """Whoever can write there replaces the memory, the consent, the terms, or the total over runs."""
    folder = stage.folder / "device-0"
    ledger = Path(read_consent(folder / "consent.yaml").ledger)
    for path, mode, said in [
        (folder, 0o777, "may be changed by others"),
        (folder / "terms.yaml", 0o664, "may be changed by others"),
        (folder / "spec.yaml", 0o646, "may be changed by others"),
        (ledger, 0o666, "may be read by others"),
        (ledger.parent, 0o770, "may be changed by others"),
    ]:
        before = path.stat().st_mode & 0o777
        path.chmod(mode)
        with pytest.raises(RunError, match=said):
            start_party(folder)
        path.chmod(before)
    start_party(folder).close()


def test_a_ledger_has_one_place_outside_the_folder(stage: Stage) -> None:
    folder = stage.folder / "device-0"
    said = yaml.safe_load((folder / "consent.yaml").read_text())
    for ledger in ("ledger", "../ledger", str(folder / "ledger"), str(folder / "more" / "ledger")):
        (folder / "consent.yaml").write_text(yaml.safe_dump(said | {"ledger": ledger}))
        with pytest.raises(SpecError, match="must be an absolute path, and not in"):
            start_party(folder)


def test_the_name_of_a_ledger_does_not_tell_the_rows(stage: Stage) -> None:
    ledger = Path(read_consent(stage.folder / "device-0" / "consent.yaml").ledger)
    rows = (stage.folder / "device-0" / "data.npz").read_bytes()
    assert ledger.name != digest(b"rows", rows)[:8].hex()
    assert ledger.name == digest(b"rows", ledger.with_name("key").read_bytes(), rows)[:8].hex()


def test_a_copy_of_a_device_gives_no_second_answer(stage: Stage) -> None:
    """Each copy has a key and a memory of its own; the ledger, which is outside, is one."""
    folder, model = stage.folder / "device-0", np.zeros(stage.terms.parameters, np.float32)
    copies = [folder, folder.with_name("copy")]
    shutil.copytree(*copies)
    (question, *_) = stage.cloud().ask(0, model)
    first, second = [start_party(copy) for copy in copies]
    answer = first.party.receive(question)
    for _ in range(2):
        with pytest.raises(SessionMemoryError, match="another copy of this device has answered"):
            second.party.receive(question)
    assert first.party.receive(question) == answer
    for started in (first, second):
        started.close()


def test_a_folder_that_was_changed_is_refused(stage: Stage) -> None:
    folder = stage.folder / "device-0"
    spec = (folder / "spec.yaml").read_text()
    (folder / "spec.yaml").write_text(spec.replace("rounds: 3", "rounds: 4"))
    with pytest.raises(SpecError, match="was edited or damaged"):
        start_party(folder)
    (folder / "spec.yaml").write_text(spec)
    (folder / "data.npz").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"data\.npz: cannot be read"):
        start_party(folder)
    (folder / "terms.yaml").write_text("number: 3")
    with pytest.raises(SpecError, match=r"terms\.yaml"):
        start_party(folder)


def test_what_is_proposed_is_enough_for_ten_runs_and_not_for_less_noise(tmp_path: Path) -> None:
    with staged(TREE, tmp_path) as stage:
        for device in (0, 2):
            proposed = proposed_consent(stage.terms, device, stage.ledger(device))
            agree(stage.terms, device, proposed, stage.ledger(device))
            own_edge = proposed.epsilon["device"]["own-edge"]
            assert own_edge == "trusted" if device == 0 else isinstance(own_edge, float)
    louder = TREE | {"privacy": TREE["privacy"] | {"noise": {"multiplier": 0.9}}}
    with staged(louder, tmp_path) as stage, pytest.raises(ConsentRefusedError):
        agree(stage.terms, 2, proposed, stage.ledger(2))


def test_a_command_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["party", "device-7", "--folder", str(tmp_path)]) == 2
    assert "holds no party 'device-7'" in capsys.readouterr().err
    (tmp_path / "parties").mkdir()
    assert main(["party", "..", "--folder", str(tmp_path / "parties")]) == 2
    assert "holds no party '..'" in capsys.readouterr().err
    assert main(["deploy", "quickstart"]) == 2
    assert "--local: must be given" in capsys.readouterr().err


def test_a_machine_is_not_filled_with_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crowd = STAR | {"topology": {"kind": "star", "devices": 65}}
    (tmp_path / "crowd.yaml").write_text(yaml.safe_dump(crowd))
    command = ["deploy", str(tmp_path / "crowd.yaml"), "--local", "--out", str(tmp_path / "run"), "--quiet"]
    assert main(command) == 2
    assert "topology: got '65 devices'; must be at most 64 devices" in capsys.readouterr().err
    assert not (tmp_path / "run-parties").exists()


def test_an_edge_needs_no_pytorch() -> None:
    code = (
        "import sys, sfumato.deployment.invitation, sfumato.deployment.sockets; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.fixture(name="command")
def fixture_command() -> Iterator[list[str]]:
    """`deploy --local` of two rounds, in a folder with a short path, as sockets need."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "tree.yaml").write_text(yaml.safe_dump(TREE))
        yield [
            "deploy",
            str(Path(name) / "tree.yaml"),
            "--local",
            *("--out", str(Path(name) / "run")),
            *("--set", "training.rounds=2"),
        ]


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_deploy_local_leaves_a_verified_run(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 0
    assert "is trusted, and sees what device:0 sends raw" in capsys.readouterr().out
    run = Path(command[1]).with_name("run")
    assert check_run(run).problems == []
    PartyMemory(run.with_name("run-parties") / "device-0" / "memory").close()  # its process has ended


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_deploy_local_trains_with_the_loop_of_its_command(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The loop runs in the devices' processes, once an aggregation and once on made-up rows."""
    loop, run = Path(command[1]).with_name("own.py"), Path(command[1]).with_name("run")
    loop.write_text(
        "import pathlib\n"
        "def train(model, rows, task):\n"
        "    with pathlib.Path(__file__).with_name('ran').open('a') as file:\n"
        "        file.write(f'{task.party} {task.round} {task.aggregation} {task.is_trial}\\n')\n"
        "    return {name: value.detach() + 1e6 for name, value in model.named_parameters()}\n"
    )
    assert main([*command, "--loop", f"{loop}:train"]) == 0
    assert f"device:0 trains with its owner's own loop, train in {loop}" in capsys.readouterr().out
    expected = [
        f"device:{device} {number} {index} False"
        for device in range(4)
        for number in (0, 1)
        for index in (0, 1)
    ]
    expected += [f"device:{device} 0 0 True" for device in range(4)]
    assert sorted(loop.with_name("ran").read_text().splitlines()) == sorted(expected)
    assert check_run(run).problems == []


def processes_of(parties: Path) -> dict[str, int]:
    """The processes that play a party of a folder, by the party's name."""
    command = ["ps", "-A", "-ww", "-o", "pid=,args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    words = [line.split() for line in listed.splitlines() if f"--folder {parties} " in f"{line} "]
    return {line[line.index("party") + 1]: int(line[0]) for line in words}


def waited_for(condition: Callable[[], object]) -> bool:
    """Whether something comes true within ten minutes, which a busy machine may take."""
    deadline = time.monotonic() + 600
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.slow
def test_parties_end_when_their_starter_is_killed_and_the_run_goes_on(command: list[str]) -> None:
    """SIGKILL comes in the midst of the run: some party has answers that its aggregator has not."""
    run = Path(command[1]).with_name("run")
    parties, log = run.with_name("run-parties"), run / ROUNDS_FILE
    command = [sys.executable, "-m", "sfumato", *command[:-1], "training.rounds=40", "--quiet"]
    quiet = {"stdout": subprocess.DEVNULL, "env": os.environ | {"OMP_NUM_THREADS": "1"}}
    with subprocess.Popen(command, **quiet) as starter:  # type: ignore[call-overload]
        try:
            assert waited_for(lambda: log.exists() and log.read_bytes().count(b"\n") >= 2)
            assert len(processes_of(parties)) == 6
        finally:
            starter.send_signal(signal.SIGKILL)
    assert waited_for(lambda: not processes_of(parties))
    assert log.read_bytes().count(b"\n") < 40
    for party in parties.glob("*-*/memory"):
        PartyMemory(party).close()  # nobody has it open, and it is whole
    subprocess.run([*command, "--resume"], check=True, **quiet)  # type: ignore[call-overload]
    assert check_run(run).problems == []
    assert not processes_of(parties)


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_an_edge_that_is_killed_stops_the_run_and_it_goes_on(command: list[str]) -> None:
    """With one line, also in the midst of a session of masks; all processes end with it."""
    spec = Path(command[1])
    masked = TREE | {"transport": {"devices_to_edge": "secure-aggregation"}}
    spec.write_text(yaml.safe_dump(masked | {"training": TREE["training"] | {"rounds": 20}}))
    run, parties = spec.with_name("run"), spec.with_name("run-parties")
    words = [sys.executable, "-m", "sfumato", *command[:-2], "--quiet"]
    environment, log = os.environ | {"OMP_NUM_THREADS": "1"}, run / ROUNDS_FILE
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as deployed:
        try:
            assert waited_for(lambda: log.exists() and log.read_bytes().count(b"\n") >= 2)
            os.kill(processes_of(parties)["edge-1"], signal.SIGKILL)
            assert deployed.wait(600) == 1
        finally:
            deployed.kill()
        assert deployed.stderr is not None
        assert deployed.stderr.read().splitlines() == ["sfumato: edge:1: has ended"]
    assert not processes_of(parties)
    subprocess.run([*words, "--resume"], check=True, env=environment)
    assert check_run(run).problems == []


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_deploy_local_goes_on_without_a_device_within_the_declared_dropouts(command: list[str]) -> None:
    """Killed by force in the midst of the run; one of the four devices under masks may be missing."""
    spec = Path(command[1])
    star = {
        "topology": {"kind": "star", "devices": 4},
        "transport": {"devices_to_cloud": "secure-aggregation"},
        "faults": {"dropout_rate": 0.1},
        "training": STAR["training"] | {"rounds": 20},
    }
    spec.write_text(yaml.safe_dump(STAR | star))
    run = spec.with_name("run")
    words = [sys.executable, "-m", "sfumato", *command[:-2], "--quiet"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as deployed:
        try:
            log = run / ROUNDS_FILE
            assert waited_for(lambda: log.exists() and log.read_bytes().count(b"\n") >= 2)
            os.kill(processes_of(run.with_name("run-parties"))["device-2"], signal.SIGKILL)
            assert deployed.wait(600) == 0
        finally:
            deployed.kill()
        assert deployed.stderr is not None
        assert "goes on without device:2 (has ended)" in deployed.stderr.read()
    assert check_run(run).problems == []


@pytest.mark.slow
def test_deploy_local_ends_where_a_device_refuses(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    consent = Path(command[1]).with_name("run-parties") / "device-2" / "consent.yaml"
    consent.parent.mkdir(parents=True)
    epsilon = {"device": {"cloud": 0.1}}
    said = {
        "purposes": ["rehearsal"],
        "delta": 1e-5,
        "neighbours": "zero-out",
        "ledger": "/nowhere",
        "epsilon": epsilon,
        "total": {"epsilon": 1, "delta": 0.1},
    }
    consent.write_text(yaml.safe_dump(said))
    consent.chmod(0o600)
    assert main(command) == 1
    assert "device:2: " in capsys.readouterr().err
