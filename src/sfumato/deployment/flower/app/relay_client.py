"""The relay beside a child: what comes by Flower goes to the socket of its party, and the answer back."""

import socket
import time

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def _relayed(message: Message, context: Context) -> Message:
    """Hand the frame of ``message`` to the party's socket; returns the party's answer as a message.

    Raises:
        OSError: the socket cannot be reached.
        EOFError: the party has ended.
    """
    question = message.content["frame"]["bytes"]
    for pause in (0.2, 1.0, None):  # a party makes its socket anew after every connection
        with socket.socket(socket.AF_UNIX) as party:
            try:
                party.connect(str(context.node_config["socket"]))
            except OSError:
                if pause is None:
                    raise
                time.sleep(pause)
                continue
            party.settimeout(3600)
            party.sendall(len(question).to_bytes(8, "big") + question)
            party.shutdown(socket.SHUT_WR)
            said = b"".join(iter(lambda: party.recv(1 << 20), b""))
            break
    if len(said) <= 4:  # a greeting, SFMT, and no answer
        raise EOFError("the party has ended")
    return Message(RecordDict({"frame": ConfigRecord({"bytes": said[4:]})}), reply_to=message)


app.train()(_relayed)
