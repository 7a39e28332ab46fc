from __future__ import annotations

import hashlib
import io
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sfumato.durable_files import HashedFile, replacing
from sfumato.engine.base import EngineSettings
from sfumato.errors import RunError
from sfumato.learning.server_optimizer import ServerState
from sfumato.protocols.device_vectors import DeviceVectors
from sfumato.protocols.groups.state import GroupedState
from sfumato.protocols.tree.state import TreeState
from sfumato.run_folder.rounds_log import EMPTY, SealedPrefix
from sfumato.run_folder.seal import CHECKPOINT_FILE, Seal, read_seal
from sfumato.simulation import checkpoint
from sfumato.simulation.checkpoint import Checkpoint, TrainingPosition

MARK = SealedPrefix(2, 17, "ab" * 32)


def written(moments: int = 2, device: str = "cpu") -> Checkpoint:
    model = torch.arange(5.0)
    server = ServerState(2, tuple(model + n for n in range(moments)))
    standing = TrainingPosition(TreeState(2, model, server), torch.tensor([2, 0, 1]))
    return Checkpoint(standing, "name: é\n", "cd" * 32, ("edge:1",), MARK, device)


def tree_document(**state: object) -> dict[str, object]:
    return {"state": state, "participations": torch.zeros(1)}


RIGHT: dict[str, Any] = {
    "round": 0,
    "model": torch.zeros(2),
    "server_rounds": 0,
    "server_moments": [],
    "memory": None,
    "variates": None,
}


def sealed(folder: Path, document: object, protocol: str = "tree", device: Any = "cpu") -> None:
    """A file whose seal is right, whatever ``document`` is."""
    seal = Seal("", "", protocol, (), EMPTY, device)
    with replacing(folder / CHECKPOINT_FILE) as file:
        torch.save(document, file)
        seal.write(file)


def test_the_documents_below_are_wrong_in_one_thing_only(tmp_path: Path) -> None:
    sealed(tmp_path, tree_document(**RIGHT))
    assert checkpoint.load(tmp_path) is not None


@pytest.mark.parametrize("inside_interval", [False, True])
def test_round_trip_of_groups(inside_interval: bool, tmp_path: Path) -> None:
    models = torch.arange(6.0).reshape(2, 3)
    seats = DeviceVectors(torch.zeros(3))
    seats.write_(np.array([1, 0]), models + 2)
    parts = (models + 1, seats) if inside_interval else ()
    state = GroupedState(2, models, *parts, server=ServerState(2, (models + 3, models + 4)))
    checkpoint.save(tmp_path, replace(written(), position=TrainingPosition(state, torch.zeros(3))))
    read = checkpoint.load(tmp_path)
    assert read is not None
    assert isinstance(read.position.state, GroupedState)
    assert read.position.state.round == 2
    for name in ("models", "base"):
        mine, yours = getattr(read.position.state, name), getattr(state, name)
        assert mine is yours is None or torch.equal(mine, yours)
    gathered = read.position.state.gathered
    assert (gathered is None) == (not inside_interval)
    if gathered is not None:
        assert all(map(torch.equal, gathered.pack(), seats.pack()))
    assert read.position.state.server.rounds == 2
    for mine, yours in zip(read.position.state.server.moments, state.server.moments, strict=True):
        assert torch.equal(mine, yours)


def assert_equal(read: Checkpoint | None, right: Checkpoint) -> None:
    assert read is not None
    mine, yours = read.position.state, right.position.state
    assert isinstance(mine, TreeState)
    assert isinstance(yours, TreeState)
    assert (mine.round, mine.server.rounds) == (2, 2)
    assert torch.equal(mine.model, yours.model)
    assert len(mine.server.moments) == len(yours.server.moments)
    for one, other in zip(mine.server.moments, yours.server.moments, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(read.position.participations, right.position.participations)
    for name in ("spec", "fingerprint", "observers", "rounds", "device"):
        assert getattr(read, name) == getattr(right, name)


@pytest.mark.parametrize("moments", [0, 1, 2])
def test_round_trip(moments: int, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, written(moments))
    assert_equal(checkpoint.load(tmp_path), written(moments))


def test_the_seal_is_read_alone(tmp_path: Path) -> None:
    assert read_seal(tmp_path) is None
    checkpoint.save(tmp_path, written())
    seal = read_seal(tmp_path)
    assert seal is not None
    assert (seal.spec, seal.fingerprint, seal.protocol) == ("name: é\n", "cd" * 32, "tree")
    assert (seal.observers, seal.rounds) == (("edge:1",), MARK)


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, written())
    assert stat.S_IMODE((tmp_path / CHECKPOINT_FILE).stat().st_mode) == 0o600


def test_none_where_there_is_none(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path) is None
    assert checkpoint.load(tmp_path / "nowhere") is None


def test_a_save_replaces_the_last_and_leaves_nothing_else(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, written(0))
    checkpoint.save(tmp_path, written(1))
    assert_equal(checkpoint.load(tmp_path), written(1))
    assert [p.name for p in tmp_path.iterdir()] == [CHECKPOINT_FILE]


@pytest.mark.parametrize("nth", range(3))
def test_an_interrupt_of_its_writing_stays_one(
    nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, written())
    before, calls = (tmp_path / CHECKPOINT_FILE).read_bytes(), iter(range(100))
    write = HashedFile.write

    def interrupted(file: HashedFile, data: bytes) -> int:
        if next(calls) == nth:
            raise KeyboardInterrupt
        return write(file, data)

    monkeypatch.setattr(HashedFile, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, written(3))
    assert (tmp_path / CHECKPOINT_FILE).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT_FILE]


def test_every_truncation_and_every_flipped_bit_is_damage(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, written())
    path = tmp_path / CHECKPOINT_FILE
    whole = path.read_bytes()
    damaged = [whole[:length] for length in range(0, len(whole), 97)]
    damaged += [whole + b"\0", whole + whole, whole[1:]]
    for place in range(0, len(whole), 13):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        for read in (checkpoint.load, read_seal):
            with pytest.raises(RunError, match=r"checkpoint\.pt: is damaged"):
                read(tmp_path)


def test_a_checkpoint_of_another_version_is_said(tmp_path: Path) -> None:
    archive = io.BytesIO()
    torch.save({"protocol": "tree"}, archive)
    content = archive.getvalue() + b"\0" * 24
    for file in (archive.getvalue(), content + hashlib.sha256(content).digest()):
        (tmp_path / CHECKPOINT_FILE).write_bytes(file)
        with pytest.raises(RunError, match="not a checkpoint of this version"):
            checkpoint.load(tmp_path)


@pytest.mark.parametrize(
    ("document", "protocol"),
    [
        ([], "tree"),
        ({}, "tree"),
        ("text", "tree"),
        (torch.zeros(3), "tree"),
        (tree_document(**RIGHT | {"round": 3}), "tree"),
        (tree_document(**RIGHT | {"model": [0.0]}), "tree"),
        (tree_document(**RIGHT | {"server_moments": [1.0]}), "tree"),
        (tree_document(**RIGHT | {"memory": torch.zeros(2, 2)}), "tree"),
        (tree_document(**RIGHT | {"variates": [torch.zeros(2), torch.zeros(3, 2)]}), "tree"),
        (tree_document(**RIGHT) | {"participations": [1]}, "tree"),
        (tree_document(**RIGHT), "grouped"),
        (tree_document(**RIGHT), "another"),
        (
            tree_document(round=0, models=None, base=None, gathered=None, server_rounds=0, server_moments=[]),
            "grouped",
        ),
        (tree_document(round=0, models=torch.zeros(1, 2), base=torch.zeros(1, 2), gathered=None), "grouped"),
    ],
)
def test_another_document_is_not_a_checkpoint(document: object, protocol: str, tmp_path: Path) -> None:
    sealed(tmp_path, document, protocol)
    with pytest.raises(RunError, match="not a checkpoint of this version"):
        checkpoint.load(tmp_path)


def test_a_device_of_another_version_is_not_one(tmp_path: Path) -> None:
    sealed(tmp_path, tree_document(**RIGHT), device={"device": "cpu", "threads": 1})
    with pytest.raises(RunError, match="not a checkpoint of this version"):
        checkpoint.load(tmp_path)


def test_no_code_is_run(tmp_path: Path) -> None:
    sealed(tmp_path, {"state": EngineSettings("cpu", 1, 1)})  # an object of ours, let alone of others
    with pytest.raises(RunError):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize(("device", "here"), [("cuda", 0), ("cuda:2", 2)])
def test_a_run_of_a_device_that_is_not_here(
    device: str, here: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: here > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: here)
    checkpoint.save(tmp_path, written(device=device))
    with pytest.raises(RunError, match=f"{device}, which is not available here"):
        checkpoint.load(tmp_path)
