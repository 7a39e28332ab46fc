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


def require_startable_by_torchrun(command: str | None, launch: Launch) -> None:
    """Check that torchrun may start ``command`` in several processes; any command may run in one process.

    Args:
        command: the subcommand, e.g. ``run``; ``None`` where the command line has none.
        launch: how many processes torchrun started.

    Raises:
        SpecError: each of several processes would do the whole command by itself.
    """
    if launch.alone or command == "run":
        return
    several = f"starts it {launch.count} times; only run is shared among processes: start it without torchrun"
    raise SpecError("torchrun", f"sfumato {command or ''}".strip(), several)


@contextmanager
def joined_ranks(device: str) -> Iterator[Ranks]:
    """Context with the group of processes (torchrun's) that share this run; this process is one of them.

    Where several fail, one raises its error and the others end silently. Only rank 0 gives warnings.

    Args:
        device: auto, cpu or cuda.
    """
    launch = Launch.of()
    if launch.alone:
        from sfumato.distributed.ranks import ALONE

        yield ALONE
        return
    from sfumato.distributed.process_group import joined
    from sfumato.engine.base import picked_device

    if launch.rank > 0:
        logging.getLogger("sfumato").setLevel(logging.CRITICAL)
        warnings.simplefilter("ignore")
    with joined(launch, cuda=picked_device(device) == "cuda") as group, _first_failure_only(group):
        yield group


@contextmanager
def _first_failure_only(group: ProcessGroup) -> Iterator[None]:
    """Context that raises an error only on the rank that fails first; other ranks exit without a message."""
    try:
        yield
    except BaseException as error:
        if group.is_first_to_fail():
            raise
        raise typer.Exit(_exit_status_of(error)) from None


def _exit_status_of(error: BaseException) -> int:
    """The exit status that ``sfumato`` has after this error: 130, that of a `SfumatoError`, else 1."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    return error.exit_status if isinstance(error, SfumatoError) else 1


def command_over_ranks(command: Sequence[str], ranks: int) -> list[str]:
    """Words of a shell command that runs ``sfumato`` with the words ``command`` in ``ranks`` processes.

    Of one process without torchrun: ``["sfumato", "run", "SPEC"]``.
    """
    over = ["torchrun", "--nproc-per-node", str(ranks), "-m"] if ranks > 1 else []
    return [*over, "sfumato", *command]
