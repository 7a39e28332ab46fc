"""Calls to several parties: in turn, or at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import TypeAlias

from sfumato.errors import SfumatoError

Answers: TypeAlias = tuple[list[bytes], SfumatoError | None]
"""The frames that a party sent, and why it sends no more, if it does not."""

Call: TypeAlias = Callable[[], Answers]
Calls: TypeAlias = Callable[[Sequence[Call]], list[Answers]]


def in_turn(calls: Sequence[Call]) -> list[Answers]:
    """Make all ``calls`` one after the other in this thread; returns their results, in the same order."""
    return [call() for call in calls]


def at_once(calls: Sequence[Call]) -> list[Answers]:
    """Make all ``calls`` at the same time, each in a thread; returns their results, in the same order.

    It returns when all have ended. Threads are daemons: an interrupt of this process does not wait for them.
    """
    if len(calls) <= 1:
        return in_turn(calls)
    futures: list[Future[Answers]] = [Future() for _ in calls]

    def make(call: Call, future: Future[Answers]) -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    for call, future in zip(calls, futures, strict=True):
        threading.Thread(target=make, args=(call, future), daemon=True).start()
    wait(futures)
    return [future.result() for future in futures]
