"""Connections from who has not introduced himself yet: so many at a time, and nobody waits for another one.

Where there are too many, the first connection of the host that has most is ended: a host that opens many ends
its own, and those who say nothing keep no child out.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress


class Newcomers:
    """Connections that are looked at, each by a thread of its own.

    Args:
        most: so many at the same time.
        on_end: called with the host of one that is ended for another one, before it is.
    """

    def __init__(self, most: int, on_end: Callable[[str], object]) -> None:
        self._on_end = on_end
        self._room = threading.BoundedSemaphore(most)
        self._hosts: dict[socket.socket, str] = {}  # by a handle of each, in their order
        self._lock = threading.Lock()

    def add(self, raw: socket.socket, host: str) -> socket.socket:
        """Add a connection from ``host``; another handle of it, which must be removed.

        Raises:
            OSError: the system has no room for another handle.
        """
        handle = raw.dup()
        if not self._room.acquire(blocking=False):
            self._end_one()
            self._room.acquire()  # its thread is about to remove it
        with self._lock:
            self._hosts[handle] = host
        return handle

    def has_introduced_itself(self, handle: socket.socket) -> bool:
        """Take one out of those who may be ended; whether it was among them, that is, was not ended."""
        with self._lock:
            return self._hosts.pop(handle, None) is not None

    def remove(self, handle: socket.socket) -> None:
        """Let another one be looked at; ``handle`` is closed."""
        with self._lock:
            self._hosts.pop(handle, None)
            handle.close()
        self._room.release()

    def _end_one(self) -> None:
        """End the first connection of the host that has most, if there is one."""
        with self._lock:
            if not self._hosts:
                return
            host = Counter(self._hosts.values()).most_common(1)[0][0]
            first = next(handle for handle, other in self._hosts.items() if other == host)
            del self._hosts[first]
        self._on_end(host)
        with self._lock:  # as its thread closes it
            shut(first)


def shut(connection: socket.socket) -> None:
    """End a socket under the hands of a thread that waits for it."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
