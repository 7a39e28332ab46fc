"""The parties of a folder as processes that are connected over TLS, all but the cloud, or one master.

    python forked_parties.py SETTINGS

Processes are forked from this one, which has loaded everything: starting Python anew takes longer than a run.
They end when standard input does. `forked` starts all of it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from sfumato.cli import main
from sfumato.deployment import invitation, remote_party, remote_rounds, tls_hops
from sfumato.deployment.carrier import FrameReceiver
from sfumato.deployment.edge import EdgeParty
from sfumato.deployment.invitation import Started, read_terms
from sfumato.deployment.randomness import SystemRandomness

ANSWERS, LOG, DEATHS = "answers", "log", "deaths"
_POLL_S = 0.1


@dataclass(frozen=True)
class Settings:
    """What the processes do.

    Attributes:
        folder: of the parties' folders.
        simulated: whether they draw what `run` does.
        deaths: who is killed by force, after how many answers: the last one is kept, and not sent yet.
        back: whether those who were killed are started again.
        left_out: the party that is not among them: the cloud, or one master.
        fragile: edges that are killed by force at every kind of frame of every aggregation of a round, once
            before they take it and once after; `killed_at` says at which.
    """

    folder: str
    simulated: bool = False
    deaths: Mapping[str, int] = field(default_factory=dict)
    back: bool = True
    left_out: str = "cloud"
    fragile: Sequence[str] = ()


@contextmanager
def forked(settings: Settings) -> Iterator[None]:
    """All parties but one, each in a process; each keeps its answers in its folder, a line each."""
    words = [sys.executable, __file__, json.dumps(asdict(settings))]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=environment) as process:
        try:
            yield
        finally:
            assert process.stdin is not None  # it is a pipe
            process.stdin.close()
            assert process.wait() == 0


def play_without(out: Path, name: str, patch: pytest.MonkeyPatch) -> None:
    """Play the three rounds of a cloud without a device, which is killed for good in the midst of the second.

    It is not waited for as long as one that may come back.
    """
    with forked(Settings(str(out), deaths={name: 7}, back=False)):
        rounds = remote_party.play_remotely(out / "cloud", print)
        assert next(rounds).round == 1
        patch.setattr(tls_hops, "PATIENCE_S", 10.0)
        assert [result.round for result in rounds] == [2, 3]


def answers(folder: Path) -> list[str]:
    """What a party answered, in hexadecimal digits, one after the other."""
    return (folder / ANSWERS).read_text().splitlines()


def killed_at(folder: Path) -> list[str]:
    """The kinds of frames at which a fragile edge was killed, with the aggregation and whether before it."""
    return (folder / DEATHS).read_text().splitlines()


def _make_fragile(folder: Path) -> None:
    """Let the edge of a folder be killed; see `Settings.fragile`."""
    from losing_devices import named

    deaths = folder / DEATHS
    deaths.touch()

    class Fragile(EdgeParty):
        def receive(self, data: bytes) -> list[bytes]:
            self._may_die(f"{named(data)} before")
            sent = super().receive(data)
            self._may_die(f"{named(data)} after")
            return sent

        def _may_die(self, moment: str) -> None:
            if moment not in killed_at(folder):
                with deaths.open("a") as file:
                    file.write(f"{moment}\n")
                os.kill(os.getpid(), signal.SIGKILL)

    invitation.EdgeParty = Fragile  # type: ignore[misc]


@dataclass
class _Noting:
    """A party that keeps what it answers, and is killed when it has answered so often."""

    party: FrameReceiver
    log: Path
    last: int | None
    answered: int = 0

    def receive(self, data: bytes) -> list[bytes]:
        frames = self.party.receive(data)
        self.answered += 1
        with self.log.open("a") as file:
            file.writelines(f"{frame.hex()}\n" for frame in frames)
        if self.answered == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        return frames


def _be(settings: Settings, name: str, last: int | None) -> None:
    """Be a party, in a process of its own."""
    folder, real = Path(settings.folder) / name, remote_party.start_party

    def started(
        own: Path, below: Mapping[int, FrameReceiver] | None, say: Callable[[str], object]
    ) -> Started:
        made = real(own, below, say)
        return replace(made, party=_Noting(made.party, folder / ANSWERS, last))

    remote_party.start_party = started
    if settings.simulated:
        _draw_what_run_does(folder)
    if name in settings.fragile:
        _make_fragile(folder)
    with (folder / LOG).open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os._exit(main(["party", name, "--folder", settings.folder]))


def _draw_what_run_does(folder: Path) -> None:
    """Let the party of a folder draw what `run` does."""
    from rehearsals import drawn_by_run

    from sfumato.schedule.resolve import resolve
    from sfumato.simulation.training_inputs import TrainingInputs

    said, terms = read_terms(folder)
    plan = resolve(terms.plan.spec)
    drawn = drawn_by_run(plan, TrainingInputs.of(plan), said.number)
    for where in (invitation, remote_rounds):
        where.SystemRandomness = cast(Callable[[], SystemRandomness], lambda: drawn)


def _keep(settings: Settings) -> None:
    """Start all parties, and those that were killed again, until standard input ends."""
    there: dict[int, str] = {}

    def start(name: str, last: int | None) -> None:
        process = os.fork()
        if process == 0:
            _be(settings, name, last)
        there[process] = name

    for folder in sorted(Path(settings.folder).iterdir()):
        if (folder / "terms.yaml").exists() and folder.name != settings.left_out:
            start(folder.name, settings.deaths.get(folder.name))
    while not select.select([sys.stdin], [], [], _POLL_S)[0]:
        ended, status = os.waitpid(-1, os.WNOHANG) if there else (0, 0)
        if ended:
            name = there.pop(ended)
            if settings.back and os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
                start(name, None)
    for process in there:
        os.kill(process, signal.SIGTERM)
    for process in there:
        os.waitpid(process, 0)


if __name__ == "__main__":
    import rehearsals  # noqa: F401  # and with it all that parties need
    import torch

    torch.set_num_threads(1)
    _keep(Settings(**json.loads(sys.argv[1])))
