"""All processes of Flower of a `deploy --local`: a federation for every aggregator, and in each a relay.

Every aggregator has a SuperLink of its own, to which a SuperNode for each of its children connects. So what
devices send to an edge is in the processes of that edge's federation, and in none of the cloud's. The relay
is a Flower app: beside an aggregator it has a socket for each child, beside a child it connects to the
party's.

SuperLinks have TLS, on the loopback address too, and take only SuperNodes whose keys are registered: one
cannot be had without the other here. Where the system allows it (`relay_user`), all of Flower runs as another
user, who can use the sockets of the parties and cannot read their folders. It gets nothing of this process's
environment.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from sfumato.deployment.doors import Doors
from sfumato.deployment.flower import keeper
from sfumato.deployment.flower.certificates import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    write_certificates,
    write_node_key,
)
from sfumato.deployment.flower.relay_user import NOBODY, relay_user
from sfumato.errors import RunError

_START_S, _COMMAND_S, _END_S = 600.0, 300.0, 30.0  # a busy machine takes long
_POLL_S = 0.2
_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",  # at .05 a core is busy with it, and nothing is sooner
    "LC_ALL": "C.UTF-8",
}
_APP = ("pyproject.toml", "relay_client.py", "relay_server.py")


class FlowerRelays:
    """The relays between all parties of one machine. They must be closed, which ends all their processes.

    Args:
        environment: the folder of Flower's environment.
        names: of all parties, by number.
        parents: of every party but the cloud, by number.
        log: a file for what Flower says.

    Attributes:
        doors: of the parties: they can listen there at once, and be reached after `start`.
        words: which user Flower runs under, in a sentence.
    """

    def __init__(
        self, environment: Path, names: Sequence[str], parents: Mapping[int, int], log: Path
    ) -> None:
        self._names, self._parents, self._log = names, parents, log
        self._programs = environment / "bin"
        self._user = relay_user(str(self._programs / "python"))
        self._place = Path(tempfile.mkdtemp(prefix="sfumato-"))
        own, self._folder = self._place / "parties", self._place / "relay"
        reached = self._folder / "sockets"
        for folder in (own, self._folder, reached, self._folder / "app"):
            folder.mkdir()
        for folder in (self._place, own):
            folder.chmod(0o711)  # its parties' sockets are the relay's user's, if there is one
        user = self._user.get("user", os.getuid())
        cannot = f"as the user {NOBODY}, who cannot read" if self._user else "as this user, who could read"
        self.words = f"Flower carries all frames; it runs {cannot} the parties' files."
        self.doors = Doors([own / name for name in names], [reached / name for name in names], user)
        self._keeper: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start all processes, and wait until every relay is there.

        Raises:
            RunError: a program of Flower fails, or is not there in time.
        """
        children: dict[int, list[int]] = {}
        for child, parent in self._parents.items():
            children.setdefault(parent, []).append(child)
        ports = _free_ports(len(children) + len(self._parents))
        link_ports = dict(zip(children, ports, strict=False))
        node_ports = dict(zip(self._parents, ports[len(children) :], strict=True))
        self._write_files(link_ports)
        self._start_keeper()
        for link in link_ports:
            self._keep("flower-superlink", *self._link_options(link_ports[link]))
        self._wait_for(lambda: all(map(_listens, link_ports.values())), "not all SuperLinks")
        registered = {child: self._registered(child) for child in self._parents}
        for child, parent in self._parents.items():
            self._keep("flower-supernode", *self._node_options(child, link_ports[parent], node_ports[child]))
        for link, below in children.items():
            numbers = " ".join(f"{self._names[child]}={registered[child]}" for child in below)
            settings = {"folder": str(self._folder / "sockets"), "children": numbers}
            config = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
            self._run("flwr", "run", "app", self._names[link], "--run-config", " ".join(config))
        reached = [self.doors.reached[child] for child in self._parents]
        self._wait_for(lambda: all(path.exists() for path in reached), "not all relays")

    def close(self) -> None:
        """End all processes of Flower, and remove their folder.

        They are ended by the keeper, a process that started them. It is waited for up to 30 seconds and never
        killed, since nobody else knows the processes that it has still to end: on a busy machine it goes on
        by itself.
        """
        if self._keeper is not None:
            assert self._keeper.stdin is not None  # it is a pipe
            self._keeper.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._keeper.wait(_END_S)
        shutil.rmtree(self._place, ignore_errors=True)

    def _registered(self, child: int) -> int:
        """Register a child's key with the SuperLink of its parent; returns the number of its node.

        Raises:
            RunError: it cannot be registered.
        """
        name, link = self._names[child], self._names[self._parents[child]]
        said = self._run("flwr", "supernode", "register", f"{name}.pub", link, "--format", "json")
        try:
            return int(json.loads(said)["node-id"])
        except (ValueError, TypeError, KeyError):
            raise RunError(f"Flower: {name} cannot be registered: {said[:200]!r}") from None

    def _link_options(self, port: int) -> list[str]:
        """Options of a SuperLink on ``port``.

        TLS, registered SuperNodes only, messages in memory and on no disk.
        """
        return [
            *("--ssl-certfile", CERTIFICATE, "--ssl-keyfile", KEY, "--ssl-ca-certfile", AUTHORITY),
            *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ]

    def _node_options(self, child: int, link: int, port: int) -> list[str]:
        """Options of the SuperNode of party ``child``."""
        return [
            *("--root-certificates", AUTHORITY, "--superlink", f"127.0.0.1:{link}"),
            *("--auth-supernode-private-key", self._names[child]),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--node-config", f"socket={json.dumps(str(self.doors.own[child]))}"),
        ]

    def _write_files(self, links: Mapping[int, int]) -> None:
        """Write all files that Flower's processes need, and make the relays' user their owner.

        ``links``: the port of the SuperLink of every aggregator, by its number.
        """
        app = resources.files("sfumato.deployment.flower") / "app"
        for name in _APP:
            (self._folder / "app" / name).write_bytes((app / name).read_bytes())
        shutil.copyfile(keeper.__file__, self._folder / "keeper.py")
        write_certificates(self._folder)
        for child in self._parents:
            write_node_key(self._folder / self._names[child])
        lines = [f'[superlink]\ndefault = "{self._names[next(iter(links))]}"']
        for link, port in links.items():
            lines += [f"[superlink.{self._names[link]}]", f'address = "127.0.0.1:{port}"']
            lines += [f"root-certificates = {json.dumps(str(self._folder / AUTHORITY))}"]
        (self._folder / "config.toml").write_text("\n".join(lines) + "\n")
        if self._user:
            for path in (self._folder, *self._folder.rglob("*")):
                os.chown(path, self._user["user"], self._user["group"])

    def _options(self) -> dict[str, Any]:
        """Keyword arguments of `subprocess.Popen` with which processes of Flower are started."""
        folder = str(self._folder)
        places = {"HOME": folder, "FLWR_HOME": folder, "PATH": f"{self._programs}:/usr/bin:/bin"}
        return {**self._user, "env": _ENVIRONMENT | places, "cwd": folder, "start_new_session": True}

    def _start_keeper(self) -> None:
        """Start the process that starts all others, and that ends them when its input is closed."""
        command = [str(self._programs / "python"), "-I", "keeper.py"]
        with self._log.open("ab") as log:
            self._keeper = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, **self._options()
            )

    def _keep(self, program: str, *options: str) -> None:
        """Start a program that ends when this process does."""
        assert self._keeper is not None
        assert self._keeper.stdin is not None  # it is a pipe
        self._keeper.stdin.write(json.dumps([str(self._programs / program), *options]) + "\n")
        self._keeper.stdin.flush()

    def _run(self, program: str, *words: str) -> str:
        """Run a program of Flower's environment to its end; returns what it wrote to standard output.

        Raises:
            RunError: it fails, or does not end.
        """
        command = [str(self._programs / program), *words]
        with self._log.open("ab") as log:
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    errors="replace",
                    timeout=_COMMAND_S,
                    **self._options(),
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                why = getattr(error, "strerror", None) or f"has not ended within {_COMMAND_S:g} s"
                raise RunError(f"{command[0]}: {why}") from None
        if done.returncode != 0:
            raise RunError(f"{command[0]} {' '.join(words[:2])}: fails; see {self._log}")
        said: str = done.stdout
        return said

    def _wait_for(self, condition: Callable[[], bool], missing: str) -> None:
        """Wait until ``condition()`` is true; ``missing``: what cannot be reached otherwise, for the error.

        Raises:
            RunError: it does not in time, or Flower's processes have ended.
        """
        assert self._keeper is not None
        deadline = time.monotonic() + _START_S
        while not condition():
            if self._keeper.poll() is not None or time.monotonic() > deadline:
                raise RunError(f"Flower: {missing} can be reached; see {self._log}")
            time.sleep(_POLL_S)


def _free_ports(count: int) -> list[int]:
    """A list of ``count`` ports of the loopback address that nobody uses."""
    opened = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in opened]
    for one in opened:
        one.close()
    return ports


def _listens(port: int) -> bool:
    """Whether somebody listens at a port of the loopback address."""
    with socket.socket() as dialing:
        return dialing.connect_ex(("127.0.0.1", port)) == 0
