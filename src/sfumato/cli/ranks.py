"""A command over the processes that torchrun starts: they join, and one of them speaks."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from sfumato.distributed.launch import Launch
from sfumato.errors import SfumatoError, SpecError

if TYPE_CHECKING:
    from sfumato.distributed.process_group import ProcessGroup
    from sfumato.distributed.ranks import Ranks

OVER_RANKS = ("run",)
"""The commands that torchrun may start."""


def require_over_ranks(command: str | None, launch: Launch) -> None:
    """Refuse a command that several processes would do several times.

    Raises:
        SpecError: the command is not made for ranks.
    """
    if launch.alone or command in OVER_RANKS:
        return
    several = f"starts it {launch.count} times; only run is shared among processes: start it without torchrun"
    raise SpecError("torchrun", f"sfumato {command or ''}".strip(), several)


@contextmanager
def joined_ranks(device: str) -> Iterator[Ranks]:
    """The ranks of this run. Where several fail, one raises its error and the others end without a word.

    Only rank 0 gives warnings.

    Args:
        device: auto, cpu or cuda.
    """
    launch = Launch.of()
    if launch.alone:
        from sfumato.distributed.ranks import ALONE

        yield ALONE
        return
    import torch

    from sfumato.distributed.process_group import joined

    if launch.rank > 0:
        logging.getLogger("sfumato").setLevel(logging.CRITICAL)
        warnings.simplefilter("ignore")
    cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    with joined(launch, cuda=cuda) as group, _one_speaks(group):
        yield group


@contextmanager
def _one_speaks(group: ProcessGroup) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if group.is_first_to_fail():
            raise
        raise typer.Exit(_status_of(error)) from None


def _status_of(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return 130
    return error.exit_status if isinstance(error, SfumatoError) else 1


def continued(command: Sequence[str], ranks: int) -> list[str]:
    """The words that start ``command`` of sfumato again, over so many ranks."""
    over = ["torchrun", "--nproc-per-node", str(ranks), "-m"] if ranks > 1 else []
    return [*over, "sfumato", *command]
