"""Folders that `deploy --parties` writes for the parties of a small deployment."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from sfumato.cli import main
from sfumato.protocols.tree.state import TreeState
from sfumato.run_folder.rounds_log import EMPTY
from sfumato.simulation import checkpoint as checkpoints

PURPOSE = "a study"


def written(folder: Path, document: dict[str, Any], parties: dict[str, Any]) -> list[str]:
    """The words of a command that deploys a spec to parties."""
    (folder / "spec.yaml").write_text(yaml.safe_dump(document))
    (folder / "parties.yaml").write_text(yaml.safe_dump({"purpose": PURPOSE, "parties": parties}))
    places = ["--parties", str(folder / "parties.yaml"), "--out", str(folder / "out")]
    return ["deploy", str(folder / "spec.yaml"), *places]


def free_addresses(*names: str) -> dict[str, dict[str, str]]:
    """An entry with a free address of this machine for each aggregator."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in names]
        ports = [one.getsockname()[1] for one in sockets]
    return {name: {"address": f"127.0.0.1:{port}"} for name, port in zip(names, ports, strict=True)}


def checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `deploy check` refuses with, one line."""
    capsys.readouterr()
    assert main(["deploy", "check", str(folder)]) == 1
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    return told[0]


def put_run(folder: Path, state: TreeState) -> None:
    """A run folder with a checkpoint of that state."""
    position = checkpoints.TrainingPosition(state, torch.zeros(3, dtype=torch.int64))
    rounds = replace(EMPTY, rounds=state.round)
    checkpoints.save(folder, checkpoints.Checkpoint(position, "", "", (), rounds, "cpu"))
