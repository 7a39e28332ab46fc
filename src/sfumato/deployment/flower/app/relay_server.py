"""The relay beside an aggregator: a socket a child; what is said there goes to that child's node, by Flower.

A question is 8 bytes of length and as many more. What comes back is passed on as it is.
"""

import os
import select
import socket
import threading
import time
from contextlib import suppress

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()
_SENDS = 3  # of a question that comes back with an error
_calls = threading.Lock()  # of the grid, one at a time
_asking = threading.Semaphore(os.cpu_count() or 1)  # Flower starts a process for each, and gives up slow ones
_TURN_S = 60.0  # then its process has started, or hangs: the next question need not wait for it


def _relay(grid: Grid, context: Context) -> None:
    """Serve a socket for every child of an aggregator, until this process is ended."""
    os.umask(0o177)  # sockets are for this user only
    for child in str(context.run_config["children"]).split():
        name, _, node = child.partition("=")
        place = os.path.join(str(context.run_config["folder"]), name)
        threading.Thread(target=_serve, args=(grid, int(node), place), daemon=True).start()
    threading.Event().wait()  # until the process is ended


def _serve(grid: Grid, node: int, place: str) -> None:
    """Relay the frames that arrive at the socket ``place`` to SuperNode ``node``, once that is connected."""
    while True:  # until it is connected
        with _calls:
            if node in grid.get_node_ids():
                break
        time.sleep(0.5)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen(1)
        while True:
            connection, _ = listening.accept()
            with connection, suppress(OSError, EOFError):
                connection.sendall(b"SFMT")
                while True:
                    question = _exactly(connection, int.from_bytes(_exactly(connection, 8), "big"))
                    connection.sendall(_asked_in_turn(grid, node, question, connection))


def _asked_in_turn(grid: Grid, node: int, question: bytes, connection: socket.socket) -> bytes:
    """Ask SuperNode ``node`` when it is this question's turn; returns the answer.

    One question at a time is asked, but a turn ends after `_TURN_S` seconds even without an answer.

    Raises:
        EOFError: whoever asked has gone, or there is no answer.
    """
    while not _asking.acquire(timeout=0.2):
        if select.select([connection], [], [], 0)[0]:  # nobody waits any more
            raise EOFError
    turn = threading.Lock()  # whoever takes it ends the turn

    def end() -> None:
        if turn.acquire(blocking=False):
            _asking.release()

    late = threading.Timer(_TURN_S, end)
    late.daemon = True
    late.start()
    try:
        return _asked(grid, node, question, connection)
    finally:
        late.cancel()
        end()


def _asked(grid: Grid, node: int, question: bytes, connection: socket.socket) -> bytes:
    """Send ``question`` to SuperNode ``node``, several times if need be; returns the answer.

    Raises:
        EOFError: whoever asked has gone, or every attempt ended in an error.
    """
    for _ in range(_SENDS):  # a party that had the question sends the same bytes again
        content = RecordDict({"frame": ConfigRecord({"bytes": question})})
        with _calls:
            pushed = list(grid.push_messages([Message(content, node, "train", ttl=3600.0)]))
        answers: list[Message] = []
        while not answers:
            if select.select([connection], [], [], 0.2)[0]:  # nobody waits any more
                raise EOFError
            with _calls:
                answers = list(grid.pull_messages(pushed))
        if not answers[0].has_error():
            answer: bytes = answers[0].content["frame"]["bytes"]
            return answer
    raise EOFError


def _exactly(connection: socket.socket, count: int) -> bytes:
    """Read ``count`` bytes from ``connection``.

    Raises:
        EOFError: it ended before.
    """
    parts = []
    while count:
        parts.append(part := connection.recv(min(count, 1 << 20)))
        if not part:
            raise EOFError
        count -= len(part)
    return b"".join(parts)


app.main()(_relay)
