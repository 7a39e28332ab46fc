"""Runs of parties that are processes and meet over TLS alone, from the owners' keys to the run folder."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from forked_parties import LOG, Settings, answers, forked, killed_at, play_without
from handed_over import checked, free_addresses, written
from rehearsals import STAR, TREE, SimulatedRandomness, model_bytes, on_the_grid, spec_of

from sfumato.accounting import account
from sfumato.cli import main
from sfumato.deployment import remote_party, remote_rounds
from sfumato.deployment.local_parties import rows_of
from sfumato.deployment.memory import PartyMemory
from sfumato.run_folder.reader import load_run
from sfumato.schedule.resolve import resolve
from sfumato.schedule.tree import TreePlan
from sfumato.simulation.run import run
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.verify.checker import check_run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_report")]

MASKED = STAR | {"transport": {"devices_to_cloud": "secure-aggregation"}}
MASKED_TREE = TREE | {"transport": {"devices_to_edge": "secure-aggregation"}}
DEVICES = [f"device-{number}" for number in range(4)]
AGGREGATORS = ["cloud", "edge-0", "edge-1"]
SECRETS = {"key", "memory", "hop-key.pem", "hop-certificate.pem", "data.npz"}
HANDED_OVER = ["spec.yaml", "terms.yaml", "hops.yaml", "sheet.txt"]


def handed_over(
    folder: Path, document: dict[str, Any], aggregators: list[str], capsys: pytest.CaptureFixture[str]
) -> Path:
    """The folders of all parties, with consents."""
    assert main(written(folder, document, free_addresses(*aggregators))) == 0
    assert "was proposed" in checked(folder / "out", capsys)
    return folder / "out"


@pytest.mark.parametrize(
    ("document", "aggregators"),
    [(TREE, AGGREGATORS), (MASKED, ["cloud"]), (MASKED_TREE, AGGREGATORS)],
    ids=["two levels", "masked star", "masked two levels"],
)
def test_processes_play_over_tls(
    document: dict[str, Any], aggregators: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run folder is verified, and its ε are those of account."""
    out = handed_over(tmp_path, document, aggregators, capsys)
    with forked(Settings(str(out))):
        assert main(["party", "cloud", "--folder", str(out)]) == 0
    played = out / "cloud" / "run"
    assert check_run(played).problems == []
    assert len(load_run(played).metrics) == 3
    expected = {(row.unit, row.observer): row.epsilon for row in account(spec_of(document)).guarantees}
    found = load_run(played).privacy.guarantees
    assert {(row.unit, row.observer): row.epsilon for row in found} == expected
    parent = "edge:0" if "edge-0" in aggregators else "cloud"
    assert f"connected to {parent} at 127.0.0.1:" in (out / "device-0" / LOG).read_text()


def rows_of_owners(inputs: TrainingInputs, folder: Path) -> Mapping[str, Path]:
    """A file of its own rows for every device, outside all folders of parties."""
    places = {name: folder / f"rows of {name}.npz" for name in DEVICES}
    for number, place in enumerate(places.values()):
        own = rows_of(inputs.data, inputs.partition, number)
        np.savez(place, features=own.train_features, labels=own.train_labels, outputs=[own.facts.outputs])
        place.chmod(0o600)
    return places


def test_owners_keep_keys_and_rows_and_the_model_is_that_of_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owners make keys and hand over public.yaml alone; who deploys has neither a secret nor a row."""
    with on_the_grid():
        expected = run(spec_of(TREE), out=tmp_path / "expected", device="cpu", progress=False)
    plan = resolve(spec_of(TREE))
    assert isinstance(plan, TreePlan)
    inputs = TrainingInputs.of(plan)
    owners, deployer = tmp_path / "owners", tmp_path / "deployer"
    deployer.mkdir()
    entries = free_addresses(*AGGREGATORS) | {name: {} for name in DEVICES}
    for name, entry in entries.items():
        assert main(["deploy", "keys", str(owners / name)]) == 0
        shutil.copy(owners / name / "public.yaml", deployer / f"{name}.yaml")
        entry["public"] = f"{name}.yaml"
    for name, rows in rows_of_owners(inputs, owners).items():
        entries[name]["data"] = str(rows)
    capsys.readouterr()
    assert main(written(deployer, TREE, entries)) == 0
    assert "secret keys" not in capsys.readouterr().out
    for name in entries:
        made = deployer / "out" / name
        assert not {path.name for path in made.iterdir()} & SECRETS
        for file in HANDED_OVER:
            shutil.copy(made / file, owners / name)
    shutil.rmtree(deployer)
    assert "was proposed" in checked(owners, capsys)
    assert main(["deploy", "check", str(owners)]) == 0
    assert "reads the 12 rows of" in capsys.readouterr().out
    drawn = SimulatedRandomness(plan, inputs, len(DEVICES))
    with forked(Settings(str(owners), simulated=True)):
        monkeypatch.setattr(remote_rounds, "SystemRandomness", lambda: drawn)
        assert main(["party", "cloud", "--folder", str(owners)]) == 0
    assert model_bytes(load_run(owners / "cloud" / "run")) == model_bytes(expected.folder)


def test_parties_that_are_killed_send_the_same_bytes_again_and_the_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device with noise, an edge with noise and the cloud stop in the midst of it, and are started again.

    Two aggregations a round, three rounds: a device has six answers, and an edge three, whatever happened.
    """
    out = handed_over(tmp_path, TREE, AGGREGATORS, capsys)
    deaths = {"device-2": 3, "edge-0": 2}
    with forked(Settings(str(out), deaths=deaths)):
        rounds = remote_party.play_remotely(out / "cloud", print)
        assert next(rounds).round == 1
        cast(Generator[Any], rounds).close()  # as an interrupt ends it
        assert main(["party", "cloud", "--folder", str(out)]) == 0
    assert check_run(out / "cloud" / "run").problems == []
    assert len(load_run(out / "cloud" / "run").metrics) == 3
    for name in (*DEVICES, "edge-0", "edge-1"):
        given = answers(out / name)
        assert len(set(given)) == (3 if name.startswith("edge") else 6), name
        if (last := deaths.get(name)) is not None:
            assert given[last] == given[last - 1]
            assert (out / name / LOG).read_text().count("takes part in tree") == 2


@pytest.mark.parametrize(
    ("document", "moments"), [(TREE, 6), (MASKED_TREE, 22)], ids=["plain", "masked devices"]
)
def test_an_edge_that_is_killed_in_every_phase_answers_each_round_once(
    document: dict[str, Any], moments: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is started again each time; where the cloud gives it up, with one line, the cloud is started again.

    A question comes once a round, all else in both aggregations: of the cloud's frame, of a device's answer,
    or of the five messages that a device has in a session of masks.
    """
    out = handed_over(tmp_path, document, AGGREGATORS, capsys)
    stopped = 0
    with forked(Settings(str(out), fragile=["edge-0"])):
        while main(["party", "cloud", "--folder", str(out)]) != 0:
            assert capsys.readouterr().err.splitlines()[-1].startswith("sfumato: edge:0: ")
            stopped += 1
            assert stopped < moments
    assert check_run(out / "cloud" / "run").problems == []
    assert len(set(killed_at(out / "edge-0"))) == len(killed_at(out / "edge-0")) == moments
    assert len(set(answers(out / "edge-0"))) == len(set(answers(out / "edge-1"))) == 3
    print(f"killed {moments} times; the cloud stopped {stopped} times")


def test_a_masked_session_that_a_device_has_left_is_played_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device starts again in the midst of round 2: the cloud stops with one line, and then goes on."""
    out = handed_over(tmp_path, MASKED, ["cloud"], capsys)
    with forked(Settings(str(out), deaths={"device-1": 7})):
        assert main(["party", "cloud", "--folder", str(out)]) == 1
        assert "sfumato: device:1: " in capsys.readouterr().err.splitlines()[-1]
        assert main(["party", "cloud", "--folder", str(out)]) == 0
    assert check_run(out / "cloud" / "run").problems == []
    assert len(load_run(out / "cloud" / "run").metrics) == 3


def test_a_run_goes_on_without_a_device_that_is_gone(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within the declared dropouts, as with sockets; no ε after the run follows from the seed's losses."""
    star = MASKED | {"topology": {"kind": "star", "devices": 4}, "faults": {"dropout_rate": 0.1}}
    out = handed_over(tmp_path, star, ["cloud"], capsys)
    play_without(out, "device-2", monkeypatch)
    assert "goes on without device:2 (is not connected)" in caplog.text
    played = out / "cloud" / "run"
    assert check_run(played).problems == []
    assert load_run(played).privacy.after_run == {}
    for name in DEVICES:
        PartyMemory(out / name / "memory").close()  # their processes have ended
