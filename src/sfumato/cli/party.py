"""``sfumato party``: one party of a deployment, a process that lives as long as the run and longer."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from sfumato.arguments import Argument
from sfumato.cli.options import Debug
from sfumato.errors import SpecError, first_line
from sfumato.interrupts import interrupt_at_end_of
from sfumato.own_command import own_command


def party_command(folder: Path) -> list[str]:
    """The words of the command that starts the party in ``folder`` and ends it when its starter ends."""
    return own_command("party", folder.name, "--folder", str(folder.parent), "--with-starter")


def say(sentence: str) -> None:
    """Print a sentence; where it cannot be written (a full disk, a closed pipe) nothing happens."""
    with suppress(OSError, ValueError):  # it is closed, or cannot hold a character
        print(sentence, flush=True)


def party(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The party's own folder, e.g. device-3.")],
    folder: Annotated[Path, typer.Option(metavar="DIR", help="The folder that it is in.")],
    with_starter: Annotated[
        bool, typer.Option("--with-starter", help="End when standard input does, as when its starter ends.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Be one party of a deployment: agree to its terms, and answer until ended; the cloud ends with the run.

    So does the master of a group. A device compares what each observer would learn of it with its
    consent.yaml, and refuses more. A party with neighbours on other machines reaches them over TLS; others
    answer behind a socket of their owner.
    """
    if with_starter:
        interrupt_at_end_of(sys.stdin.fileno(), signal.SIGTERM)
    own = folder / name
    if not own.is_dir() or own.parent != folder or name == "..":
        raise SpecError(Argument("folder"), str(folder), f"holds no party {name!r}")
    from sfumato.deployment.remote_party import is_remote

    if is_remote(own):
        _be_remote(own)
        return
    from sfumato.deployment.invitation import start_party
    from sfumato.deployment.sockets import SOCKET, serve

    started = start_party(own, say=say)
    relay = started.relay
    socket, user = (own / SOCKET, None) if relay is None else (Path(relay.socket), relay.user)
    try:
        for sentence in started.words:
            say(sentence)
        serve(started.party, socket, on_refusal=lambda error: say(first_line(error)), relay_user=user)
    finally:
        socket.unlink(missing_ok=True)
        started.close()


def _be_remote(own: Path) -> None:
    """Be the party in the folder ``own`` whose neighbours are on other machines, until it is ended.

    The party that starts the rounds plays the run, shows its progress and ends with it.
    """
    from sfumato.deployment.remote_party import RUN, play_remotely, serve_remotely, spec_of_head

    spec = spec_of_head(own)
    if spec is None:
        serve_remotely(own, say)
        return
    from sfumato.simulation.run_progress import run_progress

    with run_progress(spec, wanted=True) as shown:
        for result in play_remotely(own, say, shown.step):
            shown.round(result.round, result.rounds, result.metrics)
    say(f"run folder: {own / RUN}")
