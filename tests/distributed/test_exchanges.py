"""What ranks exchange, and how a process knows which of them it is."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import ranked
import torch
from places import TESTS

from sfumato.distributed.launch import Launch
from sfumato.distributed.ranks import ALONE, filled_in
from sfumato.errors import SpecError

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
