"""What ranks exchange, and how a process knows which of them it is."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest
import ranked
import torch
import torch.distributed as dist
from lost_signals import send_lost
from places import TESTS

from sfumato.distributed.launch import Launch
from sfumato.distributed.process_group import ProcessGroup
from sfumato.distributed.ranks import ALONE, filled_in
from sfumato.errors import RunError, SpecError
from sfumato.interrupts import interrupted_by

MEET = {"MASTER_ADDR": "here", "MASTER_PORT": "1", "WORLD_SIZE": "3", "RANK": "2"}


def test_torchrun_says_which_rank_a_process_is() -> None:
    assert Launch.of(MEET | {"LOCAL_RANK": "1"}) == Launch(2, 3, 1)


@pytest.mark.parametrize("name", MEET)
def test_a_process_that_torchrun_did_not_start_is_alone(name: str) -> None:
    assert Launch.of({key: value for key, value in MEET.items() if key != name}).alone


@pytest.mark.parametrize(("name", "value"), [("RANK", "3"), ("RANK", "-1"), ("WORLD_SIZE", "two")])
def test_an_environment_that_names_no_rank_is_refused(name: str, value: str) -> None:
    with pytest.raises(SpecError, match=name):
        Launch.of(MEET | {name: value})


def test_alone_every_exchange_is_the_identity() -> None:
    values = torch.tensor([3, 4])
    ALONE.share_rows_(values, [torch.arange(2)])
    assert values.tolist() == [3, 4]
    assert ALONE.added(np.array([3, 4])).tolist() == [3, 4]
    assert filled_in(ALONE, np.array([0.5])).tolist() == [0.5]
    assert (ALONE.largest(2), ALONE.gather("a"), ALONE.of_first("a")) == (2, ["a"], "a")


def test_alone_torch_distributed_is_not_initialised() -> None:
    code = (
        "import sfumato.cli.run, sfumato.simulation.run, sys, torch.distributed as dist;"
        "assert not dist.is_initialized() and 'sfumato.distributed.process_group' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_exchange(ranks: int) -> None:
    said = ranked.ended(ranked.start([TESTS / "support" / "exchanges.py"], ranks))
    assert said == [(0, "all exchanged\n", "")] * ranks


@pytest.mark.parametrize("lost", [True, False], ids=["a signal came and was lost", "no signal came"])
def test_an_interrupted_rank_that_meets_the_end_of_another_is_interrupted(
    lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_reduce(*_: object, **__: object) -> None:
        if lost:
            send_lost(signal.SIGUSR1)
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    with interrupted_by(signal.SIGUSR1, once=True):
        group = ProcessGroup(Launch(0, 2), dist.HashStore())
        with pytest.raises(KeyboardInterrupt if lost else RunError):
            group.added(np.array([1]))


def test_a_rank_that_lost_an_interrupt_begins_no_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    monkeypatch.setattr(dist, "all_reduce", lambda *_, **__: begun.append(1))
    with interrupted_by(signal.SIGUSR1, once=True):
        group = ProcessGroup(Launch(0, 2), dist.HashStore())
        send_lost(signal.SIGUSR1)
        with pytest.raises(KeyboardInterrupt):
            group.added(np.array([1]))
    assert begun == []
