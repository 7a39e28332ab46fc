"""Exchanges between the ranks of a run by torch.distributed: gloo between CPUs, NCCL between GPUs."""

from __future__ import annotations

import pickle
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from sfumato.arguments import Argument
from sfumato.distributed.launch import Launch
from sfumato.distributed.ranks import IntArray
from sfumato.errors import RunError, first_line
from sfumato.interrupts import ended_by, interrupted_by, raise_lost_interrupt

T = TypeVar("T")

PATIENCE = timedelta(minutes=30)
"""How long a rank waits in an exchange for the others, who may still be training."""

_FAILED = "sfumato/failed"
_LENGTH, _SMALL = 8, 4096
_LONGEST_SLEEP = 2e-3


class ProcessGroup:
    """The ranks of a run that torchrun started; see `Ranks`.

    Args:
        launch: which of them this process is.
        store: where a rank that fails says so.
    """

    def __init__(self, launch: Launch, store: dist.distributed_c10d.Store) -> None:
        self._launch, self._store = launch, store

    @property
    def rank(self) -> int:
        """The number of this process among the ranks, from 0."""
        return self._launch.rank

    @property
    def count(self) -> int:
        """The number of ranks, which are the processes of the run."""
        return self._launch.count

    def added(self, values: IntArray) -> IntArray:
        """All-reduce by sum: the sums of ``values`` over all ranks, entry by entry, on every rank.

        Every rank must call it, with ``values`` of the same shape. They may be overwritten by the sums.

        Raises:
            RunError: another rank has ended, or has not come for `PATIENCE`.
        """
        return self._reduced(values, dist.ReduceOp.SUM)

    def largest(self, values: IntArray) -> IntArray:
        """All-reduce by maximum: as `added`, with the largest of ``values`` in place of the sum."""
        return self._reduced(values, dist.ReduceOp.MAX)

    def _reduced(self, values: IntArray, by: dist.ReduceOp.RedOpType) -> IntArray:
        """``values`` combined over all ranks by an operation such as sum or maximum, entry by entry."""
        found = np.ascontiguousarray(values)
        self._wait(lambda: dist.all_reduce(torch.from_numpy(found), by, async_op=True))
        return found

    def share_rows_(self, values: Tensor, owners: Sequence[Tensor]) -> None:
        """Fill in, on every rank, the rows of ``values`` ``[p, ...]`` that the other ranks own.

        ``owners``: for each rank, the rows it owns, int64 on the CPU; each row at most once.
        """
        most = max(map(len, owners))
        if not most:
            return
        here = [rows.to(values.device) for rows in owners]
        raw = values.view(torch.uint8) if values.dtype == torch.bool else values
        mine = raw.new_zeros(most, *raw.shape[1:])
        mine[: len(here[self.rank])] = raw[here[self.rank]]
        theirs = [torch.empty_like(mine) for _ in owners]
        self._wait(lambda: dist.all_gather(theirs, mine, async_op=True))
        for rank, rows in enumerate(here):
            if rank != self.rank:
                raw[rows] = theirs[rank][: len(rows)]

    def moved(self, values: Tensor, going: Sequence[int], coming: Sequence[int]) -> Tensor:
        """Send rows of ``values`` ``[p, M]``, in the order of the ranks that they are for, to these ranks.

        Every rank must call it. Returns the rows that came, in the order of the ranks that sent them.
        ``going``: how many rows are for each rank; ``coming``: how many each rank sends here.

        Raises:
            RunError: another rank has ended, or has not come for `PATIENCE`.
        """
        came = values.new_empty(sum(coming), *values.shape[1:])
        sizes = list(coming), list(going)
        self._wait(lambda: dist.all_to_all_single(came, values.contiguous(), *sizes, async_op=True))
        return came

    def gather(self, value: T) -> list[T]:
        """Each rank's ``value``, in the order of ranks; small objects that can be pickled.

        One exchange, of which the first `_LENGTH` bytes of a rank are a length; a second where one of the
        values takes more than `_SMALL` bytes.
        """
        mine = _packed(value)
        first = torch.cat([torch.tensor([len(mine)]).view(torch.uint8), mine[:_SMALL]])
        rows = self._gathered(first, _LENGTH + _SMALL)
        lengths = rows[:, :_LENGTH].contiguous().view(torch.int64)[:, 0].tolist()
        rows = rows[:, _LENGTH:] if max(lengths) <= _SMALL else self._gathered(mine, max(lengths))
        return [_unpacked(row[:length]) for row, length in zip(rows, lengths, strict=True)]

    def _gathered(self, mine: Tensor, most: int) -> Tensor:
        """Each rank's ``mine``, uint8 ``[most]`` or shorter: ``[count, most]``, filled up with zeros."""
        rows = torch.zeros(self.count, most, dtype=torch.uint8)
        rows[self.rank, : len(mine)] = mine
        self.share_rows_(rows, list(torch.arange(self.count)[:, None]))
        return rows

    def of_first(self, value: T) -> T:
        """Broadcast from rank 0: its ``value``, on every rank; what the others pass is ignored.

        Every rank must call it. ``value``: a small object that can be pickled.

        Raises:
            RunError: another rank has ended, or has not come for `PATIENCE`.
        """
        mine = _packed(value if self.rank == 0 else None)
        length = self.added(np.array([len(mine) if self.rank == 0 else 0]))[0]
        found = mine if self.rank == 0 else torch.empty(int(length), dtype=torch.uint8)
        self._wait(lambda: dist.broadcast(found, 0, async_op=True))
        return value if self.rank == 0 else _unpacked(found)

    def is_first_to_fail(self) -> bool:
        """Record that this rank fails; returns whether it is the first, which then tells the user why."""
        try:
            return bool(self._store.add(_FAILED, 1) == 1)
        except RuntimeError:  # who kept the store has ended
            return self.rank == 0

    def _wait(self, begin: Callable[[], Any]) -> None:
        """Begin an exchange between ranks and wait for it; signals get through, unlike in a blocking call.

        Args:
            begin: starts the exchange; returns its handle (``torch.distributed.Work``).

        Raises:
            KeyboardInterrupt: a signal came; also where the exception that it raised was lost. The ranks that
                the same signal ended are then no failure.
            RunError: another rank has ended, or has not come for `PATIENCE`.
        """
        raise_lost_interrupt()
        try:
            work, pause = begin(), 2e-5
            while not work.is_completed():
                time.sleep(pause)
                pause = min(1.5 * pause, _LONGEST_SLEEP)
            work.wait()
        except RuntimeError as error:
            raise_lost_interrupt()
            minutes = PATIENCE.seconds // 60
            raise RunError(
                f"another of the {self.count} processes of this run has ended, or gave no answer for "
                f"{minutes} minutes; {Argument('resume', True)} continues it from the last checkpoint"
            ) from error


def _packed(value: object) -> Tensor:
    """A value, pickled, as a tensor of bytes."""
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)


def _unpacked(packed: Tensor) -> Any:
    """The value that `_packed` made a tensor of bytes of."""
    return pickle.loads(packed.numpy().tobytes())


@contextmanager
def joined(launch: Launch, *, cuda: bool) -> Iterator[ProcessGroup]:
    """Context in which this process exchanges values with the other ranks.

    Inside it the first SIGINT or SIGTERM interrupts and later ones are ignored: torchrun passes on the Ctrl-C
    that a terminal has sent already, and what is saved then must not be interrupted again. While the ranks
    find each other both end the process: there is nothing to save.

    Args:
        launch: which rank this process is.
        cuda: whether tensors on GPUs are exchanged too; then GPU ``launch.local`` is this rank's.

    Raises:
        RunError: the others did not come.
    """
    if cuda:
        torch.cuda.set_device(launch.local)
    try:
        with ended_by(signal.SIGINT, signal.SIGTERM):  # torchrun sends one where another rank has ended
            store, rank, count = next(rendezvous("env://", timeout=PATIENCE))
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if cuda else "gloo",
                store=store,
                rank=rank,
                world_size=count,
                timeout=PATIENCE,
            )
    except RuntimeError as error:  # dist.DistError is one
        said = first_line(error)
        raise RunError(f"the {launch.count} processes of this run did not find each other: {said}") from error
    with interrupted_by(signal.SIGINT, signal.SIGTERM, once=True):
        yield ProcessGroup(launch, store)
    with suppress(RuntimeError):
        dist.destroy_process_group()
