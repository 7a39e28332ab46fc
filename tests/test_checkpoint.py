from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sfumato import checkpoint
from sfumato.checkpoint import Checkpoint
from sfumato.engine.local import Speed
from sfumato.errors import RunError
from sfumato.learning.server_optimizer import ServerState
from sfumato.protocols.grouped import GroupedState
from sfumato.protocols.tiered import TieredState
from sfumato.run_folder import CHECKPOINT_FILE


def standing(moments: int = 2, device: str = "cpu") -> Checkpoint:
    model = torch.arange(5.0)
    server = ServerState(2, tuple(model + n for n in range(moments)))
    rows = ({"round": 1.0, "accuracy": float("nan")}, {"round": 2.0, "accuracy": 0.1 + 0.2})
    return Checkpoint(TieredState(2, model, server), rows, torch.tensor([2, 0, 1]), Speed(device, 3, 1 << 30))


def tiered(**state: object) -> dict[str, object]:
    speed = {"device": "cpu", "threads": 1, "memory_bytes": 1}
    return {
        "protocol": "tiered", "state": state, "rows": [], "participations": torch.zeros(1), "speed": speed,
    }  # fmt: skip


def test_the_documents_below_are_wrong_in_one_thing_only(tmp_path: Path) -> None:
    right = tiered(round=0, model=torch.zeros(2), server_rounds=0, server_moments=[], memory=None)
    torch.save(right, tmp_path / CHECKPOINT_FILE)
    assert checkpoint.load(tmp_path) is not None


@pytest.mark.parametrize("inside_interval", [False, True])
def test_round_trip_of_groups(inside_interval: bool, tmp_path: Path) -> None:
    models = torch.arange(6.0).reshape(2, 3)
    parts = (models + 1, models[:1] + 2) if inside_interval else ()
    written = replace(standing(), state=GroupedState(2, models, *parts))
    checkpoint.save(tmp_path, written)
    read = checkpoint.load(tmp_path)
    assert read is not None
    assert isinstance(read.state, GroupedState)
    assert read.state.round == 2
    for name in ("models", "base", "gathered"):
        mine, yours = getattr(read.state, name), getattr(written.state, name)
        assert mine is yours is None or torch.equal(mine, yours)


@pytest.mark.parametrize("moments", [0, 1, 2])
def test_round_trip(moments: int, tmp_path: Path) -> None:
    written = standing(moments)
    checkpoint.save(tmp_path, written)
    read = checkpoint.load(tmp_path)
    assert read is not None
    assert (read.state.round, read.state.server.rounds, read.speed) == (2, 2, written.speed)
    assert torch.equal(read.state.model, written.state.model)
    assert len(read.state.server.moments) == moments
    for mine, yours in zip(read.state.server.moments, written.state.server.moments, strict=True):
        assert torch.equal(mine, yours)
    assert read.rows[1] == written.rows[1]
    assert torch.equal(read.participations, written.participations)


def test_none_where_there_is_none(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path) is None
    assert checkpoint.load(tmp_path / "nowhere") is None


def test_a_save_replaces_the_last_and_leaves_nothing_else(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, standing(0))
    checkpoint.save(tmp_path, standing(1))
    read = checkpoint.load(tmp_path)
    assert read is not None
    assert len(read.state.server.moments) == 1
    assert [p.name for p in tmp_path.iterdir()] == [CHECKPOINT_FILE]


def test_every_truncation_is_damage(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, standing())
    path = tmp_path / CHECKPOINT_FILE
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(RunError, match=r"checkpoint\.pt"):
            checkpoint.load(tmp_path)


def test_every_flipped_byte_is_damage_or_harmless(tmp_path: Path) -> None:
    """Never a traceback of another kind, and never another model."""
    written = standing()
    checkpoint.save(tmp_path, written)
    path = tmp_path / CHECKPOINT_FILE
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 13):
        damaged = bytearray(whole)
        damaged[place] ^= 0x5A
        path.write_bytes(damaged)
        try:
            read = checkpoint.load(tmp_path)
        except RunError:
            refused += 1
            continue
        assert read is not None
        assert torch.equal(read.state.model, written.state.model), place
        assert repr(read.rows) == repr(written.rows), place
        assert read.speed == written.speed, place
    assert refused > 10


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"round": 1},
        "text",
        torch.zeros(3),
        {"speed": {"device": "cpu", "threads": 1, "memory_bytes": 1, "more": 2}},
        tiered(round=3, model=torch.zeros(2), server_rounds=3, server_moments=[], memory=None),
        tiered(round=0, model=[0.0], server_rounds=0, server_moments=[], memory=None),
        tiered(round=0, model=torch.zeros(2), server_rounds=0, server_moments=[1.0]),
        tiered(round=0, model=torch.zeros(2), server_rounds=0, server_moments=[], memory=None)
        | {"protocol": "grouped"},
        tiered(round=0, model=torch.zeros(2), server_rounds=0, server_moments=[], memory=None)
        | {"protocol": "another"},
        tiered(round=0, models=None, base=None, gathered=None) | {"protocol": "grouped"},
        tiered(round=0, models=torch.zeros(1, 2), base=torch.zeros(1, 2), gathered=None)
        | {"protocol": "grouped"},
    ],
)  # fmt: skip
def test_another_document_is_not_a_checkpoint(document: object, tmp_path: Path) -> None:
    torch.save(document, tmp_path / CHECKPOINT_FILE)
    with pytest.raises(RunError, match="not a checkpoint of this version"):
        checkpoint.load(tmp_path)


def test_no_code_is_run(tmp_path: Path) -> None:
    torch.save(
        {"round": Speed("cpu", 1, 1)}, tmp_path / CHECKPOINT_FILE
    )  # an object of ours, let alone of others
    with pytest.raises(RunError):
        checkpoint.load(tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_run_of_a_device_that_is_not_here(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, standing(device="cuda"))
    with pytest.raises(RunError, match="cuda, which is not available here"):
        checkpoint.load(tmp_path)
