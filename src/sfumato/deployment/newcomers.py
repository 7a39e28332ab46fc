"""Connections of peers that have not introduced themselves yet: at most so many, and none waits for another.

Where there are too many, one connection of the network with most of them is ended, drawn at random: a peer
that opens many ends its own, and silent peers keep no child out. Were it always the oldest one, a child with
a slow link would lose its connection as soon as strangers behind the same address opened as many as there is
room for. Drawn from m, a connection outlives k others with probability (1 − 1/m)^k.
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
    """Connections without an introduction, each handled by a thread of its own.

    Args:
        most: how many there may be at the same time.
        on_end: called with the network of a connection before it is ended to make room.
    """

    def __init__(self, most: int, on_end: Callable[[str], object]) -> None:
        self._on_end = on_end
        self._room = threading.BoundedSemaphore(most)
        self._networks: dict[socket.socket, str] = {}  # by a handle of each
        self._lock = threading.Lock()

    def add(self, raw: socket.socket, network: str) -> socket.socket:
        """Add a connection from ``network`` (see `network_of`); where there is no room, another one is ended.

        Returns:
            A handle for `remove`.

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
        """Note that the connection of ``handle`` has introduced itself, so that it is no newcomer any more.

        Returns:
            Whether it was one until now: not ended, and not noted before.
        """
        with self._lock:
            return self._networks.pop(handle, None) is not None

    def remove(self, handle: socket.socket) -> None:
        """Make room for another connection; ``handle`` is closed."""
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
    """The network that a connection from ``host`` counts for: an IPv4 address itself, an IPv6 one's /64.

    ``host``: an IP address, perhaps with a zone after ``%``; a ValueError for anything else.
    """
    found = ipaddress.ip_address(host.partition("%")[0])
    return host if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))


def shut(connection: socket.socket) -> None:
    """Shut a socket down, so that a thread that waits for it goes on."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
