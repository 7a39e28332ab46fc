"""`deploy --local`: every device and edge in a process of its own on this machine; the cloud in this one.

The masters of groups are in this one too, as it writes the models of all groups into the run folder.

An edge's process connects to those of its devices. So the cloud's process never has a frame between them.

The standard input of every party's process is a pipe whose other end only this process has. However this
process ends, that end is closed then, and the parties end: as by SIGTERM, so all that a memory holds is kept.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sfumato.arguments import Argument
from sfumato.deployment.calls import at_once
from sfumato.deployment.carrier import FrameReceiver
from sfumato.deployment.doors import Doors
from sfumato.deployment.duties import duties
from sfumato.deployment.flower.relays import FlowerRelays
from sfumato.deployment.invitation import write_invitation
from sfumato.deployment.local_parties import PartyFolders, local_parties_of
from sfumato.deployment.loop_code import LoopCode
from sfumato.deployment.played_rounds import PlayedRounds, played_run
from sfumato.deployment.randomness import SystemRandomness
from sfumato.deployment.refusals import refuse_groups_over_flower, require_own_loop_fits
from sfumato.deployment.sockets import AwaitedParty, RemoteParty
from sfumato.errors import RunError, SpecError
from sfumato.interrupts import wait_or_kill
from sfumato.run_folder.reader import RunFolder
from sfumato.simulation.run import RoundResult, run_rounds
from sfumato.simulation.training_loop import Session
from sfumato.spec.document import Spec

MOST_DEVICES, MOST_OVER_FLOWER = 64, 16
_LOG = "log"
_POLL_S, _PATIENCE_S = 0.1, 10.0


def deploy_locally(
    spec: Spec,
    *,
    out: Path,
    parties: Path,
    purpose: str,
    command: Callable[[Path], Sequence[str]],
    flower: Path | None = None,
    loop: str | None = None,
    resume: bool = False,
    force: bool = False,
    on_step: Callable[[str], object] = lambda name: None,
    on_round: Callable[[RoundResult], object] = lambda result: None,
    on_words: Callable[[str], object] = lambda sentence: None,
) -> RunFolder:
    """Deploy ``spec`` over processes of this machine, and write the run folder ``out``.

    Args:
        spec: as loaded.
        out: the run folder.
        parties: the folder of the parties' own folders. Parties that have one already take part again.
        purpose: what the data are used for.
        command: gives the command that runs a folder's party, at its socket, until its standard input ends.
        flower: folder of Flower's environment, which then carries all frames; ``None``: sockets alone do.
        loop: ``FILE.py:function``, which trains every device in the place of Sfumato's engine (`own_loop`);
            whoever calls this agrees to it for all owners. ``None``: what each consent says.
        resume: continue the run in ``out``; its parties go on where they were.
        force: replace the run that ``out`` holds.
        on_step: called with the name of every step that begins, except rounds.
        on_round: called after every round.
        on_words: called with every sentence that a party agrees to.

    Raises:
        SpecError: the spec is wrong or cannot be deployed, or ``out`` holds another run.
        RunError: a party refuses, or has ended.
        SfumatoError: a folder cannot be written.
    """
    opened = ExitStack()
    code = None if loop is None else LoopCode.read(loop, Path.cwd(), Argument("loop"))

    def played_by(session: Session) -> PlayedRounds[Any]:
        _require_few(session.plan.parties.device_count, flower)
        if flower is not None:
            refuse_groups_over_flower(session.plan.spec)
        if code is not None:
            require_own_loop_fits(session.plan.spec)
        local = local_parties_of(session, parties, out, purpose, resume=resume)
        opened.callback(local.close)
        there = _all_started(local, command, flower, code, opened, on_step, on_words)
        for sentence in (said for head in local.terms.heads for said in duties(local.terms, head)):
            on_words(sentence)
        on_step("training")
        draws = SystemRandomness()  # that of all parties' processes too
        return local.rounds(there, lambda head: draws, {draws.source}, at_once)

    with opened:
        rounds = partial(run_rounds, spec, out=out, device="cpu", on_step=on_step, played_by=played_by)
        for result in rounds(resume=resume, force=force):
            on_round(result)
    return played_run(out, purpose)


def _require_few(devices: int, flower: Path | None) -> None:
    """Refuse more devices than a machine has room for.

    Raises:
        SpecError: there are more.
    """
    most, more = (MOST_DEVICES, "") if flower is None else (MOST_OVER_FLOWER, ", and Flower's beside it")
    if devices > most:
        allowed = f"must be at most {most} devices: each is a process with PyTorch in it{more}"
        raise SpecError("topology", f"{devices:,} devices", allowed)


def _all_started(
    local: PartyFolders[Any],
    command: Callable[[Path], Sequence[str]],
    flower: Path | None,
    loop: LoopCode | None,
    opened: ExitStack,
    on_step: Callable[[str], object],
    on_words: Callable[[str], object],
) -> dict[int, FrameReceiver]:
    """Start all parties as processes, and Flower if it carries frames; they end when ``opened`` is closed.

    The arguments are those of `deploy_locally`; ``local``: the parties' folders.

    Returns:
        The children of the aggregators without a parent, by number.
    """
    relays = None
    if flower is not None:
        terms, names = local.terms, [place.name for place in local.places]
        parents = {number: terms.parent(number) for number in range(len(names)) if number not in terms.heads}
        relays = FlowerRelays(flower, names, parents, local.places[0].with_name("flower.log"))
        opened.callback(relays.close)
    doors = Doors.of_folders(local.places) if relays is None else relays.doors
    _invite(local, doors, loop)
    on_step("starting all parties")
    there = _started(local, doors, command, opened, on_words)
    if relays is not None:
        on_step("starting Flower")
        on_words(relays.words)
        relays.start()
    return there


def _invite(local: PartyFolders[Any], doors: Doors, loop: LoopCode | None) -> None:
    """Write the folders of all parties but the heads, and close them: their own processes open them.

    ``local``: the parties' folders; ``doors``: their sockets.
    """
    rows, terms = local.rows(), local.terms
    for number, place in enumerate(local.places):
        if number not in terms.heads:
            data = rows[number] if number < terms.device_count else None
            write_invitation(place, doors, terms, number, data, loop)
            local.forget(number)


def _started(
    local: PartyFolders[Any],
    doors: Doors,
    command: Callable[[Path], Sequence[str]],
    opened: ExitStack,
    on_words: Callable[[str], object],
) -> dict[int, FrameReceiver]:
    """Start all parties as processes and wait until they answer; they end when ``opened`` is closed.

    ``local``: their folders; ``command`` and ``on_words``: as of `deploy_locally`.

    Returns:
        The children of the aggregators without a parent, by number.
    """
    processes = {
        number: opened.enter_context(_Process(place, doors.own[number], command(place)))
        for number, place in enumerate(local.places)
        if number not in local.terms.heads
    }
    there: dict[int, FrameReceiver] = {}
    most = max(map(local.terms.largest_answer, local.terms.heads))
    for number, process in processes.items():
        name = local.terms.name(number)
        process.await_answer(name, doors.relay_user)
        if local.terms.parents(number)[0] in local.terms.heads:
            reached, user = doors.reached[number], doors.relay_user
            there[number] = remote = AwaitedParty(reached, name, most, relay_user=user)
            opened.callback(remote.close)
        for sentence in process.words():
            on_words(sentence)
    return there


class _Process:
    """The process of one party; it is ended by its own number when it is left.

    Args:
        folder: of the party.
        socket: where it will listen.
        command: that starts it.
    """

    def __init__(self, folder: Path, socket: Path, command: Sequence[str]) -> None:
        self._folder, self._socket = folder, socket
        socket.unlink(missing_ok=True)
        with (folder / _LOG).open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        wait_or_kill(self._process, _PATIENCE_S)
        assert self._process.stdin is not None  # it is a pipe
        self._process.stdin.close()

    def await_answer(self, name: str, relay_user: int | None) -> None:
        """Wait until the party, whose name is for errors, answers.

        ``relay_user``: whose its socket is, if it is not this user's.

        Raises:
            RunError: it has ended; the message is the last line that it said.
        """
        while self._process.poll() is None:
            if self._socket.exists():
                with suppress(RunError):  # it is bound, and not listening yet
                    RemoteParty(self._socket, name, most_bytes=0, relay_user=relay_user).close()
                    return
            time.sleep(_POLL_S)
        said = self.words()
        raise RunError(said[-1].removeprefix("sfumato: ") if said else f"{name}: has ended and said nothing")

    def words(self) -> list[str]:
        """What it said so far, line by line."""
        return (self._folder / _LOG).read_text("utf-8", "replace").splitlines()
