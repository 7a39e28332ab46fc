"""Connections from who has not introduced himself yet: so many at a time, and nobody waits for another one.

Where there are too many, one connection of the network that has most, or of those that do, is ended, drawn
at random: who opens many ends his own, and those who say nothing keep no child out. Were it always the oldest
one, a child whose link is slow would be out as soon as strangers behind the same address opened as many as
there is room for. Drawn from m, a connection outlives k others with probability (1 − 1/m)^k.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress


class Newcomers:
    """Connections that are looked at, each by a thread of its own.

    Args:
        most: so many at the same time.
        on_end: called with the network of one that is ended for another one, before it is.
    """

    def __init__(self, most: int, on_end: Callable[[str], object]) -> None:
        self._on_end = on_end
        self._room = threading.BoundedSemaphore(most)
        self._networks: dict[socket.socket, str] = {}  # by a handle of each
        self._lock = threading.Lock()

    def add(self, raw: socket.socket, network: str) -> socket.socket:
        """Add a connection from ``network``, see `network_of`; another handle of it, which must be removed.

        Raises:
            OSError: the system has no room for another handle.
        """
        handle = raw.dup()
        if not self._room.acquire(blocking=False):
            self._end_one()
            self._room.acquire()  # its thread is about to remove it
        with self._lock:
            self._networks[handle] = network
        return handle

    def has_introduced_itself(self, handle: socket.socket) -> bool:
        """Take one out of those who may be ended; whether it was among them, that is, was not ended."""
        with self._lock:
            return self._networks.pop(handle, None) is not None

    def remove(self, handle: socket.socket) -> None:
        """Let another one be looked at; ``handle`` is closed."""
        with self._lock:
            self._networks.pop(handle, None)
            handle.close()
        self._room.release()

    def _end_one(self) -> None:
        """End one connection of the networks that have most, if there is any."""
        with self._lock:
            if not self._networks:
                return
            counts = Counter(self._networks.values())
            most = max(counts.values())
            one = secrets.choice([handle for handle, its in self._networks.items() if counts[its] == most])
            network = self._networks.pop(one)
        self._on_end(network)
        with self._lock:  # as its thread closes it
            shut(one)


def network_of(host: str) -> str:
    """Whom the address of a connection counts for: itself; of IPv6 the 2^64 of its network, which one has."""
    found = ipaddress.ip_address(host.partition("%")[0])
    return host if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))


def shut(connection: socket.socket) -> None:
    """End a socket under the hands of a thread that waits for it."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
